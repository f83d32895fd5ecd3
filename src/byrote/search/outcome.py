"""What leaves the device after a step, and how it becomes the outcome of a window."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from byrote.distance.tokens import levenshtein_many
from byrote.search.base import ByLeast, SearchOptions, SearchOutcome, SearchTask
from byrote.search.beam import Accepted, Advance, BeamState, by_least
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

    @property
    def is_at_last_step(self) -> bool:
        return self.step + 1 == len(self.task.suffix_ids)


COUNTS = 4
"""The first columns of a tally: living beams, whether the verbatim path is one, whether to stop, entries in use."""


def tally(advanced: Advance, reach: Tensor) -> Tensor:
    """[slots, COUNTS + 2 + (3 + policies) · (budget + 1)] float64: counts, eos, refuted, bank, unlisted and beam_left
    of every slot, then what is open under each further policy. Counts are far below 2⁵³, so nothing is rounded."""
    state = advanced.state
    counts = [advanced.alive.sum(-1), state.is_verbatim.any(-1), advanced.is_below_threshold, reach]
    single = torch.stack([*(count.double() for count in counts), state.eos, state.refuted], -1)
    budget = state.bank.shape[-1] - 1
    left = by_least(state.log_p.exp(), state.least, budget)
    of_policies = state.policy_bank + by_least(state.policy_log_p.exp(), state.least[:, None], budget)
    return torch.cat([single, state.bank, state.unlisted, left, of_policies.flatten(1)], -1)


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


class Finals(NamedTuple):
    """Windows at their last step: sums, and accepted continuations in falling probability."""

    lower: Tensor  # [windows, budget + 1] float64
    bank: Tensor  # [windows, budget + 1] float64
    unlisted: Tensor  # [windows, budget + 1] float64
    sums: Tensor  # [windows, 3] float64: eos, refuted, covered
    mass: Tensor  # [windows, listed] float64; 0 where there is no further continuation
    log_p: Tensor  # [windows, listed] float64
    distance: Tensor  # [windows, listed] int16
    paths: Tensor  # [windows, listed, longest suffix] int64
    policy_lower: Tensor  # [windows, policies, budget + 1] float64
    policy_bank: Tensor  # [windows, policies, budget + 1] float64


def gather_finals(state: BeamState, accepted: Accepted, options: SearchOptions) -> Finals:
    """What `finished` needs, and no more continuations than are kept; all for the baseline, which needs distances."""
    is_baseline = options.distance == "none"
    mass = accepted.mass
    listed = mass.shape[1] if is_baseline or options.keep is None else min(options.keep, mass.shape[1])
    ordered = mass.sort(dim=-1, descending=True, stable=True)
    chosen = ordered.indices[:, :listed]
    candidates = accepted.candidates
    parents = (chosen // candidates.kept)[..., None].expand(-1, -1, state.paths.shape[-1])
    paths = state.paths.gather(1, parents)
    last = (state.length - 1)[:, None, None].expand(-1, listed, 1)
    paths.scatter_(2, last, candidates.tokens.gather(1, chosen)[..., None])
    return Finals(
        accepted.lower,
        state.bank,
        state.unlisted + accepted.unlisted,
        torch.stack([state.eos, state.refuted + accepted.refuted, accepted.covered], -1),
        ordered.values[:, :listed],
        candidates.log_p.gather(1, chosen),
        accepted.distance.gather(1, chosen),
        paths,
        accepted.policy_lower,
        state.policy_bank,
    )


def stopped(row: Sequence[float], slot: Slot, options: SearchOptions) -> SearchOutcome:
    """A window that ended before its last step: only upper bounds are certified. `row` is its row of `tally`."""
    width = options.edit_budget + 1
    eos, refuted, *open_mass = row[COUNTS:]
    bank, unlisted, left, *of_policies = (
        tuple(open_mass[first : first + width]) for first in range(0, len(open_mass), width)
    )
    nothing = (0.0,) * width
    if slot.record is not None:
        slot.record.stop()
    return SearchOutcome(
        bounds=_bounds(nothing, bank, unlisted, left),
        policy_bounds=tuple(_bounds(nothing, parts) for parts in of_policies),
        stop_reason=StopReason.BELOW_THRESHOLD if slot.beams else StopReason.BEAM_EMPTY,
        stop_step=slot.step,
        covered=0.0,
        bank=bank,
        beam_left=left,
        unlisted=unlisted,
        eos=eos,
        refuted=refuted,
        continuations=(),
        **_counted(slot, options),
    )


def finished(finals: Finals, row: int, slot: Slot, options: SearchOptions) -> SearchOutcome:
    """A window at its last step: every accepted child counts. `finals` is on the host by now."""
    eos, refuted, covered = finals.sums[row].tolist()
    bank, unlisted = tuple(finals.bank[row].tolist()), tuple(finals.unlisted[row].tolist())
    lower = tuple(finals.lower[row].tolist())
    count = int((finals.mass[row] > 0).sum())
    paths = finals.paths[row, :count, : len(slot.task.suffix_ids)]
    distances = finals.distance[row, :count]
    if options.distance == "none":
        distances = levenshtein_many(paths, torch.tensor(slot.task.suffix_ids))
    found = zip(paths.tolist(), finals.log_p[row, :count].tolist(), distances.tolist(), strict=True)
    continuations = tuple(Continuation(tuple(path), log_p, distance) for path, log_p, distance in found)
    if options.distance == "none":
        lower = tuple(
            math.fsum(math.exp(c.log_p) for c in continuations if c.distance <= edits)
            for edits in range(options.edit_budget + 1)
        )
    return SearchOutcome(
        bounds=_bounds(lower, bank, unlisted),
        policy_bounds=tuple(
            _bounds(tuple(low), tuple(parts))
            for low, parts in zip(finals.policy_lower[row].tolist(), finals.policy_bank[row].tolist(), strict=True)
        ),
        stop_reason=StopReason.FINISHED,
        stop_step=len(slot.task.suffix_ids),
        covered=covered,
        bank=bank,
        beam_left=(0.0,) * len(bank),
        unlisted=unlisted,
        eos=eos,
        refuted=refuted,
        continuations=continuations[: options.keep],
        **_counted(slot, options),
    )


def _counted(slot: Slot, options: SearchOptions) -> dict[str, Any]:
    return {
        "key": slot.task.key,
        "beams": slot.beams_alive,
        "token_evals": slot.token_evals,
        "frontier": None if slot.record is None else slot.record.frontier(is_exact=options.is_exact),
    }


def _bounds(lower: tuple[float, ...], *open_parts: ByLeast) -> Bounds:
    """Upper bounds by adding to each lower bound what can still end within as many edits. No sum passes 1."""
    reachable = np.cumsum(np.sum(open_parts, axis=0))
    low, high = np.minimum(1.0, [np.array(lower), np.array(lower) + reachable]).tolist()
    return Bounds(tuple(low), tuple(high))
