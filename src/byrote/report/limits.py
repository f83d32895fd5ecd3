"""A run's near-verbatim rate, certified from below and at a stated confidence from above, in one wording."""

import math
from collections.abc import Iterator

import numpy as np

from byrote.report.rates import split_rows
from byrote.report.view import RunView
from byrote.report.words import integer, percent, plural
from byrote.stats.limits import FACTORS, Bracket, Evidence, bracket, evidence_of, narrowing
from byrote.stats.population import Flags
from byrote.types import Split

WIDE = 0.05
"""A bracket wider than this share of the windows, by windows that more samples could decide, says how to narrow it."""


def bracket_of(
    view: RunView, *, split: Split = Split.TARGET, rows: Flags | None = None, level: float = 0.95
) -> Bracket | None:
    """The windows of a split (of those, `rows`) that are extractable within the whole edit budget; None where
    near-verbatim masses were not measured or there is no such window."""
    evidence = _evidence(view, split, rows)
    return None if evidence is None else bracket(evidence, view.threshold, promised=_promised(view), level=level)


def _evidence(view: RunView, split: Split, rows: Flags | None = None) -> Evidence | None:
    counted = split_rows(view.population, split) & (True if rows is None else rows)
    evidence = evidence_of(view.population, view.run_threshold)
    return None if evidence is None or not counted.any() else evidence.select(counted)


def _promised(view: RunView) -> int:
    return int(view.config.get("screen_samples") or 0)


def limit_words(found: Bracket) -> str:
    """`certified; at most 52.0 % at 95 % confidence`, to stand behind the certified share."""
    if found.at_most == found.certified and not found.is_sampled:
        return "certified, no more and no less"
    if found.at_most == found.windows:
        return f"certified; {most_words(found)}"
    if not found.is_sampled:
        return f"certified; at most {percent(found.high)}, certified too"
    most = "no more" if found.at_most == found.certified else f"at most {percent(found.high)}"
    return f"certified; {most} at {100 * found.level:g} % confidence"


def most_words(found: Bracket, *, with_samples: bool = True) -> str:
    """`at most 52.0 %`; where nothing says less than all, from how few samples."""
    if found.at_most < found.windows:
        return f"at most {percent(found.high)}"
    manner = f" from {plural(found.samples, 'sample')}" if found.samples else " without samples"
    return f"no limit below 100 %{manner if with_samples else ''}"


def bracket_words(found: Bracket) -> str:
    """`47.7 % certified; at most 52.0 % at 95 % confidence`."""
    return f"{percent(found.low)} {limit_words(found)}"


def account_words(found: Bracket) -> str:
    """What the limit is made of, one denominator for all of it."""
    parts = [f"{integer(found.certified)} are certified"]
    if found.undecided:
        parts.append(f"{integer(found.undecided)} were searched and left undecided")
    if found.left_out:
        parts.append(f"{integer(found.left_out)} were left out by the screen")
    manner = "by their bounds"
    if found.is_sampled:
        manner = f"by samples of what was searched, at {100 * found.level:g} % confidence for all of it together"
    advice = ""
    if found.is_sampled and 2 * found.left_out_at_most > found.at_most - found.certified:
        more = (
            "more samples of its audit (--set screen_sampled=SHARE)"
            if found.samples
            else "a larger audit (--set screen_share=SHARE)"
        )
        advice = f" Most of that is what the screen left out; {more} lower{'' if found.samples else 's'} it."
    return (
        f"Of {plural(found.windows, 'target window')}, {', '.join(parts)}; at most {integer(found.at_most)} in all are "
        f"extractable, {manner}.{advice}"
    )


def narrower_words(view: RunView, found: Bracket) -> str:
    """How many more samples would lower a limit that says little."""
    if found.undecided_at_most <= WIDE * found.windows:
        return ""
    goal = found.certified + found.left_out_at_most + math.floor(WIDE * found.windows)
    return f" {samples_words(view, goal=goal, level=found.level)}"


def samples_words(
    view: RunView, *, goal: int, split: Split = Split.TARGET, rows: Flags | None = None, level: float = 0.95
) -> str:
    """How many more samples would lower the limit to `goal` windows, and the options that draw them."""
    evidence = _evidence(view, split, rows)
    if evidence is None or not np.nansum(evidence.tickets):
        return "Nothing was sampled; --estimate auto, the default, lowers this limit."
    fewer = narrowing(evidence, view.threshold, promised=_promised(view), goal=goal, level=level)
    if fewer is None:
        return f"Not even {integer(FACTORS[-1])} times as many samples would lower it to {integer(goal)}."
    options = " ".join(_more(view, evidence, fewer.factor))
    return (
        f"About {fewer.factor} times as many samples of each ({options}) would lower it to "
        f"{plural(fewer.at_most, 'window')}, if no more of them hit."
    )


def _more(view: RunView, evidence: Evidence, factor: int) -> Iterator[str]:
    """Windows that the screen lets pass are sampled as `residual` says, its audit as `screen_samples` does."""
    is_audited = ~np.isnan(evidence.density[evidence.tickets > 0])
    if not is_audited.all():
        search = int(view.config["beam_width"]) * (int(view.config["suffix_tokens"]) - 1)
        yield f"--set residual={factor * int(view.config.get('residual') or search // 2)}"
    if is_audited.any() and evidence.is_searched.all():
        yield f"--set screen_samples={factor * _promised(view)}"
