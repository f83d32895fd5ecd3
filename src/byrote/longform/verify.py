"""The numbers of a finished audit, worked out once more from its journal and its book, without asking anybody."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from byrote.corpus.documents import Document
from byrote.errors import BudgetError, RunError
from byrote.longform.findings import SectionFinding, TrialFinding, audit_book, audit_controls
from byrote.longform.folder import (
    BOOK,
    FINDINGS,
    JOURNAL,
    AuditFolder,
    closest_name,
    control_name,
    generation_name,
    read_audit,
)
from byrote.longform.journal import digest_of, read_journal
from byrote.longform.options import AuditOptions
from byrote.models.responder import Answer, Reply, Request, RequestRejected
from byrote.store.files import json_bytes
from byrote.store.read import StoredRun
from byrote.types import Split


class Replay:
    """Answers what the journal has answered. What it has not, ended the audit: a rejection, or a ceiling."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._digests = {record["place"]: record["digest"] for record in records if record["kind"] == "intent"}
        self._last = {record["place"]: record for record in records if "place" in record}

    def __call__(self, request: Request, *, place: str, wait_seconds: float = 0.0) -> Reply:
        last = self._last.get(place)
        if last is not None and self._digests[place] != digest_of(request):
            raise RunError(f"The request at {place} in the journal is not the one that this audit makes.")
        if last is not None and last.get("is_rejected"):
            raise RequestRejected(last["error"])
        if last is None or last["kind"] != "answer":
            raise BudgetError(f"The journal has no answer at {place}.")
        return Reply(tuple(Answer(**_tuples(answer)) for answer in last["answers"]), None)


def check_audit(verified: StoredRun) -> Iterator[str]:
    """One line for the journal and, of a finished audit, one for its numbers; a RunError for what does not fit."""
    records = read_journal(verified.path / JOURNAL, verified.run_id)
    yield f"{JOURNAL}: {len(records):,} whole records, each bound to the one before"
    if verified.manifest is not None:
        _check_numbers(read_audit(verified.path), records)
        yield f"{FINDINGS}: every number follows from the journal and {BOOK}"


def _check_numbers(audit: AuditFolder, records: list[dict[str, Any]]) -> None:
    options = AuditOptions(**audit.manifest["config"])
    ask = Replay(records)
    trials = list(audit_book(audit.text(BOOK), ask, options))
    controls = list(audit_controls(_controls(audit), ask, options, trials))
    found = {"trials": [trial.record() for trial in trials], "controls": [control.record() for control in controls]}
    for name, values in found.items():
        if json.loads(json_bytes({name: values})) != {name: audit.findings[name]}:
            raise RunError(f"{audit.path}: the {name} in findings.json do not follow from the journal and the book.")
    for trial in trials:
        _check_texts(audit, trial)


def _check_texts(audit: AuditFolder, trial: TrialFinding) -> None:
    for number, section in enumerate(trial.sections):
        name, text = _text_of(trial.number, number, section)
        if audit.text(name) != text.encode("utf-8", "backslashreplace").decode():
            raise RunError(f"{audit.path / name} is not what the journal's answers make.")


def _text_of(trial: int, number: int, section: SectionFinding) -> tuple[str, str]:
    if section.recall is None:
        return closest_name(trial, number), section.outcome.closest
    return generation_name(trial, number), section.outcome.generation


def _controls(audit: AuditFolder) -> list[Document]:
    asked = [control["name"] for control in audit.findings["controls"]]
    return [
        Document.from_text(name, audit.text(control_name(number)), split=Split.CONTROL)
        for number, name in enumerate(asked)
    ]


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    ids = fields.get("token_ids")
    return {**fields, **({} if ids is None else {"token_ids": tuple(ids)})}
