"""Evaluate any nodes of many windows' continuation trees on one session, each node and each ancestor once.

Estimators and refinement ask for nodes one window at a time, in an order that only they know. Each window is a
generator that yields the paths it wants to know the policy's next tokens of; the explorer collects the wishes of all
windows in flight, evaluates what is missing in packed forwards, and sends the answers back. What a window sees does
not depend on its company, so its result does not either.

A window's evaluated nodes form a trie. A node's state stays in the session's memory until room is needed; then the
nodes that went unused longest are forgotten, leaves before their ancestors, and cost again if somebody returns. A
forward reads only what its nodes descend from, so a large memory costs room and no time.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rote.errors import ConfigError, ModelError, WindowError
from rote.explore.trie import ExploreTask, Result, TrieNode, WindowTrie, rounded
from rote.models.base import TreeBatch, TreeModel, TreeSession
from rote.models.numbers import require_numbers
from rote.policy import Policy, keep
from rote.search.base import Limits
from rote.search.sizing import free_memory, require_memory

ENTRIES = 2048
"""Memory entries of a slot beyond its prefix and one path: what a window may have evaluated without forgetting."""
LANES = 128
"""Most query positions of one window in one forward."""
FEW_WINDOWS = 8
"""Windows that a CPU explores at once, and for which a device must have room before entries are made more."""
MOST_WINDOWS = 64
MEMORY_SHARE = 0.5
"""Share of a device's free memory that explorations may take."""


class Explored(NamedTuple, Generic[Result]):
    key: int
    result: Result


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


class Explorer:
    """Runs explorations of one model under one policy, several windows at a time."""

    def __init__(self, model: TreeModel, policy: Policy, *, slots: int, limits: Limits, entries: int = ENTRIES) -> None:
        policy.check_vocabulary(model.vocab_size)
        if slots < 1:
            raise ConfigError(f"slots are {slots}; at least one window must be explored at a time.")
        self.longest = longest = limits.prefix_tokens + limits.suffix_tokens
        if model.max_positions is not None and longest > model.max_positions:
            raise WindowError(
                f"prefix + suffix are {longest} tokens, but the model takes at most {model.max_positions}. "
                "Shorten --prefix-tokens or --suffix-tokens."
            )
        self.model = model
        self.policy = policy
        self.slots = slots
        # A request is met in pieces of half the memory, and any single path must fit into one.
        self.entries = 2 * longest + max(entries, LANES)
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
        active: list[WindowTrie[Result]] = []
        session = self.model.open_tree(self.slots, min(self.entries, 512), longest=self.longest)
        while True:
            while len(active) < self.slots and (task := next(waiting, None)) is not None:
                slot = WindowTrie(task, self.entries)
                if slot.start():
                    self._make_room(session, slot.reach)
                    if slot.states is not None:
                        session.copy_in(len(active), slot.states.stored)
                    active.append(slot)
                else:
                    yield Explored(task.key, slot.result())
            if not active:
                return
            try:
                self._forward(active, session)
            except torch.OutOfMemoryError as error:
                raise ModelError(
                    f"{self.slots} windows at once do not fit into the memory of the device; lower --slots."
                ) from error
            for place in reversed(range(len(active))):
                if active[place].answer():
                    continue
                yield Explored(active[place].task.key, active[place].result())
                last = active.pop()
                if place < len(active):
                    active[place] = last
                    session.move(len(active), place, last.reach)

    def _forward(self, active: "list[WindowTrie[Any]]", session: TreeSession) -> None:
        """Evaluate the next nodes of every window, and the prefixes of windows that have just come."""
        chosen = [slot.take(LANES) for slot in active]
        fresh = [place for place, slot in enumerate(active) if not slot.is_prefilled]
        batch = self._batch(active, chosen, fresh)
        self._make_room(session, max(slot.reach for slot in active))
        kept = keep(session.forward(batch), self.policy)
        self.forwards += 1
        token_ids, log_probs = kept.token_ids.cpu().numpy(), kept.log_probs.cpu().numpy()
        wanted = [(slot, node) for slot, nodes in zip(active, chosen, strict=True) for node in nodes if node.is_wanted]
        wanted += [(active[place], active[place].root) for place in fresh]
        for row, (slot, node) in enumerate(wanted):
            name = slot.task.name or slot.task.key
            require_numbers(log_probs[row, :1], self.model.dtype, what=f"continuations of window {name}")
            node.known, node.is_wanted = (token_ids[row], log_probs[row]), False
        for place in fresh:
            active[place].is_prefilled = True

    def _make_room(self, session: TreeSession, entries: int) -> None:
        if session.entries < entries:
            session.grow(min(rounded(self.entries), rounded(max(entries, session.entries * 3 // 2))))

    def _batch(self, active: "list[WindowTrie[Any]]", chosen: "list[list[TrieNode]]", fresh: list[int]) -> TreeBatch:
        nodes = [node for nodes in chosen for node in nodes]
        counts = [len(nodes) for nodes in chosen]
        prefixes = [active[place].task.prefix_ids for place in fresh]
        lengths = [len(prefix) for prefix in prefixes]
        starts = np.repeat([len(slot.task.prefix_ids) for slot in active], counts)
        views = [slot.view(nodes) for slot, nodes in zip(active, chosen, strict=True)]
        reaches = [len(view.entries) for view in views]
        shape = (len(active), rounded(max([1, *reaches])))
        columns, positions = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        ancestry = np.zeros((len(active), max(1, *counts), shape[1]), dtype=np.bool_)
        for place, (slot, view) in enumerate(zip(active, views, strict=True)):
            columns[place, : reaches[place]] = view.entries
            positions[place, : reaches[place]] = slot.entry_positions[view.entries]
            ancestry[place, : counts[place], : reaches[place]] = view.sees
        ends = len(nodes) + np.cumsum(lengths, dtype=np.int64) - 1
        is_wanted = np.array([node.is_wanted for node in nodes], dtype=np.bool_)
        places = [place for length in lengths for place in range(length)]
        return TreeBatch(
            token_ids=self._tensor([node.token for node in nodes] + [token for prefix in prefixes for token in prefix]),
            positions=self._tensor([*(starts + [node.depth - 1 for node in nodes]), *places]),
            slots=self._tensor([*np.repeat(np.arange(len(active)), counts), *np.repeat(fresh, lengths)]),
            entries=self._tensor([node.entry for node in nodes] + places),
            lanes=self._tensor([lane for count in counts for lane in range(count)]),
            ancestry=torch.from_numpy(ancestry).to(self.model.device),
            entry_positions=self._tensor(positions),
            beam_counts=tuple(counts),
            reaches=tuple(reaches),
            columns=self._tensor(columns),
            prefix_lengths=tuple(lengths),
            outputs=self._tensor([*np.flatnonzero(is_wanted), *ends]),
        )

    def _tensor(self, values: Any) -> Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(self.model.device)
