"""One audit as a run folder: resumable at any point, every number traceable.

RUN/identity.json      what the audit was started with; another audit in the same folder is refused
RUN/journal.jsonl      every request and answer, as it happened
RUN/book.txt           the text that was asked for; control-000.txt … the controls
RUN/generations/       the text each section gave
RUN/findings.json      phase 1, stop reason and nv-recall of every trial, section and control
RUN/manifest.json      written last: configuration, hashes, versions, costs, authorisation
RUN/report/            the exhibit, written afterwards (`section`): a page, and one file with everything and its hashes
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rote.corpus.documents import Document
from rote.errors import TextError
from rote.longform.ask import JournalledAsk
from rote.longform.audit_folder import BOOK, FINDINGS, JOURNAL, closest_name, control_name, generation_name
from rote.longform.budget import Budget, Ceilings, Prices
from rote.longform.findings import ControlFinding, TrialFinding, audit_book, audit_controls, control_options, spread
from rote.longform.journal import Journal
from rote.longform.options import AuditOptions
from rote.longform.sections import cut_sections
from rote.models.responder import Responder, RetryPolicy
from rote.store.atomic import atomic_file, make_folder, write_json
from rote.store.manifest import build_manifest
from rote.store.session import RunSession

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
    "repetitions",
)


@dataclass(frozen=True, slots=True)
class AuditRun:
    """What an audit is made of, besides the responder that answers."""

    book: Document
    model: Mapping[str, Any]
    """Where the answers come from: endpoint and model name, or the local model. Never a key."""
    options: AuditOptions
    out: Path
    controls: tuple[Document, ...] = ()
    """Books that the model cannot have read. They may change from run to run."""
    prices: Prices = field(default_factory=Prices)
    ceilings: Ceilings = field(default_factory=Ceilings)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    command_line: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise for what cannot work, before a folder is made or a request sent."""
        self.ceilings.check(self.prices)
        cut_sections(self.book.text, self.options)
        for control in self.controls:
            if control.content_hash == self.book.content_hash:
                raise TextError(f"{control.name} is the book itself; a control is a book that cannot have been read.")
            cut_sections(control.text, control_options(self.options, tries=1))

    def identity(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed; how long to go on and at what cost may change."""
        options = json.loads(json.dumps(asdict(self.options)))
        for name in _MAY_CHANGE:
            del options[name]
        return {"model": dict(self.model), "book": self.book.content_hash, "options": options}


@dataclass(frozen=True, slots=True)
class AuditResult:
    trials: tuple[TrialFinding, ...]
    controls: tuple[ControlFinding, ...]
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
        return any(trial.is_cut_short for trial in (*self.trials, *(control.asked for control in self.controls)))


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
    with RunSession.open(run.out, kind="audit", identity=run.identity(), advice=PAID_ANSWERS) as session:
        session.reopen()
        journal = Journal.open(run.out / JOURNAL, session.run_id)
        try:
            ask = JournalledAsk(
                responder, journal, budget, run_id=session.run_id, retry=run.retry, sleep=sleep, on_answer=on_answer
            )
            if run.options.tests_a_safeguard and run.options.authorisation:
                journal.authorised(run.options.authorisation, best_of_n=run.options.best_of_n)
            trials = tuple(audit_book(run.book.text, ask, run.options))
            asked_for = () if trials[-1].is_cut_short else run.controls
            controls = tuple(audit_controls(asked_for, ask, run.options, trials))
            if ask.answered == 0 and ask.ceiling is not None:
                raise ask.ceiling
        finally:
            journal.close()
        result = AuditResult(trials, controls, ask.answered, ask.sent, budget.record())
        manifest = _manifest(run, result, journal, seconds=time.monotonic() - started)
        session.complete(manifest, files=_write_files(run, result))
        return result


def _write_files(run: AuditRun, result: AuditResult) -> list[Path]:
    """What was found, and the texts it was found in; afterwards these are all files of the audit."""
    make_folder(run.out / "generations", inside=run.out)
    texts = {BOOK: run.book.text}
    texts |= {control_name(number): control.text for number, control in enumerate(run.controls)}
    for trial in result.trials:
        for number, section in enumerate(trial.sections):
            if section.recall is None:
                texts[closest_name(trial.number, number)] = section.outcome.closest
            else:
                texts[generation_name(trial.number, number)] = section.outcome.generation
    for name, text in texts.items():
        with atomic_file(run.out / name) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    trials = [trial.record() for trial in result.trials]
    controls = [control.record() for control in result.controls]
    findings = {"trials": trials, "spread": spread(trials), "controls": controls}
    write_json(run.out / FINDINGS, findings)
    return [run.out / name for name in (JOURNAL, FINDINGS, *texts)]


def _manifest(run: AuditRun, result: AuditResult, journal: Journal, *, seconds: float) -> dict[str, Any]:
    return build_manifest(
        config=asdict(run.options),
        texts={
            text.name: {"split": text.split, "hash": text.content_hash, "characters": text.characters}
            for text in (run.book, *run.controls)
        },
        model=run.model,
        device={},
        seed=run.options.seed,
        command_line=run.command_line,
        timings={"audit_seconds": seconds},
        totals={"requests": result.requests, "sent_by_this_process": result.sent},
        journal={"records": journal.records, "last_hash": journal.last_hash},
        costs=result.costs,
        authorisation=run.options.authorisation if run.options.tests_a_safeguard else None,
        is_cut_short=result.is_cut_short,
        nv_recall={str(trial.number): trial.nv_recall for trial in result.trials},
    )
