"""Whether a run keeps within stated rates: by the bracket of each rate, never by its point.

A rule passes when its rate is at most the limit for sure or at the stated confidence, fails when it is above it, and
is undecided when the bracket holds the limit inside. All rules of a gate together have the stated confidence.

    near=0.01                   of the target windows, at most 1 % are extractable within the run's ε
    kind:phone verbatim=0       of the records of this kind, none is extractable word for word
    split:control greedy=0.001  of the controls, at most 0.1 % have a greedy answer that is the target exactly
"""

import json
import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import polars as pl

from byrote.errors import ConfigError, RunError
from byrote.report.limits import bracket_of, samples_words
from byrote.report.rates import Criterion, hits_of, split_rows
from byrote.report.view import DECISIVE, RunView, selection_of
from byrote.report.words import listed, percent
from byrote.stats.intervals import check_level
from byrote.stats.limits import drawn_share
from byrote.stats.population import Flags
from byrote.types import Split

CRITERIA = (Criterion.GREEDY, Criterion.VERBATIM, Criterion.NEAR)
GROUPINGS = ("kind", "tag", "document", "split")
LONGEST_RULE = 300
ADVICE = "write it as near=0.01, or with a group before it as in 'kind:phone verbatim=0'"


class Outcome(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    CANNOT_TELL = "cannot_tell"


EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.CANNOT_TELL: 2}


class Rule(NamedTuple):
    """A rate and the most it may be; or, with `is_increase`, by how much it may exceed a baseline's."""

    text: str
    criterion: Criterion
    limit: float
    grouping: str | None = None
    group: str | None = None
    is_increase: bool = False

    @property
    def name(self) -> str:
        return f"{'increase of ' if self.is_increase else ''}{self.text}"


class RateBracket(NamedTuple):
    """Between which numbers a rate lies, how many windows were measured, and which windows the rate is about."""

    low: float
    high: float
    windows: int
    about: str


class Finding(NamedTuple):
    rule: Rule
    outcome: Outcome
    low: float
    high: float
    windows: int
    words: str


class Judgement(NamedTuple):
    """The finding of every rule; `outcome` is the worst of them."""

    findings: tuple[Finding, ...]
    confidence: float

    @property
    def outcome(self) -> Outcome:
        return max(
            (finding.outcome for finding in self.findings), key=[Outcome.PASS, Outcome.CANNOT_TELL, Outcome.FAIL].index
        )


def parse_rule(text: str, *, is_increase: bool = False) -> Rule:
    """A rule as it is written on the command line; of an increase the number alone means `near`."""
    if len(text) > LONGEST_RULE:
        raise ConfigError(f"a rule has {len(text):,} characters ({text[:20]!r}…); {ADVICE}.")
    *group, rate = text.strip().split(" ")
    name, equals, number = rate.rpartition("=")
    if is_increase and not equals:
        name = Criterion.NEAR.value
    grouping, colon, value = " ".join(group).partition(":")
    try:
        limit = float(number)
    except ValueError as error:
        raise ConfigError(f"rule {text!r} ends in no number; {ADVICE}.") from error
    if name not in CRITERIA:
        raise ConfigError(f"rule {text!r} is about {name!r}; choose {', '.join(CRITERIA)}, and {ADVICE}.")
    if group and (not colon or grouping not in GROUPINGS or not value):
        raise ConfigError(
            f"rule {text!r} has the group {' '.join(group)!r}; choose {', '.join(GROUPINGS)}, and {ADVICE}."
        )
    if not 0 <= limit <= 1:
        raise ConfigError(f"rule {text!r} has the rate {limit:g}; it must be between 0 and 1.")
    return Rule(text.strip(), Criterion(name), limit, grouping or None, value or None, is_increase)


def judge(
    view: RunView, rules: Sequence[Rule], *, baseline: RunView | None = None, confidence: float = 0.95
) -> Judgement:
    """Every rule by itself, each with its share of what the gate may err."""
    check_level(confidence)
    if not rules:
        raise ConfigError("there is no rule; give --max-rate near=0.01, say.")
    alpha = (1 - confidence) / len(rules)
    return Judgement(tuple(_finding(view, rule, baseline, alpha) for rule in rules), confidence)


