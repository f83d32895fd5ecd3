"""Near-verbatim mass of a stream: bounds that hold, every window exactly once, whatever the slots and the order."""

import random
from dataclasses import replace

import pytest
import torch

from byrote.errors import ModelError
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.stages import score
from byrote.scan.stages.search import NearResult, with_verbatim
from byrote.types import StopReason, Window
from byrote.verdict import Bounds, Verdict
from tests.oracle import true_mass
from tests.scan.streams import CONFIG, POLICY, knowing_model, passed, random_windows
from tests.table import TableModel, TableSession

WINDOWS = random_windows(40)
MODEL = knowing_model(WINDOWS[:10])


def near_of(item: Measured) -> NearResult:
    assert item.near is not None
    return item.near


def measure(windows: list[Window], config: RunConfig = CONFIG, model: TableModel = MODEL) -> dict[str, Measured]:
    items = list(passed(model, windows, config))
    found = {item.window.window_id: item for item in items}
    assert len(found) == len(items) == len(windows), "every window exactly once"
    return found


def test_bounds_hold_the_enumerated_mass() -> None:
    for item in measure([*WINDOWS[:3], *WINDOWS[10:17]], replace(CONFIG, stop_rule="off")).values():
        window, bounds = item.window, near_of(item).bounds
        for budget, (lower, upper) in enumerate(zip(bounds.lower, bounds.upper, strict=True)):
            truth = true_mass(
                MODEL, window.prefix_ids, window.suffix_ids, POLICY, budget=budget, distance="levenshtein"
            )
            assert lower - 1e-7 <= truth <= upper + 1e-7


@pytest.mark.parametrize("pin", [True, False])
@pytest.mark.parametrize("stop_rule", ["mass", "off"])
def test_the_mass_at_distance_0_is_the_verbatim_probability_and_the_rest_what_the_search_found(
    pin: bool, stop_rule: str
) -> None:
    for item in measure(WINDOWS, replace(CONFIG, pin=pin, stop_rule=stop_rule, beam_width=1)).values():
        result, p_verbatim = near_of(item), item.score.p
        assert result.bounds.lower[0] == result.bounds.upper[0] == p_verbatim
        assert result.bounds.upper[-1] >= result.bounds.lower[-1] >= p_verbatim
        assert result.outcome is not None
        found = result.outcome.bounds.lower
        assert result.bounds.lower == pytest.approx([p_verbatim + mass - found[0] for mass in found], rel=1e-12)
        assert result.verdict == result.bounds.verdict(0.001)


def test_the_search_and_the_score_give_the_verbatim_path_one_probability() -> None:
    """Both add up what the chain's logits say; only the last rounding may differ."""
    for item in measure(WINDOWS, replace(CONFIG, stop_rule="off")).values():
        outcome = near_of(item).outcome
        assert outcome is not None
        assert outcome.bounds.lower[0] == pytest.approx(item.score.p, rel=1e-14)


def test_without_a_screen_every_window_is_searched() -> None:
    found = [near_of(item) for item in measure(WINDOWS).values()]
    assert all(result.outcome is not None for result in found)
    assert not any(result.is_below_floor for result in found)
    assert StopReason.SCREENED not in {result.stop_reason for result in found}


