"""The screen score: from one teacher-forced pass, how likely is it that a window is reproduced within the budget?

With q_t the policy's probability of target token t (at least `FLOOR`), independent trials with these probabilities
fail at most f times with a Poisson-binomial tail. Twice the edit budget is allowed, because one edit upsets the
prediction of the tokens after it too. The score of a window covers all its tokens and decides whether it is searched;
the score of a beam covers the tokens it lacks and can rank beams. Both are heuristics: they choose where to search and
never touch a bound.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FLOOR = 1e-6
FAILURES_PER_EDIT = 2


def screen_scores(target_probs: Sequence[Sequence[float]], edit_budgets: Sequence[int]) -> NDArray[np.float64]:
    """The score of each window: the chance that at most 2ε of its tokens fail, ε its own edit budget. [windows]"""
    longest = max(map(len, target_probs), default=0)
    # A trial that cannot fail changes nothing.
    padded = [(*probs, *(1.0,) * (longest - len(probs))) for probs in target_probs]
    success = np.clip(np.array(padded).reshape(len(padded), longest), FLOOR, 1.0)
    failures = FAILURES_PER_EDIT * np.array(edit_budgets, dtype=np.int64)
    exactly = np.zeros((len(target_probs), failures.max(initial=0) + 1))
    exactly[:, 0] = 1.0
    for step in range(longest):
        _add_trial(exactly, success[:, step, None])
    exactly[np.arange(exactly.shape[1]) > failures[:, None]] = 0.0
    within: NDArray[np.float64] = np.minimum(exactly.sum(1), 1.0)
    return within


def log_score_table(target_probs: Sequence[float], edit_budget: int) -> NDArray[np.float64]:
    """[T + 1, budget + 1]: log score of a beam of t tokens with e edits left: tokens t+1 … T fail at most 2·e times."""
    length = len(target_probs)
    exactly = np.zeros(FAILURES_PER_EDIT * edit_budget + 1)
    exactly[0] = 1.0
    of_step = np.zeros((length, len(exactly)))
    success = np.clip(target_probs, FLOOR, 1.0)
    for step in range(length - 1, -1, -1):
        _add_trial(exactly, success[step])
        of_step[step] = exactly
    within = np.minimum(of_step.cumsum(1)[:, ::FAILURES_PER_EDIT], 1.0)
    with np.errstate(divide="ignore"):
        return np.vstack([np.log(within), np.zeros(edit_budget + 1)])


def _add_trial(exactly: NDArray[np.float64], success: NDArray[np.float64] | np.float64) -> None:
    """One more trial, in place: `exactly[..., f]` is the chance of exactly f failures."""
    failed = exactly[..., :-1] * (1 - success)
    exactly *= success
    exactly[..., 1:] += failed
