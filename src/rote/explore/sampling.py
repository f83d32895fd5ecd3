"""Sampling on the tree: many continuations at once, samples that stand at the same node share its evaluation.

A sample is a ticket. Tickets start at given nodes, in groups (replicates); at every node the tickets of a group are
divided among its children under the policy φ, so a node is evaluated once however many tickets stand there. A ticket
is lost when its path ends too soon, has probability 0, or can no longer end in the ball.

    independent   a group's tickets are divided by a multinomial draw: each ticket is an independent sample
    systematic    one uniform number per node and group: each child gets its expected number of tickets, rounded up or
                  down. Unbiased, and less noisy; tickets are no longer independent.
    exact end     at the last token a ticket counts the accepted probability of its node instead of one more draw.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.explore.open_mass import Ball
from rote.explore.trie import Exploration, Path, Request

BATCH = 64
"""Nodes asked for at once; deepest first, so that little has to be remembered."""


class Starts(NamedTuple):
    """Where tickets start: disjoint nodes (none an ancestor of another), with tickets per group."""

    paths: list[Path]
    states: NDArray[np.int16]  # [starts, width]
    tickets: NDArray[np.int64]  # [starts, groups]


class Rolled(NamedTuple):
    """`hits[i, g]`: tickets of group g from start i that ended in the ball, or their accepted shares (exact end)."""

    hits: NDArray[np.float64]  # [starts, groups]
    token_evals: int


class _Ticketed(NamedTuple):
    path: Path
    start: int
    state: NDArray[np.int16]
    tickets: NDArray[np.int64]  # [groups]


def roll(
    ball: Ball,
    starts: Starts,
    generator: np.random.Generator,
    *,
    is_systematic: bool,
    ends_exactly: bool,
    stops_when_lost: bool = True,
) -> Exploration[Rolled]:
    """Follow every ticket to its end. With `stops_when_lost` false, tickets that cannot count any more are followed
    to T tokens all the same, as plain sampling would."""
    hits = np.zeros(starts.tickets.shape, dtype=np.float64)
    token_evals = 0
    pending = [
        _Ticketed(path, place, starts.states[place], starts.tickets[place])
        for place, path in enumerate(starts.paths)
        if starts.tickets[place].any()
    ]
    while pending:
        chosen, pending = pending[-BATCH:], pending[:-BATCH]
        answer = yield Request([item.path for item in chosen])
        token_evals += answer.token_evals
        depths = np.array([len(item.path) for item in chosen], dtype=np.int64)
        children = ball.children(np.stack([item.state for item in chosen]), depths, answer)
        probabilities = np.exp(answer.log_probs)  # [nodes, kept]
        tickets = np.stack([item.tickets for item in chosen])  # [nodes, groups]
        divide = divide_systematically if is_systematic else divide_independently
        divided = divide(tickets, probabilities, generator)  # [nodes, groups, kept]
        is_last = depths + 1 == ball.length
        accepted = children.is_viable & is_last[:, None]
        shares = (
            tickets * (probabilities * accepted).sum(-1, keepdims=True)
            if ends_exactly
            else (divided * accepted[:, None]).sum(-1)
        )
        np.add.at(hits, [item.start for item in chosen], shares)
        goes_on = children.is_open & (children.is_viable | (not stops_when_lost))
        rows, places = np.nonzero(goes_on & divided.any(1))
        for row, place in zip(rows.tolist(), places.tolist(), strict=True):
            parent = chosen[row]
            path = (*parent.path, int(answer.token_ids[row, place]))
            pending.append(_Ticketed(path, parent.start, children.states[row, place], divided[row, :, place]))
    return Rolled(hits, token_evals)


def divide_independently(
    tickets: NDArray[np.int64], probabilities: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """Multinomial counts of each row's tickets [rows, groups] over its probabilities [rows, kept]."""
    normalised = probabilities / probabilities.sum(-1, keepdims=True)
    return generator.multinomial(tickets, normalised[:, None, :])


def divide_systematically(
    tickets: NDArray[np.int64], probabilities: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """Each child gets its expected number of tickets rounded up or down, and their sum is exact."""
    edges = np.cumsum(probabilities, -1)
    edges /= edges[:, -1:]
    edges[:, -1] = 1.0
    offsets = generator.random(tickets.shape)
    reached = np.ceil(tickets[..., None] * edges[:, None, :] - offsets[..., None]).astype(np.int64)
    return np.diff(reached, prepend=0, axis=-1)
