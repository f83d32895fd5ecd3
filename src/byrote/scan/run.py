"""A scan into a run folder: open the model, cut windows, measure those that are missing, complete the folder.

With a budget (`max_seconds`, `max_evals`), windows are measured in a random order that depends on their ids and the
seed alone. When the budget is spent no further window is begun, and every one that was begun is finished: so the
windows measured are the first of the random order, a random sample of all, whatever they cost. Opened again, the run
continues with those that come next.
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

import torch

from byrote.corpus.pairs import PackedWindows
from byrote.corpus.select import sample_key
from byrote.corpus.windows import Finished, Selection, Tally
from byrote.models.base import LanguageModel, require_positions
from byrote.models.load import open_model
from byrote.models.served.model import EndpointModel
from byrote.progress import Progress
from byrote.scan.columns import continuations_schema, facts_of, measures_of, results_schema
from byrote.scan.executors import NO_SECTIONS, compile_where_it_pays, device_name, executor_of, on_driver
from byrote.scan.membership import load_reference
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Facts
from byrote.scan.score import windows_per_forward
from byrote.scan.screen import with_audit
from byrote.scan.self_check import self_check
from byrote.scan.served import connect_for, remembering
from byrote.scan.source import Source, cut_source, fitted, read_given
from byrote.scan.totals import count_by, totals_of
from byrote.search.sizing import check_slots, choose_slots, require_fitting
from byrote.store.read import read_run
from byrote.store.session import RunSession
from byrote.types import Split, Window


@dataclass(frozen=True, slots=True)
class ScanResult:
    """A finished run."""

    path: Path
    was_complete: bool
    """True when the run had been finished before and nothing was measured now."""
    notes: tuple[str, ...] = ()
    """Sentences for the user who started the run."""


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
        if model is None and config.is_served:
            model, config = connect_for(config, given, fresh=fresh)
        elif model is None:
            # Workers open it themselves; here it is needed for its tokenizer and its identity.
            opened = on_driver(config) if config.executor == "ray" else config
            model = open_model(config.model, **opened.loading)
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
                if "stopped" not in (read_run(run.path).manifest or {}):
                    return ScanResult(run.path, was_complete=True)
                run.reopen()
            run.write_texts(source.documents)
            notes = _Scan(config, model, source, run, progress).run(command_line, document_facts or {})
        return ScanResult(Path(config.out), was_complete=False, notes=tuple(notes))


class _Scan:
    """One opening of a run: measures what is missing and completes the folder."""

    def __init__(
        self, config: RunConfig, model: LanguageModel, source: Source, session: RunSession, progress: Progress
    ) -> None:
        self.config, self.model, self.source = config, model, source
        self.fitted = fitted(config, source.pairs)
        self.session, self.progress = session, progress
        self.facts, self.sections, self.tally = Facts(), NO_SECTIONS, Tally()
        self.spending = Spending(config)

    def run(self, command_line: Sequence[str], document_facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Returns sentences for the user who started the run."""
        with remembering(self.model, self.session, self.fitted) as served:
            timings = self._measure()
            further: dict[str, Any] = {"self_check": self._self_check(), **self.sections}
            notes = self._end_early(further) if self.spending.left else []
            if served is not None:
                with self.progress.phase("asking a sample twice"):
                    served.ask_twice(self.session, self.source.chosen.windows)
                further["served"] = served.section()
                notes += served.notes()
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
        return notes

    def _measure(self) -> dict[str, float]:
        """All windows that are missing; how long it took."""
        started, stored = time.monotonic(), len(self.session.finished)
        windows = self.source.selection.most
        self.progress.start(windows, stored)
        executor = executor_of(self.model, self.fitted, windows=windows - stored, remark=self.progress.remark)
        # Every opening goes through all starts, so that short windows are all counted; finished ones are skipped.
        missing = self.source.windows(self.tally, finished=self.session.finished)
        if self.config.has_budget:
            missing = self.spending.draw(missing, self.session.finished_ids())
        # Workers are started for a window, not to find that none is left.
        if (first := next(missing, None)) is not None:
            for measured in executor.run(chain([first], missing)):
                self.session.add(measured.row, measured.continuations)
                self.spending.note(measured.row)
                self.progress.advance(1)
            self.facts, self.sections = executor.facts, executor.sections
        self.session.flush()
        return {"measuring_seconds": time.monotonic() - started, "windows_resumed": stored}

    def _end_early(self, further: dict[str, Any]) -> list[str]:
        """The budget is spent: the run is about the windows drawn until now, and can be continued from there."""
        left = sum(self.spending.left.values())
        counts = {Split(name): count for name, count in count_by(self.session.path, "split").items()}
        self.source = of_finished(self.source, self.session.finished, counts, self.spending.left)
        further["stopped"] = {"by": self.spending.spent, "windows_left": left}
        return [
            f"{self.spending.spent} is spent: {self.source.selection.size:,} windows are measured, a random "
            f"sample, and {left:,} are left. The same command goes on with them."
        ]

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


