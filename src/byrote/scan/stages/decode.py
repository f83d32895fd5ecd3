"""Decode: what the model answers to a window's prefix. One greedy answer, and some that are sampled under the policy,
as a user of the model would.

All of them continue from the keys and values of the window's chain, in the same packed steps. The first forward lists
what the policy keeps after every target token, so an answer costs nothing until it leaves the target. An answer ends
with an end-of-text token or after as many tokens as the target has. It is stopped as soon as no completion can be
within the edit budget, unless the whole greedy answer is asked for. With D[t, j] the edit distance between the first t
answer tokens and the first j target tokens, the least final distance is

    min_j D[t, j] + max(0, t − j)    of a greedy answer, which is compared as it is when it ends early
    min_j D[t, j] + |t − j|          of a sampled answer, a hit only if it has all T tokens

Greedy decoding is sampling with the point 0: tokens lie side by side on [0, 1), in falling probability, each as long as
its probability, and the token is the one that the point falls into. The points of a sampled answer follow from the
seed, the window and the answer's number alone.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from byrote.models.base import TreeBatch, TreeModel
from byrote.models.packing import Nodes, pack, to_device
from byrote.models.scoring import require_numbers
from byrote.policy import Kept, keep
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
LONGEST = 1 << 20
"""Tokens of an answer, at most: where the points of the next answer begin."""
BEYOND_LIST = -1
"""In place of a token that the list of the first forward does not reach."""


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


@dataclass(frozen=True, slots=True)
class SampledAnswers:
    """How many answers were sampled, and how many of them are within 0, 1 … ε edits of the target."""

    count: int
    hits: tuple[int, ...]
    token_evals: int


class DecodeStage:
    """Answers to a chunk of scored windows, decoded together."""

    def __init__(self, model: TreeModel, config: RunConfig) -> None:
        self._model, self._config = model, config
        self._has_greedy = int(config.decodes_greedy)
        self._samples = config.sampled_answers
        self._cap = config.search_options().max_children
        self._eos = np.array(sorted(model.eos_ids), dtype=np.int64)

    @torch.inference_mode()
    def decode(self, scored: Sequence[Measured]) -> None:
        """Every window gets its answers. Their chains are all of one session."""
        chains = [item.chain for item in scored if item.chain is not None]
        assert len(chains) == len(scored), "decoding goes on from chains"
        lanes = self._has_greedy + self._samples
        if not lanes or not scored:
            return
        answers = _Answers(scored, self._points(scored), self._eos, self._config, has_greedy=bool(self._has_greedy))
        if self._has_greedy:
            choices = [item.score.first_choices for item in scored]
            log_probs = [item.score.first_choice_log_probs for item in scored]
            answers.follow(0, _padded(choices, answers.longest, -1), _padded(log_probs, answers.longest, 0.0))
        if self._samples:
            pad = torch.nn.utils.rnn.pad_sequence
            parts = zip(*(chain.kept for chain in chains), strict=True)
            kept = Kept(*(pad(list(part), batch_first=True)[:, None] for part in parts))  # [windows, 1, longest, kept]
            points = to_device(torch.from_numpy(answers.points[:, self._has_greedy :]), self._model.device)
            drawn = [part.cpu().numpy() for part in _drawn(kept, points)]  # [windows, samples, longest]
            for number in range(self._samples):
                answers.follow(self._has_greedy + number, *(part[:, number] for part in drawn))
        slots = np.array([chain.slot for chain in chains])
        while len(active := answers.unfinished()):
            logits = chains[0].session.forward(answers.batch(active, slots, self._model.device))
            points = to_device(torch.from_numpy(answers.next_points(active)), self._model.device)
            tokens, token_log_probs = self._next_tokens(logits, points)
            for answer in active[np.isnan(token_log_probs)]:
                name = scored[answer // lanes].window.window_id
                require_numbers([np.nan], self._model.dtype, what=f"an answer to window {name}")
            answers.advance(active, tokens, token_log_probs)
        if self._has_greedy:
            for item, greedy in zip(scored, answers.greedy(), strict=True):
                item.greedy = greedy
        if self._samples:
            for item, sampled in zip(scored, answers.sampled(), strict=True):
                item.answers = sampled

    def _points(self, scored: Sequence[Measured]) -> Floats:
        """[windows, lanes, longest]: 0 for a greedy answer."""
        longest = max((len(item.window.suffix_ids) for item in scored), default=0)
        names = [item.window.window_id for item in scored]
        points = answer_points(self._config.seed, names, answers=self._samples, tokens=longest)
        return np.concatenate([np.zeros((len(scored), self._has_greedy, longest)), points], axis=1)

    def _next_tokens(self, logits: Tensor, points: Tensor) -> tuple[Ints, Floats]:
        policy = self._config.policy
        tokens, log_probs = _drawn(keep(logits, policy, cap=self._cap), points)
        beyond = tokens == BEYOND_LIST
        if self._cap is not None and bool(beyond.any()):
            tokens[beyond], log_probs[beyond] = _drawn(keep(logits[beyond], policy), points[beyond])
        return tokens.cpu().numpy(), log_probs.cpu().numpy()


def answer_points(seed: int, window_ids: Sequence[str], *, answers: int, tokens: int) -> Floats:
    """Uniform points in [0, 1) for every token of every answer, [windows, answers, tokens]. Each follows from the seed,
    the window's name, and the numbers of the answer and the token: SplitMix64 from a hashed start."""
    hashed = [hashlib.blake2b(name.encode(), digest_size=8, key=f"answers {seed}".encode()) for name in window_ids]
    start = np.array([int.from_bytes(one.digest(), "little") for one in hashed], dtype=np.uint64)
    steps = np.arange(answers)[:, None] * LONGEST + np.arange(1, tokens + 1)
    state = start[:, None, None] + steps.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    state ^= state >> np.uint64(31)
    points: Floats = (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return points


def _drawn(kept: Kept, points: Tensor) -> tuple[Tensor, Tensor]:
    """The listed token that each point in [0, 1) falls into and its log-probability; `BEYOND_LIST` where the point is
    beyond what is listed. NaN in, NaN out."""
    edges = kept.log_probs.exp().cumsum(-1)
    is_whole = kept.unlisted == 0
    # Rounding must not leave a gap at the end of a whole list.
    edges = torch.where(is_whole[..., None], edges / edges[..., -1:], edges)
    places = (edges <= points[..., None]).sum(-1)
    is_listed = places < edges.shape[-1]
    places = places.clamp(max=edges.shape[-1] - 1)[..., None]
    tokens, log_probs = (
        part.expand(*places.shape[:-1], -1).gather(-1, places)[..., 0] for part in (kept.token_ids, kept.log_probs)
    )
    return torch.where(is_listed, tokens, BEYOND_LIST), log_probs


def _padded(rows: Sequence[Sequence[float]], longest: int, value: float) -> NDArray[np.float64]:
    return np.array([[*row, *[value] * (longest - len(row))] for row in rows])


class _Answers:
    """Answers to many windows as arrays. Answer a is of window a // lanes: the greedy one first, if there is one."""

    def __init__(
        self, scored: Sequence[Measured], points: Floats, eos: Ints, config: RunConfig, *, has_greedy: bool
    ) -> None:
        windows, self.lanes, self.longest = points.shape
        self.points, self._eos, self._config = points, eos, config
        self._prefixes = np.array([len(item.window.context_ids) for item in scored])
        # The last token before each target, then the target's.
        self._chains = np.full((windows, self.longest + 1), -1, dtype=np.int64)
        self._lengths = np.array([len(item.window.suffix_ids) for item in scored])
        for row, item in enumerate(scored):
            self._chains[row, : self._lengths[row] + 1] = (item.window.context_ids[-1], *item.window.suffix_ids)
        count = windows * self.lanes
        self._window = np.arange(count) // self.lanes
        self._is_sampled = np.arange(count) % self.lanes >= has_greedy
        self._stops = self._is_sampled | (not config.decodes_whole)
        self._tokens = np.full((count, self.longest), -1, dtype=np.int64)
        self._count = np.zeros(count, dtype=np.int64)
        self._shared = np.zeros(count, dtype=np.int64)
        """Entries of the chain that the answer descends from."""
        self._newest = np.zeros(count, dtype=np.int64)
        """The token to be evaluated next, in an entry of the answer's own."""
        self._written = np.zeros(count, dtype=np.int64)
        """Entries of its own that were evaluated."""
        self._row = np.tile(np.arange(self.longest + 1), (count, 1))
        """D[t, ·] of the t tokens so far."""
        self._log_p = np.zeros(count)
        self._has_ended = np.zeros(count, dtype=np.bool_)
        self._is_lost = np.zeros(count, dtype=np.bool_)

    def follow(self, lane: int, choices: NDArray[np.float64] | Ints, log_probs: Floats) -> None:
        """Begin the answers of this lane: along the target up to where the choice [windows, longest] is another."""
        choices = choices.astype(np.int64)
        targets, places = self._chains[:, 1:], np.arange(self.longest)
        is_early_end = np.isin(choices, self._eos) & (places < self._lengths[:, None] - 1)
        leaves = ((choices != targets) | is_early_end) & (places < self._lengths[:, None])
        left_at = np.where(leaves.any(1), leaves.argmax(1), self._lengths)
        answers = np.arange(len(targets)) * self.lanes + lane
        self._tokens[answers] = np.where(places < left_at[:, None], targets, -1)
        self._count[answers] = left_at
        self._row[answers] = np.abs(left_at[:, None] - np.arange(self.longest + 1))
        self._log_p[answers] = np.where(places < left_at[:, None], log_probs, 0.0).sum(1)
        self._has_ended[answers] = left_at == self._lengths
        (others,) = np.nonzero(left_at < self._lengths)
        chosen = choices[others, left_at[others]]
        is_beyond = chosen == BEYOND_LIST
        known, unknown = others[~is_beyond], others[is_beyond]
        self._shared[answers[known]] = self._prefixes[known] + left_at[known]
        self._append(answers[known], chosen[~is_beyond], log_probs[known, left_at[known]])
        # The node before is evaluated once more, for what its list does not reach.
        self._shared[answers[unknown]] = self._prefixes[unknown] + left_at[unknown] - 1
        self._newest[answers[unknown]] = self._chains[unknown, left_at[unknown]]

    def unfinished(self) -> Ints:
        return np.flatnonzero(~self._has_ended & ~self._is_lost)

    def next_points(self, answers: Ints) -> Floats:
        """The point that decides the next token of each of these answers."""
        points: Floats = self.points.reshape(-1, self.longest)[answers, self._count[answers]]
        return points

    def advance(self, answers: Ints, tokens: Ints, log_probs: Floats) -> None:
        """The newest token of each of these answers was evaluated, and `tokens` come next."""
        self._written[answers] += 1
        self._append(answers, tokens, log_probs)

    def _append(self, answers: Ints, tokens: Ints, log_probs: Floats) -> None:
        windows = self._window[answers]
        lengths, places = self._lengths[windows], np.arange(self.longest + 1)
        self._tokens[answers, self._count[answers]] = self._newest[answers] = tokens
        self._row[answers] = _next_row(self._row[answers], tokens, self._chains[windows, 1:])
        self._count[answers] += 1
        self._log_p[answers] += log_probs
        counts = self._count[answers]
        self._has_ended[answers] = np.isin(tokens, self._eos) | (counts == lengths)
        missing = np.where(self._is_sampled[answers, None], np.maximum(0, places - counts[:, None]), 0)
        surplus = np.maximum(0, counts[:, None] - places)
        inside = places <= lengths[:, None]
        least = np.where(inside, self._row[answers] + surplus + missing, self.longest + 1).min(1)
        if self._config.distance == "hamming":
            least = np.where(self._is_sampled[answers], self._mismatches(answers), least)
        self._is_lost[answers] = ~self._has_ended[answers] & self._stops[answers] & (least > self._config.edit_budget)

    def _mismatches(self, answers: Ints) -> Ints:
        """Places decoded so far at which answer and target differ."""
        decoded = np.arange(self.longest) < self._count[answers, None]
        differ = (self._tokens[answers] != self._chains[self._window[answers], 1:]) & decoded
        counts: Ints = differ.sum(1)
        return counts

    def batch(self, answers: Ints, slots: Ints, device: torch.device) -> TreeBatch:
        """The newest token of each of these answers, behind its window's chain, seeing its own line.

        Behind a chain of c entries the answers of a window take turns: entry c + i · lanes + l is the i-th of lane l.
        """
        windows, counts = np.unique(self._window[answers], return_counts=True)
        rows = np.repeat(np.arange(len(windows)), counts)
        chains = self._prefixes[windows] + self._lengths[windows] - 1
        own = chains[rows] + self._written[answers] * self.lanes + answers % self.lanes
        entries = np.arange(int(own.max()) + 1)
        turn, lane = np.divmod(entries - chains[:, None], self.lanes)  # [rows, entries]
        is_own = (turn[rows] >= 0) & (lane[rows] == (answers % self.lanes)[:, None])
        sees = (entries < self._shared[answers, None]) | (is_own & (turn[rows] <= self._written[answers, None]))
        ancestry = np.zeros((len(windows), int(counts.max()), len(entries)), dtype=np.bool_)
        ancestry[rows, np.concatenate([np.arange(count) for count in counts])] = sees
        shared = np.take_along_axis(self._shared.reshape(-1, self.lanes)[windows], lane, 1)
        nodes = Nodes(
            counts=counts,
            token_ids=self._newest[answers],
            positions=self._shared[answers] + self._written[answers],
            entries=own,
            ancestry=ancestry,
            entry_positions=np.where(turn >= 0, shared + turn, entries),
            slots=slots[windows],
        )
        return pack(nodes, device=device)

    def greedy(self) -> list[GreedyResult]:
        """One a window, from its first lane."""
        answers = np.arange(len(self._lengths)) * self.lanes
        counts, is_lost = self._count[answers], self._is_lost[answers]
        hamming = self._mismatches(answers) + self._lengths - counts
        levenshtein = self._row[answers, self._lengths]
        return [
            GreedyResult(
                tuple(self._tokens[answer, : counts[row]].tolist()),
                None if is_lost[row] else int(hamming[row]),
                None if is_lost[row] else int(levenshtein[row]),
                int(self._written[answer]),
                None if self._stops[answer] else float(self._log_p[answer]),
            )
            for row, answer in enumerate(answers)
        ]

    def sampled(self) -> list[SampledAnswers]:
        """One a window, of all lanes that were sampled."""
        (answers,) = np.nonzero(self._is_sampled)
        lengths = self._lengths[self._window[answers]]
        is_hamming = self._config.distance == "hamming"
        distances = self._mismatches(answers) if is_hamming else self._row[answers, lengths]
        is_whole = ~self._is_lost[answers] & (self._count[answers] == lengths)
        distances = np.where(is_whole, distances, self.longest + 1).reshape(len(self._lengths), -1)
        budgets = np.arange(self._config.edit_budget + 1)
        hits = (distances[:, None] <= budgets[:, None]).sum(-1)  # [windows, budgets]
        written = self._written[answers].reshape(distances.shape).sum(1)
        count = distances.shape[1]
        return [
            SampledAnswers(count, tuple(own), evals) for own, evals in zip(hits.tolist(), written.tolist(), strict=True)
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
