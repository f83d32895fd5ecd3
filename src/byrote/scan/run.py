"""Budgets of a scan: how much may be spent on it now, and which windows that buys.

With a budget, windows are measured in a random order that depends on their ids and the seed alone. When the budget is
spent no further window is begun, and every one that was begun is finished: so the windows measured are the first of the
random order, a random sample of all, whatever they cost. Opened again, the run goes on with those that come next.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import Any

from byrote.corpus.pairs import PackedWindows
from byrote.corpus.select import sample_key
from byrote.corpus.windows import Finished, Selection, Tally
from byrote.models.base import LanguageModel, require_positions
from byrote.models.load import open_model
from byrote.models.served.model import EndpointModel
from byrote.scan.executors import NO_SECTIONS, compile_where_it_pays, executor_of
from byrote.scan.measures import continuations_schema, facts_of, measures_of, results_schema
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Facts
from byrote.scan.score import windows_per_forward
from byrote.scan.screen import with_audit
from byrote.scan.self_check import self_check
from byrote.scan.served import connect_for, remembering
from byrote.scan.source import Given, Source, cut_source, fitted, read_given
from byrote.scan.totals import (
    device_section,
    run_identity,
    texts_section,
    totals_of,
    windows_by_document,
    windows_by_split,
)
from byrote.search.sizing import check_slots, choose_slots, require_fitting
from byrote.store.progress import Progress
from byrote.store.read import read_run
from byrote.store.session import RunSession
from byrote.types import Split, Window


class Spending:
    """What an opening of a run has spent, and how many windows it has not begun."""

    def __init__(self, config: RunConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock, self._started = config, clock, clock()
        self._token_evals = 0
        self.left: dict[Split, int] = {}
        """Windows that were not begun, by split."""

    def note(self, row: Mapping[str, Any]) -> None:
        self._token_evals += row["token_evals"]

    @property
    def spent(self) -> str | None:
        """The budget that is spent; None while none is."""
        config = self._config
        if config.max_seconds is not None and self._clock() - self._started >= config.max_seconds:
            return f"max-seconds {config.max_seconds:g}"
        if config.max_evals is not None and self._token_evals >= config.max_evals:
            return f"max-evals {config.max_evals}"
        return None

    def draw(self, windows: Iterable[Window], finished: Iterable[str]) -> Iterator[Window]:
        """Windows in random order until the budget is spent, and at least up to the last one of those `finished`: only
        without gaps they are a sample. At least one is begun, so that every opening gets further."""
        seed = self._config.seed
        packed = PackedWindows(windows)
        keys = [sample_key(window.window_id, seed) for window in packed]
        order = sorted(range(len(packed)), key=keys.__getitem__)
        last = max((sample_key(window_id, seed) for window_id in finished), default=b"")
        for place, number in enumerate(order):
            if place and keys[number] > last and self.spent is not None:
                self.left = dict(Counter(packed[other].split for other in order[place:]))
                return
            yield packed[number]

    def section(self) -> dict[str, Any]:
        """What the manifest says about a run that its budget stopped."""
        return {"by": self.spent, "windows_left": sum(self.left.values())}


def of_finished(source: Source, finished: Finished, counts: Mapping[Split, int], left: Mapping[Split, int]) -> Source:
    """The source of a run that its budget stopped: the windows that were measured, as the sample they are. `counts` are
    those windows and `left` the others, by split."""

    def cut(tally: Any, passed_over: Finished | None) -> Iterator[Window]:
        return (window for window in source.cut(tally, passed_over) if window.window_id in finished)

    pairs = None if source.pairs is None else [one for one in source.pairs if one.window_id in finished]
    selection = source.selection
    taken = replace(source, cut=cut, pairs=pairs)
    starts = {split: counts.get(split, 0) + left.get(split, 0) for split in selection.starts}
    if selection.kind == "sample":
        starts = selection.starts
    return replace(taken, selection=Selection("sample", sum(counts.values()), selection.seed, starts))


@dataclass(frozen=True, slots=True)
class ScanResult:
    """A finished run."""

    path: Path
    was_complete: bool
    """True when the run had been finished before and nothing was measured now."""
    notes: tuple[str, ...] = ()
    """Sentences that whoever started the run should read."""


def scan_to_folder(
    config: RunConfig,
    *,
    progress: Progress,
    command_line: Sequence[str] = (),
    fresh: bool = False,
    document_facts: Mapping[str, Mapping[str, Any]] | None = None,
    model: LanguageModel | None = None,
) -> ScanResult:
    """Run or resume the scan that `config` describes. `document_facts` are noted in the manifest, by document name.

    A `model` that is given is measured instead of the one that the options name.
    """
    config.require_places()
    given = read_given(config)
    with progress.phase(f"loading {config.model}"):
        if model is None:
            model, config = opened(config, given, fresh=fresh)
    with closing(model) if isinstance(model, EndpointModel) else nullcontext():
        check_fits(model, config)
        with progress.phase("cutting windows"):
            source = cut_source(given, model, config)
        del given  # pairs are held as windows now
        windows = source.selection.most
        config = with_audit(config, windows)
        identity = run_identity(model, source, config)
        if config.executor == "local":
            check_memory(model, fitted(config, source.pairs), windows=windows)
            compile_where_it_pays(model, config, windows=windows)
        with open_session(config, identity, fresh=fresh) as run:
            if run.is_complete:
                if not was_stopped(run.path):
                    return ScanResult(run.path, was_complete=True)
                run.reopen()
            run.write_texts(source.documents)
            notes = _Scan(config, model, source, run, progress).run(command_line, document_facts or {})
        return ScanResult(Path(config.out), was_complete=False, notes=tuple(notes))


def opened(config: RunConfig, given: Given, *, fresh: bool = False) -> tuple[LanguageModel, RunConfig]:
    """The model that `config` names, and the options with what only the model could say."""
    if config.is_served:
        return connect_for(config, given, fresh=fresh)
    return load_here(config), config


def load_here(config: RunConfig) -> LanguageModel:
    """The model, to be measured in this process; or only to be known by its driver, where workers measure."""
    if config.executor == "ray":
        from byrote.scan.ray import on_driver

        config = on_driver(config)
    return open_model(config.model, **config.loading)


def open_session(config: RunConfig, identity: Mapping[str, Any], *, fresh: bool = False) -> RunSession:
    """The run folder of a scan, new or resumed."""
    return RunSession.open(
        config.out,
        kind="scan",
        identity=identity,
        schema=results_schema(measures_of(config), facts_of(config)),
        continuations=continuations_schema(config),
        fresh=fresh,
        part_rows=config.part_windows,
    )


class _Scan:
    """One opening of a run: measures what is missing and completes the folder."""

    def __init__(
        self,
        config: RunConfig,
        model: LanguageModel,
        source: Source,
        session: RunSession,
        progress: Progress,
    ) -> None:
        self.config, self.model, self.source = config, model, source
        self.fitted = fitted(config, source.pairs)
        self.session, self.progress = session, progress
        self.facts, self.sections, self.tally = Facts(), NO_SECTIONS, Tally()
        self.spending = Spending(config)

    def run(self, command_line: Sequence[str], document_facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Returns sentences that whoever started the run should read."""
        with remembering(self.model, self.session, self.fitted) as served:
            timings = self._measure()
            further: dict[str, Any] = {"self_check": self._self_check(), **self.sections}
            notes = self._end_early(further) if self.spending.left else []
            if served is not None:
                with self.progress.phase("asking a sample twice"):
                    served.ask_twice(self.session, self.source.chosen.windows)
                further["served"] = served.section()
            with self.progress.phase("writing results"):
                complete_scan(
                    self.session,
                    self.config,
                    self.model,
                    self.source,
                    self.facts,
                    short=self.tally.short,
                    command_line=command_line,
                    timings=timings,
                    document_facts=document_facts,
                    **further,
                )
            return notes if served is None else [*notes, *served.notes()]

    def _end_early(self, further: dict[str, Any]) -> list[str]:
        """The budget is spent: the run is about what was drawn until now, and can go on from there."""
        left = sum(self.spending.left.values())
        counts = windows_by_split(self.session.path)
        self.source = of_finished(self.source, self.session.finished, counts, self.spending.left)
        further["stopped"] = self.spending.section()
        return [
            f"{further['stopped']['by']} is spent: {self.source.selection.size:,} windows are measured, a random "
            f"sample, and {left:,} are left. The same command goes on with them."
        ]

    def _measure(self) -> dict[str, float]:
        """All windows that are missing; how long it took."""
        started, stored = time.monotonic(), len(self.session.finished)
        windows = self.source.selection.most
        self.progress.start(windows, stored)
        executor = executor_of(self.model, self.fitted, windows=windows - stored, tell=self.progress.remark)
        # Every opening goes through all starts, so that what comes out short is counted whole; finished windows are
        # passed over.
        missing = self.source.windows(self.tally, finished=self.session.finished)
        if self.config.has_budget:
            missing = self.spending.draw(missing, self.session.finished_ids())
        # Workers are started for a window, not for the news that none is left.
        if (first := next(missing, None)) is not None:
            for measured in executor.run(chain([first], missing)):
                self.session.add(measured.row, measured.continuations)
                self.spending.note(measured.row)
                self.progress.advance(1)
            self.facts, self.sections = executor.facts, executor.sections
        self.session.flush()
        return {"measuring_seconds": time.monotonic() - started, "windows_resumed": stored}

    def _self_check(self) -> dict[str, Any] | None:
        config = self.fitted
        if not config.self_check:
            return None
        chosen = nsmallest(
            config.self_check, self.source.windows(), key=lambda window: sample_key(window.window_id, config.seed)
        )
        slots = self.facts.slots or choose_slots(self.model, config.search_options(), config.limits)
        return self_check(
            self.model,
            self.model.in_float32,
            chosen,
            replace(config.search_options(), keep=None, record_frontier=False, keep_states=False),
            threshold=config.threshold,
            slots=max(2, slots),
            limits=config.limits,
        )


