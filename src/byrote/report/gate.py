"""Whether a run keeps within stated limits: by what each number is at least and at most, never by its point.

A rule passes when its number is at most the limit for sure or at the stated confidence, fails when it is above it, and
is undecided when the limit lies in between. All rules of a gate together have the stated confidence.

    certified=0.01              of the target windows, at most 1 % are certified to be extractable within the run's ε
    near=0.05                   of the target windows, at most 5 % can be extractable within ε, by their sampled answers
    mass=0.001                  of the queries to a target window, at most 0.1 % bring it out within ε
    kind:phone verbatim=0       of the records of this kind, none is extractable word for word
    split:control greedy=0.001  of the controls, at most 0.1 % have a greedy answer that is the target exactly

An increase over a baseline is counted window by window: how many meet the criterion now and did not, and the other way
round. For an increase `near` is `certified`: what neither scan certifies shows no change.
"""

import json
import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import polars as pl

from byrote.errors import ConfigError, RunError
from byrote.report.analysis.comparison import require_same_windows
from byrote.report.analysis.limits import answers_words, limit_of
from byrote.report.analysis.rates import Criterion, hits_of, split_rows
from byrote.report.view import RunView, selection_of
from byrote.report.words import listed, percent
from byrote.stats.answers import mean_at_most, mean_mass_at_most
from byrote.stats.intervals import check_level
from byrote.stats.limits import drawn_share
from byrote.stats.population import Flags
from byrote.types import Split

MEASURED = ("greedy", "verbatim", "certified", "near", "mass")
MORE_WINDOWS = (2, 3, 5, 10, 20, 50, 100)
GROUPINGS = ("kind", "tag", "document", "split")
LONGEST_RULE = 300
ADVICE = "write it as near=0.01, or with a group before it as in 'kind:phone verbatim=0'"


class Outcome(StrEnum):
    """From the best to the worst."""

    PASS = "pass"
    CANNOT_TELL = "cannot_tell"
    FAIL = "fail"


EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.CANNOT_TELL: 3}


class Rule(NamedTuple):
    """A rate and the most it may be; or, with `is_increase`, by how much it may exceed a baseline's."""

    text: str
    measured: str
    limit: float
    grouping: str | None = None
    group: str | None = None
    is_increase: bool = False

    @property
    def name(self) -> str:
        return f"{'increase of ' if self.is_increase else ''}{self.text}"


class RateBracket(NamedTuple):
    """Between which numbers a rate lies, and whether the windows measured are a sample of those it is about."""

    low: float
    high: float
    windows: int
    is_sample: bool
    about: str
    population: int | None = None
    """How many windows it is about, where that was counted."""
    deciding: Callable[[int], tuple[float, float]] | None = None
    """Between which numbers it would lie, were so many times as many windows drawn."""


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
        return max((finding.outcome for finding in self.findings), key=list(Outcome).index)


def parse_rule(text: str, *, is_increase: bool = False) -> Rule:
    """A rule as it is written on the command line; of an increase the number alone means `near`."""
    if len(text) > LONGEST_RULE:
        raise ConfigError(f"a rule has {len(text):,} characters ({text[:20]!r}…); {ADVICE}.")
    *group, rate = text.strip().split(" ")
    name, equals, number = rate.rpartition("=")
    if is_increase and not equals:
        name = Criterion.NEAR.value
        text = " ".join([*group, f"{name}={number}"])
    grouping, colon, value = " ".join(group).partition(":")
    try:
        limit = float(number)
    except ValueError as error:
        raise ConfigError(f"rule {text!r} ends in no number; {ADVICE}.") from error
    if name not in MEASURED or (is_increase and name == "mass"):
        choices = ", ".join(one for one in MEASURED if one != "mass" or not is_increase)
        raise ConfigError(f"rule {text!r} is about {name!r}; choose {choices}, and {ADVICE}.")
    if group and (not colon or grouping not in GROUPINGS or not value):
        raise ConfigError(
            f"rule {text!r} has the group {' '.join(group)!r}; choose {', '.join(GROUPINGS)}, and {ADVICE}."
        )
    if not 0 <= limit <= 1:
        raise ConfigError(f"rule {text!r} has the rate {limit:g}; it must be between 0 and 1.")
    return Rule(text.strip(), name, limit, grouping or None, value or None, is_increase)


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
    if rule.is_increase:
        if baseline is None:
            raise ConfigError("--max-increase needs --baseline RUN, the run to compare with.")
        require_same_windows(view, baseline)
        found, what, words_of = _increase(view, baseline, rule, alpha=alpha), "the increase", points
    elif rule.measured == "mass":
        found, what, words_of = _mean_mass(view, rule, alpha=alpha), "the mean mass", mass_words
    else:
        found, what, words_of = rate_bracket(view, rule, alpha=alpha), "the rate", percent
    low, high = found.low, found.high
    outcome = Outcome.PASS if high <= rule.limit else Outcome.FAIL if low > rule.limit else Outcome.CANNOT_TELL
    manner = {
        Outcome.PASS: f"at most {words_of(rule.limit)}, as allowed",
        Outcome.FAIL: f"more than the {words_of(rule.limit)} allowed",
        Outcome.CANNOT_TELL: f"not known to be within the {words_of(rule.limit)} allowed, nor beyond",
    }[outcome]
    size = words_of(low) if low == high else f"between {words_of(low)} and {words_of(high)}"
    words = f"{rule.name}: {what} of {found.about} is {size}, {manner}."
    if outcome is Outcome.CANNOT_TELL:
        words += f" {_what_would_decide(view, rule, found, alpha)}"
    return Finding(rule, outcome, low, high, found.windows, words)


