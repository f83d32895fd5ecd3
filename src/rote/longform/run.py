"""One audit as a run folder: resumable at any point, every number traceable.

RUN/identity.json      what the audit was started with; another audit in the same folder is refused
RUN/journal.jsonl      every request and answer, as it happened
RUN/generations/       the text each section gave, and its diff against the book
RUN/findings.json      phase 1, stop reason and nv-recall of every trial and section
RUN/manifest.json      written last: configuration, hashes, versions, costs, authorisation
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rote.corpus.documents import Document
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
from rote.store.manifest import build_manifest
from rote.store.session import RunSession

JOURNAL = "journal.jsonl"
PAID_ANSWERS = "Choose another folder with --out; paid answers are never overwritten."
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
        return {"model": dict(self.model), "book": self.book.content_hash, "options": options}


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
    with RunSession.open(
        run.out, kind="audit", identity=run.identity(), is_private=True, advice=PAID_ANSWERS
    ) as session:
        session.reopen()
        journal = Journal.open(run.out / JOURNAL, session.run_id)
        try:
            ask = JournalledAsk(
                responder, journal, budget, run_id=session.run_id, retry=run.retry, sleep=sleep, on_answer=on_answer
            )
            if run.options.best_of_n and run.options.authorisation:
                journal.authorised(run.options.authorisation, best_of_n=run.options.best_of_n)
            trials = tuple(audit_book(run.book.text, ask, run.options))
            if ask.answered == 0 and ask.ceiling is not None:
                raise ask.ceiling
        finally:
            journal.close()
        result = AuditResult(trials, ask.answered, ask.sent, budget.record())
        session.complete(_manifest(run, result, seconds=time.monotonic() - started), files=_write_files(run, result))
        return result


def _write_files(run: AuditRun, result: AuditResult) -> list[Path]:
    """What was found, and the texts it was found in; afterwards these are all files of the audit."""
    generations, findings = run.out / "generations", run.out / "findings.json"
    generations.mkdir(exist_ok=True)
    files = [run.out / JOURNAL, findings]
    for trial in result.trials:
        for number, section in enumerate(trial.sections):
            files += _write_section(run, section, generations / f"trial-{trial.number:03d}-section-{number:03d}")
    write_json(findings, {"trials": [trial.record() for trial in result.trials]}, is_private=True)
    return files


def _manifest(run: AuditRun, result: AuditResult, *, seconds: float) -> dict[str, Any]:
    return build_manifest(
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


def _write_section(run: AuditRun, section: SectionFinding, stem: Path) -> list[Path]:
    if section.recall is None:
        return []
    text = section.outcome.generation
    page = diff_page(
        segments(run.book.text, text, section.recall),
        title=f"{run.book.name}, {section.outcome.section.name}",
        facts=_facts(section.recall),
    )
    contents = {stem.with_suffix(".txt"): text, stem.with_suffix(".html"): page}
    for path, content in contents.items():
        with atomic_file(path, is_private=True) as file:
            file.write(content.encode("utf-8", "backslashreplace"))
    return list(contents)


def _facts(recall: RecallResult) -> Sequence[tuple[str, str]]:
    return [
        ("nv-recall", f"{recall.nv_recall:.2%}"),
        ("matched words", f"{recall.matched_words:,} of {recall.book_words:,}"),
        ("additional words", f"{recall.additional_words:,}"),
        ("longest block", f"{recall.longest_block:,} words"),
    ]
