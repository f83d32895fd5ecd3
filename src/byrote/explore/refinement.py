"""Moving bounds after a search: tail closure, and refinement.

Tail closure: open nodes with exactly one completion left in the ball are settled by teacher forcing, heaviest first.

A node that has used up its edits can only go on with the target's own tail: always under Hamming; under Levenshtein
when the diagonal cell (t, t) is the only one that attains the bound, since any other cell (t, j) would need its
|j − t| edits placed somewhere. The tail's tokens are evaluated in one go; the product of their probabilities is
accepted, everything else below the node is refuted and leaves the upper bound.

Refinement: expand open nodes one after the other, those first that move the bounds most per evaluation.

Three rankings of open nodes take turns. With m the mass of a node, t its tokens, r its edits left, a the ancestors that
must be evaluated again, q_s the probability of target token s and h_t the heaviest open node of depth t,

    WIDTH   m (r + 1)² / h_t / (T − t + a)           raises the lower bound as a wider beam would
    TAIL    m (r + 1) · Π_{s>t} q_s / (T − t + a)    raises it where the model follows the target
    MASS    m / ((r + 1)² (1 + a))                   lowers the upper bound: only refuted mass leaves it

TAIL counts (r + 1)² where the lower bound is below VERY_LOOSE times the upper one.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.explore.base import Exploration, NodeRequest
from byrote.explore.open_mass import OpenMass
from byrote.explore.tree import ABSENT, Tree
from byrote.verdict import Bounds

BATCH = 16
"""Nodes closed in one go, and expanded between two looks at the bounds. With more, forwards are larger and choices
worse: 60 cost a tenth of the gain of some lower bounds at five times the default search; fewer gain little."""
SHORT = 256
"""Nodes of each ranking in a short list that has just been made."""
MOST = 1024
"""A longer short list is shortened."""
CHOICES = 4
"""Choices after which expanded nodes are removed from the short list."""


def close_tails(pool: OpenMass, *, most_nodes: int) -> Exploration[int]:
    """Settle up to `most_nodes` open nodes with one viable completion, heaviest first; the evaluations it took."""
    spent = 0
    nodes = closable_nodes(pool)[:most_nodes]
    for first in range(0, len(nodes), BATCH):
        chosen = nodes[first : first + BATCH]
        chain, owners, tokens = _tails(pool, chosen)
        answer = yield NodeRequest(pool.tree, chain)
        spent += answer.token_evals
        is_target = (answer.token_ids == tokens[:, None]) & (answer.least <= pool.ball.budget)
        log_probs = np.where(is_target, answer.log_probs, -math.inf).max(-1)
        log_p = pool.tree.log_p[chosen] + np.bincount(owners, weights=log_probs)
        for node, value in zip(chosen.tolist(), log_p.tolist(), strict=True):
            pool.settle(node, log_p=value)
    return spent


def closable_nodes(pool: OpenMass) -> NDArray[np.int64]:
    """Open nodes with exactly one viable completion, heaviest first."""
    nodes = pool.open_nodes()
    nodes = nodes[pool.tree.least[nodes] == pool.ball.budget]
    nodes = nodes[pool.ball.has_one_completion(pool.tree.states_of(nodes))]
    heaviest_first: NDArray[np.int64] = nodes[np.argsort(-pool.tree.log_p[nodes], kind="stable")]
    return heaviest_first


def _tails(pool: OpenMass, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Each node and the target's tail below it but for the last token, one after the other; the place of its owner in
    `nodes`; and the target's token that follows each."""
    tree, target = pool.tree, np.array(pool.ball.suffix_ids, dtype=np.int64)
    current, own = nodes, np.arange(len(nodes))
    chains, owners = [current], [own]
    while (goes_on := tree.depths[current] + 1 < pool.ball.length).any():
        current, own = current[goes_on], own[goes_on]
        least = np.full(len(current), pool.ball.budget, dtype=np.int16)
        current = tree.add(current, target[tree.depths[current]], log_p=np.nan, least=least, is_open=False)
        chains.append(current)
        owners.append(own)
    chain, owner = np.concatenate(chains), np.concatenate(owners)
    order = np.lexsort((tree.depths[chain], owner))
    return chain[order], owner[order], target[tree.depths[chain[order]]]


