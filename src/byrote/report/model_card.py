"""A short Markdown block for a model card: key rates, intervals, settings and how to cite the run."""

import hashlib
import math

from byrote.report.limits import bracket_of, bracket_words
from byrote.report.rates import Criterion
from byrote.report.summary import screen_words
from byrote.report.view import RunView, manifest_text, selection_words
from byrote.report.words import integer, interval_words, percent, policy_words, probability
from byrote.types import Split


def model_card(view: RunView) -> str:
    """Markdown that stands alone: what was measured, the rates of both splits, and the run they come from."""
    at_threshold = f"p ≥ {probability(view.threshold)}"
    names = {
        Criterion.GREEDY: "greedy, exact",
        Criterion.VERBATIM: f"verbatim, {at_threshold}",
        Criterion.NEAR: f"near-verbatim, ε ≤ {view.population.edit_budget}, {at_threshold}",
    }
    prefix, suffix = view.window_words
    targets = sum(document.split != Split.CONTROL for document in view.documents)
    brackets = {split: bracket_of(view, split=split) for split in Split}
    limits = [f"{split}: {bracket_words(found)}" for split, found in brackets.items() if found is not None]
    lines = [
        "### Memorization",
        "",
        f"Share of {prefix} + {suffix}-token windows of {targets} target and {len(view.documents) - targets} control "
        f"documents that `{markdown_safe(view.model)}` reproduces ({selection_words(view)}; "
        f"{policy_words(view.config)}; windows overlap, intervals are clustered).",
        "",
        "| extraction | target | 95 % interval | control | 95 % interval |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {name} | {cells} |" for criterion, name in names.items() if (cells := _cells(view, criterion))),
        "",
        screen_words(view),
        f"Near-verbatim share of these windows: {', '.join(limits)}." if limits else None,
        None if view.chosen_threshold is None else view.chosen_threshold.words,
        "Near-verbatim rates are certified lower bounds, and their intervals those of the certified share."
        if view.population.mass_lower is not None
        else None,
        f"Run: {citation(view)}.",
    ]
    options = [f"{name.replace('_', '-')} {_written(value)}" for name, value in sorted(view.settings.items())]
    lines += ["", f"Options: {markdown_safe(', '.join(options))}."] if options else []
    return "\n".join(line for line in lines if line is not None)


def _cells(view: RunView, criterion: Criterion) -> str | None:
    """Rate and interval of both splits; None when the criterion was not measured on the target."""
    if view.rate(criterion, Split.TARGET) is None:
        return None
    cells: list[str] = []
    for split in Split:
        entry = view.rate(criterion, split)
        if entry is None:
            cells += ["–", "–"]
        else:
            count = f"{integer(entry.hits)}/{integer(entry.rate.n)}"
            cells += [f"{percent(entry.rate.value)} ({count})", interval_words(entry.rate.interval)]
    return " | ".join(cells)


def _written(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def citation(view: RunView) -> str:
    """The run by name, date, byrote version and a digest of its manifest: enough to find and to check it."""
    text = manifest_text(view, most_documents=math.inf)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    version = view.manifest.get("versions", {}).get("byrote")
    parts = [f"`{markdown_safe(view.path.name)}`", f"byrote {version}" if version else "byrote"]
    if isinstance(written := view.manifest.get("written_at"), str):
        parts.append(written[:10])
    return ", ".join([*parts, f"manifest `{digest}`"])


def markdown_safe(name: str) -> str:
    """A name that cannot leave its code span or its table cell."""
    return name.replace("`", "'").replace("|", "¦").replace("\n", " ")
