"""From one teacher-forced pass: how likely is it that the rest of a window is reproduced within the budget?

With q_t the policy's probability of target token t (at least `FLOOR`), independent trials with these probabilities
fail at most f times with a Poisson-binomial tail. Twice the edit budget is allowed, because one edit upsets the
prediction of the tokens after it too. A window's rating is of all its tokens and serves the screen; a beam's is of the
tokens it lacks and ranks beams. Both are heuristics: they choose where to look and never touch a bound.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FLOOR = 1e-6
FAILURES_PER_EDIT = 2


def rating_table(target_probs: Sequence[float], edit_budget: int) -> NDArray[np.float64]:
    """[T + 1, budget + 1]: log rating of a beam of t tokens with e edits left: t+1 … T fail at most 2·e times."""
    length = len(target_probs)
    exactly = np.zeros(FAILURES_PER_EDIT * edit_budget + 1)
    exactly[0] = 1.0
    of_step = np.zeros((length, len(exactly)))
    success = np.clip(target_probs, FLOOR, 1.0)
    for step in range(length - 1, -1, -1):
        failed = exactly[:-1] * (1 - success[step])
        exactly *= success[step]
        exactly[1:] += failed
        of_step[step] = exactly
    within = np.minimum(of_step.cumsum(1)[:, ::FAILURES_PER_EDIT], 1.0)
    with np.errstate(divide="ignore"):
        return np.vstack([np.log(within), np.zeros(edit_budget + 1)])


def ratings(target_probs: Sequence[Sequence[float]], edit_budget: int) -> NDArray[np.float64]:
    """The rating of whole windows: that at most 2ε of their tokens fail. [windows]"""
    longest = max(map(len, target_probs), default=0)
    # A trial that cannot fail changes nothing.
    padded = [(*probs, *(1.0,) * (longest - len(probs))) for probs in target_probs]
    success = np.clip(np.array(padded).reshape(len(padded), longest), FLOOR, 1.0)
    exactly = np.zeros((len(target_probs), FAILURES_PER_EDIT * edit_budget + 1))
    exactly[:, 0] = 1.0
    for step in range(longest):
        probability = success[:, step, None]
        failed = exactly[:, :-1] * (1 - probability)
        exactly *= probability
        exactly[:, 1:] += failed
    within: NDArray[np.float64] = np.minimum(exactly.sum(1), 1.0)
    return within
