"""Frozen values shared by all rooms. No behaviour beyond derived properties; imports nothing of byrote but errors.

Probabilities are plain floats in [0, 1]; log-probabilities are natural logarithms, `-inf` for impossible.
None means absent. Undefined statistics are NaN and carry a reason.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

# Choices of options; there is no second list of them.
DistanceName = Literal["levenshtein", "hamming", "none"]
ViabilityName = Literal["exact", "published"]
UnitName = Literal["tokens", "text"]
RankName = Literal["mass", "screen_score"]
StopRuleName = Literal["mass", "published"]
BosRule = Literal["auto", "always", "never"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
IntervalName = Literal["wilson", "exact"]
ExportFormat = Literal["csv", "jsonl", "lm-eval", "hub"]
LoggerName = Literal["wandb", "mlflow", "trackio"]
ExportTable = Literal["results", "continuations"]


class Split(StrEnum):
    """Which side of the comparison a document is on."""

    TARGET = "target"
    CONTROL = "control"


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


class PassageBlock(NamedTuple):
    """A stretch of a target: its tokens, and its characters where answers are compared as text."""

    token_ids: tuple[int, ...]
    text: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Window:
    """`prefix_ids` followed by `suffix_ids`, cut from one document.

    The model is given the prefix, inside a prompt where there is one; the suffix is what it would have to reproduce.
    Character positions are offsets into the document's text: the window was cut at `char_start`, where its prefix
    starts (or earlier, if a longer prefix was reserved); the suffix starts at `suffix_char_start` and ends before
    `char_end`. Token ids are kept because re-tokenising decoded text is not stable.
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
    """Further columns of its row. No measure reads them."""
    given_ids: tuple[int, ...] | None = None
    """What the model is given where a prompt stands around the prefix; None: the prefix alone."""
    blocks: tuple[PassageBlock, ...] = ()
    """What follows the suffix, of a window that was cut for a long passage."""
    suffix_text: str | None = None
    """The characters of the suffix, of a window whose answers are compared as text."""

    @property
    def context_ids(self) -> tuple[int, ...]:
        """What the model is given before the suffix."""
        return self.prefix_ids if self.given_ids is None else self.given_ids

    def __repr__(self) -> str:
        lengths = f"{len(self.prefix_ids)} + {len(self.suffix_ids)} tokens"
        return f"<byrote.Window {self.window_id!r}: {self.split}, {lengths}>"

    @property
    def ids(self) -> tuple[int, ...]:
        return self.context_ids + self.suffix_ids


@dataclass(frozen=True, slots=True)
class Continuation:
    """An accepted continuation, of exactly T tokens where tokens are compared: its probability under the policy and its
    distance to the target."""

    token_ids: tuple[int, ...]
    log_p: float
    distance: int


class Interval(NamedTuple):
    """A confidence interval. NaN ends mean undefined, for `reason`."""

    low: float
    high: float
    level: float = 0.95
    reason: str | None = None

    @property
    def is_defined(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))
