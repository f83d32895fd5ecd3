"""Several runs side by side: whether their windows are the same, and what the models share when they are."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from byrote.errors import RunError
from byrote.report.analysis.rates import Criterion, hits_of, places_of, split_rows
from byrote.report.content import Cells
from byrote.report.view import DECISIVE, RunView
from byrote.report.words import integer, percent, plural
from byrote.stats import compare as statistics
from byrote.stats.compare import compare_means, compare_rates, holm
from byrote.stats.intervals import RateMethod
from byrote.stats.population import Flags, Floats, Population, extractable_by_all, population_of
from byrote.types import Split

PLACE_KEY = ["split", "document", "char_start", "suffix_char_start", "char_end"]
OTHER_TOKENIZER = " The models have different tokenizers; scans with --unit text can be compared."
TOKEN_KEY = ["prefix_ids", "suffix_ids"]
"""A target that begins an answer has tokens of its own: between prompts, prefixes alone are compared."""


@dataclass(frozen=True)
class RunComparison:
    """Several runs in one order of windows. `aligned` is None when their windows differ, and `reason` is how."""

    labels: tuple[str, ...]
    aligned: tuple[Population, ...] | None
    reason: str | None


def compare_runs(views: Sequence[RunView]) -> RunComparison:
    """The runs' populations in one common order of windows, or the reason why there is none.

    Windows are the same when document, positions and token ids are: another tokenizer makes other windows. Windows of
    characters have the tokens of each model's own tokenizer, so theirs are not compared.
    """
    labels = tuple(view.label for view in views)
    frames = [view.results.with_columns(pl.col(TOKEN_KEY).cast(pl.List(pl.Int64))).sort(PLACE_KEY) for view in views]
    tokens = TOKEN_KEY if len({view.prompt for view in views}) == 1 else TOKEN_KEY[:1]
    if all(view.is_text for view in views):
        tokens = []
    first = frames[0].select(PLACE_KEY + tokens)
    for label, frame in zip(labels[1:], frames[1:], strict=True):
        other = frame.select(PLACE_KEY + tokens)
        if not other.equals(first):
            tokenizers = {view.manifest.get("model", {}).get("tokenizer_hash") for view in views}
            same_place = first.join(other, on=PLACE_KEY, how="inner", suffix="_other")
            same = same_place.filter(
                pl.all_horizontal(pl.lit(True), *(pl.col(name) == pl.col(f"{name}_other") for name in tokens))
            )
            reason = (
                f"The windows of {label} are not those of {labels[0]}: {integer(len(same))} of {integer(len(first))} "
                "are the same (text, positions and tokens). Rates stand side by side, but no window is compared with "
                f"another.{OTHER_TOKENIZER if len(tokenizers) > 1 else ''}"
            )
            return RunComparison(labels, None, reason)
    distances = [str(view.config.get("distance", "levenshtein")) for view in views]
    aligned = tuple(
        population_of(frame, distance, is_text=view.is_text)
        for frame, distance, view in zip(frames, distances, views, strict=True)
    )
    return RunComparison(labels, aligned, None)


def require_same_windows(view: RunView, other: RunView) -> None:
    """A RunError unless `other` measured the same windows of the same texts, asked alike."""
    ids = [set(one.results["window_id"].to_list()) for one in (view, other)]
    if ids[0] != ids[1]:
        raise RunError(
            f"{other.path} has {len(ids[1] - ids[0])} windows that {view.path} has not, and lacks "
            f"{len(ids[0] - ids[1])}; only scans of the same windows are compared window by window."
        )
    contents = [{one.name: one.content_hash for one in each.documents} for each in (view, other)]
    for name, content in contents[0].items():
        if content != contents[1][name]:
            raise RunError(
                f"{name} is another text in {other.path} than in {view.path}; only scans of the same windows are "
                "compared window by window."
            )
    asked = [{name: one.config.get(name) for name in DECISIVE} | {"prompt": one.prompt} for one in (view, other)]
    for name, value in asked[0].items():
        if value != asked[1][name]:
            raise RunError(
                f"{other.path} was measured with {name.replace('_', '-')} {asked[1][name]} and {view.path} with "
                f"{value}; only scans that were measured alike are compared window by window."
            )


def rated_rows(aligned: Sequence[Population], split: Split = Split.TARGET) -> Flags:
    """The windows of a split that enter the rates of every run."""
    return np.asarray(np.logical_and.reduce([split_rows(population, split) for population in aligned]))


def common_budget(populations: Sequence[Population]) -> int:
    """The most edits that all of them allow; 0 where one has the exact text alone."""
    return min(population.edit_budget for population in populations)


def counted_mass(population: Population, edits: int, threshold: float) -> Floats:
    """The mass within `edits` edits where it reaches τ, else 0: searches stop where τ can no longer be reached, so that
    bounds below it depend on the τ of the run and not on the model alone."""
    mass = population.mass(edits)
    return np.where(mass >= threshold, mass, 0.0)


MEAN_MASS = "mean_mass"
ANSWERS = "answers"
NAMES = {
    "greedy": "greedy, exact",
    "verbatim": "verbatim",
    "near": "near-verbatim",
    MEAN_MASS: "mean mass from τ on",
    ANSWERS: "sampled answers",
}


CROSSED = ("both", "only_first", "only_second")


class Paired(NamedTuple):
    """Second minus first over the same target windows, for one criterion (a share) or the mean mass, of which windows
    below τ have none."""

    first: str
    second: str
    quantity: str
    edits: int | None
    found: statistics.Comparison
    p_adjusted: float
    """Holm's correction over all rows of the table; NaN where there is no test."""

    @property
    def name(self) -> str:
        return NAMES[self.quantity] + (f", ε ≤ {self.edits}" if self.quantity in ("near", MEAN_MASS, ANSWERS) else "")


