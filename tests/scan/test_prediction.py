"""What a scan will take: the constants are those of the measurement, and predictions agree with what was measured."""

import importlib.util
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rote.errors import ConfigError
from rote.scan import measured_costs, prediction, score
from rote.scan.model_shapes import SHAPES, shape_named
from rote.scan.options import RunConfig
from rote.scan.prediction import (
    AUDIT_LEAST,
    AUDIT_SHARE,
    CHUNK_SHARE,
    ENTRIES_PER_LANE,
    LEAST_FILLED,
    PLAIN_LAYERS,
    QUERIES_PER_FORWARD,
    USABLE_SHARE,
    WINDOWS_PER_CHUNK,
    WINDOWS_PER_FORWARD,
    Costs,
    Scan,
    Slots,
    predict,
    seconds_of,
    slots_of,
    work_of,
)
from rote.search import sizing
from tests.scan.scans import Command

ROOT = Path(__file__).parent.parent.parent
COSTS = Costs(5e14, 3e-4, 5e-11, 4e-3, 6e-4, 0.8, 190.0)
BOOK = Scan(windows=27_000, memorized_share=0.05)


def bench_model() -> ModuleType:
    """bench/scaling_model.py, which is no package."""
    spec = importlib.util.spec_from_file_location("scaling_model", ROOT / "bench" / "scaling_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scaling_model"] = module
    spec.loader.exec_module(module)
    return module


BENCH = bench_model()
SOURCE = BENCH.read_source()
BUILDS = BENCH.costs_of(SOURCE.runs)


def test_the_constants_are_those_of_the_measurement() -> None:
    for name in Costs.__dataclass_fields__:
        stored, now = getattr(measured_costs.COSTS, name), getattr(BUILDS.newer, name)
        assert stored == pytest.approx(now, rel=1e-6, abs=1e-18), "run python bench/scaling_model.py"


def test_the_predictions_on_file_are_those_of_the_constants() -> None:
    stored = json.loads((BENCH.RESULTS / "scaling_predictions.json").read_text(encoding="utf-8"))
    now = BENCH.predictions(SOURCE, BUILDS)
    for size, runs in now["runs"].items():
        for name, values in runs.items():
            assert stored["runs"][size][name] == pytest.approx(values, rel=1e-6), "run python bench/scaling_model.py"
    for size, counts in now["books"].items():
        for gpus, values in counts.items():
            assert stored["books"][size][gpus] == pytest.approx(values, rel=1e-6)


@pytest.mark.parametrize("run", SOURCE.runs, ids=lambda run: f"{run.size}-{run.name}")
def test_predicted_windows_per_second_are_within_15_percent_of_measured(run: object) -> None:
    told = BENCH.predictions(SOURCE, BUILDS)["runs"][run.size][run.name]  # type: ignore[attr-defined]
    assert abs(told["error"]) < 0.15


def test_the_fit_finds_the_constants_that_made_its_stages() -> None:
    kinds = (("not_memorized", 0.0, 2048), ("mix", 0.05, 2048), ("memorized", 1.0, 222))
    runs = [_made(size, *kind) for size in ("7b", "13b", "34b", "70b") for kind in kinds]
    found = BENCH.costs_of(runs).newer
    for name in Costs.__dataclass_fields__:
        assert getattr(found, name) == pytest.approx(getattr(COSTS, name), rel=1e-3)


def _made(size: str, name: str, share: float, windows: int) -> object:
    """A run whose stages took what COSTS says."""
    scan, shape = Scan(windows=windows, memorized_share=share), SHAPES[size]
    host = windows * COSTS.per_window
    stages = {}
    for stage, work in zip(("score", "greedy", "search"), work_of(scan, slots=Slots(37, 37), costs=COSTS), strict=True):
        work = work._replace(windows=0)
        beside = seconds_of(work, replace(shape, layers=0), COSTS)
        layers = seconds_of(work, shape, COSTS) - beside
        # What greedy answers take beside their layers is taken for the host's.
        rest = host if stage == "greedy" else beside
        stages[stage] = dict(forwards=work.forwards, tokens=work.tokens, layer_seconds=layers, seconds=layers + rest)
    seconds = sum(seconds_of(work, shape, COSTS) for work in work_of(scan, slots=Slots(37, 37), costs=COSTS))
    return BENCH.Run(size, name, shape, scan, seconds, stages, Slots(37, 37))


