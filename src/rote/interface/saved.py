"""`rote.read_run`: a run folder of any kind, every file checked."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rote.longform.audit_folder import AuditFolder, is_audit, read_audit
from rote.scan.scanned import Scanned
from rote.store.read import StoredRun
from rote.store.read import read_run as read_stored

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from rote.report.view import RunView


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
        return f"<rote.SavedRun: {self.kind} with {len(self):,} rows{state}; {self.path}>"

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
        """Write the page of `rote report` to `out`, by default inside the run; the path of the page."""
        from rote.cli.report import write_report

        return write_report((self.path,), self.path / "report" if out is None else Path(out)).page

    @cached_property
    def _view(self) -> "RunView":
        from rote.report.view import load_view

        return load_view(self.path)


def read_run(path: str | Path) -> SavedRun | AuditFolder:
    """The run at `path`, every file checked. Of an unfinished one, the windows that are finished.

    A RunError when it is no run, or when a file is not as it was written.
    """
    folder = Path(path)
    return read_audit(folder) if is_audit(folder) else SavedRun(read_stored(folder))
