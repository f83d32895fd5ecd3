"""Contracts between models and everything that measures them.

`CausalModel` is the slow, obvious seam: next-token logits for whole histories. The reference search needs no more.
`TreeModel` is the fast seam: a session owns the model's memory for a number of slots; one `forward` evaluates, packed
into one row, the live beams of many windows (each attending to its own ancestors through a mask) together with the
prefixes of windows that have just been admitted.
`LanguageModel` is what a run needs beside that: texts to tokens and back, and what tells one model from another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import torch
from torch import Tensor

from byrote.errors import WindowError
from byrote.models.hf.identity import ModelIdentity
from byrote.models.scoring import WindowScores
from byrote.models.tree_attention import Seen
from byrote.policy import Policy
from byrote.types import BosRule, Encoding


class CausalModel(Protocol):
    """Next-token logits for whole histories; no state."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a generation; a continuation that must reach length T cannot hold one before its end."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """What the model computes in. Logits leave it in float32 all the same."""
        ...

    def next_logits(self, histories: Sequence[Sequence[int]]) -> Tensor:
        """Raw logits after each history, all of one length. [histories, vocab] float32."""
        ...


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """One packed forward: first the beams of the first `len(beam_counts)` slots, then the chains of admitted slots.

    Every query position writes its state at (`slots`, `entries`) of the session's memory. A beam in lane q of slot s
    attends to the entries where `ancestry[s, q]` is true (its prefix, its ancestors and itself), those written by this
    very forward included; one that sees nothing was guessed wrongly, and its logits need only be finite. A chain (a
    prefix, or a prefix and what follows it) occupies entries 0 … length − 1 of its slot and attends causally; beams may
    descend from any place of it, now or later. `ancestry` may have rows for more slots and lanes than are live, so that
    shapes repeat. Where `columns` is given, `ancestry` and `entry_positions` are about those entries of each slot only,
    in that order: a long memory of which a forward needs little. Where `rows` is given, row r of `ancestry`,
    `entry_positions`, `columns` and `beam_counts` is about slot `rows[r]` instead of r: many slots of which few have
    beams.
    """

    token_ids: Tensor  # [queries] int64
    positions: Tensor  # [queries] int64: position in the sequence
    slots: Tensor  # [queries] int64
    entries: Tensor  # [queries] int64
    lanes: Tensor  # [beam queries] int64: row of `ancestry` each beam uses
    ancestry: Tensor  # [slots, lanes, entries in use] bool
    entry_positions: Tensor  # [slots, entries in use] int64: sequence position held by each entry
    beam_counts: tuple[int, ...]  # live beams per slot, on the host
    prefix_lengths: tuple[int, ...]  # of the chains, one per admitted slot, on the host, in packed order
    outputs: Tensor  # [outputs] int64: packed positions whose logits are wanted, in any order
    reaches: tuple[int, ...] = ()  # entries in use per slot, on the host; empty when all are like `ancestry`
    columns: Tensor | None = None  # [slots, entries in use] int64: the entry that each column is about
    rows: Tensor | None = None  # [rows] int64: the slot that each row of `ancestry` is about
    row_of: Tensor | None = None  # [beam queries] int64: the row of each, given with `rows`
    live: Seen | None = None  # what `ancestry` says, listed for a GPU's kernel, where somebody has done so already

    def __post_init__(self) -> None:
        assert (self.rows is None) == (self.row_of is None), "rows of slots and of beams go together"

    @property
    def beams(self) -> int:
        return sum(self.beam_counts)

    @property
    def beam_rows(self) -> Tensor:
        """The row of `ancestry` that each beam's slot has. [beam queries]"""
        return self.slots[: self.beams] if self.row_of is None else self.row_of

    def on(self, device: torch.device) -> "TreeBatch":
        """The same forward with its tensors on `device`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: value.to(device, non_blocking=True) for name, value in values.items() if torch.is_tensor(value)}
        return replace(self, **moved, live=None)  # type: ignore[arg-type]


Stored = Mapping[int, tuple[Tensor, ...]]
"""The first entries of some slots as a session stores them, by layer; [slots, entries, …] each."""


class TreeSession(Protocol):
    """The model's memory for a number of slots, with room for a number of entries in each. One that has the attribute
    `takes_guesses`, and says True, is given beams that may turn out to see nothing (`byrote.search.engine`)."""

    @property
    def entries(self) -> int: ...

    def grow(self, entries: int) -> None:
        """Make room for `entries` per slot; what is stored stays."""
        ...

    def move(self, source: int, target: int, entries: int) -> None:
        """Slot `target` now holds what the first `entries` of `source` held."""
        ...

    def copy_out(self, slots: Sequence[int], entries: int) -> Stored:
        """The first `entries` of these slots, for as many slots of any session of the same model."""
        ...

    def copy_in(self, slots: Sequence[int], stored: Stored) -> None:
        """These slots now begin with what was copied out. There must be room for it."""
        ...

    def forward(self, batch: TreeBatch) -> Tensor:
        """Raw logits at `batch.outputs`, in its order. [outputs, vocab] float32, the caller's to change."""
        ...

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        """The same logits as consecutive pieces, few rows at a time: those of all outputs never exist at once.

        The batch is evaluated and stored when this returns; only the logits are computed while iterating.
        """
        ...


class TreeModel(CausalModel, Protocol):
    """A causal model that can evaluate a tree of continuations for many windows at once."""

    @property
    def max_positions(self) -> int | None:
        """The longest sequence the model takes; None when it has no limit."""
        ...

    def score(self, windows: Sequence[Sequence[int]], suffix_tokens: int, policies: Sequence[Policy]) -> WindowScores:
        """Teacher-forced scores of the last `suffix_tokens` of each window (all of one length), for every policy."""
        ...

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> TreeSession:
        """A session for histories of at most `longest` tokens; None for any. A model may choose its ways by it."""
        ...

    def tree_bytes_per_entry(self) -> int:
        """Memory one entry of one slot takes, in bytes."""
        ...


class LanguageModel(TreeModel, Protocol):
    """A model that a run can be made of: it has a name, knows texts, and can be told from others."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> ModelIdentity: ...

    @property
    def searches_trees(self) -> bool:
        """Whether beams are evaluated as a tree; otherwise whole histories are."""
        ...

    @property
    def in_float32(self) -> TreeModel:
        """The same model for checks of precision: itself, or a copy in float32."""
        ...

    def score_bytes_per_token(self) -> int:
        """Memory that a token of a teacher-forced batch takes."""
        ...

    def bos_id(self, rule: BosRule) -> int | None:
        """The token to put before every prefix; None for none."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """Tokens of each text, no special ones added, with the character span of each."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...


def require_positions(
    model: TreeModel,
    tokens: int,
    *,
    what: str = "prefix + suffix are",
    advice: str = "Shorten --prefix-tokens or --suffix-tokens.",
) -> None:
    """A WindowError when the model takes no sequence of so many tokens."""
    if model.max_positions is not None and tokens > model.max_positions:
        raise WindowError(f"{what} {tokens} tokens, but the model takes at most {model.max_positions}. {advice}")
