"""The numbers of a run for Weights & Biases, MLflow or Trackio: rates, intervals and limits, and no text.

Where they go is as each logger's own settings say (WANDB_MODE=offline, MLFLOW_TRACKING_URI, TRACKIO_DIR). A run that
has a step of training is logged at that step.
"""

import math
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from byrote.errors import ConfigError, ModelError
from byrote.report.analysis.limits import limit_of
from byrote.report.analysis.series import mean_counted_mass
from byrote.report.view import DECISIVE, RunView
from byrote.types import LoggerName, Split


def numbers_of(view: RunView) -> dict[str, float]:
    """`target/near`, `target/near_low`, … at the run's τ and edit budget. Undefined ones are left out."""
    found = dict(_numbers(view))
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def _numbers(view: RunView) -> Iterator[tuple[str, float]]:
    for entry in view.headline_rates:
        name = f"{entry.split}/{entry.criterion}"
        yield name, entry.rate.value
        yield f"{name}_low", entry.rate.interval.low
        yield f"{name}_high", entry.rate.interval.high
    for split in Split:
        if (limit := limit_of(view, split=split)) is not None:
            yield f"{split}/near_at_most", limit.high
            yield f"{split}/mean_mass_of_others_at_most", limit.rest.mean_mass
    if view.population.has_masses:
        yield "target/mean_mass", mean_counted_mass(view)
    yield "windows", len(view.population)


def facts_of(view: RunView) -> dict[str, Any]:
    """What the numbers are about: the model, the run, and the options that define a rate."""
    facts = {name: view.config.get(name) for name in DECISIVE}
    return {"model": view.model, "run_id": view.manifest.get("run_id"), "run": view.path.name} | facts


def log_to(logger: LoggerName, view: RunView, *, project: str) -> dict[str, float]:
    """Log the run's numbers; what was logged."""
    try:
        module = import_module(logger)
    except ImportError as error:
        raise ConfigError(f"{logger} is not installed; install it with: pip install {logger}.") from error
    numbers = numbers_of(view)
    try:
        LOGGERS[logger](module, view, project, numbers, view.training_step)
    except Exception as error:  # of the network, an account, a disk
        words = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"{logger} refused the numbers ({words[:200]}); check its settings.") from error
    return numbers


Log = Callable[[Any, RunView, str, dict[str, float], int | None], None]


def _wandb(wandb: Any, view: RunView, project: str, numbers: dict[str, float], step: int | None) -> None:
    with wandb.init(project=project, name=view.path.name, config=facts_of(view)) as run:
        run.log(numbers, step=step)


def _mlflow(mlflow: Any, view: RunView, project: str, numbers: dict[str, float], step: int | None) -> None:
    mlflow.set_experiment(project)
    with mlflow.start_run(run_name=view.path.name):
        mlflow.log_params(facts_of(view))
        mlflow.log_metrics(numbers, step=step)


def _trackio(trackio: Any, view: RunView, project: str, numbers: dict[str, float], step: int | None) -> None:
    trackio.init(project=project, name=view.path.name, config=facts_of(view))
    try:
        trackio.log(numbers, step=step)
    finally:
        trackio.finish()


LOGGERS: dict[LoggerName, Log] = {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}
