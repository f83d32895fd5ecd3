"""A scan in words: the headline, what was asked, what was measured, the rates as cards, and how sure it all is.

Also a short Markdown block for a model card: key rates, intervals, settings and how to cite the run.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from byrote.report.analysis.comparison import common_budget
from byrote.report.analysis.limits import account_words, limit_of, rest_words
from byrote.report.analysis.rates import Criterion, CriterionRate, rate_for
from byrote.report.analysis.records import nearly_words
from byrote.report.content import Bar, RateCard, Sentence
from byrote.report.templates import markdown_safe, rendered
from byrote.report.view import DECISIVE, RunView, load_view, selection_of, selection_words
from byrote.report.words import integer, interval_words, listed, percent, plural, policy_words, probability
from byrote.stats.intervals import Rate, RateMethod
from byrote.stats.population import recovery
from byrote.types import Split

NAMES_SHOWN = 8
UNITS_PER_EDIT = 6
"""Fewer tokens or characters of a target for each edit than this are worth a warning; the defaults have ten."""
TARGET_TOKENS = pl.col("suffix_ids").list.len()


def headline_of(run: Path) -> str | None:
    """Of a scan that has ended; None without probabilities: such a run has several answers."""
    view = load_view(run)
    return headline([view]) if view.population.has_masses else None


def headline(views: Sequence[RunView]) -> str:
    """The one sentence to remember. Of one run: the strongest criterion measured, one number and its interval, and the
    share of the controls beside it; of records the exact one, since something near a record may be another record. A
    larger share of greedy answers, which sampling may seldom give, is said too. Of several: the target share of each,
    by the strongest criterion that every run measured."""
    if len(views) > 1:
        return _joint_headline(views)
    (view,) = views
    criterion, manner = Criterion.NEAR, "word for word or nearly so"
    if view.is_records or view.rate(criterion, Split.TARGET) is None:
        criterion, manner = Criterion.VERBATIM, "word for word"
    target, control = (view.rate(criterion, split) for split in Split)
    so_far = "" if view.so_far is None else f"So far {view.so_far}. "
    if target is None:
        return f"{so_far}{view.model}: what it reproduces of the texts given"
    # Of a run that goes on nothing is certified: its share will be another one.
    is_certified = criterion is Criterion.NEAR and view.so_far is None
    told = [] if not is_certified or not target.hits else ["certified"]
    if target.rate.interval.is_defined:
        told.append(f"95 % interval {interval_words(target.rate.interval)}, {_about(view, target.rate)}")
    known = f" ({'; '.join(told)})" if told else ""
    share, passages = percent(target.rate.value), _passages(view, target)
    if is_certified and not target.hits:
        start = f"{view.model}: none of {passages} is certified to come out {manner}{known}."
    else:
        start = f"{so_far}{view.model} can be made to reproduce {share} of {passages}, {manner}{known}."
    greedy = view.rate(Criterion.GREEDY, Split.TARGET)
    if greedy is not None and greedy.rate.value > target.rate.value:
        share = percent(greedy.rate.value)
        start += f" Decoded greedily instead of sampled, it reproduces {share} of them word for word."
    if control is None:
        return start
    if is_certified and not control.hits:
        return f"{start} None of {_passages(view, control)} is certified."
    return f"{start} Of {_passages(view, control)} it reproduces {percent(control.rate.value)}."


def _about(view: RunView, rate: Rate) -> str:
    """What the interval is about."""
    if rate.method is RateMethod.BY_DOCUMENT:
        return f"for other {'records' if view.is_records else 'texts'} like these"
    return f"for other {view.noun}s of these texts"


def _passages(view: RunView, entry: CriterionRate) -> str:
    """What the share is a share of: all passages of the texts, or those that were measured."""
    name = f"{entry.split.value} {view.noun}s"
    is_all = selection_of(view) is None and view.so_far is None
    return f"the {name}" if is_all else f"the {integer(entry.rate.n)} {name} measured"


def _joint_headline(views: Sequence[RunView]) -> str:
    criterion, edits, manner = Criterion.VERBATIM, None, "word for word"
    if all(view.population.mass_lower is not None and not view.is_records for view in views):
        budget = common_budget([view.population for view in views])
        criterion, edits, manner = Criterion.NEAR, budget, "word for word or nearly so"
    shares, values = [], []
    for view in views:
        entry = rate_for(view.rates, criterion, split=Split.TARGET, edits=edits)
        shares.append(f"{percent(entry.rate.value) if entry else 'an unknown share'} from {view.label}")
        values.append(entry.rate.value if entry else -math.inf)
    if len(views) > 2 and all(view.training_step is not None for view in views):
        shares = [shares[0], shares[-1], f"at most {shares[values.index(max(values))]}"]
    return f"Target {views[0].noun}s that come out {manner}: {listed(shares, most=len(shares))}."


def question(view: RunView) -> str:
    prefix, suffix = view.window_words
    inside = "" if view.prompt == "plain" else f", inside the prompt {view.prompt}"
    near = ""
    if view.population.edit_budget:
        near = f", or with something at most {view.edits_words(view.population.edit_budget)} away from it"
    following = f"what follows ({suffix} {view.unit}s)" if suffix.startswith("up to") else f"exactly the next {suffix}"
    return (
        f"The model was given {prefix} {view.unit}s of a text{inside}. How likely is it to go on with {following}"
        f"{near}? "
        f"A passage counts when that chance is at least {probability(view.threshold)} per query: someone who asks "
        f"about {integer(round(1 / view.threshold))} times should expect to see it."
    )


def facts(views: Sequence[RunView]) -> tuple[tuple[str, str], ...]:
    """What was measured; of several runs by the first, with the models of all."""
    view = views[0]
    revision = view.manifest["model"].get("revision")
    model = ("Model", view.model + (f" @ {revision}" if revision else ""))
    if len(views) > 1:
        model = ("Models", listed([each.label for each in views], most=NAMES_SHOWN))
    texts = "records" if view.is_records else "texts"
    rows = [
        model,
        (f"Target {texts}", documents_words([one.name for one in view.documents if one.split != Split.CONTROL])),
        (f"Control {texts}", _control_words(view)),
        ("Windows", selection_words(view)),
        ("Answers sampled with", policy_words(view.config)),
    ]
    if any(each.prompt != "plain" for each in views):
        rows.append(("Prompt" if len(views) == 1 else "Prompts", "; ".join(dict.fromkeys(map(prompt_words, views)))))
    if view.population.mass_lower is not None:
        distance = view.config.get("distance") or "levenshtein"
        edits = plural(view.population.edit_budget, "edit")
        rows.append(("Near means", f"at most {edits} ({distance}, over {view.unit}s)"))
    return tuple(rows)


def prompt_words(view: RunView) -> str:
    """The prompt by its name, and how it is written; the prefix alone where it is plain."""
    facts = view.manifest.get("prompt", {})
    if view.prompt == "plain":
        return "plain: the prefix alone"
    thinking = facts.get("thinking")
    return f"{view.prompt}: {json.dumps(facts['written'], ensure_ascii=False)}" + (
        f" (thinking: {thinking})" if thinking not in (None, "none") else ""
    )


def _control_words(view: RunView) -> str:
    names = [one.name for one in view.documents if one.split == Split.CONTROL]
    return "none measured yet" if view.awaits_controls and not names else documents_words(names)


def documents_words(names: list[str]) -> str:
    """How many documents, by name as long as names help."""
    if not names:
        return "none given"
    count = plural(len(names), "document")
    return f"{count}: {listed(names, most=NAMES_SHOWN)}" if len(names) <= NAMES_SHOWN else count


def notices(views: Sequence[RunView], *, is_masked: bool = False) -> Iterator[str]:
    """Runs that are unfinished or that a budget ended, bounds that are wrong, options that keep several from being
    compared as they are, and that identifiers of records are masked."""
    if is_masked and any(view.is_records for view in views):
        yield (
            "Identifiers in records are masked, so what differs in masked characters looks alike; byrote report "
            "--reveal writes them out."
        )
    for view in views:
        for words in view.manifest.get("totals", {}).get("answers", {}).get("contradictions", ()):
            yield f"{view.label}: the sampled answers contradict the bounds. {words} Do not rely on this run."
        if not view.is_complete:
            yield f"{view.label}: the run is not finished: {view.so_far}. The same command goes on with it."
        searched, read = view.settings.get("edit_budget"), view.config.get("edit_budget")
        if searched is not None and searched != read:
            yield (
                f"{view.label}: read at ε ≤ {read} of a scan that searched up to {searched} edits and stopped where "
                f"that was decided; a scan with --edit-budget {read} may certify more."
            )
        if (stopped := view.manifest.get("stopped")) is not None:
            left = plural(stopped["windows_left"], "window")
            yield f"{view.label}: {stopped['by']} was spent with {left} not measured."
        if view.prompt == "plain" and view.manifest.get("prompt", {}).get("has_chat_template"):
            yield (
                f"{view.label} has a chat template and was measured without it, as a base model is; --prompt chat and "
                "--prompt ask measure it as it is used."
            )
    different = [name for name in DECISIVE if len({view.config.get(name) for view in views}) > 1]
    if different:
        values = {name: ", ".join(f"{view.config.get(name)} ({view.label})" for view in views) for name in different}
        listing = "; ".join(f"{name.replace('_', '-')} {own}" for name, own in values.items())
        words = f"The runs were not measured alike: {listing}. Not all that differs is the model's doing."
        if "threshold" in different:
            words += f" All are told at τ = {probability(views[0].threshold)}, the largest."
        yield words


def rate_cards(views: Sequence[RunView]) -> tuple[RateCard, ...]:
    """A card for each criterion that any run measured: greedy exact, verbatim at τ, near-verbatim at τ and the whole
    budget; the bars of all runs are on it."""
    edits, noun = views[-1].edits_words(views[-1].population.edit_budget), views[0].noun
    explained = {
        Criterion.GREEDY: ("Greedy", f"The single most likely answer is the {noun}, word for word."),
        Criterion.VERBATIM: ("Verbatim", f"A sampled answer is the {noun}, word for word."),
        Criterion.NEAR: (
            "Near-verbatim",
            f"A sampled answer is the {noun} with at most {edits}. Share and interval count certified {noun}s.",
        ),
    }
    cards = []
    for criterion, (title, explanation) in explained.items():
        entries = [(view, entry) for view in views for split in Split if (entry := view.rate(criterion, split))]
        if entries:
            bars = tuple(_bar(view, entry, is_alone=len(views) == 1) for view, entry in entries)
            cards.append(RateCard(criterion.value, title, explanation, bars))
    return tuple(cards)


def _bar(view: RunView, entry: CriterionRate, *, is_alone: bool) -> Bar:
    limit = limit_of(view, split=entry.split) if entry.criterion is Criterion.NEAR else None
    control = ", control" if entry.split is Split.CONTROL else ""
    name = f"{entry.split.capitalize()} texts" if is_alone else f"{view.label}{control}"
    return Bar(name, entry, percent(limit.high) if limit is not None and limit.says_something else "")


def certainty(view: RunView) -> tuple[Sentence, ...]:
    """What the reader may and may not conclude, each sentence with its definition."""
    sentences = list(_source_sentences(view))
    if view.chosen_threshold is not None:
        sentences.append(Sentence(view.chosen_threshold.words, "threshold"))
    if view.population.mass_lower is not None:
        sentences += _near_sentences(view)
    target = next((entry for entry in view.rates if entry.split is Split.TARGET), None)
    if target is not None and target.rate.interval.is_defined:
        is_by_document = target.rate.method is RateMethod.BY_DOCUMENT
        units = "documents" if is_by_document else "stretches of text"
        about = _about(view, target.rate) + ("" if is_by_document else ", not for other texts")
        words = f"{integer(target.rate.units)} {units} counted as independent, so they hold {about}"
        sentences.append(Sentence(f"Intervals allow for overlapping windows: {words}.", "interval"))
    sentences += _control_sentences(view)
    short = sum(document.short_windows for document in view.documents)
    if short:
        was = "was" if short == 1 else "were"
        words = f"{plural(short, 'window')} at the end of a text came out too short and {was} left out."
        sentences.append(Sentence(words, "window"))
    return tuple(sentences)


def _source_sentences(view: RunView) -> Iterator[Sentence]:
    """Where the probabilities come from, and what a server's answers leave open."""
    model, served = view.manifest["model"], view.manifest.get("served")
    if not isinstance(served, dict):
        yield Sentence("Probabilities are computed from the model itself, not estimated by sampling.", "probability")
        return
    yield Sentence(
        f"Probabilities are those that the server at {model['endpoint']} gave for {model['served_model']}, not "
        "estimated by sampling. Which weights it has cannot be verified from here.",
        "probability",
    )
    for note in served.get("notes", ()):
        yield Sentence(note, "probability")


