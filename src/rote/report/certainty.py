"""What a reader may and may not conclude from a run, each sentence with the definition it rests on."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from rote.report.brackets import account_words, bracket_of, narrower_words
from rote.report.rates import CriterionRate
from rote.report.view import RunView
from rote.report.words import integer, listed, percent, plural, probability, unit_words
from rote.stats.population import Population
from rote.stats.recovery import recovery
from rote.types import Split

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
