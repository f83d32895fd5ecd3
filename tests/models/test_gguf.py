"""GGUF models by llama.cpp: the numbers of the model they were made from, tokens, sessions, whole scans."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rote
from rote.errors import ModelError
from rote.models import gguf_trees
from rote.models.gguf_trees import Asked, Trie
from rote.models.hf import HuggingFaceModel, load
from rote.scan.options import RunConfig
from rote.scan.ray_worker import Worker
from tests.scan.scans import TinyLab, make_command, scan_arguments

pytest.importorskip("gguf", reason="the extra rote[gguf] and the gguf package are not installed")
pytest.importorskip("llama_cpp", reason="the extra rote[gguf] is not installed")
from rote.models.gguf import GgufModel

HALF = 1e-3


def converter() -> ModuleType:
    """bench/gguf_convert.py, which is no package."""
    path = Path(__file__).parent.parent.parent / "bench" / "gguf_convert.py"
    spec = importlib.util.spec_from_file_location("gguf_convert", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def file(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    converter().convert(lab.model.path, path)
    return path


@pytest.fixture(scope="module")
def model(file: Path) -> GgufModel:
    return GgufModel(file, device="cpu")


@pytest.fixture(scope="module")
def original(lab: TinyLab) -> HuggingFaceModel:
    return load(str(lab.model.path), device="cpu", dtype="float32")


def test_logits_are_those_of_the_model_it_was_made_from(model: GgufModel, original: HuggingFaceModel) -> None:
    histories = np.random.default_rng(0).integers(model.vocab_size, size=(9, 20)).tolist()
    found, expected = (each.next_logits(histories).log_softmax(-1) for each in (model, original))
    torch.testing.assert_close(found, expected, rtol=0, atol=HALF)


def test_it_keeps_the_contract_of_models(model: GgufModel) -> None:
    """Forks, dead branches and reused entries of its session among it."""
    rote.testing.check_model(model, context_tokens=3, tolerance=HALF)


def test_tokens_and_their_characters_are_the_tokenizers(
    model: GgufModel, original: HuggingFaceModel, lab: TinyLab
) -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted(lab.files.targets.glob("*.txt"))[:3]]
    for text in [*texts, "naïve 日本 — “x”\n\n  y", "", "</s>"]:
        (found,), (expected,) = model.encode_batch([text]), original.encode_batch([text])
        assert found.ids == expected.ids
        assert found.spans == expected.spans
        assert model.decode(found.ids) == text
    assert model.eos_ids == original.eos_ids
    assert model.bos_id("never") is None
    assert model.bos_id("auto") == original.bos_id("auto")


def test_a_scan_of_the_file_gives_the_verdicts_of_the_folder(
    file: Path, lab: TinyLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = make_command(capsys)
    runs = []
    for name, place in (("gguf", file), ("folder", lab.model.path)):
        arguments = scan_arguments(lab, tmp_path / name, model=place, limit=8, dtype="float32")
        outcome = command(*arguments)
        assert outcome.code == 0, outcome.err
        runs.append(pl.read_parquet(tmp_path / name / "results.parquet"))
    assert runs[0]["suffix_ids"].to_list() == runs[1]["suffix_ids"].to_list()
    assert runs[0]["verdict"].to_list() == runs[1]["verdict"].to_list()
    assert runs[0]["log_p_verbatim"].to_list() == pytest.approx(runs[1]["log_p_verbatim"].to_list(), abs=0.01)
    manifest = rote.read_run(tmp_path / "gguf").manifest
    assert manifest is not None
    assert manifest["model"]["dtype"] == "gguf"


def test_passes_are_divided_without_changing_numbers(model: GgufModel, monkeypatch: pytest.MonkeyPatch) -> None:
    histories = np.random.default_rng(1).integers(40, size=(12, 6)).tolist()
    asked = [Asked(tuple(history), (5, 2)) for history in histories]
    whole = model.logits(asked)
    monkeypatch.setattr(gguf_trees, "PASS_TOKENS", 14)
    monkeypatch.setattr(gguf_trees, "PASS_SEQUENCES", 2)
    torch.testing.assert_close(model.logits(asked), whole, rtol=0, atol=HALF)
    monkeypatch.setattr(gguf_trees, "ROOM_TOKENS", 5)
    with pytest.raises(ModelError, match="a history has 6 tokens"):
        model.logits(asked)


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple), min_size=1, max_size=12))
def test_a_trie_holds_every_beginning_once_and_each_node_knows_who_sees_it(histories: list[tuple[int, ...]]) -> None:
    trie = Trie()
    ordered = sorted(histories, reverse=True)
    paths = {history: trie.add(history) for history in ordered}
    assert len(trie.nodes) == len({history[:length] for history in histories for length in range(1, len(history) + 1)})
    maximal = [one for one in set(histories) if not any(o != one and o[: len(one)] == one for o in histories)]
    assert trie.sequences == len(maximal)
    seen_by = [
        {place for place, node in enumerate(trie.nodes) if number in node.sequences} for number in range(len(maximal))
    ]
    assert sorted(map(sorted, seen_by)) == sorted(sorted(paths[one]) for one in maximal)
    for history, path in paths.items():
        assert tuple(trie.nodes[place].token for place in path) == history
        assert [trie.nodes[place].position for place in path] == list(range(len(history)))


def test_a_file_over_which_the_library_ends_its_process_is_refused(file: Path, tmp_path: Path) -> None:
    """Two tokens of the same letters."""
    content, letter, other = file.read_bytes(), b"\x01" + bytes(7) + b"}", b"\x01" + bytes(7) + b"~"
    assert content.count(letter) == content.count(other) == 1
    (tmp_path / "odd.gguf").write_bytes(content.replace(letter, other))
    with pytest.raises(ModelError, match=r"is damaged: llama\.cpp ends over it"):
        rote.load_model(tmp_path / "odd.gguf")


def test_what_is_no_gguf_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but not much more")
    with pytest.raises(ModelError, match="cannot be loaded by llama"):
        rote.load_model(tmp_path / "broken.gguf")
    with pytest.raises(ModelError, match=r"there is no file .*absent.gguf"):
        rote.load_model(tmp_path / "absent.gguf")


def test_a_ray_worker_opens_a_file_as_its_driver_does(file: Path) -> None:
    """The worker itself, in this process: what Ray adds is tested with folders."""
    config = RunConfig(model=str(file), prefix_tokens=12, suffix_tokens=8, slots=1, device="cpu")
    known = GgufModel(str(file), device="cpu").identity.told_apart_by
    assert Worker(config, known, windows=4).prepare().chunk_windows == 4
    with pytest.raises(ModelError, match=r"has another model at .*weights_hash"):
        Worker(config, {**known, "weights_hash": "0" * 64}, windows=4).prepare()
