"""A scan into a run folder: open the model, cut windows, measure those that are missing, complete the folder.

Windows are measured in a random order that depends on their ids and the seed alone. Rows of cheap windows come first,
so a run notes up to where the order is measured without a gap: wherever it is stopped, the windows up to there are a
random sample of all. When a budget (`max_seconds`, `max_evals`) is spent no further window is begun, and every one that
was begun is finished. Opened again, a run continues with those that come next.

The manifest has what a run adds up to: counts by split and verdict, token evaluations, and the audit of the screen.
"""

import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from byrote.corpus.select import share_out
from byrote.corpus.windows import Finished, Selection, Tally
from byrote.errors import RunError
from byrote.models.base import LanguageModel, require_positions
from byrote.models.load import open_model
from byrote.progress import Progress, duration
from byrote.random_order import MeasuredOrder, sample_key
from byrote.scan.executors import cluster, device_name, executor_of, is_compiled, open_on_worker, with_gpus
from byrote.scan.measures.membership import load_reference
from byrote.scan.options import PLAIN, RunConfig
from byrote.scan.pipeline import Facts
from byrote.scan.row import continuations_schema, facts_of, measures_of, results_schema
from byrote.scan.served import connect_for, remembering, with_listing
from byrote.scan.source import Source, cut_source, read_given, with_edit_budget
from byrote.scan.stages.score import windows_per_forward
from byrote.scan.stages.screen import DENSITY_NEAR_FLOOR, NEAR_FLOOR, with_audit
from byrote.scan.stages.verify import self_check
from byrote.search.sizing import check_slots, choose_slots, require_fitting
from byrote.stats.answers import check_bounds
from byrote.stats.limits import Stratum, expected_missed, missed_at_most
from byrote.stats.population import by_edits
from byrote.store.folder import RunFolder
from byrote.store.manifest import read_identity, require_same_identity
from byrote.store.read import read_run
from byrote.store.resume import CHOOSE_ANOTHER, RunSession
from byrote.types import Split, Window

PAIRS_LISTED = 100
CONFIDENCE = 0.95
LOW_PRECISION = 0.01
"""By how much of themselves bounds may be off in 16 bits or less, where answers are computed in other batches."""
WINDOWS_NAMED = 5
MEANING = (
    "would_be_certified: windows among those not searched that a search with these options would have certified as "
    "extractable. Windows that a search would have left undecided are not counted; they may be extractable too."
)


def totals_of(path: Path, config: RunConfig) -> dict[str, Any]:
    """Totals over the rows stored so far; rows are counted where they lie, never held."""
    stored = read_run(path)
    results = stored.scan_results()
    windows, token_evals = _collected(results.select(pl.len(), pl.col("token_evals").sum())).row(0)
    totals: dict[str, Any] = {
        "windows": windows,
        "token_evals": token_evals,
        "windows_by_split": _counts(results, "split"),
    }
    if "shared_with" in results.collect_schema().names():
        totals["shared"] = shared_totals(results, config)
    if "near" in config.measures:
        totals["verdicts"] = {
            split: _counts(results.filter(pl.col("split") == split), "verdict") for split in totals["windows_by_split"]
        }
        totals["stop_reasons"] = _counts(results, "stop_reason")
        totals["screen"] = screen_audit(results, config)
    if config.sampled_answers:
        totals["answers"] = answers_check(results, stored.identity["model"].get("dtype", "float32"))
    return totals


def answers_check(results: pl.LazyFrame, dtype: str) -> dict[str, Any]:
    """Whether the sampled answers can be those of a model with these bounds: hits by ε, and what contradicts them."""
    rows = _collected(results.select("window_id", "mass_lower", "mass_upper", "answers", "answer_hits"))
    lower, upper, hits = (by_edits(rows, name) for name in ("mass_lower", "mass_upper", "answer_hits"))
    if lower is None or upper is None or hits is None:
        return {"answers": 0, "expected": [], "contradictions": []}
    rounding = 0.0 if dtype in ("float32", "float64") else LOW_PRECISION
    check = check_bounds(lower, upper, rows["answers"].to_numpy(), hits.astype(np.int64), rounding=rounding)
    names = rows["window_id"].to_list()
    return {
        "answers": check.answers,
        "expected": [row._asdict() for row in check.expected],
        "contradictions": [
            f"Within {row.edits} edits {row.hits:,} answers hit, where the bounds let expect {row.at_least:,.1f} to "
            f"{row.at_most:,.1f}; windows {', '.join(names[place] for place in places[:WINDOWS_NAMED])}."
            for row, places in check.contradictions
        ],
    }