def paired_differences(
    comparison: RunComparison,
    threshold: float,
    *,
    neighbours_only: bool = False,
    split: Split = Split.TARGET,
    with_answers: bool = False,
) -> list[Paired]:
    """Every pair of models, or each with the next, and everything both measured, the share of sampled answers that hit
    if asked for; empty when their windows differ."""
    aligned = comparison.aligned
    if aligned is None:
        return []
    rows = rated_rows(aligned, split)
    if not rows.any():
        return []
    parts = [(label, part.select(rows)) for label, part in zip(comparison.labels, aligned, strict=True)]
    found = [
        row
        for pair in (pairwise(parts) if neighbours_only else combinations(parts, 2))
        for row in _pair(*pair, threshold, with_answers=with_answers)
    ]
    adjusted = holm([row.found.p_value for row in found])
    return [row._replace(p_adjusted=float(value)) for row, value in zip(found, adjusted, strict=True)]


def _pair(
    first: tuple[str, Population], second: tuple[str, Population], threshold: float, *, with_answers: bool
) -> Iterator[Paired]:
    populations = first[1], second[1]
    budget = common_budget(populations)
    places = places_of(first[1])

    def row(quantity: str, edits: int | None, found: statistics.Comparison) -> Paired:
        return Paired(first[0], second[0], quantity, edits, found, float("nan"))

    wanted = [(Criterion.GREEDY, 0), (Criterion.VERBATIM, 0), *((Criterion.NEAR, edits) for edits in range(budget + 1))]
    for criterion, edits in wanted:
        hits = [hits_of(population, criterion, edits=edits, threshold=threshold) for population in populations]
        measured = [each for each in hits if each is not None]
        if len(measured) == 2:
            shown = None if criterion is Criterion.VERBATIM else edits
            yield row(criterion.value, shown, compare_rates(measured[0], measured[1], places))
    masses = [counted_mass(population, budget, threshold) for population in populations]
    yield row(MEAN_MASS, budget, compare_means(masses[0], masses[1], places))
    shares = [
        one.answer_hits[:, -1] / one.answers
        for one in populations
        if one.answers is not None and one.answer_hits is not None and one.answers.all()
    ]
    if with_answers and len(shares) == 2:
        yield row(ANSWERS, budget, compare_means(shares[0], shares[1], places))


