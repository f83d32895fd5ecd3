"""Commands on finished and unfinished runs: show, report, export, gate, risk, runs, verify-run."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from byrote.cli.console import OutputError, make_console
from byrote.cli.flags import command
from byrote.errors import ConfigError
from byrote.kinds import by_kind, kind_of, section_of, write_report
from byrote.options import Settled, like, option, required, settle
from byrote.report.content import Asked
from byrote.types import ExportFormat, ExportTable

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions(Settled):
    runs: tuple[Path, ...] = required(
        "Run folders of any kind, finished or not; several of one kind are also compared.",
        group="output",
        positional=True,
    )
    queries: tuple[float, ...] = option(
        (), "Of a scan: rates within this many queries; may be repeated.", group="output"
    )
    probability: tuple[float, ...] = option((0.5, 0.9), "Probability for --queries; may be repeated.", group="output")
    threshold: str | None = option(
        None, "Read scans at another τ: a number, or from-control=0.001 for a rate of false positives.", group="output"
    )
    reveal: bool = option(False, "Of a prior run: print what its examples otherwise mask.", group="output")

    json: bool = option(False, "Print it as JSON, one entry a run.", group="output", names="--json")


@command(ShowOptions)
def show(options: ShowOptions) -> None:
    """Show what runs found: rates with intervals, controls beside targets, and the text as a heat strip."""
    from byrote.report.content import Asked
    from byrote.report.terminal import show_content

    asked = Asked(options.queries, options.probability, options.reveal, options.threshold)
    if options.threshold is not None and len(options.runs) > 1:
        raise ConfigError(
            f"threshold is {options.threshold}, but {len(options.runs)} runs were given; show one at a time."
        )
    groups = by_kind(options.runs)
    if options.json:
        from byrote.report.content import contents_json

        runs = [(section_of(kind), path) for kind, paths in groups.items() for path in paths]
        print(contents_json([section.content([path], asked) for section, path in runs]))
        return
    console = make_console()
    for kind, paths in groups.items():
        section = section_of(kind)
        for path in paths:
            if len(options.runs) > 1:
                console.rule(f"{kind}: {path}", align="left")
            for line in show_run(path, asked):
                console.print(line)
        if len(paths) > 1:
            console.rule(f"{len(paths)} {kind} runs together", align="left")
            for line in show_content(section.read(paths)):
                console.print(line)


def show_run(path: Path, asked: "Asked") -> "Iterable[RenderableType]":
    """One run as its kind shows it."""
    from byrote.report.terminal import show_content

    section = section_of(kind_of(path))
    return show_content(section.content([path], asked)) if section.show is None else section.show(path, asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(Settled):
    runs: tuple[Path, ...] = required(
        "Run folders of any kind; several of one kind are compared, several kinds share a page.",
        group="output",
        positional=True,
    )
    out: Path | None = option(
        None, "Where to write the report.", group="output", default_words="RUN/report when there is one run"
    )
    threshold: str | None = like(ShowOptions, "threshold")


@command(ReportOptions)
def report(options: ReportOptions) -> None:
    """Write a self-contained page of one run or several, with its figures (SVG, PNG) and tables (CSV)."""
    from byrote.store.files import refuse_link

    runs, out = options.runs, options.out
    if out is None and len(runs) > 1:
        raise ConfigError(
            f"{len(runs)} runs were given, so their report belongs to none of them; say where with --out."
        )
    asked = Asked(threshold=options.threshold)
    if out is None:
        refuse_link(runs[0] / "report")
    written = write_report(runs, out if out is not None else runs[0] / "report", asked)
    console = make_console()
    console.print(Text(str(written.page), style="bold"), soft_wrap=True)
    drawn = len({path.stem for path in written.others if path.suffix == ".svg"})
    beside = [path.name for path in written.others if path.suffix not in (".svg", ".png")]
    figures = [f"{drawn} {'figure' if drawn == 1 else 'figures'} (SVG and PNG)"] if drawn else []
    console.print(Text("; ".join([*figures, *dict.fromkeys(beside)])), soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    run: Path = required("A run folder, finished or not.", group="output", positional=True)
    format: ExportFormat = required("csv keeps lists as JSON; jsonl has one object a line.", group="output")
    out: Path | None = option(None, "File to write.", group="output", default_words="beside the run's tables")
    table: ExportTable = option("results", "Which table.", group="output")
    inert: bool = option(
        True, "In CSV, put an apostrophe before texts that a spreadsheet would take for a formula.", group="output"
    )

    def __post_init__(self) -> None:
        settle(self)


@command(ExportOptions)
def export(options: ExportOptions) -> None:
    """Write a run's rows as CSV or JSON Lines, every digit kept."""
    console = make_console(stderr=True)
    from byrote.store.export import export_run

    written = export_run(options.run, format=options.format, out=options.out, table=options.table, inert=options.inert)
    rest = "" if written.is_complete else " (the run is not finished: these are its finished windows)"
    console.print(f"{written.rows} rows: {written.path}{rest}", soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions(Settled):
    run: Path = required("A finished scan.", group="output", positional=True)
    max_rate: tuple[str, ...] = option(
        (), "A rate and the most it may be: near=0.01, or 'kind:phone verbatim=0'; may be repeated.", group="output"
    )
    baseline: Path | None = option(None, "A scan of the same windows to compare with.", group="output")
    max_increase: tuple[str, ...] = option(
        (), "By how much a rate may exceed the baseline's: 0.02 means near=0.02; may be repeated.", group="output"
    )
    confidence: float = option(
        0.95, "Chance that all that passes is within its limit and all that fails beyond.", group="output",
        above=0, below=1,
    )  # fmt: skip
    json: Path | None = option(None, "Also write what was judged as JSON.", group="output")
    junit: Path | None = option(None, "Also write it as JUnit XML.", group="output")


@command(GateOptions)
def gate(options: GateOptions) -> None:
    """Exit with 0 when every rate is within its limit, 1 when one is beyond, 2 when that cannot be told.

    Rates are judged by their brackets: certified from below, at the stated confidence from above.
    """
    from byrote.report.gate import EXIT_CODES, as_json, as_junit, judge, parse_rule
    from byrote.report.view import load_view
    from byrote.store.files import atomic_file

    rules = [*map(parse_rule, options.max_rate)]
    rules += [parse_rule(text, is_increase=True) for text in options.max_increase]
    view = load_view(options.run)
    baseline = None if options.baseline is None else load_view(options.baseline)
    judgement = judge(view, rules, baseline=baseline, confidence=options.confidence)
    contents = {
        options.json: as_json(view, judgement, baseline=baseline).encode() + b"\n",
        options.junit: as_junit(view, judgement),
    }
    for path, content in contents.items():
        if path is not None:
            with atomic_file(path) as file:
                file.write(content)
    console = make_console()
    try:
        for finding in judgement.findings:
            words = f"{finding.outcome.value.replace('_', ' '):<12} {finding.words}"
            console.print(words, soft_wrap=not console.is_terminal)
    except OutputError as error:
        # The exit code is the judgement, whoever listens.
        make_console(stderr=True).print(f"warning: {error}", soft_wrap=True)
    raise typer.Exit(EXIT_CODES[judgement.outcome])


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskOptions(Settled):
    run: Path = required("A run folder, finished or not.", group="output", positional=True)
    queries: tuple[float, ...] = option(
        (1.0, 100.0, 10_000.0, 1_000_000.0), "How many queries; may be repeated.", group="output", at_least=1
    )
    document: str | None = option(None, "Only this document.", group="output")


@command(RiskOptions)
def risk(options: RiskOptions) -> None:
    """Show the risk of whole documents: the chance that n random queries bring out a passage, and how much of them."""
    from byrote.report.risk import show_risk, works_of
    from byrote.report.view import load_view

    view = load_view(options.run)
    documents = works_of(view) or view.documents
    if options.document is not None:
        documents = [document for document in view.documents if document.name == options.document]
    if not documents:
        names = ", ".join(document.name for document in view.documents[:5])
        raise ConfigError(f"document is {options.document}, but the run has {names}; name one of its documents.")
    make_console().print(show_risk(view, documents, sorted(options.queries)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions(Settled):
    folder: Path = option(Path("."), "Where to look, folders inside of it included.", group="output", positional=True)


@command(RunsOptions)
def runs(options: RunsOptions) -> None:
    """List the runs in a folder and below: kind, model, text, date, state and rows."""
    from byrote.store.read import list_runs

    found = list_runs(options.folder)
    console = make_console()
    if not found:
        console.print(f"No run in {options.folder}.", soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("run", "kind", "model", "text", "date", "state", "rows"):
        table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
    for run in found:
        rows = "–" if run.rows is None else f"{run.rows:,}"
        table.add_row(run.name, run.kind, run.model, run.text, run.date, run.state, rows)
    console.print(table)
    for run in found:
        if run.reason is not None:
            console.print(f"{run.name}: {run.reason}", soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(Settled):
    run: Path = required("A run folder of any kind, finished or not.", group="output", positional=True)


@command(VerifyOptions)
def verify_run(options: VerifyOptions) -> None:
    """Check every file of a run against the hashes it was written with; the first that does not fit is named."""
    from byrote.longform.verify import check_audit
    from byrote.store import read as verify
    from byrote.study.folder import check_cells

    verified = verify.verify_run(options.run)
    lines = list(verified.checked)
    if verified.identity.kind == "audit":
        lines += check_audit(verified)
    if verified.identity.kind == "study":
        lines += check_cells(verified)
    console = make_console()
    for line in lines:
        console.print(line, soft_wrap=True)
    state = "unfinished" if verified.manifest is None else "complete"
    kind, run_id = verified.identity.kind, verified.identity.run_id
    console.print(f"{kind} run {run_id}, {state}: every file is as it was written.", soft_wrap=True)
