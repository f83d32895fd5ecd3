"""`byrote plan`: what a measurement costs before it is made; with a model and a text, by a pilot on this device."""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.table import Table

from byrote.cli.console import make_console, make_progress
from byrote.cli.flags import command
from byrote.cli.scan import look_first
from byrote.options import Settled, option
from byrote.scan.options import RunConfig
from byrote.stats import planning
from byrote.stats import planning as served_cost

if TYPE_CHECKING:
    from byrote.scan.pilot import Extrapolation

MISS_CHANCES = (0.005, 0.05, 0.5)
ERRORS = (0.5, 0.1, 0.01)
PROBABILITIES = (0.5, 0.9, 0.999)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions(Settled):
    mass: tuple[float, ...] = option(
        (0.1, 0.01, 0.001), "Probability to plan for; may be repeated.", group="estimates", above=0, at_most=1
    )
    samples: tuple[int, ...] = option(
        (3_000, 100_000), "Monte Carlo samples to price; may be repeated.", group="estimates", at_least=1
    )
    devices: int = option(1, "Devices that share the windows of the scan.", group="machine", at_least=1)
    pilot: int = option(
        300,
        "Windows that are measured and timed here, where --model and --text are given.",
        group="machine",
        at_least=1,
    )
    endpoint: bool = option(False, "Also what a served model costs: requests and tokens.", group="endpoint")


@command(RunConfig, PlanOptions)
def plan(config: RunConfig, options: PlanOptions) -> None:
    """Sample sizes, queries and token evaluations for a measurement. With the options of a scan (--model, --text, …)
    also its time: a random sample of its windows is measured on this device and scaled up."""
    console = make_console()
    console.print(_samples_table(options.mass))
    console.print(_queries_table(options.mass))
    console.print(_evals_table(config.prefix_tokens, config.suffix_tokens, config.beam_width, options.samples))
    console.print(_limits_table(config.threshold, config.suffix_tokens, config.beam_width))
    if options.endpoint:
        console.print(_served_table(config))
    if config.model:
        look_first(model="" if config.is_served else config.model, texts=(*config.text, *config.control))
        from byrote.scan.pilot import run_pilot

        with make_progress() as progress:
            found = run_pilot(config, pilot_windows=options.pilot, progress=progress)
        console.print(_extrapolation_table(found, options.devices))
        console.print(
            f"Extrapolated from {found.pilot_windows:,} random windows, measured in {found.pilot_seconds:.1f} s on "
            f"{found.device} after a warm-up; loading and compiling are not counted.",
            soft_wrap=True,
        )


def _extrapolation_table(found: "Extrapolation", devices: int) -> Table:
    of = f"{devices:,} devices" if devices > 1 else "one device"
    table = Table(title=f"A scan of {found.windows:,} windows on {of}", title_justify="left", box=None)
    table.add_column("what")
    table.add_column(f"extrapolated from {found.pilot_windows:,} windows", justify="right")
    table.add_row("token evaluations", _count(found.token_evals))
    table.add_row("windows per second and device", f"{found.windows_per_second:,.3g}")
    table.add_row("time", str(timedelta(seconds=math.ceil(found.seconds(devices)))))
    table.add_row("device hours (GPU hours on GPUs)", f"{found.device_seconds / 3600:,.3g}")
    return table


def _count(value: float) -> str:
    return "∞" if math.isinf(value) else f"{math.ceil(value):,}"


def _samples_table(masses: tuple[float, ...]) -> Table:
    table = Table(title="Monte Carlo samples", title_justify="left", box=None)
    table.add_column("probability", justify="right", no_wrap=True)
    for chance in MISS_CHANCES:
        table.add_column(f"hit once, miss chance {chance:g}", justify="right", overflow="fold")
    for error in ERRORS:
        table.add_column(f"relative error {error:.0%}", justify="right", overflow="fold")
    for value in masses:
        table.add_row(
            f"{value:g}",
            *(_count(planning.samples_to_detect(value, chance)) for chance in MISS_CHANCES),
            *(_count(planning.samples_to_estimate(value, error)) for error in ERRORS),
        )
    return table


def _queries_table(masses: tuple[float, ...]) -> Table:
    table = Table(title="Queries until the text comes out", title_justify="left", box=None)
    table.add_column("probability per query", justify="right")
    for probability in PROBABILITIES:
        table.add_column(f"with probability {probability:g}", justify="right", overflow="fold")
    for value in masses:
        table.add_row(f"{value:g}", *(_count(planning.queries_for(value, p)) for p in PROBABILITIES))
    return table


def _evals_table(prefix: int, suffix: int, width: int, samples: tuple[int, ...]) -> Table:
    table = Table(title=f"Token evaluations per window ({prefix} + {suffix} tokens)", title_justify="left", box=None)
    table.add_column("measure")
    for heading in ("as published", "in a scan, at most"):
        table.add_column(heading, justify="right", overflow="fold")
    published = {
        "verbatim, any number of policies": (planning.teacher_forcing_evals(prefix, suffix), 0),
        "greedy": (planning.greedy_evals(prefix, suffix), 1),
        f"beam search, {width} beams": (planning.beam_search_evals(prefix, suffix, beam_width=width), width),
    }
    for measure, (evals, beams) in published.items():
        table.add_row(measure, _count(evals), _count(planning.scan_evals(prefix, suffix, beams=beams)))
    table.add_row("all of these", "", _count(planning.scan_evals(prefix, suffix, beams=width + 1)))
    for count in samples:
        evals = planning.monte_carlo_evals(prefix, suffix, samples=count)
        table.add_row(f"Monte Carlo, {count:,} samples", _count(evals), "")
    return table


def _limits_table(threshold: float, suffix: int, width: int) -> Table:
    table = Table(title=f"What τ = {threshold:g} allows", title_justify="left", box=None)
    table.add_column("fact")
    table.add_column("value", justify="right")
    table.add_row("steps with probability at most 0.5", str(planning.steps_allowed(0.5, threshold)))
    table.add_row("steps with probability at most 0.1", str(planning.steps_allowed(0.1, threshold)))
    table.add_row("steps at rank 40 or beyond", str(planning.steps_allowed_at_rank(40, threshold)))
    table.add_row(
        "geometric mean of the token probabilities, at least", f"{planning.geometric_mean_floor(threshold, suffix):.3f}"
    )
    table.add_row(f"a path above this probability survives {width} beams", f"{planning.survival_floor(width):.4f}")
    return table


def _served_table(config: RunConfig) -> Table:
    from byrote.models.served.client import PROMPTS_PER_REQUEST
    from byrote.models.served.rows import CHAINS_PER_REQUEST

    dialect = "vllm" if config.dialect == "auto" else config.dialect
    costs = served_cost.costs_of(
        config.prefix_tokens,
        config.suffix_tokens,
        beam_width=config.beam_width,
        dialect=dialect,
        per_request=PROMPTS_PER_REQUEST,
        chains_per_request=CHAINS_PER_REQUEST,
    )
    title = f"A window of a served model ({dialect}, {config.prefix_tokens} + {config.suffix_tokens} tokens)"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("measure")
    for name in ("requests", "prompts", "tokens sent", "computed with a cache"):
        table.add_column(name, justify="right")
    for words, cost in costs.items():
        requests = f"{cost.requests:,.3g}" if cost.requests < 100 else f"{cost.requests:,.0f}"
        table.add_row(words, requests, f"{cost.prompts:,}", f"{cost.tokens:,}", f"{cost.computed:,}")
    return table