def compare_rows(rows: Sequence[Paired]) -> list[dict[str, Any]]:
    """compare.csv: one row a pair of models and quantity."""
    return [
        {
            "first": row.first,
            "second": row.second,
            "quantity": row.quantity,
            "edits": row.edits,
            "windows": row.found.n,
            "first_value": row.found.first,
            "second_value": row.found.second,
            "difference": row.found.difference,
            "interval_low": row.found.interval.low,
            "interval_high": row.found.interval.high,
            "p_value": row.found.p_value,
            "p_value_holm": row.p_adjusted,
            **{name: row.found.crossed and getattr(row.found.crossed, name) for name in CROSSED},
            "interval_method": row.found.method.value,
            "independent_units": row.found.units,
            "note": row.found.interval.reason,
        }
        for row in rows
    ]


def paired_cells(rows: Sequence[Paired]) -> list[Cells]:
    """The same in words, ε at its largest: small ones are in compare.csv."""
    largest = max((row.edits or 0 for row in rows), default=0)
    shown = [row for row in rows if row.quantity != "near" or row.edits == largest]
    heads = ("models", "quantity", "first", "second", "difference", "95 % interval", "only first", "only second")
    cells = tuple(
        (
            f"{row.first} → {row.second}",
            row.name,
            f"{100 * row.found.first:.1f} %",
            f"{100 * row.found.second:.1f} %",
            f"{100 * row.found.difference:+.1f}",
            points_interval(row) if row.found.interval.is_defined else "none",
            "–" if row.found.crossed is None else integer(row.found.crossed.only_first),
            "–" if row.found.crossed is None else integer(row.found.crossed.only_second),
        )
        for row in shown
    )
    # Documents as units stand for texts like these, stretches of text for these texts.
    about = "Intervals take long stretches of text as independent: they are about other passages of these texts."
    if all(row.found.method is RateMethod.BY_DOCUMENT for row in rows):
        about = "Intervals take documents as independent: they are about other texts like these."
    note = (
        "Differences are in percentage points, second minus first, over the target windows; a mass below τ counts as "
        f"0. {about} compare.csv has every ε, with p-values."
    )
    return [Cells("differences", "Paired differences", heads, cells, note)] if cells else []


def points_interval(row: Paired) -> str:
    return f"{100 * row.found.interval.low:+.1f} to {100 * row.found.interval.high:+.1f}"


def comparison_sentences(comparison: RunComparison, paired: Sequence[Paired], threshold: float) -> list[str]:
    """What aligned runs share and how far apart their target rates are; the reason alone when they are not aligned."""
    if comparison.aligned is None:
        return [comparison.reason or "The windows of these runs differ."]
    labels, rows = comparison.labels, rated_rows(comparison.aligned)
    masses = [population.mass(common_budget(comparison.aligned))[rows] for population in comparison.aligned]
    every = int(extractable_by_all(masses, threshold).sum())
    sentences = [
        f"All runs measured the same {plural(len(rows), 'window')}. Of the {plural(int(rows.sum()), 'target window')} "
        f"among them, {integer(every)} are extractable from every model."
    ]
    if not rows.any():
        return [*sentences, "There are no target windows to compare."]
    for other in labels[1:]:
        rates = [row for row in paired if (row.first, row.second) == (labels[0], other)]
        near = [row for row in rates if row.quantity == Criterion.NEAR]
        exact = [row for row in rates if row.quantity == Criterion.VERBATIM]
        sentences += [_difference_sentence(row) for row in (near or exact)[-1:]]
    parts = [(label, part.select(rows)) for label, part in zip(labels, comparison.aligned, strict=True)]
    for (small, smaller), (large, larger) in pairwise(parts):
        unlocked = smaller.is_unlocked(smaller.edit_budget, threshold)
        if unlocked.any():
            verbatim = int((unlocked & (larger.verbatim() >= threshold)).sum())
            sentences.append(
                f"Of {plural(int(unlocked.sum()), 'target window')} extractable only nearly from {small}, "
                f"{integer(verbatim)} {'is' if verbatim == 1 else 'are'} extractable word for word from {large}."
            )
    return sentences


