"""The ball around a window's target, and how near the children of many windows' nodes can still end.

    ball    exactly T tokens, or a whole text, within `budget` edits of the target

Viability is always exact, whatever rule the search used; the baseline's ball is Levenshtein's.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from byrote.distance import make_viability
from byrote.distance.text import TextDistance
from byrote.models.packing import Handover, to_device, together_to_device
from byrote.policy import Kept
from byrote.search.base import TOKENS_PER_TARGET_TOKEN, target_chars
from byrote.types import DistanceName

ENDED = 20_000
"""Least distance of a child that is impossible: it has probability 0, or ends too soon."""


class Ball:
    """The continuations of one window that count."""

    def __init__(
        self,
        suffix_ids: tuple[int, ...],
        *,
        distance: DistanceName,
        budget: int,
        eos_ids: frozenset[int] = frozenset(),
        text: TextDistance | None = None,
        suffix_text: str | None = None,
    ) -> None:
        """With the rule of `text`, answers are compared with `suffix_text`."""
        self.suffix_ids, self.target = suffix_ids, target_chars(suffix_text) or suffix_ids
        self.length = len(suffix_ids) * (1 if text is None else TOKENS_PER_TARGET_TOKEN)
        self.budget = budget
        self.eos_ids = eos_ids
        searched: DistanceName = "levenshtein" if distance == "none" else distance
        self.viability = text or make_viability(searched, budget=budget, rule="exact")

    def advance(
        self, states: NDArray[np.int16], tokens: NDArray[np.int64], depths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """States and least final distances after one token more, which is number `depths` of its path. [nodes]"""
        padded = self.viability.pad([self.target], self.length)
        advanced = self.viability.advance(
            torch.from_numpy(states)[:, None],
            torch.from_numpy(tokens)[:, None, None],
            padded=padded.expand(len(states), -1),
            step=torch.from_numpy(depths),
            length=torch.full((len(states),), self.length),
        )
        return advanced.state[:, 0, 0].short().numpy(), advanced.least[:, 0, 0].short().numpy()

    def has_one_completion(self, states: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Whether the target's tail is the only completion in the ball: no edit is left, and all were spent on the
        diagonal. States are those of viable nodes of fewer than T tokens."""
        middle = states.shape[1] // 2
        needed = states + np.abs(np.arange(states.shape[1]) - middle)  # cell (t, j): D[t, j] + |j − t|
        off_diagonal = np.delete(needed, middle, axis=1)
        is_only: NDArray[np.bool_] = (needed[:, middle] == self.budget) & (off_diagonal > self.budget).all(1)
        return is_only


class NodeStates(NamedTuple):
    """Nodes to expand: a viability state, the token that leads from it to the node, the node's depth and slot.

    Where `is_own`, the state is the node's own and the token is not needed.
    """

    states: NDArray[np.int16]  # [nodes, width]
    tokens: NDArray[np.int64]  # [nodes]
    depths: NDArray[np.int64]  # [nodes]
    slots: NDArray[np.int64]  # [nodes]
    is_own: NDArray[np.bool_]  # [nodes]


class Expanded(NamedTuple):
    """The nodes' own states, and their children."""

    states: NDArray[np.int16]  # [nodes, width]
    token_ids: NDArray[np.int64]  # [nodes, kept]
    log_probs: NDArray[np.float64]  # [nodes, kept]
    least: NDArray[np.int16]  # [nodes, kept]
    is_final: NDArray[np.bool_]  # [nodes, kept]


class Expander:
    """The targets of all slots, on the model's device. All windows have one distance, budget and set of EOS tokens."""

    def __init__(self, ball: Ball, *, slots: int, longest: int, device: torch.device) -> None:
        self._viability, self._device, self._longest = ball.viability, device, longest
        self._targets = to_device(self._viability.pad([()] * slots, longest), device)
        self._lengths = torch.zeros(slots, dtype=torch.int64, device=device)
        self._eos = torch.tensor(sorted(ball.eos_ids), dtype=torch.int64, device=device)

    def admit(self, slot: int, ball: Ball) -> None:
        padded = self._viability.pad([ball.target], self._longest)
        self._targets[slot] = to_device(padded[0], self._device)
        self._lengths[slot] = ball.length

    def expand(self, nodes: NodeStates, kept: Kept) -> Handover:
        """The fields of `Expanded`, on their way to the host together."""
        states, tokens, depths, slots, is_own = together_to_device(nodes, self._device)
        target = {"padded": self._targets[slots], "length": self._lengths[slots]}
        # The root has no token that leads to it; its step is taken as 1 and thrown away.
        moved = self._viability.advance(states[:, None], tokens[:, None, None], step=depths.clamp(min=1), **target)
        own = torch.where(is_own[:, None], states, moved.state[:, 0, 0].short())
        after = self._viability.advance(own[:, None], kept.token_ids[:, None], step=depths + 1, **target)
        is_possible = kept.log_probs > -torch.inf
        least, is_final = after.least[:, 0].short(), after.is_complete[:, 0]
        if len(self._eos):
            is_end = torch.isin(kept.token_ids, self._eos) & ~is_final
            if after.if_ended is None:
                is_possible &= ~is_end
            else:
                least, is_final = torch.where(is_end, after.if_ended.short(), least), is_final | is_end
        least = torch.where(is_possible, least, ENDED)
        return Handover((own, kept.token_ids, kept.log_probs, least.short(), is_final))
