"""`byrote lab counterfactual`: train the grid in parallel, score every model, correlate.

Every model is trained and scored by one worker; its scores are a block of the run folder, so an interrupted study is
resumed without training a model again. A finished one has a row for every target at every level.
"""

import itertools
import math
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from byrote.errors import RunError
from byrote.lab.counterfactual import CounterfactualPlan, ModelSpec, counterfactual_model, models_of, write_material
from byrote.lab.scores import Correlation, CounterfactualCell, correlate, correlation
from byrote.models.hf.model import load
from byrote.models.shared_prefix import SharedPrefixScorer
from byrote.progress import Progress, SilentProgress
from byrote.stats.prior_mean import PriorSums
from byrote.store.columns import Column, Schema
from byrote.store.read import read_run
from byrote.store.session import RunSession

Scores = list[dict[str, float]]
"""log_p, log_prior and prior_relative_error of one model: an entry a target."""
SCORE_COLUMNS: Schema = tuple(Column(name, "float64") for name in ("log_p", "log_prior", "prior_relative_error"))
PER_MODEL = ("log_p_with", "log_p_without", "log_priors")
CELL_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    *(Column(name, "int32", is_required=True) for name in ("target", "copies", "near_duplicates")),
    *(Column(name, "list[float64]", is_required=True) for name in PER_MODEL),
    *(Column(name, "float64", is_required=True) for name in ("counterfactual", "log_ratio")),
)


@dataclass(frozen=True, slots=True)
class CounterfactualResult:
    """A finished study: the cells, the agreement, and the part of it that is not there by construction."""

    cells: list[CounterfactualCell]
    agreement: Correlation
    """log-ratio against counterfactual score. Both hold log P(s|p) of the models with the copies."""
    prior_against_baseline: Correlation
    """log v̂ against log P(s|p) without the copies: no term in common."""

    @classmethod
    def of(cls, cells: list[CounterfactualCell], *, seed: int) -> "CounterfactualResult":
        """The correlations; the same cells and seed give the same intervals."""
        targets = [cell.target for cell in cells]
        generator = np.random.default_rng([seed, 11])
        ratios, counterfactuals = [cell.log_ratio for cell in cells], [cell.counterfactual for cell in cells]
        agreement = correlate(counterfactuals, ratios, targets, generator=generator)
        without = [math.fsum(cell.log_p_without) / len(cell.log_p_without) for cell in cells]
        priors = [math.fsum(cell.log_priors) / len(cell.log_priors) for cell in cells]
        return cls(cells, agreement, correlate(without, priors, targets, generator=generator))

    @property
    def level_correlation(self) -> float:
        """Pearson's r over the means of the levels, as published: noise of single targets averaged out."""
        rows = level_means(self.cells)
        return correlation([row["counterfactual"] for row in rows], [row["log_ratio"] for row in rows])


