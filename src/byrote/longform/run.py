"""One audit as a run folder: resumable at any point, every number traceable.

RUN/identity.json      what the audit was started with; another audit in the same folder is refused
RUN/journal.jsonl      every request and answer, as it happened
RUN/book.txt           the text that was asked for; control-000.txt … the controls
RUN/generations/       the text each section gave
RUN/findings.json      phase 1, stop reason and nv-recall of every trial, section and control
RUN/manifest.json      written last: configuration, hashes, versions, costs, authorisation
RUN/report/            the exhibit, written afterwards (`report`): a page, and one file with everything and its hashes
"""

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from byrote.corpus.normalise import normalised_words
from byrote.corpus.read import Document, read_documents, read_only
from byrote.errors import RunError, TextError
from byrote.longform.journal import AuditJournal, Budget, Ceilings, JournalledClient, Prices, ReplayClient
from byrote.longform.loop import AuditClient, SectionAudit, Stop, cut_sections
from byrote.longform.options import AuditCommand, AuditOptions, GenerationSettings, Style
from byrote.longform.recall import longest_common_run, nv_recall
from byrote.models.responder import Responder
from byrote.models.served.retries import RetryPolicy
from byrote.store.files import atomic_file, json_bytes, make_folder, write_json
from byrote.store.journal import read_records
from byrote.store.read import StoredRun, verify_run
from byrote.store.resume import RunSession
from byrote.types import Split


@dataclass(frozen=True, slots=True)
class TrialFinding:
    """All sections under one combination of settings. Trials with equal settings are repetitions."""

    number: int
    repetition: int
    settings: GenerationSettings
    book_words: int
    sections: tuple[SectionAudit, ...]

    @property
    def matched_words(self) -> int:
        """Words of the book in any counted block of any section; a word found twice counts once."""
        found: set[int] = set()
        for section in self.sections:
            for block in section.recall.verbatim if section.recall else ():
                found.update(range(block.book_start, block.book_start + block.length))
        return len(found)

    @property
    def nv_recall(self) -> float | None:
        """Share of the book recovered; None when phase 1 failed everywhere, so that nothing was generated."""
        if all(section.recall is None for section in self.sections):
            return None
        return self.matched_words / self.book_words

    @property
    def longest_block(self) -> int:
        return max((section.recall.longest_block for section in self.sections if section.recall), default=0)

    @property
    def is_cut_short(self) -> bool:
        """A ceiling ended it; with a higher one it would go on."""
        return any(section.stop is Stop.CEILING for section in self.sections)

    def record(self) -> dict[str, Any]:
        """In JSON's types; generations are left out, they have files of their own."""
        return {
            "trial": self.number,
            "repetition": self.repetition,
            "settings": asdict(self.settings),
            "nv_recall": self.nv_recall,
            "matched_words": self.matched_words,
            "book_words": self.book_words,
            "longest_block": self.longest_block,
            "sections": [section.record() for section in self.sections],
        }


@dataclass(frozen=True, slots=True)
class ControlFinding:
    """What a control gave when it was requested, and what the trials' generations have of it."""

    name: str
    content_hash: str
    asked: TrialFinding
    null: list[dict[str, Any]]
    """For each generation of a trial its nv-recall against the control, and the longest run that both share."""

    def record(self) -> dict[str, Any]:
        return {"name": self.name, "hash": self.content_hash, "asked": self.asked.record(), "null": self.null}


def audit_book(book: str, client: AuditClient, options: AuditOptions) -> Iterator[TrialFinding]:
    """One finding per trial: the sweep, then its repetitions; a trial that a ceiling cut short is the last."""
    combinations = list(options.sweep.trials(options.settings))
    for number in range(len(combinations) * options.repetitions):
        repetition, combination = divmod(number, len(combinations))
        settings, place = combinations[combination], f"trial-{number}"
        finding = _trial(book, client, options, settings, place=place, number=number, repetition=repetition)
        yield finding
        if finding.is_cut_short:
            return