def was_stopped(path: Path) -> bool:
    """Whether a budget ended the run before all its windows were measured."""
    return "stopped" in (read_run(path).manifest or {})


def complete_scan(
    session: RunSession,
    config: RunConfig,
    model: LanguageModel,
    source: Source,
    facts: Facts,
    *,
    short: Mapping[str, int],
    command_line: Sequence[str],
    timings: Mapping[str, float],
    document_facts: Mapping[str, Mapping[str, Any]],
    **further: Any,
) -> None:
    """Merge a scan whose windows are all there and write its manifest. `short`: starts that came out short."""
    totals = totals_of(session.path, config)
    manifest = {
        "config": config.as_dict(),
        "texts": texts_section(source, windows_by_document(session.path), short, document_facts),
        "model": asdict(model.identity) | {"bos_id": model.bos_id(config.bos)},
        "device": device_section(model, facts),
        "seed": config.seed,
        "command_line": command_line,
        "timings": timings,
        "totals": totals | {"selection": asdict(source.selection)} | source.counted,
        **further,
    }
    session.complete(manifest, order=source.order(totals["windows"]))


def check_fits(model: LanguageModel, config: RunConfig) -> None:
    """Fail before any work when the window or the policy cannot work with this model."""
    for policy in config.policies:
        policy.check_vocabulary(model.vocab_size)
    if not config.pairs:
        require_positions(model, config.prefix_tokens + config.suffix_tokens)


def check_memory(model: LanguageModel, config: RunConfig, *, windows: int) -> None:
    """Fail before a folder is made when batches or slots of the sizes asked for do not fit into the device's memory."""
    per_window = sum(config.limits) * model.score_bytes_per_token()
    together = min(windows_per_forward(model, config), windows)
    what = f"scoring {together:,} windows in one pass"
    require_fitting(together, per_window, model.device, what=what, option="--batch-windows")
    if "near" in config.measures:
        check_slots(model, config.search_options(), config.limits, config.slots or 1)
