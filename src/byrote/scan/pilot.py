"""What a scan will cost: a random sample of its windows is measured on this device, timed and scaled up."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from byrote.errors import ConfigError
from byrote.models.load import open_model
from byrote.progress import Progress
from byrote.scan.executors import compile_where_it_pays
from byrote.scan.options import RunConfig
from byrote.scan.run import check_fits, scan_to_folder
from byrote.scan.source import cut_source, read_given, with_edit_budget
from byrote.scan.stages.screen import with_audit
from byrote.store.read import read_run

WARM_UP_SHARE = 4
"""The warm-up measures the number of pilot windows divided by this."""


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """The cost of `windows` windows, from `pilot_windows` that took `pilot_seconds` on one device."""

    windows: int
    pilot_windows: int
    pilot_seconds: float
    pilot_token_evals: int
    device: str

    @property
    def windows_per_second(self) -> float:
        """On one device."""
        return self.pilot_windows / self.pilot_seconds

    @property
    def token_evals(self) -> float:
        return self.pilot_token_evals / self.pilot_windows * self.windows

    @property
    def device_seconds(self) -> float:
        return self.windows / self.windows_per_second


def run_pilot(config: RunConfig, *, pilot_windows: int, progress: Progress) -> Extrapolation:
    """Measure a warm-up and then `pilot_windows` random windows of the scan that `config` describes, in a temporary
    folder. Loading, cutting and compiling are not timed."""
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
    compile_where_it_pays(model, config, windows=windows)
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
    with tempfile.TemporaryDirectory(prefix="byrote-plan-") as folder:
        for name, count, seed in (
            ("warm-up", -(-pilot_windows // WARM_UP_SHARE), config.seed + 1),
            ("pilot", pilot_windows, config.seed),
        ):
            measured = replace(pilot, out=str(Path(folder) / name), sample=min(count, windows), seed=seed)
            with progress.phase(name):
                path = scan_to_folder(measured, progress=progress, model=model).path
        manifest = read_run(path).manifest or {}
    return Extrapolation(
        windows=windows,
        pilot_windows=manifest["totals"]["windows"],
        pilot_seconds=manifest["timings"]["measuring_seconds"],
        pilot_token_evals=manifest["totals"]["token_evals"],
        device=str(model.device),
    )
