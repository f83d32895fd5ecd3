"""Evaluate any nodes of many windows' trees on one session, as their explorations ask for them.

Each round collects what the explorations of windows in flight want to know, evaluates it in one packed forward, and
hands the answers back. Nodes, paths and answers are arrays; the host does nothing node by node. A forward reads only
what its nodes descend from, so a large memory costs room and no time. On a GPU the windows are two groups that take
turns: while the host thinks about the answers to one, the device computes the other's.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rote.errors import ConfigError, ModelError
from rote.explore.ball import Judge, Judged, Standing
from rote.explore.base import Explored, ExploreTask, Result
from rote.explore.flight import ROOT, Flight, Queries
from rote.explore.held_nodes import Memory
from rote.explore.views import ENTRY_STEP, Packed, pack_nodes
from rote.models.base import TreeModel, TreeSession
from rote.models.memory import Handover, grown
from rote.models.numbers import require_numbers
from rote.models.positions import require_positions
from rote.policy import Kept, Policy, keep
from rote.search.base import Limits
from rote.search.sizing import free_memory, require_memory

ENTRIES = 2048
"""Memory entries of a slot beyond its prefix and one path: what a window may have evaluated without forgetting."""
LANES = 128
"""Most nodes of one window in one forward."""
FEW_WINDOWS = 8
"""Windows that a CPU explores at once, and for which a device must have room before entries are made more."""
MOST_WINDOWS = 128
MEMORY_SHARE = 0.5
"""Share of a device's free memory that explorations may take."""
SHARE_AT_THE_END = 0.8
"""The same where nobody else will take any: forwards take the rest."""
FIRST_ENTRIES = 1024
"""Entries a CPU begins with: what the default samples of a window take. Those that are not used cost it nothing."""


class Room(NamedTuple):
    """How many windows to explore at once, and how many evaluated nodes each may remember."""

    slots: int
    entries: int