def test_sizes_are_those_that_scans_are_made_with() -> None:
    assert (WINDOWS_PER_FORWARD, WINDOWS_PER_CHUNK) == (score.GPU_BATCH, score.GPU_CHUNK)
    assert (QUERIES_PER_FORWARD, ENTRIES_PER_LANE) == (sizing.GPU_QUERIES, sizing.EXPECTED_ENTRIES_PER_LANE)
    assert (USABLE_SHARE, CHUNK_SHARE, LEAST_FILLED) == (sizing.GPU_SHARE, score.CHUNK_SHARE, sizing.LEAST_FILLED)
    assert (RunConfig().screen_share, RunConfig().screen_least) == (AUDIT_SHARE, AUDIT_LEAST)


@pytest.mark.parametrize(
    ("size", "billions"), [("7b", 6.74), ("8b", 8.03), ("13b", 13.0), ("34b", 33.7), ("70b", 69.0), ("405b", 406)]
)
def test_shapes_have_the_weights_of_their_names(size: str, billions: float) -> None:
    assert SHAPES[size].weights_bytes / 2e9 == pytest.approx(billions, rel=0.01)


def test_more_gpus_take_less_time_and_more_memorized_text_more() -> None:
    hours = [predict(BOOK, SHAPES["13b"], gpus=gpus, costs=COSTS).seconds for gpus in (1, 2, 8)]
    assert hours == sorted(hours, reverse=True)
    shares = [replace(BOOK, memorized_share=share) for share in (0.0, 0.05, 0.5)]
    assert (times := [predict(scan, SHAPES["7b"], gpus=1, costs=COSTS).seconds for scan in shares]) == sorted(times)


def test_a_model_that_one_gpu_cannot_hold_is_spread_over_as_few_as_can() -> None:
    told = predict(BOOK, SHAPES["70b"], gpus=8, costs=COSTS)
    assert (told.gpus_per_model, told.copies) == (2, 4)
    assert told.weights_bytes_per_gpu + told.slots_bytes_per_gpu < 139 * 2**30
    with pytest.raises(ConfigError, match="give --gpus 8 or more"):
        predict(BOOK, SHAPES["405b"], gpus=4, costs=COSTS)


def test_slots_are_chosen_such_that_memorized_text_does_not_run_out_of_memory() -> None:
    """13B keeps keys of 40 heads: 121 slots were once halved to 60; 34B keeps those of 8."""
    sizes = [slots_of(BOOK, SHAPES[size], gpus=1, gpu_bytes=139 * 2**30) for size in ("13b", "34b")]
    assert sizes == [Slots(71, 71), Slots(121, 121)]