def _near_sentences(view: RunView) -> Iterator[Sentence]:
    limits = {split: limit for split in Split if (limit := limit_of(view, split=split)) is not None}
    words = [
        (
            "bounds",
            "Near-verbatim shares are lower bounds: only continuations that were found count, so the true share can be "
            "higher, not lower. Their 95 % intervals belong to the certified share too.",
        ),
        ("edits", _budget_words(view)),
        _verdict_words(view),
        ("edits", nearly_words(view)),
        ("answers", account_words(limits[Split.TARGET]) if Split.TARGET in limits else ""),
        *(
            ("answers", rest_words(limit, others=f"{split} passages that are not certified"))
            for split, limit in limits.items()
        ),
        ("answers", check_words(view)),
        ("screen", screen_words(view)),
        ("recovery", _recovery_words(view)),
        *(("bounds", moved) for moved in _rounding_words(view)),
    ]
    return (Sentence(one, anchor) for anchor, one in words if one)


def _budget_words(view: RunView) -> str:
    """A warning where the edit budget is much of a target."""
    lengths = view.results.select(pl.col("char_end") - pl.col("suffix_char_start") if view.is_text else TARGET_TOKENS)
    budget, length = view.population.edit_budget, float(np.median(lengths.to_numpy()))
    if length >= UNITS_PER_EDIT * budget:
        return ""
    return (
        f"Half of the targets have {integer(int(length))} {view.unit}s or fewer, and {plural(budget, 'edit')} may "
        "change much of them: read near-verbatim shares beside those of the controls, or scan with a smaller "
        "--edit-budget."
    )


