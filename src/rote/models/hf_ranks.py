"""A Hugging Face model whose weights are spread over several processes (tensor parallel), and those that follow.

Rank 0 has a `RankedModel`, which is used like any other model. What needs the weights is told to the followers first;
sessions exist on every rank, each with the keys and values of its own heads.
"""

import atexit
import sys
import warnings
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rote.errors import ConfigError, RoteError
from rote.models.adapters import base_of
from rote.models.base import Stored, TreeBatch, TreeSession
from rote.models.hf import HuggingFaceModel
from rote.models.hf_identity import ModelIdentity, hash_weights, identity_of
from rote.models.hf_recompute import RecomputeSession
from rote.models.hf_tree import TreeSessionHF
from rote.models.hf_weights import Wanted, config_of, load_weights
from rote.models.ranks import Call, Ranks, Reference, join, ranks_started_by_others, start
from rote.models.scoring import WindowScores
from rote.policy import Policy

MODEL = 0
"""The number under which every rank has the model."""


class RankedModel(HuggingFaceModel):
    """Rank 0's side of a model that several ranks hold together."""

    def __init__(self, model: Any, tokenizer: Any, ranks: Ranks, **known: Any) -> None:
        self.ranks = ranks
        super().__init__(model, tokenizer, **known)
        assert self._head is not None  # compares forwards, which every rank takes part in

    def score(self, windows: Sequence[Sequence[int]], suffix_tokens: int, policies: Sequence[Policy]) -> WindowScores:
        self._tell("score", tuple(map(tuple, windows)), suffix_tokens, tuple(policies))
        with self.ranks.together():
            return super().score(windows, suffix_tokens, policies)

    def next_logits(self, histories: Sequence[Sequence[int]]) -> Tensor:
        self._tell("next_logits", tuple(map(tuple, histories)))
        with self.ranks.together():
            return super().next_logits(histories)

    def _probe(self, tokens: int) -> None:
        self._tell("_probe", tokens)
        with self.ranks.together():
            super()._probe(tokens)

    def _open(self, slots: int, entries: int, *, as_tree: bool) -> TreeSession:
        number = self.ranks.new_number()
        self.ranks.tell(Call(MODEL, "open_as_told", (slots, entries, as_tree), result=number))
        session = super()._open(slots, entries, as_tree=as_tree)
        assert isinstance(session, TreeSessionHF | RecomputeSession)
        return RankedSession(self, session, number)

    @cached_property
    def identity(self) -> ModelIdentity:
        self._tell("gather")
        return identity_of(self.model, self.tokenizer, name=self.name, revision=self.revision)

    @property
    def in_float32(self) -> HuggingFaceModel:
        if self.dtype != torch.float32:
            raise ConfigError(
                "--verify and --self-check need a copy of the weights in float32, which a model over several ranks "
                "has no room for; leave them out, or use --dtype float32."
            )
        return self

    def _tell(self, method: str, *arguments: Any) -> None:
        self.ranks.tell(Call(MODEL, method, arguments))


class Follower(HuggingFaceModel):
    """The side of every other rank: the same computations, as they are told."""

    def gather(self) -> None:
        """Take part while rank 0 hashes whole weights."""
        hash_weights(self.model)

    def open_as_told(self, slots: int, entries: int, as_tree: bool) -> TreeSession:
        return self._open(slots, entries, as_tree=as_tree)


