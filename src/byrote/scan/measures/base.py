"""The contracts of a scan: a window on its way through the pipeline, and a measure of it.

Nothing here imports torch or pyarrow: options and columns are read without waiting for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from byrote.store.columns import Schema

if TYPE_CHECKING:
    from byrote.models.base import TreeModel
    from byrote.models.scoring import VerbatimScore
    from byrote.scan.options import RunConfig
    from byrote.scan.stages.decode import Draws, GreedyResult, SampledAnswers
    from byrote.scan.stages.passage import PassageResult
    from byrote.scan.stages.search import NearResult
    from byrote.scan.stages.verify import VerifiedMass
    from byrote.search.tree import Chain
    from byrote.types import Window
    from byrote.verdict import Estimate, SampledVerdict


Decode = Callable[[tuple[int, ...]], str]


@dataclass(slots=True)
class Measured:
    """What is known of a window so far: every stage adds its result, and the row is made of all of them. None: not
    asked for, or not there yet."""

    score: "VerbatimScore"
    chain: "Chain | None"
    """Its states on the device, as long as its chunk is the newest."""
    drawn: "Draws | None" = None
    greedy: "GreedyResult | None" = None
    answers: "SampledAnswers | None" = None
    screen_score: float | None = None
    density: float | None = None
    """How densely windows like this one are drawn into the audit of the screen; None for one that passed it."""
    near: "NearResult | None" = None
    estimate: "Estimate | None" = None
    sampled_verdict: "SampledVerdict | None" = None
    verified: "VerifiedMass | None" = None
    posthoc: dict[str, Any] | None = None
    """Those of its columns that have a value."""
    passage: "PassageResult | None" = None
    further: dict[str, Any] = field(default_factory=dict)
    """Results of further measures, by the measure's name."""

    @property
    def window(self) -> "Window":
        return self.score.window

    @property
    def token_evals(self) -> int:
        """Query positions evaluated for this window, all stages together."""
        stages = (self.greedy, self.answers, self.near, self.verified, self.passage)
        return self.score.token_evals + sum(stage.token_evals for stage in stages if stage is not None)


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured of a window: its columns, and `fill`, which gives each of them a value.

    A further measure (`--measures NAME`) is one file like `membership.py`: its options, a dataclass that `RunConfig`
    is made of, its columns, `fill`, and `begin`, which is called once a scan and returns what is done with every chunk
    of windows that are scored and have their answers. `register` in `row.py` adds it.
    """

    name: str
    columns: Schema
    fill: Callable[[Measured], dict[str, Any]]
    is_asked_for: Callable[["RunConfig"], bool]
    begin: "Callable[[RunConfig, TreeModel, Decode], Callable[[Sequence[Measured]], None]] | None" = None
