"""Executors measure the windows that a run lacks: in this process, or on workers of a Ray cluster. The run hands them
windows and gets rows back, in any order.

A Ray worker opens the model of the run, refuses another one, and measures chunks of windows. It keeps no state that
matters: its process may die at any time, and another one measures the same windows again.
"""

import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from byrote.errors import ByroteError, ConfigError, ModelError
from byrote.models.base import LanguageModel
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.load import OwnModel, open_model
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Facts, MeasuredWindow, Pipeline
from byrote.search.sizing import choose_slots
from byrote.store.manifest import differences
from byrote.types import Window

LONG_SCAN = 1e17
"""Operations that keep a large GPU busy for about four minutes."""


class LocalExecutor:
    """This process measures all windows."""

    facts = Facts()
    sections: Mapping[str, Any] = MappingProxyType({})
    """Sections of the manifest that only this executor can write."""

    def __init__(
        self, model: LanguageModel, config: RunConfig, *, remark: Callable[[str], None] = lambda words: None
    ) -> None:
        self._model, self._config, self._remark = model, config, remark

    def run(self, windows: Iterable[Window]) -> Iterator[MeasuredWindow]:
        pipeline = Pipeline(self._model, self._config, decode=self._model.decode, remark=self._remark)
        yield from pipeline.run(windows)
        self.facts = pipeline.facts


def executor_of(
    model: LanguageModel, config: RunConfig, *, windows: int, remark: Callable[[str], None] = lambda words: None
) -> "LocalExecutor | RayExecutor":
    """The executor that the options ask for, for so many windows; `remark` shows words beside the progress."""
    if config.executor == "ray":
        return RayExecutor(model, config, windows=windows, remark=remark)
    return LocalExecutor(model, config, remark=remark)


def device_name(model: LanguageModel) -> str:
    return torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else str(model.device)


def is_compiled(model: LanguageModel, config: RunConfig, *, windows: int) -> bool:
    """Whether layers are to be compiled: as asked for, or where the first forwards of the windows alone take a GPU long
    enough, since compiling takes a minute and saves a quarter. After the weights were described: it renames them."""
    if config.compile == "auto" and model.device.type == "cuda":
        return 2.0 * (model.described.parameters or 0) * windows * sum(config.limits) > LONG_SCAN
    return config.compile == "on"


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


class MeasuredChunk(NamedTuple):
    """A chunk's rows, and what they took."""

    measured: list[MeasuredWindow]
    facts: WorkerFacts
    seconds: float


class Worker:
    """What a Ray actor is. `model` is the identity of the run's model, `windows` the share of a worker."""

    def __init__(self, config: RunConfig, model: dict[str, Any], windows: int) -> None:
        self._config, self._expected, self._windows = config, model, windows

    def load(self) -> LanguageModel:
        return open_model(self._config.model, **self._config.loading)

    def prepare(self) -> WorkerFacts:
        return self._opened[1]

    def measure(self, windows: Sequence[Window]) -> MeasuredChunk:
        pipeline, facts = self._opened
        started = time.monotonic()
        return MeasuredChunk(list(pipeline.run(windows)), facts, time.monotonic() - started)

    @cached_property
    def _opened(self) -> tuple[Pipeline, WorkerFacts]:
        """Once a process: a restarted worker, perhaps on another machine, opens its model again."""
        config, machine = self._config, socket.gethostname()
        try:
            model = self.load()
        except ByroteError as error:
            raise ModelError(f"the worker on {machine} cannot open the model: {error}") from error
        if found := list(differences(self._expected, model.described.fingerprint, places=("", "there"))):
            raise ModelError(
                f"the worker on {machine} has another model at {config.model} ({'; '.join(found)}). Give every "
                "machine the same files."
            )
        if is_compiled(model, config, windows=self._windows):
            model.compile_layers()
        slots = config.slots or choose_slots(model, config.search_options(), config.limits)
        facts = WorkerFacts(machine, os.getpid(), device_name(model), slots, chunk_windows=CHUNK_SLOTS * slots)
        return Pipeline(model, config, decode=model.decode), facts


RETRIES = 20
"""Restarts of an actor over one chunk before the run is given up."""
CHUNKS_AHEAD = 2
"""Chunks in a worker's queue, so that it never idles."""
STORE_BYTES = 1 << 28
RATES_LISTED = 8


