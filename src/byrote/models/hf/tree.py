"""The fallback session: for models that cannot attend through a mask, histories are rebuilt and evaluated whole.

Slow, but the same numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from byrote.models.base import Stored, TreeBatch
from byrote.models.hf.attention import AttentionStyle, Layout, attend_beams, attend_chains
from byrote.models.hf.graphs import RecordedLayout, RecordedSteps, as_fast_as_can_be, is_in_one_place, size_of
from byrote.models.hf.head import ChunkedHead
from byrote.models.history import History, TokenMemory
from byrote.models.memory import to_device, zeros_as_touched
from byrote.models.tree_attention import is_available

MOST_HISTORIES = 64
"""Histories evaluated at once."""


class RecomputeSession(TokenMemory):
    """Every slot's tokens by entry; nothing else is remembered."""

    def __init__(self, head: ChunkedHead, slots: int, entries: int) -> None:
        super().__init__(slots, entries, head.model.device)
        self._head = head

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._head.logits(self.states(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        return self._head.chunks(self.states(batch))

    def states(self, batch: TreeBatch) -> Tensor:
        """Store the batch; what the head needs of its outputs, in their order."""
        histories = self.take(batch)
        longest = max((len(history.token_ids) for history in histories), default=1)
        count = self._head.sequences_at_once(MOST_HISTORIES, longest)
        parts = [self._head.no_states()]
        for first in range(0, len(histories), count):
            parts.append(self._evaluate(histories[first : first + count]))
        order = torch.tensor([output for history in histories for output in history.outputs], dtype=torch.int64)
        return torch.cat(parts).index_select(0, order.argsort().to(parts[-1].device))

    def _evaluate(self, histories: list[History]) -> Tensor:
        # Padding comes after a history, where a causal model cannot look.
        ids = pad_sequence([history.token_ids for history in histories], batch_first=True)
        places = [row * ids.shape[1] + place for row, history in enumerate(histories) for place in history.places]
        return self._head.states(torch.tensor(places, device=ids.device), input_ids=ids)


class TreeSessionHF:
    """Keys and values of every layer for a number of slots, written and read by the attention function itself.

    Each slot has one more entry than it says, for tokens that only fill up a recorded forward.
    """

    def __init__(self, head: ChunkedHead, slots: int, entries: int) -> None:
        self._head = head
        self._slots = slots
        self._entries = entries
        self._keys: dict[int, Tensor] = {}  # layer → [slots, entries + 1, key-value heads, width]: a write is a row
        self._values: dict[int, Tensor] = {}
        self._layouts: dict[torch.device, Layout] = {}  # of the forward that runs, by the device of the layers that ask
        self._recorded = RecordedSteps()
        self._is_in_one_place = is_in_one_place(head.model)
        self.windows_seen: set[int | None] = set()
        """Sliding windows the layers handed over; a local span that is missing here exists only in a mask we ignore."""

    @property
    def entries(self) -> int:
        return self._entries

    def grow(self, entries: int) -> None:
        for memory in (self._keys, self._values):
            for layer, old in memory.items():
                grown = zeros_as_touched((old.shape[0], entries + 1, *old.shape[2:]), old)
                grown[:, : self._entries] = old[:, : self._entries]
                memory[layer] = grown
        self._entries = entries
        self._recorded.forget()

    def move(self, source: int, target: int, entries: int) -> None:
        torch._foreach_copy_(self._held(target, entries), self._held(source, entries))

    def copy_out(self, slots: Sequence[int], entries: int) -> Stored:
        places = cache(partial(_places, tuple(slots)))

        def rows(memory: Tensor) -> Tensor:
            chosen = _as_words(memory[:, :entries])[places(memory.device)]
            return chosen.view(memory.dtype).view(len(slots), entries, *memory.shape[2:])

        return {layer: (rows(keys), rows(self._values[layer])) for layer, keys in self._keys.items()}

    def copy_in(self, slots: Sequence[int], stored: Stored) -> None:
        places = cache(partial(_places, tuple(slots)))
        for layer, (keys, values) in stored.items():
            self._make_room(layer, keys[0], values[0])
            for memory, kept in ((self._keys[layer], keys), (self._values[layer], values)):
                _as_words(memory[:, : kept.shape[1]])[places(memory.device)] = _as_words(kept)

    def _held(self, slot: int, entries: int) -> list[Tensor]:
        """Keys and values of every layer in turn: copied together, they take one kernel instead of one each."""
        return [memory[slot, :entries] for memory in self._memories(self._keys)]

    def _memories(self, layers: Iterable[int]) -> Iterator[Tensor]:
        for layer in layers:
            yield self._keys[layer]
            yield self._values[layer]

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._head.logits(self.states(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        return self._head.chunks(self.states(batch))

    def states(self, batch: TreeBatch) -> Tensor:
        """Evaluate and store the batch; what the head needs of its outputs."""
        layout = Layout(batch)
        size = size_of(batch) if self._records else None
        if size is not None:
            states = self._recorded.states(layout, size, self._entries + 1, self._evaluate_recorded)
            if states is not None:
                return states
        return self._evaluate(layout, batch.outputs, batch.token_ids, batch.positions, as_compiled=size is not None)

    @property
    def takes_guesses(self) -> bool:
        """Whether steps may be launched before their beams are known: where a device would wait for the host."""
        return self._records

    @property
    def _records(self) -> bool:
        """Whether steps are worth recording, and can be: on a GPU, behind chains that were evaluated before."""
        keys = next(iter(self._keys.values()), None)
        can_be = keys is not None and is_available(keys) and self._is_in_one_place
        return can_be and self.windows_seen == {None} and not self._recorded.cannot

    def _evaluate_recorded(self, layout: RecordedLayout) -> Tensor:
        return self._evaluate(layout, layout.order, layout.tokens, layout.positions, as_compiled=True)

    def _evaluate(
        self, layout: Layout, outputs: Tensor, tokens: Tensor, positions: Tensor, *, as_compiled: bool
    ) -> Tensor:
        self._layouts = {tokens.device: layout}
        fastest = nullcontext() if as_compiled else as_fast_as_can_be(self._head.model, len(tokens))
        with attention_through(self._head.model, self), fastest:
            states = self._head.states(outputs, input_ids=tokens[None], position_ids=positions[None])
        self._layouts = {}
        return states

    def _layout_on(self, device: torch.device) -> Layout:
        """Where a model is spread over devices, every layer finds the layout on its own; each device gets it once."""
        if device not in self._layouts:
            batch = next(iter(self._layouts.values())).batch
            self._layouts[device] = Layout(batch.on(device))
        return self._layouts[device]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, style: AttentionStyle) -> Tensor:
        """One layer's attention: [1, heads, queries, width] each → [1, queries, heads, width]."""
        layout = self._layout_on(query.device)
        self.windows_seen.add(style.window)
        keys, values = self._store(layer, key[0], value[0], layout)
        parts = []
        if layout.beams:
            parts.append(attend_beams(query[0, :, : layout.beams], keys, values, layout, style))
        if layout.batch.prefix_lengths:
            rest = slice(layout.beams, None)
            parts.append(attend_chains(query[0, :, rest], key[0, :, rest], value[0, :, rest], layout, style))
        return (torch.cat(parts) if len(parts) > 1 else parts[0].contiguous())[None]

    def _store(self, layer: int, key: Tensor, value: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        key, value = key.transpose(0, 1), value.transpose(0, 1)  # [queries, heads, width]
        self._make_room(layer, key, value)
        rows = layout.rows(self._entries + 1)
        _write_rows(self._keys[layer], key, rows)
        _write_rows(self._values[layer], value, rows)
        return self._keys[layer], self._values[layer]

    def _make_room(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Memory for a layer that is met for the first time, for rows like these."""
        if layer not in self._keys:
            # Zeros, not whatever was there: a masked NaN would still spoil the weighted sum.
            self._keys[layer] = zeros_as_touched((self._slots, self._entries + 1, *key.shape[1:]), key)
            self._values[layer] = zeros_as_touched((self._slots, self._entries + 1, *value.shape[1:]), value)


def _write_rows(memory: Tensor, values: Tensor, rows: Tensor) -> None:
    """Write one row per query, moved as 8-byte words where they fit: several times faster than by element."""
    flat, values = memory.flatten(0, 1).flatten(1), values.flatten(1)  # [slots · entries, heads · width]
    if values.shape[1] * values.element_size() % 8 == 0 and values.is_contiguous():
        flat, values = flat.view(torch.int64), values.view(torch.int64)
    flat.index_copy_(0, rows, values)


def _places(slots: tuple[int, ...], device: torch.device) -> Tensor | list[int]:
    """An index of these slots; one that a GPU can read without waiting."""
    return to_device(torch.tensor(slots), device) if device.type == "cuda" else list(slots)


def _as_words(memory: Tensor) -> Tensor:
    """[slots, entries, heads, width] as [slots, entries, words of 8 bytes] where they fit, else by element."""
    flat = memory.flatten(2)
    return flat.view(torch.int64) if flat.shape[2] * flat.element_size() % 8 == 0 else flat


_RUNNING: list[TreeSessionHF] = []
"""The sessions whose forwards run, innermost last."""


@torch.library.custom_op("byrote::tree_attention", mutates_args=())
def _tree_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layer: Tensor,
    scaling: float | None,
    softcap: float | None,
    window: int | None,
) -> Tensor:
    """Attention of the running session for compiled layers, which see one operation and stay in one piece.

    `layer` is a tensor, so that all layers share what is compiled for one.
    """
    return _RUNNING[-1].attend(int(layer), query, key, value, AttentionStyle(scaling, softcap, window))


@_tree_attention.register_fake
def _shape(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
    return query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1])


def _attend(
    module: Any,
    query: Tensor,  # [1, heads, queries, width]
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """What the library calls in place of its attention."""
    if s_aux is not None:
        raise NotImplementedError("attention sinks")
    if torch.compiler.is_compiling():
        mixed = _tree_attention(query, key, value, module.layer_number, scaling, softcap, sliding_window)
    else:
        style = AttentionStyle(scaling, softcap, sliding_window)
        mixed = _RUNNING[-1].attend(module.layer_idx, query, key, value, style)
    return mixed, None


class attention_through:
    """Within this block the model's attention is that of `session`. Restored afterwards, whatever happens."""

    NAME = "byrote_tree"

    def __init__(self, model: Any, session: TreeSessionHF) -> None:
        self._model, self._session = model, session

    def __enter__(self) -> None:
        from transformers import AttentionInterface

        self._before = self._model.config._attn_implementation
        AttentionInterface.register(self.NAME, _attend)
        self._model.config._attn_implementation = self.NAME
        _RUNNING.append(self._session)

    def __exit__(self, *_: object) -> None:
        _RUNNING.pop()
        self._model.config._attn_implementation = self._before