def run_counterfactual(
    plan: CounterfactualPlan,
    out: Path,
    *,
    cache_dir: Path | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> CounterfactualResult:
    """Train, score, correlate; afterwards `out` is a finished run folder. What is finished is not done again."""
    with RunSession.open(
        out, kind="counterfactual", identity={"plan": asdict(plan)}, schema=CELL_COLUMNS, fresh=fresh
    ) as session:
        if session.is_complete:
            return read_counterfactual(out)
        scores = measure_models(plan, session, cache_dir, processes, progress or SilentProgress())
        result = CounterfactualResult.of(_cells(plan, scores), seed=plan.seed)
        manifest = {
            "config": asdict(plan),
            "model": {"name": f"{len(scores)} models trained by the lab"},
            "device": {"name": "cpu"},
            "seed": plan.seed,
            "command_line": command_line,
            "totals": {
                "agreement": asdict(result.agreement),
                "prior_against_baseline": asdict(result.prior_against_baseline),
                "level_correlation": result.level_correlation,
                "levels": level_means(result.cells),
            },
        }
        session.complete_with([_row(cell) for cell in result.cells], manifest)
        return result


def read_counterfactual(path: Path) -> CounterfactualResult:
    """A finished study; a RunError when it is something else, unfinished, or not as it was written."""
    run = read_run(path)
    if run.kind != "counterfactual" or run.manifest is None:
        raise RunError(f"{path} holds no finished counterfactual study; run its command again.")
    cells = [
        CounterfactualCell(
            row["target"], row["copies"], row["near_duplicates"], *(tuple(row[name]) for name in PER_MODEL)
        )
        for row in run.results.to_dicts()
    ]
    return CounterfactualResult.of(cells, seed=run.manifest["seed"])


def _row(cell: CounterfactualCell) -> dict[str, Any]:
    return {
        "window_id": f"target-{cell.target:04d}-copies-{cell.copies:04d}-{cell.near_duplicates:04d}",
        **asdict(cell),
        "counterfactual": cell.counterfactual,
        "log_ratio": cell.log_ratio,
    }


def measure_models(
    plan: CounterfactualPlan, session: RunSession, cache_dir: Path | None, processes: int | None, progress: Progress
) -> dict[ModelSpec, Scores]:
    """The scores of every model, those already on the disk read back."""
    specs = models_of(plan)
    stored = {spec: session.read_block(spec.name) for spec in specs}
    scores: dict[ModelSpec, Scores] = {spec: rows for spec, rows in stored.items() if rows is not None}
    missing = [spec for spec in specs if spec not in scores]
    progress.start(len(specs), len(scores))
    at_once = min(processes or os.cpu_count() or 1, max(1, len(missing)))
    for spec, rows in _measure_all(plan, missing, cache_dir, at_once):
        session.write_block(spec.name, rows, SCORE_COLUMNS)
        scores[spec] = rows
        progress.advance(1)
    return {spec: scores[spec] for spec in specs}


def _measure_all(
    plan: CounterfactualPlan, specs: Sequence[ModelSpec], cache_dir: Path | None, processes: int
) -> Iterator[tuple[ModelSpec, Scores]]:
    if processes == 1:
        for spec in specs:
            yield spec, measure_model(plan, spec, cache_dir)
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        futures = {pool.submit(measure_model, plan, spec, cache_dir): spec for spec in specs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise RunError(
                "a process that trained models was killed from outside, perhaps for want of memory; run the same "
                "command again, with fewer --processes: finished models are kept."
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def measure_model(plan: CounterfactualPlan, spec: ModelSpec, cache_dir: Path | None) -> Scores:
    """Train one model (or take it from the cache): P(s|p) and v̂_s of every target."""
    folder = counterfactual_model(plan, spec, cache_dir=cache_dir)
    model = load(str(folder.path), device="cpu", dtype="float32")
    material, half = write_material(plan), plan.half_tokens
    scorer = SharedPrefixScorer(model, [target[half:] for target in material.targets])
    own = scorer.score([target[:half] for target in material.targets]).diagonal()
    after_others = scorer.score([passage[:half] for passage in material.reference]).numpy()
    estimates = PriorSums.of(after_others, np.ones((len(after_others), 1), dtype=np.int64)).estimates()
    return [
        {"log_p": log_p, "log_prior": estimate.log_mean, "prior_relative_error": estimate.relative_error}
        for log_p, estimate in zip(own.tolist(), estimates, strict=True)
    ]


def _cells(plan: CounterfactualPlan, scores: Mapping[ModelSpec, Scores]) -> list[CounterfactualCell]:
    cells = []
    for target, level in itertools.product(range(plan.targets), range(len(plan.levels))):
        here = [spec for spec in scores if spec.level(target, len(plan.levels)) == level]
        with_copies = [scores[spec][target] for spec in here if spec.has_copies(target)]
        without = [scores[spec][target] for spec in here if not spec.has_copies(target)]
        cells.append(
            CounterfactualCell(
                target,
                *plan.levels[level],
                log_p_with=tuple(each["log_p"] for each in with_copies),
                log_p_without=tuple(each["log_p"] for each in without),
                log_priors=tuple(each["log_prior"] for each in with_copies),
            )
        )
    return cells


def level_means(cells: Sequence[CounterfactualCell]) -> list[dict[str, float]]:
    """Means over targets at every level, as the published figure shows them."""
    levels: dict[tuple[int, int], list[CounterfactualCell]] = {}
    for cell in cells:
        levels.setdefault((cell.copies, cell.near_duplicates), []).append(cell)
    return [
        {
            "copies": copies,
            "near_duplicates": near_duplicates,
            "counterfactual": float(np.mean([cell.counterfactual for cell in here])),
            "log_ratio": float(np.mean([cell.log_ratio for cell in here])),
            "log_p_with": float(np.mean([cell.log_p_with for cell in here])),
            "log_p_without": float(np.mean([cell.log_p_without for cell in here])),
            "log_prior": float(np.mean([cell.log_priors for cell in here])),
        }
        for (copies, near_duplicates), here in levels.items()
    ]
