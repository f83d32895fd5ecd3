"""A window on its way through the pipeline: every stage adds what it learned, and the row is made of it at the end."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from byrote.models.teacher_forcing import VerbatimScore
from byrote.search.tree import Chain
from byrote.types import Estimate, SampledVerdict, Window

if TYPE_CHECKING:
    from byrote.scan.decode import GreedyResult
    from byrote.scan.membership import MembershipScores
    from byrote.scan.posthoc import Posthoc
    from byrote.scan.search import NearResult
    from byrote.scan.self_check import Verified


@dataclass(slots=True)
class Measured:
    """What is known of a window so far. None: not asked for, or not there yet."""

    score: VerbatimScore
    chain: Chain | None
    """Its states on the device, as long as its chunk is the newest."""
    greedy: "GreedyResult | None" = None
    rating: float | None = None
    density: float | None = None
    """How densely windows like this one are drawn into the audit of the screen; None for one that passed it."""
    near: "NearResult | None" = None
    estimate: Estimate | None = None
    sampled_verdict: SampledVerdict | None = None
    verified: "Verified | None" = None
    posthoc: "Posthoc | None" = None
    membership: "MembershipScores | None" = None

    @property
    def window(self) -> Window:
        return self.score.window

    @property
    def token_evals(self) -> int:
        """Query positions evaluated for this window, all stages together."""
        stages = (self.greedy, self.near, self.verified)
        return self.score.token_evals + sum(stage.token_evals for stage in stages if stage is not None)
