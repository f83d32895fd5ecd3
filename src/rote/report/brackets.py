"""A run's near-verbatim rate, certified from below and at a stated confidence from above, in one wording."""

from rote.report.rates import split_rows
from rote.report.view import RunView
from rote.report.words import integer, percent, plural
from rote.stats.brackets import Bracket, bracket, evidence_of
from rote.stats.population import Flags
from rote.types import Split


def bracket_of(
    view: RunView, *, split: Split = Split.TARGET, rows: Flags | None = None, level: float = 0.95
) -> Bracket | None:
    """The windows of a split (of those, `rows`) that are extractable within the whole edit budget; None where
    near-verbatim masses were not measured or there is no such window."""
    counted = split_rows(view.population, split) & (True if rows is None else rows)
    evidence = evidence_of(view.population, view.run_threshold)
    if evidence is None or not counted.any():
        return None
    promised = int(view.config.get("screen_tickets") or 0)
    return bracket(evidence.select(counted), view.threshold, promised=promised, level=level)


def limit_words(found: Bracket) -> str:
    """`certified; at most 52.0 % at 95 % confidence`, to stand behind the certified share."""
    if found.is_sampled:
        most = "no more" if found.at_most == found.certified else f"at most {percent(found.high)}"
        return f"certified; {most} at {100 * found.level:g} % confidence"
    if found.at_most == found.certified:
        return "certified, no more and no less"
    if found.at_most == found.windows:
        return "certified; no limit below 100 %"
    return f"certified; at most {percent(found.high)}, certified too"


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
        advice = " Most of that is what the screen left out; more samples of its audit (--screen-sampled) lower it."
    return (
        f"Of {plural(found.windows, 'target window')}, {', '.join(parts)}; at most {integer(found.at_most)} in all are "
        f"extractable, {manner}.{advice}"
    )
