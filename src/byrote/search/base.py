"""Options, task and outcome of a search; shared by the reference and the engine."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from byrote.distance import Viability, make_viability
from byrote.distance.text import TextDistance
from byrote.models.base import CausalModel
from byrote.normal_form import normalised
from byrote.policy import Policy
from byrote.search.frontier import Frontier, SearchedStates
from byrote.search.tree import Chain, Listing, TokenPair
from byrote.types import Continuation, DistanceName, RankName, StopReason, StopRuleName, ViabilityName
from byrote.verdict import Bounds

ByLeast = tuple[float, ...]
"""Open mass by the least distance it can still end with: 0 … edit budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Everything that decides the outcome of a search. Defaults are those of `scan.options`."""

    policy: Policy
    beam_width: int
    edit_budget: int
    distance: DistanceName
    viability: ViabilityName
    pin_verbatim: bool
    """Keep the verbatim path as an extra beam while its probability is above 0, so that lower ≥ p_verbatim."""
    negligible: float
    """Beams lighter than this are banked instead of searched, the pinned one excepted; 0 searches all."""
    threshold: float | None
    """τ of the stop rule; None searches to the end."""
    stop_rule: StopRuleName
    """`mass`: stop when the verdict at τ is decided. `published`: stop when the best beam is below τ/(B·k)."""
    rank_by: RankName
    """What ranks children: probability so far, or probability × screen score of what is left."""
    keep: int | None
    """How many accepted continuations to return, heaviest first; None returns all, of texts as many as one step can
    accept."""
    max_children: int | None
    """List at most this many children per beam (nucleus or no truncation); the mass of the rest stays open."""
    record_frontier: bool
    """Return the banked nodes themselves, for estimates and refinement."""
    keep_states: bool
    """Return with every frontier what the model computed above it."""
    target_chars: int | None = None
    """Characters of a normalised target, at most: distances are over the characters of answers. None: over tokens."""
    policies: tuple[Policy, ...] = ()
    """Further policies to bound, each of which keeps a part of what is listed after every node; see `under_policies`.
    They steer nothing: beams and the stop rule follow `policy`."""

    def make_viability(self, model: CausalModel) -> Viability:
        if self.target_chars is not None:
            return TextDistance(self.edit_budget, model.token_texts, longest=self.target_chars)
        return make_viability(self.distance, budget=self.edit_budget, rule=self.viability)

    @property
    def is_exact(self) -> bool:
        """Whether every viable child has a completion in the ball."""
        return self.distance == "hamming" or (self.distance == "levenshtein" and self.viability == "exact")

    @property
    def listing(self) -> Listing:
        return Listing(self.policy, self.max_children)

    @property
    def lanes(self) -> int:
        """Most beams alive at once."""
        return self.beam_width + (1 if self.pin_verbatim else 0)


TOKENS_PER_TARGET_TOKEN = 2
"""Tokens that an answer may take to cover the characters of a target, as a multiple of the target's own."""


class Limits(NamedTuple):
    """The longest prefix and the longest answer of all windows: shapes are fixed by them."""

    prefix_tokens: int
    suffix_tokens: int


def target_chars(suffix_text: str | None) -> tuple[int, ...] | None:
    """Code points of a normalised target; None where tokens are compared."""
    return None if suffix_text is None else tuple(map(ord, normalised(suffix_text)))


@dataclass(frozen=True, slots=True)
class SearchTask:
    """One window to search. `target_probs`: the policy's probability of each target token, for rank_by=screen_score."""

    key: int
    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    target_probs: tuple[float, ...] | None = None
    chain: Chain | None = None
    """Prefix and target, evaluated; without it the engine evaluates them on admission."""
    name: str = ""
    """Names the window in error messages."""
    target_chars: tuple[int, ...] | None = None
    """Code points of the normalised target, where distances are over characters."""
    begun: tuple[int, ...] | None = None
    """The viability state before the first token, where the prefix has begun to answer; None: that of no answer."""

    @property
    def most_tokens(self) -> int:
        """Of an answer. One of so many tokens that is not complete stays open."""
        return len(self.suffix_ids) * (1 if self.target_chars is None else TOKENS_PER_TARGET_TOKEN)

    @property
    def pair(self) -> TokenPair:
        return TokenPair(self.prefix_ids, self.suffix_ids)

    @property
    def chain_tokens(self) -> int:
        return len(self.prefix_ids) + len(self.suffix_ids) - 1


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The bounds of one window and where every bit of probability went.

    covered + open + eos + refuted = 1: `covered` was accepted as final continuations (within the budget; of any
    distance in the baseline), `eos` ended too soon, `refuted` has no completion in the ball. What is open is kept by
    the least distance it can still end with, 0 … budget: `bank` was viable but pruned, `beam_left` was still in the
    beam when the search stopped early, `unlisted` are children that were not listed, at the least distance of their
    parent. Hence upper[e] = lower[e] + what is open at e or less.
    """

    key: int
    bounds: Bounds
    stop_reason: StopReason
    stop_step: int
    beams: int
    """Σ over steps of the beams alive: with the prefix, the cost of this search as papers count it."""
    token_evals: int
    """Query positions evaluated beyond the chain: beams that are not the verbatim path."""
    covered: float
    bank: ByLeast
    beam_left: ByLeast
    unlisted: ByLeast
    eos: float
    refuted: float
    continuations: tuple[Continuation, ...]
    frontier: Frontier | None
    """Banked nodes and what was left in the beam; None unless `record_frontier`."""
    policy_bounds: tuple[Bounds, ...] = ()
    """Bounds under each of `SearchOptions.policies`: what was accepted, and what is open, at their probabilities."""
    states: SearchedStates | None = None
    """What the model computed above the frontier; None unless requested, and large."""

    @property
    def open_mass(self) -> float:
        return math.fsum((*self.bank, *self.beam_left, *self.unlisted))
