"""What a scan in memory gives: rows, frames, and the run folder that the command would have written."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rote.errors import ConfigError
from rote.models.base import LanguageModel
from rote.scan.columns import facts_carried, measures_of, results_schema
from rote.scan.manifest_sections import run_identity, texts_section
from rote.scan.options import RunConfig
from rote.scan.pipeline import Facts, MeasuredWindow
from rote.scan.run import complete_scan, open_session
from rote.scan.scanned import Scanned
from rote.scan.source import Source
from rote.types import Verdict, Window

if TYPE_CHECKING:
    import pyarrow as pa

    from rote.report.view import RunView


@dataclass(frozen=True, slots=True, repr=False)
class Windows(Sequence[Window]):
    """Windows with the documents they were cut from and the options they were cut with."""

    source: Source
    config: RunConfig

    def __len__(self) -> int:
        return len(self.source.chosen.windows)

    def __getitem__(self, place: Any) -> Any:
        return self.source.chosen.windows[place]

    def __repr__(self) -> str:
        counts = ((len(self), "window"), (len(self.source.documents), "document"))
        windows, documents = (f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
        return f"<rote.Windows: {windows} of {documents}>"


class Results(Scanned):
    """Measured windows in the order they were given. Iterating gives one mapping per window, columns as in a run."""

    def __init__(
        self,
        rows: list[MeasuredWindow],
        windows: Sequence[Window],
        model: LanguageModel,
        config: RunConfig,
        facts: Facts,
    ) -> None:
        by_id = {measured.row["window_id"]: measured for measured in rows}
        self._measured = [by_id[window.window_id] for window in windows]
        self._windows, self._model, self._config, self._facts = windows, model, config, facts

    def __len__(self) -> int:
        return len(self._measured)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(measured.row) for measured in self._measured)

    def continuations(self) -> Iterator[dict[str, Any]]:
        """The best accepted continuations of every window, as in continuations.parquet."""
        return (dict(row) for measured in self._measured for row in measured.continuations)

    def __repr__(self) -> str:
        found = [measured.row["verdict"] for measured in self._measured if "verdict" in measured.row]
        extractable = f", {found.count(Verdict.EXTRACTABLE):,} of them extractable" if found else ""
        documents = len({window.document for window in self._windows})
        return (
            f"<rote.Results: {len(self):,} windows of {documents:,} documents{extractable}; model {self._model.name}>"
        )

    def to_arrow(self) -> "pa.Table":
        """One row per window as a pyarrow table, columns as in results.parquet."""
        from rote.store.schema import table_of

        schema = results_schema(measures_of(self._config), facts_carried(self._windows))
        return table_of(({column.name: row.get(column.name) for column in schema} for row in self), schema)

    @cached_property
    def _view(self) -> "RunView":
        from rote.report.view import view_of

        texts = {}
        if isinstance(self._windows, Windows):
            source, tally = self._windows.source, self._windows.source.chosen.tally
            texts = texts_section(source, tally.windows, tally.short, {})
        manifest = {"config": self._config.as_dict(), "model": asdict(self._model.identity), "texts": texts}
        return view_of(self.to_polars(), manifest, path=Path("in memory"), texts={}, is_complete=True)

    def report(self, out: str | Path) -> Path:
        """Write the page, figures and tables of `rote report` to `out`; the path of the page."""
        from rote.report.build import build_report

        with tempfile.TemporaryDirectory() as folder:
            return build_report([self.save(Path(folder) / "run")], Path(out)).page

    def save(self, path: str | Path) -> Path:
        """Write a complete run folder, as `rote scan` would. The windows must come from `read_windows`."""
        if not isinstance(self._windows, Windows):
            raise ConfigError("only results of windows from rote.read_windows can be saved as a run folder.")
        source, config = self._windows.source, self._config
        identity = run_identity(self._model, source, config)
        with open_session(replace(config, out=str(path)), identity) as session:
            if session.is_complete:
                return session.path
            session.write_texts(source.documents)
            finished = session.finished_ids()
            for measured in self._measured:
                if measured.row["window_id"] not in finished:
                    session.add(measured.row, measured.continuations)
            session.flush()
            complete_scan(
                session,
                config,
                self._model,
                source,
                self._facts,
                short=source.chosen.tally.short,
                command_line=["rote.scan"],
                timings={},
                document_facts={},
            )
            return session.path
