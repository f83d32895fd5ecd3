"""One audit as a run folder: resumable at any point, every number traceable.

RUN/identity.json      what the audit was started with; another audit in the same folder is refused
RUN/journal.jsonl      every request and answer, as it happened
RUN/generations/       the text each section gave, and its diff against the book
RUN/findings.json      phase 1, stop reason and nv-recall of every trial and section
RUN/manifest.json      written last: configuration, hashes, versions, costs, authorisation
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rote.corpus.documents import Document
from rote.errors import RunError
from rote.longform.alignment import segments
from rote.longform.ask import JournalledAsk, RetryPolicy
from rote.longform.budget import Budget, Ceilings, Prices
from rote.longform.findings import SectionFinding, TrialFinding, audit_book
from rote.longform.journal import Journal
from rote.longform.options import AuditOptions
from rote.longform.recall import RecallResult
from rote.longform.sections import cut_sections
from rote.models.responder import Responder
from rote.report.diff import diff_page
from rote.store.atomic import atomic_file, write_json
from rote.store.folder import RunFolder
from rote.store.identity import differences, read_identity, write_identity
from rote.store.lock import RunLock
from rote.store.manifest import build_manifest, write_manifest

# Answers stay valid under these; raising them makes a finished audit go on from where it ended.
_MAY_CHANGE = (
    "max_turns",
    "max_empty",
    "empty_wait_seconds",
    "refusal_retries",
    "refusal_wait_seconds",
    "best_of_n",
    "authorisation",
    "passes",
)


@dataclass(frozen=True, slots=True)
class AuditRun:
    """What an audit is made of, besides the responder that answers."""

    book: Document
    model: Mapping[str, Any]
    """Where the answers come from: endpoint and model name, or the local model. Never a key."""
    options: AuditOptions
    out: Path
    prices: Prices = field(default_factory=Prices)
    ceilings: Ceilings = field(default_factory=Ceilings)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    command_line: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise for what cannot work, before a folder is made or a request sent."""
        self.ceilings.check(self.prices)
        cut_sections(self.book.text, self.options)

    def identity(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed; how long to go on and at what cost may change."""
        options = json.loads(json.dumps(asdict(self.options)))
        for name in _MAY_CHANGE:
            del options[name]
        return {"kind": "audit", "model": dict(self.model), "book": self.book.content_hash, "options": options}


@dataclass(frozen=True, slots=True)
class AuditResult:
    trials: tuple[TrialFinding, ...]
    requests: int
    sent: int
    """Attempts sent by this process; the other answers came from the journal."""
    costs: Mapping[str, Any]

    @property
    def best(self) -> TrialFinding:
        """The trial that recovered most; the earlier of equals."""
        return max(self.trials, key=lambda trial: trial.matched_words)

    @property
    def is_cut_short(self) -> bool:
        return any(trial.is_cut_short for trial in self.trials)


def run_audit(
    run: AuditRun,
    responder: Responder,
    *,
    sleep: Callable[[float], None] = time.sleep,
    on_answer: Callable[[str, int], None] = lambda place, answered: None,
) -> AuditResult:
    """Run or resume the audit. Everything journalled is used; nothing answered is asked again."""
    started = time.monotonic()
    run.check()
    budget = Budget(run.prices, run.ceilings)
    folder = RunFolder(run.out)
    folder.create()
    lock = RunLock.acquire(folder.lock)
    try:
        run_id = _claim(folder, run.identity())
        journal = Journal.open(run.out / "journal.jsonl")
        try:
            ask = JournalledAsk(
                responder, journal, budget, run_id=run_id, retry=run.retry, sleep=sleep, on_answer=on_answer
            )
            if run.options.best_of_n and run.options.authorisation:
                journal.authorised(run.options.authorisation, best_of_n=run.options.best_of_n)
            trials = tuple(audit_book(run.book.text, ask, run.options))
            if ask.answered == 0 and ask.ceiling is not None:
                raise ask.ceiling
        finally:
            journal.close()
        result = AuditResult(trials, ask.answered, ask.sent, budget.record())
        _write(run, result, seconds=time.monotonic() - started)
        return result
    finally:
        lock.release()


def _claim(folder: RunFolder, identity: Mapping[str, Any]) -> str:
    """The run's own id, new or stored; a folder that another audit began is refused."""
    stored = read_identity(folder.identity)
    if stored is None:
        run_id = uuid.uuid4().hex
        write_identity(folder.identity, {"run_id": run_id, **identity})
        return run_id
    run_id = str(stored.pop("run_id", ""))
    found = list(differences(stored, identity))
    if found:
        raise RunError(
            f"{folder.path} holds another run: {'; '.join(found[:4])}. Choose another folder with --out; "
            "paid answers are never overwritten."
        )
    return run_id


def _write(run: AuditRun, result: AuditResult, *, seconds: float) -> None:
    generations = run.out / "generations"
    generations.mkdir(exist_ok=True)
    for trial in result.trials:
        for number, section in enumerate(trial.sections):
            _write_section(run, section, generations / f"trial-{trial.number:03d}-section-{number:03d}")
    write_json(run.out / "findings.json", {"trials": [trial.record() for trial in result.trials]})
    manifest = build_manifest(
        config=asdict(run.options),
        texts={
            run.book.name: {"split": run.book.split, "hash": run.book.content_hash, "characters": len(run.book.text)}
        },
        model=run.model,
        device={},
        seed=run.options.seed,
        command_line=run.command_line,
        timings={"audit_seconds": seconds},
        totals={"requests": result.requests, "sent_by_this_process": result.sent},
        costs=result.costs,
        authorisation=run.options.authorisation if run.options.best_of_n else None,
        is_cut_short=result.is_cut_short,
        nv_recall={str(trial.number): trial.nv_recall for trial in result.trials},
    )
    write_manifest(run.out / "manifest.json", manifest)


def _write_section(run: AuditRun, section: SectionFinding, stem: Path) -> None:
    if section.recall is None:
        return
    text = section.outcome.generation
    _write_text(stem.with_suffix(".txt"), text)
    page = diff_page(
        segments(run.book.text, text, section.recall),
        title=f"{run.book.name}, {section.outcome.section.name}",
        facts=_facts(section.recall),
    )
    _write_text(stem.with_suffix(".html"), page)


def _facts(recall: RecallResult) -> Sequence[tuple[str, str]]:
    return [
        ("nv-recall", f"{recall.nv_recall:.2%}"),
        ("matched words", f"{recall.matched_words:,} of {recall.book_words:,}"),
        ("additional words", f"{recall.additional_words:,}"),
        ("longest block", f"{recall.longest_block:,} words"),
    ]


def _write_text(path: Path, text: str) -> None:
    with atomic_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
