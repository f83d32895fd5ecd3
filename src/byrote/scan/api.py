"""The Python interface: load a model, read windows, scan them, keep the results as a table or a run folder.

model = byrote.load_model("path/or/id")
windows = byrote.read_windows(model, "book.txt", control="other.txt")
results = byrote.scan(model, windows)
results.to_polars(); results.save("runs/first")
"""

import os
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from byrote.corpus.pairs import pairs_of
from byrote.corpus.read import Document, combine_documents, documents_of
from byrote.errors import ConfigError, RunError
from byrote.models.base import LanguageModel
from byrote.models.load import as_language_model, open_model
from byrote.options import options_of, require_known, with_options
from byrote.progress import SilentProgress, make_progress
from byrote.report.analysis.comparison import compare_runs
from byrote.report.analysis.rates import Criterion, hits_of, places_of
from byrote.report.tables import rates_rows
from byrote.report.view import RunView, view_of
from byrote.report.words import plural
from byrote.scan import run as runs
from byrote.scan.executors import LocalExecutor, RayExecutor, executor_of
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Facts, MeasuredWindow
from byrote.scan.row import facts_carried, measures_of, results_schema
from byrote.scan.served import with_listing
from byrote.scan.source import Given, Source, cut_source, fitted, read_given, target_length, with_edit_budget
from byrote.scan.stages.screen import with_audit
from byrote.stats.compare import compare_rates
from byrote.stats.population import Population
from byrote.store.tables import table_of
from byrote.types import Split, Window
from byrote.verdict import Verdict