@given(
    place=st.sampled_from([("7b", 24), ("8b", 24), ("7b", 40), ("13b", 40), ("13b", 80), ("34b", 80), ("34b", 139)]),
    prefix=st.integers(1, 300),
    suffix=st.integers(1, 120),
    beams=st.integers(1, 60),
)
@example(place=("13b", 139), prefix=50, suffix=50, beams=20)
@example(place=("7b", 24), prefix=1, suffix=1, beams=1)
def test_slots_of_the_plan_are_those_that_the_search_chooses(
    place: tuple[str, int], prefix: int, suffix: int, beams: int
) -> None:
    """With the same memory free; the plan leaves out bookkeeping, some per cent."""
    size, gpu = place
    shape = SHAPES[size]
    config = RunConfig(prefix_tokens=prefix, suffix_tokens=suffix, beam_width=beams, edit_budget=0)
    scan = replace(BOOK, prefix_tokens=prefix, suffix_tokens=suffix, beam_width=beams)
    told = slots_of(scan, shape, gpus=1, gpu_bytes=gpu * 2**30).first
    free = gpu * 2**30 - shape.weights_bytes
    chains = WINDOWS_PER_CHUNK * (prefix + 2 * suffix) * shape.bytes_per_entry
    free -= int(min(chains, CHUNK_SHARE * free))
    device = SimpleNamespace(type="cuda")
    model: Any = SimpleNamespace(
        device=device, vocab_size=shape.vocabulary, tree_bytes_per_entry=lambda: shape.bytes_per_entry
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "free_memory", lambda device: free)
        chosen = sizing.choose_slots(model, config.search_options(), config.limits)
    assert chosen == pytest.approx(told, rel=0.05, abs=1)


@given(prefix=st.integers(1, 60), suffix=st.integers(1, 60), beams=st.integers(1, 30), share=st.floats(0, 1))
def test_no_window_takes_more_evaluations_than_its_tokens_allow(
    prefix: int, suffix: int, beams: int, share: float
) -> None:
    """Constants that were measured with 50 + 50 tokens and 20 beams say nothing of evaluations that cannot be."""
    scan = Scan(windows=1000, memorized_share=share, prefix_tokens=prefix, suffix_tokens=suffix, beam_width=beams)
    first, greedy, search = work_of(scan, slots=Slots(121, 121), costs=measured_costs.COSTS)
    assert first.tokens == 1000 * (prefix + suffix - 1)
    assert greedy.tokens <= 1000 * suffix
    assert search.tokens <= (1 + 1e-9) * 1000 * (suffix - 1) * (beams - 1)
    assert search.forwards >= (suffix - 1 if share and scan.memorized else 0)
    told = predict(scan, SHAPES["7b"], gpus=1, costs=measured_costs.COSTS)
    assert 1 <= told.slots <= QUERIES_PER_FORWARD // (beams + 1)
    assert 1000 / told.seconds < 1 / measured_costs.COSTS.per_window


def test_layers_over_several_gpus_are_not_compiled_which_takes_longer() -> None:
    """By as much as on one GPU; the file has both, which scatter by two percent from run to run."""
    measured = json.loads((BENCH.RESULTS / "scan_gpu_7b.json").read_text(encoding="utf-8"))
    compiled, plain = (measured[f"teacher_forcing_{kind}"]["256"] for kind in ("compiled", "plain"))
    assert pytest.approx(compiled / plain, rel=0.03) == PLAIN_LAYERS
    work = work_of(BOOK, slots=Slots(121, 121), costs=COSTS)[0]
    free = replace(COSTS, per_layer=0.0, per_row_and_token=0.0, per_forward=0.0, per_window=0.0)
    without_head = replace(SHAPES["70b"], vocabulary=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "LINK_BYTES_PER_SECOND", math.inf)
        one, two = (seconds_of(work, without_head, free, gpus=gpus) for gpus in (1, 2))
    assert two == pytest.approx(one / 2 * PLAIN_LAYERS)


def test_an_unknown_size_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="7b, 8b, 13b"):
        shape_named("3b")


def test_the_plan_says_what_a_scan_takes_and_what_that_rests_on(rote: Command) -> None:
    outcome = rote("plan", "--model-size", "70b", "--gpus", 8, "--windows", 27_000, "--memorized-share", 0.05)
    assert outcome.code == 0, outcome.err
    for words in ("GPU hours", "slots", "forwards", measured_costs.MEASURED_IN, "were not measured", "not compiled"):
        assert words in " ".join(outcome.out.split())
    assert "not used" not in outcome.out
    outcome = rote("plan", "--model-size", "70b", "--gpus", 3)
    assert "1 of the 3 GPUs is not used." in outcome.out
