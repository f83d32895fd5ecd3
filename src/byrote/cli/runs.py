"""Commands on finished and unfinished runs: show, report, export, change, gate, risk, runs, verify."""

import typer
from rich.table import Table
from rich.text import Text

from byrote.cli import commands
from byrote.cli.console import OutputError, make_console
from byrote.errors import ConfigError, StorageError
from byrote.integrations.hub import write_eval_results
from byrote.integrations.lm_eval import write_task
from byrote.integrations.loggers import log_to
from byrote.report.content import DEFAULTS, Asked, contents_json
from byrote.report.gate import EXIT_CODES, as_json, as_junit, as_markdown, judge, parse_rule
from byrote.report.terminal import print_content, terminal_text
from byrote.report.view import LISTS_BY_EDITS, load_view
from byrote.report.words import plural
from byrote.run_kinds import by_kind, section_of, write_report
from byrote.store.export import export_run
from byrote.store.files import atomic_file, refuse_link
from byrote.store.read import check_written, list_runs, read_run, verify_run


def show(options: commands.ShowOptions) -> None:
    asked = Asked(options.queries, options.probability, options.reveal, options.threshold, options.epsilon)
    groups = by_kind(options.runs)
    if options.json:
        print(contents_json([section_of(kind).read([path], asked) for kind, paths in groups.items() for path in paths]))
        return
    console = make_console()
    for kind, paths in groups.items():
        section = section_of(kind)
        for path in paths:
            if len(options.runs) > 1:
                console.rule(f"{kind}: {path}", align="left")
            print_content(section.read([path], asked), console)
        if len(paths) > 1 and section.is_compared:
            console.rule(f"{len(paths)} {kind} runs together", align="left")
            print_content(section.read(paths, DEFAULTS), console)


def report(options: commands.ReportOptions) -> None:
    out = options.out
    if out is None:
        out = options.runs[0] / "report"
        refuse_link(out)
    written = write_report(options.runs, out, Asked(threshold=options.threshold, reveal=options.reveal))
    console = make_console()
    console.print(Text(str(written.page), style="bold"), soft_wrap=True)
    drawn = len({path.stem for path in written.others if path.suffix == ".svg"})
    beside = [path.name for path in written.others if path.parent.name != "figures"]
    figures = [f"{plural(drawn, 'figure')} (SVG, PNG, PDF, and their numbers as CSV)"] if drawn else []
    console.print(Text("; ".join([*figures, *dict.fromkeys(beside)])), soft_wrap=True)


def export(options: commands.ExportOptions) -> None:
    console = make_console(stderr=True)
    if options.format is not None and options.to is not None:
        raise ConfigError("give --format or --to, not both.")
    if options.to is not None:
        numbers = log_to(options.to, load_view(options.run), project=options.project)
        console.print(f"{len(numbers)} numbers: {options.to}, project {options.project}", soft_wrap=True)
        return
    if options.format == "lm-eval":
        folder = options.out or options.run / "lm-eval"
        files = write_task(load_view(options.run), folder)
        tasks = ",".join(path.stem for path in files if path.suffix == ".yaml")
        console.print(f"Run it with: lm_eval --include_path {folder} --tasks {tasks} …", soft_wrap=True)
        return
    if options.format == "hub":
        if options.dataset is None:
            raise ConfigError("format is hub, and its results belong to a dataset; give --dataset org/name.")
        file = options.out or options.run / "eval_results.yaml"
        count = write_eval_results(load_view(options.run), file, dataset=options.dataset)
        console.print(f"{count} results: {file}; add it to the model's repository in .eval_results/.", soft_wrap=True)
        return
    format = options.format or "csv"
    identity = read_run(options.run).identity
    budget = identity.get("config", {}).get("edit_budget")
    spread = dict.fromkeys(LISTS_BY_EDITS, budget + 1) if isinstance(budget, int) else {}
    written = export_run(
        options.run,
        format=format,
        out=options.out,
        table=options.table,
        inert=options.inert,
        entries=spread,
        with_texts=options.texts and "pairs" not in identity,
    )
    rest = "" if written.is_complete else " (the run is not finished: these are its finished windows)"
    make_console(stderr=True).print(f"{written.rows} rows: {written.path}{rest}", soft_wrap=True)


def gate(options: commands.GateOptions) -> None:
    rules = [*map(parse_rule, options.max_rate)]
    rules += [parse_rule(text, is_increase=True) for text in options.max_increase]
    view = load_view(options.run)
    baseline = None if options.baseline is None else load_view(options.baseline)
    judgement = judge(view, rules, baseline=baseline, confidence=options.confidence)
    contents = {
        options.json: as_json(view, judgement, baseline=baseline) + "\n",
        options.junit: as_junit(view, judgement),
    }
    for path, content in contents.items():
        if path is not None:
            with atomic_file(path) as file:
                file.write(content.encode())
    if options.summary is not None:
        try:
            with options.summary.open("a", encoding="utf-8") as appended:
                appended.write(as_markdown(view, judgement))
        except OSError as error:
            raise StorageError(f"Cannot append to {options.summary}: {error.strerror or error}.") from error
    console = make_console()
    try:
        for finding in judgement.findings:
            words = f"{finding.outcome.value.replace('_', ' '):<12} {finding.words}"
            console.print(terminal_text(words), soft_wrap=not console.is_terminal)
    except OutputError as error:
        # The exit code is the judgement, whether or not the output can be written.
        make_console(stderr=True).print(f"warning: {error}", soft_wrap=True)
    raise typer.Exit(EXIT_CODES[judgement.outcome])


def change(options: commands.ChangeOptions) -> None:
    from byrote.report.analysis.change import change_content, scan_change  # draws, as the other commands here do not

    later, control = [load_view(path) for path in options.later], options.control
    found = scan_change(
        load_view(options.before),
        load_view(options.after),
        later=later,
        never_trained=None if control is None else load_view(control),
    )
    page = None if options.out is None else found.report(options.out)
    content, console = change_content(found), make_console()
    if options.json:
        print(contents_json([content]))
        return
    print_content(content, console)
    if page is not None:
        console.print(Text(str(page), style="bold"), soft_wrap=True)


def risk(options: commands.RiskOptions) -> None:
    from byrote.report.analysis.risk import documents_asked, risk_content  # draws, as the other commands here do not

    view = load_view(options.run)
    documents = documents_asked(view, options.document)
    print_content(risk_content(view, documents, sorted(options.queries)), make_console())


def runs(options: commands.RunsOptions) -> None:
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


def verify(options: commands.VerifyOptions) -> None:
    verified = verify_run(options.run)
    lines = list(verified.checked)
    if verified.kind == "audit":
        from byrote.longform.run import check_audit

        lines += check_audit(verified)
    if verified.kind == "study":
        from byrote.study.run import check_cells

        lines += check_cells(verified)
    written, others = check_written(verified.path, known=[line.split(": ")[0] for line in lines])
    console = make_console()
    for line in (*lines, *written):
        console.print(line, soft_wrap=True)
    state = "unfinished" if verified.manifest is None else "complete"
    further = f", and so {'is' if len(written) == 1 else 'are'} {plural(len(written), 'file')} of reports and exports"
    console.print(
        f"{verified.kind} run {verified.run_id}, {state}: every file of the run is as it was written"
        f"{further if written else ''}.",
        soft_wrap=True,
    )
    if others:
        console.print(f"Not checked, since no hash was noted for them: {', '.join(others)}.", soft_wrap=True)
