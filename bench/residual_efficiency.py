"""Token evaluations for one accuracy: the residual estimator against plain Monte Carlo without a viability stop.

    python bench/residual_efficiency.py --library FOLDER [--model library_5m] [--budget 4000] [--repeats 6]

Each window is searched with the defaults and its open mass is estimated several times with different seeds; the spread
of the estimates is the root-mean-square error of one (they are unbiased). Plain Monte Carlo has error √(p(1 − p)/M) at
a cost of a + (T − 1)·M, so the M it needs for that error is known; p is the mean of the repeated estimates. The cost of
an estimate counts the search and every distinct node the estimate touched that the search had not evaluated, as if it
ran alone.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from environment import save
from rote.corpus.documents import read_corpus
from rote.measures.residual import ResidualOptions, estimate_open
from rote.measures.verbatim import VerbatimScore, score_verbatim
from rote.models.hf import HuggingFaceModel, load
from rote.run.config import RunConfig
from rote.run.execute import choose_windows
from rote.search.base import SearchOptions, SearchOutcome, SearchTask
from rote.search.engine import Engine
from rote.search.frontier import SearchedStates
from rote.search.promise import completion_table
from rote.search.rollout_pool import Ball, OpenMass
from rote.search.rollout_tree import Explorer
from rote.search.rollout_trie import Exploration, ExploreTask
from rote.search.rollout_trie import Path as TokenPath
from rote.types import Estimate

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
    chosen = choose_windows(model, read_corpus(config.text, ()), config)
    return model, config, list(score_verbatim(model, chosen.windows, [config.policy], batch_windows=16))


def search_all(
    model: HuggingFaceModel, config: RunConfig, options: SearchOptions, scores: list[VerbatimScore], *, slots: int
) -> list[SearchOutcome]:
    engine = Engine(model, options, slots=slots, limits=config.limits)
    tasks = (SearchTask(key, score.window.prefix_ids, score.window.suffix_ids) for key, score in enumerate(scores))
    return sorted(engine.run(tasks), key=lambda outcome: outcome.key)


def recounted(exploration: Exploration[Estimate], states: SearchedStates, costs: list[int]) -> Exploration[Estimate]:
    """The same exploration; notes what it would have cost alone: distinct nodes that the search had not evaluated."""
    seen: set[TokenPath] = set()
    known = {path for _, path in states.paths()}
    try:
        request = next(exploration)
        while True:
            seen |= {path[:depth] for path in request.paths for depth in range(1, len(path) + 1)}
            request = exploration.send((yield request))
    except StopIteration as end:
        costs.append(len(seen - known))
        estimate: Estimate = end.value
        return estimate


def repeat(searched: Searched, model: HuggingFaceModel, config: RunConfig, budget: int, repeats: int) -> Any:
    pool = searched.pool(model.eos_ids, config.edit_budget)
    chances = completion_table(searched.score.target_probs, config.edit_budget)
    options = ResidualOptions(token_evals=budget, relative_error=None)
    estimates: list[Estimate] = []
    costs: list[int] = []
    for seed in range(repeats):
        exploration = estimate_open(pool, np.random.default_rng(seed), options, chances=chances)
        assert searched.outcome.states is not None
        estimates.append((yield from recounted(exploration, searched.outcome.states, costs)))
    return estimates, costs


def row_of(searched: Searched, config: RunConfig, estimates: list[Estimate], costs: list[int]) -> dict[str, Any]:
    values = np.array([estimate.value for estimate in estimates])
    mass, error = float(values.mean()), float(values.std(ddof=1))
    cost = searched.outcome.token_evals + float(np.mean(costs))
    samples = mass * (1 - mass) / error**2 if error > 0 else math.inf
    plain = config.prefix_tokens + (config.suffix_tokens - 1) * samples
    window = searched.score.window
    return {
        "document": window.document,
        "char_start": window.char_start,
        "mass": mass,
        "lower": searched.outcome.bounds.lower[-1],
        "upper": searched.outcome.bounds.upper,
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
    model, config, scores = library_windows(arguments.library, arguments.model, arguments.stride)
    scores = scores[arguments.first :: arguments.every]
    outcomes = search_all(model, config, config.search_options(), scores, slots=16)
    chosen = [
        Searched(score, outcome)
        for score, outcome in zip(scores, outcomes, strict=True)
        if outcome.bounds.lower[-1] < MOST and outcome.bounds.upper > LEAST
    ]

    def tasks() -> Iterator[ExploreTask[Any]]:
        for key, searched in enumerate(chosen):
            job = repeat(searched, model, config, arguments.budget, arguments.repeats)
            yield ExploreTask(key, searched.score.window.prefix_ids, job, searched.outcome.states)

    rows = []
    entries = arguments.budget * (arguments.repeats + 1) + outcomes[0].token_evals
    explorer = Explorer(model, config.policy, slots=4, limits=config.limits, entries=2 * entries)
    for key, (estimates, costs) in explorer.run(tasks()):
        row = row_of(chosen[key], config, estimates, costs)
        if LEAST <= row["mass"] <= MOST:
            rows.append(row)
            print(
                {name: value if isinstance(value, str) else float(f"{value:.4g}") for name, value in row.items()},
                flush=True,
            )
            ratios = [row["ratio"] for row in rows]
            result = {
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
            save(f"residual_efficiency_{arguments.model}", result, arguments.out)
    print({name: value for name, value in result.items() if name != "rows"})


if __name__ == "__main__":
    main()
