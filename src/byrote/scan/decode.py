"""Greedy extraction: what the model answers when its most likely token is taken at every step, until it ends.

The ranks of the first forward show where the greedy path leaves the target; decoding continues there, on the keys and
values of the chain. An end-of-text token ends the answer, which is then compared as it is. Unless the whole answer is
asked for, decoding stops as soon as no completion can be within the edit budget.

With D[t, j] the edit distance between the first t answer tokens and the first j target tokens, an answer of at most T
tokens ends no nearer than min_j D[t, j] + max(0, t − j): missing target tokens can still come, surplus ones stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from byrote.models.base import TreeBatch, TreeModel
from byrote.models.numbers import require_numbers
from byrote.models.packing import Nodes, pack
from byrote.models.teacher_forcing import VerbatimScore
from byrote.policy import keep, top_tokens, zero_or_nan
from byrote.scan.measure import Measured
from byrote.scan.options import RunConfig

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GreedyResult:
    """The greedy answer and its distances to the target; both are None when the answer was seen to be beyond the
    budget before it was complete. `token_ids` holds what was decoded, an end-of-text token included; `log_p` is the
    policy's log-probability of a whole answer, where that was asked for."""

    token_ids: tuple[int, ...]
    hamming: int | None
    levenshtein: int | None
    token_evals: int
    log_p: float | None = None

    @property
    def is_beyond_budget(self) -> bool:
        return self.levenshtein is None


class GreedyStage:
    """Greedy answers of a chunk of scored windows, decoded together."""

    def __init__(self, model: TreeModel, config: RunConfig) -> None:
        self._model, self._stops_at = model, None if config.greedy == "full" else config.edit_budget
        self._policy = config.policy
        self._eos = np.array(sorted(model.eos_ids), dtype=np.int64)

    @torch.inference_mode()
    def decode(self, scored: Sequence[Measured]) -> None:
        """Every window gets its answer. Their chains are all of one session."""
        chains = [item.chain for item in scored if item.chain is not None]
        assert len(chains) == len(scored), "greedy decoding goes on from chains"
        answers = _Answers([item.score for item in scored], [chain.slot for chain in chains], self._eos, self._stops_at)
        while len(active := answers.unfinished()):
            logits = chains[0].session.forward(answers.batch(active, self._model.device))
            choices = (top_tokens(logits, 1).token_ids[:, 0] + zero_or_nan(logits)).cpu().numpy()
            for row in active[np.isnan(choices)]:
                name = scored[row].window.window_id
                require_numbers([np.nan], self._model.dtype, what=f"the greedy answer to window {name}")
            answers.append(active, choices.astype(np.int64))
            if self._stops_at is None:
                answers.log_p[active] += keep(logits, self._policy, cap=1).log_probs[:, 0].cpu().numpy()
        for item, result in zip(scored, answers.results(), strict=True):
            item.greedy = result


