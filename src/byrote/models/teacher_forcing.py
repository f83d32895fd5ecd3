"""Verbatim extraction: p_z = Π Pr_φ(z_t | z_<t) over the suffix, for any number of policies in one pass."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from byrote.models.base import TreeModel
from byrote.models.numbers import require_numbers
from byrote.policy import Policy
from byrote.types import Window


@dataclass(frozen=True, slots=True)
class VerbatimScore:
    """One window scored: the tuple fields have one element per policy, or per suffix token."""

    window: Window
    log_p: tuple[float, ...]
    """log p_z under each policy; −inf when some token is not allowed."""
    target_probs: tuple[float, ...]
    """Probability of each suffix token under the first policy."""
    suffix_ranks: tuple[int, ...]
    """How many tokens are more likely than each suffix token: 0 for the most likely one."""
    model_log_p: float
    """Sum of the model's own log-probabilities (no temperature, no truncation): −T · log perplexity."""
    first_choices: tuple[int, ...] = ()
    """The model's most likely token at every place of the suffix, where the pass listed it."""
    first_choice_log_probs: tuple[float, ...] = ()
    """The first policy's log-probability of each of those."""
    model_log_probs: tuple[float, ...] = ()
    """The model's own log-probability of every suffix token, where the pass kept them."""
    standard_scores: tuple[float, ...] = ()
    """Distance of each of them from the mean over the vocabulary, in standard deviations, where requested."""

    p_upper: float | None = None
    """Set where p_z is known only up to a server's cap: `p` is a lower bound then, and this an upper one."""

    @property
    def p(self) -> float:
        return math.exp(self.log_p[0])

    @property
    def token_evals(self) -> int:
        """The last token is not evaluated: nothing follows it."""
        return len(self.window.ids) - 1


def score_verbatim(
    model: TreeModel, windows: Iterable[Window], policies: Sequence[Policy], *, batch_windows: int
) -> Iterator[VerbatimScore]:
    """Scores in the windows' order; windows of one shape share a pass."""
    for batch in _batches(windows, batch_windows):
        suffix_tokens = len(batch[0].suffix_ids)
        scores = model.score([window.ids for window in batch], suffix_tokens, policies)
        log_p = scores.log_probs.sum(-1).T.tolist()  # [windows][policies]
        first = scores.log_probs[0].exp().tolist()
        ranks, own = scores.ranks.tolist(), scores.model_log_probs.sum(-1).tolist()
        for row, window in enumerate(batch):
            require_numbers([own[row]], model.dtype, what=f"window {window.window_id}")
            # A generation stops at an end-of-text token, so no continuation of T tokens has one before its end.
            can_be_generated = model.eos_ids.isdisjoint(window.suffix_ids[:-1])
            log_ps = tuple(log_p[row]) if can_be_generated else (-math.inf,) * len(policies)
            yield VerbatimScore(window, log_ps, tuple(first[row]), tuple(ranks[row]), own[row])


def _batches(windows: Iterable[Window], size: int) -> Iterator[list[Window]]:
    """Consecutive windows of one shape, at most `size` of them."""
    for _, group in groupby(windows, key=lambda window: (len(window.prefix_ids), len(window.suffix_ids))):
        batch: list[Window] = []
        for window in group:
            batch.append(window)
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch
