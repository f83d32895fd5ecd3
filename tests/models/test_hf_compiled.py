"""Layers that are compiled in one piece, and greedy steps that are recorded: the same numbers as in the plain way."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from rote.models import hf_compile
from rote.models.base import TreeBatch
from rote.models.hf import HuggingFaceModel
from rote.models.hf_attention import Layout
from rote.models.hf_compile import compile_layers
from rote.models.hf_graphs import ROWS, RecordedLayout, RecordedSteps
from rote.models.hf_tree import TreeSessionHF
from rote.scan.options import RunConfig
from rote.scan.pipeline import Pipeline
from rote.types import Split, Window
from tests.models.tiny import VOCABULARY, tiny_model

CONFIG = RunConfig(prefix_tokens=6, suffix_tokens=5, beam_width=4, screen="off", keep=2, slots=3, greedy="full")


class Endless(HuggingFaceModel):
    eos_ids = frozenset[int]()


def windows(count: int) -> list[Window]:
    drawn = torch.randint(4, VOCABULARY, (count, 11), generator=torch.Generator().manual_seed(5)).tolist()
    return [
        Window(f"text@{place}", "text", Split.TARGET, place, 0, 0, tuple(ids[:6]), tuple(ids[6:]))
        for place, ids in enumerate(drawn)
    ]


def rows(model: Any, count: int = 5) -> list[dict[str, Any]]:
    found = Pipeline(Endless(model, None), CONFIG, decode=str).run(windows(count))
    return sorted((measured.row for measured in found), key=lambda row: str(row["window_id"]))


@pytest.mark.parametrize("architecture", ["llama"])
def test_compiled_layers_are_whole_and_say_the_same(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_compile, "FEW_TOKENS", 0)
    model = tiny_model(architecture)
    expected = rows(copy.deepcopy(model))
    torch._dynamo.reset()
    counters.clear()
    compile_layers(model, backend="eager")
    for plain, compiled in zip(expected, rows(model), strict=True):
        for name in ("p_verbatim", "mass_lower", "mass_upper"):
            assert np.allclose(plain[name], compiled[name], rtol=1e-4, atol=1e-7), name
        assert plain["greedy_ids"] == compiled["greedy_ids"]
    assert counters["frames"]["ok"] > 0, "something was compiled"
    assert not counters["graph_break"], "each layer is one piece"


def greedy_batch(count: int, reach: int) -> TreeBatch:
    """One beam in each of some slots, behind chains of other lengths."""
    generator = torch.Generator().manual_seed(count)
    order = torch.arange(count)
    return TreeBatch(
        token_ids=torch.randint(0, VOCABULARY, (count,), generator=generator),
        positions=order + 3,
        slots=order * 2,
        entries=order + 1,
        lanes=torch.zeros(count, dtype=torch.int64),
        ancestry=torch.rand(count, 1, reach, generator=generator) < 0.5,
        entry_positions=torch.arange(reach).expand(count, -1),
        rows=order * 2,
        beam_counts=(1,) * count,
        prefix_lengths=(),
        outputs=order,
    )


def test_a_recorded_layout_says_what_the_batch_says_and_repeats_its_first_row() -> None:
    recorded = RecordedLayout(greedy_batch(4, 9), 32, 12)
    for count, reach in ((4, 9), (7, 12), (3, 5)):
        batch = greedy_batch(count, reach)
        layout = Layout(batch)
        recorded.fill(layout)
        source = [*range(count), *[0] * (32 - count)]
        assert recorded.tokens.tolist() == batch.token_ids[source].tolist()
        assert recorded.positions.tolist() == batch.positions[source].tolist()
        assert recorded.rows(12).tolist() == layout.rows(12)[source].tolist()
        assert recorded.packing.slots.tolist() == batch.slots[source].tolist()
        seen, expected = recorded.live_entries(None), layout.live_entries(None)
        assert seen.counts.tolist() == expected.counts[source].tolist()
        for row, place in enumerate(source):
            live = int(expected.counts[place])
            assert seen.columns[row, :live].tolist() == expected.columns[place, :live].tolist()
            assert seen.sees[row, 0, :live].all()


def test_only_steps_of_one_token_a_window_are_recorded() -> None:
    steps = RecordedSteps()
    assert steps.rows_for(greedy_batch(5, 4)) == ROWS[0]
    assert steps.rows_for(greedy_batch(ROWS[-1], 4)) == ROWS[-1]
    assert steps.rows_for(greedy_batch(ROWS[-1] + 1, 4)) is None
    two_beams = greedy_batch(2, 4)
    assert steps.rows_for(TreeBatch(**{**vars_of(two_beams), "beam_counts": (2,)})) is None
    assert steps.rows_for(TreeBatch(**{**vars_of(two_beams), "prefix_lengths": (3,)})) is None


def vars_of(batch: TreeBatch) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in batch.__dataclass_fields__}


def test_a_step_that_cannot_be_recorded_runs_in_the_plain_way_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    def waits_for_the_device(layout: RecordedLayout) -> torch.Tensor:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Refusing)
    monkeypatch.setattr(torch.cuda, "graph", Refusing)
    steps, batch = RecordedSteps(), greedy_batch(5, 4)
    layout, rows = Layout(batch), steps.rows_for(batch)
    assert rows is not None
    assert steps.states(layout, rows, 8, waits_for_the_device) is None, "first in the plain way"
    assert steps.states(layout, rows, 8, waits_for_the_device) is None
    assert steps.rows_for(batch) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_recorded_steps_give_the_answers_of_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama").to("cuda", torch.bfloat16)
    recorded = rows(model, 40)
    monkeypatch.setattr(TreeSessionHF, "_records", property(lambda session: False))
    assert [row["greedy_ids"] for row in rows(model, 40)] == [row["greedy_ids"] for row in recorded]