def choose_room(model: TreeModel, limits: Limits, *, evaluations: int, share: float = MEMORY_SHARE) -> Room:
    """For windows of at most this many evaluations each: none is forgotten, if the device's memory allows it."""
    is_cuda = model.device.type == "cuda"
    fitting = int(free_memory(model.device) * share) // model.tree_bytes_per_entry()
    always = 2 * (limits.prefix_tokens + limits.suffix_tokens)
    entries = max(LANES, min(evaluations, fitting // FEW_WINDOWS - always))
    slots = min(MOST_WINDOWS if is_cuda else FEW_WINDOWS, fitting // (always + entries))
    return Room(max(1, slots), entries)


def taking_turns(device: torch.device, slots: int) -> int:
    """Into how many groups slots are shared out: two on a GPU, so that it computes one while the host thinks about the
    other. A CPU is the host, and gains nothing."""
    return 2 if device.type == "cuda" and slots > 1 else 1


class OutOfSlots(ModelError):
    """The windows in flight are too many for the device's memory."""


class Explorer:
    """Runs explorations of one model under one policy, several windows at a time."""

    def __init__(self, model: TreeModel, policy: Policy, *, slots: int, limits: Limits, entries: int = ENTRIES) -> None:
        policy.check_vocabulary(model.vocab_size)
        if slots < 1:
            raise ConfigError(f"slots are {slots}; at least one window must be explored at a time.")
        require_positions(model, sum(limits))
        self.model, self.policy, self.slots, self.limits = model, policy, slots, limits
        self.entries = 2 * (limits.prefix_tokens + limits.suffix_tokens) + max(entries, LANES)
        require_memory(
            slots * self.entries * model.tree_bytes_per_entry(),
            model.device,
            what=f"exploring {slots:,} windows at once",
            advice="lower --slots or leave it out",
        )
        self.forwards = 0
        self._judge: Judge | None = None
        self._session: TreeSession | None = None

    @torch.inference_mode()
    def run(self, tasks: Iterable[ExploreTask[Result]]) -> Iterator[Explored[Result]]:
        """Results in the order in which windows end."""
        waiting, session = iter(tasks), self._opened()
        memory = Memory(self.slots, self.entries, self.limits.suffix_tokens)
        count = taking_turns(self.model.device, self.slots)
        groups: deque[_Group[Result]] = deque(_Group(range(place, self.slots, count)) for place in range(count))
        while True:
            group = groups[0]
            groups.rotate(-1)
            if group.pending is not None:
                group.deliver(self.model)
                yield from group.ended()
            while group.free and (task := next(waiting, None)) is not None:
                flight = Flight(task, group.free[-1], memory)
                if not flight.start():
                    yield Explored(task.key, flight.result)
                    continue
                with self._within_memory():
                    self._admit(group, flight, session, memory)
            if group.active:
                with self._within_memory():
                    group.pending = self._launch(list(group.active.values()), session, memory)
            elif not any(other.active for other in groups):
                return

    def _opened(self) -> TreeSession:
        """The session of all runs. A GPU gets its whole memory at once: growing copies it, and what was recorded of
        forwards would be lost."""
        if self._session is None:
            is_cuda = self.model.device.type == "cuda"
            longest = self.limits.prefix_tokens + self.limits.suffix_tokens
            entries = self.entries if is_cuda else min(self.entries, FIRST_ENTRIES)
            self._session = self.model.open_tree(self.slots, entries, longest=longest)
        return self._session

    def _admit(self, group: "_Group[Result]", flight: Flight[Result], session: TreeSession, memory: Memory) -> None:
        if self._judge is None:
            self._judge = Judge(
                flight.tree.ball, slots=self.slots, longest=self.limits.suffix_tokens, device=self.model.device
            )
        self._judge.admit(flight.slot, flight.tree.ball)
        self._make_room(session, memory.reach(flight.slot))
        if flight.states is not None:
            session.copy_in([flight.slot], flight.states.stored)
        group.active[group.free.pop()] = flight

    def _launch(self, flights: list[Flight[Any]], session: TreeSession, memory: Memory) -> "_Pending":
        """Queue the evaluation of the next nodes of every window, and of the prefixes of those that lack theirs."""
        taken = [(flight, flight.take(LANES)) for flight in flights]
        asking = [(flight, queries) for flight, queries in taken if len(queries.nodes)]
        fresh = [flight for flight in flights if flight.is_prefix_due]
        assert self._judge is not None
        self._make_room(session, max(memory.reach(flight.slot) for flight in flights))
        kept = self._kept(session, _packed(asking, fresh, memory))
        wanted = [(flight, queries.wanted) for flight, queries in asking]
        wanted += [(flight, ROOT) for flight in fresh]
        standing = Standing(*map(np.concatenate, zip(*(f.standing(nodes) for f, nodes in wanted), strict=True)))
        return _Pending(wanted, len(asking), self._judge.judge(standing, kept))

    @contextmanager
    def _within_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise OutOfSlots(
                f"{self.slots} windows at once do not fit into the memory of the device; lower --slots."
            ) from error

    def _kept(self, session: TreeSession, packed: Packed) -> Kept:
        batch = pack_nodes(packed, entries=session.entries, device=self.model.device)
        self.forwards += 1
        parts = [keep(logits, self.policy) for logits in session.forward_in_chunks(batch)]
        kept = parts[0] if len(parts) == 1 else Kept(*map(torch.cat, zip(*parts, strict=True)))
        return kept

    def _make_room(self, session: TreeSession, entries: int) -> None:
        if session.entries < entries:
            wanted = min(self.entries, grown(session.entries, entries))
            session.grow(-(-wanted // ENTRY_STEP) * ENTRY_STEP)


class _Pending(NamedTuple):
    """A round that was launched: the nodes of each window, those of `asking` first, then prefixes."""

    wanted: list[tuple[Flight[Any], NDArray[np.int64]]]
    asking: int
    judged: Handover


class _Group(Generic[Result]):
    """Windows that are evaluated together."""

    def __init__(self, slots: range) -> None:
        self.free, self.active = list(reversed(slots)), dict[int, Flight[Result]]()
        self.pending: _Pending | None = None

    def deliver(self, model: TreeModel) -> None:
        """Wait for the round that was launched, and tell every window its answers."""
        assert self.pending is not None
        wanted, asking, handover = self.pending
        self.pending = None
        judged = Judged(*(tensor.numpy() for tensor in handover.wait()))
        first = 0
        for place, (flight, nodes) in enumerate(wanted):
            own = judged.rows(first, first + len(nodes))
            # Logits that are not numbers have made every probability of their row NaN.
            name = flight.task.name or flight.task.key
            require_numbers(own.log_probs[:, 0].tolist(), model.dtype, what=f"continuations of window {name}")
            first += len(nodes)
            flight.give(nodes, own) if place < asking else flight.give_prefix(own)

    def ended(self) -> Iterator[Explored[Result]]:
        """The windows that have nothing more to ask; their slots are free."""
        for slot, flight in list(self.active.items()):
            if not flight.advance():
                self.free.append(slot)
                del self.active[slot]
                yield Explored(flight.task.key, flight.result)


def _packed(asking: "list[tuple[Flight[Any], Any]]", fresh: "list[Flight[Any]]", memory: Memory) -> Packed:
    counts = np.array([len(queries.nodes) for _, queries in asking], dtype=np.int64)
    slots = np.array([flight.slot for flight, _ in asking], dtype=np.int64)
    prefix_tokens = np.array([len(flight.task.prefix_ids) for flight, _ in asking], dtype=np.int64)
    token_ids, depths, entries = (
        _joined([getattr(flight.tree, name)[queries.nodes] for flight, queries in asking], np.int64)
        for name in ("tokens", "depths", "entries")
    )
    longest = int(depths.max(initial=1))
    return Packed(
        slots=slots,
        counts=counts,
        prefix_tokens=prefix_tokens,
        token_ids=token_ids,
        depths=depths,
        entries=entries,
        wanted=_wanted([queries for _, queries in asking]),
        paths=memory.paths[np.repeat(slots, counts), entries, :longest],
        fresh=[flight.slot for flight in fresh],
        prefixes=[flight.task.prefix_ids for flight in fresh],
    )


def _wanted(asked: list[Queries]) -> NDArray[np.int64]:
    """Places of the nodes that were asked for among all that are evaluated."""
    if all(queries.wanted is queries.nodes for queries in asked):
        return np.arange(sum(len(queries.nodes) for queries in asked))
    return np.flatnonzero(np.concatenate([np.isin(queries.nodes, queries.wanted) for queries in asked]))


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)
