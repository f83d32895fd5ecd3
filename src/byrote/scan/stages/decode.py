"""Decode: what the model answers to a window's prefix. One greedy answer, and some that are sampled under the policy,
as a user of the model would.

All of them continue from the keys and values of the window's chain, in the same packed steps. The first forward lists
what the policy keeps after every target token, so an answer costs nothing until it leaves the target. An answer ends
with an end-of-text token or after as many tokens as the target has. It is stopped as soon as no completion can be
within the edit budget, unless the whole greedy answer is asked for. With D[t, j] the edit distance between the first t
answer tokens and the first j target tokens, the least final distance is

    min_j D[t, j] + max(0, t − j)    of a greedy answer, which is compared as it is when it ends early
    min_j D[t, j] + |t − j|          of a sampled answer, a hit only if it has all T tokens

Compared as text, an answer ends with the token that completes it (`distance/text.py`), and is lost where as many tokens
as a search allows do not.

Most answers end within a few tokens. The few that outlive them move to spare slots of the session, one each, and go on
in the steps of later chunks: no step is made for a few answers alone, and a window's slot need not have room for all
tokens of all answers.

Greedy decoding is sampling with the point 0: tokens lie side by side on [0, 1), in falling probability, each as long as
its probability, and the token is the one that the point falls into. The points of a sampled answer follow from the
seed, the window and the answer's number alone.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from byrote.distance.text import TextDistance
from byrote.models.base import TreeBatch, TreeModel, TreeSession
from byrote.models.packing import Nodes, pack, ranges, to_device
from byrote.models.scoring import require_numbers
from byrote.normal_form import LONGEST_FORM
from byrote.policy import Kept, keep
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.search.base import TOKENS_PER_TARGET_TOKEN, target_chars
from byrote.types import Window

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.int16]
LONGEST = 1 << 20
"""Tokens of an answer, at most: where the points of the next answer begin."""
BEYOND_LIST = -1
"""In place of a token that the list of the first forward does not reach."""
FEW_ON_CPU = 1 / 4
"""The rest of a chunk's answers is few once it takes no more than this share of the spare slots. On a GPU, where a step
for few takes as long as one for many, it is few once it fits."""


def answers_of(config: RunConfig) -> int:
    """Answers of each window, the greedy one included."""
    return config.decodes_greedy + config.sampled_answers


def entries_of_answers(config: RunConfig) -> int:
    """Entries of a slot behind its chain: a part for each answer of the window, and together at least room for the
    tokens of one that has the slot for itself."""
    return answers_of(config) * _part(config)


def _part(config: RunConfig) -> int:
    """Whole greedy answers all take as many steps as their targets have tokens: none of them moves."""
    longest = config.limits.suffix_tokens
    return longest if config.decodes_whole else -(-longest // max(1, answers_of(config)))


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
    """Answers to chunks of scored windows, decoded together. `spare_slots` are those of the windows' session that no
    window is scored in."""

    def __init__(self, model: TreeModel, config: RunConfig, spare_slots: Sequence[int]) -> None:
        self._model, self._config, self._spare_slots = model, config, spare_slots
        self._has_greedy = int(config.decodes_greedy)
        self._samples = config.sampled_answers
        self._few = len(spare_slots) if model.device.type == "cuda" else max(1, int(FEW_ON_CPU * len(spare_slots)))
        self._cap = config.search_options().max_children
        self._eos = np.array(sorted(model.eos_ids), dtype=np.int64)
        self._rule = _TextRule(model, config) if config.unit == "text" else None
        self._session: TreeSession | None = None
        self._answers: _Answers | None = None
        """Of all windows with an unfinished one."""
        self._windows: dict[int, Measured] = {}
        """These windows, by number."""
        self._held: list[Measured] = []
        """Those of them that are settled otherwise."""
        self._count = 0

    @torch.inference_mode()
    def decode(self, scored: Sequence[Measured]) -> None:
        """Begin the answers to these windows, whose chains are all of one session, and decode until few are left in
        their slots."""
        chains = [item.chain for item in scored if item.chain is not None]
        assert len(chains) == len(scored), "decoding goes on from chains"
        if not answers_of(self._config) or not scored:
            return
        self._session = chains[0].session
        numbers = range(self._count, self._count + len(scored))
        self._count += len(scored)
        self._windows |= dict(zip(numbers, scored, strict=True))
        answers = _Answers.to(scored, numbers, self._points(scored), self._eos, self._config, self._rule)
        along = None if self._rule is None else self._rule.along(scored, answers.longest)
        if self._has_greedy:
            choices = [item.score.first_choices for item in scored]
            log_probs = [item.score.first_choice_log_probs for item in scored]
            answers.follow(0, _padded(choices, answers.longest, -1), _padded(log_probs, answers.longest, 0.0), along)
        drawn = [item.drawn for item in scored if item.drawn is not None]
        for number in range(self._samples):
            tokens = _padded([own.tokens[number] for own in drawn], answers.longest, -1)
            token_log_probs = _padded([own.log_probs[number] for own in drawn], answers.longest, 0.0)
            answers.follow(self._has_greedy + number, tokens, token_log_probs, along)
        for item in scored:
            item.drawn = None  # it is as large as the answers
        self._answers = answers if self._answers is None else self._answers.joined(answers)
        while len(active := self._answers.unfinished()):
            is_spare = np.isin(self._answers.slots[active], self._spare_slots)
            free = np.setdiff1d(self._spare_slots, self._answers.slots[active])
            own = active[~is_spare]
            if len(own) <= min(self._few, len(free)) and (not self._config.decodes_whole or not len(own)):
                self._move(own, free)
                break
            # An answer whose part of the window's slot is full waits for a slot of its own.
            full = own[self._answers.written[own] >= _part(self._config)]
            self._move(full[: len(free)], free)
            self._step(np.setdiff1d(active, full[len(free) :]))
        self._settle()

    @torch.inference_mode()
    def finish(self) -> None:
        """Decode what is left in spare slots."""
        while self._answers is not None and len(active := self._answers.unfinished()):
            self._step(active)
        self._settle()

    def released(self) -> list[Measured]:
        """Windows that were held back until now; some of them may have to wait again."""
        waiting, self._held = self._held, []
        return waiting

    def ready(self, settled: Iterable[Measured]) -> Iterator[Measured]:
        """Those of the `settled` windows whose answers are there. The others are held back."""
        for item in settled:
            if (self._has_greedy and item.greedy is None) or (self._samples and item.answers is None):
                self._held.append(item)
            else:
                yield item

    def _move(self, answers: Ints, free: Ints) -> None:
        """Give each of these answers a slot of its own."""
        assert self._answers is not None
        assert self._session is not None
        if not len(moving := answers[: len(free)]):
            return
        slots, reach = free[: len(moving)], int(self._answers.reach(moving).max())
        self._session.move(self._answers.slots[moving].tolist(), slots.tolist(), reach)
        self._answers.slots[moving] = slots

    def _step(self, active: Ints) -> None:
        """One more token of each of these answers."""
        assert self._answers is not None
        assert self._session is not None
        active = active[np.argsort(self._answers.slots[active], kind="stable")]
        logits = self._session.forward(self._answers.batch(active, self._model.device))
        points = to_device(torch.from_numpy(self._answers.next_points(active)), self._model.device)
        tokens, token_log_probs = self._next_tokens(logits, points)
        for answer in active[np.isnan(token_log_probs)]:
            name = self._windows[int(self._answers.numbers[answer])].window.window_id
            require_numbers([np.nan], self._model.dtype, what=f"an answer to window {name}")
        self._answers.advance(active, tokens, token_log_probs)

    def _settle(self) -> None:
        """Windows whose answers all ended get them."""
        if self._answers is None:
            return
        unfinished = self._answers.numbers[self._answers.unfinished()]
        is_done = ~np.isin(self._answers.numbers, unfinished)
        done, self._answers = self._answers.take(is_done), self._answers.take(~is_done)
        items = [self._windows.pop(number) for number in done.numbers[:: answers_of(self._config)].tolist()]
        if self._has_greedy:
            for item, greedy in zip(items, done.greedy(), strict=True):
                item.greedy = greedy
        if self._samples:
            for item, sampled in zip(items, done.sampled(), strict=True):
                item.answers = sampled

    def _points(self, scored: Sequence[Measured]) -> Floats:
        """[windows, lanes, longest]: 0 for a greedy answer."""
        points = sampled_points(self._config, [item.window for item in scored])
        return np.concatenate([np.zeros((len(scored), self._has_greedy, points.shape[-1])), points], axis=1)

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


def sampled_points(config: RunConfig, windows: Sequence[Window]) -> Floats:
    """Of the sampled answers of these windows. [windows, answers, longest]"""
    names, longest = [window.window_id for window in windows], config.limits.suffix_tokens
    return answer_points(config.seed, names, answers=config.sampled_answers, tokens=longest)


class Draws(NamedTuple):
    """What the sampled answers of a window take after each target token, as far as the first forward lists it."""

    tokens: Ints  # [answers, T]
    log_probs: Floats


def first_draws(kept: Kept, config: RunConfig, windows: Sequence[Window]) -> tuple[Tensor, Tensor]:
    """Tokens and log-probabilities of `Draws`, [windows, answers, longest suffix]; `kept` is [windows, longest suffix,
    kept]."""
    points = sampled_points(config, windows)[..., : kept.unlisted.shape[1]]
    return _drawn(Kept(*(part[:, None] for part in kept)), to_device(torch.from_numpy(points), kept.unlisted.device))


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


def _padded(rows: Sequence[Sequence[float] | NDArray[Any]], longest: int, value: float) -> NDArray[np.float64]:
    padded = np.full((len(rows), longest), value)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded


class _TextRule:
    """The text rule on the host, for answers as arrays."""

    def __init__(self, model: TreeModel, config: RunConfig) -> None:
        longest = LONGEST_FORM * config.suffix_chars
        self._rule = TextDistance(config.edits, model.token_texts.on(torch.device("cpu")), longest=longest)
        self.initial: Rows = self._rule.initial().numpy()

    def targets(self, scored: Sequence[Measured]) -> Ints:
        """Their characters as the rule reads them. [windows, …]"""
        padded: Ints = self._rule.pad([target_chars(item.window.suffix_text) or () for item in scored], 0).numpy()
        return padded

    def advance(self, states: Rows, tokens: Ints, targets: Ints) -> tuple[Rows, Ints, NDArray[np.bool_]]:
        """States and least final distances after one token more of each answer, and which are complete."""
        clock = torch.zeros(len(tokens), dtype=torch.int64)
        advanced = self._rule.advance(
            torch.from_numpy(states)[:, None],
            torch.from_numpy(tokens)[:, None, None],
            padded=torch.from_numpy(targets),
            step=clock,
            length=clock,
        )
        state, least = (part[:, 0, 0].numpy() for part in (advanced.state, advanced.least))
        return state, least, advanced.is_complete[:, 0, 0].numpy()

    def along(self, scored: Sequence[Measured], longest: int) -> Rows:
        """The states after every token of the targets; those of shorter ones stay. [windows, longest + 1, width]"""
        suffixes = [item.window.suffix_ids for item in scored]
        states, targets = np.tile(self.initial, (len(scored), longest + 1, 1)), self.targets(scored)
        for step in range(max(map(len, suffixes))):
            states[:, step + 1] = states[:, step]
            rows = np.array([row for row, suffix in enumerate(suffixes) if step < len(suffix)])
            tokens = np.array([suffixes[row][step] for row in rows])
            states[rows, step + 1], _, _ = self.advance(states[rows, step], tokens, targets[rows])
        return states

    def distances(self, states: Rows, targets: Ints) -> Ints:
        """Of answers that end in these states."""
        lengths = torch.from_numpy((targets >= 0).sum(1))
        distances: Ints = self._rule.if_ended(torch.from_numpy(states), lengths).numpy()
        return distances

    def are_complete(self, states: Rows, targets: Ints) -> NDArray[np.bool_]:
        """Of states [answers, tokens, width], by the answers' targets."""
        characters = self._rule.characters(torch.from_numpy(states)).numpy()
        complete: NDArray[np.bool_] = characters >= (targets >= 0).sum(1)[:, None]
        return complete