def of_finished(source: Source, finished: Finished, counts: Mapping[Split, int], left: Mapping[Split, int]) -> Source:
    """The source of a run that its budget stopped: the windows that were measured, as the sample they are. `counts` are
    those windows and `left` the others, by split."""

    def cut(tally: Any, passed_over: Finished | None) -> Iterator[Window]:
        return (window for window in source.cut(tally, passed_over) if window.window_id in finished)

    pairs = None if source.pairs is None else [one for one in source.pairs if one.window_id in finished]
    selection = source.selection
    starts = {split: counts.get(split, 0) + left.get(split, 0) for split in selection.starts}
    if selection.kind == "sample":
        starts = selection.starts
    drawn = Selection("sample", sum(counts.values()), selection.seed, starts)
    return replace(source, cut=cut, pairs=pairs, selection=drawn)


def open_session(config: RunConfig, identity: Mapping[str, Any], *, fresh: bool = False) -> RunSession:
    """The run folder of a scan, new or resumed."""
    return RunSession.open(
        config.out,
        kind="scan",
        identity=identity,
        schema=results_schema(measures_of(config), facts_of(config)),
        continuations=continuations_schema(config),
        fresh=fresh,
        part_rows=config.windows_per_part,
    )


def run_identity(model: LanguageModel, source: Source, config: RunConfig) -> dict[str, Any]:
    """What makes two runs the same run: options, model, texts or pairs. Where and in which batches it runs does not."""
    reference = load_reference(config)
    further = {
        "pairs": source.pairs_hash,
        "shard": config.shard,
        "reference": None if reference is None else reference.identity.weights_hash,
    }
    return {
        "config": config.identity(),
        "model": model.identity.fingerprint,
        "texts": {f"{document.split}:{document.name}": document.content_hash for document in source.documents},
        **{name: value for name, value in further.items() if value is not None},
    }


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
        "texts": texts_section(source, count_by(session.path, "document"), short, document_facts),
        "model": asdict(model.identity) | {"bos_id": model.bos_id(config.bos)},
        "device": {
            "name": device_name(model) if model.device.type == "cuda" else "cpu",
            "threads": torch.get_num_threads(),
            "slots": facts.slots,
            "peak_entries_per_slot": facts.peak_entries,
            "bytes_per_entry": model.tree_bytes_per_entry() if facts.slots else None,
            "tree_search": model.searches_trees if facts.slots else None,
            "forwards": facts.forwards,
        },
        "seed": config.seed,
        "command_line": command_line,
        "timings": timings,
        "totals": totals | {"selection": asdict(source.selection)} | source.counted,
        **further,
    }
    session.complete(manifest, order=source.order(totals["windows"]))


def texts_section(
    source: Source,
    windows: Mapping[str, int],
    short: Mapping[str, int],
    facts: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Split, hash, size and counts of every document, by name; its copies in training, where its windows agree on a
    number."""
    copies: dict[str, set[int | None]] = {}
    for window in source.pairs or ():
        copies.setdefault(window.document, set()).add(window.further.get("copies"))
    agreed = {name: found.pop() for name, found in copies.items() if len(found) == 1}
    return {
        document.name: {
            "split": str(document.split),
            "content_hash": document.content_hash,
            "characters": document.characters,
            "windows": windows.get(document.name, 0),
            "short_windows": short.get(document.name, 0),
            **({} if agreed.get(document.name) is None else {"copies": agreed[document.name]}),
            **facts.get(document.name, {}),
        }
        for document in source.documents
    }


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