if TYPE_CHECKING:
    import pandas as pd

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One file, folder or glob, or several."""
IN_MEMORY = ("in memory",)
"""What a run names in place of files."""


def load_model(model: Any, *, tokenizer: Any = None, **options: Any) -> LanguageModel:
    """A model to measure: by folder or hub id with its tokenizer, a Hugging Face model in memory with the `tokenizer`
    given, or an object of your own with `vocab_size` and `next_logits` (docs/models.md).

    `options` of the first kind: `revision`, `dtype`, `device`, `adapter`, `engine_args`, as for `byrote scan`.
    """
    if isinstance(model, str | os.PathLike):
        require_known(options, ("revision", "dtype", "device", "adapter", "engine_args"), place="byrote.load_model")
        return open_model(os.fspath(model), **options)
    return as_language_model(model, tokenizer)


def read_windows(
    model: Any,
    text: Paths = (),
    *,
    control: Paths = (),
    pairs: Paths | Iterable[Mapping[str, Any]] = (),
    texts: Iterable[str | Mapping[str, Any]] | None = None,
    control_texts: Iterable[str | Mapping[str, Any]] | None = None,
    config: RunConfig | None = None,
    **options: Any,
) -> "Windows":
    """Cut windows from target and control texts, or from pairs, for the tokenizer of `model`.

    `text`, `control` and `pairs` name files. Texts in memory are `texts` and `control_texts`: strings, dictionaries
    with a `text` and perhaps an `id`, or a dataset with these columns. Pairs in memory are dictionaries with `prefix`
    and `suffix`.

        windows = byrote.read_windows(model, texts=[poem, {"id": "letter", "text": letter}], stride_chars=200)

    `help(byrote.scan)` lists the options; they replace those of `config`.
    """
    listed = () if isinstance(pairs, str | os.PathLike) else pairs
    rows = [one for one in listed if not isinstance(one, str | os.PathLike)]
    files = {"text": text, "control": control, "pairs": () if rows else pairs}
    chosen = _config(config, options | {name: paths for name, paths in files.items() if paths}, place="read_windows")
    opened = as_language_model(model)
    runs.check_fits(opened, chosen)
    has_texts = texts is not None or control_texts is not None
    if has_texts + bool(rows) + bool(chosen.text or chosen.control or chosen.pairs) > 1:
        raise ConfigError("give files, texts in memory or pairs in memory, one of the three.")
    if has_texts:
        targets = documents_of(() if texts is None else texts, split=Split.TARGET)
        controls = [] if control_texts is None else documents_of(control_texts, split=Split.CONTROL)
        given: Given = combine_documents([*targets, *controls])
        chosen = replace(chosen, text=IN_MEMORY, control=IN_MEMORY if controls else ())
    elif rows:
        given = pairs_of(rows)
        chosen = replace(chosen, pairs=IN_MEMORY)
    else:
        # Held in memory: the files may change before the windows are scanned.
        given = [one.held() if isinstance(one, Document) else one for one in read_given(chosen)]
    return Windows(cut_source(given, opened, chosen), chosen)


@with_options(RunConfig)
def scan(
    model: Any,
    windows: Sequence[Window],
    config: RunConfig | None = None,
    *,
    on_row: Callable[[dict[str, Any]], None] | None = None,
    progress: bool | Callable[[int, int], None] = False,
    **options: Any,
) -> "Results":
    """Measure windows in memory. `options` replace those of `config`.

    `on_row` is given every row as soon as it is settled. `progress=True` shows a bar, or lines in a log; a function is
    called with (windows done, windows in all).

        model = byrote.load_model("gpt2")
        windows = byrote.read_windows(model, "book.txt", control="other.txt", sample=300)
        results = byrote.scan(model, windows, edit_budget=3, top_k=50)
        results.rates()  # a polars frame; also to_polars, to_pandas, compare, report and save
    """
    opened, settled, executor = _prepare(model, windows, config, options)
    rows: list[MeasuredWindow] = []
    with make_progress() if progress is True else nullcontext(SilentProgress()) as shown:
        shown.start(len(windows), 0)
        for measured in executor.run(windows):
            rows.append(measured)
            if on_row is not None:
                on_row(dict(measured.row))
            shown.advance(1)
            if callable(progress):
                progress(len(rows), len(windows))
    return Results(rows, windows, model=opened, config=settled, facts=executor.facts)


def scan_rows(
    model: Any, windows: Sequence[Window], config: RunConfig | None = None, **options: Any
) -> Iterator[dict[str, Any]]:
    """The rows of `scan` one by one, each as soon as it is settled and in that order; nothing is kept."""
    _, _, executor = _prepare(model, windows, config, options)
    return (dict(measured.row) for measured in executor.run(windows))


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
        return f"<byrote.Windows: {plural(len(self), 'window')} of {plural(len(self.source.documents), 'document')}>"


class Scanned(ABC):
    """Rows of scanned windows. docs/columns.md explains every column."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """One row per window as a pyarrow table, columns as in results.parquet."""

    @cached_property
    @abstractmethod
    def _view(self) -> RunView: ...

    def to_polars(self) -> pl.DataFrame:
        """One row per window as a polars frame, columns as in results.parquet."""
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self) -> "pd.DataFrame":
        """One row per window as a pandas frame; needs pandas (`pip install 'byrote[pandas]'`)."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "to_pandas needs pandas, which is not installed. Install it with: pip install 'byrote[pandas]', or use "
                "to_polars."
            ) from error
        return self.to_arrow().to_pandas()

    def rates(self) -> pl.DataFrame:
        """One row per split, criterion and ε: hits, rate, and an interval that respects overlapping windows."""
        return pl.DataFrame(rates_rows([self._view]), infer_schema_length=None)

    def compare(self, other: "Scanned") -> pl.DataFrame:
        """This against `other` on the same target windows: for every criterion and ε both rates, their paired
        difference (other minus this) and its interval, at the larger of both thresholds. A RunError when the windows
        are not the same."""
        if not isinstance(other, Scanned):
            raise ConfigError(f"compare needs the results of another scan, not {type(other).__name__}.")
        found = compare_runs([self._view, other._view])
        if found.aligned is None:
            raise RunError(found.reason or "The windows of these scans differ.")
        first, second = (part.select(~part.is_control) for part in found.aligned)
        if not len(first):
            raise RunError("There are no target windows to compare.")
        # Below the threshold that a scan was made with, its searches may have stopped.
        threshold = max(self._view.threshold, other._view.threshold)
        return pl.DataFrame(list(_compared(first, second, threshold)), infer_schema_length=None)


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
        documents = plural(len({window.document for window in self._windows}), "document")
        return f"<byrote.Results: {plural(len(self), 'window')} of {documents}{extractable}; model {self._model.name}>"

    def to_arrow(self) -> pa.Table:
        """One row per window as a pyarrow table, columns as in results.parquet."""
        schema = results_schema(measures_of(self._config), facts_carried(self._windows))
        return table_of(({column.name: row.get(column.name) for column in schema} for row in self), schema)

    @cached_property
    def _view(self) -> RunView:
        texts = {}
        if isinstance(self._windows, Windows):
            source, tally = self._windows.source, self._windows.source.chosen.tally
            texts = runs.texts_section(source, tally.windows, tally.short, {})
        manifest = {"config": self._config.as_dict(), "model": asdict(self._model.identity), "texts": texts}
        if isinstance(self._windows, Windows):
            manifest["prompt"] = runs.prompt_section(self._model, self._windows.source)
        return view_of(self.to_polars(), manifest, path=Path("in memory"), texts={}, is_complete=True)

    def report(self, out: str | Path) -> Path:
        """Write the page, figures and tables of `byrote report` to `out`; the path of the page."""
        from byrote.report.page import write_page
        from byrote.scan.report import read

        with tempfile.TemporaryDirectory() as folder:
            return write_page([read([self.save(Path(folder) / "run")])], Path(out)).page

    def save(self, path: str | Path, *, fresh: bool = False, sections: Mapping[str, Any] | None = None) -> Path:
        """Write a complete run folder, as `byrote scan` would. The windows must come from `read_windows`.

        `fresh` replaces another run there; `sections` are further ones of the manifest.
        """
        if not isinstance(self._windows, Windows):
            raise ConfigError("only results of windows from byrote.read_windows can be saved as a run folder.")
        source, config = self._windows.source, self._config
        identity = runs.run_identity(self._model, source, config)
        with runs.open_session(replace(config, out=str(path)), identity, fresh=fresh) as session:
            if session.is_complete:
                return session.path
            session.write_texts(source.documents)
            finished = session.finished_ids()
            for measured in self._measured:
                if measured.row["window_id"] not in finished:
                    session.add(measured.row, measured.continuations)
            session.flush()
            runs.complete_scan(
                session,
                config,
                self._model,
                source,
                self._facts,
                short=source.chosen.tally.short,
                command_line=["byrote.scan"],
                timings={},
                document_facts={},
                **(sections or {}),
            )
            return session.path


