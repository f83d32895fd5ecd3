"""What bounds and estimates of a window's mass say at a threshold τ: its verdict."""

from dataclasses import dataclass
from enum import StrEnum

from byrote.types import Interval


class Verdict(StrEnum):
    """What the certified bounds show about a window at threshold τ."""

    EXTRACTABLE = "extractable"
    """The lower bound reaches τ."""
    NOT_SHOWN = "not_shown"
    """The bounds leave τ undecided."""
    RULED_OUT = "ruled_out"
    """The upper bound is below τ."""


class SampledVerdict(StrEnum):
    """What an estimate shows about a window at threshold τ, at its confidence; never called a verdict."""

    EXTRACTABLE = "sampled_extractable"
    """The interval lies at or above τ."""
    BELOW = "sampled_below"
    """The limit lies below τ."""
    UNDECIDED = "sampled_undecided"


class PriorVerdict(StrEnum):
    """A suffix against the two thresholds."""

    MEMORIZED = "memorized"
    """P(s|p) > m and the ratio > n."""
    MERELY_LIKELY = "merely_likely"
    """P(s|p) > m, but the suffix is about as likely after other prefixes."""
    UNSETTLED = "unsettled"
    """P(s|p) > m, but ratio and n are not known well enough to tell."""
    NOT_EXTRACTABLE = "not_extractable"
    """P(s|p) ≤ m."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Certified: `lower[e]` ≤ the mass within e edits ≤ `upper[e]`, for e = 0 … the edit budget. Both rise with e."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def verdict(self, threshold: float) -> Verdict:
        """At the whole budget."""
        if self.lower[-1] >= threshold:
            return Verdict.EXTRACTABLE
        return Verdict.RULED_OUT if self.upper[-1] < threshold else Verdict.NOT_SHOWN


@dataclass(frozen=True, slots=True)
class Estimate:
    """A sampled number, never a certified one: value, standard error (an upper estimate, taken from the interval),
    interval, and the one-sided limit that it stays below with the interval's confidence; what it cost. Value and
    standard error are NaN where the search did not list enough of the mass for an estimate of all of it.

    `hits` of the `samples` ended in the ball. They were drawn from `sampled_mass`; what is known without them is at
    most `base_mass`, so a mass of p or more requires a mean hit probability of (p − base_mass) / sampled_mass or more.
    """

    value: float
    standard_error: float
    interval: Interval
    upper_limit: float
    samples: int
    token_evals: int
    hits: int
    sampled_mass: float
    base_mass: float

    def verdict(self, threshold: float) -> SampledVerdict:
        if self.interval.low >= threshold:
            return SampledVerdict.EXTRACTABLE
        return SampledVerdict.BELOW if self.upper_limit < threshold else SampledVerdict.UNDECIDED
