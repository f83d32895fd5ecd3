"""What the pocket models are made of: the plans, and the training streams that follow from them.

The tokenizer is trained on the background alone. Targets and controls are then chosen by their length in tokens, so
that every passage holds one window of 50 + 50 tokens and little beyond it: training time is paid per token.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein
from transformers import PreTrainedTokenizerFast

from byrote.errors import ConfigError, StorageError
from byrote.lab import people, prose
from byrote.lab.cache import cached_folder, content_key, default_cache_dir
from byrote.lab.copies import CopyPlan, PassageKind, PlannedPassage, other_edition, training_documents
from byrote.lab.train import TrainingPlan, TrainingProgress, encode_all, train, train_tokenizer

PREFIX_TOKENS = 50
WINDOW_TOKENS = 100
CANDIDATES_PER_PASSAGE = 4
"""Passages written for each one needed; those of unsuitable length are left out."""


@dataclass(frozen=True, slots=True)
class PocketPlan:
    """What the stream of a pocket model is made of, and how it is trained."""

    training: TrainingPlan
    copy_levels: tuple[int, ...]
    prose_per_level: int
    people_per_level: int
    editions: int
    """Passages scanned in a wording that differs by `edition_changes` small changes from the one trained on."""
    edition_copies: int
    prose_controls: int
    people_controls: int
    background_prose: int
    background_people: int
    vocabulary_size: int
    edition_changes: int = 3
    most_edition_edits: int = 4
    """The suffixes of the two wordings differ by at least 1 and at most this many token edits."""
    least_words: int = 80
    least_tokens: int = WINDOW_TOKENS + 2
    most_tokens: int = 150
    seed: int = 0


# One thread: two gain little on kernels this small, and when other work has the cores every kernel waits for the
# slower thread (seen once: 518 s with two threads, 88 s with one, both on a busy machine).
POCKET = PocketPlan(
    training=TrainingPlan(
        layers=2,
        width=128,
        heads=4,
        feed_forward_width=384,
        context=256,
        rows_per_step=4,
        learning_rate=3e-3,
        threads=1,
    ),
    copy_levels=(1, 2, 4, 8, 16, 32, 64, 128),
    prose_per_level=12,
    people_per_level=3,
    editions=12,
    edition_copies=64,
    prose_controls=24,
    people_controls=6,
    background_prose=300,
    background_people=80,
    vocabulary_size=1536,
)
TINY = PocketPlan(
    training=TrainingPlan(
        layers=2, width=64, heads=4, feed_forward_width=192, context=128, rows_per_step=2, learning_rate=6e-3, threads=1
    ),
    copy_levels=(1, 16, 64),
    prose_per_level=2,
    people_per_level=0,
    editions=1,
    edition_copies=64,
    prose_controls=4,
    people_controls=0,
    background_prose=24,
    background_people=0,
    vocabulary_size=768,
    most_tokens=200,
)


class PocketStream(NamedTuple):
    """The planned copies and the tokenizer that cuts them."""

    copies: CopyPlan
    tokenizer: PreTrainedTokenizerFast


def plan_stream(plan: PocketPlan) -> PocketStream:
    """Targets by copy level, other editions, controls and background; every passage different from all others."""
    prose_needed = len(plan.copy_levels) * plan.prose_per_level + plan.editions + plan.prose_controls
    people_needed = len(plan.copy_levels) * plan.people_per_level + plan.people_controls
    prose_written = plan.background_prose + CANDIDATES_PER_PASSAGE * prose_needed
    people_written = plan.background_people + CANDIDATES_PER_PASSAGE * people_needed
    stories = prose.write_passages(plan.seed, prose_written, least_words=plan.least_words)
    records = [record.text for record in people.write_records(plan.seed, people_written)]
    background = (*stories[: plan.background_prose], *records[: plan.background_people])
    tokenizer = train_tokenizer(background, vocabulary_size=plan.vocabulary_size)
    story_source = _of_suitable_length(plan, tokenizer, stories[plan.background_prose :])
    record_source = _of_suitable_length(plan, tokenizer, records[plan.background_people :])
    sources = (
        (PassageKind.PROSE, story_source, plan.prose_per_level, plan.prose_controls),
        (PassageKind.PERSON, record_source, plan.people_per_level, plan.people_controls),
    )
    targets = [
        PlannedPassage(name=f"{kind}-{copies:04d}-{number:02d}", kind=kind, text=_take(source), copies=copies)
        for copies in plan.copy_levels
        for kind, source, count, _ in sources
        for number in range(count)
    ]
    controls = [
        PlannedPassage(name=f"control-{kind}-{number:02d}", kind=kind, text=_take(source))
        for kind, source, _, count in sources
        for number in range(count)
    ]
    targets += _planned_editions(plan, tokenizer, story_source)
    copies = CopyPlan(targets=tuple(targets), controls=tuple(controls), background=background, seed=plan.seed)
    return PocketStream(copies, tokenizer)


def plan_key(plan: PocketPlan, copies: CopyPlan) -> str:
    """Changes with the plan, with the version of a generator, and with any text of the stream."""
    return content_key([asdict(plan), prose.GENERATOR_VERSION, people.GENERATOR_VERSION, asdict(copies)])


def _of_suitable_length(plan: PocketPlan, tokenizer: PreTrainedTokenizerFast, candidates: list[str]) -> Iterator[str]:
    for text, token_ids in zip(candidates, encode_all(tokenizer, candidates), strict=True):
        if plan.least_tokens <= len(token_ids) <= plan.most_tokens:
            yield text


def _take(source: Iterator[str]) -> str:
    text = next(source, None)
    if text is None:
        raise ConfigError(
            "too few generated passages have the planned number of tokens; widen least_tokens..most_tokens "
            "or change least_words of the plan."
        )
    return text


def _planned_editions(
    plan: PocketPlan, tokenizer: PreTrainedTokenizerFast, originals: Iterator[str]
) -> Iterator[PlannedPassage]:
    generator = random.Random(f"lab editions {plan.seed}")
    number = 0
    while number < plan.editions:
        original = _take(originals)
        edition = other_edition(original, generator, changes=plan.edition_changes)
        if 1 <= _suffix_edits(tokenizer, original, edition) <= plan.most_edition_edits:
            yield PlannedPassage(
                name=f"{PassageKind.EDITION}-{plan.edition_copies:04d}-{number:02d}",
                kind=PassageKind.EDITION,
                text=edition,
                copies=plan.edition_copies,
                trained_text=original,
            )
            number += 1


def _suffix_edits(tokenizer: PreTrainedTokenizerFast, first: str, second: str) -> int:
    suffixes = [token_ids[PREFIX_TOKENS:WINDOW_TOKENS] for token_ids in encode_all(tokenizer, [first, second])]
    return int(Levenshtein.distance(*suffixes))


@dataclass(frozen=True, slots=True)
class PocketModel:
    """A trained model in a Hugging Face folder, and the passages to scan it with."""

    path: Path
    targets: tuple[PlannedPassage, ...]
    controls: tuple[PlannedPassage, ...]
    was_trained_now: bool

    def write_texts(self, folder: Path) -> "PassageFiles":
        """The passages as files under `folder`, as a user would have them: see `write_passage_files`."""
        return write_passage_files(folder, targets=self.targets, controls=self.controls)


class PassageFiles(NamedTuple):
    """`targets/NAME.txt`, `controls/NAME.txt`, and `catalogue` (JSON lines) with copies and kind of every name."""

    targets: Path
    controls: Path
    catalogue: Path


def pocket_model(
    cache_dir: Path | None = None, *, progress: Callable[[TrainingProgress], None] | None = None
) -> PocketModel:
    """The pocket model, from the cache or trained now. `None` means the user's cache folder."""
    return make_model(POCKET, "pocket", cache_dir=cache_dir, progress=progress)