def _prepare(
    model: Any, windows: Sequence[Window], config: RunConfig | None, options: dict[str, Any]
) -> tuple[LanguageModel, RunConfig, LocalExecutor | RayExecutor]:
    """The model, the options and the executor of a scan, everything checked before the first forward."""
    _require_windows(windows)
    own = _scan_config(windows, config, options)
    if isinstance(windows, Windows):
        shortest = windows.source.shortest_suffix
    else:  # windows of characters end before suffix_chars, at a word
        shortest = None if own.unit == "text" else min(map(target_length, windows))
    chosen = with_audit(with_edit_budget(own, shortest), len(windows))
    chosen.require_use()
    for name, declared in options_of(type(chosen)).items():
        if declared.spec.needs_folder and (value := getattr(chosen, name)):
            raise ConfigError(
                f"{name} is {value}, but byrote.scan measures every window it is given, once; leave it out, or use "
                "the command byrote scan."
            )
    opened, chosen = with_listing(as_language_model(model), chosen)
    _require_fitting(windows, opened, chosen)
    sizes = fitted(chosen, windows)
    runs.check_fits(opened, sizes)
    runs.check_memory(opened, sizes, windows=len(windows))
    return opened, chosen, executor_of(opened, sizes, windows=len(windows))


def _config(config: RunConfig | None, options: dict[str, Any], *, place: str) -> RunConfig:
    if not isinstance(config, RunConfig | None):
        raise ConfigError(f"config is a {type(config).__name__}; give byrote.RunConfig(…), or options by their names.")
    require_known(options, options_of(type(config or RunConfig())), place=f"byrote.{place}")
    return replace(config or RunConfig(), **options)


