"""Random windows of table models whose near-verbatim mass is known by enumeration, for judging estimators."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from byrote.explore.ball import Ball
from byrote.explore.base import Exploration, ExploreTask
from byrote.explore.explorer import Explorer
from byrote.explore.open_mass import OpenMass
from byrote.policy import Policy
from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from byrote.search.frontier import Frontier
from byrote.types import Split, Window
from byrote.verdict import Bounds
from tests.oracle import Enumeration, enumerate_tree
from tests.search import reference
from tests.search.test_engine_equals_reference import PLAIN
from tests.table import TableModel

LIMITS = Limits(2, 5)


def window_of(suffix: tuple[int, ...], *, name: str = "window", prefix: tuple[int, ...] = (1, 2)) -> Window:
    return Window(name, "text", Split.TARGET, 0, 0, 0, prefix, suffix)


@dataclass(frozen=True)
class Case:
    """A searched window and every path of its tree."""

    model: TableModel
    window: Window
    options: SearchOptions
    outcome: SearchOutcome
    tree: Enumeration

    @property
    def truths(self) -> list[float]:
        """The mass within e edits for e = 0 … budget."""
        return [
            self.tree.mass_within(self.window.suffix_ids, edits, self.options.distance)
            for edits in range(self.options.edit_budget + 1)
        ]

    @property
    def truth(self) -> float:
        return self.truths[-1]

    @property
    def frontier(self) -> Frontier:
        assert self.outcome.frontier is not None
        return self.outcome.frontier

    @property
    def target_probs(self) -> list[float]:
        scores = self.model.score([self.window.ids], len(self.window.suffix_ids), [self.options.policy])
        probs: list[float] = scores.log_probs[0, 0].exp().tolist()
        return probs

    def pool(self) -> OpenMass:
        ball = Ball(
            self.window.suffix_ids,
            distance=self.options.distance,
            budget=self.options.edit_budget,
            eos_ids=self.model.eos_ids,
        )
        return OpenMass(ball, self.frontier, accepted=self.outcome.bounds.lower)

    def explore(self, exploration: Exploration[Any]) -> Any:
        explorer = Explorer(self.model, self.options.policy, slots=1, limits=LIMITS)
        ((_, result),) = explorer.run([ExploreTask(0, self.window.prefix_ids, exploration)])
        return result


def watched(exploration: Exploration[Any], pool: OpenMass, steps: list[Bounds]) -> Exploration[Any]:
    """The same exploration; the pool's bounds after every answer are appended to `steps`."""
    answer: Any = None
    while True:
        try:
            request = exploration.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            steps.append(pool.bounds())
        answer = yield request


@lru_cache(maxsize=600)
def random_case(seed: int, **changes: Any) -> Case:
    """Three or four tokens, four steps, sharp and flat models, narrow beams, some with an EOS token."""
    generator = np.random.default_rng([20, seed])
    vocabulary = int(generator.integers(3, 5))
    model = TableModel.random(
        seed,
        vocab_size=vocabulary,
        spread=float(generator.uniform(0.5, 4.0)),
        eos_ids=frozenset({0}) if seed % 3 == 0 else frozenset(),
    )
    suffix = tuple(generator.integers(0, vocabulary, 4).tolist())
    options = replace(
        PLAIN,
        policy=Policy(1.0, vocabulary),
        beam_width=int(generator.integers(1, 3)),
        edit_budget=int(generator.integers(1, 3)),
        distance="hamming" if seed % 2 else "levenshtein",
        **changes,
    )
    window = window_of(suffix, name=f"window {seed}")
    outcome = reference.search(model, SearchTask(0, window.prefix_ids, window.suffix_ids), options)
    return Case(model, window, options, outcome, enumerate_tree(model, window.prefix_ids, len(suffix), options.policy))


def open_case() -> Case:
    """A window whose search leaves much open, some of it in the ball."""
    return next(case for case in map(random_case, range(100)) if case.truth - case.outcome.bounds.lower[-1] > 0.02)
