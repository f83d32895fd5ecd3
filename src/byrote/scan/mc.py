"""`byrote mc`: plain samples of a few windows of a scan or of texts; with `out`, as a run of its own kind."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from byrote.errors import ConfigError, RunError
from byrote.options import like, option, options_of, settle
from byrote.scan.options import RunConfig
from byrote.store.columns import COST_COLUMNS, WINDOW_COLUMNS, Column, Schema, window_of, window_row
from byrote.store.identity import differences
from byrote.types import BosRule, DistanceName, DtypeName, IntervalName, Window

if TYPE_CHECKING:
    from byrote.explore.monte_carlo import Count, MonteCarloResult
    from byrote.models.base import LanguageModel
    from byrote.store.read import StoredRun


COLUMNS: Schema = (
    *WINDOW_COLUMNS,
    Column("samples", "int64", is_required=True),
    Column("hits", "int64", is_required=True),
    Column("mass", "float64", is_required=True),
    Column("standard_error", "float64"),
    Column("mass_low", "float64", is_required=True),
    Column("mass_high", "float64", is_required=True),
    Column("replicates", "list[float64]", is_required=True),
    Column("curve_samples", "list[float64]", is_required=True),
    Column("curve_hits", "list[float64]", is_required=True),
    Column("curve_evals", "list[float64]", is_required=True),
    Column("certified_lower", "float64"),
    Column("certified_upper", "float64"),
    *COST_COLUMNS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class McOptions:
    """Which windows are sampled, and how often."""

    run: Path | None = option(
        None, "A scan: its windows, its model and its options.", group="text", positional=True, in_identity=False
    )
    model: str = like(RunConfig, "model", help="Model folder or hub id; of a run, its own.")
    text: tuple[str, ...] = like(RunConfig, "text", help="Texts to cut windows from instead of a run.")
    window: str | None = option(None, "Only the window with this id.", group="text")
    sample: int | None = like(RunConfig, "sample", default=5, default_words=None)
    samples: int = option(1000, "Continuations sampled per window (M).", group="estimates", at_least=1)
    replicates: int = option(1, "Independent groups of samples.", group="estimates", at_least=1)
    interval: IntervalName = option(
        "wilson", "Interval of the share of hits; exact is Clopper–Pearson.", group="estimates"
    )
    stop_lost: bool = option(
        True, "Stop samples that cannot end in the ball, or follow them.", group="estimates",
        names="--stop-lost/--follow-lost",
    )  # fmt: skip
    curve: bool = option(
        False, "Show the estimate at growing numbers of samples.", group="output", names="--curve", in_identity=False
    )
    out: Path | None = option(None, "Also write a run folder, for show and report.", group="output", in_identity=False)
    prefix_tokens: int = like(RunConfig, "prefix_tokens")
    suffix_tokens: int = like(RunConfig, "suffix_tokens")
    stride_chars: int = like(RunConfig, "stride_chars")
    bos: BosRule = like(RunConfig, "bos")
    top_k: int | None = like(RunConfig, "top_k")
    top_p: float | None = like(RunConfig, "top_p")
    temperature: float = like(RunConfig, "temperature")
    edit_budget: int = like(RunConfig, "edit_budget")
    distance: DistanceName = like(RunConfig, "distance")
    seed: int = like(RunConfig, "seed")
    slots: int | None = like(RunConfig, "slots")
    device: str = like(RunConfig, "device")
    dtype: DtypeName = like(RunConfig, "dtype", in_identity=False)

    def __post_init__(self) -> None:
        settle(self)
        if (self.run is None) == (not self.text):
            raise ConfigError("give either a run or --text to say which windows to sample.")
        if self.run is None and not self.model:
            raise ConfigError("model is missing; give --model FOLDER, or a run.")

    def config(self) -> RunConfig:
        """The options that a scan has too."""
        shared = options_of(RunConfig).keys() & options_of(McOptions).keys() - {"out"}
        values = {name: getattr(self, name) for name in shared}
        return RunConfig(**values | {"sample": None if self.window else self.sample})


IDENTITY = [name for name, declared in options_of(McOptions).items() if declared.spec.in_identity]
OF_THE_RUN = [name for name in IDENTITY if name in options_of(RunConfig) and name not in ("sample", "seed")]
"""Options that a run has settled: samples of its windows are drawn as it was measured."""


class McResult(NamedTuple):
    """Rows of the windows that were sampled, and where they were written, if they were."""

    rows: list[dict[str, Any]]
    path: Path | None


class _Task(NamedTuple):
    """What is sampled: under which options, with which bounds beside it, and by which model."""

    config: RunConfig
    bounds: Mapping[str, tuple[float, float]]
    model: "LanguageModel"
    windows: list[Window]
    run_id: str | None


def sample_to_folder(given: McOptions, *, command_line: Sequence[str] = ()) -> McResult:
    """Sample what the options name; into a new folder or an unfinished one of the same samples where `out` is given."""
    from byrote.store.read import read_run
    from byrote.store.session import RunSession

    task = _from_text(given) if given.run is None else _from_run(given, given.run)
    if given.out is None:
        return McResult(_sampled(given, task), None)
    started = time.monotonic()
    settings = {name: getattr(given, name) for name in IDENTITY}
    settings |= {name: getattr(task.config, name) for name in OF_THE_RUN}
    identity = {
        "config": settings,
        "model": task.model.identity.fingerprint,
        "windows": [window.window_id for window in task.windows],
        "scan": task.run_id,
    }
    with RunSession.open(given.out, kind="mc", identity=identity, schema=COLUMNS) as session:
        if not session.is_complete:
            finished = session.finished_ids()
            missing = [window for window in task.windows if window.window_id not in finished]
            for row in _sampled(given, task._replace(windows=missing)):
                session.add(row)
            manifest = {
                "config": settings
                | {"model": task.config.model, "scan": None if given.run is None else str(given.run)},
                "model": asdict(task.model.identity),
                "device": {"name": str(task.model.device)},
                "seed": given.seed,
                "command_line": command_line,
                "timings": {"measuring_seconds": time.monotonic() - started},
                "totals": {"windows": len(task.windows), "samples": given.samples * len(task.windows)},
            }
            session.complete(manifest)
        path = session.path
    return McResult(read_run(path).results.to_dicts(), path)


def _from_run(given: McOptions, path: Path) -> _Task:
    """The run's own model and options and a seeded sample of its windows, with what it certified of them."""
    from byrote.models.load import open_model
    from byrote.store.read import read_run

    stored = read_run(path)
    if stored.kind != "scan":
        raise RunError(f"{path} is a {stored.kind} run; byrote mc samples windows of a scan.")
    known = stored.identity["config"]
    _require_the_runs_options(given, known)
    name = given.model or str((stored.manifest or {}).get("config", {}).get("model", ""))
    if not name:
        raise RunError(f"{path} is not finished and does not say where its model lies; give --model.")
    settled: dict[str, Any] = {name: known[name] for name in OF_THE_RUN}
    config = replace(given.config(), model=name, revision=known["revision"], dtype=known["dtype"], **settled)
    rows = _chosen_rows(stored, given)
    model = open_model(name, **config.loading)
    _require_the_runs_weights(path, model, stored.identity["model"])
    bounds = {row["window_id"]: (row["mass_lower"][-1], row["mass_upper"][-1]) for row in rows if "mass_upper" in row}
    return _Task(config, bounds, model, [window_of(row) for row in rows], stored.run_id)


