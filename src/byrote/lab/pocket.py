"""Pocket models: invented passages, the planned copies of each in a training stream, and the model trained on it.

The plan is the ground truth of demo and tests: copies are whole documents, controls are nowhere, and some passages are
scanned in another edition than the one trained on. The tokenizer is trained on the background alone. Targets and
controls are chosen by their length in tokens, so that every passage holds one window of 50 + 50 tokens and little
beyond it: training time is paid per token.

A model is made once, and found again in the user's cache by the hash of everything that decides its weights. Its folder
is made under a temporary name and renamed when it is whole, so a half-made one is never found. A lock lets a second
process wait for the first instead of doing the same work.
"""

import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein
from transformers import PreTrainedTokenizerFast

from byrote.errors import StorageError
from byrote.lab import texts
from byrote.lab.train import SMALL, TrainingPlan, encode_all, train, train_tokenizer
from byrote.progress import Progress, SilentProgress

MARKER = "complete.json"
"""Written last, with the size of every file; a folder without it, or with other sizes, is not used."""
PREFIX_TOKENS = 50
WINDOW_TOKENS = 100
CANDIDATES_PER_PASSAGE = 4
"""Passages written for each one needed; those of unsuitable length are left out."""
SPELLINGS = (
    ("harbour", "harbor"), ("parlour", "parlor"), ("neighbour", "neighbor"), ("honour", "honor"),
    ("colour", "color"), ("grey", "gray"), ("theatre", "theater"), ("plough", "plow"), ("woollen", "woolen"),
    ("travell", "travel"), ("quarrell", "quarrel"), ("learnt", "learned"), ("towards", "toward"),
    ("Whilst", "While"),
)  # fmt: skip
PUNCTUATION = ((", ", "; "), (", ", " "), ("; ", ", "), (". ", "; "), (",\u0022", ".\u0022"))
_EDITABLE = re.compile("|".join(re.escape(old) for old in dict([*SPELLINGS, *PUNCTUATION])))


@dataclass(frozen=True, slots=True)
class PocketPlan:
    """What the stream of a pocket model is made of, and how it is trained."""

    training: TrainingPlan
    copy_levels: tuple[int, ...]
    prose_per_level: int
    people_per_level: int
    editions: int
    """Passages scanned in a wording that differs by `edition_changes` small changes from the one trained on."""
    prose_controls: int
    people_controls: int
    background_prose: int
    background_people: int
    vocabulary_size: int
    edition_copies: int = 64
    edition_changes: int = 3
    most_edition_edits: int = 4
    """The suffixes of the two wordings differ by at least 1 and at most this many token edits."""
    least_words: int = 80
    least_tokens: int = WINDOW_TOKENS + 2
    most_tokens: int = 150
    seed: int = 0


POCKET = PocketPlan(
    replace(SMALL, width=128, feed_forward_width=384, context=256, rows_per_step=4, learning_rate=3e-3),
    copy_levels=(1, 2, 4, 8, 16, 32, 64, 128),
    prose_per_level=12,
    people_per_level=3,
    editions=12,
    prose_controls=24,
    people_controls=6,
    background_prose=300,
    background_people=80,
    vocabulary_size=1536,
)
TINY = PocketPlan(
    replace(SMALL, context=128, rows_per_step=2),
    copy_levels=(1, 16, 64),
    prose_per_level=2,
    people_per_level=0,
    editions=1,
    prose_controls=4,
    people_controls=0,
    background_prose=24,
    background_people=0,
    vocabulary_size=768,
    most_tokens=200,
)


class PassageKind(StrEnum):
    """What a passage is, and in which wording the model saw it."""

    PROSE = "prose"
    PERSON = "person"
    EDITION = "edition"
    """Prose of which the stream holds another edition: the scanned wording itself was never trained on."""


@dataclass(frozen=True, slots=True)
class PlannedPassage:
    """One passage to scan, and how often the training stream holds it; a control has 0 copies."""

    name: str
    kind: PassageKind
    text: str
    """What is scanned."""
    copies: int = 0
    trained_text: str | None = None
    """What the stream holds `copies` times; None: the scanned text itself."""

    @property
    def text_in_stream(self) -> str:
        return self.text if self.trained_text is None else self.trained_text


