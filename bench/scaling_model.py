"""The constants of `rote plan --model-size`, fitted to what was measured, and predictions beside measurements.

    PYTHONPATH=src:bench python bench/scaling_model.py && python bench/tables.py

Reads bench/results/scaling_gpu.json and scan_gpu_7b.json; writes src/rote/scan/measured_costs.py and
bench/results/scaling_predictions.json. Each stage of each run is one equation of the fit. Runs as wholes then say what
a forward takes beside its products with their build: those of 7B are newer than the others.
"""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar, nnls

from rote.scan.model_shapes import SHAPES, ModelShape
from rote.scan.prediction import Costs, Scan, Slots, predict, seconds_of, work_of

RESULTS = Path(__file__).parent / "results"
CONSTANTS = Path(__file__).parent.parent / "src" / "rote" / "scan" / "measured_costs.py"
FIRST_TOKENS, SUFFIX_TOKENS = 99, 50
BOOK_WINDOWS, BOOK_SHARE = 27_000, 0.05
BOOKS = {"7b": (1, 8), "13b": (1, 8), "34b": (1, 8), "70b": (2, 8), "405b": (8,)}
"""Sizes of models, and on how many GPUs a book is priced."""


class Run(NamedTuple):
    """One measured run: its shape with the layers it had, its windows, and its stages where they were measured."""

    size: str
    name: str
    shape: ModelShape
    scan: Scan
    seconds: float
    stages: dict[str, dict[str, float]]
    slots: Slots
    """Those it had: chosen at first, and kept."""


def is_of_newer_build(run: Run) -> bool:
    """7B was measured again when attention and host had become faster; larger shapes were not."""
    return run.size == "7b"


class Source(NamedTuple):
    device: str
    days: str
    runs: list[Run]


def read_source() -> Source:
    """Runs of all shapes, in the order of their sizes. The 7B ones have no stages: they judge the fit alone."""
    scaling, seven = (
        json.loads((RESULTS / name).read_text(encoding="utf-8")) for name in ("scaling_gpu.json", "scan_gpu_7b.json")
    )
    shares = {"not_memorized": 0.0, "mix": 0.05, "memorized": 1.0}
    found = {"7b": {"layers": seven["layers"], "runs": {name: seven[name] for name in shares}}} | scaling["shapes"]
    runs = [
        _run(size, name, found[size], share)
        for size in sorted(found, key=lambda size: int(size[:-1]))
        for name, share in shares.items()
    ]
    days = sorted({found["environment"]["measured_at"][:10] for found in (scaling, seven)})
    return Source(scaling["environment"]["device"], " and ".join(days), runs)


def _run(size: str, name: str, found: dict[str, Any], share: float) -> Run:
    values = found["runs"][name]
    scan = Scan(windows=values["windows"], memorized_share=share)
    # Text that is not memorized never ran out of memory: its slots are those that all runs began with.
    slots = Slots(found["runs"]["not_memorized"]["facts"]["slots"], values["facts"]["slots"])
    shape = replace(SHAPES[size], layers=found["layers"])
    return Run(size, name, shape, scan, values["seconds"], values.get("stages", {}), slots)


def fit(runs: list[Run]) -> Costs:
    """Non-negative least squares, an error of a long stage counting more than the same share of a short one."""
    staged = [run for run in runs if run.stages]
    ordinary = [run for run in staged if not run.scan.memorized_share]
    greedy = float(np.mean([run.stages["greedy"]["tokens"] / run.scan.windows for run in ordinary]))
    audited = float(np.mean([run.stages["search"]["tokens"] / run.scan.audited for run in ordinary]))
    stages = [(run, run.stages[name]) for run in staged for name in ("score", "search")]
    operation, layer = _solved([_layer_equation(run.shape, stage) for run, stage in stages])
    rows = [SUFFIX_TOKENS / FIRST_TOKENS if stage is run.stages["score"] else 1 for run, stage in stages]
    equations = [
        _other_equation(run.shape, stage, stage["tokens"] * share, operation)
        for (run, stage), share in zip(stages, rows, strict=True)
    ]
    row, forward = _solved(equations)
    host = [run.stages["greedy"]["seconds"] - run.stages["greedy"]["layer_seconds"] for run in ordinary]
    window = sum(host) / sum(run.scan.windows for run in ordinary)
    return Costs(1 / operation, layer, row, forward, window, greedy, audited)


class Builds(NamedTuple):
    """What a scan costs with the build that `rote plan` speaks of, and with the one that measured the larger shapes."""

    newer: Costs
    older: Costs


