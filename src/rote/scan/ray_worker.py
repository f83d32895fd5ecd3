"""What a Ray actor is: it opens the model of a run, refuses another one, and measures chunks of windows.

It keeps nothing that matters: its process may die at any time, and another one measures the same windows again.
"""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rote.errors import ModelError, RoteError
from rote.models.base import LanguageModel
from rote.models.opening import open_model
from rote.scan.executor import compile_where_it_pays
from rote.scan.options import RunConfig
from rote.scan.pipeline import MeasuredWindow, Pipeline
from rote.search.sizing import choose_slots
from rote.store.identity import differences
from rote.types import Window

CHUNK_SLOTS = 4
"""Slots run empty at the end of a chunk, so a chunk fills them at least this many times."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """Where a worker is and how it works."""

    machine: str
    process: int
    device: str
    slots: int
    chunk_windows: int


class Answer(NamedTuple):
    """A chunk's rows, and what they took."""

    measured: list[MeasuredWindow]
    facts: WorkerFacts
    seconds: float


class Worker:
    """`model` tells the run's model from others, `windows` is the share of a worker."""

    def __init__(self, config: RunConfig, model: dict[str, Any], windows: int) -> None:
        self._config, self._expected, self._windows = config, model, windows
        self._opened: tuple[Pipeline, WorkerFacts] | None = None

    def load(self) -> LanguageModel:
        return open_model(self._config.model, **self._config.loading)

    def prepare(self) -> WorkerFacts:
        return self._open()[1]

    def measure(self, windows: Sequence[Window]) -> Answer:
        pipeline, facts = self._open()
        started = time.monotonic()
        return Answer(list(pipeline.run(windows)), facts, time.monotonic() - started)

    def _open(self) -> tuple[Pipeline, WorkerFacts]:
        """Once a process: a worker that died and came back, perhaps elsewhere, is asked for its model again."""
        if self._opened is None:
            config = self._config
            try:
                model = self.load()
            except RoteError as error:
                raise ModelError(f"the worker on {socket.gethostname()} cannot open the model: {error}") from error
            self._require_same(model)
            compile_where_it_pays(model, config, windows=self._windows)
            self._opened = Pipeline(model, config, decode=model.decode), _facts(model, config)
        return self._opened

    def _require_same(self, model: LanguageModel) -> None:
        found = list(differences(self._expected, model.identity.told_apart_by, places=("", "there")))
        if found:
            raise ModelError(
                f"the worker on {socket.gethostname()} has another model at {self._config.model} "
                f"({'; '.join(found)}). Give every machine the same files."
            )


def _facts(model: LanguageModel, config: RunConfig) -> WorkerFacts:
    import torch

    slots = config.slots or choose_slots(model, config.search_options(), config.limits)
    is_cuda = model.device.type == "cuda"
    return WorkerFacts(
        machine=socket.gethostname(),
        process=os.getpid(),
        device=torch.cuda.get_device_name(model.device) if is_cuda else str(model.device),
        slots=slots,
        chunk_windows=CHUNK_SLOTS * slots,
    )
