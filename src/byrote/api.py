"""What the commands do beyond scans, in Python: `read_run`, `prior`, `audit`, `study`, `mc`, `change`, `gate`,
`risk`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from byrote.errors import ConfigError
from byrote.longform.options import AuditCommand, AuditOptions
from byrote.longform.run import AuditFolder, perform_audit, read_audit
from byrote.options import build, gather, require_known, settable_of, with_options
from byrote.prior.options import PriorConfig
from byrote.prior.run import prior_to_folder
from byrote.progress import SilentProgress, make_progress
from byrote.report.analysis.change import ScanChange, scan_change
from byrote.report.analysis.risk import documents_asked, risks_of
from byrote.report.gate import Judgement, judge, parse_rule
from byrote.report.view import RunView, load_view
from byrote.run_kinds import kind_of, write_report
from byrote.scan.api import Paths, Scanned, load_model
from byrote.scan.mc import sample_to_folder
from byrote.scan.options import McOptions
from byrote.store.read import StoredRun
from byrote.store.read import read_run as read_stored
from byrote.study.plan import plan_study, read_study_file
from byrote.study.run import run_study

Run = str | Path | Scanned
"""A run folder, or results in memory."""
Rules = Mapping[str, float] | Sequence[str]
"""Rates and the most that each may be: `{"near": 0.01, "kind:phone verbatim": 0}`, or texts as `near=0.01`."""


class SavedRun(Scanned):
    """A run folder with rows: a scan, a prior or another kind. `rates` and `compare` are for scans."""

    def __init__(self, stored: StoredRun) -> None:
        self._stored = stored

    @property
    def path(self) -> Path:
        """The folder."""
        return self._stored.path

    @property
    def kind(self) -> str:
        """What made it: `scan`, `prior`, …"""
        return self._stored.kind

    @property
    def manifest(self) -> dict[str, Any] | None:
        """Model, texts, options, versions, totals; None while the run is unfinished."""
        return self._stored.manifest

    @property
    def is_complete(self) -> bool:
        """Whether every window was measured. Otherwise the rows are those finished so far."""
        return self._stored.is_complete

    def __len__(self) -> int:
        return len(self._stored.results)

    def __repr__(self) -> str:
        state = "" if self.is_complete else ", unfinished"
        return f"<byrote.SavedRun: {self.kind} with {len(self):,} rows{state}; {self.path}>"

    def to_arrow(self) -> pa.Table:
        """One row per window as a pyarrow table."""
        return self._stored.results.to_arrow()

    def to_polars(self) -> pl.DataFrame:
        """One row per window as a polars frame."""
        return self._stored.results

    def continuations(self) -> pl.DataFrame | None:
        """The best continuations of every window; None when the run kept none."""
        return self._stored.continuations

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page of `byrote report` to `out`, by default inside the run; the path of the page."""
        return write_report((self.path,), self.path / "report" if out is None else Path(out)).page

    @cached_property
    def _view(self) -> RunView:
        return load_view(self.path)


def read_run(path: str | Path) -> SavedRun | AuditFolder:
    """The run at `path`, every file checked. Of an unfinished one, the windows that are finished.

    A RunError when it is no run, or when a file is not as it was written.
    """
    folder = Path(path)
    return read_audit(folder) if kind_of(folder) == "audit" else SavedRun(read_stored(folder))


@with_options(PriorConfig)
def prior(
    model: Any,
    text: Paths = (),
    *,
    prior_text: Paths,
    out: str | Path,
    fresh: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    **options: Any,
) -> SavedRun:
    """Tell memorized suffixes of `text` from merely likely ones, with prefixes drawn from `prior_text`; a run in `out`.

    `model` is what `load_model` takes or gives. `options` are those of `byrote prior`. `say` gets what the run cannot
    settle, before the long part.
    """
    is_name = isinstance(model, str | Path)
    named = str(model) if is_name else load_model(model).name
    given = options | {"text": text, "prior_text": prior_text, "out": str(out)}
    config = build(PriorConfig, given | {"model": named}, place="byrote.prior")
    with make_progress("prefixes") if progress else nullcontext(SilentProgress()) as shown:
        prior_to_folder(
            config,
            progress=shown,
            say=say,
            command_line=["byrote.prior"],
            fresh=fresh,
            model=None if is_name else load_model(model),
        )
    return SavedRun(read_stored(Path(out)))