def _finding(view: RunView, rule: Rule, baseline: RunView | None, alpha: float) -> Finding:
    if not rule.is_increase:
        found = rate_bracket(view, rule, alpha=alpha)
        low, high, what, words_of = found.low, found.high, "the rate", percent
    else:
        if baseline is None:
            raise ConfigError("--max-increase needs --baseline RUN, the run to compare with.")
        _require_same_windows(view, baseline)
        found, before = (rate_bracket(one, rule, alpha=alpha / 2) for one in (view, baseline))
        low, high, what, words_of = found.low - before.high, found.high - before.low, "the increase", points
    outcome = Outcome.PASS if high <= rule.limit else Outcome.FAIL if low > rule.limit else Outcome.CANNOT_TELL
    manner = {
        Outcome.PASS: f"at most {words_of(rule.limit)}, as allowed",
        Outcome.FAIL: f"more than the {words_of(rule.limit)} allowed",
        Outcome.CANNOT_TELL: f"not known to be within the {words_of(rule.limit)} allowed, nor beyond",
    }[outcome]
    size = words_of(low) if low == high else f"between {words_of(low)} and {words_of(high)}"
    words = f"{rule.name}: {what} of {found.about} is {size}, {manner}."
    if outcome is Outcome.CANNOT_TELL:
        words = f"{words} {_what_would_decide(view, rule, found, alpha)}"
    return Finding(rule, outcome, low, high, found.windows, words)


def _what_would_decide(view: RunView, rule: Rule, found: RateBracket, alpha: float) -> str:
    """What to measure so that the rule can pass."""
    rows, split = _rows_of(view, rule)
    if _population(view, rule, split, found.windows) != found.windows:
        return "Measure more windows: a larger --sample, or all of them."
    if rule.is_increase:
        return "More samples of what the two scans left undecided (--set residual=N, --set screen_samples=N) narrow it."
    if rule.criterion is not Criterion.NEAR:
        return "The server lists too few tokens to tell; ask for more of them (--set logprobs=N)."
    return samples_words(view, goal=math.floor(rule.limit * found.windows), split=split, rows=rows, level=1 - alpha)


def points(share: float) -> str:
    """A difference of two rates, which a percentage would leave ambiguous."""
    return f"{'−' if share < 0 else ''}{abs(100 * share):.1f} percentage points"


def rate_bracket(view: RunView, rule: Rule, *, alpha: float) -> RateBracket:
    """The rate over all windows of the texts: over those measured, if all were; else by the chance of the draw."""
    rows, split = _rows_of(view, rule)
    measured = int(rows.sum())
    population = _population(view, rule, split, measured)
    is_sample = population != measured
    low, high = _counts(view, rule, rows, split, level=1 - (alpha / 2 if is_sample else alpha))
    about = f"{measured:,} windows"
    if not is_sample:
        return RateBracket(low / measured, high / measured, measured, about)
    least = drawn_share(low, measured, population, alpha=alpha / 2).low
    most = drawn_share(high, measured, population, alpha=alpha / 2).high
    whole = "all" if population is None else f"{population:,}"
    return RateBracket(least, most, measured, f"{whole} windows ({measured:,} of them drawn)")


def _counts(view: RunView, rule: Rule, rows: Flags, split: Split, *, level: float) -> tuple[int, int]:
    """How many of the measured windows meet the criterion, at least and at most."""
    if rule.criterion is Criterion.NEAR:
        found = bracket_of(view, split=split, rows=rows, level=level)
        if found is None:
            raise RunError(f"{view.path} has no near-verbatim masses; scan with --measures near.")
        return found.certified, found.at_most
    # Greedy answers count when they are exact, as in every table.
    hits = hits_of(view.population, rule.criterion, edits=0, threshold=view.threshold)
    if hits is None:
        raise RunError(
            f"{view.path} did not measure {rule.criterion.value}; scan with --measures {rule.criterion.value}."
        )
    most = hits if rule.criterion is Criterion.GREEDY else view.population.verbatim_upper() >= view.threshold
    return int(hits[rows].sum()), int(most[rows].sum())


