"""What a scan will cost: a random sample of its windows is measured on this device, timed and scaled up; and what its
optional checks add."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from byrote.errors import ConfigError
from byrote.models.load import open_model
from byrote.progress import Progress
from byrote.scan.executors import compile_where_it_pays
from byrote.scan.options import RunConfig
from byrote.scan.run import check_fits, scan_to_folder
from byrote.scan.screen import with_audit
from byrote.scan.source import cut_source, read_given
from byrote.stats.planning import beam_search_evals
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

    def seconds(self, devices: int) -> float:
        """With a copy of the model and an equal share of the windows on each device."""
        return self.device_seconds / devices


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
        windows = cut_source(given, model, config).selection.most
    _ = model.identity  # weights are hashed before they are compiled, which renames them
    compile_where_it_pays(model, config, windows=windows)
    pilot = replace(
        with_audit(config, windows),
        screen_min_windows=0,  # the audit keeps the share of screened windows that it has in the whole run
        limit=None,
        shard=None,
        executor="local",
        compile="off",
        max_seconds=None,
        max_evals=None,
        self_check=0,
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


def costs_of_checks(config: RunConfig) -> list[str]:
    """A sentence for `verify` and for `self_check`, where asked for."""
    sentences = []
    copy = "a copy of the weights in float32 (4 bytes a parameter) unless they are float32 already"
    if config.verify:
        tokens = config.prefix_tokens + config.suffix_tokens
        sentences.append(
            f"--verify scores continuations again, {tokens} token evaluations each, until they cover 99.9 % of a "
            f"searched window's lower bound; it needs {copy}."
        )
    if config.self_check:
        once = beam_search_evals(config.prefix_tokens, config.suffix_tokens, beam_width=config.beam_width + config.pin)
        sentences.append(
            f"self_check searches {config.self_check:,} windows three more times, two of them one window at a time: "
            f"at most {3 * config.self_check * once:,} token evaluations; it needs {copy}."
        )
    return sentences
