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

from rote.errors import ConfigError
from rote.explore.open_mass import OpenMass
from rote.explore.trie import Exploration, Request
from rote.types import Continuation


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
    for node in closable_nodes(pool)[:most_nodes].tolist():
        path = pool.path(node)
        tail = pool.ball.suffix_ids[len(path) :]
        steps = [(*path, *tail[:count]) for count in range(len(tail))]
        answer = yield Request(steps, None if most_evals is None else most_evals - spent)
        spent += answer.token_evals
        if len(answer.token_ids) < len(steps):
            break
        log_p = float(pool.log_p[node])
        for place, token in enumerate(tail):
            (where,) = np.nonzero(answer.token_ids[place] == token)
            log_p += float(answer.log_probs[place, where].max(initial=-math.inf))
            if token in pool.ball.eos_ids and place + 1 < len(tail):
                log_p = -math.inf
        pool.settle(node, log_p=log_p)
        if log_p > -math.inf:
            pool.note(Continuation((*path, *tail), log_p, pool.ball.budget))
        settled += 1
    return Closed(settled, pool.lower - before, spent)


def closable_nodes(pool: OpenMass) -> NDArray[np.int64]:
    """Open nodes with exactly one viable completion, heaviest first."""
    nodes = pool.open_nodes()
    nodes = nodes[pool.ball.has_one_completion(pool.states[nodes])]
    return nodes[np.argsort(-pool.mass[nodes], kind="stable")]
