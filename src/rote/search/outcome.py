"""From tensors back to values: what the host keeps of a window that has ended."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rote.distance.textbook import levenshtein_many
from rote.search.base import SearchOptions, SearchOutcome
from rote.search.beam import Accepted, BeamState
from rote.search.frontier import Frontier
from rote.search.scheduler import Slot
from rote.types import Bounds, Continuation, StopReason


class FrontierRecord:
    """Banked nodes of one window, collected step by step as arrays."""

    def __init__(self) -> None:
        self._log_p: list[NDArray[np.float64]] = []
        self._paths: list[NDArray[np.int64]] = []

    def add(self, log_p: NDArray[np.float64], parents: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """Nodes that extend `parents` [nodes, step] by `tokens` [nodes]."""
        self._log_p.append(log_p)
        self._paths.append(np.concatenate([parents, tokens[:, None]], axis=1))

    def close(self) -> Frontier:
        longest = max((paths.shape[1] for paths in self._paths), default=0)
        nodes = sum(len(log_p) for log_p in self._log_p)
        paths = np.zeros((nodes, longest), dtype=np.int64)
        depths = np.zeros(nodes, dtype=np.int64)
        start = 0
        for block in self._paths:
            paths[start : start + len(block), : block.shape[1]] = block
            depths[start : start + len(block)] = block.shape[1]
            start += len(block)
        log_p = np.concatenate(self._log_p) if self._log_p else np.zeros(0)
        order = np.argsort(-log_p, kind="stable")
        return Frontier(log_p[order], depths[order], paths[order])


class Context(NamedTuple):
    options: SearchOptions
    record: FrontierRecord


def stopped(state: BeamState, place: int, slot: Slot, reason: StopReason, context: Context) -> SearchOutcome:
    """A window that ended before its last step: only the upper bound is certified."""
    options, record = context
    sums = torch.stack([state.bank[place], state.eos[place], state.refuted[place], state.log_p[place].exp().sum()])
    bank, eos, refuted, left = sums.tolist()
    if options.record_frontier and slot.beams:
        paths = state.paths[place, : slot.beams, : slot.step].cpu().numpy()
        record.add(state.log_p[place, : slot.beams].cpu().numpy(), paths[:, :-1], paths[:, -1])
    return SearchOutcome(
        key=slot.task.key,
        bounds=Bounds((0.0,) * (options.edit_budget + 1), min(1.0, bank + left)),
        stop_reason=reason,
        stop_step=slot.step,
        token_evals=int(state.token_evals[place]),
        covered=0.0,
        bank=bank,
        beam_left=left,
        eos=eos,
        refuted=refuted,
        continuations=(),
        frontier=record.close() if options.record_frontier else None,
    )


def finished(state: BeamState, accepted: Accepted, slots: list[Slot], contexts: list[Context]) -> list[SearchOutcome]:
    """Windows at their last step: every accepted child counts."""
    lower = accepted.lower.tolist()
    sums = torch.stack(
        [state.bank + accepted.unlisted, state.eos, state.refuted + accepted.refuted, accepted.covered]
    ).tolist()
    token_evals = state.token_evals.tolist()
    outcomes = []
    for row, (slot, context) in enumerate(zip(slots, contexts, strict=True)):
        options = context.options
        bank, eos, refuted, covered = (values[row] for values in sums)
        continuations, row_lower = _continuations(state, accepted, row, slot, options), tuple(lower[row])
        if options.distance == "none":
            row_lower = tuple(
                math.fsum(math.exp(c.log_p) for c in continuations if c.distance <= edits)
                for edits in range(options.edit_budget + 1)
            )
        outcomes.append(
            SearchOutcome(
                key=slot.task.key,
                bounds=Bounds(row_lower, min(1.0, row_lower[-1] + bank)),
                stop_reason=StopReason.FINISHED,
                stop_step=len(slot.task.suffix_ids),
                token_evals=token_evals[row],
                covered=covered,
                bank=bank,
                beam_left=0.0,
                eos=eos,
                refuted=refuted,
                continuations=continuations if options.keep is None else continuations[: options.keep],
                frontier=context.record.close() if options.record_frontier else None,
            )
        )
    return outcomes


def _continuations(
    state: BeamState, accepted: Accepted, row: int, slot: Slot, options: SearchOptions
) -> tuple[Continuation, ...]:
    """Accepted continuations in falling probability; all of them for the baseline, which still needs distances."""
    if options.keep == 0 and options.distance != "none":
        return ()
    mass = accepted.mass[row]
    if options.distance != "none":
        mass = torch.where(accepted.distance[row] <= options.edit_budget, mass, 0.0)
    ordered = mass.sort(dim=-1, descending=True, stable=True)
    count = int((ordered.values > 0).sum())
    if options.keep is not None and options.distance != "none":
        count = min(count, options.keep)
    chosen = ordered.indices[:count]
    length = len(slot.task.suffix_ids)
    paths = state.paths[row, chosen // accepted.candidates.kept, :length].clone()
    paths[:, length - 1] = accepted.candidates.tokens[row, chosen]
    log_p = accepted.candidates.log_p[row, chosen].tolist()
    if options.distance == "none":
        target = torch.tensor(slot.task.suffix_ids, device=paths.device)
        distances = levenshtein_many(paths, target).tolist()
    else:
        distances = accepted.distance[row, chosen].tolist()
    return tuple(
        Continuation(tuple(path), value, distance)
        for path, value, distance in zip(paths.tolist(), log_p, distances, strict=True)
    )