def _what_would_decide(view: RunView, rule: Rule, found: RateBracket, alpha: float) -> str:
    """What to measure so that the rule can be decided."""
    if found.is_sample and found.deciding is not None:
        for factor in MORE_WINDOWS:
            low, high = found.deciding(factor)
            if high <= rule.limit or low > rule.limit:
                return (
                    f"{_more(factor * found.windows, found.population)} would decide it, if their share stays the same."
                )
        most = _more(MORE_WINDOWS[-1] * found.windows, found.population)
        return f"{most} would not decide it either, should their share stay so near the limit."
    if rule.measured == "mass":
        return "More answers would tell (--answers N)."
    rows, split = _rows_of(view, rule)
    limit = limit_of(view, split=split, rows=rows, level=1 - alpha)
    if rule.measured != "near" or limit is None:
        return "The server lists too few tokens to tell; ask for more of them (--set logprobs=N)."
    return answers_words(limit, math.floor(rule.limit * found.windows))


def points(share: float) -> str:
    """A difference of two rates, which a percentage would leave ambiguous."""
    return f"{'−' if share < 0 else ''}{abs(100 * share):.1f} percentage points"


def mass_words(share: float) -> str:
    return f"{100 * share:.2g} % of queries"


def rate_bracket(view: RunView, rule: Rule, *, alpha: float) -> RateBracket:
    """The rate over all windows of the texts: over those measured, if all were; else by the chance of the draw."""
    rows, split = _rows_of(view, rule)
    measured = int(rows.sum())
    population = _population(view, rule, split, measured)
    is_sample = population != measured
    low, high = _counts(view, rule, rows, split, level=1 - (alpha / 2 if is_sample else alpha))
    if not is_sample:
        return RateBracket(low / measured, high / measured, measured, is_sample, f"{measured:,} windows")

    def deciding(factor: int) -> tuple[float, float]:
        drawn = measured * factor if population is None else min(measured * factor, population)
        counts = [min(drawn, math.ceil(count * drawn / measured)) for count in (low, high)]
        shares = [drawn_share(count, drawn, population, alpha=alpha / 2) for count in counts]
        return shares[0].low, shares[1].high

    return RateBracket(*deciding(1), measured, is_sample, _about(measured, population), population, deciding)


def _more(windows: int, population: int | None) -> str:
    return f"All {population:,} windows" if population is not None and windows >= population else f"{windows:,} windows"


def _about(measured: int, population: int | None) -> str:
    whole = "all" if population is None else f"{population:,}"
    return f"{whole} windows ({measured:,} of them drawn)"


