"""The Python interface: load a model, read windows, scan them, keep the results as a table or a run folder.

model = rote.load_model("path/or/id")
windows = rote.read_windows(model, ["book.txt"], control=["other.txt"])
results = rote.scan(model, windows, rote.RunConfig())
results.to_polars(); results.save("runs/first")
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rote.errors import ConfigError
from rote.models.hf import HuggingFaceModel, load
from rote.scan.columns import facts_of, measures_of, results_schema
from rote.scan.options import RunConfig
from rote.scan.pipeline import Facts, MeasuredWindow, Pipeline
from rote.scan.run import (
    check_fits,
    check_memory,
    complete_scan,
    open_session,
    run_identity,
)
from rote.scan.source import Source, cut_source, fitted, read_given
from rote.types import Window

if TYPE_CHECKING:
    import polars as pl


def load_model(
    name: str, *, revision: str | None = None, dtype: str = "auto", device: str = "auto"
) -> HuggingFaceModel:
    """A Hugging Face causal model by folder or hub id, with its tokenizer."""
    return load(name, revision=revision, dtype=dtype, device=device)


@dataclass(frozen=True, slots=True)
class Windows(Sequence[Window]):
    """Windows with the documents they were cut from and the options they were cut with."""

    source: Source
    config: RunConfig

    def __len__(self) -> int:
        return len(self.source.chosen.windows)

    def __getitem__(self, place: Any) -> Any:
        return self.source.chosen.windows[place]


def read_windows(
    model: HuggingFaceModel,
    text: Sequence[str | Path] = (),
    *,
    control: Sequence[str | Path] = (),
    pairs: Sequence[str | Path] = (),
    config: RunConfig | None = None,
) -> Windows:
    """Cut the windows that `config` describes from target and control texts, or from files of pairs."""
    sources = {"text": text, "control": control, "pairs": pairs}
    given = {name: tuple(map(str, paths)) for name, paths in sources.items()}
    options = replace(config or RunConfig(), **given)  # type: ignore[arg-type]
    check_fits(model, options)
    return Windows(cut_source(read_given(options), model, options), options)


class Results:
    """Measured windows in the order they were given. Iterating gives one mapping per window, columns as in a run."""

    def __init__(
        self,
        rows: list[MeasuredWindow],
        windows: Sequence[Window],
        model: HuggingFaceModel,
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

    def to_polars(self) -> "pl.DataFrame":
        import polars as pl

        from rote.store.schema import table_of

        table = table_of(self, results_schema(measures_of(self._config), facts_of(self._config)))
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        return frame

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
                command_line=["rote.scan"],
                timings={},
                document_facts={},
            )
            return session.path


SOURCES = ("text", "control", "pairs")
CUTTING = ("prefix_tokens", "suffix_tokens", "stride_chars", "whole_documents", "limit", "sample", "bos")


def _require_same_cut(cut: RunConfig, scanned: RunConfig) -> None:
    """The options that chose the windows must be the ones a saved run will name."""
    for name in (*CUTTING, *(("seed",) if cut.sample is not None else ())):
        if getattr(cut, name) != getattr(scanned, name):
            raise ConfigError(
                f"the windows were read with {name} {getattr(cut, name)}, but scan was given "
                f"{getattr(scanned, name)}; use one RunConfig for both."
            )


def scan(model: HuggingFaceModel, windows: Sequence[Window], config: RunConfig | None = None) -> Results:
    """Measure windows in memory."""
    options = config or (windows.config if isinstance(windows, Windows) else RunConfig())
    if isinstance(windows, Windows):
        _require_same_cut(windows.config, options)
        options = replace(options, **{name: getattr(windows.config, name) for name in SOURCES})
    sizes = fitted(options, windows)
    check_fits(model, sizes)
    check_memory(model, sizes, windows=len(windows))
    pipeline = Pipeline(model, sizes, decode=model.decode)
    rows = list(pipeline.run(windows))
    return Results(rows, windows, model=model, config=options, facts=pipeline.facts)