@with_options(AuditCommand, AuditOptions)
def audit(
    model: str,
    book: str | Path,
    *,
    out: str | Path,
    on_answer: Callable[[str, int], None] = lambda place, answered: None,
    **options: Any,
) -> AuditFolder:
    """Ask a model to go on with a book and measure what comes back; a run with its exhibit in `out`.

    `model` is a name at `endpoint=` (a URL), or a folder or hub id. `options`: those of `byrote audit`. `on_answer` is
    called with the place and the number of answers so far.
    """
    from byrote.longform.report import write_exhibit

    homes = (AuditCommand, AuditOptions)
    require_known(options, [option.name for home in homes for option in settable_of(home)], place="byrote.audit")
    command, asked = gather(homes, options | {"model": model, "book": book, "out": out}, None)
    perform_audit(command, asked, command_line=("byrote.audit",), on_answer=on_answer)
    write_exhibit(command.out)
    return read_audit(command.out)


def study(
    file: str | Path | Mapping[str, Any],
    *,
    out: str | Path,
    fresh: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> SavedRun:
    """Measure a grid of settings or models, or resume it in `out`; the rows of the run are its cells.

    `file` is a YAML file, the name of a recipe, or the same as a dictionary. A list of values is an axis. `say` gets a
    sentence for every cell.

        byrote.study({"model": "gpt2", "text": "book.txt", "beam_width": [5, 20]}, out="runs/beams").to_polars()
    """
    if isinstance(file, Mapping):
        values, place = dict(file), "byrote.study"
    else:
        values, place = read_study_file(Path(file)), str(file)
    values.pop("out", None)
    plan = plan_study(values, place=place)
    with make_progress() if progress else nullcontext(SilentProgress()) as shown:
        run_study(plan, Path(out), progress=shown, say=say, command_line=["byrote.study"], fresh=fresh)
    return SavedRun(read_stored(Path(out)))


@with_options(McOptions)
def mc(run: str | Path, *, model: Any = None, **options: Any) -> pl.DataFrame:
    """Sample a few windows of a scan plainly, beside their certified bounds; one row a window.

    `model` is what `load_model` gives, where the run's own is not to be loaded again.

        byrote.mc("runs/first", sample=5, samples=2000).select("window_id", "mass_low", "mass_high", "certified_lower")
    """
    is_name = isinstance(model, str | Path)
    given = options | {"run": run} | ({"model": str(model)} if is_name else {})
    opened = None if model is None or is_name else load_model(model)
    rows = sample_to_folder(build(McOptions, given, place="byrote.mc"), model=opened, command_line=["byrote.mc"])
    return pl.DataFrame(rows, infer_schema_length=None)


def gate(
    run: Run, max_rate: Rules = (), *, baseline: Run | None = None, max_increase: Rules = (), confidence: float = 0.95
) -> Judgement:
    """Whether rates keep within limits: `outcome` is `pass`, `fail` or `cannot_tell`, `findings` say why, by rule.

    All that passes and all that fails does so rightly with this `confidence`.

        assert byrote.gate("runs/candidate", {"near": 0.01, "kind:phone verbatim": 0}).outcome == "pass"
    """
    rules = [parse_rule(rule) for rule in _rules(max_rate)]
    rules += [parse_rule(rule, is_increase=True) for rule in _rules(max_increase)]
    return judge(_view_of(run), rules, baseline=None if baseline is None else _view_of(baseline), confidence=confidence)


def change(before: Run, after: Run, *, later: Sequence[Run] = (), control: Run | None = None) -> ScanChange:
    """What changed between two scans of the same windows: `counts` by split, `to_polars()` with a row a window, and
    `report(folder)`, a page. `later` are scans of what was made of the second model, `control` one of a model that was
    never trained on the texts.

        byrote.change("runs/before", "runs/unlearned", later=["runs/unlearned-4bit"]).counts["target"].forgotten
    """
    further = [_view_of(run) for run in later]
    never_trained = None if control is None else _view_of(control)
    return scan_change(_view_of(before), _view_of(after), later=further, never_trained=never_trained)


def risk(
    run: Run, queries: Sequence[float] = (1, 100, 10_000, 1_000_000), *, document: str | None = None
) -> pl.DataFrame:
    """The risk of whole documents: one row per document, edits and number of queries, with the chance that so many
    random queries bring out a passage (`leak_*`), and how many characters (`characters_*`).

        byrote.risk("runs/first", [1000]).sort("leak_at_least", descending=True)
    """
    if not queries or not all(number >= 1 for number in queries):
        raise ConfigError(f"queries is {queries}; give numbers of at least 1.")
    view = _view_of(run)
    return pl.DataFrame(risks_of(view, documents_asked(view, document), sorted(queries)), infer_schema_length=None)


def _rules(given: Rules) -> list[str]:
    if isinstance(given, str):
        return [given]
    return [f"{name}={limit}" for name, limit in given.items()] if isinstance(given, Mapping) else list(given)


def _view_of(run: Run) -> RunView:
    return run._view if isinstance(run, Scanned) else load_view(Path(run))
