"""One window's finding: what is certified and what is sampled, side by side and never mixed.

Certified bounds hold for sure; a sampled interval holds at its confidence. A sampled number never changes the
verdict, never tightens a bound, and always names its confidence.
"""

from dataclasses import dataclass
from enum import StrEnum

from rote.errors import ConfigError
from rote.types import Bounds, Estimate, Verdict


class SampledSide(StrEnum):
    """Where the sampled interval lies relative to τ, at its confidence."""

    ABOVE = "above"
    BELOW = "below"
    UNDECIDED = "undecided"
    ABSENT = "absent"
    """Nothing was sampled, or the interval is undefined."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Certified: `lower` ≤ mass ≤ `upper`, and the verdict they give at `threshold`. Sampled: `estimate`, or None."""

    lower: float
    upper: float
    threshold: float
    estimate: Estimate | None = None

    @property
    def verdict(self) -> Verdict:
        """From the certified bounds alone."""
        return Bounds((self.lower,), (self.upper,)).verdict(self.threshold)

    @property
    def sampled_side(self) -> SampledSide:
        """What the sample suggests at its confidence; it is not a verdict."""
        if self.estimate is None or not self.estimate.interval.is_defined:
            return SampledSide.ABSENT
        if self.estimate.interval.low >= self.threshold:
            return SampledSide.ABOVE
        return SampledSide.BELOW if self.estimate.interval.high < self.threshold else SampledSide.UNDECIDED

    @property
    def confidence(self) -> float | None:
        """The confidence of the sampled part; None without one. The certified part needs none."""
        return (
            None if self.sampled_side is SampledSide.ABSENT or self.estimate is None else self.estimate.interval.level
        )

    @property
    def is_consistent(self) -> bool:
        """Whether the sampled interval and the certified bounds share a value. If not, the sample was unlucky (at
        most 1 − confidence of the time) or something is wrong; the bounds are what holds."""
        if self.estimate is None or not self.estimate.interval.is_defined:
            return True
        return self.estimate.interval.low <= self.upper and self.lower <= self.estimate.interval.high

    def sentence(self) -> str:
        """The finding in words: the certified part first, then the sampled part with its confidence."""
        parts = [f"Certified: {self._certified()}."]
        if self.estimate is not None:
            parts.append(f"Sampled: {self._sampled(self.estimate)}.")
        if not self.is_consistent:
            parts.append("The sample disagrees with the certified bounds; trust the bounds.")
        return " ".join(parts)

    def _certified(self) -> str:
        threshold = f"the threshold {self.threshold:.3g}"
        bounds = f"the mass lies between {self.lower:.3g} and {self.upper:.3g}"
        match self.verdict:
            case Verdict.EXTRACTABLE:
                return f"extractable, as the mass is at least {self.lower:.3g} and {threshold} is reached"
            case Verdict.RULED_OUT:
                return f"ruled out, as the mass is at most {self.upper:.3g}, below {threshold}"
            case Verdict.NOT_SHOWN:
                return f"not shown, as {bounds}, which leaves {threshold} undecided"

    def _sampled(self, estimate: Estimate) -> str:
        drawn = f"{estimate.samples:,} samples"
        if not estimate.interval.is_defined:
            return f"no interval from {drawn} ({estimate.interval.reason or 'reason not recorded'})"
        low, high, level, _ = estimate.interval
        side = {
            SampledSide.ABOVE: "all at or above the threshold",
            SampledSide.BELOW: "all below the threshold",
            SampledSide.UNDECIDED: "on both sides of the threshold",
            SampledSide.ABSENT: "",
        }[self.sampled_side]
        return f"about {estimate.value:.3g}, {100 * level:.4g} % interval {low:.3g} to {high:.3g} ({drawn}), {side}"


def find(bounds: Bounds, threshold: float, *, estimate: Estimate | None = None) -> Finding:
    """The finding of one window at τ: its bounds at the whole edit budget, beside a sampled estimate if any."""
    if not 0.0 < threshold <= 1.0:
        raise ConfigError(f"Threshold {threshold} is outside (0, 1]; use for example 0.001.")
    lower, upper = bounds.lower[-1], bounds.upper[-1]
    if not 0.0 <= lower <= upper * (1.0 + 1e-9):
        raise ConfigError(f"Lower bound {lower} and upper bound {upper} do not bracket a mass; bounds are mixed up.")
    return Finding(lower, upper, threshold, estimate)