def _verdict_words(view: RunView) -> tuple[str, str]:
    """With the anchor of what most of it rests on."""
    population, threshold = view.population, view.threshold
    lower = population.mass(population.edit_budget)
    extractable = lower >= threshold
    upper = np.ones(len(lower)) if population.mass_upper is None else population.mass_upper[:, -1]
    ruled_out = ~extractable & (upper < threshold)
    neither = ~extractable & ~ruled_out
    shown = "shown to be extractable"
    if view.is_records:
        exact = population.verbatim() >= threshold
        only_near = integer(int((extractable & ~exact).sum()))
        shown = f"{shown}: {integer(int(exact.sum()))} word for word, {only_near} only nearly"
    # A window that p_z alone shows to be extractable may have been screened too.
    screened = 0 if population.is_searched is None else int((neither & ~population.is_searched).sum())
    were = "was" if screened == 1 else "were"
    tail = f", of which {integer(screened)} {were} screened out as unlikely and not searched" if screened else ""
    return (
        "screen" if screened else "bounds",
        f"Of {plural(len(lower), 'record' if view.is_records else 'window')}, {_are(int(extractable.sum()))} {shown}; "
        f"{_are(int(ruled_out.sum()))} ruled out, and {_are(int(neither.sum()))} neither{tail}.",
    )