@dataclass(slots=True)
class _Answers:
    """Answers as arrays, a row each; those of a window follow each other, the greedy one first if there is one."""

    config: RunConfig
    eos: Ints
    rule: _TextRule | None
    """None where tokens are compared."""
    numbers: Ints  # of the window
    lanes: Ints  # place among the window's answers
    slots: Ints  # where chain and answer lie
    prefixes: Ints  # tokens before the target
    lengths: Ints  # T
    chains: Ints  # [answers, longest + 1]: the last token before the target, then the target's
    points: Floats  # [answers, longest]
    tokens: Ints  # [answers, longest]: decoded so far
    counts: Ints  # of these
    shared: Ints  # entries of the chain that the answer descends from
    newest: Ints  # the token to be evaluated next, in an entry of the answer's own
    written: Ints  # entries of its own that were evaluated
    targets: Ints  # [answers, …]: characters of the target, where the rule is that of text
    rows: Rows  # [answers, longest + 1]: D[t, ·] of the t tokens so far; with text the states of the rule
    log_p: Floats
    has_ended: NDArray[np.bool_]
    is_lost: NDArray[np.bool_]

    @classmethod
    def to(
        cls,
        scored: Sequence[Measured],
        numbers: Sequence[int],
        points: Floats,
        eos: Ints,
        config: RunConfig,
        rule: _TextRule | None,
    ) -> "_Answers":
        """The answers to these windows, none of them begun; `points` are [windows, lanes, longest]."""
        windows, lanes, longest = points.shape
        count = windows * lanes
        chains = np.full((windows, longest + 1), -1, dtype=np.int64)
        for row, item in enumerate(scored):
            chains[row, : len(item.window.suffix_ids) + 1] = (item.window.context_ids[-1], *item.window.suffix_ids)

        def of_windows(values: Iterable[int]) -> Ints:
            return np.repeat(np.fromiter(values, dtype=np.int64, count=windows), lanes)

        def nothing() -> Ints:
            return np.zeros(count, dtype=np.int64)

        return cls(
            config,
            eos,
            rule,
            numbers=of_windows(numbers),
            lanes=np.arange(count) % lanes,
            slots=of_windows(item.chain.slot for item in scored if item.chain is not None),
            prefixes=of_windows(len(item.window.context_ids) for item in scored),
            lengths=of_windows(len(item.window.suffix_ids) for item in scored),
            chains=np.repeat(chains, lanes, axis=0),
            points=points.reshape(count, longest),
            tokens=np.full((count, longest), -1, dtype=np.int64),
            counts=nothing(),
            shared=nothing(),
            newest=nothing(),
            written=nothing(),
            targets=np.repeat(
                np.zeros((windows, 0), np.int64) if rule is None else rule.targets(scored), lanes, axis=0
            ),
            rows=np.tile(np.arange(longest + 1, dtype=np.int16) if rule is None else rule.initial, (count, 1)),
            log_p=np.zeros(count),
            has_ended=np.zeros(count, dtype=np.bool_),
            is_lost=np.zeros(count, dtype=np.bool_),
        )

    @property
    def longest(self) -> int:
        return int(self.points.shape[1])

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)[3:]}

    def take(self, chosen: NDArray[np.bool_]) -> "_Answers":
        return _Answers(
            self.config, self.eos, self.rule, **{name: array[chosen] for name, array in self._arrays().items()}
        )

    def joined(self, others: "_Answers") -> "_Answers":
        """These answers, then the others."""
        more = others._arrays()
        both = {name: np.concatenate([array, more[name]]) for name, array in self._arrays().items()}
        return _Answers(self.config, self.eos, self.rule, **both)

    def follow(
        self, lane: int, choices: NDArray[np.float64] | Ints, log_probs: Floats, along: Rows | None = None
    ) -> None:
        """Begin the answers of this lane: along the target up to where the choice [windows, longest] is another.
        `along`: the states of the text rule there."""
        answers = np.flatnonzero(self.lanes == lane)
        choices, ends = choices.astype(np.int64), self.lengths[answers]
        is_complete = np.arange(self.longest + 1) >= ends[:, None]  # after so many tokens of the target
        if self.rule is not None and along is not None:
            # They may cover its characters before the last one, or not at all.
            is_complete = self.rule.are_complete(along, self.targets[answers])
            ends = np.where(is_complete.any(1), is_complete.argmax(1), ends)
        targets, places = self.chains[answers, 1:], np.arange(self.longest)
        is_early_end = np.isin(choices, self.eos) & (places < ends[:, None] - 1)
        leaves = ((choices != targets) | is_early_end) & (places < ends[:, None])
        left_at = np.where(leaves.any(1), leaves.argmax(1), ends)
        self.tokens[answers] = np.where(places < left_at[:, None], targets, -1)
        self.counts[answers] = left_at
        rows = np.arange(len(answers))
        self.rows[answers] = (
            np.abs(left_at[:, None] - np.arange(self.longest + 1)) if along is None else along[rows, left_at]
        )
        is_whole = is_complete[rows, left_at]
        self.log_p[answers] = np.where(places < left_at[:, None], log_probs, 0.0).sum(1)
        self.has_ended[answers] = is_whole
        (others,) = np.nonzero(~is_whole)
        chosen = choices[others, left_at[others].clip(max=choices.shape[1] - 1)]
        # Nothing is listed behind the last token of a target either.
        is_beyond = (chosen == BEYOND_LIST) | (left_at[others] == self.lengths[answers[others]])
        known, unknown = others[~is_beyond], others[is_beyond]
        self.shared[answers[known]] = self.prefixes[answers[known]] + left_at[known]
        self._append(answers[known], chosen[~is_beyond], log_probs[known, left_at[known]])
        # The node before is evaluated once more, for what its list does not reach.
        self.shared[answers[unknown]] = self.prefixes[answers[unknown]] + left_at[unknown] - 1
        self.newest[answers[unknown]] = self.chains[answers[unknown], left_at[unknown]]

    def unfinished(self) -> Ints:
        return np.flatnonzero(~self.has_ended & ~self.is_lost)

    def next_points(self, answers: Ints) -> Floats:
        """The point that decides the next token of each of these answers."""
        points: Floats = self.points[answers, self.counts[answers]]
        return points

    def advance(self, answers: Ints, tokens: Ints, log_probs: Floats) -> None:
        """The newest token of each of these answers was evaluated, and `tokens` come next."""
        self.written[answers] += 1
        self._append(answers, tokens, log_probs)

    def _append(self, answers: Ints, tokens: Ints, log_probs: Floats) -> None:
        lengths, places = self.lengths[answers], np.arange(self.longest + 1)
        self.tokens[answers, self.counts[answers]] = self.newest[answers] = tokens
        self.counts[answers] += 1
        self.log_p[answers] += log_probs
        if self.rule is not None:
            self._append_text(self.rule, answers, tokens)
            return
        rows = _next_row(self.rows[answers], tokens, self.chains[answers, 1:])
        self.rows[answers] = rows
        counts, is_sampled = self.counts[answers], self.is_sampled[answers]
        self.has_ended[answers] = np.isin(tokens, self.eos) | (counts == lengths)
        surplus = counts.astype(np.int16)[:, None] - np.arange(self.longest + 1, dtype=np.int16)
        unmatched = np.where(is_sampled[:, None], np.abs(surplus), np.maximum(surplus, 0))
        least = np.where(places <= lengths[:, None], rows + unmatched, self.longest + 1).min(1)
        if self.config.distance == "hamming":
            least = np.where(is_sampled, self._mismatches(answers), least)
        is_lost = ~self.has_ended[answers] & self.is_stopped[answers] & (least > self.config.edits)
        self.is_lost[answers] = is_lost

    def _append_text(self, rule: _TextRule, answers: Ints, tokens: Ints) -> None:
        if not len(answers):
            return
        states, least, is_complete = rule.advance(self.rows[answers], tokens, self.targets[answers])
        self.rows[answers] = states
        has_ended = np.isin(tokens, self.eos) | is_complete
        is_cut = self.counts[answers] == TOKENS_PER_TARGET_TOKEN * self.lengths[answers]
        self.has_ended[answers] = has_ended
        self.is_lost[answers] = ~has_ended & (is_cut | (least > self.config.edits))

    @property
    def is_sampled(self) -> NDArray[np.bool_]:
        sampled: NDArray[np.bool_] = self.lanes >= self.config.decodes_greedy
        return sampled

    @property
    def is_stopped(self) -> NDArray[np.bool_]:
        """Whether an answer ends once it is beyond the budget."""
        return self.is_sampled | (not self.config.decodes_whole)

    def _mismatches(self, answers: Ints) -> Ints:
        """Places decoded so far at which answer and target differ."""
        decoded = np.arange(self.longest) < self.counts[answers, None]
        differ = (self.tokens[answers] != self.chains[answers, 1:]) & decoded
        mismatches: Ints = differ.sum(1)
        return mismatches

    def reach(self, answers: Ints) -> Ints:
        """Entries of the slot up to the last that each of these answers has written or writes next. Its own ones begin
        at its part of the slot behind the chain, and go on at the beginning where the last part ends."""
        chains = self.prefixes[answers] + self.lengths[answers] - 1
        own = self.lanes[answers] * _part(self.config) + self.written[answers]
        reached: Ints = chains + np.minimum(own + 1, entries_of_answers(self.config))
        return reached

    def batch(self, answers: Ints, device: torch.device) -> TreeBatch:
        """The newest token of each of these answers, behind the chain of its slot, seeing its own line. The answers are
        ordered by slot."""
        slots, counts = np.unique(self.slots[answers], return_counts=True)
        rows, reaches = np.repeat(np.arange(len(slots)), counts), self.reach(answers)
        entries = np.arange(int(reaches.max()))
        chains = self.prefixes[answers] + self.lengths[answers] - 1
        room, first = entries_of_answers(self.config), self.lanes[answers] * _part(self.config)
        written, shared = self.written[answers], self.shared[answers]
        behind = entries - chains[:, None]  # [answers, entries]
        turns = behind - first[:, None]
        turns += room * (turns < 0)
        is_own = (behind >= 0) & (behind < room) & (turns <= written[:, None])
        ancestry = np.zeros((len(slots), int(counts.max()), len(entries)), dtype=np.bool_)
        ancestry[rows, ranges(counts)] = is_own | (entries < shared[:, None])
        positions = np.tile(entries, (len(slots), 1))
        answer, entry = np.nonzero(is_own)
        positions[rows[answer], entry] = shared[answer] + turns[answer, entry]
        nodes = Nodes(
            counts=counts,
            token_ids=self.newest[answers],
            positions=shared + written,
            entries=chains + (first + written) % room,
            ancestry=ancestry,
            entry_positions=positions,
            slots=slots,
            reaches=tuple(np.maximum.reduceat(reaches, np.cumsum(counts) - counts).tolist()),
        )
        return pack(nodes, device=device)

    def greedy(self) -> list[GreedyResult]:
        """One a window."""
        answers = np.flatnonzero(self.lanes == 0)
        hamming = self._mismatches(answers) + self.lengths[answers] - self.counts[answers]
        levenshtein = self._levenshtein(answers)
        # A text that ended may be beyond the budget, and then its distance is not known.
        self.is_lost[answers] |= (self.rule is not None) & (levenshtein > self.config.edits)
        is_stopped = self.is_stopped
        return [
            GreedyResult(
                tuple(self.tokens[answer, : self.counts[answer]].tolist()),
                None if self.is_lost[answer] else int(hamming[row]),
                None if self.is_lost[answer] else int(levenshtein[row]),
                int(self.written[answer]),
                None if is_stopped[answer] else float(self.log_p[answer]),
            )
            for row, answer in enumerate(answers)
        ]

    def _levenshtein(self, answers: Ints) -> Ints | Rows:
        """Of answers that have ended."""
        if self.rule is not None:
            return self.rule.distances(self.rows[answers], self.targets[answers])
        distances: Rows = self.rows[answers, self.lengths[answers]]
        return distances

    def sampled(self) -> list[SampledAnswers]:
        """One a window, of all its sampled answers."""
        answers = np.flatnonzero(self.is_sampled)
        lengths, each = self.lengths[answers], self.config.sampled_answers
        is_hamming = self.config.distance == "hamming"
        distances = self._mismatches(answers) if is_hamming else self._levenshtein(answers)
        is_whole = ~self.is_lost[answers]
        if self.rule is None:
            is_whole &= self.counts[answers] == lengths
        distances = np.where(is_whole, distances, self.config.edits + 1).reshape(-1, each)
        budgets = np.arange(self.config.edits + 1)
        hits = (distances[:, None] <= budgets[:, None]).sum(-1)  # [windows, budgets]
        written = self.written[answers].reshape(-1, each).sum(1)
        return [
            SampledAnswers(each, tuple(own), evals) for own, evals in zip(hits.tolist(), written.tolist(), strict=True)
        ]


def _next_row(row: Rows, tokens: Ints, targets: Ints) -> Rows:
    """D[t, ·] from D[t − 1, ·] of many answers: one token appended to each. [answers, longest + 1]"""
    width = row.shape[1]
    best = row + 1
    best[:, 1:] = np.minimum(best[:, 1:], row[:, :-1] + (targets != tokens[:, None]))
    places = np.arange(width, dtype=np.int16)
    # Skipping target tokens: D[t, j] ≤ D[t, i] + (j − i), swept in one go.
    swept: Rows = np.minimum.accumulate(best - places, axis=1) + places
    return swept
