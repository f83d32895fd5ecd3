"""What a scan will cost: random samples of its windows are measured on this device, timed and extrapolated.

A run has a fixed cost, such as its first and last steps, in which few windows share a forward. So two samples are
timed, the smaller one part of the larger, and every further window is taken to cost what those added to the smaller
sample cost."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from byrote.errors import ConfigError
from byrote.models.load import open_model
from byrote.progress import Progress
from byrote.scan.executors import is_compiled
from byrote.scan.options import RunConfig
from byrote.scan.run import check_fits, scan_to_folder
from byrote.scan.source import cut_source, read_given, with_edit_budget
from byrote.scan.stages.screen import with_audit
from byrote.store.read import read_run

SMALLER_SHARE = 4
"""The warm-up and the smaller sample are the number of pilot windows divided by this."""


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """The cost of `windows` windows on one device, from `pilot_windows` that took `pilot_seconds`, and `fewer_windows`
    of them that took `fewer_seconds`."""

    windows: int
    pilot_windows: int
    pilot_seconds: float
    fewer_windows: int
    fewer_seconds: float
    pilot_token_evals: int
    device: str

    @property
    def seconds_per_window(self) -> float:
        """Of a further window. Where the clock cannot tell the samples apart, the fixed cost is counted as well."""
        windows, seconds = self.pilot_windows - self.fewer_windows, self.pilot_seconds - self.fewer_seconds
        return seconds / windows if windows > 0 and seconds > 0 else self.pilot_seconds / self.pilot_windows

    @property
    def windows_per_second(self) -> float:
        """On one device, over the whole scan."""
        return self.windows / self.device_seconds

    @property
    def token_evals(self) -> float:
        return self.pilot_token_evals / self.pilot_windows * self.windows

    @property
    def device_seconds(self) -> float:
        return self.pilot_seconds + (self.windows - self.pilot_windows) * self.seconds_per_window


def run_pilot(config: RunConfig, *, pilot_windows: int, progress: Progress) -> Extrapolation:
    """Measure a warm-up, and then some and all of `pilot_windows` random windows of the scan that `config` describes,
    in a temporary folder. Loading, cutting and compiling are not timed."""
    if not config.model:
        raise ConfigError("model is missing; give --model FOLDER.")
    given = read_given(config)
    with progress.phase(f"loading {config.model}"):
        model = open_model(config.model, **config.loading)
    check_fits(model, config)
    with progress.phase("cutting windows"):
        source = cut_source(given, model, config)
        windows = source.selection.most
    _ = model.described  # names of weights are taken before they are compiled, which renames them
    if is_compiled(model, config, windows=windows):
        model.compile_layers()
    pilot = replace(
        with_audit(with_edit_budget(config, source.shortest_suffix), windows),
        screen_min_windows=0,  # the audit keeps the share of screened windows that it has in the whole run
        limit=None,
        shard=None,
        executor="local",
        compile="off",
        max_seconds=None,
        max_evals=None,
    )
    few = -(-pilot_windows // SMALLER_SHARE)
    counts, seconds = {}, {}
    with tempfile.TemporaryDirectory(prefix="byrote-plan-") as folder:
        for name, count, seed in (
            ("warm-up", few, config.seed + 1),
            ("smaller pilot", few, config.seed),
            ("pilot", pilot_windows, config.seed),
        ):
            measured = replace(pilot, out=str(Path(folder) / name), sample=min(count, windows), seed=seed)
            with progress.phase(name):
                path = scan_to_folder(measured, progress=progress, model=model).path
            manifest = read_run(path).manifest or {}
            counts[name], seconds[name] = manifest["totals"]["windows"], manifest["timings"]["measuring_seconds"]
    return Extrapolation(
        windows=windows,
        pilot_windows=counts["pilot"],
        pilot_seconds=seconds["pilot"],
        fewer_windows=counts["smaller pilot"],
        fewer_seconds=seconds["smaller pilot"],
        pilot_token_evals=manifest["totals"]["token_evals"],
        device=str(model.device),
    )
