"""Evaluate any nodes of many windows' trees on one session, as their explorations ask for them.

Each round collects what the explorations of all windows in flight want to know, evaluates it in one packed forward, and
hands the answers back. Nodes, paths and answers are arrays; the host does nothing node by node. A forward reads only
what its nodes descend from, so a large memory costs room and no time.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rote.errors import ConfigError, ModelError
from rote.explore.ball import Judge, Standing
from rote.explore.base import Explored, ExploreTask, Result
from rote.explore.flight import ROOT, Flight, Queries
from rote.explore.held_nodes import Memory
from rote.explore.views import ENTRY_STEP, Packed, pack_nodes
from rote.models.base import TreeModel, TreeSession
from rote.models.memory import grown
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
MOST_WINDOWS = 64
MEMORY_SHARE = 0.5
"""Share of a device's free memory that explorations may take."""
FIRST_ENTRIES = 512


class Room(NamedTuple):
    """How many windows to explore at once, and how many evaluated nodes each may remember."""

    slots: int
    entries: int


def choose_room(model: TreeModel, limits: Limits, *, evaluations: int) -> Room:
    """For windows of at most this many evaluations each: none is forgotten, if the device's memory allows it."""
    is_cuda = model.device.type == "cuda"
    fitting = int(free_memory(model.device) * MEMORY_SHARE) // model.tree_bytes_per_entry()
    always = 2 * (limits.prefix_tokens + limits.suffix_tokens)
    entries = max(ENTRIES, min(evaluations, fitting // FEW_WINDOWS - always))
    slots = min(MOST_WINDOWS if is_cuda else FEW_WINDOWS, fitting // (always + entries))
    return Room(max(1, slots), entries)


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

    @torch.inference_mode()
    def run(self, tasks: Iterable[ExploreTask[Result]]) -> Iterator[Explored[Result]]:
        """Results in the order in which windows end."""
        waiting = iter(tasks)
        longest = self.limits.prefix_tokens + self.limits.suffix_tokens
        session = self.model.open_tree(self.slots, min(self.entries, FIRST_ENTRIES), longest=longest)
        memory = Memory(self.slots, self.entries, self.limits.suffix_tokens)
        judge: Judge | None = None
        active: dict[int, Flight[Result]] = {}
        free = list(range(self.slots - 1, -1, -1))
        while True:
            while free and (task := next(waiting, None)) is not None:
                flight = Flight(task, free[-1], memory)
                if not flight.start():
                    yield Explored(task.key, flight.result)
                    continue
                judge = judge or self._judge(flight)
                judge.admit(flight.slot, flight.tree.ball)
                self._make_room(session, memory.reach(flight.slot))
                if flight.states is not None:
                    session.copy_in(flight.slot, flight.states.stored)
                active[free.pop()] = flight
            if judge is None or not active:
                return
            try:
                self._round(list(active.values()), session, memory, judge)
            except torch.OutOfMemoryError as error:
                raise OutOfSlots(
                    f"{self.slots} windows at once do not fit into the memory of the device; lower --slots."
                ) from error
            for slot, flight in list(active.items()):
                if not flight.advance():
                    yield Explored(flight.task.key, flight.result)
                    free.append(slot)
                    del active[slot]

    def _round(self, flights: "list[Flight[Any]]", session: TreeSession, memory: Memory, judge: Judge) -> None:
        """Evaluate the next nodes of every window, and the prefixes of those that lack theirs."""
        taken = [(flight, flight.take(LANES)) for flight in flights]
        asking = [(flight, queries) for flight, queries in taken if len(queries.nodes)]
        fresh = [flight for flight in flights if flight.is_prefix_due]
        self._make_room(session, max(memory.reach(flight.slot) for flight in flights))
        packed = _packed(asking, fresh, memory)
        kept = self._kept(session, packed)
        wanted = [(flight, queries.wanted) for flight, queries in asking]
        wanted += [(flight, ROOT) for flight in fresh]
        standing = Standing(*map(np.concatenate, zip(*(f.standing(nodes) for f, nodes in wanted), strict=True)))
        judged = judge.judge(standing, kept)
        first = 0
        for place, (flight, nodes) in enumerate(wanted):
            # Logits that are not numbers have made every probability of their row NaN.
            name = flight.task.name or flight.task.key
            sums = kept.log_probs[first : first + len(nodes), 0].tolist()
            require_numbers(sums, self.model.dtype, what=f"continuations of window {name}")
            own = judged.rows(first, first + len(nodes))
            first += len(nodes)
            flight.give(nodes, own) if place < len(asking) else flight.give_prefix(own)

    def _kept(self, session: TreeSession, packed: Packed) -> Kept:
        batch = pack_nodes(packed, entries=session.entries, device=self.model.device)
        self.forwards += 1
        parts = [keep(logits, self.policy) for logits in session.forward_in_chunks(batch)]
        kept = parts[0] if len(parts) == 1 else Kept(*map(torch.cat, zip(*parts, strict=True)))
        return kept

    def _judge(self, flight: "Flight[Any]") -> Judge:
        return Judge(flight.tree.ball, slots=self.slots, longest=self.limits.suffix_tokens, device=self.model.device)

    def _make_room(self, session: TreeSession, entries: int) -> None:
        if session.entries < entries:
            wanted = min(self.entries, grown(session.entries, entries))
            session.grow(-(-wanted // ENTRY_STEP) * ENTRY_STEP)


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
