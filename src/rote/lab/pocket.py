"""The pocket model: trained from scratch in about a minute, so that memorization can be seen, not only told of.

Its training stream is planned (`pocket_plan`): prose and people records with 1, 2, 4 … 128 copies, prose of which it
saw another edition, and controls it never saw. The tiny model is the same idea in a few seconds, for tests.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rote.errors import StorageError
from rote.lab.copies import PlannedPassage, training_documents
from rote.lab.pocket_plan import POCKET, TINY, PocketPlan, plan_key, plan_stream
from rote.lab.train import TrainingProgress, train
from rote.lab.trained_models import cached_folder, default_cache_dir


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
