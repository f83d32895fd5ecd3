"""Memorization while a Transformers `Trainer` trains: a panel of windows, measured at steps and logged like the loss.

windows = byrote.read_windows(byrote.load_model(model, tokenizer=tokenizer), "licensed/", control="unseen/", sample=200)
trainer = Trainer(model, arguments, train_dataset=data, processing_class=tokenizer)
trainer.add_callback(MemorizationCallback(trainer, windows, out="runs/training"))
trainer.train()

Every measured step is a run folder, `runs/training/step-00000500`; `byrote report runs/training/step-*` draws them over
the steps. Training is the same with the callback and without: modes and random states are restored.
"""

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from byrote.errors import ByroteError, ConfigError, ModelError
from byrote.models.hf.model import HuggingFaceModel
from byrote.report.analysis.series import change_between, mean_counted_mass
from byrote.report.gate import parse_rule, rate_bracket
from byrote.report.view import load_view
from byrote.scan.api import Windows, load_model, scan
from byrote.types import Split

FALSE_ALARM = 0.05
"""Chance that any of the alarms of a training, however often it is measured, is false."""
LOGGED = "memorization"
PANEL: dict[str, Any] = {"answers": 0, "screen_min_windows": 0}
"""Over the steps, what is certified is compared; the usual effort to bound what else there may be is left out."""


class MemorizationCallback(TrainerCallback):  # type: ignore[misc]
    """Scans `windows` before the first step, at every save and evaluation (or `every` so many steps), and at the end.

    Logged through `trainer.log`: `memorization/near`, `/verbatim` and `/greedy` (shares of the target windows),
    `memorization/control/…`, `memorization/mean_mass`, `/newly_extractable` and `/forgotten` (windows certified now and
    not at the step measured before, and the reverse) and `/seconds`. `options` are those of `byrote scan`;
    unless they say otherwise, nothing is estimated and the screen is audited by its share alone.

    `alarm="near=0.01"` ends training when the rate of a rule, written as for `byrote gate`, is above its limit for
    certain; of a panel drawn with `sample=`, with a chance of at most 5 % that any alarm of the training is false.
    Whatever else goes wrong in a measurement is a warning, and training goes on.
    """

    def __init__(
        self,
        trainer: Any,
        windows: Windows,
        *,
        out: str | Path,
        every: int | None = None,
        alarm: str | None = None,
        tokenizer: Any = None,
        **options: Any,
    ) -> None:
        if not isinstance(windows, Windows):
            raise ConfigError("windows must be what byrote.read_windows gives: their run folders hold the texts.")
        if every is not None and every < 1:
            raise ConfigError(f"every is {every}; give a number of steps from 1 on, or leave it out.")
        self._options = PANEL | options
        measures = self._options.get("measures", windows.config.measures)
        if not {"near", "verbatim"} & set(measures):
            raise ConfigError(f"measures is {','.join(measures)}; a series needs near or verbatim among them.")
        self._rule = None if alarm is None else parse_rule(alarm)
        if self._rule is not None:
            needed = self._rule.measured if self._rule.measured in ("greedy", "verbatim") else "near"
            if needed not in measures:
                raise ConfigError(f"alarm is {alarm}, but {needed} is not measured; add it to measures.")
        if self._rule is not None and trainer.args.world_size > 1:
            raise ConfigError(
                f"alarm is {alarm}, but one of {trainer.args.world_size} processes cannot end the training of all; "
                "leave it out and judge the run folders with byrote gate."
            )
        _require_whole_weights(trainer)
        self._trainer, self._windows, self._every, self._out = trainer, windows, every, Path(out)
        with _modes_kept(trainer.model):
            opened = load_model(trainer.model, tokenizer=tokenizer or trainer.processing_class)
        assert isinstance(opened, HuggingFaceModel)
        self._model = opened
        self._measured_at: int | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._measure(state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        is_due = self._every is not None and state.global_step % self._every == 0
        # Not at the end of training: loggers have closed their runs by then.
        if is_due or state.global_step >= state.max_steps:
            self._measure(state, control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._every is None:
            self._measure(state, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._every is None:
            self._measure(state, control)

    def _measure(self, state: Any, control: Any) -> None:
        step = int(state.global_step)
        if self._measured_at == step or not state.is_world_process_zero:
            return
        self._measured_at = step
        try:
            numbers = self._numbers(step)
        except ConfigError:
            raise
        except ByroteError as error:
            warnings.warn(f"memorization was not measured at step {step}: {error}", stacklevel=2)
            return
        # Logging resets what another callback asked for at this step.
        should_log = control.should_log
        self._trainer.log({f"{LOGGED}/{name}": value for name, value in numbers.items()})
        control.should_log = should_log
        if numbers.get("alarm"):
            control.should_training_stop = True

    def _numbers(self, step: int) -> dict[str, float]:
        """Scan the panel, save the run folder of this step, and compare it with the one before."""
        started = time.monotonic()
        _require_whole_weights(self._trainer)
        earlier = [path for path in sorted(self._out.glob("step-*")) if path.name < _folder_name(step)]
        with _modes_kept(self._trainer.model):
            self._model = self._model.with_changed_weights()
            results = scan(self._model, self._windows, **self._options)
            path = results.save(self._out / _folder_name(step), fresh=True, sections={"training": {"step": step}})
        view = load_view(path)
        numbers: dict[str, float] = {
            f"control/{entry.criterion}" if entry.split is Split.CONTROL else str(entry.criterion): entry.rate.value
            for entry in view.headline_rates
        }
        numbers["mean_mass"] = mean_counted_mass(view)
        if earlier:
            change = change_between(load_view(earlier[-1]), view)
            numbers |= {"newly_extractable": change.newly, "forgotten": change.forgotten}
        if self._rule is not None:
            # A share of the error for every look: 6 / π² · (1 + 1/4 + 1/9 + …) = 1.
            looks = len(earlier) + 1
            found = rate_bracket(view, self._rule, alpha=FALSE_ALARM * 6 / (math.pi * looks) ** 2)
            numbers["alarm"] = float(found.low > self._rule.limit)
        return numbers | {"seconds": time.monotonic() - started}


def _folder_name(step: int) -> str:
    return f"step-{step:08d}"


@contextmanager
def _modes_kept(model: torch.nn.Module) -> Iterator[None]:
    """Every module in training or evaluation mode as before, and so the random states that training draws from."""
    modes = [(module, module.training) for module in model.modules()]
    devices = [parameter.device for parameter in model.parameters() if parameter.is_cuda][:1]
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def _require_whole_weights(trainer: Any) -> None:
    """Refuse weights of which every process holds a part: a forward of one process alone would wait for the others."""
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    is_sharded = (
        trainer.is_fsdp_enabled
        or (plugin is not None and plugin.zero_stage == 3)
        or any(isinstance(parameter, DTensor) for parameter in trainer.model.parameters())
    )
    if is_sharded:
        raise ModelError(
            "the Trainer shards its weights over processes (FSDP, ZeRO-3 or tensor parallelism), and a scan needs them "
            "whole; save checkpoints and measure them with byrote scan --model 'CHECKPOINTS/*'."
        )
