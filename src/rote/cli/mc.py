"""`rote mc`: sample continuations of a few windows, plainly, as a check on everything cleverer."""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.errors import ConfigError, RunError
from rote.options import like, option, required, settle
from rote.scan.options import RunConfig
from rote.types import BosRule, DistanceName, DtypeName, IntervalName, Window

if TYPE_CHECKING:  # `rote mc --help` waits for none of these
    from rote.explore.montecarlo import Count, MonteCarloResult


@dataclass(frozen=True, slots=True, kw_only=True)
class McOptions:
    """Which windows are sampled, and how often."""

    model: str = required("Model folder or hub id.", group="text")
    text: tuple[str, ...] = like(RunConfig, "text", help="Texts to cut windows from, as for a scan.")
    run: Path | None = option(None, "Take the windows, policy and bounds of this run instead.", group="text")
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
    curve: bool = option(False, "Print the estimate at growing numbers of samples.", group="output", names="--curve")
    out: Path | None = option(None, "Also write the results as JSON.", group="output")
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
    dtype: DtypeName = like(RunConfig, "dtype")

    def __post_init__(self) -> None:
        settle(self)
        if (self.run is None) == (not self.text):
            raise ConfigError("give either --text or --run to say which windows to sample.")

    def config(self) -> RunConfig:
        """The options that a scan has too."""
        shared = {item.name for item in fields(RunConfig)} & {item.name for item in fields(self)} - {"out"}
        values = {name: getattr(self, name) for name in shared}
        return RunConfig(**values | {"sample": None if self.window else self.sample})


@command(McOptions)
def mc(given: McOptions) -> None:
    """Estimate the near-verbatim mass of a few windows by plain sampling, with an interval."""
    from rote.explore.explorer import ENTRIES, choose_room
    from rote.explore.montecarlo import MonteCarloOptions, sample_windows
    from rote.models.hf import load
    from rote.scan.run import check_fits
    from rote.scan.source import fitted
    from rote.store.atomic import atomic_file
    from rote.store.columns import window_of

    config = given.config()
    rows: dict[str, dict[str, Any]] = {}
    if given.run is not None:
        config, rows = _from_run(given.run, config, given.window)
    options = MonteCarloOptions(
        policy=config.policy,
        distance=config.distance,
        edit_budget=config.edit_budget,
        samples=given.samples,
        replicates=given.replicates,
        seed=config.seed,
        stops_when_lost=given.stop_lost,
    )
    loaded = load(given.model, dtype=config.dtype, device=config.device)
    check_fits(loaded, config)
    windows = [window_of(row) for row in rows.values()] if rows else _from_text(loaded, config, given.window)
    config = fitted(config, windows)
    at_once = config.slots or choose_room(loaded, config.limits, evaluations=ENTRIES).slots
    results = sorted(
        sample_windows(loaded, windows, options, slots=at_once, limits=config.limits),
        key=lambda result: result.window.window_id,
    )
    _print(results, rows, given.interval, shows_curve=given.curve)
    if given.out is not None:
        shown = [_as_dict(result, given.interval) for result in results]
        with atomic_file(given.out) as file:
            file.write(json.dumps(shown, indent=2).encode() + b"\n")


def _from_run(path: Path, given: RunConfig, window_id: str | None) -> tuple[RunConfig, dict[str, dict[str, Any]]]:
    """The run's own options and a seeded sample of its windows, with their rows."""
    from rote.store.read import read_run

    stored = read_run(path)
    known = stored.identity["config"]
    names = ("prefix_tokens", "suffix_tokens", "top_k", "top_p", "temperature", "edit_budget", "distance")
    config = RunConfig(
        model=given.model, seed=given.seed, slots=given.slots, device=given.device, dtype=given.dtype,
        sample=given.sample, **{name: known[name] for name in names if name in known},
    )  # fmt: skip
    frame = stored.results
    if window_id is not None:
        frame = frame.filter(frame["window_id"] == window_id)
        if frame.is_empty():
            raise RunError(f"{path} has no window {window_id!r}; rote export lists the ids.")
    elif given.sample is not None and given.sample < len(frame):
        frame = frame.sample(given.sample, seed=given.seed)
    return config, {row["window_id"]: row for row in frame.to_dicts()}


def _from_text(model: Any, config: RunConfig, window_id: str | None) -> list[Window]:
    from rote.scan.source import cut_source, read_given

    windows = cut_source(read_given(config), model, config).chosen.windows
    if window_id is None:
        return windows
    chosen = [window for window in windows if window.window_id == window_id]
    if not chosen:
        raise ConfigError(f"no window of the texts has the id {window_id!r}; a scan of them lists the ids.")
    return chosen


def _estimate(count: "Count", method: IntervalName) -> dict[str, Any]:
    """The share of hits with its interval. All hits or none: the spread is 0 and says nothing, so the error is NaN."""
    from rote.stats.intervals import exact_interval, wilson_interval

    hits, samples, token_evals = count
    share = hits / samples
    low, high, _, _ = (exact_interval if method == "exact" else wilson_interval)(hits, samples)
    return {
        "value": share,
        "standard_error": math.sqrt(share * (1 - share) / (samples - 1)) if 0 < hits < samples else math.nan,
        "interval": [low, high],
        "samples": samples,
        "token_evals": token_evals,
    }


def _print(
    results: "list[MonteCarloResult]", rows: dict[str, dict[str, Any]], method: IntervalName, *, shows_curve: bool
) -> None:
    table = Table(title="Monte Carlo: sampled, not certified", title_justify="left", box=None)
    for name in ("window", "samples", "mass", "error", "95 % interval", "evals"):
        table.add_column(name, justify="left" if name == "window" else "right", overflow="fold")
    has_bounds = any("mass_upper" in row for row in rows.values())
    if has_bounds:
        table.add_column("bounds", justify="right")
    for result in results:
        for point in result.curve if shows_curve else (result.count,):
            cells = [result.window.window_id, *_cells(_estimate(point, method))]
            if has_bounds:
                row = rows[result.window.window_id]
                cells.append(f"{row['mass_lower'][-1]:.3g} to {row['mass_upper'][-1]:.3g}")
            table.add_row(*cells)
    make_console().print(table)


def _cells(estimate: dict[str, Any]) -> list[str]:
    low, high = estimate["interval"]
    return [
        f"{estimate['samples']:,}",
        f"{estimate['value']:.3g}",
        f"{estimate['standard_error']:.2g}",
        f"{low:.3g} to {high:.3g}",
        f"{estimate['token_evals']:,}",
    ]


def _as_dict(result: "MonteCarloResult", method: IntervalName) -> dict[str, Any]:
    return {
        "window_id": result.window.window_id,
        "estimate": _estimate(result.count, method),
        "replicates": list(result.replicates),
        "curve": [_estimate(point, method) for point in result.curve],
    }
