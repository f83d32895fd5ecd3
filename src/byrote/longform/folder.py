"""The folder of a finished audit: the names of its files, and what they say, every file checked."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byrote.errors import RunError
from byrote.store.identity import read_identity
from byrote.store.read import verify_run

JOURNAL = "journal.jsonl"
FINDINGS = "findings.json"
BOOK = "book.txt"


def generation_name(trial: int, section: int) -> str:
    return f"generations/trial-{trial:03d}-section-{section:03d}.txt"


def closest_name(trial: int, section: int) -> str:
    """Where the best answer of a failed phase 1 is."""
    return f"generations/trial-{trial:03d}-section-{section:03d}-closest.txt"


def control_name(number: int) -> str:
    return f"control-{number:03d}.txt"


@dataclass(frozen=True, repr=False)
class AuditFolder:
    """A finished audit whose files are those its manifest was written for."""

    path: Path
    run_id: str
    manifest: dict[str, Any]
    findings: dict[str, Any]

    def __repr__(self) -> str:
        words = f"{self.best['matched_words']:,} words of {self.book_name} near-verbatim"
        return f"<byrote.AuditFolder: {words} in the best of {len(self.trials):,} trials; {self.path}>"

    @property
    def trials(self) -> list[dict[str, Any]]:
        """What every trial asked and found, as in findings.json."""
        trials: list[dict[str, Any]] = self.findings["trials"]
        return trials

    @property
    def best(self) -> dict[str, Any]:
        """The trial that recovered most; the earlier of equals."""
        return max(self.trials, key=lambda trial: trial["matched_words"])

    @property
    def book_name(self) -> str:
        """The reference text, as the manifest names it."""
        return str(next(iter(self.manifest["texts"])))

    def text(self, name: str) -> str:
        """A text file of the folder: the book, a control, an answer under generations/."""
        return (self.path / name).read_bytes().decode()


def is_audit(path: Path) -> bool:
    """Whether a folder says that it holds an audit."""
    identity = read_identity(path / "identity.json")
    return identity is not None and identity.kind == "audit"


def read_audit(path: Path) -> AuditFolder:
    """The audit at `path`. A RunError when it is another kind of run, unfinished, or not as it was written."""
    verified = verify_run(path)
    if verified.kind != "audit":
        raise RunError(f"{path} holds a {verified.kind} run, not an audit.")
    if verified.manifest is None:
        raise RunError(f"The audit in {path} is not finished; run its command again to finish it.")
    findings = json.loads((path / FINDINGS).read_bytes())
    return AuditFolder(path, verified.run_id, verified.manifest, findings)