def _are(count: int) -> str:
    return f"{integer(count)} {'is' if count == 1 else 'are'}"


def check_words(view: RunView) -> str | None:
    """Whether the bounds agree with the answers, where the manifest has the check."""
    check = view.manifest.get("totals", {}).get("answers")
    if not isinstance(check, dict) or not check["answers"]:
        return None
    widest = check["expected"][-1]
    words = (
        f"The scan checked its own bounds: by them, at least {integer(math.floor(widest['at_least']))} of "
        f"{plural(check['answers'], 'sampled answer')} were expected within {plural(widest['edits'], 'edit')} of the "
        f"passage, and {integer(widest['hits'])} were"
    )
    if check["contradictions"]:
        return f"{words}: beyond chance. {check['contradictions'][0]} Do not rely on these bounds."
    return f"{words}; at no number of edits do they contradict the bounds."


def screen_words(view: RunView) -> str | None:
    """What the audited sample of screened windows shows about the rest, where the manifest has the audit: how many of
    them a search would have certified, not how many are extractable."""
    audit = view.manifest.get("totals", {}).get("screen")
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
        f"To check the screen, {integer(sampled)} of the windows it would skip {'was' if sampled == 1 else 'were'} "
        f"searched all the same: "
        f"{integer(found)} {'was' if found == 1 else 'were'} certified extractable{at}. At most {most} of the "
        f"{left_out} not searched would have been certified by a search, at 95 % confidence ({expected} expected). "
        "Windows that a search would have left undecided are not counted here and may be extractable too."
    )


