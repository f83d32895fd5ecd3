"""A short Markdown block for a model card: key rates, intervals, settings and how to cite the run."""

import hashlib

from byrote.report.limits import bracket_of, bracket_words
from byrote.report.rates import Criterion, CriterionRate, rate_for, rates_by_criterion
from byrote.report.summary import screen_words
from byrote.report.view import RunView, manifest_text, selection_words
from byrote.report.words import integer, interval_words, percent, policy_words, probability
from byrote.types import Split

NEAR_WORDS = ("Near-verbatim rates are certified lower bounds, and their intervals those of the certified share.",)


def model_card(view: RunView) -> str:
    """Markdown that stands alone: what was measured, the rates of both splits, and the run they come from."""
    rates = rates_by_criterion(view.population, view.threshold)
    budget = view.population.edit_budget
    rows = [
        ("greedy, exact", rate_row(rates, Criterion.GREEDY, 0)),
        (f"verbatim, p ≥ {probability(view.threshold)}", rate_row(rates, Criterion.VERBATIM, None)),
        (f"near-verbatim, ε ≤ {budget}, p ≥ {probability(view.threshold)}", rate_row(rates, Criterion.NEAR, budget)),
    ]
    table = [f"| {name} | {cells} |" for name, cells in rows if cells is not None]
    return "\n".join(
        [
            "### Memorization",
            "",
            settings_sentence(view),
            "",
            "| extraction | target | 95 % interval | control | 95 % interval |",
            "| --- | --- | --- | --- | --- |",
            *table,
            "",
            *([words] if (words := screen_words(view)) is not None else []),
            *limit_lines(view),
            *([] if view.chosen_threshold is None else [view.chosen_threshold.words]),
            *(NEAR_WORDS if view.population.mass_lower is not None else ()),
            f"Run: {citation(view)}.",
            *options_lines(view),
        ]
    )


def limit_lines(view: RunView) -> list[str]:
    """The bracket of each split's near-verbatim rate."""
    found = {split: bracket_of(view, split=split) for split in Split}
    words = [f"{split}: {bracket_words(one)}" for split, one in found.items() if one is not None]
    return [f"Near-verbatim share of these windows: {', '.join(words)}."] if words else []


def rate_row(rates: list[CriterionRate], criterion: Criterion, edits: int | None) -> str | None:
    """The four cells of a criterion, or None when it was not measured on the target."""
    if rate_for(rates, criterion, split=Split.TARGET, edits=edits) is None:
        return None
    cells: list[str] = []
    for split in Split:
        entry = rate_for(rates, criterion, split=split, edits=edits)
        if entry is None:
            cells += ["–", "–"]
        else:
            count = f"{integer(entry.hits)}/{integer(entry.rate.n)}"
            cells += [f"{percent(entry.rate.value)} ({count})", interval_words(entry.rate.interval)]
    return " | ".join(cells)


def settings_sentence(view: RunView) -> str:
    prefix, suffix = view.window_words
    targets = sum(document.split != Split.CONTROL for document in view.documents)
    return (
        f"Share of {prefix} + {suffix}-token windows of {targets} target and {len(view.documents) - targets} control "
        f"documents that `{markdown_safe(view.model)}` reproduces ({selection_words(view)}; "
        f"{policy_words(view.config)}; windows overlap, intervals are clustered)."
    )


def options_lines(view: RunView) -> list[str]:
    """Every option that decides a number, by the name it has on the command line."""
    known = [f"{name.replace('_', '-')} {_written(value)}" for name, value in sorted(view.settings.items())]
    return ["", f"Options: {markdown_safe(', '.join(known))}."] if known else []


def _written(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def citation(view: RunView) -> str:
    """The run by name, date, byrote version and a digest of its manifest: enough to find and to check it."""
    digest = hashlib.sha256(manifest_text(view).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    versions = view.manifest.get("versions")
    version = versions.get("byrote") if isinstance(versions, dict) else None
    written = view.manifest.get("written_at")
    parts = [f"`{markdown_safe(view.path.name)}`", f"byrote {version}" if version else "byrote"]
    if isinstance(written, str):
        parts.append(written[:10])
    return ", ".join([*parts, f"manifest `{digest}`"])


def markdown_safe(name: str) -> str:
    """A name that cannot leave its code span or its table cell."""
    return name.replace("`", "'").replace("|", "¦").replace("\n", " ")
