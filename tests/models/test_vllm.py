"""Models inside vLLM, with a stand-in for the engine: its answers become the numbers of the model itself."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import byrote as package
from byrote.errors import ConfigError, ModelError
from byrote.models import vllm as back_end
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.hf.weights import hash_weights
from byrote.models.listed import Prompt
from byrote.models.vllm import VllmModel, open_vllm, parse_engine_args
from byrote.policy import Policy
from byrote.progress import SilentProgress
from byrote.scan.mc import sample_to_folder
from byrote.scan.options import McOptions, RunConfig
from byrote.scan.run import scan_to_folder
from byrote.store.manifest import differences
from tests.models.vllm_stand_in import StandIn, small_model
from tests.scan.alike import assert_same_rows
from tests.scan.scans import SMALL, Command, TinyLab, scan_arguments

OPTIONS: dict[str, Any] = {**SMALL, "device": "auto", "limit": 10, "screen": "off", "dtype": "float32"}
HISTORY = tuple(range(5, 17))
Open = Callable[..., VllmModel]


@pytest.fixture(scope="module")
def model(lab: TinyLab) -> HuggingFaceModel:
    return small_model(str(lab.model.path))


@pytest.fixture
def opened(lab: TinyLab, model: HuggingFaceModel) -> Open:
    def open_with(stand_in: StandIn | None = None, **options: Any) -> VllmModel:
        given = {"dtype": "float32", **options}
        return open_vllm(str(lab.model.path), vllm=stand_in or StandIn(lambda folder: model), **given)

    return open_with


def config_of(lab: TinyLab, out: Path, **options: Any) -> RunConfig:
    given = {**OPTIONS, **options}
    return RunConfig(model=f"vllm:{lab.model.path}", text=(str(lab.files.targets),), out=str(out), **given)


def rows_of(run: Path, *, listed: int = 10) -> pl.DataFrame:
    """Rows by name; beyond the list no rank is known."""
    ranks = pl.col("suffix_ranks").list.eval(pl.element().clip(upper_bound=listed))
    return package.read_run(run).to_polars().sort("window_id").with_columns(ranks)


@pytest.fixture(scope="module")
def local(lab: TinyLab, model: HuggingFaceModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the same model in this process."""
    out = tmp_path_factory.mktemp("local") / "run"
    scan_to_folder(config_of(lab, out), progress=SilentProgress(), model=model)
    return out


def test_rows_are_those_of_the_model_for_chains_and_single_places(model: HuggingFaceModel, opened: Open) -> None:
    stand_in = StandIn(lambda folder: model)
    listing = opened(stand_in).listing(Policy(1.0, 8))
    prompts = [Prompt(HISTORY, 4), Prompt(HISTORY[:3], 2), Prompt(HISTORY, 4), Prompt(HISTORY[:5], 4)]
    rows = listing.client.rows(prompts)
    assert [len(places) for places in rows] == [8, 1, 8, 1]
    assert [set(call) for call in stand_in.calls] == [{HISTORY, HISTORY[:3], HISTORY[:5]}], "one call, no prompt twice"
    for prompt, places in zip(prompts, rows, strict=True):
        for place, row in enumerate(places, start=prompt.first_place):
            (expected,) = model.next_logits([prompt.token_ids[: place + 1]]).log_softmax(-1)
            values, tokens = expected.sort(descending=True, stable=True)
            assert row.token_ids.tolist() == tokens[:8].tolist()
            assert row.log_probs.tolist() == pytest.approx(values[:8].tolist(), abs=1e-5)


def test_a_model_lists_its_whole_vocabulary_unless_told_otherwise(model: HuggingFaceModel, opened: Open) -> None:
    whole = opened()
    torch.testing.assert_close(whole.next_logits([HISTORY]), model.next_logits([HISTORY]).log_softmax(-1))
    assert opened().listing(Policy(1.0, 7)).listed_tokens == 7
    assert opened().listing(Policy(1.0, None)).listed_tokens == model.vocab_size


def test_calls_return_a_bounded_number_of_log_probabilities(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = opened().listing(Policy(1.0, 4))
    monkeypatch.setattr(back_end, "NUMBERS_AT_ONCE", 5 * 14)
    prompts = [Prompt((*HISTORY, token), first) for token in range(3) for first in (3, 12)]
    calls = list(listing.client._calls(prompts))
    assert [prompt for call in calls for prompt in call] == prompts
    assert len(calls) == 3


def test_a_scan_has_the_rows_of_the_model_itself(lab: TinyLab, opened: Open, local: Path, tmp_path: Path) -> None:
    """All measures by default, sampled answers included, and estimates."""
    stand_in = StandIn(small_model)
    config = config_of(lab, tmp_path / "run")
    scan_to_folder(config, progress=SilentProgress(), model=opened(stand_in))
    assert_same_rows(rows_of(tmp_path / "run"), rows_of(local))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_bytes())
    assert manifest["totals"]["answers"]["answers"] == 20
    assert manifest["model"]["weights_hash"] == hash_weights(Path(lab.model.path))
    assert json.loads(manifest["model"]["settings"])["engine"] == "vLLM 0.32.0"
    assert manifest["config"]["logprobs"] == 10