def with_gpus(config: RunConfig) -> RunConfig:
    """The options with the number of GPUs that a worker has: one where the cluster has any, unless it was given."""
    if config.executor != "ray" or config.gpus_per_worker is not None:
        return config
    if config.address is None and not _ray().is_initialized():
        # A Ray that is started for the run finds the GPUs of this machine.
        gpus = float(torch.cuda.device_count())
    else:
        with cluster(replace(config, workers=1, gpus_per_worker=0.0)) as ray:
            gpus = ray.cluster_resources().get("GPU", 0.0)
    return replace(config, gpus_per_worker=1.0 if gpus else 0.0)


def open_on_worker(config: RunConfig) -> LanguageModel:
    """The run's model as a worker has it, its weights left there: a driver may be too small for them."""
    with cluster(config) as ray:
        opened = ray.remote(_without_weights).options(num_gpus=config.gpus_per_worker, max_retries=RETRIES)
        model: LanguageModel = _received(ray, opened.remote(_on_worker(config)), None)
        return model


def _without_weights(config: RunConfig) -> LanguageModel:
    model = open_model(config.model, **config.loading)
    assert isinstance(model, HuggingFaceModel), "options leave no other model to workers"
    return model.without_weights()


def _on_worker(config: RunConfig) -> RunConfig:
    on_cpu = config.gpus_per_worker == 0 and config.device == "auto"
    return replace(config, device="cpu") if on_cpu else config


