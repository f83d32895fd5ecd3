"""Frozen values shared by all rooms. No behaviour beyond derived properties; imports nothing of byrote but errors.

Probabilities are plain floats in [0, 1]; log-probabilities are natural logarithms, `-inf` for impossible.
None means absent. Undefined statistics are NaN and carry a reason.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

# The words a user chooses among. Options read their choices from these, so that there is no second list.
DistanceName = Literal["levenshtein", "hamming", "none"]
ViabilityName = Literal["exact", "published"]
RankName = Literal["mass", "screen_score"]
StopRuleName = Literal["mass", "published"]
BosRule = Literal["auto", "always", "never"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
IntervalName = Literal["wilson", "exact"]
ExportFormat = Literal["csv", "jsonl"]
ExportTable = Literal["results", "continuations"]


class Split(StrEnum):
    """Which side of the comparison a document is on."""

    TARGET = "target"
    CONTROL = "control"


class Verdict(StrEnum):
    """What the certified bounds say about a window at threshold τ."""

    EXTRACTABLE = "extractable"
    """The lower bound reaches τ."""
    NOT_SHOWN = "not_shown"
    """The bounds leave τ undecided."""
    RULED_OUT = "ruled_out"
    """The upper bound is below τ."""


class SampledVerdict(StrEnum):
    """What an estimate says about a window at threshold τ, at its confidence: no verdict, and never called one."""

    EXTRACTABLE = "sampled_extractable"
    """The interval lies at or above τ."""
    BELOW = "sampled_below"
    """The limit lies below τ."""
    UNDECIDED = "sampled_undecided"


class StopReason(StrEnum):
    """Why the search of a window ended."""

    FINISHED = "finished"
    BEAM_EMPTY = "beam_empty"
    BELOW_THRESHOLD = "below_threshold"
    SCREENED = "screened"


class Encoding(NamedTuple):
    """A text as tokens, no special ones added, with the character span of each."""

    ids: list[int]
    spans: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Window:
    """`prefix_ids` followed by `suffix_ids`, cut from one document.

    The model is given the prefix; the suffix is what it would have to reproduce. Character positions are offsets
    into the document's text: the window was cut at `char_start`, where its prefix starts (later, if it was cut with
    room for a longer one); the suffix starts at `suffix_char_start` and ends before `char_end`. Token ids are kept
    because re-tokenising decoded text is not stable.
    """

    window_id: str
    document: str
    split: Split
    char_start: int
    suffix_char_start: int
    char_end: int
    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    further: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Further columns of its row: what is known of the window beside its text. No measure reads them."""

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prefix_ids + self.suffix_ids


@dataclass(frozen=True, slots=True)
class Continuation:
    """One continuation of exactly T tokens with its probability under the policy and its distance to the target."""

    token_ids: tuple[int, ...]
    log_p: float
    distance: int


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


class Interval(NamedTuple):
    """A confidence interval. NaN ends mean undefined; `reason` then says why."""

    low: float
    high: float
    level: float = 0.95
    reason: str | None = None

    @property
    def is_defined(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A sampled number, never a certified one: value, standard error (an upper estimate, taken from the interval),
    interval, and the one-sided limit that it stays below with the interval's confidence; what it cost. Value and
    standard error are NaN where the search did not list enough of the mass for an estimate of all of it.

    `hits` of the `samples` ended in the ball. They were drawn from `sampled_mass`; what is known without them is at
    most `base_mass`, so a mass of p or more asks for a mean chance to hit of (p − base_mass) / sampled_mass or more.
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
