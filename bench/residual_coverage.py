"""How often the residual's 95 % intervals and limits hold, by true mass, on random windows with known mass.

    python bench/residual_coverage.py [--cases 120] [--seeds 4] [--adversarial 2000]

Windows of table models of two to four tokens and three to five steps, from flat to nearly deterministic, searched with
a narrow beam; the true mass by enumeration. Every band of mass gets as many windows as asked for, each estimated with
several seeds and budgets. `point-like` windows are those whose open mass ends in the ball almost always or almost
never: all samples of most estimates agree there. `adversarial` populations (`tests/explore/adversarial_pools.py`) have
strata whose spread cancels, all mass in one light node, or mass that was not listed; each is estimated with many seeds.

`error_covers`: how often value ± 1.96 standard errors covers the mass, of the estimates that have a value.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import environment
from byrote.distance.tokens import levenshtein_many
from byrote.explore.ball import Ball
from byrote.explore.base import ExploreTask
from byrote.explore.explorer import Explorer
from byrote.explore.open_mass import OpenMass
from byrote.explore.residual import ResidualOptions, estimate_open
from byrote.policy import Policy, keep
from byrote.search.base import Limits, SearchOptions, SearchTask
from byrote.search.screen_score import log_score_table
from byrote.verdict import Estimate

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.explore.adversarial_pools import POPULATIONS, SAMPLES, Population, holds
from tests.search import reference
from tests.table import TableModel

EDGES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 1.0 + 1e-9)
BUDGETS = (30, 100, 500)
POINT_LIKE = 1e-3
PREFIX = (1, 0)
LIMITS = Limits(len(PREFIX), 5)
TINY = 1e-12


class Case(NamedTuple):
    model: TableModel
    policy: Policy
    pool_parts: tuple[Any, ...]
    log_scores: np.ndarray[Any, Any]
    truth: float
    band: int
    is_point_like: bool

    def pool(self) -> OpenMass:
        ball, frontier, accepted = self.pool_parts
        return OpenMass(ball, frontier, accepted=accepted)


def true_mass(model: TableModel, policy: Policy, suffix: tuple[int, ...], budget: int, distance: str) -> float:
    """Every continuation, level by level."""
    paths, log_p = torch.zeros(1, 0, dtype=torch.int64), torch.zeros(1, dtype=torch.float64)
    for step in range(len(suffix)):
        kept = keep(model.next_logits([[*PREFIX, *path] for path in paths.tolist()]), policy)
        width = kept.token_ids.shape[1]
        paths = torch.cat([paths.repeat_interleave(width, 0), kept.token_ids.reshape(-1, 1)], 1)
        log_p = (log_p[:, None] + kept.log_probs).flatten()
        ended = torch.isin(paths[:, -1], torch.tensor(sorted(model.eos_ids), dtype=torch.int64))
        alive = (log_p > -torch.inf) & ~(ended & (step + 1 < len(suffix)))
        paths, log_p = paths[alive], log_p[alive]
    target = torch.tensor(suffix)
    edits = (paths != target).sum(1) if distance == "hamming" else levenshtein_many(paths, target)
    return float(log_p[edits <= budget].exp().sum())


def random_case(seed: int) -> Case | None:
    """A searched window that leaves something open; None when its mass is outside all bands or nothing is open."""
    generator = np.random.default_rng([77, seed])
    vocabulary, length = int(generator.integers(2, 5)), int(generator.integers(3, 6))
    eos_ids = frozenset({0}) if seed % 4 == 0 else frozenset()
    model = TableModel.random(seed, vocab_size=vocabulary, spread=float(generator.uniform(0.3, 9.0)), eos_ids=eos_ids)
    policy = Policy(1.0, vocabulary)
    suffix = tuple(generator.integers(0, vocabulary, length).tolist())
    options = SearchOptions(
        policy=policy, beam_width=int(generator.integers(1, 3)), edit_budget=int(generator.integers(0, 3)),
        distance="hamming" if seed % 2 else "levenshtein", viability="exact", pin_verbatim=bool(seed % 3),
        negligible=0.0, threshold=None, stop_rule="mass", rank_by="mass", keep=None, max_children=None,
        record_frontier=True, keep_states=False,
    )  # fmt: skip
    outcome = reference.search(model, SearchTask(0, PREFIX, suffix), options)
    truth = true_mass(model, policy, suffix, options.edit_budget, options.distance)
    band = int(np.searchsorted(EDGES, truth, side="right")) - 1
    ball = Ball(suffix, distance=options.distance, budget=options.edit_budget, eos_ids=eos_ids)
    assert outcome.frontier is not None
    pool = OpenMass(ball, outcome.frontier, accepted=outcome.bounds.lower)
    if not 0 <= band < len(EDGES) - 1 or pool.open_mass < 1e-14:
        return None
    share = (truth - pool.lower) / pool.open_mass
    probs = model.score([(*PREFIX, *suffix)], length, [policy]).log_probs[0, 0].exp().tolist()
    log_scores = log_score_table(probs, options.edit_budget)
    parts = (ball, outcome.frontier, outcome.bounds.lower)
    return Case(model, policy, parts, log_scores, truth, band, min(share, 1 - share) < POINT_LIKE)


def estimates(case: Case, seeds: int) -> Iterator[Estimate]:
    """One after the other; windows of different models cannot share forwards."""
    explorer = Explorer(case.model, case.policy, slots=1, limits=LIMITS)
    for seed in range(seeds):
        options = ResidualOptions(token_evals=BUDGETS[seed % len(BUDGETS)], relative_error=None)
        log_scores = case.log_scores if seed % 2 else None
        job = estimate_open(case.pool(), np.random.default_rng([seed, 5]), options, log_scores=log_scores)
        for _, estimate in explorer.run([ExploreTask(0, PREFIX, job)]):
            yield estimate


class Tally:
    """What became of the estimates of one group of windows."""

    def __init__(self) -> None:
        self.windows, self.rows = 0, list[tuple[bool, bool, float, bool]]()

    def add(self, case: Case, found: list[Estimate]) -> None:
        self.windows += 1
        for e in found:
            covers = e.interval.low - TINY <= case.truth <= e.interval.high + TINY
            width = e.interval.high - e.interval.low
            is_near = abs(e.value - case.truth) <= 1.96 * e.standard_error + TINY
            self.rows.append((covers, case.truth <= e.upper_limit + TINY, width, is_near))

    def summary(self, name: str) -> dict[str, Any]:
        covers, limited, widths, near = map(list, zip(*self.rows, strict=True))
        return {
            "group": name,
            "windows": self.windows,
            "estimates": len(self.rows),
            "interval_covers": float(np.mean(covers)),
            "limit_holds": float(np.mean(limited)),
            "mean_width": float(np.mean(widths)),
            "error_covers": float(np.mean(near)),
        }


def adversarial(population: Population, seeds: int) -> dict[str, Any]:
    """Many estimates of one population: coverage, and standard errors beside the spread of the estimates."""
    options = ResidualOptions(token_evals=None, samples=SAMPLES, relative_error=None)
    found = [population.estimate(options, seed) for seed in range(seeds)]
    covers, limited, near = zip(*(holds(population, one) for one in found), strict=True)
    has_value = not population.unlisted
    return {
        "group": population.name,
        "estimates": seeds,
        "truth": population.truth,
        "interval_covers": float(np.mean(covers)),
        "limit_holds": float(np.mean(limited)),
        "error_covers": float(np.mean(near)) if has_value else None,
        "without_value": float(np.mean([one is None for one in near])),
        "mean_of_estimates": float(np.mean([one.value for one in found])) if has_value else None,
        "spread_of_estimates": float(np.std([one.value for one in found])) if has_value else None,
        "least_standard_error": float(np.min([one.standard_error for one in found])) if has_value else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=120, help="windows per band of mass")
    parser.add_argument("--seeds", type=int, default=4, help="estimates per window")
    parser.add_argument("--adversarial", type=int, default=2000, help="estimates per adversarial population")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bands = [Tally() for _ in EDGES[1:]]
    point_like = Tally()
    seed = 0
    while any(band.windows < arguments.cases for band in bands):
        case = random_case(seed)
        seed += 1
        if case is None or bands[case.band].windows >= arguments.cases:
            continue
        found = list(estimates(case, arguments.seeds))
        bands[case.band].add(case, found)
        if case.is_point_like:
            point_like.add(case, found)
    names = [f"{low:g} to {min(high, 1.0):g}" for low, high in itertools.pairwise(EDGES)]
    rows = [band.summary(name) for name, band in zip(names, bands, strict=True)]
    rows.append(point_like.summary("point-like, any mass"))
    hard = [adversarial(population, arguments.adversarial) for population in POPULATIONS]
    for row in (*rows, *hard):
        print(row)
    results = {"level": 0.95, "budgets": BUDGETS, "windows_tried": seed, "rows": rows, "adversarial": hard}
    print(environment.save("residual_coverage", results))


if __name__ == "__main__":
    main()
