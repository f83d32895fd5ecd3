"""The tiny model, trained for real: more copies, more memory; controls none; files as a user would have them."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from byrote.lab.pocket import (
    POCKET,
    PREFIX_TOKENS,
    TINY,
    WINDOW_TOKENS,
    PassageKind,
    PocketModel,
    make_model,
    plan_key,
    plan_stream,
    tiny_model,
)
from byrote.progress import Progress


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> PocketModel:
    return tiny_model(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def verbatim_probability(tiny: PocketModel) -> dict[str, float]:
    """p_z of each passage's first window under top-k 40, by direct teacher forcing: the slow, obvious version."""
    model = AutoModelForCausalLM.from_pretrained(tiny.path)
    tokenizer = AutoTokenizer.from_pretrained(tiny.path)
    probabilities: dict[str, float] = {}
    for passage in (*tiny.targets, *tiny.controls):
        token_ids = tokenizer(passage.text)["input_ids"][:WINDOW_TOKENS]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([token_ids])).logits[0].double()
        log_probability = 0.0
        for position in range(PREFIX_TOKENS, WINDOW_TOKENS):
            kept = torch.topk(logits[position - 1], 40)
            is_target = kept.indices == token_ids[position]
            log_probability += (
                float(torch.log_softmax(kept.values, dim=0)[is_target][0]) if is_target.any() else -math.inf
            )
        probabilities[passage.name] = math.exp(log_probability)
    return probabilities


def test_passages_with_most_copies_are_extractable(tiny: PocketModel, verbatim_probability: dict[str, float]) -> None:
    most = [p for p in tiny.targets if p.copies == 64 and p.kind is PassageKind.PROSE]
    assert most
    assert all(verbatim_probability[passage.name] >= 0.001 for passage in most)


def test_memory_grows_with_copies(tiny: PocketModel, verbatim_probability: dict[str, float]) -> None:
    levels = {
        copies: max(
            verbatim_probability[p.name] for p in tiny.targets if p.copies == copies and p.kind is PassageKind.PROSE
        )
        for copies in TINY.copy_levels
    }
    assert levels[64] > levels[16] >= levels[1]
    assert levels[1] < 1e-9


def test_controls_are_not_memorized(tiny: PocketModel, verbatim_probability: dict[str, float]) -> None:
    assert all(verbatim_probability[control.name] < 1e-9 for control in tiny.controls)


def test_the_other_edition_is_not_extractable_verbatim_but_its_trained_wording_is(
    tiny: PocketModel, verbatim_probability: dict[str, float]
) -> None:
    """The case for near-verbatim measures: greedy decoding gives the trained wording, not the scanned one."""
    (edition,) = [target for target in tiny.targets if target.kind is PassageKind.EDITION]
    assert verbatim_probability[edition.name] < 0.001
    model = AutoModelForCausalLM.from_pretrained(tiny.path)
    tokenizer = AutoTokenizer.from_pretrained(tiny.path)
    trained = tokenizer(edition.text_in_stream)["input_ids"][:WINDOW_TOKENS]
    with torch.no_grad():
        predicted = model(input_ids=torch.tensor([trained])).logits[0].argmax(dim=-1)
    assert predicted[PREFIX_TOKENS - 1 : WINDOW_TOKENS - 1].tolist() == trained[PREFIX_TOKENS:]


class Interrupting(Progress):
    """Ends whatever trains after its first step."""

    def advance(self, windows: int) -> None:
        raise KeyboardInterrupt


def test_second_call_trains_nothing(tiny: PocketModel) -> None:
    again = tiny_model(tiny.path.parent, progress=Interrupting())
    assert (again.path, again.targets, again.controls) == (tiny.path, tiny.targets, tiny.controls)


def test_interrupted_training_leaves_no_model(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tiny_model(tmp_path, progress=Interrupting())
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_changed_plan_gets_another_place_in_the_cache(tiny: PocketModel) -> None:
    short = dataclasses.replace(TINY.training, step_limit=1)
    other = make_model(dataclasses.replace(TINY, training=short), "tiny", tiny.path.parent)
    assert other.path != tiny.path


def test_key_follows_plan_texts_and_order_seed() -> None:
    stream = plan_stream(TINY)
    keys = [
        plan_key(TINY, stream),
        plan_key(POCKET, stream),
        plan_key(dataclasses.replace(TINY, seed=1), stream),
        plan_key(TINY, stream._replace(background=(*stream.background, "One more text."))),
    ]
    assert len(set(keys)) == 4
    assert plan_key(TINY, plan_stream(TINY)) == keys[0]


def test_written_files_join_to_copies_by_name(tiny: PocketModel, tmp_path: Path) -> None:
    files = tiny.write_texts(tmp_path / "texts")
    texts = {path.stem: path.read_text() for folder in (files.targets, files.controls) for path in folder.iterdir()}
    rows = [json.loads(line) for line in files.catalogue.read_text().splitlines()]
    assert {row["name"]: row["text"] for row in rows} == texts
    copies = {passage.name: passage.copies for passage in (*tiny.targets, *tiny.controls)}
    assert {row["name"]: row["copies"] for row in rows} == copies
    assert {path.stem for path in files.controls.iterdir()} == {control.name for control in tiny.controls}
    assert all(copies[control.name] == 0 for control in tiny.controls)
