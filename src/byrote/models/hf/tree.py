"""The tree session of a Hugging Face model: keys and values of all layers, written and read by its own attention."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from byrote.models.base import Stored, TreeBatch
from byrote.models.hf.attention import AttentionStyle, Layout, attend_beams, attend_chains
from byrote.models.hf.graphs import RecordedLayout, RecordedSteps, faster_layers, size_of
from byrote.models.hf.head import ChunkedHead
from byrote.models.packing import to_device, zeros_as_touched
from byrote.models.tree_attention import is_available


class TreeSessionHF:
    """Keys and values of every layer for a number of slots.

    Each slot has one entry more than `entries`, for tokens that only fill up a recorded forward.
    """

    def __init__(self, head: ChunkedHead, slots: int, entries: int) -> None:
        self._head, self._slots, self.entries = head, slots, entries
        self._memory: dict[int, tuple[Tensor, Tensor]] = {}
        """layer → keys, values [slots, entries + 1, key-value heads, width]: a token writes one row of each."""
        self._layouts: dict[torch.device, Layout] = {}
        """Of the running forward, on each device that has layers."""
        self._recorded = RecordedSteps()
        self._is_in_one_place = len({weight.device for weight in head.model.parameters()}) == 1
        self.windows_seen: set[int | None] = set()
        """Sliding windows that layers passed to `attend`; any other local span exists only in the mask we ignore."""

    def grow(self, entries: int) -> None:
        def grown(old: Tensor) -> Tensor:
            new = zeros_as_touched((old.shape[0], entries + 1, *old.shape[2:]), old)
            new[:, : self.entries] = old[:, : self.entries]
            return new

        for layer, (keys, values) in self._memory.items():
            self._memory[layer] = grown(keys), grown(values)
        self.entries = entries
        self._recorded.forget()

    def move(self, sources: Sequence[int], targets: Sequence[int], entries: int) -> None:
        read, write = (cache(partial(_places, tuple(slots))) for slots in (sources, targets))
        for memory in (memory for pair in self._memory.values() for memory in pair):
            rows = _as_words(memory[:, :entries])
            rows[write(memory.device)] = rows[read(memory.device)]

    def copy_out(self, slots: Sequence[int], entries: int) -> Stored:
        places = cache(partial(_places, tuple(slots)))

        def rows(memory: Tensor) -> Tensor:
            chosen = _as_words(memory[:, :entries])[places(memory.device)]
            return chosen.view(memory.dtype).view(len(slots), entries, *memory.shape[2:])

        return {layer: (rows(keys), rows(values)) for layer, (keys, values) in self._memory.items()}

    def copy_in(self, slots: Sequence[int], stored: Stored) -> None:
        places = cache(partial(_places, tuple(slots)))
        for layer, kept in stored.items():
            for memory, rows in zip(self._memory_of(layer, kept[0][0], kept[1][0]), kept, strict=True):
                _as_words(memory[:, : rows.shape[1]])[places(memory.device)] = _as_words(rows)

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._head.logits(self.states(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        return self._head.chunks(self.states(batch))

    def states(self, batch: TreeBatch) -> Tensor:
        """Evaluate and store the batch; what the head needs of its outputs."""
        layout = Layout(batch)
        size = size_of(batch) if self._records else None
        if size is not None:
            states = self._recorded.states(layout, size, self.entries + 1, self._evaluate_recorded)
            if states is not None:
                return states
        return self._evaluate(layout, batch.outputs, batch.token_ids, batch.positions, as_compiled=size is not None)

    @property
    def _records(self) -> bool:
        """Whether steps are worth recording, and can be: on a GPU, behind chains that were evaluated before."""
        if not self._memory or not self._is_in_one_place or self._recorded.cannot_record:
            return False
        keys, _ = next(iter(self._memory.values()))
        return is_available(keys) and self.windows_seen == {None}

    def _evaluate_recorded(self, layout: RecordedLayout) -> Tensor:
        return self._evaluate(layout, layout.order, layout.tokens, layout.positions, as_compiled=True)

    def _evaluate(
        self, layout: Layout, outputs: Tensor, tokens: Tensor, positions: Tensor, *, as_compiled: bool
    ) -> Tensor:
        self._layouts = {tokens.device: layout}
        layers = nullcontext() if as_compiled else faster_layers(self._head.model, len(tokens))
        with _attention_of(self._head.model, self), layers:
            states = self._head.states(outputs, input_ids=tokens[None], position_ids=positions[None])
        self._layouts = {}
        return states

    def _layout_on(self, device: torch.device) -> Layout:
        """For a model that is spread over devices: the layout is copied to each device once per forward."""
        if device not in self._layouts:
            batch = next(iter(self._layouts.values())).batch
            self._layouts[device] = Layout(batch.on(device))
        return self._layouts[device]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, style: AttentionStyle) -> Tensor:
        """One layer's attention: [1, heads, queries, width] each → [1, queries, heads, width]."""
        layout = self._layout_on(query.device)
        self.windows_seen.add(style.window)
        own_keys, own_values = key[0].transpose(0, 1), value[0].transpose(0, 1)  # [queries, heads, width]
        keys, values = self._memory_of(layer, own_keys, own_values)
        rows = layout.rows(self.entries + 1)
        _write_rows(keys, own_keys, rows)
        _write_rows(values, own_values, rows)
        parts = []
        if layout.beams:
            parts.append(attend_beams(query[0, :, : layout.beams], keys, values, layout, style))
        if layout.batch.prefix_lengths:
            rest = slice(layout.beams, None)
            parts.append(attend_chains(query[0, :, rest], key[0, :, rest], value[0, :, rest], layout, style))
        return (torch.cat(parts) if len(parts) > 1 else parts[0].contiguous())[None]

    def _memory_of(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer; made at its first use for rows like these, [queries, heads, width] each."""
        if layer not in self._memory:
            # Zeros, because a masked NaN would still spoil the weighted sum.
            keys, values = (
                zeros_as_touched((self._slots, self.entries + 1, *rows.shape[1:]), rows) for rows in (key, value)
            )
            self._memory[layer] = keys, values
        return self._memory[layer]


def _write_rows(memory: Tensor, values: Tensor, rows: Tensor) -> None:
    """One row for each query. `memory` [slots, entries, heads, width], `values` [queries, heads, width]."""
    _as_words(memory).flatten(0, 1).index_copy_(0, rows, _as_words(values.contiguous()))


def _places(slots: tuple[int, ...], device: torch.device) -> Tensor | list[int]:
    """An index of these slots; one that a GPU can read without waiting."""
    return to_device(torch.tensor(slots), device) if device.type == "cuda" else list(slots)


def _as_words(memory: Tensor) -> Tensor:
    """[…, heads, width] as […, words of 8 bytes] where they fit, else by element, which takes several times as long to
    write."""
    flat = memory.flatten(-2)
    return flat.view(torch.int64) if flat.shape[-1] * flat.element_size() % 8 == 0 else flat


_NAME = "byrote_tree"
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
    """Called by the library in place of its attention."""
    if s_aux is not None:
        raise NotImplementedError("attention sinks")
    if torch.compiler.is_compiling():
        mixed = _tree_attention(query, key, value, module.layer_number, scaling, softcap, sliding_window)
    else:
        style = AttentionStyle(scaling, softcap, sliding_window)
        mixed = _RUNNING[-1].attend(module.layer_idx, query, key, value, style)
    return mixed, None


@contextmanager
def _attention_of(model: Any, session: TreeSessionHF) -> Iterator[None]:
    """Within this block the model's attention is that of `session`."""
    from transformers import AttentionInterface

    before = model.config._attn_implementation
    AttentionInterface.register(_NAME, _attend)
    model.config._attn_implementation = _NAME
    _RUNNING.append(session)
    try:
        yield
    finally:
        _RUNNING.pop()
        model.config._attn_implementation = before
