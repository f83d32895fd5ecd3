"""The null of every near-verbatim ball at once: continuations sampled after random prefixes of the reference corpus.

    ratio_ε = P(ball | p) / E_q P(ball | q)

A member of the pool is in a window's ball with probability E_q P(ball | q). The members in the ball, of N, therefore
bound it by Clopper–Pearson, whatever the distribution: with none of them E_q is at most 3/N at 95 %, and the ratio at
least P(ball | p) · N/3. The pool is sampled once: a further window costs edit distances and no forward.

N counts independent prefixes: a short reference text has few stretches that do not overlap.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import Hamming, Levenshtein

from byrote.models.base import TreeModel
from byrote.models.packing import Chains, Nodes, pack
from byrote.models.scoring import require_numbers
from byrote.policy import Policy, keep
from byrote.prior.calibration import RatioThreshold
from byrote.prior.draws import DrawnPrefixes, Prefix
from byrote.prior.verdicts import LEVEL
from byrote.search.sizing import free_memory
from byrote.stats.intervals import exact_interval
from byrote.types import DistanceName, Interval

Ints = NDArray[np.int64]
BLOCK_MEMBERS = 256
"""Members sampled from one seed, and what a kill can cost."""
MEMORY_SHARE = 0.4
"""Share of the free memory that their keys, values and logits may take."""
COMPARED_AT_ONCE = 1 << 22
"""Pairs of a target and a member."""
ENDED = -1
"""In place of tokens after an end-of-text token."""


class ScannedBall(NamedTuple):
    """What a scan's near-verbatim masses are of."""

    distance: DistanceName
    edits: int
    policy: Policy
    threshold: float


class Pool(NamedTuple):
    token_ids: Ints  # [members, tokens]
    independent: float
    """Members that limits count."""


class PooledBalls(NamedTuple):
    """What the pool says about the ball of every window."""

    ball: ScannedBall
    hits: list[int]
    members: int
    independent: float
    thresholds: Mapping[int, RatioThreshold]
    """n by suffix length, undefined where it is of another policy."""

    def prior(self, hits: int, *, level: float = LEVEL) -> Interval:
        """Clopper–Pearson for E_q P(ball | q)."""
        return exact_interval(hits * self.independent / self.members, self.independent, level=level)


def sample_pool(
    model: TreeModel,
    drawn: DrawnPrefixes,
    policy: Policy,
    *,
    members: int,
    tokens: int,
    seed: int,
    keep_block: Callable[[str, Callable[[], Ints]], Ints] = lambda name, compute: compute(),
    advance: Callable[[int], None] = lambda members: None,
) -> Pool:
    """`members` continuations of `tokens` tokens under the policy, each after a drawn prefix.

    `keep_block` gets the name of every block of members and what samples it. Blocks depend on the seed and their number
    alone, so an interrupted run ends with the same pool.
    """
    generator = np.random.default_rng([seed, 17])
    every = np.repeat(np.arange(len(drawn.prefixes)), drawn.counts.sum(axis=1))
    # Draws are independent already, and each is used once; where they are all of the corpus, they are drawn from.
    chosen = generator.choice(every, members) if drawn.is_exhaustive else generator.permutation(every)
    prefixes = [drawn.prefixes[place] for place in np.resize(chosen, members)]
    blocks = []
    for first in range(0, members, BLOCK_MEMBERS):
        some = prefixes[first : first + BLOCK_MEMBERS]
        points = np.random.default_rng([seed, 17, first]).random((len(some), tokens))
        name = f"pool-from-{first:06d}-to-{first + len(some):06d}"
        blocks.append(keep_block(name, partial(_sampled, model, some, policy, points)))
        advance(len(some))
    return Pool(np.concatenate(blocks), min(members, drawn.independent))


@torch.inference_mode()
def _sampled(model: TreeModel, prefixes: Sequence[Prefix], policy: Policy, points: NDArray[np.float64]) -> Ints:
    """A continuation of every prefix, all of one length, by points of [0, 1). [prefixes, tokens]"""
    tokens, entries = points.shape[1], len(prefixes[0]) + points.shape[1]
    each = entries * model.tree_bytes_per_entry() + 64 * model.vocab_size
    slots = max(1, min(len(prefixes), int(free_memory(model.device) * MEMORY_SHARE) // each))
    found = np.full(points.shape, ENDED, dtype=np.int64)
    for first in range(0, len(prefixes), slots):
        rows = slice(first, first + slots)
        count, length = len(prefixes[rows]), len(prefixes[0])
        session = model.open_tree(count, entries, longest=entries)
        batch = pack(chains=Chains(range(count), prefixes[rows]), device=model.device)
        for step in range(tokens):
            kept = keep(session.forward(batch), policy)
            edges = kept.log_probs.exp().cumsum(-1)
            require_numbers(edges[:, -1].tolist(), model.dtype, what="a continuation of a drawn prefix")
            point = torch.from_numpy(points[rows, step, None]).to(model.device)
            passed = (edges / edges[:, -1:] <= point).sum(-1, keepdim=True)
            chosen = kept.token_ids.gather(-1, passed)[:, 0].cpu().numpy()
            found[rows, step] = chosen
            at = np.full(count, length + step, dtype=np.int64)
            nodes = Nodes(
                counts=np.ones(count, dtype=np.int64),
                token_ids=chosen,
                positions=at,
                entries=at,
                ancestry=np.ones((count, 1, length + step + 1), dtype=np.bool_),
                entry_positions=np.tile(np.arange(length + step + 1), (count, 1)),
            )
            batch = pack(nodes, device=model.device)
    has_ended = np.isin(found, list(model.eos_ids)).cumsum(axis=1) > 0
    found[:, 1:][has_ended[:, :-1]] = ENDED
    return found


def hits_of(pool: Pool, targets: Sequence[Sequence[int]], *, distance: DistanceName, edits: int) -> list[int]:
    """How many members begin within `edits` of each target: as many of their tokens as it has, all of them there."""
    scorer = Hamming.distance if distance == "hamming" else Levenshtein.distance
    hits = np.zeros(len(targets), dtype=np.int64)
    for length in {len(target) for target in targets}:
        places = [place for place, target in enumerate(targets) if len(target) == length]
        members = pool.token_ids[:, :length]
        whole = members[members[:, -1] != ENDED].tolist()
        size = max(1, COMPARED_AT_ONCE // max(1, len(whole)))
        for some in (places[first : first + size] for first in range(0, len(places), size)) if whole else ():
            far = process.cdist([targets[place] for place in some], whole, scorer=scorer, score_cutoff=edits)
            hits[some] = (far <= edits).sum(axis=1)
    return hits.tolist()


def ball_ratio(lower: float, upper: float, prior: Interval) -> Interval:
    """log ratio_ε from certified bounds of P(ball | p) and limits of E_q P(ball | q)."""
    low, high = (math.log(mass) if mass else -math.inf for mass in (lower, upper))
    # An end of the prior at 0 leaves the ratio without an upper end; P(ball | p) = 0 has ratio 0 all the same.
    above = math.inf if prior.low == 0.0 and upper else high - (math.log(prior.low) if prior.low else 0.0)
    return Interval(low - math.log(prior.high), above, prior.level)