def require_true_bounds(totals: Mapping[str, Any], path: Path) -> None:
    """Raise a RunError when bounds and answers contradict each other; the run's rows and its manifest are kept."""
    for words in totals.get("answers", {}).get("contradictions", ()):
        raise RunError(
            f"the sampled answers contradict the bounds of {path}. {words} One of the two is wrong: do not rely on "
            "this run, and please report it with its manifest.json."
        )


def count_by(path: Path, column: str) -> dict[str, int]:
    """Rows stored so far, by the value of a column."""
    return _counts(read_run(path).scan_results(), column)


def shared_totals(results: pl.LazyFrame, config: RunConfig) -> dict[str, Any]:
    """Control windows whose passage a target holds too: how many, between which documents, and whether they count."""
    controls = results.filter(pl.col("split") == "control")
    shared = controls.filter(pl.col("shared_with").is_not_null())
    # Rows come in the order in which they were measured; totals must not depend on it.
    counted = shared.group_by("document", "shared_with").len()
    pairs = _collected(counted.sort("len", "document", "shared_with", descending=[True, False, False]))
    listed = [
        {"control": control, "target": target, "windows": windows}
        for control, target, windows in pairs.head(PAIRS_LISTED).iter_rows()
    ]
    return {
        "control_windows": int(_collected(controls.select(pl.len())).item()),
        "windows": int(pairs["len"].sum()),
        "are_counted": config.keep_shared,
        "pairs": listed,
        "pairs_not_listed": pairs.height - len(listed),
    }


def screen_audit(results: pl.LazyFrame, config: RunConfig) -> dict[str, Any]:
    """How many of the windows not searched a search would have certified: expected and at most, from those audited.

    It does not cover windows that are extractable and that a search would have left undecided.
    """
    if config.screen == "off":
        return {"used": False}
    strata = _strata(results.filter(pl.col("was_screened")), config)
    below_floor = sum(stratum.windows for stratum in strata)
    not_searched = sum(stratum.left_out for stratum in strata)
    expected = expected_missed(strata)
    return {
        "used": True,
        "floor": config.screen_floor,
        "rated_below_floor": below_floor,
        "searched_all_the_same": below_floor - not_searched,
        "certified_in_sample": sum(stratum.found for stratum in strata),
        "not_searched": not_searched,
        "would_be_certified_expected": min(expected, not_searched) if math.isfinite(expected) else None,
        "would_be_certified_at_most": missed_at_most(strata, level=CONFIDENCE),
        "confidence": CONFIDENCE,
        "meaning": MEANING,
        "reason": None if math.isfinite(expected) else "no screened window was searched, so nothing can be expected",
        "strata": [stratum._asdict() for stratum in strata],
    }


def _strata(below: pl.LazyFrame, config: RunConfig) -> list[Stratum]:
    """Windows below the floor, one stratum for each density of the draw."""
    is_audited = pl.col("stop_reason") != "screened"
    # A window that the verbatim probability alone shows to be extractable is not lost by being screened.
    lower, threshold = pl.col("mass_lower").list, config.threshold
    is_found = (lower.last() >= threshold) & (lower.first() < threshold)
    is_near = (pl.col("screen_score") >= NEAR_FLOOR * config.screen_floor).alias("is_near")
    counted = below.group_by(is_near).agg(
        windows=pl.len(), audited=is_audited.sum(), found=(is_audited & is_found).sum()
    )
    found = _collected(counted.sort("is_near"))
    return [
        Stratum(windows, audited, found, min(1.0, (DENSITY_NEAR_FLOOR if is_near else 1.0) * config.screen_share))
        for is_near, windows, audited, found in found.iter_rows()
    ]


