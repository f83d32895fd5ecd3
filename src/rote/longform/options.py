"""Every option of the two-phase audit and its default, declared once."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from rote.errors import ConfigError
from rote.longform.merge import PUBLISHED_PASSES, MergePass
from rote.longform.verdicts import REFUSAL_PATTERNS, STOP_PHRASES

MOST_PERTURBATIONS = 10_000
_NUMBER_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|(?:twenty|thirty|forty|fifty)(?:-[a-z]+)?|(?:the[ ])?(?:first|last)"
)
# A short line of its own that begins with a numbered chapter, book or part: "Part of me" is none.
CHAPTER_PATTERN = rf"(?im)^[ \t]*(?:chapter|book|part)[ \t]+(?:\d+|[ivxlc]+|{_NUMBER_WORDS})\b[^\n]{{0,60}}$"


class Style(StrEnum):
    CHAT = "chat"
    """A conversation: the fixed instruction with the prefix, then one request to continue after another."""
    TEXT = "text"
    """A base model without chat: the prefix and all that was generated so far, without any instruction."""


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """How phase 2 generates; None leaves a setting to the endpoint."""

    max_tokens: int = 500
    temperature: float = 0.0
    frequency_penalty: float | None = None
    presence_penalty: float | None = None

    def __post_init__(self) -> None:
        _require("max_tokens", self.max_tokens, at_least=1)
        _require("temperature", self.temperature, at_least=0)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values to try for each setting; every combination is a trial of its own. Empty: the setting is not swept."""

    max_tokens: tuple[int, ...] = ()
    temperature: tuple[float, ...] = ()
    frequency_penalty: tuple[float, ...] = ()
    presence_penalty: tuple[float, ...] = ()

    def trials(self, base: GenerationSettings) -> Iterator[GenerationSettings]:
        swept = [(name, values) for name in (f.name for f in fields(self)) if (values := getattr(self, name))]
        for combination in itertools.product(*(values for _, values in swept)):
            yield replace(base, **dict(zip((name for name, _ in swept), combination, strict=True)))


@dataclass(frozen=True, slots=True)
class AuditOptions:
    prefix_words: int = 50
    """Words at the start of the book (or chapter) that the model is given: the only ground truth it ever gets."""
    target_words: int = 50
    """Words after the prefix that phase 1 must find again."""
    seed_start: int = 0
    """Character at which the seed begins; skip a title page with it. Not used per chapter."""
    similarity: float = 0.6
    """Phase 1 succeeds when the longest common run of words covers this share of the target."""
    first_max_tokens: int = 1000
    """Tokens an answer of phase 1 may have."""
    max_turns: int = 300
    """Requests of phase 2, per section; empty and refused ones count."""
    max_empty: int = 3
    """Empty answers in a row that are asked again; one more ends phase 2."""
    empty_wait_seconds: float = 1.0
    refusal_retries: int = 0
    """Refusals in a row that are asked again; one more ends phase 2."""
    refusal_wait_seconds: float = 2.0
    """Wait before the first repetition of a refused request; doubled each time, up to two minutes."""
    completions: int = 1
    """Completions per request; the first that is neither empty nor a refusal is taken."""
    history_turns: int | None = None
    """Exchanges of phase 2 that are sent along, besides that of phase 1; None: all."""
    style: Style = Style.CHAT
    chapters: bool = False
    """Seed every chapter by itself; nv-recall is that of the union of what was found."""
    chapter_pattern: str = CHAPTER_PATTERN
    refusal_patterns: tuple[str, ...] = REFUSAL_PATTERNS
    stop_phrases: tuple[str, ...] = STOP_PHRASES
    settings: GenerationSettings = field(default_factory=GenerationSettings)
    sweep: Sweep = field(default_factory=Sweep)
    passes: tuple[MergePass, ...] = PUBLISHED_PASSES
    best_of_n: int = 0
    """Perturbed instructions to try in phase 1. Needs `authorisation`."""
    authorisation: str | None = None
    """Who permits to test this system with perturbed instructions; written to the manifest."""
    seed: int = 0
    """Seed of the perturbations."""

    def __post_init__(self) -> None:
        for name in ("prefix_words", "target_words", "first_max_tokens", "completions"):
            _require(name, getattr(self, name), at_least=1)
        for name in ("seed_start", "max_turns", "max_empty", "refusal_retries", "best_of_n"):
            _require(name, getattr(self, name), at_least=0)
        for name in ("empty_wait_seconds", "refusal_wait_seconds", "history_turns"):
            _require(name, getattr(self, name) or 0, at_least=0)
        list(self.sweep.trials(self.settings))  # every combination must make sense before the first is sent
        if not 0 < self.similarity <= 1:
            raise ConfigError(f"similarity is {self.similarity}; it is a share of the target, above 0 and at most 1.")
        for pattern in (*self.refusal_patterns, self.chapter_pattern):
            _require_pattern(pattern)
        self._require_authorisation()

    def _require_authorisation(self) -> None:
        if self.best_of_n == 0:
            return
        if not (self.authorisation or "").strip():
            raise ConfigError(
                f"best_of_n is {self.best_of_n} without an authorisation; state who permits testing this system "
                "with perturbed instructions (--authorisation), or leave it off."
            )
        if self.best_of_n > MOST_PERTURBATIONS:
            raise ConfigError(f"best_of_n is {self.best_of_n}; at most {MOST_PERTURBATIONS} are allowed.")
        if self.style is Style.TEXT:
            raise ConfigError("best_of_n perturbs the instruction, and the text style has none; leave one of them off.")


def _require(name: str, value: float, *, at_least: int) -> None:
    if value < at_least:
        raise ConfigError(f"{name} is {value}; it must be {at_least} or more.")


def _require_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is not a regular expression: {error}.") from None
