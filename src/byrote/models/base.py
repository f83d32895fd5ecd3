"""The contract between models and everything that measures them. It imports no implementation.

`CausalModel` is the slow, obvious seam: next-token logits for whole histories; the reference search needs no more.
`TreeModel` is the fast seam: a session owns the memory (keys and values, for example) of a number of slots, and one
`forward` evaluates, packed into one row, the live beams of many windows, each attending to its own ancestors through a
mask, together with the prefixes of newly admitted windows.
`LanguageModel` is what a run needs: tokenisation, an identity, and memory estimates.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from byrote.distance.text import TokenTexts
from byrote.errors import WindowError
from byrote.models.tokenizer import Tokenizing
from byrote.policy import Policy
from byrote.types import BosRule, Encoding


class CausalModel(Protocol):
    """Next-token logits for whole histories; no state."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a generation; a continuation that must reach length T cannot hold one before its end."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """What the model computes in. Logits leave it in float32 all the same."""

    @property
    def token_texts(self) -> TokenTexts:
        """The text of every token, on its device; a ModelError where it cannot be known."""

    def next_logits(self, histories: Sequence[Sequence[int]]) -> Tensor:
        """Raw logits after each history, all of one length. [histories, vocab] float32."""


class Seen(NamedTuple):
    """An ancestry mask listed for a GPU kernel: the entries of each row that some lane attends to come first."""

    columns: Tensor  # [rows, entries] int32: entries in the session's memory, live ones first
    counts: Tensor  # [rows] int64: how many are live
    bits: Tensor  # [rows, words, entries] int32, in the order of `columns`: bit b of word w is lane 32 w + b


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """One packed forward: first the beams of the first `len(beam_counts)` slots, then the chains of admitted slots.

    Every query position writes its state at (`slots`, `entries`) of the session's memory. The beam in lane q of slot s
    attends to the entries where `ancestry[s, q]` is true (its prefix, its ancestors and itself), including those
    written by this forward. A chain (a prefix, or a prefix and what follows it) occupies entries 0 … length − 1 of its
    slot and attends causally; beams may descend from any place of it, now or later. `ancestry` may have rows for more
    slots and lanes than are live, so that shapes repeat. With `columns`, `ancestry` and `entry_positions` cover only
    those entries of each slot, in that order: for a long memory of which a forward needs little. With `rows`, row r of
    `ancestry`, `entry_positions`, `columns` and `beam_counts` is about slot `rows[r]` instead of r: for many slots of
    which few have beams.
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
    outputs: Tensor  # [outputs] int64: packed positions whose logits are returned, in any order
    reaches: tuple[int, ...] = ()  # entries in use per slot, on the host; empty when all are like `ancestry`
    columns: Tensor | None = None  # [slots, entries in use] int64: the entry that each column is about
    rows: Tensor | None = None  # [rows] int64: the slot that each row of `ancestry` is about
    row_of: Tensor | None = None  # [beam queries] int64: the row of each, given with `rows`
    live: Seen | None = None  # `ancestry` listed for a GPU kernel, where the caller has it already

    @property
    def beams(self) -> int:
        return sum(self.beam_counts)

    @property
    def beam_rows(self) -> Tensor:
        """The row of `ancestry` that each beam's slot has. [beam queries]"""
        return self.slots[: self.beams] if self.row_of is None else self.row_of

    def on(self, device: torch.device) -> "TreeBatch":
        """The same batch with its tensors on `device`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: value.to(device, non_blocking=True) for name, value in values.items() if torch.is_tensor(value)}
        return replace(self, **moved, live=None)  # type: ignore[arg-type]


Stored = Mapping[int, tuple[Tensor, ...]]
"""The first entries of some slots as a session stores them, by layer; [slots, entries, …] each."""


class TreeSession(Protocol):
    """A model's memory for a number of slots with a number of entries each."""

    @property
    def entries(self) -> int:
        """Capacity of every slot."""

    def grow(self, entries: int) -> None:
        """Raise the capacity to `entries` per slot; what is stored stays."""

    def move(self, sources: Sequence[int], targets: Sequence[int], entries: int) -> None:
        """Copy the first `entries` of each source slot to its target slot; no slot is both."""

    def copy_out(self, slots: Sequence[int], entries: int) -> Stored:
        """The first `entries` of these slots, for `copy_in` to as many slots of any session of the same model."""

    def copy_in(self, slots: Sequence[int], stored: Stored) -> None:
        """Write what was copied out to the first entries of these slots, which must have the capacity."""

    def forward(self, batch: TreeBatch) -> Tensor:
        """Raw logits at `batch.outputs`, in its order. [outputs, vocab] float32, the caller's to change."""

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        """The same logits in consecutive pieces of a few rows, so that those of all outputs never exist at once.

        The batch is stored when this returns; logits are computed while iterating.
        """