def _counts(results: pl.LazyFrame, column: str) -> dict[str, int]:
    counted = _collected(results.group_by(column).len().sort(column))
    return {str(value): int(count) for value, count in counted.iter_rows()}


def _collected(frame: pl.LazyFrame) -> pl.DataFrame:
    collected = frame.collect()
    assert isinstance(collected, pl.DataFrame)
    return collected


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
    kept: dict[str, LanguageModel] | None = None,
) -> ScanResult:
    """Run or resume the scan that `config` describes. `document_facts` are noted in the manifest, by document name.

    A `model` that is given is measured instead of the one that the options name. `kept` holds the last local model by
    its name, for further runs of the same one.
    """
    config.require_places()
    if not fresh:
        require_same_options(config)
    given = read_given(config)
    with ExitStack() as ending:
        if config.executor == "ray":
            with progress.phase("starting Ray"):
                ending.enter_context(cluster(config))
                config = with_gpus(config)
        with progress.phase(f"loading {config.model}"):
            if model is None and config.is_served:
                model, config = connect_for(config, given, fresh=fresh)
                ending.enter_context(closing(model))
            elif model is None and config.executor == "ray":
                model = open_on_worker(config)
            elif model is None and (model := (kept or {}).get(config.model)) is None:
                model = open_model(config.model, **config.loading)
                if kept is not None:
                    kept.clear()
                    kept[config.model] = model
            model, config = with_listing(model, config)
        check_fits(model, config)
        with progress.phase("cutting windows"):
            source = cut_source(given, model, config)
        del given  # pairs are held as windows now
        windows = source.selection.most
        config = with_audit(with_edit_budget(config, source.shortest_suffix), windows)
        identity = run_identity(model, source, config)
        if config.executor == "local":
            check_memory(model, source.sized(config), windows=windows)
            if is_compiled(model, config, windows=windows):
                with progress.phase("compiling"):
                    model.compile_layers()
        about = {"model": model.name, "windows": windows if config.shard is None else None}
        with open_session(config, identity, fresh=fresh, about=about) as session:
            if session.is_complete:
                manifest = read_run(session.path).manifest or {}
                if "stopped" not in manifest:
                    require_true_bounds(manifest["totals"], session.path)
                    return ScanResult(session.path, was_complete=True)
                session.reopen()
            session.write_texts(source.documents)
            noted = {"command_line": command_line, "document_facts": document_facts or {}}
            notes = tuple(_measure(config, model, source, session, progress, **noted))
        return ScanResult(Path(config.out), was_complete=False, notes=notes)


def _measure(
    config: RunConfig,
    model: LanguageModel,
    source: Source,
    session: RunSession,
    progress: Progress,
    **noted: Any,
) -> list[str]:
    """Measure the windows that are missing and complete the folder, with what is `noted` in its manifest; sentences for
    the user who started the run."""
    sized, tally, spending = source.sized(config), Tally(), Spending(config)
    notes: list[str] = []
    started, stored, windows = time.monotonic(), len(session.finished), source.selection.most
    with remembering(model, session, sized) as served:
        progress.start(windows, stored)
        cost_notes = CostNotes(config, windows - stored)
        if cost_notes.is_wanted:
            progress.announce(cost_notes.before)
        executor = executor_of(model, sized, windows=windows - stored, remark=progress.remark)
        # Every opening goes through all starts, so that short windows are all counted; finished ones are skipped.
        missing = source.windows(tally, finished=session.finished)
        if config.has_budget:
            missing = spending.draw(missing, session.finished_ids())
        order = MeasuredOrder(config.seed)
        # Workers are started for a window, not to find that none is left.
        if (first := next(missing, None)) is not None:
            for measured in executor.run(order.begin(chain([first], missing))):
                order.end(measured.row["window_id"])
                session.sampled_to(order.mark)
                session.add(measured.row, measured.continuations)
                spending.note(measured.row)
                progress.advance(1)
                if cost_notes.is_due:
                    progress.announce(cost_notes.words())
        session.flush()
        noted["timings"] = {"measuring_seconds": time.monotonic() - started, "windows_resumed": stored}
        if spending.has_left_some:
            # The run is about the windows drawn until now, and can be continued from there.
            left = max(1, windows - len(session.finished) - tally.short.total())
            counts = {Split(name): count for name, count in count_by(session.path, "split").items()}
            source = of_finished(source, session.finished, counts)
            noted["stopped"] = {"by": spending.spent, "windows_left": left}
            notes.append(
                f"{spending.spent} is spent: {source.selection.size:,} windows are measured, a random sample, and "
                f"{left:,} are left. The same command goes on with them."
            )
        if config.self_check:
            with progress.phase("searching a sample again"):
                noted["self_check"] = check_again(model, source, sized, slots=executor.facts.slots)
        if served is not None:
            with progress.phase("asking a sample twice"):
                served.ask_twice(session, source.chosen.windows)
            noted["served"] = served.section()
            notes += served.notes()
        with progress.phase("hashing"):
            _ = model.identity
        with progress.phase("writing results"):
            complete_scan(
                session, config, model, source, executor.facts, short=tally.short, **noted, **executor.sections
            )
    return notes


