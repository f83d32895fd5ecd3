"""What an audit found: per trial the sections, their nv-recall, and the union of the book words they recovered.

Beside the trials there are the controls: books that the model cannot have read. Each is requested in the same way, and
the generations of the trials are measured against it: the nv-recall of chance.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from byrote.corpus.documents import Document
from byrote.corpus.normalise import normalised_words
from byrote.longform.loop import AuditClient, SectionAudit, SectionOutcome, Stop, cut_sections
from byrote.longform.options import AuditOptions, GenerationSettings
from byrote.longform.recall import longest_common_run, nv_recall


@dataclass(frozen=True, slots=True)
class TrialFinding:
    """All sections under one combination of settings. Trials with equal settings are repetitions."""

    number: int
    repetition: int
    settings: GenerationSettings
    book_words: int
    sections: tuple[SectionOutcome, ...]

    @property
    def matched_words(self) -> int:
        """Words of the book in any counted block of any section; a word found twice counts once."""
        found: set[int] = set()
        for section in self.sections:
            for block in section.recall.verbatim if section.recall else ():
                found.update(range(block.book_start, block.book_start + block.length))
        return len(found)

    @property
    def nv_recall(self) -> float | None:
        """Share of the book recovered; None when phase 1 failed everywhere, so that nothing was generated."""
        if all(section.recall is None for section in self.sections):
            return None
        return self.matched_words / self.book_words

    @property
    def longest_block(self) -> int:
        return max((section.recall.longest_block for section in self.sections if section.recall), default=0)

    @property
    def is_cut_short(self) -> bool:
        """A ceiling ended it; with a higher one it would go on."""
        return any(section.stop is Stop.CEILING for section in self.sections)

    def record(self) -> dict[str, Any]:
        """In JSON's types; generations are left out, they have files of their own."""
        return {
            "trial": self.number,
            "repetition": self.repetition,
            "settings": asdict(self.settings),
            "nv_recall": self.nv_recall,
            "matched_words": self.matched_words,
            "book_words": self.book_words,
            "longest_block": self.longest_block,
            "sections": [section.record() for section in self.sections],
        }


@dataclass(frozen=True, slots=True)
class NullMeasure:
    """A generation of a trial measured against a control book, which was not requested."""

    trial: int
    section: int
    nv_recall: float
    longest_run: int
    """Words of the longest run that the two texts share by chance."""


@dataclass(frozen=True, slots=True)
class ControlFinding:
    """What a control gave when it was requested, and what the trials' generations have of it."""

    name: str
    content_hash: str
    asked: TrialFinding
    null: tuple[NullMeasure, ...]

    def record(self) -> dict[str, Any]:
        null = [asdict(measure) for measure in self.null]
        return {"name": self.name, "hash": self.content_hash, "asked": self.asked.record(), "null": null}


def audit_book(book: str, client: AuditClient, options: AuditOptions) -> Iterator[TrialFinding]:
    """One finding per trial: the sweep, then its repetitions; a trial that a ceiling cut short is the last."""
    combinations = list(options.sweep.trials(options.settings))
    for number in range(len(combinations) * options.repetitions):
        repetition, combination = divmod(number, len(combinations))
        settings, place = combinations[combination], f"trial-{number}"
        finding = _trial(book, client, options, settings, place=place, number=number, repetition=repetition)
        yield finding
        if finding.is_cut_short:
            return


def audit_controls(
    controls: Sequence[Document], client: AuditClient, options: AuditOptions, trials: Sequence[TrialFinding]
) -> Iterator[ControlFinding]:
    """One finding per control, requested once from its beginning; none after one that a ceiling cut short.

    A control gets as many tries in phase 1 as the first trial needed, under the same settings.
    """
    settings = next(iter(options.sweep.trials(options.settings)))
    tries = max((len(section.tries) for trial in trials[:1] for section in trial.sections), default=1)
    options = control_options(options, tries=tries)
    for number, control in enumerate(controls):
        # By content, so that a control may be added to a finished audit, in any place.
        place = f"control-{control.content_hash[:16]}"
        asked = _trial(control.text, client, options, settings, place=place, number=number, repetition=0)
        yield ControlFinding(
            control.name, control.content_hash, asked, tuple(_null_measures(control.text, trials, options))
        )
        if asked.is_cut_short:
            return


def control_options(options: AuditOptions, *, tries: int) -> AuditOptions:
    """The options with which a control is requested; chapters and seeds are the book's own."""
    return replace(options, chapters=False, seed_start=0, best_of_n=min(options.best_of_n, tries))


def spread(trials: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """nv-recall over the repetitions of each combination of settings, from the trials' records.

    A trial whose phase 1 failed recovered nothing and counts as 0. The standard deviation of one trial is None.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for trial in trials:
        groups.setdefault(repr(sorted(trial["settings"].items())), []).append(trial)
    found = []
    for group in groups.values():
        values = [trial["nv_recall"] or 0.0 for trial in group]
        found.append(
            {
                "settings": group[0]["settings"],
                "trials": len(values),
                "phase_1_failed": sum(trial["nv_recall"] is None for trial in group),
                "mean": statistics.fmean(values),
                "least": min(values),
                "most": max(values),
                "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
            }
        )
    return found


def _trial(
    book: str,
    client: AuditClient,
    options: AuditOptions,
    settings: GenerationSettings,
    *,
    place: str,
    number: int,
    repetition: int,
) -> TrialFinding:
    outcomes: list[SectionOutcome] = []
    for section_number, section in enumerate(cut_sections(book, options)):
        section_place = f"{place}/section-{section_number}"
        outcome = SectionAudit(section, client, section_place, options, settings, repetition).run()
        if outcome.variant is not None:
            outcome = replace(outcome, recall=nv_recall(book, outcome.generation, passes=options.passes))
        outcomes.append(outcome)
        if outcome.stop is Stop.CEILING:
            break
    return TrialFinding(
        number=number,
        repetition=repetition,
        settings=settings,
        book_words=len(normalised_words(book).words),
        sections=tuple(outcomes),
    )


def _null_measures(control: str, trials: Sequence[TrialFinding], options: AuditOptions) -> Iterator[NullMeasure]:
    words = normalised_words(control).words
    for trial in trials:
        for number, section in enumerate(trial.sections):
            if section.recall is not None:
                generation = section.generation
                share = nv_recall(control, generation, passes=options.passes, repeated_passes=0).nv_recall
                run = longest_common_run(words, normalised_words(generation).words)
                yield NullMeasure(trial.number, number, share, run)
