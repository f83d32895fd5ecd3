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

import numpy as np
import polars as pl

from byrote.errors import ConfigError, RunError
from byrote.report.analysis.comparison import require_same_windows
from byrote.report.analysis.limits import answers_words, limit_of
from byrote.report.analysis.rates import Criterion, hits_of, split_rows
from byrote.report.templates import rendered
from byrote.report.view import RunView, selection_of
from byrote.report.words import listed, percent
from byrote.stats.answers import mean_at_most, mean_mass_at_most
from byrote.stats.intervals import check_level
from byrote.stats.limits import drawn_share
from byrote.stats.population import Flags
from byrote.types import Interval, Split

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


SIGNS = {Outcome.PASS: "pass", Outcome.FAIL: "**FAIL**", Outcome.CANNOT_TELL: "cannot tell"}
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
    """Between which numbers a rate or a mean lies, by the `windows` that were measured."""

    low: float
    high: float
    windows: int
    population: int | None
    """Windows it is about: those measured, or all that they were drawn from; None where these were not counted."""
    drawn: Callable[[int], tuple[float, float]] | None = None
    """Of drawn windows: between which numbers it would lie, were so many drawn."""

    @property
    def about(self) -> str:
        if self.drawn is None:
            return f"{self.windows:,} windows"
        whole = "all" if self.population is None else f"{self.population:,}"
        return f"{whole} windows ({self.windows:,} of them drawn)"


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
    if found.drawn is not None:
        words = ""
        for factor in MORE_WINDOWS:
            windows = min(factor * found.windows, found.population or factor * found.windows)
            low, high = found.drawn(windows)
            words = f"{'All ' * (windows == found.population)}{windows:,} windows would"
            if high <= rule.limit or low > rule.limit:
                return f"{words} decide it, if their share stays the same."
        return f"{words} not decide it either, should their share stay so near the limit."
    if rule.measured == "mass":
        return "More answers would tell (--answers N)."
    rows, split, *_ = _windows_of(view, rule)
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
    rows, split, measured, population = _windows_of(view, rule)
    level = 1 - (alpha if population == measured else alpha / 2)
    low, high = counts = _counts(view, rule, rows, split, level=level)

    def drawn(windows: int) -> tuple[float, float]:
        least, most = _shares(counts, measured, windows, population, alpha)
        return least.low, most.high

    return _bracket(measured, population, (low / measured, high / measured), drawn)


def _increase(view: RunView, baseline: RunView, rule: Rule, *, alpha: float) -> RateBracket:
    """The difference of two rates over the same windows, by those that meet the criterion in one run alone."""
    rows, _, measured, population = _windows_of(view, rule)
    hits_before = _flags(baseline, rule) & _windows_of(baseline, rule)[0]
    names_before = dict(zip(baseline.population.window_id, hits_before, strict=True))
    now = _flags(view, rule) & rows
    before = np.array([names_before[name] for name in view.population.window_id], dtype=np.bool_)
    more, fewer = int((now & ~before).sum()), int((before & ~now).sum())

    def drawn(windows: int) -> tuple[float, float]:
        up, down = _shares((more, fewer), measured, windows, population, alpha)
        return up.low - down.high, up.high - down.low

    change = (more - fewer) / measured
    return _bracket(measured, population, (change, change), drawn)


def _mean_mass(view: RunView, rule: Rule, *, alpha: float) -> RateBracket:
    """The mean over windows of the chance that a query brings the passage out within ε: certified from below, by
    sampled answers from above. Of drawn windows the mean of all is limited by Chernoff's bound."""
    rows, _, measured, population = _windows_of(view, rule)
    part = view.population.select(rows)
    if part.mass_lower is None or part.mass_upper is None:
        raise RunError(f"{view.path} has no near-verbatim masses; scan with --measures near.")
    low, high = float(part.mass_lower[:, -1].mean()), float(part.mass_upper[:, -1].mean())
    answers = 0 if part.answers is None else int(part.answers.sum())
    hits = 0 if part.answer_hits is None else int(part.answer_hits[:, -1].sum())
    most = min(high, mean_mass_at_most(hits, answers, level=1 - alpha)) if answers else high
    seen = min(high, hits / answers) if answers else high

    def drawn(windows: int) -> tuple[float, float]:
        return 1 - mean_at_most(1 - low, windows, alpha / 2), mean_at_most(seen, windows, alpha / 2)

    return _bracket(measured, population, (low, most), drawn)


def _bracket(
    measured: int, population: int | None, known: tuple[float, float], drawn: Callable[[int], tuple[float, float]]
) -> RateBracket:
    """What is `known` where all windows were measured; otherwise what so many `drawn` windows say about all."""
    if population == measured:
        return RateBracket(*known, measured, population)
    return RateBracket(*drawn(measured), measured, population, drawn)


def _shares(
    counts: tuple[int, int], measured: int, windows: int, population: int | None, alpha: float
) -> list[Interval]:
    """Limits of two shares of all windows, by counts as frequent among so many drawn `windows` as among those
    measured."""
    scaled = (min(windows, math.ceil(count * windows / measured)) for count in counts)
    return [drawn_share(count, windows, population, alpha=alpha / 2) for count in scaled]


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


class RuleWindows(NamedTuple):
    rows: Flags
    split: Split
    measured: int
    population: int | None
    """As in `RateBracket`."""


def _windows_of(view: RunView, rule: Rule) -> RuleWindows:
    """The windows that a rule is about."""
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
    measured = int(rows.sum())
    return RuleWindows(rows, split, measured, _population(view, rule, split, measured))


def _population(view: RunView, rule: Rule, split: Split, measured: int) -> int | None:
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


def as_junit(view: RunView, judgement: Judgement) -> str:
    """One test case a rule: a failure where it fails, an error where it is undecided."""
    return rendered("gate.xml", model=view.model, findings=judgement.findings)


def as_markdown(view: RunView, judgement: Judgement) -> str:
    """For the summary of a GitHub job: a heading, and a row for every rule with the bracket it was judged by."""
    return rendered("gate.md", view=view, judgement=judgement, signs=SIGNS)
