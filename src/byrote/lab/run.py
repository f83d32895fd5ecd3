"""`byrote lab counterfactual`: train the grid in parallel, score every model, correlate.

Every model is trained and scored by one worker; its scores are a block of the run folder, so an interrupted study is
resumed without training a model again. A finished one has a row for every target at every level.
"""

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byrote.errors import ConfigError, RunError
from byrote.lab.counterfactual import (
    CounterfactualPlan,
    ModelSpec,
    cells_of,
    counterfactual_model,
    models_of,
    write_material,
)
from byrote.lab.scores import Correlation, CounterfactualCell, correlate, correlation
from byrote.models.hf.model import load
from byrote.models.shared_prefix import SharedPrefixScorer
from byrote.stats.prior_mean import PriorSums
from byrote.store.columns import Column, Schema
from byrote.store.read import read_run
from byrote.store.session import RunSession

Scores = dict[str, list[float]]
"""log_p, log_prior and prior_relative_error of one model, by target."""
SCORE_NAMES = ("log_p", "log_prior", "prior_relative_error")
SCORE_COLUMNS: Schema = tuple(Column(name, "float64") for name in SCORE_NAMES)
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
    advance: Callable[[int, int], None] = lambda done, total: None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> CounterfactualResult:
    """Train, score, correlate; afterwards `out` is a finished run folder. What is finished is not done again."""
    if processes is not None and processes < 1:
        raise ConfigError(f"processes is {processes}; it must be at least 1.")
    with RunSession.open(
        out, kind="counterfactual", identity={"plan": asdict(plan)}, schema=CELL_COLUMNS, fresh=fresh
    ) as session:
        if session.is_complete:
            return read_counterfactual(out)
        scores = measure_models(plan, session, cache_dir=cache_dir, processes=processes, advance=advance)
        result = analyse(plan, scores)
        session.complete_with([_row(cell) for cell in result.cells], _manifest(plan, result, command_line))
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
    return _agreements(cells, seed=run.manifest["seed"])


def _row(cell: CounterfactualCell) -> dict[str, Any]:
    lists = {name: list(getattr(cell, name)) for name in PER_MODEL}
    return {
        "window_id": f"target-{cell.target:04d}-copies-{cell.copies:04d}-{cell.near_duplicates:04d}",
        "target": cell.target,
        "copies": cell.copies,
        "near_duplicates": cell.near_duplicates,
        **lists,
        "counterfactual": cell.counterfactual,
        "log_ratio": cell.log_ratio,
    }


def measure_models(
    plan: CounterfactualPlan,
    session: RunSession,
    *,
    cache_dir: Path | None,
    processes: int | None,
    advance: Callable[[int, int], None],
) -> dict[ModelSpec, Scores]:
    """The scores of every model, those already on the disk read back."""
    specs = models_of(plan)
    stored = {spec: session.read_block(spec.name) for spec in specs}
    scores: dict[ModelSpec, Scores] = {
        spec: {name: [row[name] for row in rows] for name in SCORE_NAMES}
        for spec, rows in stored.items()
        if rows is not None
    }
    missing = [spec for spec in specs if spec not in scores]
    advance(len(scores), len(specs))
    at_once = min(processes or os.cpu_count() or 1, max(1, len(missing)))
    for spec, found in _measure_all(plan, missing, cache_dir, at_once):
        rows = [dict(zip(SCORE_NAMES, values, strict=True)) for values in zip(*found.values(), strict=True)]
        session.write_block(spec.name, rows, SCORE_COLUMNS)
        scores[spec] = found
        advance(len(scores), len(specs))
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
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_thread) as pool:
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


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def measure_model(plan: CounterfactualPlan, spec: ModelSpec, cache_dir: Path | None) -> Scores:
    """Train one model (or take it from the cache): P(s|p) and v̂_s of every target."""
    folder = counterfactual_model(plan, spec, cache_dir=cache_dir)
    model = load(str(folder.path), device="cpu", dtype="float32")
    material, half = write_material(plan), plan.half_tokens
    scorer = SharedPrefixScorer(model, [target[half:] for target in material.targets])
    own = scorer.score([target[:half] for target in material.targets]).diagonal()
    after_others = scorer.score([passage[:half] for passage in material.reference]).numpy()
    estimates = PriorSums.of(after_others, np.ones((len(after_others), 1), dtype=np.int64)).estimates()
    return {
        "log_p": own.tolist(),
        "log_prior": [estimate.log_mean for estimate in estimates],
        "prior_relative_error": [estimate.relative_error for estimate in estimates],
    }


def analyse(plan: CounterfactualPlan, scores: Mapping[ModelSpec, Scores]) -> CounterfactualResult:
    """Cells and correlations from the scores of all models."""
    cells = []
    for target, level in cells_of(plan):
        here = [spec for spec in scores if spec.level(target, len(plan.levels)) == level]
        with_copies = [scores[spec] for spec in here if spec.has_copies(target)]
        without = [scores[spec] for spec in here if not spec.has_copies(target)]
        cells.append(
            CounterfactualCell(
                target=target,
                copies=plan.levels[level][0],
                near_duplicates=plan.levels[level][1],
                log_p_with=tuple(each["log_p"][target] for each in with_copies),
                log_p_without=tuple(each["log_p"][target] for each in without),
                log_priors=tuple(each["log_prior"][target] for each in with_copies),
            )
        )
    return _agreements(cells, seed=plan.seed)


def _agreements(cells: list[CounterfactualCell], *, seed: int) -> CounterfactualResult:
    """The correlations; the same cells and seed give the same intervals."""
    targets = [cell.target for cell in cells]
    generator = np.random.default_rng([seed, 11])
    ratios = [cell.log_ratio for cell in cells]
    counterfactuals = [cell.counterfactual for cell in cells]
    return CounterfactualResult(
        cells,
        correlate(counterfactuals, ratios, targets, generator=generator),
        correlate(
            [math.fsum(cell.log_p_without) / len(cell.log_p_without) for cell in cells],
            [math.fsum(cell.log_priors) / len(cell.log_priors) for cell in cells],
            targets,
            generator=generator,
        ),
    )


def _manifest(plan: CounterfactualPlan, result: CounterfactualResult, command_line: Sequence[str]) -> dict[str, Any]:
    return {
        "config": asdict(plan),
        "model": {"name": f"{len(models_of(plan))} models trained by the lab"},
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


def level_means(cells: Sequence[CounterfactualCell]) -> list[dict[str, float]]:
    """Means over targets at every level, as the published figure shows them."""
    levels = dict.fromkeys((cell.copies, cell.near_duplicates) for cell in cells)
    rows = []
    for copies, near_duplicates in levels:
        here = [cell for cell in cells if (cell.copies, cell.near_duplicates) == (copies, near_duplicates)]
        rows.append(
            {
                "copies": copies,
                "near_duplicates": near_duplicates,
                "counterfactual": float(np.mean([cell.counterfactual for cell in here])),
                "log_ratio": float(np.mean([cell.log_ratio for cell in here])),
                "log_p_with": float(np.mean([cell.log_p_with for cell in here])),
                "log_p_without": float(np.mean([cell.log_p_without for cell in here])),
                "log_prior": float(np.mean([cell.log_priors for cell in here])),
            }
        )
    return rows
