"""What a reader may and may not conclude from a run, each sentence with the definition it rests on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from byrote.report.comparison import common_budget
from byrote.report.limits import account_words, bracket_of, limit_words, most_words, narrower_words
from byrote.report.rates import Criterion, CriterionRate, rate_for, rates_by_criterion
from byrote.report.view import DECISIVE, RunView, is_selection, selection_words
from byrote.report.words import integer, interval_words, listed, percent, plural, policy_words, probability, unit_words
from byrote.stats.population import Population, recovery
from byrote.types import Split

TOKENS_PER_EDIT = 6
"""Fewer tokens of a target for each edit than this are worth a warning; the defaults have ten."""


@dataclass(frozen=True)
class Sentence:
    text: str
    anchor: str | None = None


def certainty(view: RunView, rates: list[CriterionRate]) -> tuple[Sentence, ...]:
    """What the reader may and may not conclude, each sentence with its definition."""
    population = view.population
    sentences = _source_sentences(view)
    if view.chosen_threshold is not None:
        sentences.append(Sentence(view.chosen_threshold.words, "threshold"))
    if population.mass_lower is not None:
        sentences.append(
            Sentence(
                "Near-verbatim shares are lower bounds: only continuations that were found count, so the true share "
                "can be higher, not lower. Their 95 % intervals belong to the certified share too.",
                "bounds",
            )
        )
        sentences += _short_target_sentences(view)
        sentences.append(_verdict_sentence(view))
        sentences += _bracket_sentences(view)
        sentences += _screen_sentences(view)
        sentences += _recovery_sentences(view)
        sentences += _rounding_sentences(view)
    target = next((entry for entry in rates if entry.split is Split.TARGET), None)
    if target is not None:
        sentences.append(Sentence(f"Intervals allow for overlapping windows: {unit_words(target.rate)}.", "interval"))
    sentences.append(_control_sentence(population))
    sentences += _shared_sentences(view)
    short = sum(document.short_windows for document in view.documents)
    if short:
        sentences.append(
            Sentence(f"{plural(short, 'window')} at the end of a text came out too short and were left out.", "window")
        )
    return tuple(sentences)


def _source_sentences(view: RunView) -> list[Sentence]:
    """Where the probabilities come from, and what a server's answers leave open."""
    model, served = view.manifest.get("model"), view.manifest.get("served")
    if not isinstance(model, dict) or not isinstance(served, dict):
        return [Sentence("Probabilities are computed from the model itself, not estimated by sampling.", "probability")]
    told = (
        f"Probabilities are those that the server at {model['endpoint']} told for {model['served_model']}, not "
        "estimated by sampling. Which weights it has cannot be verified from here."
    )
    return [Sentence(words, "probability") for words in (told, *served.get("notes", ()))]


def _short_target_sentences(view: RunView) -> list[Sentence]:
    """Where the edit budget is a large part of the targets, being near them says little."""
    budget, tokens = view.population.edit_budget, float(np.median(view.results["suffix_ids"].list.len().to_numpy()))
    if budget == 0 or tokens >= TOKENS_PER_EDIT * budget:
        return []
    return [
        Sentence(
            f"Half of the targets have {integer(int(tokens))} tokens or fewer, and {plural(budget, 'edit')} may change "
            "much of them: read near-verbatim shares beside the controls', or scan with a smaller --edit-budget.",
            "edits",
        )
    ]


def _verdict_sentence(view: RunView) -> Sentence:
    population, threshold = view.population, view.threshold
    lower = population.mass(population.edit_budget)
    extractable = lower >= threshold
    upper = np.ones(len(lower)) if population.mass_upper is None else population.mass_upper[:, -1]
    ruled_out = ~extractable & (upper < threshold)
    neither = ~extractable & ~ruled_out
    # A window that p_z alone shows to be extractable may have been screened too.
    screened = 0 if population.is_searched is None else int((neither & ~population.is_searched).sum())
    tail = f", of which {integer(screened)} were screened out as unlikely and not searched" if screened else ""
    return Sentence(
        f"Of {integer(len(lower))} windows, {integer(int(extractable.sum()))} are shown to be extractable, "
        f"{integer(int(ruled_out.sum()))} are ruled out, and {integer(int(neither.sum()))} are neither{tail}.",
        "screen" if screened else "bounds",
    )


def _bracket_sentences(view: RunView) -> list[Sentence]:
    found = bracket_of(view)
    has_open = found is not None and bool(found.undecided or found.left_out)
    if found is None or not has_open:
        return []
    return [Sentence(account_words(found) + narrower_words(view, found), "bracket")]


def _screen_sentences(view: RunView) -> list[Sentence]:
    words = screen_words(view)
    return [] if words is None else [Sentence(words, "screen")]


