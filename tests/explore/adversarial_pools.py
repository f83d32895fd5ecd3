"""Open nodes whose estimates are hard to judge by their own spread, with the mass known exactly."""

import math
from typing import NamedTuple

import numpy as np
import torch

from byrote.explore.ball import Ball
from byrote.explore.base import ExploreTask
from byrote.explore.explorer import Explorer
from byrote.explore.open_mass import OpenMass
from byrote.explore.residual import ResidualOptions, estimate_open
from byrote.policy import Policy
from byrote.search.base import Limits
from byrote.verdict import Estimate
from tests.search.reference import FrontierNode, frontier_of
from tests.table import TableModel

SAMPLES = 16
CHILDREN = 64
HARDLY = 1e-12
"""Chance of a child to end in the ball where it should not: a spread of exactly 0 is too easy to notice."""
MASS = 0.5


class Population(NamedTuple):
    """A node of mass 0.5 with 64 equally likely children, of which those of `hits` end in the ball."""

    name: str
    hits: tuple[int, ...]
    accepted: float = 0.05
    unlisted: float = 0.0
    unlisted_in_ball: float = 0.0
    """Share of the unlisted mass that is in the ball."""

    @property
    def truth(self) -> float:
        chances = [1 - HARDLY if child in self.hits else HARDLY for child in range(CHILDREN)]
        return self.accepted + MASS * float(np.mean(chances)) + self.unlisted * self.unlisted_in_ball

    def estimate(self, options: ResidualOptions, seed: int) -> Estimate:
        # The target is 0 0 0 and two substitutions are allowed: 1 (the open node), then any child, then 0 or not.
        ball = Ball((0, 0, 0), distance="hamming", budget=2)
        pool = OpenMass(
            ball,
            frontier_of([FrontierNode((1,), math.log(MASS))]),
            accepted=(self.accepted,) * 3,
            unlisted=(0.0, 0.0, self.unlisted) if self.unlisted else (),
        )
        exploration = estimate_open(pool, np.random.default_rng(seed), options, log_scores=None)
        explorer = Explorer(self._model(), Policy(1.0, CHILDREN + 1), slots=1, limits=Limits(1, 3))
        ((_, estimate),) = explorer.run([ExploreTask(0, (1,), exploration)])
        return estimate

    def _model(self) -> TableModel:
        even = [-math.inf] + [0.0] * CHILDREN
        histories = {(1, 1): even}
        for child in range(CHILDREN):
            chance = 1 - HARDLY if child in self.hits else HARDLY
            histories[(1, 1, child + 1)] = [
                math.log(chance), math.log1p(-chance) if chance < 1 else -math.inf, *[-math.inf] * (CHILDREN - 1)
            ]  # fmt: skip
        return TableModel(torch.zeros(1, CHILDREN + 1), explicit=histories)


POPULATIONS = (
    # Four children to a stratum of 16. Two neighbouring strata are even odds, and agree half of the time.
    Population("two strata that cancel", (0, 1, 4, 5)),
    Population("every stratum even", tuple(child for child in range(CHILDREN) if child % 4 < 2)),
    Population("all mass in one light node", (0,), accepted=0.0),
    Population("all but one light node", tuple(range(1, CHILDREN))),
    Population("nothing in the ball", ()),
    Population("unlisted mass, all of it in the ball", (0, 1, 4, 5), unlisted=0.1, unlisted_in_ball=1.0),
    Population("unlisted mass, none of it in the ball", (0, 1, 4, 5), unlisted=0.1),
)


def holds(population: Population, estimate: Estimate) -> tuple[bool, bool, bool | None]:
    """Whether the interval, the limit, and value ± 1.96 standard errors cover the truth; None without a value."""
    truth, rounding = population.truth, 1e-9
    low, high = estimate.interval[:2]
    is_near = None
    if not math.isnan(estimate.value):
        is_near = abs(estimate.value - truth) <= 1.96 * estimate.standard_error + rounding
    return low - rounding <= truth <= high + rounding, truth <= estimate.upper_limit + rounding, is_near