def _rows_of(view: RunView, rule: Rule) -> tuple[Flags, Split]:
    """The windows that a rule is about, and their split."""
    split = Split.CONTROL if (rule.grouping, rule.group) == ("split", "control") else Split.TARGET
    rows, choices = split_rows(view.population, split), ""
    column = {"kind": "kind", "tag": "tags", "document": "document"}.get(rule.grouping or "")
    if column is not None:
        if column not in view.results.columns:
            raise RunError(f"{view.path} has no {rule.grouping} of windows; records (--pairs) have one.")
        chosen = pl.col(column).list.contains(rule.group) if column == "tags" else pl.col(column) == rule.group
        rows = rows & np.asarray(view.results.select(chosen.fill_null(False)).to_series().to_numpy())
        values = view.results[column].explode() if column == "tags" else view.results[column]
        choices = f"; choose among {listed(values.drop_nulls().unique(maintain_order=True).to_list())}"
    if not rows.any():
        raise RunError(
            f"{view.path} has no window for {rule.text!r}, and a rate of nothing is neither high nor low{choices}."
        )
    return rows, split


def _population(view: RunView, rule: Rule, split: Split, measured: int) -> int | None:
    """How many windows the rate is about: those measured, or all that they were drawn from; None if not counted."""
    if not view.is_complete:
        raise RunError(
            f"{view.path} is not finished: what is there is no sample of the rest. Let the scan finish first."
        )
    selection = selection_of(view)
    if selection is None or selection["kind"] != "sample":
        return measured
    if len(view.population) < (selection.get("size") or 0):  # it fell short of its size, so it took all there was
        return measured
    if rule.grouping not in (None, "split") or not view.population.is_rated.all():
        return None
    return max(measured, int(selection["starts"][split.value]))


def _require_same_windows(view: RunView, baseline: RunView) -> None:
    ids = [set(one.results["window_id"].to_list()) for one in (view, baseline)]
    if ids[0] != ids[1]:
        raise RunError(
            f"{baseline.path} has {len(ids[1] - ids[0])} windows that {view.path} has not, and lacks "
            f"{len(ids[0] - ids[1])}; a baseline is a scan of the same windows."
        )
    contents = [{one.name: one.content_hash for one in each.documents} for each in (view, baseline)]
    for name, content in contents[0].items():
        if content != contents[1][name]:
            raise RunError(
                f"{name} is another text in {baseline.path} than in {view.path}; a baseline is a scan of the same."
            )
    for name in DECISIVE:
        if view.config[name] != baseline.config[name]:
            raise RunError(
                f"{baseline.path} was measured with {name.replace('_', '-')} {baseline.config[name]} and {view.path} "
                f"with {view.config[name]}; a baseline is measured alike."
            )


def as_json(view: RunView, judgement: Judgement, *, baseline: RunView | None = None) -> str:
    """Everything that was judged, with the brackets it rests on."""
    shown: dict[str, Any] = {
        "run": str(view.path),
        "model": view.model,
        "baseline": None if baseline is None else str(baseline.path),
        "threshold": view.threshold,
        "edit_budget": view.population.edit_budget,
        "confidence": judgement.confidence,
        "outcome": judgement.outcome.value,
        "rules": [
            {
                "rule": rule.name,
                "criterion": rule.criterion.value,
                "group": None if rule.grouping is None else f"{rule.grouping}:{rule.group}",
                "limit": rule.limit,
                "outcome": outcome.value,
                "low": low,
                "high": high,
                "windows": windows,
                "words": words,
            }
            for rule, outcome, low, high, windows, words in judgement.findings
        ],
    }
    return json.dumps(shown, indent=2, ensure_ascii=False)


def as_junit(view: RunView, judgement: Judgement) -> bytes:
    """One test case a rule: a failure where it fails, an error where it is undecided."""
    counts = [sum(finding.outcome is outcome for finding in judgement.findings) for outcome in Outcome]
    suite = ElementTree.Element(
        "testsuite",
        name=f"byrote gate {view.model}",
        tests=str(len(judgement.findings)),
        failures=str(counts[1]),
        errors=str(counts[2]),
    )
    for finding in judgement.findings:
        case = ElementTree.SubElement(suite, "testcase", classname="byrote.gate", name=finding.rule.name)
        if finding.outcome is not Outcome.PASS:
            kind = "failure" if finding.outcome is Outcome.FAIL else "error"
            ElementTree.SubElement(case, kind, message=finding.words, type=finding.outcome.value)
        ElementTree.SubElement(case, "system-out").text = finding.words
    ElementTree.indent(suite)
    written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written + b"\n"
