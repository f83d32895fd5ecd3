"""`byrote plan`: what a measurement costs before it is made; with a model and a text, by a pilot on this device."""

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from byrote.cli.commands import PlanOptions
from byrote.cli.console import make_console, make_progress
from byrote.errors import ConfigError
from byrote.models.served.client import CHAINS_PER_REQUEST, PROMPTS_PER_REQUEST
from byrote.report.content import Cells
from byrote.report.terminal import cells_table
from byrote.scan.options import RunConfig
from byrote.stats import planning
from byrote.stats.curves import queries_needed

if TYPE_CHECKING:  # torch is imported when there is a pilot
    from byrote.scan.pilot import Extrapolation

MISS_CHANCES = (0.005, 0.05, 0.5)
ERRORS = (0.5, 0.1, 0.01)
PROBABILITIES = (0.5, 0.9, 0.999)


def plan(config: RunConfig, options: PlanOptions) -> None:
    if options.endpoint and config.unit == "text":
        raise ConfigError("unit is text, but endpoint counts requests by tokens of a window; leave one of them out.")
    console = make_console()
    for cells in _computed(config, options):
        console.print(cells_table(cells))
    if config.unit == "text" and not config.model:
        console.print(
            "Token evaluations per window are not listed: how many tokens the characters of a window are depends on "
            "the tokenizer. With --model and --text a pilot counts them.",
            soft_wrap=True,
        )
    if options.endpoint:
        console.print(cells_table(_served(config)))
    if config.model:
        from byrote.scan.pilot import run_pilot

        with make_progress() as progress:
            found = run_pilot(config, pilot_windows=options.pilot, progress=progress)
        console.print(cells_table(_extrapolated(found, options.devices)))
        console.print(
            f"Extrapolated from {found.pilot_windows:,} random windows, measured in {found.pilot_seconds:.1f} s on "
            f"{found.device} after a warm-up, and {found.fewer_windows:,} of them alone for the fixed cost; loading "
            "and compiling are not counted.",
            soft_wrap=True,
        )


def _computed(config: RunConfig, options: PlanOptions) -> Iterator[Cells]:
    heads = (
        *(f"hit once, miss chance {chance:g}" for chance in MISS_CHANCES),
        *(f"relative error {error:.0%}" for error in ERRORS),
    )
    samples = tuple(
        (
            f"{mass:g}",
            *(_count(planning.samples_to_detect(mass, chance)) for chance in MISS_CHANCES),
            *(_count(planning.samples_to_estimate(mass, error)) for error in ERRORS),
        )
        for mass in options.mass
    )
    yield Cells("samples", "Monte Carlo samples", ("probability", *heads), samples)
    heads = ("probability per query", *(f"with probability {probability:g}" for probability in PROBABILITIES))
    needed = tuple((f"{mass:g}", *(_count(queries_needed(mass, p)) for p in PROBABILITIES)) for mass in options.mass)
    yield Cells("queries", "Queries until the text comes out", heads, needed)
    if config.unit == "text":
        return
    prefix, suffix, width = config.prefix_tokens, config.suffix_tokens, config.beam_width
    measures = [
        ("verbatim, any number of policies", planning.teacher_forcing_evals(prefix, suffix), 0),
        ("greedy", planning.greedy_evals(prefix, suffix), 1),
        (f"beam search, {width} beams", planning.beam_search_evals(prefix, suffix, beam_width=width), width),
    ]
    costs = [
        *(
            (measure, _count(evals), _count(planning.scan_evals(prefix, suffix, beams=beams)))
            for measure, evals, beams in measures
        ),
        ("all of these", "", _count(planning.scan_evals(prefix, suffix, beams=width + 1))),
    ]
    for count in options.samples:
        evals = planning.monte_carlo_evals(prefix, suffix, samples=count)
        costs.append((f"Monte Carlo, {count:,} samples", _count(evals), ""))
    title = f"Token evaluations per window ({prefix} + {suffix} tokens)"
    yield Cells("costs", title, ("measure", "as published", "in a scan, at most"), tuple(costs))


def _served(config: RunConfig) -> Cells:
    dialect = "vllm" if config.dialect == "auto" else config.dialect
    costs = planning.costs_of(
        config.prefix_tokens,
        config.suffix_tokens,
        beam_width=config.beam_width,
        dialect=dialect,
        per_request=PROMPTS_PER_REQUEST,
        chains_per_request=CHAINS_PER_REQUEST,
    )
    rows = []
    for words, cost in costs.items():
        requests = f"{cost.requests:,.3g}" if cost.requests < 100 else f"{cost.requests:,.0f}"
        rows.append((words, requests, f"{cost.prompts:,}", f"{cost.tokens:,}", f"{cost.computed:,}"))
    title = f"A window of a served model ({dialect}, {config.prefix_tokens} + {config.suffix_tokens} tokens)"
    heads = ("measure", "requests", "prompts", "tokens sent", "computed with a cache")
    return Cells("served", title, heads, tuple(rows))


def _extrapolated(found: "Extrapolation", devices: int) -> Cells:
    rows = (
        ("token evaluations", _count(found.token_evals)),
        ("windows per second and device", f"{found.windows_per_second:,.3g}"),
        ("time", str(timedelta(seconds=math.ceil(found.device_seconds / devices)))),
        ("device hours (GPU hours on GPUs)", f"{found.device_seconds / 3600:,.3g}"),
    )
    title = f"A scan of {found.windows:,} windows on {f'{devices:,} devices' if devices > 1 else 'one device'}"
    return Cells("scan", title, ("what", f"extrapolated from {found.pilot_windows:,} windows"), rows)


def _count(value: float) -> str:
    return "∞" if math.isinf(value) else f"{math.ceil(value):,}"
