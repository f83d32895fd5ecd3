"""Layers that are compiled in one piece, and greedy steps that are recorded: the same numbers as in the plain way."""

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from byrote.models import tree_attention
from byrote.models.base import Seen, TreeBatch
from byrote.models.hf import graphs as hf_graphs
from byrote.models.hf import tree as hf_tree
from byrote.models.hf.attention import Layout
from byrote.models.hf.graphs import (
    FEW,
    MOST,
    STEP,
    RecordedLayout,
    RecordedSteps,
    Size,
    _Recorded,
    compile_layers,
    size_of,
)
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.hf.tree import TreeSessionHF
from byrote.models.tree_attention import WORD, Packing
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.types import Split, Window
from tests.models.tiny import VOCABULARY, tiny_model

CONFIG = RunConfig(
    prefix_tokens=6, suffix_tokens=5, edit_budget=4, beam_width=4, screen="off", keep=2, slots=3, greedy="full"
)


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
    monkeypatch.setattr(hf_graphs, "FEW_TOKENS", 0)
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
        row_of=order,
        beam_counts=(1,) * count,
        prefix_lengths=(),
        outputs=order,
    )


def test_a_recorded_layout_says_what_the_batch_says_and_the_rest_is_written_where_nobody_reads() -> None:
    recorded = RecordedLayout(greedy_batch(4, 9), Size(32, 32, 1), 13)
    for count, reach in ((4, 9), (7, 12), (3, 5)):
        batch = greedy_batch(count, reach)
        layout = Layout(batch)
        recorded.fill(layout)
        assert recorded.tokens[:count].tolist() == batch.token_ids.tolist()
        assert recorded.positions[:count].tolist() == batch.positions.tolist()
        assert recorded.rows(13).tolist() == [*layout.rows(13).tolist(), *[12] * (32 - count)]
        assert recorded.packing.slots[:count].tolist() == batch.slots.tolist()
        assert recorded.packing.counts.tolist() == [1] * count + [0] * (32 - count)
        seen, expected = recorded.live_entries(None), layout.live_entries(None)
        assert seen.counts[:count].tolist() == expected.counts.tolist()
        for row in range(count):
            live = int(expected.counts[row])
            assert seen.columns[row, :live].tolist() == expected.columns[row, :live].tolist()
            assert (seen.bits[row, 0, :live] == 1).all()


def test_steps_without_chains_are_recorded_by_token_while_they_are_few() -> None:
    assert size_of(greedy_batch(5, 4)) == Size(FEW[0], FEW[0], 1)
    assert size_of(greedy_batch(FEW[-1], 4)) == Size(FEW[-1], FEW[-1], 1)
    beams = {"ancestry": torch.ones(40, 20, 4, dtype=torch.bool)}
    assert size_of(TreeBatch(**{**vars_of(greedy_batch(FEW[-1] + 1, 4)), **beams})) == Size(FEW[-1] + STEP, 40, 20)
    assert size_of(greedy_batch(MOST + 1, 4)) is None
    assert size_of(TreeBatch(**{**vars_of(greedy_batch(2, 4)), "prefix_lengths": (3,)})) is None


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
    layout, size = Layout(batch), size_of(batch)
    assert size is not None
    for _ in range(hf_graphs.PLAIN_RUNS):
        assert steps.states(layout, size, 8, waits_for_the_device) is None, "first in the plain way"
        assert not steps.cannot_record
    assert steps.states(layout, size, 8, waits_for_the_device) is None
    assert steps.cannot_record


class Replayed:
    """A graph that repeats, in place of kernels, the call that was recorded."""

    def __init__(self) -> None:
        self.again: Callable[[], None] = lambda: None

    def pool(self) -> None: ...

    def replay(self) -> None:
        self.again()


def slow_attention(
    query: Tensor, keys: Tensor, values: Tensor, seen: Seen, packing: Packing, *, scale: float
) -> Tensor:
    """The kernel's work, one query at a time. What no row asks for is not a number."""
    out = torch.full((query.shape[1], query.shape[0], values.shape[-1]), math.nan)
    groups = query.shape[0] // keys.shape[2]
    for row, count in enumerate(packing.counts.tolist()):
        live, slot = int(seen.counts[row]), int(packing.slots[row])
        for lane in range(count):
            place = int(packing.starts[row]) + lane
            sees = seen.bits[row, lane // WORD, :live] >> lane % WORD & 1 == 1
            entries = seen.columns[row, :live][sees]
            for head in range(query.shape[0]):
                key, value = keys[slot, entries, head // groups], values[slot, entries, head // groups]
                out[place, head] = (key @ query[head, place] * scale).softmax(-1) @ value
    return out


def recorded_on_a_cpu(patch: pytest.MonkeyPatch) -> Counter[Size]:
    """Everything of a recorded forward but the GPU; how often each size was replayed."""
    replayed: Counter[Size] = Counter()

    def record(steps: RecordedSteps, layout: RecordedLayout, evaluate: Callable[[RecordedLayout], Tensor]) -> bool:
        graph, states = Replayed(), evaluate(layout).clone()

        def again() -> None:
            replayed[layout.size] += 1
            states.copy_(evaluate(layout))

        graph.again = again
        steps._steps[layout.size] = _Recorded(layout, graph, states)  # type: ignore[arg-type]
        return True

    patch.setattr(RecordedSteps, "_record", record)
    patch.setattr(tree_attention, "is_available", lambda query: True)
    patch.setattr(hf_tree, "is_available", lambda query: True)
    patch.setattr(tree_attention, "attend", slow_attention)
    return replayed


@pytest.mark.parametrize("few", [512, 2])
def test_recorded_forwards_give_the_numbers_of_plain_ones(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy steps, beams and explorations; by token, and by slot where more than 2 tokens are no longer few."""
    model = tiny_model("llama")
    monkeypatch.setitem(globals(), "CONFIG", replace(CONFIG, estimate="all", residual=60, refine=40, answers=0))
    expected = rows(model, 4)
    monkeypatch.setattr(hf_graphs, "FEW", (2, few))
    replayed = recorded_on_a_cpu(monkeypatch)
    for plain, recorded in zip(expected, rows(model, 4), strict=True):
        for name in ("p_verbatim", "mass_lower", "mass_upper", "mass_estimate"):
            assert np.allclose(plain[name], recorded[name], rtol=1e-4, atol=1e-7), name
        assert plain["greedy_ids"] == recorded["greedy_ids"]
    assert {size.lanes > 1 for size in replayed} == ({False} if few == 512 else {False, True})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_recorded_steps_give_the_answers_of_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama").to("cuda", torch.bfloat16)
    recorded = rows(model, 40)
    monkeypatch.setattr(TreeSessionHF, "_records", property(lambda session: False))
    assert [row["greedy_ids"] for row in rows(model, 40)] == [row["greedy_ids"] for row in recorded]