def _scan_config(windows: Sequence[Window], config: RunConfig | None, options: dict[str, Any]) -> RunConfig:
    if not isinstance(windows, Windows):
        return _config(config, options, place="scan")
    chosen = _config(config or windows.config, options, place="scan")
    cut = windows.config
    # The options that chose the windows must be the ones a saved run will name.
    for name, declared in options_of(type(cut)).items():
        is_cutting = declared.spec.cuts_windows or (name == "seed" and cut.sample is not None)
        if is_cutting and getattr(cut, name) != getattr(chosen, name):
            raise ConfigError(
                f"the windows were read with {name} {getattr(cut, name)}, but scan was given {getattr(chosen, name)}; "
                "use one RunConfig for both."
            )
    return replace(chosen, text=cut.text, control=cut.control, pairs=cut.pairs)


def _require_windows(windows: Any) -> None:
    if isinstance(windows, str | os.PathLike):
        raise ConfigError(
            f"windows is the text {os.fspath(windows)}; cut it: byrote.read_windows(model, {os.fspath(windows)!r})."
        )
    if not isinstance(windows, Sequence) or not all(isinstance(window, Window) for window in windows):
        raise ConfigError("windows must be what byrote.read_windows gives, or a list of byrote.Window objects.")
    if not windows:
        raise ConfigError("windows is empty; there is nothing to scan.")
    name, count = Counter(window.window_id for window in windows).most_common(1)[0]
    if count > 1:
        raise ConfigError(
            f"{count} windows are named {name}; results are identified by window_id, so give each its own."
        )


def _require_fitting(windows: Sequence[Window], model: LanguageModel, config: RunConfig) -> None:
    """Windows may come from anywhere: each has tokens of this model, and a suffix that can be missed."""
    for window in windows:
        name, ids, suffix = f"window {window.window_id}", window.ids, len(window.suffix_ids)
        if not window.prefix_ids or not suffix:
            raise ConfigError(f"{name} has {len(window.prefix_ids)} prefix and {suffix} suffix tokens; give both.")
        if not 0 <= min(ids) <= max(ids) < model.vocab_size:
            raise ConfigError(
                f"{name} has tokens from {min(ids)} to {max(ids)}, and those of {model.name} are 0 to "
                f"{model.vocab_size - 1}; cut windows with the tokenizer of this model."
            )
        if (config.unit == "text") is not (window.suffix_text is not None):
            raise ConfigError(
                f"{name} has {'no' if config.unit == 'text' else 'a'} suffix_text, which unit {config.unit} needs"
                f"{'' if config.unit == 'text' else ' not'}; read windows and scan them with one unit."
            )
        if "near" in config.measures and (length := target_length(window)) <= config.edits:
            raise ConfigError(
                f"{name} has a suffix of {length} {config.counted}, and everything is within {config.edits} edits of "
                "it; lower edit_budget, or leave near out of measures."
            )


def _compared(first: Population, second: Population, threshold: float) -> Iterator[dict[str, Any]]:
    """A row for every criterion that both measured, and every ε."""
    budget = min(first.edit_budget, second.edit_budget)
    # Not what a search could not rule out: that is about the searches, which stop by τ, and not about the models.
    for criterion in (Criterion.GREEDY, Criterion.VERBATIM, Criterion.NEAR):
        for edits in range(1 if criterion is Criterion.VERBATIM else budget + 1):
            hits = [hits_of(part, criterion, edits=edits, threshold=threshold) for part in (first, second)]
            measured = [flags for flags in hits if flags is not None]
            if len(measured) < 2:
                continue
            found = compare_rates(measured[0], measured[1], places_of(first))
            yield {
                "criterion": criterion.value,
                "edits": None if criterion is Criterion.VERBATIM else edits,
                "threshold": threshold,
                "windows": found.n,
                "first": found.first,
                "second": found.second,
                "difference": found.difference,
                "interval_low": found.interval.low,
                "interval_high": found.interval.high,
                "p_value": found.p_value,
                "note": found.interval.reason,
            }
