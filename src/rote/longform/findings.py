"""What an audit found: per trial the sections, their nv-recall, and the union of the book words they recovered."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rote.longform.loop import Ask, SectionOutcome, Stop, audit_section
from rote.longform.normalise import normalised_words
from rote.longform.options import AuditOptions, GenerationSettings
from rote.longform.recall import RecallResult, nv_recall
from rote.longform.sections import cut_sections


@dataclass(frozen=True, slots=True)
class SectionFinding:
    outcome: SectionOutcome
    recall: RecallResult | None
    """Of this section's generation against the whole book; None when phase 1 gave no generation to measure."""


@dataclass(frozen=True, slots=True)
class TrialFinding:
    """All sections under one combination of settings."""

    number: int
    settings: GenerationSettings
    book_words: int
    sections: tuple[SectionFinding, ...]

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
        return any(section.outcome.stop is Stop.CEILING for section in self.sections)

    def record(self) -> dict[str, Any]:
        """In JSON's types; texts are left out, they have files of their own."""
        return {
            "trial": self.number,
            "settings": asdict(self.settings),
            "nv_recall": self.nv_recall,
            "matched_words": self.matched_words,
            "book_words": self.book_words,
            "longest_block": self.longest_block,
            "sections": [_section_record(section) for section in self.sections],
        }


def audit_book(book: str, ask: Ask, options: AuditOptions) -> Iterator[TrialFinding]:
    """One finding per trial, in the order of the sweep; a trial that a ceiling cut short is the last."""
    sections = cut_sections(book, options)
    book_words = len(normalised_words(book).words)
    for number, settings in enumerate(options.sweep.trials(options.settings)):
        outcomes: list[SectionOutcome] = []
        for section_number, section in enumerate(sections):
            place = f"trial-{number}/section-{section_number}"
            outcomes.append(audit_section(section, ask, place=place, options=options, settings=settings))
            if outcomes[-1].stop is Stop.CEILING:
                break
        finding = TrialFinding(
            number=number,
            settings=settings,
            book_words=book_words,
            sections=tuple(_measured(book, outcome, options) for outcome in outcomes),
        )
        yield finding
        if finding.is_cut_short:
            return


def _measured(book: str, outcome: SectionOutcome, options: AuditOptions) -> SectionFinding:
    if outcome.variant is None:
        return SectionFinding(outcome, None)
    return SectionFinding(outcome, nv_recall(book, outcome.generation, passes=options.passes))


def _section_record(finding: SectionFinding) -> dict[str, Any]:
    outcome = finding.outcome
    return {
        "name": outcome.section.name,
        "char_start": outcome.section.char_start,
        "similarity": outcome.similarity,
        "variant": outcome.variant,
        "phase_1_requests": outcome.phase_1_requests,
        "turns": outcome.turns,
        "stop": outcome.stop,
        "generation_words": len(outcome.generation.split()),
        "recall": finding.recall.record() if finding.recall else None,
    }