class PocketStream(NamedTuple):
    """Targets, controls and background of a plan, all different, and the tokenizer that cuts them."""

    targets: tuple[PlannedPassage, ...]
    controls: tuple[PlannedPassage, ...]
    background: tuple[str, ...]
    tokenizer: PreTrainedTokenizerFast

    def documents(self, seed: int) -> list[list[int]]:
        """The whole training stream as token ids, one list a document, in the seeded order."""
        documents = encode_all(self.tokenizer, self.background)
        originals = encode_all(self.tokenizer, [target.text_in_stream for target in self.targets])
        for target, original in zip(self.targets, originals, strict=True):
            documents += [original] * target.copies
        random.Random(f"lab stream {seed}").shuffle(documents)
        return documents


def plan_stream(plan: PocketPlan) -> PocketStream:
    """Targets by copy level, other editions, controls and background; every passage different from all others."""
    prose_needed = len(plan.copy_levels) * plan.prose_per_level + plan.editions + plan.prose_controls
    people_needed = len(plan.copy_levels) * plan.people_per_level + plan.people_controls
    prose_written = plan.background_prose + CANDIDATES_PER_PASSAGE * prose_needed
    people_written = plan.background_people + CANDIDATES_PER_PASSAGE * people_needed
    stories = texts.write_passages(plan.seed, prose_written, least_words=plan.least_words)
    records = texts.write_records(plan.seed, people_written)
    background = (*stories[: plan.background_prose], *records[: plan.background_people])
    tokenizer = train_tokenizer(background, vocabulary_size=plan.vocabulary_size)
    story_source = _of_suitable_length(plan, tokenizer, stories[plan.background_prose :])
    record_source = _of_suitable_length(plan, tokenizer, records[plan.background_people :])
    sources = (
        (PassageKind.PROSE, story_source, plan.prose_per_level, plan.prose_controls),
        (PassageKind.PERSON, record_source, plan.people_per_level, plan.people_controls),
    )
    targets = [
        PlannedPassage(f"{kind}-{copies:04d}-{number:02d}", kind, next(source), copies)
        for copies in plan.copy_levels
        for kind, source, count, _ in sources
        for number in range(count)
    ]
    controls = [
        PlannedPassage(f"control-{kind}-{number:02d}", kind, next(source))
        for kind, source, _, count in sources
        for number in range(count)
    ]
    targets += _planned_editions(plan, tokenizer, story_source)
    return PocketStream(tuple(targets), tuple(controls), background, tokenizer)


def _of_suitable_length(plan: PocketPlan, tokenizer: PreTrainedTokenizerFast, candidates: list[str]) -> Iterator[str]:
    for text, token_ids in zip(candidates, encode_all(tokenizer, candidates), strict=True):
        if plan.least_tokens <= len(token_ids) <= plan.most_tokens:
            yield text


def _planned_editions(
    plan: PocketPlan, tokenizer: PreTrainedTokenizerFast, originals: Iterator[str]
) -> Iterator[PlannedPassage]:
    generator = random.Random(f"lab editions {plan.seed}")
    number = 0
    while number < plan.editions:
        original = next(originals)
        edition = other_edition(original, generator, changes=plan.edition_changes)
        suffixes = [ids[PREFIX_TOKENS:WINDOW_TOKENS] for ids in encode_all(tokenizer, [original, edition])]
        if 1 <= Levenshtein.distance(*suffixes) <= plan.most_edition_edits:
            name = f"{PassageKind.EDITION}-{plan.edition_copies:04d}-{number:02d}"
            yield PlannedPassage(name, PassageKind.EDITION, edition, plan.edition_copies, trained_text=original)
            number += 1


