"""Chains of windows that wait for the audit's minimum, kept until they are searched.

The next chunk is scored over the slots of the one before, so whoever waits must move or be evaluated again. A CPU takes
as long for that as for any first forward; a GPU evaluates a hundred windows in a moment and has better use for the
memory.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from rote.models.base import TreeModel, TreeSession
from rote.policy import Kept
from rote.scan.measured import Measured
from rote.scan.options import RunConfig
from rote.search.chain import copy_states
from rote.search.sizing import free_memory

MEMORY_SHARE = 0.05
"""Share of the free memory that the chains of windows that wait may take."""


class WaitingRoom:
    """Holds as many chains as windows can wait; none where they are not worth their memory."""

    def __init__(self, model: TreeModel, config: RunConfig) -> None:
        self._model, self._limits = model, config.limits
        needed = config.screen_least * sum(config.limits) * model.tree_bytes_per_entry()
        is_worth_it = model.device.type == "cpu" and needed <= MEMORY_SHARE * free_memory(model.device)
        self._places = config.screen_least if is_worth_it else 0
        self._held: dict[int, Measured] = {}
        self._session: TreeSession | None = None

    @torch.inference_mode()
    def hold(self, waiting: Sequence[Measured]) -> None:
        """The chains of these windows stay valid from chunk to chunk; those of windows that no longer wait do not."""
        still = {id(item) for item in waiting}
        self._held = {slot: item for slot, item in self._held.items() if id(item) in still}
        known = {id(item) for item in self._held.values()}
        free = [slot for slot in range(self._places) if slot not in self._held]
        arriving = [item for item in waiting if id(item) not in known and item.chain is not None]
        for item in arriving[len(free) :]:
            item.chain = None
        self._take_in(list(zip(free, arriving, strict=False)))

    def _take_in(self, arriving: list[tuple[int, Measured]]) -> None:
        if not arriving:
            return
        if self._session is None:
            self._session = self._model.open_tree(self._places, sum(self._limits), longest=sum(self._limits))
        chains = [(slot, item.chain) for slot, item in arriving if item.chain is not None]
        tokens = {slot: len(item.window.ids) - 1 for slot, item in arriving}
        copy_states(chains, self._session, entries=tokens.__getitem__)
        for (slot, item), (_, chain) in zip(arriving, chains, strict=True):
            # Copies: what the policy keeps is a view of what it keeps of the whole batch.
            kept = Kept(*(tensor.clone() for tensor in chain.kept))
            item.chain = replace(chain, session=self._session, slot=slot, kept=kept)
            self._held[slot] = item
