"""The forwards of a stream: all live beams packed into one, and the next one before anybody knows its beams.

When a step has been launched, the host learns only at its end which beams it leaves, and until it has launched the next
one the device would wait. Windows that kept their number of beams in the last step mostly keep it in the next, so a
forward of as many beams is launched as a guess. It is taken if it evaluated every beam that there turns out to be, and
made again otherwise. A lane that turns out to hold no such beam wrote where nobody looks: a wrong guess costs time and
nothing else.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rote.models.base import TreeBatch, TreeSession
from rote.models.memory import grown, ranges, together_to_device
from rote.policy import Kept, keep
from rote.search.cache import TreeCache
from rote.search.setup import Setup
from rote.search.shapes import Shapes
from rote.search.steps import Foreseen


class _Guess(NamedTuple):
    """A forward nobody asked for: the beams it evaluated of every slot, and what the policy keeps after them."""

    counts: list[int]
    listed: Kept

    def of(self, counts: list[int]) -> Kept | None:
        """What is kept after so many beams of the first slots; None where the guess has not evaluated them all."""
        if counts == self.counts:
            return self.listed
        if len(counts) > len(self.counts) or any(map(int.__gt__, counts, self.counts)):
            return None
        first = np.cumsum(self.counts) - self.counts
        rows = np.repeat(first[: len(counts)], counts) + ranges(counts)
        (places,) = together_to_device([rows], self.listed.unlisted.device)
        return Kept(*(tensor[places] for tensor in self.listed))


class Forwards:
    """Evaluates the beams of a stream's first slots."""

    def __init__(self, setup: Setup, session: TreeSession, cache: TreeCache, shapes: Shapes) -> None:
        self._setup, self._session, self._cache, self._shapes = setup, session, cache, shapes
        self._device = setup.model.device
        self._counts, self._beams = list[int](), tuple[Tensor, ...]()
        """Beams of each slot in the last forward; the slots and the lanes of all of them."""
        self._is_steady = False
        """Whether the last two forwards had the same beams."""
        self._guess: _Guess | None = None

    def fill(self, foreseen: Foreseen, counts: list[int], reaches: Sequence[int]) -> Kept:
        """What the policy keeps after every lane: so many beams of each slot are evaluated, of others it is known."""
        guess, self._guess = self._guess, None
        self._is_steady = counts == self._counts
        if any(counts):
            self.make_room(self._shapes.rounded(len(counts), max(counts), max(reaches)).entries)
            listed = None if guess is None else guess.of(counts)
            if listed is None:
                listed = self._evaluated(foreseen, counts, reaches)
                self._setup.counters.wrong_guesses += guess is not None
            slots, lanes = self._places(counts)
            for ours, theirs in zip(foreseen.kept, listed, strict=True):
                ours[slots, lanes] = theirs
        return foreseen.kept

    def guess(self, foreseen: Foreseen, counts: list[int], reaches: Sequence[int]) -> None:
        """Evaluate as many beams again, if they are likely to be asked for next. No entry is beyond `reaches`."""
        is_likely = self._is_steady and any(counts)
        if is_likely and self._may_guess and max(reaches) <= self._session.entries:
            self._guess = _Guess(counts, self._evaluated(foreseen, counts, reaches))

    @property
    def _may_guess(self) -> bool:
        """Whether the device would wait for the host, and its session takes lanes that see nothing."""
        return bool(getattr(self._session, "takes_guesses", False))

    def forget(self) -> None:
        """The slots have changed: the next beams are not those that a guess was about."""
        if self._guess is not None:
            self._setup.counters.wrong_guesses += 1
            self._guess = None

    def make_room(self, entries: int) -> None:
        if self._session.entries < entries:
            self._session.grow(self._shapes.rounded_entries(grown(self._session.entries, entries)))
        counters = self._setup.counters
        counters.peak_entries = max(counters.peak_entries, entries)
        counters.session_entries = self._session.entries

    def _evaluated(self, foreseen: Foreseen, counts: list[int], reaches: Sequence[int]) -> Kept:
        options = self._setup.options
        self._setup.counters.forwards += 1
        logits = self._session.forward(self._batch(foreseen, counts, reaches))
        return keep(logits, options.policy, cap=options.max_children)

    def _batch(self, foreseen: Foreseen, counts: list[int], reaches: Sequence[int]) -> TreeBatch:
        slots, lanes = self._places(counts)
        rows, width, reach = self._shapes.rounded(len(counts), max(counts), max(reaches))
        live = foreseen.live
        return TreeBatch(
            token_ids=foreseen.tokens[slots, lanes],
            positions=foreseen.positions[slots],
            slots=slots,
            entries=self._cache.free_entry[slots, lanes],
            lanes=lanes,
            ancestry=self._cache.ancestry[:rows, :width, :reach],
            entry_positions=self._cache.entry_positions[:rows, :reach],
            beam_counts=tuple(counts),
            reaches=tuple(reaches),
            prefix_lengths=(),
            outputs=torch.arange(len(slots), device=self._device),
            live=live if live is not None and live.columns.shape[1] >= max(reaches) else None,
        )

    def _places(self, counts: list[int]) -> tuple[Tensor, ...]:
        """Slot and lane of every beam."""
        if counts != self._counts:
            self._counts = counts
            every = np.repeat(np.arange(len(counts)), counts), ranges(counts)
            self._beams = together_to_device(every, self._device)
        return self._beams