@pytest.mark.parametrize("slots", [1, 3, 100])
def test_results_do_not_depend_on_slots_chunks_or_order(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = measure(WINDOWS)
    monkeypatch.setattr(score, "CPU_CHUNK", 7)
    shuffled = random.Random(slots).sample(WINDOWS, len(WINDOWS))
    found = measure(shuffled, replace(CONFIG, slots=slots, batch_windows=3))
    for window_id, item in found.items():
        assert near_of(item).bounds == near_of(expected[window_id]).bounds
        assert item.token_evals == expected[window_id].token_evals
        assert item.greedy == expected[window_id].greedy


def test_rows_leave_as_windows_are_settled_and_little_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken and has not left is at most two chunks and the slots, whatever the length of the stream."""
    monkeypatch.setattr(score, "CPU_CHUNK", 8)
    taken = left = most_held = 0

    def stream():  # type: ignore[no-untyped-def]
        nonlocal taken, most_held
        for number in range(400):
            taken += 1
            most_held = max(most_held, taken - left)
            yield replace(WINDOWS[number % 40], window_id=f"w{number}")

    for _ in passed(MODEL, stream(), replace(CONFIG, estimate="off")):
        left += 1
    assert left == taken == 400
    assert most_held <= 8 + 8 + 4 + 1


def test_rating_gets_the_target_probabilities_and_changes_no_window() -> None:
    found = measure(WINDOWS, replace(CONFIG, rank="screen_score"))
    assert all(min(near_of(item).bounds.lower) >= item.score.p for item in found.values())


class Failing(TableModel):
    """Runs out of memory whenever more than `most` chains are evaluated at once."""

    most = 5

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> TableSession:
        session = super().open_tree(slots, entries, longest=longest)
        forward_in_chunks = session.forward_in_chunks

        def checked(batch):  # type: ignore[no-untyped-def]
            if len(batch.prefix_lengths) > self.most:
                raise torch.OutOfMemoryError("CUDA out of memory (pretended)")
            return forward_in_chunks(batch)

        session.forward_in_chunks = checked  # type: ignore[method-assign]
        return session


def failing(most: int) -> Failing:
    model = Failing(torch.randn(512, 6, generator=torch.Generator().manual_seed(0)) * 3)
    model.most = most
    return model


def test_running_out_of_memory_while_scoring_or_sampling_halves_the_batch_and_loses_nothing() -> None:
    roomy, narrow = failing(10**9), failing(5)
    sampled = replace(CONFIG, estimate="undecided")
    expected, found = measure(WINDOWS, sampled, model=roomy), measure(WINDOWS, sampled, model=narrow)
    for window_id, item in found.items():
        assert item.score == expected[window_id].score
        assert near_of(item).bounds == near_of(expected[window_id]).bounds
        assert item.estimate == expected[window_id].estimate
        assert item.answers == expected[window_id].answers
    assert any(item.estimate is not None for item in found.values())


def test_a_single_window_that_does_not_fit_is_one_sentence_that_says_what_to_change() -> None:
    with pytest.raises(ModelError, match=r"a single window of 3 \+ 5 tokens does not fit .* --prefix-tokens"):
        measure(WINDOWS, model=failing(0))


def test_an_error_of_the_windows_is_not_taken_for_one_of_the_engine() -> None:
    """Whoever feeds the pipeline may run out of memory too; that is theirs to say."""

    def windows():  # type: ignore[no-untyped-def]
        yield from WINDOWS[:3]
        raise torch.OutOfMemoryError("of the source")

    with pytest.raises(torch.OutOfMemoryError, match="of the source"):
        list(passed(MODEL, windows(), CONFIG))


def test_a_verbatim_path_that_was_lost_adds_to_what_was_found() -> None:
    assert with_verbatim(Bounds((0.0, 0.25), (0.5, 0.75)), 0.125) == Bounds((0.125, 0.375), (0.125, 0.75))
    stopped = with_verbatim(Bounds((0.0, 0.0), (0.125, 0.25)), 0.125)
    assert stopped == Bounds((0.125, 0.125), (0.125, 0.25))
    assert stopped.verdict(0.125) == Verdict.EXTRACTABLE


@pytest.mark.parametrize("rounding", [-(2.0**-20), 2.0**-20])
def test_of_two_roundings_of_the_verbatim_mass_only_the_teacher_forced_one_counts(rounding: float) -> None:
    """Found: 0.5 verbatim and 0.25 beside it. Neither rounding of 0.5 adds to the other, whichever is larger."""
    p_verbatim = 0.5 + rounding
    bounds = with_verbatim(Bounds((0.5, 0.75), (0.5, 0.75)), p_verbatim)
    assert bounds.lower == (p_verbatim, p_verbatim + 0.25)
    assert bounds.upper == (p_verbatim, max(0.75, p_verbatim + 0.25))


def test_roundings_never_make_more_than_certainty() -> None:
    assert with_verbatim(Bounds((0.5, 1.0), (0.5, 1.0)), 0.5 + 1e-7) == Bounds((0.5 + 1e-7, 1.0), (0.5 + 1e-7, 1.0))
