"""Models of the user's own: anything with a vocabulary and next-token logits, made into what a run needs.

The contract, all of it:

    vocab_size: int                    tokens are 0 … vocab_size − 1
    next_logits(histories)             [histories, vocab_size] numbers: logits after each history. A constant added to a
                                       row changes nothing; −inf is a token that cannot come
    next_log_probs(histories)          instead of it: log-probabilities, each row adding up to 1

`histories` are lists of token ids, all of one length, at least one token each. The answer may be a torch tensor, a
numpy array or nested lists; its rows are in the order of the histories and depend on nothing else. Optional:

    name: str                          for manifests and messages
    eos_ids: set of int                tokens that end a generation
    max_positions: int                 the longest history
    tokenizer                          a fast Hugging Face tokenizer; or
    encode_batch(texts), decode(ids)   (ids, character spans) of each text, and back
    bos_id: int                        put before every prefix
    fingerprint: str                   identifies this model; without it, its answers to fixed histories do
    open_tree, tree_bytes_per_entry    a session of its own on its `device` (`models/base.py`)
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from byrote.errors import ModelError
from byrote.models.base import ModelIdentity, TreeSession, WindowScores
from byrote.models.history import History, HistorySession
from byrote.models.scoring import score_by_histories
from byrote.models.tokenizer import Tokenizing, hash_tokenizer
from byrote.policy import Policy
from byrote.types import BosRule, Encoding

CHUNK_ELEMENTS = 1 << 24
"""Logits computed at once."""
ADDS_UP_WITHIN = 1e-3
"""How far the log of a row's sum may be from 0: float32 sums over a large vocabulary are off by less."""
PROBE_TEXT = "The quick brown fox jumps over the lazy dog; 0123456789."


