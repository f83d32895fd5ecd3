"""What a run says in plain words, for page and terminal: what was measured, on what, what came out, how sure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rote.report.brackets import bracket_of, limit_words, most_words
from rote.report.certainty import Sentence, certainty
from rote.report.comparison import common_budget
from rote.report.rates import Criterion, CriterionRate, rate_for, rates_by_criterion
from rote.report.selection import is_selection, selection_words
from rote.report.view import DECISIVE, RunView
from rote.report.words import integer, interval_words, listed, percent, plural, policy_words, probability
from rote.types import Split

NAMES_SHOWN = 8
SPLIT_NAMES = {Split.TARGET: "Target texts", Split.CONTROL: "Control texts"}


@dataclass(frozen=True)
class Bar:
    """One rate drawn as a dot inside its interval; positions are percent of the track."""

    split: str
    split_name: str
    share: str
    count: str
    interval: str
    value: float
    low: float | None
    width: float | None


@dataclass(frozen=True)
class Card:
    criterion: str
    anchor: str
    title: str
    explanation: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class RunSummary:
    label: str
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Fact:
    name: str
    value: str


@dataclass(frozen=True)
class Summary:
    title: str
    date: str | None
    headline: str
    question: str
    warnings: tuple[str, ...]
    runs: tuple[RunSummary, ...]
    facts: tuple[Fact, ...]
    certainty: tuple[Sentence, ...]
    certainty_of: str | None = None
    """Of several runs, the one that the sentences are about."""

    @property
    def cards(self) -> tuple[Card, ...]:
        """One of every criterion that any run measured; the bars of all runs belong on it."""
        return tuple({card.criterion: card for run in self.runs for card in run.cards}.values())


def summarise(views: Sequence[RunView], warnings: Sequence[str] = ()) -> Summary:
    """The summary of one run, or of the first of several with the cards of all."""
    view = views[0]
    rates = rates_by_criterion(view.population, view.threshold)
    written = view.manifest.get("written_at")
    return Summary(
        title=f"{listed([each.label for each in views])} · rote memorization report",
        date=written[:10] if isinstance(written, str) else None,
        headline=headline(view, rates) if len(views) == 1 else joint_headline(views),
        question=question(view),
        warnings=(*warnings, *notices(views)),
        runs=tuple(run_summary(each) for each in views),
        facts=facts(view) if len(views) == 1 else (_models(views), *facts(view)[1:]),
        certainty=certainty(view, rates),
        certainty_of=None if len(views) == 1 else view.label,
    )


def notices(views: Sequence[RunView]) -> Iterator[str]:
    """What is missing from runs: those that are not finished, and those that a budget ended; and what keeps several
    from being compared as they are."""
    for view in views:
        if not view.is_complete:
            yield f"{view.label}: the run is not finished; this shows its finished windows."
    for view in views:
        if (stopped := view.manifest.get("stopped")) is not None:
            left = plural(stopped["windows_left"], "window")
            yield f"{view.label}: {stopped['by']} was spent with {left} not measured."
    if different := [name for name in DECISIVE if len({view.config.get(name) for view in views}) > 1]:
        values = (f"{name.replace('_', '-')} {_values(views, name)}" for name in different)
        told = (
            f" All are told at τ = {probability(views[0].threshold)}, the largest." if "threshold" in different else ""
        )
        yield f"The runs were not measured alike: {'; '.join(values)}. Not all that differs is the model's doing.{told}"


def _values(views: Sequence[RunView], name: str) -> str:
    """`1 (small), 0.5 (large)`."""
    return ", ".join(f"{view.config.get(name)} ({view.label})" for view in views)


def _models(views: Sequence[RunView]) -> Fact:
    return Fact("Models", listed([view.label for view in views], most=NAMES_SHOWN))


def headline(view: RunView, rates: list[CriterionRate]) -> str:
    """The one sentence to remember: the strongest criterion measured, target against control."""
    budget = view.population.edit_budget
    criterion, manner = Criterion.NEAR, "word for word or nearly so"
    edits: int | None = budget
    if rate_for(rates, Criterion.NEAR, split=Split.TARGET, edits=budget) is None:
        criterion, edits, manner = Criterion.VERBATIM, None, "word for word"
    target = rate_for(rates, criterion, split=Split.TARGET, edits=edits)
    control = rate_for(rates, criterion, split=Split.CONTROL, edits=edits)
    if target is None:
        return f"{view.model}: what it reproduces of the texts given"
    start = f"{view.model} can be made to reproduce {percent(target.rate.value)} of {_passages(view, target)} {manner}"
    limit = bracket_of(view, split=Split.TARGET)
    start += "" if limit is None else f" ({limit_words(limit)})"
    if control is None:
        return f"{start}."
    limit = bracket_of(view, split=Split.CONTROL)
    most = "" if limit is None else f" ({most_words(limit, with_samples=False)})"
    return f"{start}, and {percent(control.rate.value)} of {_passages(view, control)}{most}."


def _passages(view: RunView, entry: CriterionRate) -> str:
    """What the share is a share of: all passages of the texts, or those that were measured."""
    name = f"{entry.split.value} passages"
    return f"the {integer(entry.rate.n)} {name} measured" if is_selection(view) else f"the {name}"


def joint_headline(views: Sequence[RunView]) -> str:
    """The share of each run in one sentence, by the strongest criterion that every run measured."""
    all_near = all(view.population.mass_lower is not None for view in views)
    criterion, manner = (
        (Criterion.NEAR, "word for word or nearly so") if all_near else (Criterion.VERBATIM, "word for word")
    )
    edits = common_budget([view.population for view in views]) if all_near else None
    shares = []
    for view in views:
        rates = rates_by_criterion(view.population, view.threshold)
        entry = rate_for(rates, criterion, split=Split.TARGET, edits=edits)
        shares.append(f"{percent(entry.rate.value) if entry else 'an unknown share'} from {view.label}")
    return f"Target passages that come out {manner}: {listed(shares, most=len(shares))}."


def question(view: RunView) -> str:
    prefix, suffix = view.window_words
    near = (
        f", or with something at most {plural(view.population.edit_budget, 'token edit')} away from it"
        if view.population.edit_budget
        else ""
    )
    following = f"what follows ({suffix} tokens)" if suffix.startswith("up to") else f"exactly the next {suffix}"
    return (
        f"The model was given {prefix} tokens of a text. How likely is it to go on with {following}{near}? A passage "
        f"counts when that chance is at least {probability(view.threshold)} per query: someone who asks about "
        f"{integer(round(1 / view.threshold))} times should expect to see it."
    )


EXPLANATIONS = {
    Criterion.GREEDY: ("greedy", "Greedy", "The single most likely answer is the passage, word for word."),
    Criterion.VERBATIM: ("verbatim", "Verbatim", "A sampled answer is the passage, word for word."),
}


def run_summary(view: RunView) -> RunSummary:
    """A card for each criterion measured: greedy exact, verbatim at τ, near-verbatim at τ and the whole budget."""
    rates = rates_by_criterion(view.population, view.threshold)
    budget = view.population.edit_budget
    near_words = f"A sampled answer is the passage with at most {plural(budget, 'token edit')}."
    near = ("near", "Near-verbatim", f"{near_words} Share and interval count certified passages.")
    wanted = [
        (Criterion.GREEDY, 0, EXPLANATIONS[Criterion.GREEDY]),
        (Criterion.VERBATIM, None, EXPLANATIONS[Criterion.VERBATIM]),
        (Criterion.NEAR, budget, near),
    ]
    cards = []
    for criterion, edits, (anchor, title, explanation) in wanted:
        found = [rate_for(rates, criterion, split=split, edits=edits) for split in Split]
        bars = tuple(bar_of(view, entry) for entry in found if entry is not None)
        if bars:
            cards.append(Card(criterion.value, anchor, title, explanation, bars))
    return RunSummary(view.label, tuple(cards))


def bar_of(view: RunView, entry: CriterionRate) -> Bar:
    interval = entry.rate.interval
    limit = bracket_of(view, split=entry.split) if entry.criterion is Criterion.NEAR else None
    at_most = "" if limit is None else f", at most {percent(limit.high)}"
    return Bar(
        split=entry.split.value,
        split_name=SPLIT_NAMES[entry.split],
        share=percent(entry.rate.value),
        count=f"{integer(entry.hits)} of {integer(entry.rate.n)}{at_most}",
        interval=f"95 %: {interval_words(interval)}" if interval.is_defined else "no interval",
        value=round(100 * entry.rate.value, 2),
        low=round(100 * interval.low, 2) if interval.is_defined else None,
        width=round(100 * (interval.high - interval.low), 2) if interval.is_defined else None,
    )


def documents_words(names: list[str]) -> str:
    """How many documents, by name as long as names help."""
    if not names:
        return "none given"
    count = plural(len(names), "document")
    return f"{count}: {listed(names, most=NAMES_SHOWN)}" if len(names) <= NAMES_SHOWN else count


def facts(view: RunView) -> tuple[Fact, ...]:
    targets = [document.name for document in view.documents if document.split != Split.CONTROL]
    controls = [document.name for document in view.documents if document.split == Split.CONTROL]
    model = view.manifest.get("model")
    revision = model.get("revision") if isinstance(model, dict) else None
    rows = [
        Fact("Model", view.model + (f" @ {revision}" if revision else "")),
        Fact("Target texts", documents_words(targets)),
        Fact("Control texts", documents_words(controls)),
        Fact("Windows", selection_words(view)),
        Fact("Answers sampled with", policy_words(view.config)),
    ]
    if view.population.mass_lower is not None:
        distance = view.config.get("distance") or "levenshtein"
        rows.append(
            Fact("Near means", f"at most {plural(view.population.edit_budget, 'edit')} ({distance}, over tokens)")
        )
    return tuple(rows)
