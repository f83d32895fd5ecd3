"""What a step of the search set aside and what it follows, and a window's record of both: a tree in the making."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from byrote.distance.tokens import levenshtein_many
from byrote.search.base import ByLeast, SearchOptions, SearchOutcome
from byrote.search.beam import Accepted, Advance, BeamState, by_least
from byrote.search.frontier import Beams, Edits, Frontier
from byrote.search.scheduler import Slot
from byrote.types import Bounds, Continuation, StopReason


class Banked(NamedTuple):
    """One step of every slot, in tensors that are on their way to the host."""

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
        return cls(
            advanced.banked,
            candidates.tokens,
            candidates.least,
            advanced.parents,
            next_tokens,
            state.edits,
            state.log_p,
            state.least,
        )


class FrontierRecord:
    """Banked nodes of one window and the beams above them, collected step by step as arrays."""

    def __init__(self, initial: NDArray[np.int16]) -> None:
        """`initial`: the viability state of the empty continuation."""
        nothing = np.zeros(1, dtype=np.int64)
        self._steps: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int16]]]
        self._steps = [(nothing, nothing, initial[None])]  # parents, tokens and edits of the beams of each step
        self._evaluated = [0]  # of these beams, how many come before the verbatim one
        self._first = 0  # place of the first living beam among all beams
        none = nothing[:0]
        self._nodes: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int16]]]
        self._nodes = [(none, none, none.astype(np.float64), none.astype(np.int16))]

    @property
    def _living(self) -> int:
        return len(self._steps[-1][0])

    def step(self, banked: list[NDArray[Any]], place: int, *, beams: int, evaluated: int) -> None:
        """A step of the window at this place (the fields of `Banked`), after which this many beams live."""
        log_p, tokens, least, parents, next_tokens, next_edits, *_ = (array[place] for array in banked)
        (where,) = np.nonzero(log_p > -math.inf)
        kept = len(log_p) // len(parents)
        self._nodes.append((self._first + where // kept, tokens[where], log_p[where], least[where]))
        first = self._first + self._living
        self._steps.append((self._first + parents[:beams], next_tokens[:beams].copy(), next_edits[:beams].copy()))
        self._evaluated.append(evaluated)
        self._first = first

    def leave(self, log_p: NDArray[np.float64], least: NDArray[np.int16]) -> None:
        """The search stops here: its living beams are open nodes."""
        parents, tokens, _ = self._steps.pop()
        self._evaluated.pop()
        self._nodes.append((parents, tokens, log_p, least))

    def close(self, *, is_exact: bool) -> Frontier:
        """`is_exact`: whether edits are those of the exact viability rule, and so of use to others."""
        parents, tokens, log_p, least = map(np.concatenate, zip(*self._nodes, strict=True))
        edits = Edits(np.concatenate([edits for _, _, edits in self._steps]), least) if is_exact else None
        return Frontier(self._beams(), parents, tokens, log_p, edits)

    def _beams(self) -> Beams:
        counts = [len(parents) for parents, _, _ in self._steps]
        parents, tokens, _ = map(np.concatenate, zip(*self._steps, strict=True))
        return Beams(parents, tokens, np.repeat(np.arange(len(counts)), counts))

    def entries(self, *, prefix_tokens: int, chain_tokens: int) -> NDArray[np.int64]:
        """Where the states of all beams are: on the chain or, in the order in which they were evaluated, after it."""
        places: list[NDArray[np.int64]] = []
        free = chain_tokens
        for depth, ((parents, _, _), evaluated) in enumerate(zip(self._steps, self._evaluated, strict=True)):
            own = np.full(len(parents), prefix_tokens + depth - 1)
            own[:evaluated] = np.arange(free, free + evaluated)
            free += evaluated
            places.append(own)
        return np.concatenate(places)


COUNTS = 4
"""The first numbers of a tally: living beams, whether the verbatim path is one, whether to stop, entries in use."""


class Tally(NamedTuple):
    """One slot after a step, as the host reads it once its window has stopped."""

    eos: float
    refuted: float
    bank: ByLeast
    unlisted: ByLeast
    left: ByLeast

    @classmethod
    def of(cls, row: list[float]) -> "Tally":
        """A row of the table that `tally` makes."""
        eos, refuted, *open_mass = row[COUNTS:]
        third = len(open_mass) // 3
        bank, unlisted, left = (tuple(open_mass[first : first + third]) for first in (0, third, 2 * third))
        return cls(eos, refuted, bank, unlisted, left)


def tally(advanced: Advance, reach: Tensor) -> Tensor:
    """[slots, counts and numbers of a `Tally`] float64; counts are far below 2⁵³, so nothing is rounded."""
    state = advanced.state
    counts = [advanced.alive.sum(-1), state.is_verbatim.any(-1), advanced.is_below_threshold, reach]
    single = torch.stack([*(count.double() for count in counts), state.eos, state.refuted], -1)
    left = by_least(state.log_p.exp(), state.least, state.bank.shape[-1] - 1)
    return torch.cat([single, state.bank, state.unlisted, left], -1)


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
    )


def stopped(
    tallies: list[NDArray[Any]], place: int, slot: Slot, options: SearchOptions, record: FrontierRecord
) -> SearchOutcome:
    """A window that ended before its last step: only upper bounds are certified. `tallies` is the table of all slots
    and, where frontiers are recorded, the fields of `Banked`."""
    counted = Tally.of(tallies[0][place].tolist())
    if options.record_frontier:
        *_, log_p, least = (array[place, : slot.beams] for array in tallies)
        record.leave(log_p, least)
    return SearchOutcome(
        key=slot.task.key,
        bounds=_bounds((0.0,) * (options.edit_budget + 1), counted.bank, counted.unlisted, counted.left),
        stop_reason=StopReason.BELOW_THRESHOLD if slot.beams else StopReason.BEAM_EMPTY,
        stop_step=slot.step,
        beams=slot.beams_alive,
        token_evals=slot.token_evals,
        covered=0.0,
        bank=counted.bank,
        beam_left=counted.left,
        unlisted=counted.unlisted,
        eos=counted.eos,
        refuted=counted.refuted,
        continuations=(),
        frontier=record.close(is_exact=options.is_exact) if options.record_frontier else None,
    )


def finished(finals: Finals, row: int, slot: Slot, options: SearchOptions, record: FrontierRecord) -> SearchOutcome:
    """A window at its last step: every accepted child counts. `finals` is on the host by now."""
    eos, refuted, covered = finals.sums[row].tolist()
    bank, unlisted = tuple(finals.bank[row].tolist()), tuple(finals.unlisted[row].tolist())
    continuations = _continuations(finals, row, slot, options)
    lower = tuple(finals.lower[row].tolist())
    if options.distance == "none":
        lower = tuple(
            math.fsum(math.exp(c.log_p) for c in continuations if c.distance <= edits)
            for edits in range(options.edit_budget + 1)
        )
    return SearchOutcome(
        key=slot.task.key,
        bounds=_bounds(lower, bank, unlisted),
        stop_reason=StopReason.FINISHED,
        stop_step=len(slot.task.suffix_ids),
        beams=slot.beams_alive,
        token_evals=slot.token_evals,
        covered=covered,
        bank=bank,
        beam_left=(0.0,) * len(bank),
        unlisted=unlisted,
        eos=eos,
        refuted=refuted,
        continuations=continuations if options.keep is None else continuations[: options.keep],
        frontier=record.close(is_exact=options.is_exact) if options.record_frontier else None,
    )


def _bounds(lower: tuple[float, ...], *open_parts: ByLeast) -> Bounds:
    """Upper bounds by adding to each lower bound what can still end within as many edits. No sum passes 1."""
    reachable = np.cumsum(np.sum(open_parts, axis=0))
    low, high = np.minimum(1.0, [np.array(lower), np.array(lower) + reachable]).tolist()
    return Bounds(tuple(low), tuple(high))


def _continuations(finals: Finals, row: int, slot: Slot, options: SearchOptions) -> tuple[Continuation, ...]:
    count = int((finals.mass[row] > 0).sum())
    paths = finals.paths[row, :count, : len(slot.task.suffix_ids)]
    if options.distance == "none":
        distances = levenshtein_many(paths, torch.tensor(slot.task.suffix_ids)).tolist()
    else:
        distances = finals.distance[row, :count].tolist()
    log_p = finals.log_p[row, :count].tolist()
    return tuple(
        Continuation(tuple(path), value, distance)
        for path, value, distance in zip(paths.tolist(), log_p, distances, strict=True)
    )