class _Answers:
    """Answers of many windows as arrays: the target's own tokens up to where the greedy path leaves it, then others."""

    def __init__(self, scores: Sequence[VerbatimScore], slots: Sequence[int], eos: Ints, budget: int | None) -> None:
        self._slots, self._eos, self._budget = np.array(slots), eos, budget
        count = len(scores)
        self._lengths = np.array([len(score.window.suffix_ids) for score in scores])
        self._prefixes = np.array([len(score.window.prefix_ids) for score in scores])
        longest = int(self._lengths.max(initial=0))
        self._targets = np.full((count, longest), -1, dtype=np.int64)
        self._tokens = np.full((count, longest), -1, dtype=np.int64)
        choices = np.full((count, longest), -1, dtype=np.int64)
        for row, score in enumerate(scores):
            self._targets[row, : self._lengths[row]] = score.window.suffix_ids
            choices[row, : self._lengths[row]] = score.first_choices
        self._left_at = self._leaving(choices)
        """Target tokens that the answer repeats before it does something else (or ends)."""
        self._count = self._left_at.copy()
        self._has_ended = self._count == self._lengths
        self._is_lost = np.zeros(count, dtype=np.bool_)
        places = np.arange(longest)
        self._tokens = np.where(places < self._count[:, None], self._targets, self._tokens)
        # After t tokens that equal the target's first t, D[t, j] = |t − j|.
        self._row = np.abs(self._count[:, None] - np.arange(longest + 1))
        (others,) = np.nonzero(~self._has_ended)
        self.append(others, choices[others, self._count[others]])
        self.log_p = np.array(
            [sum(score.first_choice_log_probs[: self._count[row]]) for row, score in enumerate(scores)]
        )
        """Log-probability of what was decoded; the caller of `append` adds that of the appended tokens."""

    def _leaving(self, choices: Ints) -> Ints:
        """Where the most likely token is not the target's, or ends the answer before its last token."""
        inside = np.arange(self._targets.shape[1]) < self._lengths[:, None]
        is_early_end = np.isin(choices, self._eos) & (np.arange(choices.shape[1]) < self._lengths[:, None] - 1)
        leaves = ((choices != self._targets) | is_early_end) & inside
        return np.where(leaves.any(1), leaves.argmax(1), self._lengths)

    def unfinished(self) -> Ints:
        return np.flatnonzero(~self._has_ended & ~self._is_lost)

    def append(self, rows: Ints, tokens: Ints) -> None:
        """Append one token to each of these answers."""
        self._tokens[rows, self._count[rows]] = tokens
        self._row[rows] = _next_row(self._row[rows], tokens, self._targets[rows])
        self._count[rows] += 1
        self._has_ended[rows] = np.isin(tokens, self._eos) | (self._count[rows] == self._lengths[rows])
        if self._budget is not None:
            surplus = np.maximum(0, self._count[rows, None] - np.arange(self._row.shape[1]))
            inside = np.arange(self._row.shape[1]) <= self._lengths[rows, None]
            least = np.where(inside, self._row[rows] + surplus, self._row.shape[1]).min(1)
            self._is_lost[rows] = ~self._has_ended[rows] & (least > self._budget)

    def batch(self, rows: Ints, device: torch.device) -> TreeBatch:
        """The newest token of each of these answers, behind its window's chain, seeing its own line."""
        chains = self._prefixes[rows] + self._lengths[rows] - 1
        shared = self._prefixes[rows] + self._left_at[rows]  # entries of the chain that the answer descends from
        decoded = self._count[rows] - self._left_at[rows]
        reach = int((chains + decoded).max())
        entries = np.arange(reach)
        is_decoded = (entries >= chains[:, None]) & (entries < (chains + decoded)[:, None])
        sees = (entries < shared[:, None]) | is_decoded
        positions = np.where(is_decoded, (shared - chains)[:, None] + entries, entries)
        answers = Nodes(
            counts=np.ones_like(rows),
            token_ids=self._tokens[rows, self._count[rows] - 1],
            positions=shared + decoded - 1,
            entries=chains + decoded - 1,
            ancestry=sees[:, None],
            entry_positions=positions,
            slots=self._slots[rows],
        )
        return pack(answers, device=device)

    def results(self) -> list[GreedyResult]:
        agree = (self._tokens == self._targets) & (np.arange(self._targets.shape[1]) < self._count[:, None])
        hamming = self._lengths - agree.sum(1)
        levenshtein = np.take_along_axis(self._row, self._lengths[:, None], 1)[:, 0]
        evals = np.maximum(0, self._count - self._left_at - 1)  # the newest token is never evaluated
        return [
            GreedyResult(
                tuple(self._tokens[row, : self._count[row]].tolist()),
                None if self._is_lost[row] else int(hamming[row]),
                None if self._is_lost[row] else int(levenshtein[row]),
                int(evals[row]),
                float(self.log_p[row]) if self._budget is None else None,
            )
            for row in range(len(self._lengths))
        ]


def _next_row(row: Ints, tokens: Ints, targets: Ints) -> Ints:
    """D[t, ·] from D[t − 1, ·] of many answers: one token appended to each. [answers, longest + 1]"""
    width = row.shape[1]
    best = row + 1
    best[:, 1:] = np.minimum(best[:, 1:], row[:, :-1] + (targets != tokens[:, None]))
    places = np.arange(width)
    # Skipping target tokens: D[t, j] ≤ D[t, i] + (j − i), swept in one go.
    swept: Ints = np.minimum.accumulate(best - places, axis=1) + places
    return swept
