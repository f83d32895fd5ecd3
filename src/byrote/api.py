"""`byrote.read_run`, `byrote.prior` and `byrote.audit`: runs of every kind, in Python."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byrote.kinds import write_report
from byrote.longform.options import AuditCommand, AuditOptions
from byrote.longform.run import AuditFolder, is_audit, perform_audit, read_audit
from byrote.options import build, gather, require_known, settable_of
from byrote.prior.options import PriorConfig
from byrote.progress import SilentProgress, make_progress
from byrote.scan.api import Paths, Scanned, load_model
from byrote.store.read import StoredRun
from byrote.store.read import read_run as read_stored

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from byrote.report.view import RunView


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

    def to_arrow(self) -> "pa.Table":
        """One row per window as a pyarrow table."""
        return self._stored.results.to_arrow()

    def to_polars(self) -> "pl.DataFrame":
        """One row per window as a polars frame."""
        return self._stored.results

    def continuations(self) -> "pl.DataFrame | None":
        """The best continuations of every window; None when the run kept none."""
        return self._stored.continuations

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page of `byrote report` to `out`, by default inside the run; the path of the page."""
        return write_report((self.path,), self.path / "report" if out is None else Path(out)).page

    @cached_property
    def _view(self) -> "RunView":
        from byrote.report.view import load_view

        return load_view(self.path)


def read_run(path: str | Path) -> SavedRun | AuditFolder:
    """The run at `path`, every file checked. Of an unfinished one, the windows that are finished.

    A RunError when it is no run, or when a file is not as it was written.
    """
    folder = Path(path)
    return read_audit(folder) if is_audit(folder) else SavedRun(read_stored(folder))


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
    from byrote.prior.run import prior_to_folder

    is_name = isinstance(model, str | Path)
    named = str(model) if is_name else load_model(model).name
    given = options | {"text": text, "prior_text": prior_text, "out": str(out)}
    config = build(PriorConfig, given | {"model": named}, place="byrote.prior")
    with make_progress("prefixes") if progress else nullcontext(SilentProgress()) as shown:
        done = prior_to_folder(
            config,
            progress=shown,
            say=say,
            command_line=["byrote.prior"],
            fresh=fresh,
            model=None if is_name else load_model(model),
        )
    return SavedRun(read_stored(done.path))


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