def other_edition(text: str, generator: random.Random, *, changes: int) -> str:
    """`text` with `changes` small changes of spelling and punctuation, spread over it: one in each equal share.

    Where the text has fewer places to change, all of them are changed.
    """
    places = list(_EDITABLE.finditer(text))
    shares = [places[n * len(places) // changes : (n + 1) * len(places) // changes] for n in range(changes)]
    chosen = [generator.choice(share) for share in shares if share]
    for match in reversed(chosen):
        replacements = [new for old, new in (*SPELLINGS, *PUNCTUATION) if old == match.group()]
        text = text[: match.start()] + generator.choice(replacements) + text[match.end() :]
    return text


class PassageFiles(NamedTuple):
    """`targets/NAME.txt`, `controls/NAME.txt`, and `catalogue` (JSON lines) with copies and kind of every name."""

    targets: Path
    controls: Path
    catalogue: Path


@dataclass(frozen=True, slots=True)
class PocketModel:
    """A trained model in a Hugging Face folder, and the passages to scan it with."""

    path: Path
    targets: tuple[PlannedPassage, ...]
    controls: tuple[PlannedPassage, ...]

    @property
    def document_facts(self) -> dict[str, dict[str, str | int]]:
        """File name of every target as `write_texts` names it → its copies and kind."""
        return {f"{one.name}.txt": {"copies": one.copies, "kind": str(one.kind)} for one in self.targets}

    def write_texts(self, folder: Path) -> PassageFiles:
        """One text file a passage under `folder`, named after it, so that results join to copies by document name."""
        files = PassageFiles(folder / "targets", folder / "controls", folder / "passages.jsonl")
        lines = []
        try:
            for place, passages in ((files.targets, self.targets), (files.controls, self.controls)):
                place.mkdir(parents=True, exist_ok=True)
                for one in passages:
                    (place / f"{one.name}.txt").write_text(one.text, encoding="utf-8")
                    row = {"name": one.name, "copies": one.copies, "kind": one.kind, "text": one.text}
                    lines.append(json.dumps(row, ensure_ascii=False) + "\n")
            files.catalogue.write_text("".join(lines), encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{folder} cannot be written ({error}); choose another folder.") from error
        return files


def pocket_model(cache_dir: Path | None = None, *, progress: Progress | None = None) -> PocketModel:
    """The pocket model, from the cache or trained now. `None` means the user's cache folder."""
    return make_model(POCKET, "pocket", cache_dir, progress=progress)


def tiny_model(cache_dir: Path | None = None, *, progress: Progress | None = None) -> PocketModel:
    """The model for tests, from the cache or trained now in a few seconds."""
    return make_model(TINY, "tiny", cache_dir, progress=progress)


def smaller_tiny_model(cache_dir: Path | None = None) -> PocketModel:
    """A model of half the width on the same stream and tokens as the tiny one: the two make a scaling study."""
    training = replace(TINY.training, width=TINY.training.width // 2, feed_forward_width=96, heads=2)
    return make_model(replace(TINY, training=training), "smaller", cache_dir)


def make_model(plan: PocketPlan, name: str, cache_dir: Path | None, *, progress: Progress | None = None) -> PocketModel:
    """The model of any plan, cached under `name` and the hash of everything that decides its weights."""
    stream, report = plan_stream(plan), progress or SilentProgress()

    def make(folder: Path) -> None:
        report.announce(f"training the {name} model")
        train(plan.training, stream.documents(plan.seed), stream.tokenizer, folder=folder, progress=report)

    path = cached_folder(cache_dir, f"{name}-{plan_key(plan, stream)}", make=make)
    return PocketModel(path, stream.targets, stream.controls)


def plan_key(plan: PocketPlan, stream: PocketStream) -> str:
    """Changes with the plan, with the version of a generator, and with any text of the stream."""
    passages = [asdict(passage) for passage in (*stream.targets, *stream.controls)]
    return content_key([asdict(plan), [texts.GENERATOR_VERSION], passages, stream.background])


def default_cache_dir() -> Path:
    """`$BYROTE_CACHE`, else `$XDG_CACHE_HOME/byrote`, else `~/.cache/byrote`."""
    if chosen := os.environ.get("BYROTE_CACHE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "byrote"


def content_key(content: object) -> str:
    """A name that changes whenever the JSON form of `content` does."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False).encode("utf-8")
    return hashlib.sha256(canonical).hexdigest()[:20]


def cached_folder(cache_dir: Path | None, name: str, *, make: Callable[[Path], object]) -> Path:
    """`cache_dir/name`, made by `make(folder)` unless a whole one is there. If `make` fails, nothing is left behind.

    `None` means the user's cache folder.
    """
    cache_dir = cache_dir or default_cache_dir()
    final = cache_dir / name
    if _is_whole(final):
        return final
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with (cache_dir / f".{name}.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_whole(final):
                _make_and_rename(final, make)
    except OSError as error:
        raise StorageError(
            f"the cache folder {cache_dir} cannot be used ({error}); free some space or set BYROTE_CACHE to "
            "a folder you can write to."
        ) from error
    return final


def _is_whole(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return all((folder / file).stat().st_size == size for file, size in sizes.items())
    except (OSError, ValueError):
        return False


def _make_and_rename(final: Path, make: Callable[[Path], object]) -> None:
    workplace = Path(tempfile.mkdtemp(prefix=f".making-{final.name}-", dir=final.parent))
    try:
        make(workplace)
        files = [file for file in sorted(workplace.rglob("*")) if file.is_file()]
        sizes = {str(file.relative_to(workplace)): file.stat().st_size for file in files}
        (workplace / MARKER).write_text(json.dumps(sizes, indent=1), encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)  # damaged, or it would have been used
        workplace.rename(final)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