class RayExecutor:
    """Chunks of windows on Ray actors. `model` is the driver's; only its identity goes to the workers."""

    facts = Facts()

    def __init__(
        self,
        model: LanguageModel,
        config: RunConfig,
        *,
        windows: int,
        remark: Callable[[str], None] = lambda words: None,
    ) -> None:
        if not config.model or isinstance(model, OwnModel):
            raise ConfigError(
                f"Ray workers open a model by its name, but {model.name} is an object of this process; "
                "leave executor='ray' out, or scan a folder or hub id."
            )
        self._config, self._remark = with_gpus(config), remark
        self._model, self._share = model.described.fingerprint, -(-windows // config.workers)
        self._workers: dict[int, dict[str, Any]] = {}

    @property
    def sections(self) -> Mapping[str, Any]:
        return {"workers": [known for _, known in sorted(self._workers.items())]} if self._workers else {}

    def run(self, windows: Iterable[Window]) -> Iterator[MeasuredWindow]:
        config = self._config
        with cluster(config) as ray:
            kind = ray.remote(Worker).options(
                num_cpus=1, num_gpus=config.gpus_per_worker, max_restarts=-1, max_task_retries=RETRIES
            )
            actors = [kind.remote(_on_worker(config), self._model, self._share) for _ in range(config.workers)]
            try:
                yield from self._measure(ray, actors, windows)
            finally:
                for actor in actors:
                    ray.kill(actor)

    def _measure(self, ray: Any, actors: Sequence[Any], windows: Iterable[Window]) -> Iterator[MeasuredWindow]:
        deal = Deal(windows)
        running: dict[Any, tuple[int, Chunk | None]] = {
            actor.prepare.remote(): (number, None) for number, actor in enumerate(actors)
        }
        chunk_windows: dict[int, int] = {}
        # Not for a worker that is still to come: its machine may be gone.
        while not deal.is_settled:
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            number, chunk = running.pop(done)
            answer = _received(ray, done, chunk)
            if chunk is None:
                chunk_windows[number] = answer.chunk_windows
            else:
                if deal.returned(number, chunk):
                    yield from answer.measured
                self._note(number, answer)
            for worker, size in chunk_windows.items():
                while (given := deal.chunk_for(worker, size)) is not None:
                    running[actors[worker].measure.remote(given.windows)] = (worker, given)

    def _note(self, number: int, answer: MeasuredChunk) -> None:
        """Record what a worker has measured, and remark the rates of all: of many, the slowest and the fastest."""
        before = self._workers.get(number, {"windows": 0, "seconds": 0.0})
        windows, seconds = before["windows"] + len(answer.measured), before["seconds"] + answer.seconds
        self._workers[number] = {**asdict(answer.facts), "windows": windows, "seconds": seconds}
        rates = [known["windows"] / max(known["seconds"], 1e-9) for _, known in sorted(self._workers.items())]
        shown = ", ".join(f"{rate:.3g}" for rate in rates)
        if len(rates) > RATES_LISTED:
            shown = f"{min(rates):.3g} to {max(rates):.3g}"
        self._remark(f"{len(rates)} worker{'s' * (len(rates) > 1)} at {shown} windows/s")


@dataclass(eq=False, slots=True)
class Chunk:
    """Windows dealt out together, and the workers that have them."""

    windows: list[Window]
    holders: set[int] = field(default_factory=set)


class Deal:
    """Which windows go to which worker, and which are settled. Workers are numbers; nothing here needs Ray."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._rest = iter(windows)
        self._is_dealt_out = False
        self._out: list[Chunk] = []

    @property
    def is_settled(self) -> bool:
        return self._is_dealt_out and not self._out

    def chunk_for(self, worker: int, size: int) -> Chunk | None:
        """New windows, while there are any; then, for an idle worker, the chunk that the fewest others hold, the oldest
        of them: all workers that hold it may be lost."""
        held = sum(worker in chunk.holders for chunk in self._out)
        if held < CHUNKS_AHEAD and not self._is_dealt_out:
            if windows := list(islice(self._rest, size)):
                self._out.append(Chunk(windows, {worker}))
                return self._out[-1]
            self._is_dealt_out = True
        if held:
            return None
        repeated = min(self._out, key=lambda chunk: len(chunk.holders), default=None)
        if repeated is not None:
            repeated.holders.add(worker)
        return repeated

    def returned(self, worker: int, chunk: Chunk) -> bool:
        """Whether this is the first answer to the chunk: its windows are settled then, and no other worker needs to
        begin with it."""
        chunk.holders.discard(worker)
        is_first = chunk in self._out
        if is_first:
            self._out.remove(chunk)
        return is_first


def _received(ray: Any, reference: Any, chunk: Chunk | None) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ByroteError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        windows = [] if chunk is None else chunk.windows
        where = f" over windows {windows[0].window_id} … {windows[-1].window_id}" if windows else ""
        raise ModelError(
            f"a worker died more than {RETRIES} times{where} ({type(error).__name__}); its log is in Ray's session "
            "folder. What was measured is kept: run the same command again to go on."
        ) from error


def _ray() -> Any:
    # No usage reports; read when Ray is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--executor ray needs Ray; install it with: pip install 'byrote[ray]'.") from error
    return ray


@contextmanager
def cluster(config: RunConfig) -> Iterator[Any]:
    """Ray, as it is in this process already, at `address`, or started on this machine for as long as this lasts."""
    ray = _ray()
    if ray.is_initialized():
        _require_resources(ray, config)
        yield ray
        return
    # Ray installs its own SIGTERM handler; a run must end as it always does.
    before = signal.getsignal(signal.SIGTERM)
    with tempfile.TemporaryDirectory(prefix="byrote-ray-", ignore_cleanup_errors=True) as folder:
        options = _own(config, folder) if config.address is None else {"address": config.address}
        try:
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
            except (ConnectionError, RuntimeError, ValueError) as error:
                where = config.address or "this machine"
                raise ConfigError(
                    f"no Ray cluster answers at {where} ({error}); start one, or leave address out."
                ) from error
            finally:
                signal.signal(signal.SIGTERM, before)
            _require_resources(ray, config)
            yield ray
        finally:
            ray.shutdown()


def _own(config: RunConfig, folder: str) -> dict[str, Any]:
    """Ray on this machine: no dashboard, nothing open to the net, nothing written outside of `folder`."""
    # Otherwise a token is written into the user's home.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    return {
        "num_cpus": max(os.cpu_count() or 1, config.workers),
        "include_dashboard": False,
        "object_store_memory": STORE_BYTES,
        # 127.0.0.1 would be replaced by the address that others reach this machine at.
        "_node_ip_address": "127.0.0.2" if sys.platform == "linux" else None,
        "_temp_dir": folder,
    }


def _require_resources(ray: Any, config: RunConfig) -> None:
    """Actors that can never be placed would be pending forever."""
    there = ray.cluster_resources()
    wanted = {"GPU": config.workers * (config.gpus_per_worker or 0.0), "CPU": float(config.workers)}
    for kind, number in wanted.items():
        if number > there.get(kind, 0.0):
            raise ConfigError(
                f"{config.workers} workers need {number:g} {kind}s, but the cluster has {there.get(kind, 0.0):g}; "
                "lower --workers, or give --set gpus_per_worker=0 to measure on CPUs."
            )
