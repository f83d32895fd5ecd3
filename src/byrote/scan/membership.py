"""Membership baselines: what others take for a sign that a text was trained on, from the pass that is made anyway.

All are about the suffix, given its prefix, under the model itself (no temperature, no truncation), with ℓ_t the
log-probability of suffix token t:

- loss: −mean ℓ_t, in nats per token;
- zlib_ratio: loss over the bytes that zlib makes of the suffix's text;
- min_k: the mean of the k lowest ℓ_t (Min-K %), k being a share of the suffix, at least one token;
- min_k_plus_plus: the same of (ℓ_t − μ_t)/σ_t, μ and σ over the whole vocabulary (Min-K %++);
- reference_ratio: loss − loss under another model, the logarithm of the ratio of perplexities.

Low losses and ratios speak for membership, and so do high values of the two Min-K scores.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from byrote.errors import ModelError
from byrote.options import option
from byrote.scan.base import Measure
from byrote.store.columns import Column

if TYPE_CHECKING:  # options and columns are read without waiting for torch
    from byrote.models.base import LanguageModel
    from byrote.models.teacher_forcing import VerbatimScore
    from byrote.scan.measured import Measured
    from byrote.scan.options import RunConfig


@dataclass(frozen=True, kw_only=True)
class MembershipOptions:
    """Options of `--measures membership`."""

    min_k: float = option(
        0.2, "Share of a suffix's tokens, the least likely ones, that Min-K % looks at.", group="membership",
        above=0, at_most=1,
    )  # fmt: skip
    reference_model: str | None = option(
        None, "A model with the same tokens whose loss is set beside this model's, such as a smaller one.",
        group="membership",
    )  # fmt: skip


class MembershipScores(NamedTuple):
    """Scores of one window; None without a reference model."""

    loss: float
    zlib_ratio: float
    min_k: float
    min_k_plus_plus: float
    reference_loss: float | None = None
    reference_ratio: float | None = None


def _membership(item: "Measured") -> dict[str, Any]:
    assert item.membership is not None
    return item.membership._asdict()


MEMBERSHIP = Measure(
    "membership",
    tuple(Column(name, "float64") for name in MembershipScores._fields),
    _membership,
    lambda config: "membership" in config.measures,
    MembershipOptions,
)


def membership_scores(
    log_probs: Sequence[float], standard_scores: Sequence[float], text: str, *, min_k: float
) -> MembershipScores:
    """Scores of a suffix from the log-probabilities of its tokens, their standard scores and its text."""
    loss = -math.fsum(log_probs) / len(log_probs)
    return MembershipScores(
        loss,
        loss / len(zlib.compress(text.encode())),
        mean_of_lowest(log_probs, min_k),
        mean_of_lowest(standard_scores, min_k),
    )


def mean_of_lowest(values: Sequence[float], share: float) -> float:
    """The mean of the lowest ⌊share · n⌋ values, at least one."""
    # 0.29 · 100 is 28.999… in floats.
    count = max(1, math.floor(share * len(values) + 1e-9))
    return math.fsum(sorted(values)[:count]) / count


class MembershipStage:
    """Scores of scored windows; those of a reference model take one more pass, over that model."""

    def __init__(
        self,
        config: "RunConfig",
        decode: Callable[[tuple[int, ...]], str],
        *,
        batch_windows: int,
    ) -> None:
        self._config, self._decode, self._batch_windows = config, decode, batch_windows

    @cached_property
    def reference(self) -> "LanguageModel | None":
        """Loaded with the first windows."""
        return load_reference(self._config)

    def score(self, scored: "Sequence[Measured]") -> None:
        """Every window gets its scores."""
        for item in scored:
            own = item.score
            item.membership = membership_scores(
                own.model_log_probs, own.standard_scores, self._decode(item.window.suffix_ids), min_k=self._config.min_k
            )
        if self.reference is not None:
            self._compare(scored, self.reference)

    def _compare(self, scored: "Sequence[Measured]", reference: "LanguageModel") -> None:
        from byrote.models.teacher_forcing import score_verbatim
        from byrote.policy import Policy

        for item in scored:
            _require_same_tokens(item.score, self._decode, reference)
        windows = [item.window for item in scored]
        others = score_verbatim(reference, windows, [Policy(1.0, None)], batch_windows=self._batch_windows)
        for item, other in zip(scored, others, strict=True):
            assert item.membership is not None
            loss = -other.model_log_p / len(other.window.suffix_ids)
            item.membership = item.membership._replace(reference_loss=loss, reference_ratio=item.membership.loss - loss)


def load_reference(config: "RunConfig") -> "LanguageModel | None":
    """The reference model that a scan asks for, on the scan's device."""
    if config.reference_model is None or not MEMBERSHIP.is_asked_for(config):
        return None
    from byrote.models.load import open_model

    return open_model(config.reference_model, dtype=config.dtype, device=config.device)


def reference_hash(config: "RunConfig") -> str | None:
    """What tells a reference model from another, for the run's identity."""
    reference = load_reference(config)
    return None if reference is None else reference.identity.weights_hash


def _require_same_tokens(
    score: "VerbatimScore", decode: Callable[[tuple[int, ...]], str], reference: "LanguageModel"
) -> None:
    ids = score.window.ids
    if max(ids) >= reference.vocab_size or reference.decode(ids) != decode(ids):
        raise ModelError(
            f"the tokens of window {score.window.window_id} mean another text to {reference.name}; a reference model "
            "needs the tokenizer of the model it is compared with."
        )
