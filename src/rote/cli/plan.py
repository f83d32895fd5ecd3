"""`rote plan`: what a measurement costs before it is made. Needs no model."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.options import Settled, like, option
from rote.scan.option_fields import DialectName
from rote.scan.options import RunConfig
from rote.scan.prediction import Prediction
from rote.stats import planning, served_cost

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
    model_size: str | None = option(
        None, "Predict a scan of a model of this size on GPUs: 7b, 8b, 13b, 34b, 70b or 405b.", group="machine"
    )
    gpus: int = option(1, "GPUs of that scan.", group="machine", at_least=1)
    gpu_memory: float = option(139.0, "Memory of a GPU in GiB.", group="machine", above=0)
    windows: int = option(27_000, "Windows of that scan; a novel has about 27,000.", group="text", at_least=1)
    memorized_share: float = option(
        0.05, "Share of its windows that are memorized and searched to full depth.", group="text",
        at_least=0, at_most=1,
    )  # fmt: skip
    prefix_tokens: int = like(RunConfig, "prefix_tokens")
    suffix_tokens: int = like(RunConfig, "suffix_tokens")
    beam_width: int = like(RunConfig, "beam_width")
    threshold: float = like(RunConfig, "threshold")
    endpoint: bool = option(False, "Also what a served model costs: requests and tokens.", group="endpoint")
    dialect: DialectName = like(RunConfig, "dialect", help="Kind of server; auto means vllm.")


@command(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Sample sizes, queries and token evaluations for a measurement; with --model-size, what a scan takes on GPUs."""
    if options.model_size is not None:
        print_prediction(options, options.model_size)
        return
    prefix, suffix, width = options.prefix_tokens, options.suffix_tokens, options.beam_width
    console = make_console()
    console.print(_samples_table(options.mass))
    console.print(_queries_table(options.mass))
    console.print(_evals_table(prefix, suffix, width, options.samples))
    console.print(_limits_table(options.threshold, suffix, width))
    if options.endpoint:
        console.print(_served_table(options))


def print_prediction(options: PlanOptions, size: str) -> None:
    """What a scan of a model of this size takes, and on which measurement that rests."""
    from rote.scan.measured_costs import COSTS, MEASURED_IN, MEASURED_ON
    from rote.scan.model_shapes import shape_named
    from rote.scan.prediction import Scan, predict

    scan = Scan(
        windows=options.windows,
        memorized_share=options.memorized_share,
        prefix_tokens=options.prefix_tokens,
        suffix_tokens=options.suffix_tokens,
        beam_width=options.beam_width,
    )
    memory = int(options.gpu_memory * 2**30)
    told = predict(scan, shape_named(size), gpus=options.gpus, costs=COSTS, gpu_bytes=memory)
    console = make_console()
    console.print(_prediction_table(told, options, size))
    for words in _rests_on(told, options, f"{MEASURED_IN} ({MEASURED_ON})"):
        console.print(words, soft_wrap=True)


def _rests_on(told: "Prediction", options: PlanOptions, measurement: str) -> Iterator[str]:
    """What a reader must know of a prediction, in sentences."""
    from rote.scan.prediction import PLAIN_LAYERS

    yield f"Predicted from {measurement}, bf16, compiled layers."
    if told.gpus_per_model > 1:
        yield (
            "Layers over several GPUs were not measured. They are not compiled, which is assumed to take "
            f"{PLAIN_LAYERS:g} times as long, as on one GPU at 7B shape; sums over GPUs are assumed to move 300 GB/s."
        )
    if left := options.gpus - told.gpus_per_model * told.copies:
        yield f"{left} of the {options.gpus} GPUs {'is' if left == 1 else 'are'} not used."


def _prediction_table(told: "Prediction", options: PlanOptions, size: str) -> Table:
    share, gpus = f"{options.memorized_share:.0%}", f"{options.gpus} GPU{'s' * (options.gpus > 1)}"
    title = f"A scan of {options.windows:,} windows, {share} memorized, {size} on {gpus}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("what")
    table.add_column("predicted", justify="right")
    table.add_row("token evaluations", _count(told.token_evals))
    table.add_row("forwards", _count(told.forwards))
    table.add_row("GPUs that hold one copy", str(told.gpus_per_model))
    table.add_row("copies, each with a share of the windows (--shard)", str(told.copies))
    table.add_row("windows searched at once (slots) per copy", str(told.slots))
    table.add_row("weights per GPU", f"{told.weights_bytes_per_gpu / 2**30:,.1f} GiB")
    table.add_row("slots per GPU, at their peak", f"{told.slots_bytes_per_gpu / 2**30:,.1f} GiB")
    table.add_row("windows per second", f"{options.windows / told.seconds:,.1f}")
    table.add_row("hours, loading not counted", f"{told.seconds / 3600:,.2f}")
    table.add_row("GPU hours", f"{told.gpu_hours:,.2f}")
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


def _served_table(options: PlanOptions) -> Table:
    from rote.models.endpoint_asking import CHAINS_PER_REQUEST
    from rote.models.endpoint_client import PROMPTS_PER_REQUEST

    dialect = "vllm" if options.dialect == "auto" else options.dialect
    costs = served_cost.costs_of(
        options.prefix_tokens,
        options.suffix_tokens,
        beam_width=options.beam_width,
        dialect=dialect,
        per_request=PROMPTS_PER_REQUEST,
        chains_per_request=CHAINS_PER_REQUEST,
    )
    title = f"A window of a served model ({dialect}, {options.prefix_tokens} + {options.suffix_tokens} tokens)"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("measure")
    for name in ("requests", "prompts", "tokens sent", "computed with a cache"):
        table.add_column(name, justify="right")
    for words, cost in costs.items():
        requests = f"{cost.requests:,.3g}" if cost.requests < 100 else f"{cost.requests:,.0f}"
        table.add_row(words, requests, f"{cost.prompts:,}", f"{cost.tokens:,}", f"{cost.computed:,}")
    return table
