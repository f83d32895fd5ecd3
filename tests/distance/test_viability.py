"""Batched viability rules against textbook rows and against the enumeration of all completions."""

from typing import NamedTuple

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.distance import Viability, make_viability
from tests.oracle import nearest_completion, textbook_edit_row, textbook_hamming, textbook_levenshtein

VOCABULARY = 3
CPU = torch.device("cpu")


class Stream(NamedTuple):
    """A target and as many continuations of it as there are beams, all of the target's length."""

    target: tuple[int, ...]
    beams: tuple[tuple[int, ...], ...]


@st.composite
def streams(draw: st.DrawFn, beams: int = 2, longest: int = 5) -> Stream:
    length = draw(st.integers(1, longest))
    row = st.lists(st.integers(0, VOCABULARY - 1), min_size=length, max_size=length).map(tuple)
    return Stream(draw(row), tuple(draw(row) for _ in range(beams)))


class Walk:
    """Slots at their own steps, advanced together through one padded batch."""

    def __init__(self, rule: Viability, slots: list[Stream]) -> None:
        self.rule, self.slots = rule, slots
        beams = len(slots[0].beams)
        longest = max(len(slot.target) for slot in slots)
        self.padded = rule.pad([slot.target for slot in slots], longest)
        self.lengths = torch.tensor([len(slot.target) for slot in slots])
        self.state = rule.initial().expand(len(slots), beams, -1).clone()
        self.steps = [0] * len(slots)
        self.distances = [0] * len(slots)
        """Least final distance of the first beam of every slot."""

    def unfinished(self) -> list[int]:
        return [slot for slot, step in enumerate(self.steps) if step < len(self.slots[slot].target)]

    def advance(self, chosen: list[int]) -> torch.Tensor:
        """Offer every token to every beam of `chosen`, follow the streams; `least` [chosen, beams, vocabulary]."""
        tokens = torch.arange(VOCABULARY).expand(len(chosen), self.state.shape[1], VOCABULARY)
        advanced = self.rule.advance(
            self.state[chosen],
            tokens,
            padded=self.padded[chosen],
            step=torch.tensor([self.steps[slot] + 1 for slot in chosen]),
            length=self.lengths[chosen],
        )
        for place, slot in enumerate(chosen):
            for beam, stream in enumerate(self.slots[slot].beams):
                self.state[slot, beam] = advanced.state[place, beam, stream[self.steps[slot]]]
            self.distances[slot] = int(advanced.least[place, 0, self.slots[slot].beams[0][self.steps[slot]]])
            self.steps[slot] += 1
            assert bool(advanced.is_complete[place].all()) == (self.steps[slot] == len(self.slots[slot].target))
        return advanced.least


def rule_of(name: str, budget: int) -> Viability:
    if name == "hamming":
        return make_viability("hamming", budget=budget, rule="exact")
    return make_viability("levenshtein", budget=budget, rule="exact" if name == "exact" else "published")


@settings(max_examples=60)
@given(
    slots=st.lists(streams(), min_size=1, max_size=4),
    budget=st.integers(0, 5),
    name=st.sampled_from(["exact", "published", "hamming"]),
    data=st.data(),
)
def test_bounds_hold_for_slots_at_different_steps_and_lengths(
    slots: list[Stream], budget: int, name: str, data: st.DataObject
) -> None:
    """Exact rules give the nearest completion itself (or say 'beyond the budget'); the published one stays below."""
    walk = Walk(rule_of(name, budget), slots)
    distance = "hamming" if name == "hamming" else "levenshtein"
    while walk.unfinished():
        chosen = data.draw(st.lists(st.sampled_from(walk.unfinished()), min_size=1, unique=True))
        before = [walk.steps[slot] for slot in chosen]
        least = walk.advance(chosen)
        for place, slot in enumerate(chosen):
            for beam, stream in enumerate(slots[slot].beams):
                for token in range(VOCABULARY):
                    path = (*stream[: before[place]], token)
                    nearest = nearest_completion(path, slots[slot].target, vocabulary=VOCABULARY, distance=distance)
                    bound = int(least[place, beam, token])
                    if name == "published":
                        assert bound <= nearest or nearest > budget
                    else:
                        assert min(bound, budget + 1) == min(nearest, budget + 1)
                    if bound > budget:
                        assert nearest > budget, "a pruned path had a completion in the ball"


