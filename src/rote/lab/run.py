"""`rote lab counterfactual`: train the grid in parallel, score every model, correlate, draw.

Every model is trained and scored by one worker and leaves one JSON file; what is there is not done again, so an
interrupted study goes on where it stopped, whoever interrupted it.
"""

import json
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rote.errors import ConfigError, StorageError
from rote.lab.cache import content_key
from rote.lab.counterfactual import (
    CounterfactualPlan,
    ModelSpec,
    cells_of,
    counterfactual_model,
    model_key,
    models_of,
    write_material,
)
from rote.lab.scores import Correlation, CounterfactualCell, correlate, correlation
from rote.lab.section import counterfactual_figure
from rote.models.hf import load
from rote.models.shared_prefix import SharedPrefixScorer
from rote.report.figures.style import save_bytes
from rote.stats.prior_mean import PriorSums
from rote.store.atomic import atomic_file, write_json
from rote.store.manifest import versions

SCORES = "scores"


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
) -> CounterfactualResult:
    """Train, score, correlate; afterwards `out` holds results.json, counterfactual.svg and counterfactual.png."""
    if processes is not None and processes < 1:
        raise ConfigError(f"processes is {processes}; it must be at least 1.")
    scores = measure_models(plan, out, cache_dir=cache_dir, processes=processes, advance=advance)
    result = analyse(plan, scores)
    write_json(out / "results.json", record(plan, result))
    figure = counterfactual_figure(result.cells, result.agreement)
    for kind in ("svg", "png"):
        with atomic_file(out / f"counterfactual.{kind}") as file:
            file.write(save_bytes(figure, kind))
    return result


def measure_models(
    plan: CounterfactualPlan,
    out: Path,
    *,
    cache_dir: Path | None,
    processes: int | None,
    advance: Callable[[int, int], None],
) -> dict[ModelSpec, dict[str, list[float]]]:
    """The scores of every model, those already on the disk read back."""
    specs = models_of(plan)
    try:
        (out / SCORES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Cannot use {out}: {error.strerror}; choose another folder with --out.") from error
    missing = [spec for spec in specs if read_scores(score_file(plan, spec, out)) is None]
    done = len(specs) - len(missing)
    advance(done, len(specs))
    for _ in _measure_all(plan, missing, out, cache_dir, min(processes or os.cpu_count() or 1, max(1, len(missing)))):
        done += 1
        advance(done, len(specs))
    found = {spec: read_scores(score_file(plan, spec, out)) for spec in specs}
    return {spec: scores for spec, scores in found.items() if scores is not None}


def _measure_all(
    plan: CounterfactualPlan, specs: Sequence[ModelSpec], out: Path, cache_dir: Path | None, processes: int
) -> Iterator[None]:
    if processes == 1:
        for spec in specs:
            measure_model(plan, spec, out, cache_dir)
            yield
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_thread) as pool:
        futures = [pool.submit(measure_model, plan, spec, out, cache_dir) for spec in specs]
        try:
            for future in as_completed(futures):
                future.result()
                yield
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def measure_model(plan: CounterfactualPlan, spec: ModelSpec, out: Path, cache_dir: Path | None) -> None:
    """Train one model (or take it from the cache) and write its scores: P(s|p) and v̂_s of every target."""
    folder = counterfactual_model(plan, spec, cache_dir=cache_dir)
    model = load(str(folder.path), device="cpu", dtype="float32")
    material, half = write_material(plan), plan.half_tokens
    scorer = SharedPrefixScorer(model, [target[half:] for target in material.targets])
    own = scorer.score([target[:half] for target in material.targets]).diagonal()
    after_others = scorer.score([passage[:half] for passage in material.reference]).numpy()
    sums = PriorSums.of(after_others, np.ones((len(after_others), 1), dtype=np.int64))
    estimates = sums.estimates()
    write_json(
        score_file(plan, spec, out),
        {
            "model": folder.path.name,
            "log_p": own.tolist(),
            "log_prior": [estimate.log_mean for estimate in estimates],
            "prior_relative_error": [estimate.relative_error for estimate in estimates],
        },
    )


def score_file(plan: CounterfactualPlan, spec: ModelSpec, out: Path) -> Path:
    """Named after everything that decides the numbers, so that studies can share a folder and never mix."""
    key = content_key([model_key(plan, spec), plan.reference_passages])
    return out / SCORES / f"{spec.name}-{key}.json"


def read_scores(file: Path) -> dict[str, list[float]] | None:
    try:
        scores: dict[str, list[float]] = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return scores


def analyse(plan: CounterfactualPlan, scores: dict[ModelSpec, dict[str, list[float]]]) -> CounterfactualResult:
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
    targets = [cell.target for cell in cells]
    generator = np.random.default_rng([plan.seed, 11])
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


def record(plan: CounterfactualPlan, result: CounterfactualResult) -> dict[str, Any]:
    return {
        "plan": asdict(plan),
        "agreement": asdict(result.agreement),
        "prior_against_baseline": asdict(result.prior_against_baseline),
        "level_correlation": result.level_correlation,
        "levels": level_means(result.cells),
        "cells": [
            {
                **asdict(cell),
                "counterfactual": cell.counterfactual,
                "log_ratio": cell.log_ratio,
            }
            for cell in result.cells
        ],
        "versions": versions(),
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
