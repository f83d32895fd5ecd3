"""Several runs side by side: whether their windows are the same, and what the models share when they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl

from rote.report.rates import places_of, split_rows
from rote.report.view import RunView
from rote.report.words import integer, percent, plural
from rote.stats.compare import Outcomes, compare_rates
from rote.stats.population import Flags, Floats, Population, extractable_by_all, population_of, promotion
from rote.types import Split

PLACE_KEY = ["split", "document", "char_start", "suffix_char_start", "char_end"]
TOKEN_KEY = ["prefix_ids", "suffix_ids"]
Named = tuple[str, Population]


@dataclass(frozen=True)
class Comparison:
    """What may be said of several runs. `aligned` is None when their windows differ; `reason` then says how."""

    labels: tuple[str, ...]
    aligned: tuple[Population, ...] | None
    reason: str | None


def compare_runs(views: Sequence[RunView]) -> Comparison:
    """The runs' populations in one common order of windows, or the reason why there is none.

    Windows are the same when document, positions and token ids are: another tokenizer makes other windows.
    """
    labels = tuple(view.label for view in views)
    frames = [view.results.with_columns(pl.col(TOKEN_KEY).cast(pl.List(pl.Int64))).sort(PLACE_KEY) for view in views]
    first = frames[0].select(PLACE_KEY + TOKEN_KEY)
    for label, frame in zip(labels[1:], frames[1:], strict=True):
        other = frame.select(PLACE_KEY + TOKEN_KEY)
        if not other.equals(first):
            same_place = first.join(other, on=PLACE_KEY, how="inner", suffix="_other")
            same = same_place.filter(
                (pl.col("prefix_ids") == pl.col("prefix_ids_other"))
                & (pl.col("suffix_ids") == pl.col("suffix_ids_other"))
            )
            return Comparison(labels, None, difference_words(labels[0], label, common=len(same), windows=len(first)))
    distances = [str(view.config.get("distance", "levenshtein")) for view in views]
    aligned = tuple(population_of(frame, distance) for frame, distance in zip(frames, distances, strict=True))
    return Comparison(labels, aligned, None)


def rated_targets(aligned: Sequence[Population]) -> Flags:
    """The target windows that enter the rates of every run."""
    return np.asarray(np.logical_and.reduce([split_rows(population, Split.TARGET) for population in aligned]))


def common_budget(populations: Sequence[Population]) -> int:
    """The most edits that all of them allow; 0 where one knows the exact text alone."""
    return min(population.edit_budget for population in populations)


def counted_mass(population: Population, edits: int, threshold: float) -> Floats:
    """The mass within `edits` edits where it reaches τ, else 0: searches stop where τ can no longer be reached, so that
    bounds below it depend on the τ of the run and not on the model alone."""
    mass = population.mass(edits)
    return np.where(mass >= threshold, mass, 0.0)


def difference_words(first: str, other: str, *, common: int, windows: int) -> str:
    return (
        f"The windows of {other} are not those of {first}: {integer(common)} of {integer(windows)} are the same (text, "
        "positions and tokens). Rates stand side by side, but no window is compared with another."
    )


def difference_sentence(first: Named, second: Named, threshold: float) -> str:
    """How far two models' target rates lie apart on the same windows, with a paired interval."""
    outcomes = []
    targets, edits = ~first[1].is_control, common_budget((first[1], second[1]))
    for _, population in (first, second):
        hits = population.mass(edits) >= threshold
        outcomes.append(Outcomes(tuple(population.window_id[targets]), hits[targets].astype(np.float64)))
    if not targets.any():
        return "There are no target windows to compare."
    # Runs may name equal windows differently; they are aligned by place and tokens already.
    paired = replace(outcomes[1], window_ids=outcomes[0].window_ids)
    found = compare_rates(outcomes[0], paired, places=places_of(first[1].select(targets)))
    interval = found.interval
    range_words = (
        f", 95 % interval {100 * interval.low:+.1f} to {100 * interval.high:+.1f}" if interval.is_defined else ""
    )
    manner = f"within {plural(edits, 'edit')}" if edits else "word for word"
    return (
        f"Target windows extractable {manner}: {percent(found.first)} from {first[0]}, {percent(found.second)} from "
        f"{second[0]}; the difference is {100 * (found.second - found.first):+.1f} percentage points{range_words}."
    )


def comparison_sentences(comparison: Comparison, threshold: float) -> list[str]:
    """Plain sentences about what aligned runs share; the reason alone when they are not aligned."""
    if comparison.aligned is None:
        return [comparison.reason or "The windows of these runs differ."]
    rows = rated_targets(comparison.aligned)
    edits = common_budget(comparison.aligned)
    masses = [population.mass(edits)[rows] for population in comparison.aligned]
    every = int(extractable_by_all(masses, threshold).sum())
    sentences = [
        f"All runs measured the same {plural(len(rows), 'window')}. Of the {plural(int(rows.sum()), 'target window')} "
        f"among them, {integer(every)} are extractable from every model."
    ]
    pairs = list(zip(comparison.labels, comparison.aligned, strict=True))
    sentences += [difference_sentence(pairs[0], other, threshold) for other in pairs[1:]]
    for (small, smaller), (large, larger) in pairwise(pairs):
        moved = promotion(smaller.select(rows), larger.select(rows), threshold)
        if moved.near:
            sentences.append(
                f"Of {plural(moved.near, 'target window')} extractable only nearly from {small}, "
                f"{integer(moved.verbatim)} {'is' if moved.verbatim == 1 else 'are'} extractable word for word from "
                f"{large}."
            )
    return sentences