def costs_of(runs: list[Run]) -> Builds:
    fitted = fit(runs)
    newer = [run for run in runs if is_of_newer_build(run)]
    older = [run for run in runs if not is_of_newer_build(run)]
    return Builds(calibrated(fitted, newer), calibrated(fitted, older))


def calibrated(costs: Costs, runs: list[Run]) -> Costs:
    """One factor on what a forward takes whatever its size, with which whole runs of one build come out best."""

    def scaled(factor: float) -> Costs:
        return replace(costs, per_layer=factor * costs.per_layer, per_forward=factor * costs.per_forward)

    def misfit(factor: float) -> float:
        return sum(math.log(_seconds(run, scaled(factor)) / run.seconds) ** 2 for run in runs)

    return scaled(float(minimize_scalar(misfit, bounds=(0.2, 2.0), method="bounded", options={"xatol": 1e-9}).x))


def _layer_equation(shape: ModelShape, stage: dict[str, float]) -> list[float]:
    seconds = stage["layer_seconds"] / shape.layers
    return [2.0 * shape.layer_weights * stage["tokens"], stage["forwards"], seconds]


def _other_equation(shape: ModelShape, stage: dict[str, float], rows: float, operation: float) -> list[float]:
    seconds = stage["seconds"] - stage["layer_seconds"] - 2.0 * shape.head_weights * rows * operation
    return [shape.vocabulary * rows, stage["forwards"], max(seconds, 1e-3)]


def _solved(equations: list[list[float]]) -> list[float]:
    matrix = np.array(equations)
    weighted = matrix / np.sqrt(matrix[:, -1:])
    scale = weighted[:, :-1].max(0)
    found, _ = nnls(weighted[:, :-1] / scale, weighted[:, -1])
    return [float(value) for value in found / scale]


def _seconds(run: Run, costs: Costs) -> float:
    return sum(seconds_of(work, run.shape, costs) for work in work_of(run.scan, slots=run.slots, costs=costs))


def predictions(source: Source, builds: Builds) -> dict[str, Any]:
    """Measured runs beside what the constants of their build say of them, and what a book costs with the newer one."""
    measured: dict[str, Any] = {}
    for run in source.runs:
        of_build = builds.newer if is_of_newer_build(run) else builds.older
        found, told = run.scan.windows / run.seconds, run.scan.windows / _seconds(run, of_build)
        values = {"layers": run.shape.layers, "measured": found, "predicted": told, "error": told / found - 1}
        measured.setdefault(run.size, {})[run.name] = values
    book = Scan(windows=BOOK_WINDOWS, memorized_share=BOOK_SHARE)
    books: dict[str, Any] = {}
    for size, counts in BOOKS.items():
        for gpus in counts:
            told = predict(book, SHAPES[size], gpus=gpus, costs=builds.newer)
            books.setdefault(size, {})[str(gpus)] = {
                "hours": told.seconds / 3600,
                "gpu_hours": told.gpu_hours,
                "gpus_per_model": told.gpus_per_model,
                "slots": told.slots,
                "weights_gib_per_gpu": told.weights_bytes_per_gpu / 2**30,
            }
    costs = {"costs": asdict(builds.newer), "costs_of_the_older_build": asdict(builds.older)}
    return {"device": source.device, **costs, "runs": measured, "books": books}


def constants_text(source: Source, costs: Costs) -> str:
    """The module that the product imports."""
    sizes = ", ".join(sorted({run.size for run in source.runs}, key=lambda size: int(size[:-1])))
    lines = "".join(f"    {name}={value!r},\n" for name, value in asdict(costs).items())
    return (
        '"""Written by bench/scaling_model.py from what was measured; not to be changed by hand."""\n\n'
        "from rote.scan.prediction import Costs\n\n"
        'MEASURED_IN = "bench/results/scaling_gpu.json and scan_gpu_7b.json"\n'
        f'MEASURED_ON = "{source.device}, {source.days}, shapes {sizes}"\n'
        f"COSTS = Costs(\n{lines})\n"
    )


def main() -> None:
    source = read_source()
    builds = costs_of(source.runs)
    CONSTANTS.write_text(constants_text(source, builds.newer), encoding="utf-8")
    told = json.dumps(predictions(source, builds), indent=2) + "\n"
    (RESULTS / "scaling_predictions.json").write_text(told, encoding="utf-8")
    print(told)


if __name__ == "__main__":
    main()