def _difference_sentence(row: Paired) -> str:
    found, interval = row.found, row.found.interval
    ends = f", 95 % interval {points_interval(row)}" if interval.is_defined else ""
    manner = f"within {plural(row.edits, 'edit')}" if row.edits else "word for word"
    return (
        f"Target windows extractable {manner}: {percent(found.first)} from {row.first}, {percent(found.second)} from "
        f"{row.second}; the difference is {100 * found.difference:+.1f} percentage points{ends}."
    )


class SharedWindows(NamedTuple):
    """Target windows extractable from exactly these models, and from no other."""

    members: tuple[bool, ...]
    windows: int


def shared_windows(comparison: RunComparison, threshold: float) -> list[SharedWindows]:
    """Every combination that occurs, most windows first; windows that no model gives are left out."""
    if comparison.aligned is None:
        return []
    rows = rated_rows(comparison.aligned)
    edits = common_budget(comparison.aligned)
    reached = np.stack([each.mass(edits)[rows] >= threshold for each in comparison.aligned], axis=1)
    counts = Counter(tuple(bool(hit) for hit in row) for row in reached if row.any())
    return [SharedWindows(members, windows) for members, windows in counts.most_common()]


def set_rows(views: Sequence[RunView], aligned: Sequence[Population] | None) -> list[dict[str, Any]]:
    """sets.csv: a row a run and ε. Target windows that are extractable, unlocked (the mass within ε edits reaches τ and
    the exact text does not), extractable from all models, and exact from the next one. `aligned` has the runs' windows
    in one order, where they are the same; without it there are no columns across runs."""
    if any(view.population.mass_lower is None for view in views):
        return []
    groups = [aligned] if aligned else [[view.population] for view in views]
    parts = [part.select(rated_rows(group)) for group in groups for part in group]
    threshold, rows = views[0].threshold, []
    for place, (view, part) in enumerate(zip(views, parts, strict=True)):
        for edits in range((common_budget(parts) if aligned else part.edit_budget) + 1):
            row = {"run": view.label, "edits": edits, "windows": len(part), **_own(part, edits, threshold)}
            if aligned:
                fixed = extractable_by_all([each.mass(edits) for each in parts], threshold)
                row |= _named("fixed", part.mass(edits)[fixed])
            if aligned and place + 1 < len(parts):
                exact_there = parts[place + 1].verbatim() >= threshold
                row["exact_at_next"] = int((part.is_unlocked(edits, threshold) & exact_there).sum())
            rows.append(row)
    return rows


def _own(part: Population, edits: int, threshold: float) -> dict[str, Any]:
    mass = part.mass(edits)
    extractable, unlocked = mass >= threshold, part.is_unlocked(edits, threshold)
    shares = part.verbatim()[extractable] / mass[extractable]
    return {
        **_named("extractable", mass[extractable]),
        "median_verbatim_share": float(np.median(shares)) if len(shares) else None,
        **_named("unlocked", mass[unlocked]),
        "unlocked_from_zero": int((unlocked & part.is_impossible()).sum()),
    }


def _named(name: str, mass: Floats) -> dict[str, Any]:
    """How many windows a set has, and their masses."""
    return {
        name: len(mass),
        f"{name}_mean_mass": float(mass.mean()) if len(mass) else None,
        f"{name}_median_mass": float(np.median(mass)) if len(mass) else None,
        f"{name}_largest_mass": float(mass.max()) if len(mass) else None,
    }