def _require_the_runs_options(given: McOptions, known: Mapping[str, Any]) -> None:
    for name in OF_THE_RUN:
        value = getattr(given, name)
        if value not in (options_of(McOptions)[name].default, known[name]):
            raise ConfigError(
                f"{name.replace('_', '-')} is {value}, but the run was measured with {known[name]}; leave it out."
            )


def _require_the_runs_weights(path: Path, model: "LanguageModel", known: Mapping[str, Any]) -> None:
    now, other = model.identity.fingerprint, ""
    for name, words in (("weights_hash", "weights"), ("tokenizer_hash", "tokenizer"), ("dtype", "dtype")):
        if not other and now[name] != known[name]:
            other = f"other {words} ({now[name][:12]}) than the model of {path} ({known[name][:12]})"
    changed = list(differences({"settings": known.get("settings")}, {"settings": now.get("settings")}))
    if changed and not other:
        other = f"other settings than the model of {path} ({'; '.join(changed)})"
    if other:
        raise RunError(
            f"{model.name} has {other}: samples would say nothing about its bounds. Give the model that the run was "
            "made with."
        )


def _chosen_rows(stored: "StoredRun", given: McOptions) -> list[dict[str, Any]]:
    frame = stored.results
    if given.window is not None:
        frame = frame.filter(frame["window_id"] == given.window)
        if frame.is_empty():
            raise RunError(f"{stored.path} has no window {given.window!r}; byrote export lists the ids.")
    elif given.sample is not None and given.sample < len(frame):
        frame = frame.sample(given.sample, seed=given.seed)
    return frame.sort("document", "char_start").to_dicts()