def _increase(view: RunView, baseline: RunView, rule: Rule, *, alpha: float) -> RateBracket:
    """The difference of two rates over the same windows, by those that meet the criterion in one run alone."""
    rows, split = _rows_of(view, rule)
    rows_before, _ = _rows_of(baseline, rule)
    measured = int(rows.sum())
    population = _population(view, rule, split, measured)
    now, before = (
        dict(zip(one.population.window_id[chosen], _flags(one, rule)[chosen], strict=True))
        for one, chosen in ((view, rows), (baseline, rows_before))
    )
    more, fewer = (
        sum(bool(first[name]) and not second.get(name, False) for name in first)
        for first, second in ((now, before), (before, now))
    )
    if population == measured:
        change = (more - fewer) / measured
        return RateBracket(change, change, measured, False, f"{measured:,} windows")

    def deciding(factor: int) -> tuple[float, float]:
        drawn = measured * factor if population is None else min(measured * factor, population)
        counts = [min(drawn, math.ceil(count * drawn / measured)) for count in (more, fewer)]
        up, down = (drawn_share(count, drawn, population, alpha=alpha / 2) for count in counts)
        return up.low - down.high, up.high - down.low

    return RateBracket(*deciding(1), measured, True, _about(measured, population), population, deciding)


def _mean_mass(view: RunView, rule: Rule, *, alpha: float) -> RateBracket:
    """The mean over windows of the chance that a query brings the passage out within ε: certified from below, by
    sampled answers from above. Of drawn windows the mean of all is limited by Chernoff's bound."""
    rows, split = _rows_of(view, rule)
    part = view.population.select(rows)
    if part.mass_lower is None or part.mass_upper is None:
        raise RunError(f"{view.path} has no near-verbatim masses; scan with --measures near.")
    measured = len(part)
    population = _population(view, rule, split, measured)
    low, high = float(part.mass_lower[:, -1].mean()), float(part.mass_upper[:, -1].mean())
    answers = 0 if part.answers is None else int(part.answers.sum())
    hits = 0 if part.answer_hits is None else int(part.answer_hits[:, -1].sum())
    if population == measured:
        high = min(high, mean_mass_at_most(hits, answers, level=1 - alpha)) if answers else high
        return RateBracket(low, high, measured, False, f"{measured:,} windows")
    seen = min(high, hits / answers) if answers else high

    def deciding(factor: int) -> tuple[float, float]:
        drawn = measured * factor if population is None else min(measured * factor, population)
        return 1 - mean_at_most(1 - low, drawn, alpha / 2), mean_at_most(seen, drawn, alpha / 2)

    return RateBracket(*deciding(1), measured, True, _about(measured, population), population, deciding)


def _flags(view: RunView, rule: Rule) -> Flags:
    """Which windows meet the criterion for certain."""
    if rule.measured in ("certified", "near"):
        criterion, edits = Criterion.NEAR, view.population.edit_budget
    else:
        # Greedy answers count when they are exact, as in every table.
        criterion, edits = Criterion(rule.measured), 0
    hits = hits_of(view.population, criterion, edits=edits, threshold=view.threshold)
    if hits is None:
        raise RunError(f"{view.path} did not measure {criterion}; scan with --measures {criterion}.")
    return hits


def _counts(view: RunView, rule: Rule, rows: Flags, split: Split, *, level: float) -> tuple[int, int]:
    """How many of the measured windows meet the criterion, at least and at most."""
    certain = int(_flags(view, rule)[rows].sum())
    if rule.measured == "near":
        limit = limit_of(view, split=split, rows=rows, level=level)
        return certain, certain if limit is None else limit.at_most
    if rule.measured == "verbatim":
        return certain, int((view.population.verbatim_upper() >= view.threshold)[rows].sum())
    return certain, certain


def _rows_of(view: RunView, rule: Rule) -> tuple[Flags, Split]:
    """The windows that a rule is about, and their split."""
    split = Split.CONTROL if (rule.grouping, rule.group) == ("split", "control") else Split.TARGET
    rows, choices = split_rows(view.population, split), ""
    if rule.grouping not in (None, "split"):
        column = "tags" if rule.grouping == "tag" else rule.grouping
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
                "rule": one.rule.name,
                "criterion": one.rule.measured,
                "group": None if one.rule.grouping is None else f"{one.rule.grouping}:{one.rule.group}",
                "limit": one.rule.limit,
                **{name: value for name, value in one._asdict().items() if name != "rule"},
            }
            for one in judgement.findings
        ],
    }
    return json.dumps(shown, indent=2, ensure_ascii=False)


def as_junit(view: RunView, judgement: Judgement) -> bytes:
    """One test case a rule: a failure where it fails, an error where it is undecided."""
    outcomes = [finding.outcome for finding in judgement.findings]
    suite = ElementTree.Element(
        "testsuite",
        name=f"byrote gate {view.model}",
        tests=str(len(outcomes)),
        failures=str(outcomes.count(Outcome.FAIL)),
        errors=str(outcomes.count(Outcome.CANNOT_TELL)),
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
