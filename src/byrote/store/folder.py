"""The run folder: where its files are, which of them are byrote's own, and which of those may be removed."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from byrote.errors import RunError
from byrote.store.files import TEMPORARY, WRITTEN, make_folder, refuse_link, sync_folder
from byrote.store.manifest import RunIdentity, read_identity

PART_NAME = re.compile(r"(part|continuations)-(?P<number>\d{6,})\.parquet")
BLOCK_NAME = re.compile(r"[\w-]+\.parquet")
REPORT_NAMES = {
    "report/figures": re.compile(r".+\.(svg|png)"),
    "report/tables": re.compile(r".+\.csv"),
    "report": re.compile(r"index\.html|model_card\.md|exhibit\.zip|written\.json"),
}
EXPORT_NAMES = ("results.csv", "results.jsonl", "continuations.csv", "continuations.jsonl", WRITTEN)


class PartFiles(NamedTuple):
    """The rows of some windows and, in a run that keeps them, their continuations. Part 0 is empty: the schema."""

    number: int
    results: Path
    continuations: Path


class _File:
    """The path of a file or folder of the run, by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFolder", _: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    lock = _File(".lock")
    requests = _File(".requests")
    """The count of requests to a server, by every opening of the run, those included that could not connect."""
    identity = _File("identity.json")
    manifest = _File("manifest.json")
    results = _File("results.parquet")
    continuations = _File("continuations.parquet")
    texts = _File("texts.parquet")
    answers = _File("answers.jsonl")
    """Requests and answers of a served model."""
    parts = _File("parts")
    part_list = _File("parts.json")
    """Which parts an unfinished run has."""
    blocks = _File("blocks")

    @property
    def tables(self) -> tuple[Path, ...]:
        """What a finished run may hold beside its manifest and identity, whatever its kind."""
        return self.results, self.continuations, self.texts, self.answers

    def part(self, number: int) -> PartFiles:
        name = f"{number:06d}.parquet"
        return PartFiles(number, self.parts / f"part-{name}", self.parts / f"continuations-{name}")

    def part_numbers(self) -> list[int]:
        """Numbers of all parts of which any file is there, whole or not, rising."""
        matches = (PART_NAME.fullmatch(name) for name in _names(self.parts))
        return sorted({int(match["number"]) for match in matches if match})

    def block(self, name: str) -> Path:
        return self.blocks / f"{name}.parquet"

    def block_files(self) -> list[Path]:
        return [self.blocks / name for name in sorted(_names(self.blocks)) if BLOCK_NAME.fullmatch(name)]

    def create(self) -> None:
        """Make the folder, or raise a RunError when it is a file, cannot be made, or holds something foreign."""
        try:
            make_folder(self.path, inside=self.path)
            self.refuse_foreign()
            # What is written to or removed from a run folder is inside of it, also when the folder came from elsewhere.
            for folder, below, names in os.walk(self.path):
                for name in (*below, *names):
                    refuse_link(Path(folder, name))
        except OSError as error:
            raise RunError(
                f"Cannot use {self.path} as a run folder: {error.strerror}; choose another with --out."
            ) from error

    def require_identity(self) -> RunIdentity:
        """A RunError when the folder holds no run."""
        if not self.path.is_dir():
            raise RunError(f"{self.path} is not a folder; give the --out folder of a run.")
        identity = read_identity(self.identity)
        if identity is None:
            inside = f", or byrote runs {self.path} for those inside" if any(self.path.glob("*/identity.json")) else ""
            raise RunError(
                f"{self.path} holds no byrote run (no identity.json of one); give the folder that was --out of a "
                f"run{inside}."
            )
        return identity

    def refuse_foreign(self) -> None:
        """Only an empty folder or one of ours may be written to: byrote never touches files of others."""
        if read_identity(self.identity) is not None:
            return
        own = (self.lock.name, self.requests.name)
        others = [name for name in _names(self.path) if name not in own and not TEMPORARY.fullmatch(name)]
        if others:
            raise RunError(
                f"{self.path} is not empty and holds no byrote run (it has {sorted(others)[0]!r}); "
                "choose another folder with --out."
            )

    def refuse_lost_manifest(self) -> None:
        """Parts are removed after the manifest was written: finished tables without either had one."""
        if self.results.exists() and not self.parts.exists() and not self.manifest.exists():
            raise RunError(
                f"{self.path} holds the tables of a finished run, but its manifest.json is missing, and nothing else "
                "shows whether they are as they were written. Restore manifest.json from a copy, choose another folder "
                "with --out, or start over with --fresh."
            )

    def clear(self) -> None:
        """Remove what byrote wrote, but for the lock and the identity; files of others stay.

        The manifest goes first and results before continuations, so that a crash leaves a smaller run, never a
        wrong one.
        """
        # An unfinished run, should this be interrupted: not one that lost its manifest.
        make_folder(self.parts, inside=self.path)
        self.manifest.unlink(missing_ok=True)
        sync_folder(self.path)
        for path in (*self.tables, *(self.path / name for name in EXPORT_NAMES)):
            path.unlink(missing_ok=True)
        self.remove_work()
        for place, own in REPORT_NAMES.items():
            folder = self.path / place
            for name in filter(own.fullmatch, _names(folder)):
                (folder / name).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()

    def remove_work(self) -> None:
        """Remove parts, blocks and temporary files: what only an unfinished run needs."""
        self.part_list.unlink(missing_ok=True)
        for number in self.part_numbers():
            self.remove_part(number)
        for path in self.block_files():
            path.unlink(missing_ok=True)
        self.remove_temporaries()
        for folder in (self.parts, self.blocks):
            with suppress(OSError):
                folder.rmdir()

    def remove_part(self, number: int) -> None:
        part = self.part(number)
        part.results.unlink(missing_ok=True)
        part.continuations.unlink(missing_ok=True)

    def remove_temporaries(self) -> None:
        """Remove what killed writers were in the middle of. To be called under the lock."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                match = TEMPORARY.fullmatch(name)
                if match is None:
                    continue
                # Reports and exports are written without the lock; everything else by its holder alone.
                is_report = Path(folder).is_relative_to(self.path / "report")
                may_be_in_use = is_report or match["target"] in EXPORT_NAMES
                if not (may_be_in_use and _is_alive(int(match["process"]))):
                    Path(folder, name).unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_alive(process: int) -> bool:
    """Whether this machine runs such a process, of any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