def tiny_model(
    cache_dir: Path | None = None, *, progress: Callable[[TrainingProgress], None] | None = None
) -> PocketModel:
    """The model for tests, from the cache or trained now in a few seconds."""
    return make_model(TINY, "tiny", cache_dir=cache_dir, progress=progress)


def smaller_tiny_model(cache_dir: Path | None = None) -> PocketModel:
    """A model of half the width on the same stream and tokens as the tiny one: the two make a scaling study."""
    training = replace(TINY.training, width=TINY.training.width // 2, feed_forward_width=96, heads=2)
    return make_model(replace(TINY, training=training), "smaller", cache_dir=cache_dir)


def make_model(
    plan: PocketPlan,
    name: str,
    *,
    cache_dir: Path | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> PocketModel:
    """The model of any plan, cached under `name` and the hash of everything that decides its weights."""
    copies, tokenizer = plan_stream(plan)

    def make(folder: Path) -> None:
        train(plan.training, training_documents(copies, tokenizer), tokenizer, folder=folder, progress=progress)

    cached = cached_folder(cache_dir or default_cache_dir(), f"{name}-{plan_key(plan, copies)}", make=make)
    return PocketModel(
        path=cached.path, targets=copies.targets, controls=copies.controls, was_trained_now=cached.was_made_now
    )


def write_passage_files(
    folder: Path, *, targets: tuple[PlannedPassage, ...], controls: tuple[PlannedPassage, ...]
) -> PassageFiles:
    """One text file a passage, named after it, so that results join to copies by document name."""
    files = PassageFiles(folder / "targets", folder / "controls", folder / "passages.jsonl")
    try:
        for place, passages in ((files.targets, targets), (files.controls, controls)):
            place.mkdir(parents=True, exist_ok=True)
            for passage in passages:
                (place / f"{passage.name}.txt").write_text(passage.text, encoding="utf-8")
        rows = [
            {"name": passage.name, "copies": passage.copies, "kind": passage.kind, "text": passage.text}
            for passage in (*targets, *controls)
        ]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        files.catalogue.write_text(lines, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{folder} cannot be written ({error}); choose another folder.") from error
    return files
