"""What leaves the device after a step, and how it becomes the outcome of a window."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from byrote.distance.tokens import levenshtein_many
from byrote.search.base import ByLeast, SearchOptions, SearchOutcome, SearchTask
from byrote.search.beam import Advance, BeamState, by_least
from byrote.search.frontier import FrontierRecord
from byrote.types import Continuation, StopReason
from byrote.verdict import Bounds


@dataclass(slots=True)
class Slot:
    """A window in flight, as the host counts it."""

    task: SearchTask
    record: FrontierRecord | None = None
    """None when frontiers are not recorded."""
    step: int = 0
    """Tokens in its beams."""
    beams: int = 1
    has_verbatim: bool = True
    """Whether the last of the beams is the verbatim path, which the chain has evaluated already."""
    reach: int = 0
    """One past the highest memory entry in use."""
    beams_alive: int = 0
    token_evals: int = 0

    @property
    def to_evaluate(self) -> int:
        return self.beams - self.has_verbatim


COUNTS = 4
"""The first columns of a tally: living beams, whether the verbatim path is one, whether to stop, entries in use."""


def tally(advanced: Advance, reach: Tensor) -> Tensor:
    """[slots, COUNTS + 2 + (4 + 2 · policies) · (budget + 1)] float64: counts, eos, refuted, accepted, bank, unlisted
    and beam_left of every slot, then what is accepted and what is open under each further policy. Counts are far below
    2⁵³, so nothing is rounded."""
    state = advanced.state
    counts = [advanced.alive.sum(-1), state.is_verbatim.any(-1), advanced.is_below_threshold, reach]
    single = torch.stack([*(count.double() for count in counts), state.eos, state.refuted], -1)
    budget = state.bank.shape[-1] - 1
    left = by_least(state.log_p.exp(), state.least, budget)
    open_masses = state.policy_bank + by_least(state.policy_log_p.exp(), state.least[:, None], budget)
    policies = torch.stack([state.policy_accepted, open_masses], 2)
    return torch.cat([single, state.accepted, state.bank, state.unlisted, left, policies.flatten(1)], -1)


class Banked(NamedTuple):
    """The nodes that a step banked and the beams that follow it, for `FrontierRecord.step`."""

    log_p: Tensor  # [slots, lanes · kept] float64: of banked children, −inf elsewhere
    tokens: Tensor  # [slots, lanes · kept] int64
    least: Tensor  # [slots, lanes · kept] int16
    parents: Tensor  # [slots, lanes] int64: the lane that each of the next beams continues
    next_tokens: Tensor  # [slots, lanes] int64
    next_edits: Tensor  # [slots, lanes, width] int16
    next_log_p: Tensor  # [slots, lanes] float64
    next_least: Tensor  # [slots, lanes] int16

    @classmethod
    def of(cls, advanced: Advance) -> "Banked":
        state, candidates = advanced.state, advanced.candidates
        newest = (state.step - 1)[:, None, None].expand(-1, state.paths.shape[1], 1)
        next_tokens = state.paths.gather(2, newest)[..., 0]
        nodes = (advanced.banked, candidates.tokens, candidates.least)
        return cls(*nodes, advanced.parents, next_tokens, state.edits, state.log_p, state.least)


class Found(NamedTuple):
    """Accepted continuations of windows that ended, in falling probability."""

    log_p: Tensor  # [windows, listed] float64; −inf where there is no further continuation
    distance: Tensor  # [windows, listed] int16
    tokens: Tensor  # [windows, listed] int64: tokens of each
    paths: Tensor  # [windows, listed, longest suffix] int64

    @classmethod
    def of(cls, state: BeamState, slots: Tensor) -> "Found":
        parts = state.found, state.found_distance, state.found_tokens, state.found_paths
        return cls(*(part[slots] for part in parts))

    def continuations(self, row: int, target: Sequence[int], options: SearchOptions) -> tuple[Continuation, ...]:
        """Those of a window. `self` is on the host by now."""
        count = int((self.log_p[row] > -math.inf).sum())
        distances = self.distance[row, :count]
        if options.distance == "none":
            distances = levenshtein_many(self.paths[row, :count, : len(target)], torch.tensor(target))
        rows = zip(*(part[row, :count].tolist() for part in self), distances.tolist(), strict=True)
        return tuple(Continuation(tuple(path[:tokens]), log_p, distance) for log_p, _, tokens, path, distance in rows)


def settled(row: Sequence[float], found: tuple[Continuation, ...], slot: Slot, options: SearchOptions) -> SearchOutcome:
    """The outcome of a window that ended. `row` is its row of `tally`."""
    width = options.edit_budget + 1
    eos, refuted, *masses = row[COUNTS:]
    accepted, bank, unlisted, left, *of_policies = (
        tuple(masses[first : first + width]) for first in range(0, len(masses), width)
    )
    lower = np.cumsum(accepted).tolist()
    if options.distance == "none":
        every = range(width)
        lower = [math.fsum(math.exp(one.log_p) for one in found if one.distance <= edits) for edits in every]
    if slot.beams:
        reason = StopReason.BELOW_THRESHOLD
        if slot.record is not None:
            slot.record.stop()
    else:
        # Answers of a text are complete at any step; those of tokens at the last one.
        is_whole = slot.step == slot.task.most_tokens or any(accepted)
        reason = StopReason.FINISHED if is_whole else StopReason.BEAM_EMPTY
    return SearchOutcome(
        key=slot.task.key,
        bounds=_bounds(lower, bank, unlisted, left),
        policy_bounds=tuple(
            _bounds(np.cumsum(low).tolist(), parts)
            for low, parts in zip(of_policies[::2], of_policies[1::2], strict=True)
        ),
        stop_reason=reason,
        stop_step=slot.step,
        beams=slot.beams_alive,
        token_evals=slot.token_evals,
        covered=math.fsum(accepted),
        bank=bank,
        beam_left=left,
        unlisted=unlisted,
        eos=eos,
        refuted=refuted,
        continuations=found[: options.keep],
        frontier=None if slot.record is None else slot.record.frontier(is_exact=options.is_exact),
    )


def _bounds(lower: Sequence[float], *open_parts: ByLeast) -> Bounds:
    """Upper bounds by adding to each lower bound what can still end within as many edits. No sum passes 1."""
    reachable = np.cumsum(np.sum(open_parts, axis=0))
    low, high = np.minimum(1.0, [np.array(lower), np.array(lower) + reachable]).tolist()
    return Bounds(tuple(low), tuple(high))