def audit_controls(
    controls: Sequence[Document], client: AuditClient, options: AuditOptions, trials: Sequence[TrialFinding]
) -> Iterator[ControlFinding]:
    """One finding per control, requested once from its beginning; none after one that a ceiling cut short.

    A control gets as many tries in phase 1 as the first trial needed, under the same settings.
    """
    settings = next(iter(options.sweep.trials(options.settings)))
    tries = max((len(section.tries) for trial in trials[:1] for section in trial.sections), default=1)
    options = control_options(options, tries=tries)
    for number, control in enumerate(controls):
        # By content, so that a control may be added to a finished audit, in any place.
        place = f"control-{control.content_hash[:16]}"
        asked = _trial(control.text, client, options, settings, place=place, number=number, repetition=0)
        null = list(_null_measures(control.text, trials, options))
        yield ControlFinding(control.name, control.content_hash, asked, null)
        if asked.is_cut_short:
            return


def control_options(options: AuditOptions, *, tries: int) -> AuditOptions:
    """The options with which a control is requested; chapters and seeds are the book's own."""
    return replace(options, chapters=False, seed_start=0, best_of_n=min(options.best_of_n, tries))


def spread(trials: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """nv-recall over the repetitions of each combination of settings, from the trials' records.

    A trial whose phase 1 failed recovered nothing and counts as 0. The standard deviation of one trial is None.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for trial in trials:
        groups.setdefault(repr(sorted(trial["settings"].items())), []).append(trial)
    found = []
    for group in groups.values():
        values = [trial["nv_recall"] or 0.0 for trial in group]
        found.append(
            {
                "settings": group[0]["settings"],
                "trials": len(values),
                "phase_1_failed": sum(trial["nv_recall"] is None for trial in group),
                "mean": statistics.fmean(values),
                "least": min(values),
                "most": max(values),
                "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
            }
        )
    return found


def _trial(
    book: str,
    client: AuditClient,
    options: AuditOptions,
    settings: GenerationSettings,
    *,
    place: str,
    number: int,
    repetition: int,
) -> TrialFinding:
    sections: list[SectionAudit] = []
    for section_number, section in enumerate(cut_sections(book, options)):
        section_place = f"{place}/section-{section_number}"
        audit = SectionAudit(section, client, section_place, options, settings, repetition)
        audit.run(book)
        sections.append(audit)
        if audit.stop is Stop.CEILING:
            break
    return TrialFinding(number, repetition, settings, len(normalised_words(book).words), tuple(sections))


def _null_measures(control: str, trials: Sequence[TrialFinding], options: AuditOptions) -> Iterator[dict[str, Any]]:
    words = normalised_words(control).words
    for trial in trials:
        for number, section in enumerate(trial.sections):
            if section.recall is not None:
                generation = section.generation
                share = nv_recall(control, generation, passes=options.passes, repeated_passes=0).nv_recall
                run = longest_common_run(words, normalised_words(generation).words)
                yield {"trial": trial.number, "section": number, "nv_recall": share, "longest_run": run}


JOURNAL = "journal.jsonl"
FINDINGS = "findings.json"
BOOK = "book.txt"
PAID_ANSWERS = "Choose another folder with --out; paid answers are never overwritten."


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
        Budget(self.prices, self.ceilings)
        cut_sections(self.book.text, self.options)
        for control in self.controls:
            if control.content_hash == self.book.content_hash:
                raise TextError(f"{control.name} is the book itself; a control is a book that cannot have been read.")
            cut_sections(control.text, control_options(self.options, tries=1))

    def identity(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed; how long to go on and at what cost may change."""
        return {"model": dict(self.model), "book": self.book.content_hash, "options": self.options.identity()}


@dataclass(frozen=True, slots=True)
class AuditResult:
    trials: tuple[TrialFinding, ...]
    controls: tuple[ControlFinding, ...]
    requests: int
    sent: int
    """Attempts sent by this process; the other answers came from the journal."""
    costs: Mapping[str, Any]

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
    """Run or resume the audit. Everything journalled is used; nothing answered is requested again."""
    started = time.monotonic()
    run.check()
    budget = Budget(run.prices, run.ceilings)
    with RunSession.open(run.out, kind="audit", identity=run.identity(), advice=PAID_ANSWERS) as session:
        session.reopen()
        journal = AuditJournal.open(run.out / JOURNAL, session.run_id)
        try:
            client = JournalledClient(
                responder, journal, budget, run_id=session.run_id, retry=run.retry, sleep=sleep, on_answer=on_answer
            )
            if run.options.tests_a_safeguard:
                statement, tries = run.options.authorisation, run.options.best_of_n
                journal.append({"kind": "authorisation", "statement": statement, "best_of_n": tries})
            trials = tuple(audit_book(run.book.text, client, run.options))
            asked_for = () if trials[-1].is_cut_short else run.controls
            controls = tuple(audit_controls(asked_for, client, run.options, trials))
            if client.answered == 0 and client.ceiling is not None:
                raise client.ceiling
        finally:
            journal.close()
        result = AuditResult(trials, controls, client.answered, client.sent, budget.record())
        manifest = _manifest(run, result, journal, seconds=time.monotonic() - started)
        session.bind(*_write_files(run, result))
        session.complete(manifest)
        return result


def _write_files(run: AuditRun, result: AuditResult) -> list[Path]:
    """What was found, and the texts it was found in; afterwards these are all files of the audit."""
    make_folder(run.out / "generations", inside=run.out)
    texts = {BOOK: run.book.text}
    texts |= {_control_name(number): control.text for number, control in enumerate(run.controls)}
    texts |= dict(_section_texts(result.trials))
    for name, text in texts.items():
        with atomic_file(run.out / name) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    trials = [trial.record() for trial in result.trials]
    controls = [control.record() for control in result.controls]
    findings = {"trials": trials, "spread": spread(trials), "controls": controls}
    write_json(run.out / FINDINGS, findings)
    return [run.out / name for name in (JOURNAL, FINDINGS, *texts)]


def _manifest(run: AuditRun, result: AuditResult, journal: AuditJournal, *, seconds: float) -> dict[str, Any]:
    return {
        "config": asdict(run.options),
        "texts": {text.name: text.facts for text in (run.book, *run.controls)},
        "model": run.model,
        "seed": run.options.seed,
        "command_line": run.command_line,
        "timings": {"measuring_seconds": seconds},
        "totals": {"requests": result.requests, "sent_by_this_process": result.sent},
        "journal": {"records": journal.records, "last_hash": journal.last_hash},
        "costs": result.costs,
        "authorisation": run.options.authorisation if run.options.tests_a_safeguard else None,
        "is_cut_short": result.is_cut_short,
        "nv_recall": {str(trial.number): trial.nv_recall for trial in result.trials},
    }


def generation_name(trial: int, section: int, *, is_closest: bool = False) -> str:
    """The file of a generation; `is_closest`: of the best answer of a failed phase 1."""
    return f"generations/trial-{trial:03d}-section-{section:03d}{'-closest' if is_closest else ''}.txt"


def _control_name(number: int) -> str:
    return f"control-{number:03d}.txt"


def _section_texts(trials: Iterable[TrialFinding]) -> Iterator[tuple[str, str]]:
    """The file of every section, and its text."""
    for trial in trials:
        for number, section in enumerate(trial.sections):
            failed = section.recall is None
            text = section.closest if failed else section.generation
            yield generation_name(trial.number, number, is_closest=failed), text


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
        """What every trial requested and found, as in findings.json."""
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


def read_audit(path: Path) -> AuditFolder:
    """The audit at `path`. A RunError when it is another kind of run, unfinished, or not as it was written."""
    verified = verify_run(path)
    if verified.kind != "audit":
        raise RunError(f"{path} holds a {verified.kind} run, not an audit.")
    if verified.manifest is None:
        raise RunError(f"The audit in {path} is not finished; run its command again to finish it.")
    findings = json.loads((path / FINDINGS).read_bytes())
    return AuditFolder(path, verified.run_id, verified.manifest, findings)


def check_audit(verified: StoredRun) -> Iterator[str]:
    """One line for the journal and, of a finished audit, one for its numbers; a RunError for what does not fit.

    The numbers are worked out again from the journal and the book, without a model.
    """
    records = list(read_records(verified.path / JOURNAL, verified.run_id))
    yield f"{JOURNAL}: {len(records):,} whole records, each bound to the one before"
    if verified.manifest is None:
        return
    audit = read_audit(verified.path)
    options, client = AuditOptions(**audit.manifest["config"]), ReplayClient(records)
    asked_for = [
        Document.from_text(control["name"], audit.text(_control_name(number)), split=Split.CONTROL)
        for number, control in enumerate(audit.findings["controls"])
    ]
    trials = list(audit_book(audit.text(BOOK), client, options))
    controls = list(audit_controls(asked_for, client, options, trials))
    found = {"trials": [trial.record() for trial in trials], "controls": [control.record() for control in controls]}
    for name, values in found.items():
        if json.loads(json_bytes({name: values})) != {name: audit.findings[name]}:
            raise RunError(f"{audit.path}: the {name} in findings.json do not follow from the journal and the book.")
    for name, text in _section_texts(trials):
        if audit.text(name) != text.encode("utf-8", "backslashreplace").decode():
            raise RunError(f"{audit.path / name} is not what the journal's answers make.")
    yield f"{FINDINGS}: every number follows from the journal and {BOOK}"


def perform_audit(
    command: AuditCommand,
    options: AuditOptions,
    *,
    command_line: tuple[str, ...],
    on_answer: Callable[[str, int], None] = lambda place, answered: None,
) -> AuditResult:
    """Run or resume the audit in its folder."""
    controls = read_documents(command.control, split=Split.CONTROL) if command.control else []
    run = AuditRun(
        book=read_only(command.book, split=Split.TARGET),
        controls=tuple(control.held() for control in controls),
        model={"name": command.model, "endpoint": command.endpoint},
        options=options,
        out=command.out,
        prices=Prices(input=command.price_input, output=command.price_output, cached_input=command.price_cached_input),
        ceilings=Ceilings(
            max_tokens_total=command.max_tokens_total, max_cost=command.max_cost, max_requests=command.max_requests
        ),
        retry=RetryPolicy(attempts=command.attempts),
        command_line=command_line,
    )
    run.check()
    responder: Responder
    if (endpoint := command.endpoint) is None:
        responder, identity = _local(command, options)
        run = replace(run, model=identity)
    else:
        from byrote.models.served.chat import ChatResponder
        from byrote.models.served.client import credentials_for

        responder = ChatResponder(
            endpoint,
            command.model,
            key=credentials_for(endpoint, command.key_variable, option="--endpoint", over_http=command.key_over_http),
            timeout_seconds=command.timeout_seconds,
            stream=command.stream,
            token_parameter=command.token_parameter,
            requests_per_minute=command.requests_per_minute,
        )
    with closing(responder):
        return run_audit(run, responder, on_answer=on_answer)


def _local(command: AuditCommand, options: AuditOptions) -> tuple[Responder, dict[str, Any]]:
    """A model on this machine, and its identity."""
    from byrote.models.hf.model import load
    from byrote.models.local_chat import LocalResponder
    from byrote.search.sizing import require_memory

    loaded = load(command.model, device=command.device)
    at_once = max(command.beams, options.completions)
    require_memory(
        at_once * loaded.vocab_size * 16,  # probabilities of the next token, and copies of them
        loaded.device,
        what=f"generating {at_once:,} answers at once",
        advice="lower --beams or --completions",
    )
    responder = LocalResponder(
        loaded,
        chat=options.style is Style.CHAT,
        beams=command.beams,
        seed=options.seed,
        context_tokens=command.context_tokens,
    )
    return responder, {"beams": command.beams, "context_tokens": responder.context_tokens, **asdict(loaded.identity)}