def _from_text(given: McOptions) -> _Task:
    from byrote.models.load import open_model
    from byrote.scan.run import check_fits
    from byrote.scan.source import cut_source, read_given

    config = given.config()
    model = open_model(config.model, **config.loading)
    check_fits(model, config)
    windows = cut_source(read_given(config), model, config).chosen.windows
    if given.window is not None:
        windows = [window for window in windows if window.window_id == given.window]
        if not windows:
            raise ConfigError(f"no window of the texts has the id {given.window!r}; a scan of them lists the ids.")
    return _Task(config, {}, model, windows, None)


def _sampled(given: McOptions, task: _Task) -> list[dict[str, Any]]:
    from byrote.explore.monte_carlo import MonteCarloOptions, sample_windows
    from byrote.scan.source import fitted

    if not task.windows:
        return []
    config = fitted(task.config, task.windows)
    options = MonteCarloOptions(
        policy=config.policy,
        distance=config.distance,
        edit_budget=config.edit_budget,
        samples=given.samples,
        replicates=given.replicates,
        seed=given.seed,
        stops_when_lost=given.stop_lost,
    )
    results = sample_windows(task.model, task.windows, options, slots=config.slots, limits=config.limits)
    rows = {result.window.window_id: _row(result, task.bounds, given.interval) for result in results}
    return [rows[window.window_id] for window in task.windows]


def _row(result: "MonteCarloResult", bounds: Mapping[str, tuple[float, float]], method: IntervalName) -> dict[str, Any]:
    hits, samples, token_evals = result.count
    share = hits / samples
    low, high = share_interval(result.count, method)
    lower, upper = bounds.get(result.window.window_id, (None, None))
    return {
        **window_row(result.window),
        "samples": samples,
        "hits": hits,
        "mass": share,
        # All hits or none: the spread is 0, which is no estimate of the error.
        "standard_error": math.sqrt(share * (1 - share) / (samples - 1)) if 0 < hits < samples else math.nan,
        "mass_low": low,
        "mass_high": high,
        "replicates": list(result.replicates),
        "curve_samples": [float(point.samples) for point in result.curve],
        "curve_hits": [float(point.hits) for point in result.curve],
        "curve_evals": [float(point.token_evals) for point in result.curve],
        "certified_lower": lower,
        "certified_upper": upper,
        "token_evals": token_evals,
    }


def share_interval(count: "Count", method: IntervalName) -> tuple[float, float]:
    from byrote.stats.intervals import exact_interval, wilson_interval

    low, high, _, _ = (exact_interval if method == "exact" else wilson_interval)(count.hits, count.samples)
    return low, high
