"""Token evaluations for one accuracy: the residual estimator against plain Monte Carlo without a viability stop.

    python bench/residual_efficiency.py --library FOLDER [--model library_5m] [--budget 4000] [--repeats 6]

Each window is searched with the defaults and its open mass is estimated several times with different seeds; the spread
of the estimates is the root-mean-square error of one (they are unbiased). Plain Monte Carlo has error √(p(1 − p)/M) at
a cost of a + (T − 1)·M, so the M it needs for that error is known; p is the mean of the repeated estimates. The cost of
an estimate counts the search and everything evaluated after it; every repeat runs alone, from the search's states.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from byrote.explore.ball import Ball
from byrote.explore.base import ExploreTask
from byrote.explore.explorer import Explorer
from byrote.explore.open_mass import OpenMass
from byrote.explore.residual import ResidualOptions, estimate_open
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.scoring import VerbatimScore, score_verbatim
from byrote.scan.options import RunConfig
from byrote.scan.source import cut_source, read_given
from byrote.search.base import SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from byrote.search.screen_score import log_score_table
from byrote.verdict import Estimate
from environment import save

TEXTS = ("alice", "alice_other_edition", "peter_pan", "peter_pan_other_edition", "jekyll_hyde")
LEAST, MOST = 1e-5, 0.5


class Searched(NamedTuple):
    score: VerbatimScore
    outcome: SearchOutcome

    def pool(self, eos_ids: frozenset[int], edit_budget: int) -> OpenMass:
        assert self.outcome.frontier is not None
        window = self.score.window
        ball = Ball(window.suffix_ids, distance="levenshtein", budget=edit_budget, eos_ids=eos_ids)
        return OpenMass(ball, self.outcome.frontier, accepted=self.outcome.bounds.lower)


def library_windows(library: Path, name: str, stride: int) -> tuple[HuggingFaceModel, RunConfig, list[VerbatimScore]]:
    texts = tuple(str(library / "texts" / "target" / f"{text}.txt") for text in TEXTS)
    config = RunConfig(model=str(library / name), text=texts, stride_chars=stride, residual=1)
    model = load(config.model, dtype="float32", device="cpu")
    chosen = cut_source(read_given(config), model, config).chosen
    return model, config, list(score_verbatim(model, chosen.windows, [config.policy], batch_windows=16))


def search_all(
    model: HuggingFaceModel, config: RunConfig, options: SearchOptions, scores: list[VerbatimScore], *, slots: int
) -> list[SearchOutcome]:
    engine = Engine(model, options, slots=slots, limits=config.limits)
    tasks = (SearchTask(key, score.window.prefix_ids, score.window.suffix_ids) for key, score in enumerate(scores))
    return sorted(engine.run(tasks), key=lambda outcome: outcome.key)


def estimate(searched: Searched, model: HuggingFaceModel, config: RunConfig, budget: int, seed: int) -> Any:
    pool = searched.pool(model.eos_ids, config.edits)
    log_scores = log_score_table(searched.score.target_probs, config.edits)
    options = ResidualOptions(token_evals=budget, relative_error=None)
    return estimate_open(pool, np.random.default_rng(seed), options, log_scores=log_scores)


def row_of(searched: Searched, config: RunConfig, estimates: list[Estimate]) -> dict[str, Any]:
    values = np.array([estimate.value for estimate in estimates])
    mass, error = float(values.mean()), float(values.std(ddof=1))
    cost = searched.outcome.token_evals + float(np.mean([estimate.token_evals for estimate in estimates]))
    samples = mass * (1 - mass) / error**2 if error > 0 else math.inf
    plain = config.prefix_tokens + (config.suffix_tokens - 1) * samples
    window = searched.score.window
    return {
        "document": window.document,
        "char_start": window.char_start,
        "mass": mass,
        "lower": searched.outcome.bounds.lower[-1],
        "upper": searched.outcome.bounds.upper[-1],
        "rmse": error,
        "mean_standard_error": float(np.mean([estimate.standard_error for estimate in estimates])),
        "covering": float(np.mean([e.interval.low <= mass <= e.interval.high for e in estimates])),
        "tickets": float(np.mean([estimate.samples for estimate in estimates])),
        "search_evals": searched.outcome.token_evals,
        "evals": cost,
        "monte_carlo_evals": plain,
        "ratio": plain / cost,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--model", default="library_5m")
    parser.add_argument("--stride", type=int, default=4800)
    parser.add_argument("--budget", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--every", type=int, default=1, help="use every n-th window")
    parser.add_argument("--first", type=int, default=0, help="start at this window")
    parser.add_argument("--out", type=Path, help="folder for the result (default bench/results)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    repeats: int = arguments.repeats
    model, config, scores = library_windows(arguments.library, arguments.model, arguments.stride)
    scores = scores[arguments.first :: arguments.every]
    outcomes = search_all(model, config, config.search_options(), scores, slots=16)
    chosen = [
        Searched(score, outcome)
        for score, outcome in zip(scores, outcomes, strict=True)
        if outcome.bounds.lower[-1] < MOST and outcome.bounds.upper[-1] > LEAST
    ]

    def tasks() -> Iterator[ExploreTask[Estimate]]:
        for key, searched in enumerate(chosen):
            for seed in range(repeats):
                job = estimate(searched, model, config, arguments.budget, seed)
                yield ExploreTask(key * repeats + seed, searched.score.window.prefix_ids, job, searched.outcome.states)

    rows = []
    found: dict[int, list[Estimate]] = {}
    entries = 2 * max(arguments.budget, outcomes[0].token_evals)
    for key, result in Explorer(model, config.policy, slots=4, limits=config.limits, entries=entries).run(tasks()):
        estimates = found.setdefault(key // repeats, [])
        estimates.append(result)
        if len(estimates) < repeats:
            continue
        row = row_of(chosen[key // repeats], config, found.pop(key // repeats))
        if LEAST <= row["mass"] <= MOST:
            rows.append(row)
            print(
                {name: value if isinstance(value, str) else float(f"{value:.4g}") for name, value in row.items()},
                flush=True,
            )
            ratios = [row["ratio"] for row in rows]
            results = {
                "model": arguments.model,
                "budget": arguments.budget,
                "repeats": arguments.repeats,
                "windows": len(rows),
                "median_ratio": float(np.median(ratios)),
                "least_ratio": min(ratios),
                "share_at_least_10": float(np.mean([ratio >= 10 for ratio in ratios])),
                "rows": rows,
            }
            # Saved window by window: a measurement that is cut short keeps what it has.
            save(f"residual_efficiency_{arguments.model}", results, arguments.out)
    print({name: value for name, value in results.items() if name != "rows"})


if __name__ == "__main__":
    main()