class WindowScores(NamedTuple):
    """Scores of every suffix token of every window; rows are windows of one shape."""

    log_probs: Tensor  # [policies, windows, suffix] float64
    ranks: Tensor  # [windows, suffix] int64
    model_log_probs: Tensor  # [windows, suffix] float64


class TreeModel(CausalModel, Protocol):
    """A causal model that evaluates trees of continuations of many windows at once."""

    @property
    def max_positions(self) -> int | None:
        """The longest sequence the model takes; None when it has no limit."""

    @property
    def in_float32(self) -> "TreeModel":
        """The same model for checks of precision: itself, or a copy in float32."""

    def score(self, windows: Sequence[Sequence[int]], suffix_tokens: int, policies: Sequence[Policy]) -> WindowScores:
        """Teacher-forced scores of the last `suffix_tokens` of each window (all of one length), for every policy."""

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> TreeSession:
        """A session for histories of at most `longest` tokens; None for any length."""

    def tree_bytes_per_entry(self) -> int:
        """Memory of one entry of one slot."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What distinguishes one model from another in a manifest."""

    name: str
    revision: str | None
    weights_hash: str
    tokenizer_hash: str
    parameters: int | None
    """None where the number is not known."""
    dtype: str
    device: str
    adapter_hash: str | None = field(default=None, kw_only=True)
    """Of the adapter that was merged into the weights; `weights_hash` is of the merged ones."""
    quantization: str | None = field(default=None, kw_only=True)
    """Settings of the quantisation in JSON; None for weights as they were trained."""
    weights_fingerprint: str | None = field(default=None, kw_only=True)
    """Of names, shapes and sampled blocks of the weights, where hashing all of them takes long."""
    settings: str | None = field(default=None, kw_only=True)
    """What decides the computation beside the weights (heads, rotary angles, norms, special tokens), in JSON; None for
    a model without such settings."""

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What makes two models the same model, wherever they are stored."""
        weights = "weights_hash" if self.weights_fingerprint is None else "weights_fingerprint"
        known = {name: getattr(self, name) for name in (weights, "tokenizer_hash", "dtype")}
        further = {"adapter_hash": self.adapter_hash, "quantization": self.quantization}
        if self.settings is not None:
            further["settings"] = json.loads(self.settings)
        return known | {name: value for name, value in further.items() if value is not None}


class LanguageModel(TreeModel, Protocol):
    """A model that a run can use."""

    @property
    def name(self) -> str: ...

    @property
    def described(self) -> ModelIdentity:
        """The identity as far as it is known at once: `weights_hash` may be empty while the weights are hashed."""

    @property
    def identity(self) -> ModelIdentity:
        """Waits until the weights are hashed."""

    @property
    def searches_trees(self) -> bool:
        """Whether beams are evaluated as a tree; otherwise whole histories are."""

    def score_bytes_per_token(self) -> int:
        """Memory of one token of a teacher-forced batch."""

    def compile_layers(self) -> None:
        """Take a minute for faster forwards from then on; does nothing where layers cannot be compiled."""

    def bos_id(self, rule: BosRule) -> int | None:
        """The token to put before every prefix; None for none."""

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """Tokens of each text, no special ones added, with the character span of each."""

    def decode(self, ids: Sequence[int]) -> str: ...

    @property
    def tokenizing(self) -> Tokenizing | None:
        """Its Hugging Face tokenizer, which may have a chat template; None for a model without one."""


def require_positions(
    model: TreeModel,
    tokens: int,
    *,
    what: str = "prefix + suffix are",
    advice: str = "Shorten --prefix-tokens or --suffix-tokens.",
) -> None:
    """Raise a WindowError when the model takes no sequence of so many tokens."""
    if model.max_positions is not None and tokens > model.max_positions:
        raise WindowError(f"{what} {tokens} tokens, but the model takes at most {model.max_positions}. {advice}")
