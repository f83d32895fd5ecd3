"""Greedy extraction: generate exactly T tokens greedily (EOS suppressed, so that lengths agree) and compare.

Greedy decoding is the engine with one beam and top-1. A window whose every target token has rank 0 needs no
generation: the greedy continuation is the target.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rote.distance.textbook import hamming, levenshtein
from rote.models.base import TreeModel
from rote.policy import Policy
from rote.search.base import Limits, SearchOptions, SearchTask
from rote.search.engine import Engine
from rote.types import Window

GREEDY = SearchOptions(
    policy=Policy(temperature=1.0, top_k=1),
    beam_width=1,
    edit_budget=0,
    distance="none",
    viability="exact",
    pin_verbatim=False,
    negligible=0.0,
    threshold=None,
    stop_rule="mass",
    rank_by="mass",
    keep=None,
    max_children=None,
    record_frontier=False,
    keep_states=False,
    suppress_eos=True,
)


@dataclass(frozen=True, slots=True)
class GreedyResult:
    """The greedy continuation of one window and its distances to the target."""

    window: Window
    token_ids: tuple[int, ...]
    token_evals: int

    @property
    def hamming(self) -> int:
        return hamming(self.token_ids, self.window.suffix_ids)

    @property
    def levenshtein(self) -> int:
        return levenshtein(self.token_ids, self.window.suffix_ids)


def generate_greedy(
    model: TreeModel, windows: Iterable[Window], *, slots: int, limits: Limits
) -> Iterator[GreedyResult]:
    """Greedy continuations of all windows, in the order in which they end."""
    in_flight: dict[int, Window] = {}

    def tasks() -> Iterator[SearchTask]:
        for key, window in enumerate(windows):
            in_flight[key] = window
            yield SearchTask(key, window.prefix_ids, window.suffix_ids)

    for outcome in Engine(model, GREEDY, slots=slots, limits=limits).run(tasks()):
        window = in_flight.pop(outcome.key)
        yield GreedyResult(window, outcome.continuations[0].token_ids, outcome.token_evals)


def is_greedy_verbatim(suffix_ids: tuple[int, ...], suffix_ranks: tuple[int, ...], eos_ids: frozenset[int]) -> bool:
    """Whether teacher forcing already shows that greedy decoding gives the target: every token has rank 0."""
    return not any(suffix_ranks) and eos_ids.isdisjoint(suffix_ids)