def test_short_lists_enclose_the_numbers_of_long_ones(lab: TinyLab, opened: Open, local: Path, tmp_path: Path) -> None:
    config = config_of(lab, tmp_path / "run", logprobs=4)
    scan_to_folder(config, progress=SilentProgress(), model=opened())
    for one, other in zip(rows_of(tmp_path / "run").to_dicts(), rows_of(local).to_dicts(), strict=True):
        assert one["p_verbatim"] <= other["p_verbatim"] * 1.0001
        assert other["p_verbatim"] <= one["p_verbatim_upper"] * 1.0001
        for edits in range(3):
            assert one["mass_lower"][edits] <= other["mass_upper"][edits] * 1.0001
            assert other["mass_lower"][edits] <= one["mass_upper"][edits] * 1.0001
        assert "answers" not in one


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"verify": True}, "verify needs the weights"),
        ({"self_check": 2}, "self_check needs the weights"),
        ({"logprobs": 4, "answers": 2}, "give --set logprobs=10"),
        ({"logprobs": 4, "refine": 10}, "give --set logprobs=10"),
        ({"measures": ("verbatim", "membership")}, "membership needs whole distributions"),
    ],
)
def test_what_lists_cannot_give_is_refused(
    options: dict[str, Any], words: str, lab: TinyLab, opened: Open, tmp_path: Path
) -> None:
    config = config_of(lab, tmp_path / "run", **options)
    with pytest.raises(ConfigError, match=words):
        scan_to_folder(config, progress=SilentProgress(), model=opened())
    assert not (tmp_path / "run" / "identity.json").exists()


def test_an_engine_that_ends_leaves_a_run_that_resumes(
    lab: TinyLab, model: HuggingFaceModel, opened: Open, local: Path, tmp_path: Path
) -> None:
    config = config_of(lab, tmp_path / "run", windows_per_part=2, batch_windows=2, slots=2)
    first = StandIn(lambda folder: model, dies_after=35)
    dying = opened(first)
    with pytest.raises(
        ModelError, match=r"vLLM ended over .* EngineCore encountered an issue\. What was measured is kept"
    ):
        scan_to_folder(config, progress=SilentProgress(), model=dying)
    again = StandIn(lambda folder: model)
    other = replace(config, engine_args=("tensor_parallel_size=2", "gpu_memory_utilization=0.5"))
    scan_to_folder(other, progress=SilentProgress(), model=opened(again, engine_args=other.engine_args))
    assert again.arguments["tensor_parallel_size"] == 2
    chains = {prompt for call in first.calls for prompt in call if len(prompt) == 19}
    assert chains - {prompt for call in again.calls for prompt in call}, "what was finished is not computed again"
    assert_same_rows(rows_of(tmp_path / "run"), rows_of(local))


def test_what_decides_the_numbers_is_the_identity(opened: Open, lab: TinyLab) -> None:
    before = opened().described.fingerprint
    assert before["weights_fingerprint"]
    assert opened(engine_args=("gpu_memory_utilization=0.5",)).described.fingerprint == before

    def changed(**options: Any) -> list[str]:
        return [each.split(":")[0] for each in differences(before, opened(**options).described.fingerprint)]

    assert changed(stand_in=StandIn(small_model, __version__="0.33.0")) == ["settings.engine"]
    assert changed(engine_args=("quantization=fp8",)) == ["quantization", "settings.engine_args.quantization"]
    assert changed(dtype="bfloat16") == ["dtype"]


def test_samples_of_a_run_are_those_of_the_model(
    lab: TinyLab, model: HuggingFaceModel, opened: Open, local: Path, tmp_path: Path
) -> None:
    inside = opened()
    scan_to_folder(config_of(lab, tmp_path / "run"), progress=SilentProgress(), model=inside)
    hits = [
        {row["window_id"]: row["hits"] for row in sample_to_folder(McOptions(run=run, samples=20), model=sampled)}
        for run, sampled in ((tmp_path / "run", inside), (local, model))
    ]
    assert hits[0] == hits[1]


def test_the_python_interface_takes_such_a_model(lab: TinyLab, opened: Open, local: Path) -> None:
    model = opened()
    small = {name: value for name, value in OPTIONS.items() if name not in ("device", "dtype")}
    windows = package.read_windows(model, lab.files.targets, **small)
    rows = package.scan(model, windows).to_polars().sort("window_id")
    assert_same_rows(rows.drop("suffix_ranks"), rows_of(local).drop("suffix_ranks"))


def test_arguments_of_the_engine_are_typed() -> None:
    given = ("tensor_parallel_size=2", "--quantization=fp8", "gpu-memory-utilization=0.8", "enforce_eager=True")
    assert parse_engine_args(given) == {
        "tensor_parallel_size": 2, "quantization": "fp8", "gpu_memory_utilization": 0.8, "enforce_eager": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tensor_parallel_size", "write each argument once"),
        ("dtype=float16", "an option of its own"),
        ("trust_remote_code=true", "numbers rest on False"),
        ("max-logprobs=20", "numbers rest on -1"),
        ("flux=2", "unexpected keyword argument 'flux'"),
    ],
)
def test_arguments_that_cannot_be_are_refused_in_one_sentence(text: str, words: str, opened: Open) -> None:
    with pytest.raises(ModelError, match=re.escape(words)):
        opened(engine_args=(text,))


def test_options_that_have_no_meaning_for_it_are_refused(opened: Open, lab: TinyLab) -> None:
    with pytest.raises(ModelError, match="vLLM places"):
        opened(device="cuda:1")
    with pytest.raises(ModelError, match="merge it first"):
        opened(adapter="somewhere")
    with pytest.raises(ModelError, match="engine_args are for models inside vLLM"):
        package.load_model(str(lab.model.path), engine_args=("seed=1",))
    with pytest.raises(ConfigError, match="has vLLM's own workers; leave --executor ray out"):
        RunConfig(model=f"vllm:{lab.model.path}", executor="ray")
    with pytest.raises(ModelError, match="there is no model folder"):
        open_vllm("./nowhere", vllm=StandIn(load))


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_one_sentence_says_how_to_get_it(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", model=f"vllm:{lab.model.path}", device="auto"))
    assert outcome.code == 2
    assert "pip install 'byrote[vllm]'" in " ".join(outcome.err.split())
    assert "Traceback" not in outcome.err