def check_again(model: LanguageModel, source: Source, config: RunConfig, *, slots: int | None) -> dict[str, Any]:
    """The self-check of a run: on windows drawn by their names."""
    chosen = heapq.nsmallest(
        config.self_check, source.windows(), key=lambda window: sample_key(window.window_id, config.seed)
    )
    options = replace(config.search_options(), keep=None, record_frontier=False, keep_states=False)
    together = max(2, slots or choose_slots(model, options, config.limits))
    return self_check(model, chosen, options, threshold=config.threshold, slots=together, limits=config.limits)


class CostNotes:
    """What a user who gave neither --sample nor --limit should know about the cost: that there is a cheaper way, before
    anything is measured, and once how long both take at the speed so far. `is_due` counts the windows measured."""

    SAMPLE, LATER_SECONDS = 300, 20.0

    def __init__(self, config: RunConfig, windows: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        is_chosen = config.sample is not None or config.limit is not None or config.has_budget
        self.is_wanted = not is_chosen and windows >= 4 * self.SAMPLE
        self._windows, self._measured, self._clock, self._started = windows, 0, clock, clock()

    @property
    def before(self) -> str:
        return (
            f"All {self._windows:,} windows are measured. --sample {self.SAMPLE} (and another --out) would take about "
            f"{self.SAMPLE / self._windows:.2g} of the time; its rates are known to 6 percentage points or so."
        )

    @property
    def is_due(self) -> bool:
        self._measured += 1
        is_due = self.is_wanted and self._clock() - self._started >= self.LATER_SECONDS
        self.is_wanted = self.is_wanted and not is_due
        return is_due

    def words(self) -> str:
        each = (self._clock() - self._started) / self._measured
        whole, part = (duration(count * each) for count in (self._windows, self.SAMPLE))
        return (
            f"At the speed so far, all {self._windows:,} windows take about {whole}, a sample of {self.SAMPLE} {part}."
        )


class Spending:
    """What an opening of a run has spent, and whether it has left windows."""

    def __init__(self, config: RunConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock, self._started = config, clock, clock()
        self._token_evals = 0
        self.has_left_some = False
        """Whether windows were not begun."""

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
        """Windows, which come in random order, until the budget is spent, and at least up to the last one of those
        `finished`: only without gaps they are a sample. At least one is begun, so that every opening gets further."""
        seed = self._config.seed
        last = max((sample_key(window_id, seed) for window_id in finished), default=b"")
        for place, window in enumerate(windows):
            if place and sample_key(window.window_id, seed) > last and self.spent is not None:
                self.has_left_some = True
                return
            yield window


def of_finished(source: Source, finished: Finished, counts: Mapping[Split, int]) -> Source:
    """The source of a run that its budget stopped: the windows that were measured, as the sample they are. `counts` are
    those windows by split."""

    def cut(tally: Any, passed_over: Finished | None) -> Iterator[Window]:
        return (window for window in source.cut(tally, passed_over) if window.window_id in finished)

    pairs = None if source.pairs is None else [one for one in source.pairs if one.window_id in finished]
    selection = source.selection
    starts = selection.starts
    if selection.kind == "limit":
        starts = share_out(selection.most, starts)
    drawn = Selection("sample", sum(counts.values()), selection.seed, starts)
    return replace(source, cut=cut, pairs=pairs, selection=drawn)


def open_session(
    config: RunConfig, identity: Mapping[str, Any], *, fresh: bool = False, about: Mapping[str, Any] | None = None
) -> RunSession:
    """The run folder of a scan, new or resumed."""
    return RunSession.open(
        config.out,
        kind="scan",
        identity=identity,
        schema=results_schema(measures_of(config), facts_of(config)),
        continuations=continuations_schema(config),
        fresh=fresh,
        about=about,
        part_rows=config.windows_per_part,
    )


SET_BY_WINDOWS = ("screen_share", "estimate_share")
"""Options that depend on how many windows there are."""
SET_WHERE_ABSENT = ("edit_budget", "logprobs")
"""Options that follow from the windows or the model unless they are given."""


def require_same_options(config: RunConfig) -> None:
    """Refuse a folder whose run was made with other options, before a model is loaded for it. A server has a say in
    the options, so its run is compared when it has answered."""
    folder = RunFolder(Path(config.out))
    stored = read_identity(folder.identity) if folder.identity.exists() and not config.is_served else None
    if stored is None or stored.kind != "scan":
        return
    own = config.identity()
    unknown = {*SET_BY_WINDOWS, *(name for name in SET_WHERE_ABSENT if own[name] is None)}
    before, after = (
        stored._replace(values={"config": {name: value for name, value in one.items() if name not in unknown}})
        for one in (stored.values["config"], own)
    )
    require_same_identity(folder.path, before, after, advice=CHOOSE_ANOTHER)


def run_identity(model: LanguageModel, source: Source, config: RunConfig) -> dict[str, Any]:
    """What makes two runs the same run: options, model, texts or pairs. Where and in which batches it runs does not."""
    reference = load_reference(config)
    further = {
        "pairs": source.pairs_hash,
        "shard": config.shard,
        "reference": None if reference is None else reference.described.weights_fingerprint,
        "prompt": None if source.prompt is None else dict(source.prompt.facts),
    }
    return {
        "config": config.identity(),
        "model": model.described.fingerprint,
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
        "prompt": prompt_section(model, source),
        "seed": config.seed,
        "command_line": command_line,
        "timings": timings,
        "totals": totals | {"selection": asdict(source.selection)} | source.counted,
        **further,
    }
    session.complete(manifest, order=source.order(totals["windows"]))
    require_true_bounds(totals, session.path)


def prompt_section(model: LanguageModel, source: Source) -> dict[str, Any]:
    """What stood around every prefix, and whether the model has a chat template."""
    facts = {"name": PLAIN} if source.prompt is None else dict(source.prompt.facts)
    has_template = model.tokenizing is not None and model.tokenizing.chat_template is not None
    return facts | {"has_chat_template": has_template}


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
            **document.facts,
            "windows": windows.get(document.name, 0),
            "short_windows": short.get(document.name, 0),
            **({} if agreed.get(document.name) is None else {"copies": agreed[document.name]}),
            **({} if document.source is None else {"source": document.source}),
            **facts.get(document.name, {}),
        }
        for document in source.documents
    }


def check_fits(model: LanguageModel, config: RunConfig) -> None:
    """Fail before any work when the window or the policy cannot work with this model."""
    for policy in config.scored_policies:
        policy.check_vocabulary(model.vocab_size)
    if not config.pairs and config.unit == "tokens":
        require_positions(model, config.prefix_tokens + max((config.suffix_tokens, *config.passage)))


def check_memory(model: LanguageModel, config: RunConfig, *, windows: int) -> None:
    """Fail before a folder is made when batches or slots of the sizes asked for do not fit into the device's memory."""
    per_window = sum(config.limits) * model.score_bytes_per_token()
    together = min(windows_per_forward(model, config), windows)
    what = f"scoring {together:,} windows in one pass"
    require_fitting(together, per_window, model.device, what=what, option="--batch-windows")
    if "near" in config.measures:
        check_slots(model, config.search_options(), config.limits, config.slots or 1)