OrderName = Literal["mass", "tail", "width", "both"]
WIDTH, TAIL, MASS = 0, 1, 2
TURNS: dict[OrderName, tuple[int, ...]] = {
    "mass": (MASS,),
    "tail": (TAIL,),
    "width": (WIDTH,),
    "both": (WIDTH, TAIL, MASS),
}
TURNS_IF_LOOSE = (WIDTH, TAIL, MASS, WIDTH, TAIL, WIDTH, MASS)
LOOSE, VERY_LOOSE = 0.3, 0.001
"""Ratios of lower to upper bound below which the model follows the target loosely, and hardly at all."""
LEAST_TARGET_PROB = 0.2
"""A target token less probable than this counts as if it had this probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineOptions:
    """When to stop and what to expand first."""

    token_evals: int
    """Never spend more than this."""
    threshold: float | None
    """Stop when the verdict at this τ is decided; None goes on."""
    order: OrderName
    """What to expand first: `mass` for the upper bound, `tail` and `width` for the lower, `both` for both in turn."""


@dataclass(frozen=True, slots=True)
class Refined:
    """Bounds after refinement and what they cost."""

    bounds: Bounds
    token_evals: int
    expanded: int


def refine(
    pool: OpenMass,
    options: RefineOptions,
    *,
    target_probs: Sequence[float] | None = None,
    is_in_memory: bool = False,
) -> Exploration[Refined]:
    """Expand open nodes of the pool until a stop rule applies.

    Without `target_probs` every target token is taken to have an even chance. `is_in_memory`: the ancestors of all
    nodes that are open now are in memory, because the search returned its states.
    """
    spent, expanded = 0, 0
    bounds = pool.bounds()
    ratio = bounds.lower[-1] / bounds.upper[-1] if bounds.upper[-1] else 1.0
    gains, steps = _rankings(pool, target_probs, edits_in_tail=2 if ratio < VERY_LOOSE else 1)
    is_loose = options.order == "both" and ratio < LOOSE
    turns = itertools.cycle(TURNS_IF_LOOSE if is_loose else TURNS[options.order])
    queue = RefineQueue(pool.tree, gains, steps, is_in_memory=is_in_memory)

    def is_decided() -> bool:
        threshold, lower = options.threshold, pool.lower
        return threshold is not None and (lower >= threshold or lower + pool.open_mass + pool.unlisted < threshold)

    while not is_decided():
        chosen = queue.choose(turns, count=BATCH, affordable=options.token_evals - spent)
        if len(chosen) == 0:
            break
        answer = yield NodeRequest(pool.tree, chosen, options.token_evals - spent)
        count = len(answer.token_ids)
        if count == 0:
            break
        spent += answer.token_evals
        expanded += count
        queue.add(pool.expand(chosen[:count], answer))
        queue.refresh()
    pool.sum_up()
    return Refined(pool.bounds(), spent, expanded)


def _rankings(
    pool: OpenMass, target_probs: Sequence[float] | None, *, edits_in_tail: int
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Log gains [T + 1, budget + 1] and steps until they are had [T + 1], each in the order WIDTH, TAIL, MASS."""
    length, budget = pool.ball.length, pool.ball.budget
    probabilities = np.full(length, 0.5) if target_probs is None else np.asarray(target_probs)
    likely = np.log(np.clip(probabilities, LEAST_TARGET_PROB, 1.0))
    tails = np.append(np.cumsum(likely[::-1])[::-1], 0.0)  # log Π_{s>t} q_s
    edits = np.log(np.arange(1, budget + 2))[None]  # log (r + 1)
    gains = [
        2 * edits - _heaviest(pool)[:, None],
        edits_in_tail * edits + tails[:, None],
        np.zeros((length + 1, 1)) - 2 * edits,
    ]
    to_the_end = np.maximum(1.0, length - np.arange(length + 1))
    return gains, [to_the_end, to_the_end, np.ones(length + 1)]


