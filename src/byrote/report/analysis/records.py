"""Records, measured as pairs: what comes out of them only nearly, and whose it may be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from byrote.normal_form import normalised
from byrote.report.analysis.rates import split_rows
from byrote.report.content import Cells
from byrote.report.view import RunView
from byrote.report.words import integer, plural, probability
from byrote.types import Split


def only_nearly(view: RunView) -> list[int]:
    """Rows of the target records that are certified within the edit budget and not word for word, heaviest first."""
    population = view.population
    mass = population.mass(population.edit_budget)
    is_found = (mass >= view.threshold) & (population.verbatim() < view.threshold)
    rows = np.flatnonzero(is_found & split_rows(population, Split.TARGET))
    return sorted(rows.tolist(), key=lambda row: -mass[row])


def nearest_others(view: RunView, rows: list[int]) -> list[tuple[int, int] | None]:
    """Of each row the other record whose suffix differs from its own by the fewest edits, as (row, edits); None where
    no suffix differs, or the run did not keep its texts and compares them."""
    suffixes: list[tuple[int, ...] | str] = [tuple(ids) for ids in view.results["suffix_ids"]]
    if view.is_text:
        places = zip(view.population.suffix_char_start, view.population.char_end, strict=True)
        texts = [one.text or "" for one in (view.unmasked or view).documents for _ in range(one.windows)]
        suffixes = [normalised(text[start:end]) for text, (start, end) in zip(texts, places, strict=True)]
    row_of = {suffix: row for row, suffix in enumerate(suffixes)}
    others = {row: suffix for suffix, row in row_of.items()}
    nearest: list[tuple[int, int] | None] = []
    for row in rows:
        own = suffixes[row]
        del others[row_of[own]]
        found = process.extractOne(own, others, scorer=Levenshtein.distance)
        others[row_of[own]] = own
        nearest.append(None if found is None else (int(found[2]), int(found[1])))
    return nearest


def nearly_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """A row per record that comes out only nearly, with the record of the file that it is nearest to."""
    rows: list[dict[str, Any]] = []
    for view in views:
        if not view.is_records or view.population.mass_lower is None:
            continue
        population, places = view.population, only_nearly(view)
        names, exact, mass = population.window_id, population.verbatim(), population.mass(population.edit_budget)
        for place, other in zip(places, nearest_others(view, places), strict=True):
            rows.append(
                {
                    "run": view.label,
                    "record": names[place],
                    "p_verbatim": float(exact[place]),
                    "mass_lower": float(mass[place]),
                    "nearest_other": None if other is None else names[other[0]],
                    "edits_to_it": None if other is None else other[1],
                }
            )
    return rows


def nearly_cells(view: RunView) -> list[Cells]:
    lines = tuple(
        (
            row["record"],
            probability(row["p_verbatim"]),
            probability(row["mass_lower"]),
            *("–" if row[name] is None else str(row[name]) for name in ("nearest_other", "edits_to_it")),
        )
        for row in nearly_rows([view])
    )
    heads = ("record", "exact", f"ε ≤ {view.population.edit_budget}", "nearest other record", "edits to it")
    return [Cells("only-nearly", "Records that come out only nearly", heads, lines)] if lines else []


def nearly_words(view: RunView) -> str:
    """Whether something near a record may be another record of the file."""
    if not (rows := nearly_rows([view])):
        return ""
    budget = view.population.edit_budget
    doubtful = sum(row["edits_to_it"] is not None and row["edits_to_it"] <= budget for row in rows)
    come = "record comes" if len(rows) == 1 else "records come"
    whose = "no other record of the file is so near that it could be that one"
    if doubtful:
        whose = f"for {integer(doubtful)} of them it may be another record of the file, at most that far away"
    return (
        f"{integer(len(rows))} target {come} out only within {plural(budget, 'edit')}, and not word for word: {whose}. "
        "Records that are not in the file were not compared."
    )
