"""How long a passage comes out, and how often: bounds of R by length, the best starts, the share of starts at τ.

R(L) is the probability that one answer stays within ε edits of the target in every block of its first L tokens, or
characters.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from byrote.report.analysis.rates import places_of, split_rows, units_by_rank
from byrote.report.content import Cells, Drawing, StrongPassage
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.report.reader import PREFIX_CHARACTERS, compared
from byrote.report.view import RunView
from byrote.report.words import integer, plural, probability
from byrote.stats.clusters import rate_over_units
from byrote.stats.population import Floats, by_edits
from byrote.types import Split

BEST_STARTS = 10
DRAWN_STARTS = 5


class PassageBounds(NamedTuple):
    """The passages of a run: lengths in the run's unit, and bounds by window and length."""

    lengths: tuple[int, ...]
    lower: Floats  # [windows, lengths]
    upper: Floats  # [windows, lengths]
    expected_lower: Floats  # [windows]
    expected_upper: Floats  # [windows]


def passages_of(view: RunView) -> PassageBounds | None:
    """None where the run measured none."""
    lower, upper = (by_edits(view.results, f"passage_{side}") for side in ("lower", "upper"))
    if lower is None or upper is None:
        return None
    expected = (view.results[f"passage_expected_{side}"].to_numpy() for side in ("lower", "upper"))
    return PassageBounds(tuple(view.config["passage"]), lower, upper, *expected)


def best_starts(view: RunView, found: PassageBounds) -> list[int]:
    """Rows of the certified target windows with the largest expected length, none within the suffix of a better one."""
    population = view.population
    rows = np.flatnonzero(split_rows(population, Split.TARGET) & (found.lower[:, 0] >= view.threshold))
    chosen: list[int] = []
    for row in rows[np.argsort(-found.expected_lower[rows], kind="stable")].tolist():
        span = population.char_end[row] - population.suffix_char_start[row]
        is_new = all(
            population.document[row] != population.document[other]
            or abs(population.char_start[row] - population.char_start[other]) >= span
            for other in chosen
        )
        chosen += [row] if is_new else []
        if len(chosen) == BEST_STARTS:
            break
    return chosen


def place_words(view: RunView, row: int) -> str:
    population = view.population
    return f"{population.document[row]}, {integer(int(population.suffix_char_start[row]))}"


def passage_cells(view: RunView) -> list[Cells]:
    """The ten best starts of a run, by expected length; empty where no passages were measured."""
    found = passages_of(view)
    if found is None:
        return []
    best = best_starts(view, found)
    rows = tuple(
        (
            place_words(view, row),
            *(probability(float(chance)) for chance in found.lower[row]),
            f"{found.expected_lower[row]:.0f} to {found.expected_upper[row]:.0f}",
        )
        for row in best
    )
    heads = ("from character", *(f"{length} {view.unit}s" for length in found.lengths), "expected")
    return [Cells("passages", "How long a passage comes out, and how often", heads, rows, passage_words(view, found))]


def passage_words(view: RunView, found: PassageBounds) -> str:
    """What the numbers are, and the longest passage that comes out with probability τ or more."""
    edits, (prefix, block) = view.population.edit_budget, view.window_words
    start = (
        f"At least this probability that one answer stays within {edits} edits in every "
        f"{'block of ' if view.is_text else ''}{block} {view.unit}s. "
        f"Expected: for how many {view.unit}s it follows the text, in whole such blocks, {found.lengths[-1]} at most."
    )
    rows = split_rows(view.population, Split.TARGET)
    for place in reversed(range(len(found.lengths))):
        chances = np.where(rows, found.lower[:, place], -1.0)
        row = int(np.argmax(chances))
        if chances[row] >= view.threshold:
            place_in_text = place_words(view, row).rsplit(", ", 1)[1]
            given, up_to = (prefix, "up to ") if view.is_text else (f"the {prefix}", "")
            return (
                f"Asked once with {given} {view.unit}s before character {place_in_text} of "
                f"{view.population.document[row]}, the model follows the text for {up_to}{found.lengths[place]} "
                f"{view.unit}s with probability {probability(float(chances[row]))} at least. {start}"
            )
    return f"No passage of these lengths is certified at {view.threshold:g}. {start}"


def passage_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """One row per run, window that is certified for the shortest length, and length."""
    return [
        {
            "run": view.label,
            "window_id": view.population.window_id[row],
            "split": str(view.results["split"][row]),
            "unit": f"{view.unit}s",
            "length": length,
            "lower": float(found.lower[row, place]),
            "upper": float(found.upper[row, place]),
            "expected_lower": float(found.expected_lower[row]),
            "expected_upper": float(found.expected_upper[row]),
        }
        for view in views
        if (found := passages_of(view)) is not None
        for row in np.flatnonzero(found.lower[:, 0] >= view.threshold).tolist()
        for place, length in enumerate(found.lengths)
    ]


def passage_drawings(view: RunView) -> list[Drawing]:
    """Length against probability for the best starts, and against the share of windows at τ."""
    found = passages_of(view)
    if found is None:
        return []
    starts = [
        Line(
            place_words(view, row),
            tuple(Point(length, float(chance)) for length, chance in zip(found.lengths, found.lower[row], strict=True)),
        )
        for row in best_starts(view, found)[:DRAWN_STARTS]
    ]
    shares = []
    for split in Split:
        rows = split_rows(view.population, split)
        if rows.any():
            places = places_of(view.population.select(rows))
            units = units_by_rank(places, found.lower[rows, 0])
            rates = (rate_over_units(lower >= view.threshold, units) for lower in found.lower[rows].T)
            points = tuple(Point.of(length, rate) for length, rate in zip(found.lengths, rates, strict=True))
            shares.append(Line(f"all {split} windows", points, is_control=split is Split.CONTROL))
    panels = [
        Panel("best starts", "probability of so long an answer, at least", tuple(starts), is_share=False),
        Panel("all windows", f"windows certified at {view.threshold:g}", tuple(shares)),
    ]
    caption = (
        f"Length against probability: one answer stays within {view.population.edit_budget} edits of the text in every "
        "block. Left: certified lower bounds from the best starts (document and first character). Right: the share of "
        "windows whose lower bound reaches τ, with 95 % intervals."
    )
    setting = Setting(f"length in {view.unit}s", tuple((float(length), str(length)) for length in found.lengths))
    return [Drawing("passages", caption, overlay(panels, setting), "near", is_wide=True)]


def passages_found(view: RunView) -> tuple[StrongPassage, ...]:
    """The longest answer that was found from each of the best starts, beside the text."""
    found = passages_of(view)
    if found is None:
        return ()
    shown = []
    for row in best_starts(view, found):
        text, target, ids, log_p = (view.results[f"passage_{name}"][row] for name in ("text", "target", "ids", "log_p"))
        if text is None:
            continue
        document = next(one for one in view.documents if one.first_row <= row < one.first_row + one.windows)
        start = int(view.population.suffix_char_start[row])
        first = max(int(view.prefix_starts[row]), start - PREFIX_CHARACTERS)
        prefix = "" if document.text is None else document.text[first:start]
        pieces = tuple(compared(target, text, is_text=view.is_text))
        manner = "nearly" if any(kind != "same" for _, kind in pieces) else "word for word"
        length = plural(len(target) if view.is_text else len(ids), view.unit)
        numbers = f"{length} {manner}, this very answer with probability {probability(float(np.exp(log_p)))}"
        shown.append(StrongPassage(place_words(view, row), numbers, prefix, pieces, ""))
    return tuple(shown)