def _heaviest(pool: OpenMass) -> NDArray[np.float64]:
    """log mass of the heaviest open node of each depth; between its neighbours where a depth has none. [T + 1]"""
    heaviest = np.full(pool.ball.length + 1, -np.inf)
    nodes = pool.open_nodes()
    np.maximum.at(heaviest, pool.tree.depths[nodes], pool.tree.log_p[nodes])
    (depths,) = np.nonzero(heaviest > -np.inf)
    if len(depths) == 0:
        return np.zeros_like(heaviest)
    filled: NDArray[np.float64] = np.interp(np.arange(len(heaviest)), depths, heaviest[depths])
    return filled


class _Ranked(NamedTuple):
    """Nodes and their ranks."""

    nodes: NDArray[np.int64]  # [nodes]
    ranks: NDArray[np.float64]  # [nodes, rankings]

    def where(self, chosen: NDArray[np.bool_]) -> "_Ranked":
        return _Ranked(self.nodes[chosen], self.ranks[chosen])

    @classmethod
    def joined(cls, parts: "list[_Ranked]") -> "_Ranked":
        if len(parts) == 1:
            return parts[0]
        return cls(np.concatenate([part.nodes for part in parts]), np.concatenate([part.ranks for part in parts]))


class RefineQueue:
    """All open nodes of a tree, ranked in one or more ways.

    A ranking needs its best few nodes, again and again, of very many. They are in a short list, which holds every node
    that is not below the floor of some ranking; the rest is searched only when the list runs out.
    """

    def __init__(
        self, tree: Tree, gains: list[NDArray[np.float64]], steps: list[NDArray[np.float64]], *, is_in_memory: bool
    ) -> None:
        """`is_in_memory`: the beams above all open nodes will be in memory."""
        self._tree = tree
        shape = (tree.ball.length + 1, tree.ball.budget + 1)
        self._gains = np.stack([np.broadcast_to(gain, shape) for gain in gains], -1)  # [T + 1, budget + 1, rankings]
        self._steps = np.stack(steps, -1)  # [T + 1, rankings]
        self._short: list[_Ranked] = []
        self._rest: list[_Ranked] = []
        self._floors = np.full(len(steps), -np.inf)
        self._expanded = 0  # at most so many nodes of the short list are not open any more
        self._fill(np.zeros(tree.size, dtype=np.int64) if is_in_memory else tree.depths - 1)

    def add(self, nodes: NDArray[np.int64]) -> None:
        """Nodes that have just been opened below nodes in memory."""
        new = self._ranked(nodes)
        is_high = self._is_high(new)
        self._short.append(new.where(is_high))
        self._rest.append(new.where(~is_high))

    def refresh(self) -> None:
        """Update what is missing in memory; nothing to do while the states of the search, and all since, are there."""
        tree = self._tree
        has_gaps = tree.has_dropped or int(tree.entries[1 : tree.beams].min(initial=0)) == ABSENT
        if not has_gaps and not self._missing.any():
            return
        missing = np.zeros(tree.size, dtype=np.int64)
        if has_gaps:
            nodes = np.flatnonzero(tree.is_open[: tree.size])
            missing[nodes] = tree.missing(nodes)
        self._fill(missing)

    def choose(self, turns: Iterator[int], *, count: int, affordable: int) -> NDArray[np.int64]:
        """Up to `count` nodes: by each ranking in turn, the best that pays within what is left of `affordable`.

        A ranking that counts several steps passes over nodes that could not be finished. It offers the first `count`
        that pay to begin with; when none of them pays any more, its turn is skipped.
        """
        offers = [iter(offered) for offered in self._offers(count, affordable)]
        chosen: dict[int, None] = {}
        skipped = 0
        while len(chosen) < count and affordable > 0 and skipped < len(TURNS_IF_LOOSE):
            turn = next(turns)
            skipped += 1
            for node in offers[turn]:
                missing = int(self._missing[node]) if node < len(self._missing) else 0
                if node not in chosen and self._steps[self._tree.depths[node], turn] + missing <= affordable:
                    chosen[node] = None
                    affordable -= 1 + missing
                    skipped = 0
                    break
        self._expanded += len(chosen)
        return np.fromiter(chosen, dtype=np.int64, count=len(chosen))

    def _offers(self, count: int, affordable: int) -> list[list[int]]:
        """The first nodes of each ranking that pay, the best first."""
        if self._expanded > CHOICES * count:
            self._short, self._expanded = [self._open(self._short)], 0
        short = _Ranked.joined(self._short)
        offered = int(np.count_nonzero(short.ranks >= self._floors, axis=0).min())
        if offered < count + self._expanded:
            short = self._shorten(self._open([short, *self._rest]), [], at_least=count)
        elif len(short.nodes) > MOST:
            short = self._shorten(self._open([short]), self._rest, at_least=count)
        self._short = [short]
        return [self._first(short, turn, count, affordable) for turn in range(len(self._floors))]

    def _first(self, short: _Ranked, turn: int, count: int, affordable: int) -> list[int]:
        enough = count + self._expanded
        ranked = self._paying(short, turn, affordable)
        if np.count_nonzero(ranked.ranks[:, turn] >= self._floors[turn]) < enough:
            ranked = self._paying(_Ranked.joined([short, *self._rest]), turn, affordable)
        nodes, ranks = ranked.nodes, -ranked.ranks[:, turn]
        if len(nodes) > enough:
            first = np.argpartition(ranks, enough)[:enough]
            nodes, ranks = nodes[first], ranks[first]
        nodes = nodes[np.lexsort((nodes, ranks))]  # equal ranks: the older node first
        best: list[int] = nodes[self._tree.is_open[nodes]][:count].tolist()
        return best

    def _paying(self, ranked: _Ranked, turn: int, affordable: int) -> _Ranked:
        if affordable >= self._highest_price:
            return ranked
        prices = self._steps[self._tree.depths[ranked.nodes], turn] + self._missing_above(ranked.nodes)
        return ranked.where(prices <= affordable)

    def _missing_above(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        is_old = nodes < len(self._missing)
        return np.where(is_old, self._missing[np.where(is_old, nodes, 0)], 0)

    def _fill(self, missing: NDArray[np.int64]) -> None:
        """Begin afresh with all open nodes. `missing`, by node: ancestors that must be evaluated first. Nodes that are
        added later have all of theirs in memory."""
        self._missing = missing
        self._highest_price = float(self._steps.max()) + int(missing.max())
        ranked = self._ranked(np.flatnonzero(self._tree.is_open[: self._tree.size]))
        self._short = [self._shorten(ranked, [])]

    def _ranked(self, nodes: NDArray[np.int64]) -> _Ranked:
        tree = self._tree
        depths, left = tree.depths[nodes], tree.ball.budget - tree.least[nodes]
        steps = self._steps[depths] + self._missing_above(nodes)[:, None]
        return _Ranked(nodes, tree.log_p[nodes][:, None] + (self._gains[depths, left] - np.log(steps)))

    def _is_high(self, ranked: _Ranked) -> NDArray[np.bool_]:
        high: NDArray[np.bool_] = np.any(ranked.ranks >= self._floors, axis=-1)
        return high

    def _open(self, parts: list[_Ranked]) -> _Ranked:
        joined = _Ranked.joined(parts)
        return joined.where(self._tree.is_open[joined.nodes])

    def _shorten(self, ranked: _Ranked, rest: list[_Ranked], *, at_least: int = 0) -> _Ranked:
        """A short list of these with enough nodes of every ranking; everything in `rest` is below its floors."""
        self._expanded = 0
        self._floors, self._rest = np.full(ranked.ranks.shape[1], -np.inf), rest
        size = max(SHORT, at_least)
        if len(ranked.nodes) <= size:
            return ranked
        self._floors = -np.partition(-ranked.ranks, size - 1, axis=0)[size - 1]
        is_high = self._is_high(ranked)
        self._rest = [*rest, ranked.where(~is_high)]
        return ranked.where(is_high)
