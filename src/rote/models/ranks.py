"""Several processes that hold one model together, one GPU each. Rank 0 decides; the others do on their shards what it
tells them, call by call, and everybody compares what came out.

Only rank 0 knows windows, chooses tokens and writes files, so nothing can be chosen twice. A call is a method of an
object that every rank has under the same number; tensors travel as tensors, everything else pickled between processes
of one user.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from rote.errors import ConfigError, ModelError

LOOPBACK = "127.0.0.1"
PORT = "ROTE_RANKS_PORT"
"""In the environment of followers that rank 0 started: where it waits for them."""
PATIENCE = timedelta(days=30)
"""Followers wait for rank 0 as long as it takes; who has lost a peer is told so by the operating system."""
SECONDS_TO_NOTICE = 20
"""How long rank 0 has to notice by itself that a follower ended, before it is ended too."""
ROUNDINGS = 16
"""Difference between ranks, in roundings of the dtype, from which their numbers count as unequal."""


@dataclass(frozen=True, slots=True)
class Call:
    """`method` of object `target`; what it returns becomes object `result`. What is `dropped` is not needed again."""

    target: int
    method: str
    arguments: tuple[Any, ...] = ()
    result: int | None = None
    dropped: tuple[int, ...] = ()


class Reference(NamedTuple):
    """Stands for an object that every rank has."""

    number: int


class _Sent(NamedTuple):
    """Stands for a tensor that follows."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    is_on_device: bool


class Ranks:
    """The processes of one model, seen from one of them."""

    def __init__(self, device: torch.device, processes: Sequence["subprocess.Popen[bytes]"] = ()) -> None:
        self.device, self.processes = device, tuple(processes)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._numbers = 0
        self._dropped: list[int] = []
        self.is_ending = False
        if processes:
            threading.Thread(target=self._watch, daemon=True).start()

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def forget(self, number: int) -> None:
        """The object is not needed again; the others hear of it with the next call."""
        self._dropped.append(number)

    def tell(self, call: Call) -> None:
        """Rank 0: have all others do this."""
        call, self._dropped = replace(call, dropped=tuple(self._dropped)), []
        tensors: list[Tensor] = []
        with self.together():
            dist.broadcast_object_list([_packed(call, tensors)], src=0, device=torch.device("cpu"))
            for tensor in tensors:
                dist.broadcast(_as_sent(tensor), src=0)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Rank 0, in what all ranks compute together: there is no way back to before it, so what fails ends the run."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise ModelError("rank 0 ran out of memory; give a smaller --slots or --batch-windows.") from error
        except RuntimeError as error:
            if not self._has_lost_one():
                raise
            raise ModelError(
                "a process of the model ended; what is finished is kept. Run the command again."
            ) from error

    def _has_lost_one(self) -> bool:
        """Whether a follower ended; one that is about to is waited for."""
        for _ in range(20):
            if any(process.poll() is not None for process in self.processes):
                return True
            threading.Event().wait(0.1)
        return False

    def hear(self) -> Call:
        """Every other rank: what to do next."""
        heard: list[Any] = [None]
        dist.broadcast_object_list(heard, src=0, device=torch.device("cpu"))
        call: Call = self._unpacked(heard[0])
        return call

    def require_equal(self, states: Tensor) -> None:
        """Every rank: refuse to go on when the ranks' states, which should be the same, are not. [rows, width]"""
        prints = _fingerprints(states)
        ends = torch.stack([prints, -prints])
        dist.all_reduce(ends, op=dist.ReduceOp.MIN)
        apart = float((-ends[1] - ends[0]).abs().nan_to_num(torch.inf).amax()) if ends.numel() else 0.0
        if apart > ROUNDINGS * torch.finfo(states.dtype).eps:
            raise ModelError(
                f"the {self.size} ranks of the model computed different numbers from the same tokens; nothing that "
                "rests on them is kept. Check that all of them read the same files."
            )

    def end(self) -> None:
        """Rank 0: the others are not needed again."""
        if self.is_ending:
            return
        self.is_ending = True
        for process in self.processes:
            process.kill()  # they hold nothing that is not in files, and may be waiting for numbers that never come
            process.wait()

    def _unpacked(self, value: Any) -> Any:
        if isinstance(value, _Sent):
            dtype = torch.uint8 if value.dtype == torch.bool else value.dtype
            received = torch.empty(value.shape, dtype=dtype, device=self.device if value.is_on_device else "cpu")
            dist.broadcast(received, src=0)
            return received.view(value.dtype)
        return _rebuilt(value, self._unpacked)

    def _watch(self) -> None:
        """A follower that ended leaves rank 0 waiting for it: some libraries notice, some would wait for ever."""
        while not any(process.poll() is not None for process in self.processes):
            threading.Event().wait(0.5)
        if not self.is_ending:
            threading.Event().wait(SECONDS_TO_NOTICE)
        if not self.is_ending:
            os.write(2, b"error: a process of the model ended; what is finished is kept. Run the command again.\n")
            os._exit(2)


