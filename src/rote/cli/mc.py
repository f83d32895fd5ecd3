"""`rote mc`: sample continuations of a few windows, plainly, as a check on everything cleverer."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rote.errors import ConfigError, RunError
from rote.explore.montecarlo import MonteCarloOptions, MonteCarloResult, sample_windows
from rote.scan.options import RunConfig
from rote.store.columns import window_of
from rote.types import Estimate, Window

DEFAULTS = RunConfig()


def mc(
    model: Annotated[str, typer.Option(help="Model folder or hub id.")],
    text: Annotated[list[str] | None, typer.Option(help="Texts to cut windows from.")] = None,
    run: Annotated[Path | None, typer.Option(help="Take the windows, policy and bounds of this run instead.")] = None,
    window: Annotated[str | None, typer.Option(help="Only the window with this id.")] = None,
    sample: Annotated[int, typer.Option(help="Sample this many windows, seeded.")] = 5,
    samples: Annotated[int, typer.Option(help="Continuations sampled per window (M).")] = 1000,
    replicates: Annotated[int, typer.Option(help="Independent groups of samples.")] = 1,
    interval: Annotated[str, typer.Option(help="wilson, or exact (Clopper–Pearson).")] = "wilson",
    stop_lost: Annotated[
        bool,
        typer.Option("--stop-lost/--follow-lost", help="Stop samples that cannot end in the ball, or follow them."),
    ] = True,
    curve: Annotated[bool, typer.Option("--curve", help="Print the estimate at growing numbers of samples.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the results as JSON.")] = None,
    prefix_tokens: Annotated[int, typer.Option(help="Tokens of the prefix.")] = DEFAULTS.prefix_tokens,
    suffix_tokens: Annotated[int, typer.Option(help="Tokens of the suffix.")] = DEFAULTS.suffix_tokens,
    stride_chars: Annotated[int, typer.Option(help="Start a window every so many characters.")] = DEFAULTS.stride_chars,
    top_k: Annotated[int, typer.Option(help="Keep the k most likely tokens; 0 for all.")] = DEFAULTS.top_k or 0,
    top_p: Annotated[float | None, typer.Option(help="Nucleus mass.")] = DEFAULTS.top_p,
    temperature: Annotated[float, typer.Option(help="Temperature.")] = DEFAULTS.temperature,
    edit_budget: Annotated[int, typer.Option(help="Edits within which a continuation counts (ε).")] = 5,
    distance: Annotated[str, typer.Option(help="levenshtein or hamming.")] = DEFAULTS.distance,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = DEFAULTS.seed,
    slots: Annotated[int | None, typer.Option(help="Windows at once.")] = DEFAULTS.slots,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N, map.")] = DEFAULTS.device,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.")] = DEFAULTS.dtype,
) -> None:
    """Estimate the near-verbatim mass of a few windows by plain sampling, with an interval."""
    from rote.explore.tree import ENTRIES, choose_room
    from rote.models.hf import load
    from rote.scan.run import check_fits

    if (run is None) == (not text):
        raise ConfigError("give either --text or --run to say which windows to sample.")
    if interval not in ("wilson", "exact"):
        raise ConfigError(f"interval is {interval!r}; choose wilson, exact.")
    given: dict[str, Any] = {
        "model": model, "text": tuple(text or ()), "prefix_tokens": prefix_tokens, "suffix_tokens": suffix_tokens,
        "stride_chars": stride_chars, "top_k": top_k or None, "top_p": top_p, "temperature": temperature,
        "edit_budget": edit_budget, "distance": distance, "sample": None if window else sample, "seed": seed,
        "slots": slots, "device": device, "dtype": dtype,
    }  # fmt: skip
    config = RunConfig(**given)
    rows: dict[str, dict[str, Any]] = {}
    if run is not None:
        config, rows = _from_run(run, config, window)
    options = MonteCarloOptions(
        policy=config.policy,
        distance=config.distance,
        edit_budget=config.edit_budget,
        samples=samples,
        replicates=replicates,
        seed=config.seed,
        interval="exact" if interval == "exact" else "wilson",
        stops_when_lost=stop_lost,
    )
    loaded = load(model, dtype=config.dtype, device=config.device)
    check_fits(loaded, config)
    windows = [window_of(row) for row in rows.values()] if rows else _from_text(loaded, config, window)
    at_once = config.slots or choose_room(loaded, config.limits, evaluations=ENTRIES).slots
    results = sorted(
        sample_windows(loaded, windows, options, slots=at_once, limits=config.limits),
        key=lambda result: result.window.window_id,
    )
    _print(results, rows, shows_curve=curve)
    if out is not None:
        out.write_text(json.dumps([_as_dict(result) for result in results], indent=2) + "\n", encoding="utf-8")


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
    from rote.corpus.documents import read_corpus
    from rote.scan.run import choose_windows

    windows = list(choose_windows(model, read_corpus(config.text, ()), config).windows)
    if window_id is None:
        return windows
    chosen = [window for window in windows if window.window_id == window_id]
    if not chosen:
        raise ConfigError(f"no window of the texts has the id {window_id!r}; a scan of them lists the ids.")
    return chosen


def _print(results: list[MonteCarloResult], rows: dict[str, dict[str, Any]], *, shows_curve: bool) -> None:
    table = Table(title="Monte Carlo: sampled, not certified", title_justify="left", box=None)
    for name in ("window", "samples", "mass", "error", "95 % interval", "evals"):
        table.add_column(name, justify="left" if name == "window" else "right", overflow="fold")
    has_bounds = any("mass_upper" in row for row in rows.values())
    if has_bounds:
        table.add_column("bounds", justify="right")
    for result in results:
        points = result.curve if shows_curve else (result.estimate,)
        for point in points:
            cells = [result.window.window_id, *_cells(point)]
            if has_bounds:
                row = rows[result.window.window_id]
                cells.append(f"{row['mass_lower'][-1]:.3g} to {row['mass_upper']:.3g}")
            table.add_row(*cells)
    Console().print(table)


def _cells(estimate: Estimate) -> list[str]:
    low, high, _, _ = estimate.interval
    return [
        f"{estimate.samples:,}",
        f"{estimate.value:.3g}",
        f"{estimate.standard_error:.2g}",
        f"{low:.3g} to {high:.3g}",
        f"{estimate.token_evals:,}",
    ]


def _as_dict(result: MonteCarloResult) -> dict[str, Any]:
    return {
        "window_id": result.window.window_id,
        "estimate": asdict(result.estimate) | {"interval": list(result.estimate.interval[:2])},
        "replicates": list(result.replicates),
        "curve": [asdict(point) | {"interval": list(point.interval[:2])} for point in result.curve],
    }
