"""Which entries of a slot's memory hold which nodes of its window's tree.

A node that is in memory has all its ancestors there too. When room is needed, everything is forgotten that the nodes to
come do not descend from; who returns to it evaluates it again.
"""

import numpy as np
from numpy.typing import NDArray

from rote.explore.tree import ABSENT, Tree
from rote.search.frontier import SearchedStates


class Memory:
    """Entries of all slots. `paths[s, e, :t]`: the entries from the first token down to the node of t tokens at e."""

    def __init__(self, slots: int, entries: int, longest: int) -> None:
        self.entries = entries
        self.paths = np.zeros((slots, entries, longest), dtype=np.int32)
        self._prefix = np.zeros(slots, dtype=np.int64)
        self._free = [np.zeros(0, dtype=np.int64) for _ in range(slots)]
        self._reach = [0] * slots

    def admit(self, slot: int, prefix_tokens: int, tree: Tree, states: SearchedStates | None) -> None:
        """A new window: its prefix takes the first entries, what a search computed those it had there."""
        self._prefix[slot] = prefix_tokens
        tree.entries[: tree.size] = ABSENT
        taken = prefix_tokens if states is None else len(states)
        self._free[slot], self._reach[slot] = np.arange(self.entries - 1, taken - 1, -1), taken
        if states is not None:
            tree.remember(states)
            for group in tree.by_depth(np.arange(1, tree.beams)):
                self._write(slot, tree, group)

    def free(self, slot: int) -> int:
        return len(self._free[slot])

    def reach(self, slot: int) -> int:
        """No entry in use is as high as this."""
        return self._reach[slot]

    def room(self, slot: int) -> int:
        """Nodes that fit beside the prefix."""
        return self.entries - int(self._prefix[slot])

    def place(self, slot: int, tree: Tree, nodes: NDArray[np.int64]) -> None:
        """Give entries to those nodes that have none. Parents are in memory; if not, they come before children."""
        above = tree.entries[tree.parents[nodes]]
        is_flat = int(above.min(initial=0)) != ABSENT
        nodes = nodes[tree.entries[nodes] == ABSENT]
        count = len(self._free[slot]) - len(nodes)
        assert count >= 0, "a piece of a request must fit into the memory"
        given = self._free[slot][count:]
        tree.entries[nodes] = given[::-1]
        self._free[slot] = self._free[slot][:count]
        self._reach[slot] = max(self._reach[slot], int(given.max(initial=-1)) + 1)
        for group in [nodes] if is_flat else tree.by_depth(nodes):
            self._write(slot, tree, group)

    def forget(self, slot: int, tree: Tree, needed: NDArray[np.int64]) -> None:
        """Keep only what `needed` nodes descend from."""
        kept = np.zeros(tree.size, dtype=np.bool_)
        kept[tree.lineage(tree.parents[needed])] = True
        entries = np.where(kept, tree.entries[: tree.size], ABSENT)
        entries[0] = tree.entries[0]
        tree.entries[: tree.size] = entries
        tree.was_forgotten = True
        is_free = np.ones(self.entries, dtype=np.bool_)
        is_free[: self._prefix[slot]] = False
        is_free[entries[entries != ABSENT]] = False
        self._free[slot] = np.flatnonzero(is_free)[::-1]

    def _write(self, slot: int, tree: Tree, nodes: NDArray[np.int64]) -> None:
        """A node's path is its parent's and itself."""
        own, paths = tree.entries[nodes], self.paths[slot]
        paths[own] = paths[tree.entries[tree.parents[nodes]]]
        paths[own, tree.depths[nodes] - 1] = own
