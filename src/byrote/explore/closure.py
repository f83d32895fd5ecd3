"""Tail closure: open nodes with exactly one completion left in the ball are settled by teacher forcing, heaviest first.

A node that has used up its edits can only go on with the target's own tail: always under Hamming; under Levenshtein
when the diagonal cell (t, t) is the only one that attains the bound, since any other cell (t, j) would need its
|j − t| edits placed somewhere. The tail's tokens are evaluated in one go; the product of their probabilities is
accepted, everything else below the node is refuted and leaves the upper bound.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.errors import ConfigError
from byrote.explore.base import Exploration, NodeRequest
from byrote.explore.open_mass import OpenMass

BATCH = 16
"""Nodes closed in one go."""


class Closed(NamedTuple):
    """How many nodes were settled, the mass they moved to the lower bound, and the evaluations they took."""

    nodes: int
    mass: float
    token_evals: int


def close_tails(pool: OpenMass, *, most_nodes: int, most_evals: int | None = None) -> Exploration[Closed]:
    """Settle up to `most_nodes` open nodes with one viable completion, heaviest first."""
    if most_nodes < 0:
        raise ConfigError(f"closure is {most_nodes}; it must be 0 or more nodes.")
    before, spent, settled = pool.lower, 0, 0
    nodes = closable_nodes(pool)[:most_nodes]
    while settled < len(nodes):
        chosen = nodes[settled : settled + BATCH]
        chain, owners, tokens = _tails(pool, chosen)
        answer = yield NodeRequest(pool.tree, chain, None if most_evals is None else most_evals - spent)
        spent += answer.token_evals
        answered = len(answer.token_ids)
        is_target = (answer.token_ids == tokens[:answered, None]) & (answer.least <= pool.ball.budget)
        log_probs = np.where(is_target, answer.log_probs, -math.inf).max(-1, initial=-math.inf)
        whole = int((np.bincount(owners[:answered], minlength=len(chosen)) == np.bincount(owners)).sum())
        log_p = pool.tree.log_p[chosen] + np.bincount(owners[:answered], weights=log_probs, minlength=len(chosen))
        for node, value in zip(chosen[:whole].tolist(), log_p[:whole].tolist(), strict=True):
            pool.settle(node, log_p=value)
        settled += whole
        if whole < len(chosen):
            break
    return Closed(settled, pool.lower - before, spent)


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