class OwnModel:
    """A user's model as a `LanguageModel`. Answers are checked for shape, and log-probabilities for their sum;
    `byrote.testing.check_model` checks the rest."""

    dtype = torch.float32

    def __init__(self, model: Any) -> None:
        self.model = model
        self.name = str(getattr(model, "name", type(model).__name__))
        size = getattr(model, "vocab_size", None)
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ModelError(
                f"vocab_size of {self.name} is {size!r}; it must be the number of its tokens, a whole number from 1."
            )
        self.vocab_size = int(size)
        self.eos_ids = frozenset(int(token) for token in getattr(model, "eos_ids", ()))
        self.max_positions: int | None = getattr(model, "max_positions", None)
        # Only a session of its own can live on another device; answers come back to the host.
        self.device = torch.device(getattr(model, "device", "cpu") if hasattr(model, "open_tree") else "cpu")
        tokenizer = getattr(model, "tokenizer", None)
        self._tokenizing = None if tokenizer is None else Tokenizing(tokenizer, self.name)

    def next_logits(self, histories: Sequence[Sequence[int]]) -> Tensor:
        if not len(histories):
            return torch.empty(0, self.vocab_size)
        gives_log_probs = hasattr(self.model, "next_log_probs")
        method = "next_log_probs" if gives_log_probs else "next_logits"
        answer = getattr(self.model, method)([list(history) for history in histories])
        try:
            rows = answer if isinstance(answer, Tensor) else torch.from_numpy(np.array(answer, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"{method} of {self.name} gave no table of numbers ({error}); return [histories, vocab_size] of them."
            ) from error
        rows = rows.detach().cpu()
        if rows.shape != (len(histories), self.vocab_size):
            raise ModelError(
                f"{method} of {self.name} gave the shape {list(rows.shape)} for {len(histories)} histories; it must be "
                f"[{len(histories)}, {self.vocab_size}], the histories by the vocabulary size."
            )
        if gives_log_probs:
            _require_sum(rows, self.name)
        return rows.float()

    def score(self, windows: Sequence[Sequence[int]], suffix_tokens: int, policies: Sequence[Policy]) -> WindowScores:
        return score_by_histories(self.next_logits, windows, suffix_tokens, policies)

    @property
    def searches_trees(self) -> bool:
        return hasattr(self.model, "open_tree")

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> TreeSession:
        if self.searches_trees:
            session: TreeSession = self.model.open_tree(slots, entries, longest=longest)
            return session
        return HistorySession(
            slots,
            entries,
            device=self.device,
            evaluate=_token_ids,
            logits=self._logits,
            rows_at_once=max(1, CHUNK_ELEMENTS // self.vocab_size),
        )

    def _logits(self, histories: Sequence[tuple[int, ...]]) -> Tensor:
        """After histories of any lengths: those of one length are evaluated together, equal ones once."""
        by_length: dict[int, dict[tuple[int, ...], list[int]]] = {}
        for row, history in enumerate(histories):
            by_length.setdefault(len(history), {}).setdefault(history, []).append(row)
        logits = torch.empty(len(histories), self.vocab_size)
        for rows_of in by_length.values():
            for rows, answer in zip(rows_of.values(), self.next_logits(list(rows_of)), strict=True):
                logits[rows] = answer
        return logits

    def tree_bytes_per_entry(self) -> int:
        return int(self.model.tree_bytes_per_entry()) if hasattr(self.model, "tree_bytes_per_entry") else 8

    def score_bytes_per_token(self) -> int:
        return 8

    def compile_layers(self) -> None:
        """It has no layers here."""

    @property
    def in_float32(self) -> "OwnModel":
        return self

    def bos_id(self, rule: BosRule) -> int | None:
        if self._tokenizing is not None:
            return self._tokenizing.bos_id(rule)
        bos: int | None = getattr(self.model, "bos_id", None)
        if rule == "always" and bos is None:
            raise ModelError(f"{self.name} has no beginning-of-text token. Use --bos never.")
        return None if rule == "never" else bos

    @property
    def has_texts(self) -> bool:
        """Whether it has a tokenizer, or none and its own `encode_batch`."""
        return self._tokenizing is not None or (
            hasattr(self.model, "encode_batch") and not hasattr(self.model, "tokenizer")
        )

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        if self._tokenizing is not None:
            return self._tokenizing.encode_batch(texts)
        if not self.has_texts:
            raise ModelError(
                f"{self.name} has neither a tokenizer nor encode_batch, so no windows can be cut from texts; "
                "add one of them, or make byrote.Window objects of token ids."
            )
        return [Encoding(list(ids), [tuple(span) for span in spans]) for ids, spans in self.model.encode_batch(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; their ids with spaces between for a model without texts."""
        if self._tokenizing is not None:
            return self._tokenizing.decode(ids)
        if hasattr(self.model, "decode"):
            return str(self.model.decode(list(ids)))
        return " ".join(map(str, ids))

    @cached_property
    def identity(self) -> ModelIdentity:
        """`weights_hash` is of the user's fingerprint, or else of the answers to fixed histories."""
        fingerprint = getattr(self.model, "fingerprint", None)
        if fingerprint is not None:
            hashed = str(fingerprint).encode()
        else:
            histories = [[(7 * row + 3 * place) % self.vocab_size for place in range(8)] for row in range(16)]
            hashed = self.next_logits(histories).numpy().tobytes()
        return ModelIdentity(
            name=self.name,
            revision=None,
            weights_hash=hashlib.sha256(hashed).hexdigest(),
            tokenizer_hash=self._tokenizer_hash(),
            parameters=None,
            dtype="float32",
            device="cpu",
        )

    def _tokenizer_hash(self) -> str:
        if self._tokenizing is not None:
            return hash_tokenizer(self._tokenizing.tokenizer)
        encoded = self.encode_batch([PROBE_TEXT]) if self.has_texts else "token ids"
        return hashlib.sha256(repr(encoded).encode()).hexdigest()


def _token_ids(histories: list[History]) -> list[tuple[int, ...]]:
    """The whole history behind each output, in the batch's order."""
    found: dict[int, tuple[int, ...]] = {}
    for history in histories:
        tokens = tuple(history.token_ids.tolist())
        found |= {out: tokens[: place + 1] for out, place in zip(history.outputs, history.places, strict=True)}
    return [found[output] for output in range(len(found))]


def _require_sum(rows: Tensor, name: str) -> None:
    excess = rows.double().logsumexp(-1).abs()
    if not bool((excess <= ADDS_UP_WITHIN).all()):
        total = float(rows[int(excess.nan_to_num(nan=torch.inf).argmax())].double().exp().sum())
        raise ModelError(
            f"next_log_probs of {name} gave a row whose probabilities add up to {total:g} instead of 1; normalise it, "
            "or call the method next_logits if rows are meant to be normalised by byrote."
        )
