"""The run folder: where its files are, which parts are whole, and which files are rote's own to remove."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import RunError
from rote.store.atomic import TEMPORARY, sync_folder
from rote.store.identity import read_identity

PART_NAME = re.compile(r"(part|continuations)-(?P<number>\d{6,})\.parquet")
REPORT_FILES = ("index.html", "model_card.md", "figures/*.svg", "figures/*.png", "tables/*.csv")
EXPORT_FILES = ("results.csv", "results.jsonl", "continuations.csv", "continuations.jsonl")


class Part(NamedTuple):
    """The rows of some windows and, in a run that keeps them, their continuations. Part 0 is empty: the schema."""

    number: int
    results: Path
    continuations: Path


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    @property
    def identity(self) -> Path:
        return self.path / "identity.json"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def results(self) -> Path:
        return self.path / "results.parquet"

    @property
    def continuations(self) -> Path:
        return self.path / "continuations.parquet"

    @property
    def texts(self) -> Path:
        return self.path / "texts.parquet"

    @property
    def parts(self) -> Path:
        return self.path / "parts"

    @property
    def is_complete(self) -> bool:
        """The manifest is written last, so it is there only when everything else is."""
        return self.manifest.exists()

    def part(self, number: int) -> Part:
        name = f"{number:06d}.parquet"
        return Part(number, self.parts / f"part-{name}", self.parts / f"continuations-{name}")

    def part_numbers(self) -> list[int]:
        """Numbers of all parts of which any file is there, whole or not, rising."""
        matches = (PART_NAME.fullmatch(name) for name in _names(self.parts))
        return sorted({int(match["number"]) for match in matches if match})

    def create(self) -> None:
        """Make the folder, or raise a RunError when it is a file, cannot be made, or holds something foreign."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.refuse_foreign()
        except OSError as error:
            raise RunError(
                f"Cannot use {self.path} as a run folder: {error.strerror}; choose another with --out."
            ) from error

    def refuse_foreign(self) -> None:
        """Only an empty folder or one of ours may be written to: rote never touches files of others."""
        if read_identity(self.identity) is not None:
            return
        others = [name for name in _names(self.path) if name != self.lock.name and not self._is_temporary(name)]
        if others:
            raise RunError(
                f"{self.path} is not empty and holds no rote run (it has {sorted(others)[0]!r}); "
                "choose another folder with --out."
            )

    def clear(self) -> None:
        """Remove what rote wrote, but for the lock and the identity; files of others stay.

        The manifest goes first and results before continuations, so that a crash leaves a smaller run, never a
        wrong one.
        """
        self.manifest.unlink(missing_ok=True)
        sync_folder(self.path)
        for path in (self.results, self.continuations, self.texts, *self._report_files()):
            path.unlink(missing_ok=True)
        for name in EXPORT_FILES:
            (self.path / name).unlink(missing_ok=True)
        self.remove_parts()
        self.remove_temporaries()
        for folder in ("report/figures", "report/tables", "report"):
            with suppress(OSError):
                (self.path / folder).rmdir()

    def remove_parts(self) -> None:
        for number in self.part_numbers():
            self.remove_part(number)
        self.remove_temporaries()
        with suppress(OSError):
            self.parts.rmdir()

    def remove_part(self, number: int) -> None:
        part = self.part(number)
        part.results.unlink(missing_ok=True)
        part.continuations.unlink(missing_ok=True)

    def remove_temporaries(self) -> None:
        """Remove what a killed writer was in the middle of."""
        for folder in (self.path, self.parts):
            for name in _names(folder):
                if self._is_temporary(name):
                    (folder / name).unlink(missing_ok=True)

    def _is_temporary(self, name: str) -> bool:
        # An export may be writing its own temporary file here at this moment: that one is left alone.
        match = TEMPORARY.fullmatch(name)
        own = {path.name for path in (self.identity, self.manifest, self.results, self.continuations, self.texts)}
        return match is not None and (match["target"] in own or PART_NAME.fullmatch(match["target"]) is not None)

    def _report_files(self) -> Iterator[Path]:
        for pattern in REPORT_FILES:
            yield from (self.path / "report").glob(pattern)


def read_whole(path: Path) -> pa.Table | None:
    """The table at `path`, every page checked; None when the file is missing, cut or damaged."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read()
    except (FileNotFoundError, ValueError, pa.ArrowException):
        # ValueError: column names of a damaged footer that are no text.
        return None
    except OSError as error:
        # Arrow reports damage without an errno; with one it is the disk or the permissions, and nothing is proven.
        if error.errno is not None:
            raise RunError(f"Cannot read {path}: {error.strerror}.") from error
        return None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
