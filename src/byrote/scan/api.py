"""The Python interface: load a model, read windows, scan them, keep the results as a table or a run folder.

model = byrote.load_model("path/or/id")
windows = byrote.read_windows(model, "book.txt", control="other.txt")
results = byrote.scan(model, windows)
results.to_polars(); results.save("runs/first")
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from byrote.errors import ConfigError
from byrote.models.base import LanguageModel
from byrote.models.load import as_language_model, open_model
from byrote.options import options_of, require_known
from byrote.scan.executors import executor_of
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import MeasuredWindow
from byrote.scan.results import Results, Windows
from byrote.scan.run import check_fits, check_memory
from byrote.scan.screen import with_audit
from byrote.scan.source import cut_source, fitted, held, read_given
from byrote.types import Window

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One file, folder or glob, or several."""


def load_model(model: Any, *, tokenizer: Any = None, **options: Any) -> LanguageModel:
    """A model to measure: by folder or hub id with its tokenizer, a Hugging Face model in memory with the `tokenizer`
    given, or an object of your own with `vocab_size` and `next_logits` (docs/models.md).

    `options` of the first kind: `revision`, `dtype`, `device`, `adapter`, as for `byrote scan`.
    """
    if isinstance(model, str | os.PathLike):
        return open_model(os.fspath(model), **options)
    return as_language_model(model, tokenizer)


def read_windows(
    model: Any,
    text: Paths = (),
    *,
    control: Paths = (),
    pairs: Paths = (),
    config: RunConfig | None = None,
    **options: Any,
) -> Windows:
    """Cut windows from target and control texts, or from files of pairs, for the tokenizer of `model`.

    `options` are those of `byrote scan` and replace what `config` says: `stride_chars=200`, `sample=500`.
    """
    given = {name: paths for name, paths in (("text", text), ("control", control), ("pairs", pairs)) if paths}
    chosen = _config(config, options | given, place="read_windows")
    opened = as_language_model(model)
    check_fits(opened, chosen)
    return Windows(cut_source(held(read_given(chosen)), opened, chosen), chosen)


def scan(
    model: Any,
    windows: Sequence[Window],
    config: RunConfig | None = None,
    *,
    on_row: Callable[[dict[str, Any]], None] | None = None,
    progress: bool | Callable[[int, int], None] = False,
    **options: Any,
) -> Results:
    """Measure windows in memory. `options` are those of `byrote scan` and replace what `config` says.

    `on_row` is given every row as soon as it is settled. `progress=True` draws a bar; a function is told (windows
    done, windows in all).
    """
    scanning = _Scanning(model, windows, config, options)
    with _told(progress, len(windows)) as tell:
        for done, measured in enumerate(scanning.measure(), start=1):
            if on_row is not None:
                on_row(dict(measured.row))
            tell(done)
    return scanning.results()


def scan_rows(
    model: Any, windows: Sequence[Window], config: RunConfig | None = None, **options: Any
) -> Iterator[dict[str, Any]]:
    """The rows of `scan` one by one, each as soon as it is settled and in that order; nothing is kept."""
    executor = _Scanning(model, windows, config, options).executor
    return (dict(measured.row) for measured in executor.run(windows))


class _Scanning:
    """A scan with everything checked, before the first forward."""

    def __init__(
        self, model: Any, windows: Sequence[Window], config: RunConfig | None, options: dict[str, Any]
    ) -> None:
        _require_windows(windows)
        self.windows = windows
        self.config = with_audit(_scan_config(windows, config, options), len(windows))
        self.config.require_use()
        _require_measurable(self.config)
        self.model = as_language_model(model)
        _require_fitting(windows, self.model, self.config)
        sizes = fitted(self.config, windows)
        check_fits(self.model, sizes)
        check_memory(self.model, sizes, windows=len(windows))
        self.executor = executor_of(self.model, sizes, windows=len(windows))
        self._rows: list[MeasuredWindow] = []

    def measure(self) -> Iterator[MeasuredWindow]:
        for measured in self.executor.run(self.windows):
            self._rows.append(measured)
            yield measured

    def results(self) -> Results:
        return Results(self._rows, self.windows, model=self.model, config=self.config, facts=self.executor.facts)


def _config(config: RunConfig | None, options: dict[str, Any], *, place: str) -> RunConfig:
    require_known(options, options_of(RunConfig), place=f"byrote.{place}")
    if not isinstance(config, RunConfig | None):
        raise ConfigError(f"config is a {type(config).__name__}; give byrote.RunConfig(…), or options by their names.")
    return replace(config or RunConfig(), **options)


SOURCES = ("text", "control", "pairs")
CUTTING = (
    "prefix_tokens", "suffix_tokens", "prefix_room", "suffix_room", "stride_chars", "whole_documents", "limit",
    "sample", "shard", "bos",
)  # fmt: skip


def _scan_config(windows: Sequence[Window], config: RunConfig | None, options: dict[str, Any]) -> RunConfig:
    if not isinstance(windows, Windows):
        return _config(config, options, place="scan")
    chosen = _config(config or windows.config, options, place="scan")
    _require_same_cut(windows.config, chosen)
    return replace(chosen, **{name: getattr(windows.config, name) for name in SOURCES})


def _require_same_cut(cut: RunConfig, scanned: RunConfig) -> None:
    """The options that chose the windows must be the ones a saved run will name."""
    for name in (*CUTTING, *(("seed",) if cut.sample is not None else ())):
        if getattr(cut, name) != getattr(scanned, name):
            raise ConfigError(
                f"the windows were read with {name} {getattr(cut, name)}, but scan was given "
                f"{getattr(scanned, name)}; use one RunConfig for both."
            )


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
            f"{count} windows are named {name}; results are told apart by window_id, so give each its own."
        )


def _require_fitting(windows: Sequence[Window], model: LanguageModel, config: RunConfig) -> None:
    """Windows may come from anywhere: each has tokens of this model, and a suffix that can be missed."""
    for window in windows:
        name, ids, suffix = f"window {window.window_id}", window.ids, len(window.suffix_ids)
        if not window.prefix_ids or not suffix:
            raise ConfigError(f"{name} has {len(window.prefix_ids)} prefix and {suffix} suffix tokens; give both.")
        if not 0 <= min(ids) <= max(ids) < model.vocab_size:
            raise ConfigError(
                f"{name} has tokens from {min(ids)} to {max(ids)}, and {model.name} knows 0 to {model.vocab_size - 1}; "
                "cut windows with the tokenizer of this model."
            )
        if "near" in config.measures and suffix <= config.edit_budget:
            raise ConfigError(
                f"{name} has a suffix of {suffix} tokens, and everything is within {config.edit_budget} edits of it; "
                "lower edit_budget, or leave near out of measures."
            )


def _require_measurable(config: RunConfig) -> None:
    """What a command does around its windows, and nobody does here."""
    for name in ("max_seconds", "max_evals", "self_check"):
        if value := getattr(config, name):
            raise ConfigError(
                f"{name} is {value}, but byrote.scan measures every window it is given, once; leave it out, or use "
                "the command byrote scan."
            )


@contextmanager
def _told(progress: bool | Callable[[int, int], None], total: int) -> Iterator[Callable[[int], None]]:
    """A function of the windows done, which draws, tells the caller, or does nothing."""
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    from rich.progress import Progress

    with Progress(disable=not progress, transient=True) as display:
        task = display.add_task("measuring", total=total)
        yield lambda done: display.update(task, completed=done)
