"""`rote scan` from configuration to a finished run folder: read, cut, load, measure, store, account."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import Any

from rote.corpus.select import sample_key
from rote.corpus.windows import Tally
from rote.models.base import LanguageModel
from rote.models.endpoint import EndpointModel
from rote.models.opening import open_model
from rote.models.positions import require_positions
from rote.scan.columns import continuations_schema, facts_of, measures_of, results_schema
from rote.scan.executor import NO_SECTIONS, compile_where_it_pays, executor_of
from rote.scan.manifest_sections import device_section, run_identity, texts_section
from rote.scan.options import RunConfig
from rote.scan.pipeline import Facts
from rote.scan.score import windows_per_forward
from rote.scan.screen import with_audit
from rote.scan.self_check import self_check
from rote.scan.served import connect_for, remembering
from rote.scan.source import Given, Source, cut_source, fitted, read_given
from rote.scan.spending import Spending, of_finished
from rote.scan.totals import totals_of, windows_by_document, windows_by_split
from rote.search.sizing import check_slots, choose_slots, require_fitting
from rote.store.manifest import build_manifest
from rote.store.progress import Progress
from rote.store.read import read_run
from rote.store.session import RunSession


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
        from rote.scan.ray_executor import on_driver

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
        stride=None if config.pairs else config.stride_chars,
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
    manifest = build_manifest(
        config=config.as_dict(),
        texts=texts_section(source, windows_by_document(session.path), short, document_facts),
        model=asdict(model.identity) | {"bos_id": model.bos_id(config.bos)},
        device=device_section(model, facts),
        seed=config.seed,
        command_line=command_line,
        timings=timings,
        totals=totals | {"selection": asdict(source.selection)} | source.counted,
        **further,
    )
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
