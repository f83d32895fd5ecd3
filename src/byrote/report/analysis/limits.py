"""How many windows are extractable, certified from below, and what sampled answers say about the others."""

import math
from typing import Any, NamedTuple

from byrote.report.analysis.rates import split_rows
from byrote.report.view import RunView
from byrote.report.words import integer, plural
from byrote.stats.answers import Rest, rest_of
from byrote.stats.population import Flags
from byrote.types import Split

GOAL = 0.05
"""Where more than this share of the windows can be extractable beyond those certified, a run says how many answers
would tell."""
MORE_ANSWERS = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


class Limit(NamedTuple):
    """`certified` of `windows` are extractable within the whole edit budget; the others are `rest`."""

    windows: int
    certified: int
    rest: Rest
    threshold: float

    @property
    def at_most(self) -> int:
        """Extractable windows, at the confidence of `rest`."""
        return self.certified + self.rest.extractable(self.threshold)

    @property
    def high(self) -> float:
        return self.at_most / self.windows

    @property
    def says_something(self) -> bool:
        """Whether answers show that not every window that is open can be extractable."""
        return self.at_most < self.certified + self.rest.open

    def as_dict(self) -> dict[str, Any]:
        mean = self.rest.mean_mass
        return {
            "windows": self.windows,
            "certified": self.certified,
            "at_most": self.at_most,
            "others": self.rest.windows,
            "answers_to_others": self.rest.answers,
            "hits_among_others": self.rest.hits,
            "mean_mass_of_others_at_most": None if math.isnan(mean) else mean,
            "confidence": self.rest.level,
        }

    def answers_for(self, goal: float) -> int | None:
        """How many answers a window would bring the limit down to `goal` extractable windows, if hits stay as rare;
        None where no reasonable number does."""
        for answers in MORE_ANSWERS:
            reached = self.certified + self.rest.extractable(self.threshold, answers_each=answers)
            if answers > self.rest.answers_each and reached <= goal:
                return answers
        return None


def limit_of(
    view: RunView, *, split: Split = Split.TARGET, rows: Flags | None = None, level: float = 0.95
) -> Limit | None:
    """Of the windows of a split (of those, `rows`); None where near-verbatim masses were not measured or there is no
    such window."""
    counted = split_rows(view.population, split) & (True if rows is None else rows)
    rest = rest_of(view.population, counted, view.threshold, level=level)
    if rest is None or not counted.any():
        return None
    windows = int(counted.sum())
    return Limit(windows, windows - rest.windows, rest, view.threshold)


def rest_words(limit: Limit, *, others: str) -> str:
    """What the answers to `others` show, a sentence; nothing where there were none."""
    rest = limit.rest
    if not rest.answers:
        return ""
    came = "none" if rest.hits == 0 else integer(rest.hits)
    return (
        f"Of {plural(rest.answers, 'sampled answer')} to {others} {came} came near: at most "
        f"{at_most_percent(rest.mean_mass)} of queries to them do ({100 * rest.level:g} % confidence)."
    )


def at_most_percent(share: float) -> str:
    """An upper limit with two digits, rounded up."""
    step = 10.0 ** (math.floor(math.log10(100 * share)) - 1)
    return f"{min(100.0, math.ceil(100 * share / step - 1e-9) * step):.3g} %"


def account_words(limit: Limit) -> str:
    """How many windows can be extractable beyond those certified, and how many answers would say more."""
    rest = limit.rest
    if not rest.open:
        return ""
    start = (
        f"{plural(rest.open, 'target window')} {'is' if rest.open == 1 else 'are'} neither certified nor ruled out at "
        f"τ = {limit.threshold:g}. "
    )
    if limit.says_something:
        start += (
            f"By their answers at most {integer(limit.at_most - limit.certified)} of them are extractable "
            f"({100 * rest.level:g} % confidence)."
        )
    else:
        few = (
            f"{plural(rest.answers_each, 'answer')} each cannot tell" if rest.answers_each else "Nothing sampled tells"
        )
        start += f"{few} how many of them are extractable."
    if limit.at_most - limit.certified <= GOAL * limit.windows:
        return start
    goal = limit.certified + math.floor(GOAL * limit.windows)
    return f"{start} {answers_words(limit, goal)}"


def answers_words(limit: Limit, goal: int) -> str:
    """Which `--answers` would bring the limit down to `goal` windows."""
    answers = limit.answers_for(goal)
    if answers is None:
        return f"Not even {integer(MORE_ANSWERS[-1])} answers each would bring that down to {integer(goal)}."
    beyond = "no more of them come near" if limit.rest.open_hits else "none comes near"
    return f"--answers {answers} would bring all that can be down to {plural(goal, 'window')}, if {beyond}."
