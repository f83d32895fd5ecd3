"""`rote gate`: does a run keep within the rates that its owner allows?"""

from dataclasses import dataclass
from pathlib import Path

import typer

from rote.cli.console import OutputError, make_console
from rote.cli.flags import command
from rote.options import Settled, option, required


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
    from rote.report.gate import EXIT_CODES, judge, parse_rule
    from rote.report.gate_output import as_json, as_junit
    from rote.report.view import load_view
    from rote.store.atomic import atomic_file

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