def screen_words(view: RunView) -> str | None:
    """What the audited sample of screened windows says about the rest, where the manifest has the audit: how many of
    them a search would have certified, not how many are extractable."""
    totals = view.manifest.get("totals")
    audit = totals.get("screen") if isinstance(totals, dict) else None
    if not isinstance(audit, dict) or not audit.get("not_searched") or "would_be_certified_at_most" not in audit:
        return None  # no audit, or that of an earlier version, which called these windows missed
    sampled, found = int(audit["searched_all_the_same"]), int(audit["certified_in_sample"])
    most = integer(int(audit["would_be_certified_at_most"]))
    left_out = integer(int(audit["not_searched"]))
    if audit["would_be_certified_expected"] is None:
        return f"Nothing checks the screen: none of the {left_out} windows it skipped was searched."
    expected = f"{float(audit['would_be_certified_expected']):.1f}".removesuffix(".0")
    at = "" if view.chosen_threshold is None else f" at the run's τ = {probability(view.run_threshold)}"
    return (
        f"To check the screen, {integer(sampled)} of the windows it would skip were searched all the same: "
        f"{integer(found)} {'was' if found == 1 else 'were'} certified extractable{at}. At most {most} of the "
        f"{left_out} not searched would have been certified by a search, at 95 % confidence ({expected} expected). "
        "Windows that a search would have left undecided are not counted here and may be extractable too."
    )


def _recovery_sentences(view: RunView) -> list[Sentence]:
    """What the search finds of the exact text by itself, where teacher forcing says what is there to find."""
    population = view.population
    if population.search_verbatim is None:
        return []
    found = recovery(population.search_verbatim, population.verbatim(), view.threshold)
    if not found.windows:
        return []
    difference = ""
    if found.found and found.largest_difference > 0:
        difference = f" and is off by at most {percent(found.largest_difference)} where it was found"
    return [
        Sentence(
            f"The search by itself came upon the exact text in {integer(found.found)} of the "
            f"{plural(found.windows, 'searched window')} where it reaches τ: recovery {percent(found.share)}. Its "
            f"probability divided by the one computed directly has a median of {found.median:.4g}{difference}.",
            "recovery",
        )
    ]


def _rounding_sentences(view: RunView) -> list[Sentence]:
    """How far numbers move with rounding, where that was looked at."""
    sentences = []
    if "verified_shift" in view.results.columns and (checked := view.results.drop_nulls("verified_shift")).height:
        shift = float(checked["verified_shift"].to_numpy().max())
        share = float(checked["verified_share"].to_numpy().min())
        sentences.append(
            f"What was found in {plural(checked.height, 'window')} was scored again in float32, {percent(share)} or "
            f"more of each lower bound: log-probabilities moved by {_moved(shift)}."
        )
    if isinstance(found := view.manifest.get("self_check"), dict):
        words = (("alone_against_company", "alone and in a batch"), ("run_precision_against_float32", "in float32 too"))
        sentences += [
            f"Searched again {how}, {plural(moves['verdicts_changed'], 'verdict')} of "
            f"{plural(moves['windows'], 'window')} changed and lower bounds moved by "
            f"{_moved(moves['largest_lower_change'])}."
            for name, how in words
            if (moves := found[name])
        ]
    return [Sentence(words, "bounds") for words in sentences]


def _moved(distance: float) -> str:
    return f"{probability(distance)} at most" if distance else "nothing"


def _shared_sentences(view: RunView) -> list[Sentence]:
    """Control windows that a target holds too, and whether they were counted."""
    if "shared_with" not in view.results.columns:
        return []
    shared = view.results.filter(pl.col("shared_with").is_not_null())
    if shared.is_empty():
        return [Sentence("No control window shares its passage with target texts.", "shared")]
    controls = int(view.population.is_control.sum())
    names = listed(shared["document"].unique(maintain_order=True).to_list())
    share, be = ("shares its", "is") if shared.height == 1 else ("share their", "are")
    manner = "left out of the control's rates"
    if view.population.is_rated.all():
        manner = "counted among the controls, as this run asked for"
    return [
        Sentence(
            f"{integer(shared.height)} of {plural(controls, 'control window')} {share} passage with target texts and "
            f"{be} {manner} (in {names}).",
            "shared",
        )
    ]


def _control_sentence(population: Population) -> Sentence:
    if (population.is_control & population.is_rated).any():
        return Sentence("The control texts show what the same model reaches on text it was not trained on.", "control")
    lack = "Every control window is left out" if population.is_control.any() else "No control text was given"
    return Sentence(f"{lack}, so nothing here separates memorized from merely predictable text.", "control")


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
        title=f"{listed([each.label for each in views])} · byrote memorization report",
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