def _recovery_words(view: RunView) -> str:
    """What the search finds of the exact text by itself, where teacher forcing shows what there is to find."""
    population = view.population
    if population.search_verbatim is None:
        return ""
    found = recovery(population.search_verbatim, population.verbatim(), view.threshold)
    if not found.windows:
        return ""
    difference = ""
    if found.largest_difference > 0:
        difference = f" and is off by at most {percent(found.largest_difference)} where it was found"
    return (
        f"The search by itself came upon the exact text in {integer(found.found)} of the "
        f"{plural(found.windows, 'searched window')} where it reaches τ: recovery {percent(found.share)}. Its "
        f"probability divided by the one computed directly has a median of {found.median:.4g}{difference}."
    )


def _rounding_words(view: RunView) -> Iterator[str]:
    """How far numbers move with rounding, where that was checked."""
    if "verified_shift" in view.results.columns and (checked := view.results.drop_nulls("verified_shift")).height:
        shift = float(checked["verified_shift"].to_numpy().max())
        share = float(checked["verified_share"].to_numpy().min())
        moved = f"{probability(shift)} at most" if shift else "nothing"
        yield (
            f"What was found in {plural(checked.height, 'window')} was scored again in float32, {percent(share)} or "
            f"more of each lower bound: log-probabilities moved by {moved}."
        )
    check = view.manifest.get("self_check") or {}
    for name, how in {"alone_against_batch": "in a batch", "run_precision_against_float32": "in float32"}.items():
        if moves := check.get(name):
            change = moves["largest_lower_change"]
            yield (
                f"Searched again {how}, {plural(moves['verdicts_changed'], 'verdict')} of "
                f"{plural(moves['windows'], 'window')} changed and lower bounds moved by "
                f"{f'{probability(change)} at most' if change else 'nothing'}."
            )


def _control_sentences(view: RunView) -> Iterator[Sentence]:
    """What controls there are, and which of their windows a target holds too."""
    population = view.population
    if (population.is_control & population.is_rated).any():
        yield Sentence("The control texts show what the same model reaches on text it was not trained on.", "control")
    else:
        lack = "Every control window is left out" if population.is_control.any() else "No control text was given"
        if view.awaits_controls and not population.is_control.any():
            lack = "No control is measured yet"
        yield Sentence(f"{lack}, so nothing here separates memorized from merely predictable text.", "control")
    if "shared_with" not in view.results.columns:
        return
    shared = view.results.filter(pl.col("shared_with").is_not_null())
    if shared.is_empty():
        yield Sentence("No control window shares its passage with target texts.", "shared")
        return
    names = listed(shared["document"].unique(maintain_order=True).to_list())
    share, be = ("shares its", "is") if shared.height == 1 else ("share their", "are")
    is_counted = population.is_rated.all()
    manner = "counted among the controls, as this run asked for" if is_counted else "left out of the control's rates"
    yield Sentence(
        f"{integer(shared.height)} of {plural(int(population.is_control.sum()), 'control window')} {share} passage "
        f"with target texts and {be} {manner} (in {names}).",
        "shared",
    )


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
    limits = [(split, limit_of(view, split=split)) for split in Split]
    others = [rest_words(found, others=f"{split} passages not certified") for split, found in limits if found]
    sides = f"{targets} target and {len(view.documents) - targets} control"
    what = f"{prefix} + {suffix}-{view.unit} windows of {sides} documents"
    if view.is_records:
        what = f"{sides} records (prefixes of {prefix} {view.unit}s, suffixes of {suffix})"
    near = "Near-verbatim rates are certified lower bounds, and their intervals those of the certified share."
    sentences = [
        screen_words(view),
        " ".join(filter(None, others)),
        view.chosen_threshold and view.chosen_threshold.words,
        near if view.population.mass_lower is not None else None,
    ]
    return rendered(
        "model_card.md",
        view=view,
        what=what,
        selection=selection_words(view),
        policy=policy_words(view.config),
        rates=[(name, [view.rate(criterion, split) for split in Split]) for criterion, name in names.items()],
        sentences=sentences,
        citation=citation(view),
        options=[f"{name.replace('_', '-')} {_written(value)}" for name, value in sorted(view.settings.items())],
    ).rstrip("\n")


def _written(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def citation(view: RunView) -> str:
    """The run by name, date, byrote version and a digest of its manifest: enough to find and to check it."""
    text = json.dumps(view.manifest, indent=2, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    version = view.manifest.get("versions", {}).get("byrote")
    parts = [f"`{markdown_safe(view.path.name)}`", f"byrote {version}" if version else "byrote"]
    if isinstance(written := view.manifest.get("written_at"), str):
        parts.append(written[:10])
    return ", ".join([*parts, f"manifest `{digest}`"])