class RankedSession:
    """A session on every rank. Logits are made on rank 0 alone, where tokens are chosen."""

    def __init__(self, model: RankedModel, inner: TreeSessionHF | RecomputeSession, number: int) -> None:
        self._head, self._ranks, self._inner, self._number = model._head, model.ranks, inner, number
        weakref.finalize(self, model.ranks.forget, number)

    @property
    def entries(self) -> int:
        return self._inner.entries

    def grow(self, entries: int) -> None:
        self._tell("grow", entries)
        self._inner.grow(entries)

    def move(self, source: int, target: int, entries: int) -> None:
        self._tell("move", source, target, entries)
        self._inner.move(source, target, entries)

    def copy_out(self, slots: Sequence[int], entries: int) -> Stored:
        number = self._ranks.new_number()
        self._ranks.tell(Call(self._number, "copy_out", (slots, entries), result=number))
        return StoredOnRanks(self._inner.copy_out(slots, entries), number, self._ranks)

    def copy_in(self, slots: Sequence[int], stored: Stored) -> None:
        assert isinstance(stored, StoredOnRanks)
        self._tell("copy_in", slots, Reference(stored.number))
        self._inner.copy_in(slots, stored)

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._head.logits(self._states(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        return self._head.chunks(self._states(batch))

    def _states(self, batch: TreeBatch) -> Tensor:
        self._tell("states", batch)
        with self._ranks.together():
            states = self._inner.states(batch)
            self._ranks.require_equal(states)
        return states

    def _tell(self, method: str, *arguments: Any) -> None:
        self._ranks.tell(Call(self._number, method, arguments))


class StoredOnRanks(dict[int, tuple[Tensor, ...]]):
    """Rank 0's part of what a session copied out, and the number of the other ranks' parts."""

    def __init__(self, own: Stored, number: int, ranks: Ranks) -> None:
        super().__init__(own)
        self.number = number
        weakref.finalize(self, ranks.forget, number)


def require_even_heads(config: Any, size: int) -> None:
    """Refuse to spread heads that cannot be spread evenly, and architectures that the library has no plan for."""
    config = config.get_text_config()
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, name, None)
        if heads is not None and heads % size:
            raise ConfigError(f"{name} is {heads}, which {size} ranks cannot share evenly; change --tensor-parallel.")
    if not getattr(config, "base_model_tp_plan", None):
        raise ConfigError(f"transformers has no tensor-parallel plan for {config.model_type}; use --device map.")


def start_for(wanted: Wanted, count: int | None) -> Ranks | None:
    """The ranks that load `wanted` together, the others told to; None where one process is enough."""
    count = count or ranks_started_by_others() or 1
    if count == 1:
        return None
    if wanted.device not in ("auto", "cuda", "cpu"):
        raise ConfigError(f"device is {wanted.device!r}, but every rank takes its own; leave --device out.")
    if (adapter := base_of(wanted.name, wanted.adapter)[1]) is not None:
        raise ConfigError(
            f"the adapter {adapter} cannot be merged into a model over several ranks; merge it into a folder first."
        )
    require_even_heads(config_of(wanted), count)
    ranks = start(count)
    atexit.register(ranks.end)
    ranks.tell(Call(MODEL, "load", (wanted,)))
    return ranks


def follow() -> None:
    """Do what rank 0 tells, until it ends."""
    warnings.simplefilter("ignore")  # rank 0 says it
    ranks = join()
    try:
        (wanted,) = ranks.hear().arguments
        follower = Follower(load_weights(wanted, ranks).model, None)
        assert follower._head is not None  # compares forwards, which every rank takes part in
    except RoteError as error:
        sys.exit(f"rank {ranks.rank}: {error}")
    try:
        _obey(ranks, {MODEL: follower})
    except RoteError:
        sys.exit(2)  # rank 0 came to the same end, and says so
    except RuntimeError as error:
        if "closed by peer" in str(error) or "reset by peer" in str(error):
            sys.exit(0)  # rank 0 ended, and has said why
        raise


@torch.inference_mode()
def _obey(ranks: Ranks, objects: dict[int, Any]) -> None:
    while True:
        call = ranks.hear()
        for number in call.dropped:
            objects.pop(number, None)
        found = getattr(objects[call.target], call.method)
        given = (objects[one.number] if isinstance(one, Reference) else one for one in call.arguments)
        made = found(*given) if callable(found) else found
        if call.method == "states":
            ranks.require_equal(made)
        if call.result is not None:
            objects[call.result] = made