def _fingerprints(states: Tensor) -> Tensor:
    """One number of about 1 for every row, far off when the row is another one. [rows] float32"""
    states = states.flatten(1).float()
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (states.shape[1],), generator=generator).mul(2).sub(1).to(states)
    lengths: Tensor = torch.linalg.vector_norm(states, dim=1)
    return (states @ signs) / lengths.clamp_min(torch.finfo(torch.float32).tiny)


def _packed(value: Any, tensors: list[Tensor]) -> Any:
    """`value` without its tensors, which are added to the list in order."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return _Sent(tuple(value.shape), value.dtype, value.device.type != "cpu")
    return _rebuilt(value, lambda part: _packed(part, tensors))


def _rebuilt(value: Any, change: Any) -> Any:
    """Records and tuples with `change` applied to their parts, in their order; everything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: change(getattr(value, field.name)) for field in fields(value)})
    if type(value) is tuple:
        return tuple(map(change, value))
    return value


def _as_sent(tensor: Tensor) -> Tensor:
    tensor = tensor.contiguous()
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def ranks_started_by_others() -> int | None:
    """How many processes torchrun started; None when this one was started alone."""
    count = int(os.environ.get("WORLD_SIZE") or 1) if "MASTER_PORT" in os.environ else 1
    return count if count > 1 else None


def start(count: int) -> Ranks:
    """Rank 0: itself and `count` − 1 followers, which torchrun has started, or which are started here."""
    given = ranks_started_by_others()
    if given is not None and given != count:
        raise ConfigError(f"tensor-parallel is {count}, but torchrun started {given} processes; give the same number.")
    device = _device(0 if given is None else int(os.environ["LOCAL_RANK"]), count if given is None else 1)
    if given is not None:
        _join(device)
        return Ranks(device)
    store = TCPStore(LOOPBACK, 0, count, is_master=True, wait_for_workers=False)
    processes = [_started(rank, count, store.port) for rank in range(1, count)]
    have_met = threading.Event()
    threading.Thread(target=_end_unless_met, args=(processes, have_met), daemon=True).start()
    _meet(device, store, rank=0, count=count)
    have_met.set()
    return Ranks(device, processes)


def _end_unless_met(processes: Sequence["subprocess.Popen[bytes]"], have_met: threading.Event) -> None:
    """A follower that ended before all have met would be waited for without end; nothing is measured yet."""
    while not have_met.wait(0.5):
        if any(process.poll() is not None for process in processes):
            os.write(2, b"error: a process of the model ended while it was started. Run the command again.\n")
            os._exit(2)


def join() -> Ranks:
    """A follower: meet the others where the environment says."""
    device = _device(int(os.environ["LOCAL_RANK"]), 1)
    port = os.environ.get(PORT)
    if port is None:
        _join(device)
        return Ranks(device)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    _meet(device, TCPStore(LOOPBACK, int(port), count, is_master=False), rank=rank, count=count)
    return Ranks(device)


def _join(device: torch.device) -> None:
    """Where torchrun says."""
    dist.init_process_group(_backend(device), timeout=PATIENCE)


def _meet(device: torch.device, store: TCPStore, *, rank: int, count: int) -> None:
    """On this machine, over loopback alone."""
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", names[0])
    dist.init_process_group(_backend(device), store=store, rank=rank, world_size=count, timeout=PATIENCE)


def _started(rank: int, count: int, port: int) -> "subprocess.Popen[bytes]":
    told = {PORT: str(port), "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    # A session of its own: Ctrl-C is for rank 0, which ends the others when it has kept what is finished.
    return subprocess.Popen(
        [sys.executable, "-m", "rote"], env=os.environ | told, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        threading.Event().wait(1)
    os._exit(0)


def _device(place: int, needed: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    found = torch.cuda.device_count()
    if max(place + 1, needed) > found:
        raise ConfigError(f"tensor-parallel needs {max(place + 1, needed)} GPUs here, and there are {found}.")
    torch.cuda.set_device(place)
    return torch.device("cuda", place)


def _backend(device: torch.device) -> str:
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