@settings(max_examples=60)
@given(
    slots=st.lists(streams(beams=1, longest=7), min_size=1, max_size=3),
    budget=st.integers(0, 5),
    name=st.sampled_from(["exact", "published", "hamming"]),
)
def test_final_distance_is_exact_within_the_budget(slots: list[Stream], budget: int, name: str) -> None:
    walk = Walk(rule_of(name, budget), slots)
    while walk.unfinished():
        walk.advance(walk.unfinished())
    measure = textbook_hamming if name == "hamming" else textbook_levenshtein
    for slot, ours in zip(slots, walk.distances, strict=True):
        expected = measure(slot.beams[0], slot.target)
        assert min(ours, budget + 1) == min(expected, budget + 1)


@settings(max_examples=40)
@given(stream=streams(beams=1, longest=6), name=st.sampled_from(["exact", "published"]), budget=st.integers(0, 5))
def test_band_cells_within_the_budget_are_the_textbook_row(stream: Stream, name: str, budget: int) -> None:
    walk = Walk(rule_of(name, budget), [stream])
    half_width = (walk.rule.width - 1) // 2
    for step in range(1, len(stream.target) + 1):
        walk.advance([0])
        row = textbook_edit_row(stream.beams[0][:step], stream.target)
        for place, cell in enumerate(walk.state[0, 0].tolist()):
            column = step + place - half_width
            # A path that leaves the band pays for it: only cells that can matter are promised.
            reach = abs(column - step) if name == "exact" else 0
            if 0 <= column < len(row):
                assert min(cell + reach, budget + 1) == min(row[column] + reach, budget + 1)
            else:
                assert cell > budget


def whole_rows(target: tuple[int, ...], stream: tuple[int, ...]) -> list[list[int]]:
    """The band of a published rule so wide that it holds every cell, cut to columns 0 … T."""
    rule = make_viability("levenshtein", budget=8, rule="published")
    state = rule.initial().expand(1, 1, -1)
    padded = rule.pad([target], len(target))
    rows = []
    for step, token in enumerate(stream, start=1):
        advanced = rule.advance(
            state,
            torch.tensor([[[token]]]),
            padded=padded,
            step=torch.tensor([step]),
            length=torch.tensor([len(target)]),
        )
        state = advanced.state[:, :, 0]
        rows.append(state[0, 0, 8 - step : 8 - step + len(target) + 1].tolist())
    return rows


def test_published_rows_of_the_four_letter_example() -> None:
    a, b, c, d = range(4)
    rows = whole_rows((a, b, c, d), (b, c, a, d))
    assert [min(row) for row in rows] == [1, 1, 2, 2]
    assert rows[-1][-1] == 2


def test_published_last_row_of_the_three_letter_example() -> None:
    a, b, c = range(3)
    assert whole_rows((a, b, c), (b, c))[-1] == [2, 2, 2, 1]


def test_exact_rule_needs_five_columns_where_the_published_one_needs_eleven() -> None:
    assert make_viability("levenshtein", budget=5, rule="exact").width == 5
    assert make_viability("levenshtein", budget=5, rule="published").width == 11


def test_exact_rule_prunes_what_the_published_rule_still_carries() -> None:
    """Target aabbcc, stream bbc: two insertions reach column 5 of row 3, two more edits are needed to come level."""
    stream = Stream((0, 0, 1, 1, 2, 2), ((1, 1, 2, 2, 2, 2),))
    least = {}
    for name in ("exact", "published"):
        walk = Walk(rule_of(name, 2), [stream])
        least[name] = [int(walk.advance([0])[0, 0, token]) for token in stream.beams[0][:3]][-1]
    assert least["published"] <= 2 < least["exact"]


def test_the_baseline_never_drops_anything() -> None:
    rule = make_viability("none", budget=0, rule="exact")
    walk = Walk(rule, [Stream((0, 0, 0), ((1, 1, 1),))])
    for _ in range(3):
        assert int(walk.advance([0]).max()) == 0


def test_a_long_window_does_not_overflow_its_narrow_integers() -> None:
    """int16 states stay sane over thousands of mismatches."""
    for name in ("exact", "published", "hamming"):
        rule = rule_of(name, 5)
        state, length = rule.initial().expand(1, 1, -1), 3000
        padded = rule.pad([(0,) * length], length)
        for step in range(1, length + 1):
            advanced = rule.advance(
                state,
                torch.ones(1, 1, 1, dtype=torch.int64),
                padded=padded,
                step=torch.tensor([step]),
                length=torch.tensor([length]),
            )
            state = advanced.state[:, :, 0]
            assert int(advanced.least) >= min(step, 6)
