"""A measure of one file: options, columns, what is done with a chunk of scored windows, and how a row is filled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from byrote.options import option
from byrote.scan.measures.base import Measure, Measured
from byrote.scan.options import RunConfig
from byrote.store.columns import Column


@dataclass(frozen=True, kw_only=True)
class SurpriseOptions:
    surprise_floor: float = option(
        0.0, "Report no surprise below this.", group="estimates", at_least=0, measure="surprise"
    )


@dataclass(frozen=True, kw_only=True)
class SurpriseConfig(RunConfig, SurpriseOptions):
    """The options of a scan, and those of the measure."""


def begin(config: Any, model: Any, decode: Callable[[tuple[int, ...]], str]) -> Callable[[Sequence[Measured]], None]:
    def score(scored: Sequence[Measured]) -> None:
        for item in scored:
            item.further["surprise"] = max(config.surprise_floor, -item.score.model_log_p)

    return score


SURPRISE = Measure(
    "surprise",
    (Column("surprise", "float64"), Column("hardest_rank", "int32")),
    lambda item: {"surprise": item.further["surprise"], "hardest_rank": max(item.score.suffix_ranks)},
    lambda config: "surprise" in config.measures,
    begin,
)
