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
from typing import TYPE_CHECKING, NamedTuple

from byrote.errors import ModelError
from byrote.options import option
from byrote.scan.measures.base import Decode, Measure, Measured
from byrote.store.columns import Column

if TYPE_CHECKING:  # options and columns are read without waiting for torch
    from byrote.models.base import LanguageModel, TreeModel
    from byrote.scan.options import RunConfig


@dataclass(frozen=True, kw_only=True)
class MembershipOptions:
    """Options of `--measures membership`."""

    min_k: float = option(
        0.2, "Share of a suffix's tokens, the least likely ones, that Min-K % looks at.", group="membership",
        above=0, at_most=1, is_flag=False, measure="membership",
    )  # fmt: skip
    reference_model: str | None = option(
        None, "A model with the same tokens whose loss is set beside this model's, such as a smaller one.",
        group="membership", in_identity=False, measure="membership",
    )  # fmt: skip


class MembershipScores(NamedTuple):
    """Scores of one window; None without a reference model."""

    loss: float
    zlib_ratio: float
    min_k: float
    min_k_plus_plus: float
    reference_loss: float | None = None
    reference_ratio: float | None = None


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


def begin(config: "RunConfig", model: "TreeModel", decode: Decode) -> Callable[[Sequence[Measured]], None]:
    """Scores for every chunk of windows; those of a reference model take one more pass, over that model."""
    reference = load_reference(config)

    def score(scored: Sequence[Measured]) -> None:
        for item in scored:
            log_probs, standard = item.score.model_log_probs, item.score.standard_scores
            text = decode(item.window.suffix_ids)
            item.further["membership"] = membership_scores(log_probs, standard, text, min_k=config.min_k)
        if reference is not None:
            _compare(scored, reference, model, decode, config)

    return score


def _compare(
    scored: Sequence[Measured], reference: "LanguageModel", model: "TreeModel", decode: Decode, config: "RunConfig"
) -> None:
    from byrote.models.scoring import score_verbatim
    from byrote.policy import Policy
    from byrote.scan.stages.score import windows_per_forward

    windows = [item.window for item in scored]
    for window in windows:
        if max(window.ids) >= reference.vocab_size or reference.decode(window.ids) != decode(window.ids):
            raise ModelError(
                f"the tokens of window {window.window_id} mean another text to {reference.name}; a reference model "
                "needs the tokenizer of the model it is compared with."
            )
    batch = windows_per_forward(model, config)
    others = score_verbatim(reference, windows, [Policy(1.0, None)], batch_windows=batch)
    for item, other in zip(scored, others, strict=True):
        own: MembershipScores = item.further["membership"]
        loss = -other.model_log_p / len(other.window.suffix_ids)
        item.further["membership"] = own._replace(reference_loss=loss, reference_ratio=own.loss - loss)


def load_reference(config: "RunConfig") -> "LanguageModel | None":
    """The reference model that a scan asks for, on the scan's device."""
    if config.reference_model is None or "membership" not in config.measures:
        return None
    from byrote.models.load import open_model

    return open_model(config.reference_model, dtype=config.dtype, device=config.device)


MEMBERSHIP = Measure(
    "membership",
    tuple(Column(name, "float64") for name in MembershipScores._fields),
    lambda item: item.further["membership"]._asdict(),
    lambda config: "membership" in config.measures,
    begin,
)
