"""Whatever a user gives as a model, as a `LanguageModel`: a name, a Hugging Face object or an object of their own.

Models of the user's own: anything with a vocabulary and next-token logits, made into what a run needs.

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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from byrote.distance.text import TokenTexts
from byrote.errors import ModelError
from byrote.models.base import LanguageModel, ModelIdentity, TreeSession, WindowScores
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.history import HistorySession
from byrote.models.scoring import score_by_histories
from byrote.models.token_texts import token_texts_of
from byrote.models.tokenizer import Tokenizing, hash_tokenizer
from byrote.models.vllm import VllmModel, open_vllm
from byrote.policy import Policy
from byrote.types import BosRule, Encoding


def open_model(
    name: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    adapter: str | None = None,
    engine_args: Sequence[str] = (),
) -> LanguageModel:
    """The model of a folder or a hub id; inside vLLM where its name begins with `vllm:`."""
    if name.startswith("endpoint:"):
        raise ModelError(
            f"{name} is a server, which lists its most likely tokens only; nothing but `byrote scan --model {name}` "
            "measures it, so give a model folder or hub id here."
        )
    if name.startswith(("http://", "https://")):
        raise ModelError(f"{name} is an address; if a server answers there, give --model endpoint:{name}.")
    chosen: dict[str, Any] = {"revision": revision, "dtype": dtype, "device": device, "adapter": adapter}
    if name.startswith("vllm:"):
        return open_vllm(name.removeprefix("vllm:"), engine_args=engine_args, **chosen)
    if engine_args:
        raise ModelError(f"engine_args are for models inside vLLM; give --model vllm:{name}, or leave them out.")
    return load(name, **chosen)


def as_language_model(given: Any, tokenizer: Any = None) -> LanguageModel:
    """`given` itself where it can be measured already; otherwise opened by its name or wrapped."""
    if isinstance(given, HuggingFaceModel | OwnModel | VllmModel):
        return given
    if isinstance(given, str | Path):
        return open_model(str(given))
    if isinstance(given, torch.nn.Module) and hasattr(given, "get_output_embeddings"):
        if tokenizer is None:
            raise ModelError(
                f"a {type(given).__name__} in memory comes without its tokenizer; "
                "give both: byrote.load_model(model, tokenizer=tokenizer)."
            )
        return HuggingFaceModel(given, tokenizer, name=str(getattr(given, "name_or_path", "") or "in memory"))
    if hasattr(given, "next_logits") or hasattr(given, "next_log_probs"):
        return OwnModel(given)
    kind = "None" if given is None else f"a value of type {type(given).__name__}"
    raise ModelError(
        f"{kind} is no model; give a folder or hub id, a Hugging Face model with its tokenizer, or an object "
        "with vocab_size and next_logits."
    )


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
        self.searches_trees = hasattr(model, "open_tree")
        # Only a session of its own can live on another device; answers come back to the host.
        self.device = torch.device(getattr(model, "device", "cpu") if self.searches_trees else "cpu")
        tokenizer = getattr(model, "tokenizer", None)
        self.tokenizing = None if tokenizer is None else Tokenizing(tokenizer, self.name)

    def __repr__(self) -> str:
        return f"<byrote model {self.name}: {self.vocab_size:,} tokens, an object of your own>"

    @cached_property
    def token_texts(self) -> TokenTexts:
        if self.tokenizing is None and not (self.has_texts and hasattr(self.model, "decode")):
            raise ModelError(f"{self.name} has no tokenizer, or no decode, so its answers have no text to compare.")
        return token_texts_of(self)

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

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> TreeSession:
        if self.searches_trees:
            session: TreeSession = self.model.open_tree(slots, entries, longest=longest)
            return session
        return HistorySession(
            slots,
            entries,
            device=self.device,
            evaluate=lambda histories: [
                tuple(history.token_ids[: place + 1].tolist()) for history in histories for place in history.places
            ],
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
        if self.tokenizing is not None:
            return self.tokenizing.bos_id(rule)
        bos: int | None = getattr(self.model, "bos_id", None)
        if rule == "always" and bos is None:
            raise ModelError(f"{self.name} has no beginning-of-text token; leave bos at auto, or set it to never.")
        return None if rule == "never" else bos

    @property
    def has_texts(self) -> bool:
        """Whether it has a tokenizer, or none and its own `encode_batch`."""
        return self.tokenizing is not None or (
            hasattr(self.model, "encode_batch") and not hasattr(self.model, "tokenizer")
        )

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        if self.tokenizing is not None:
            return self.tokenizing.encode_batch(texts)
        if not self.has_texts:
            raise ModelError(
                f"{self.name} has neither a tokenizer nor encode_batch, so no windows can be cut from texts; "
                "add one of them, or make byrote.Window objects of token ids."
            )
        return [Encoding(list(ids), [tuple(span) for span in spans]) for ids, spans in self.model.encode_batch(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; their ids with spaces between for a model without texts."""
        if self.tokenizing is not None:
            return self.tokenizing.decode(ids)
        if hasattr(self.model, "decode"):
            return str(self.model.decode(list(ids)))
        return " ".join(map(str, ids))

    @property
    def described(self) -> ModelIdentity:
        return self.identity

    @cached_property
    def identity(self) -> ModelIdentity:
        """`weights_hash` is of the user's fingerprint, or else of the answers to fixed histories."""
        fingerprint = getattr(self.model, "fingerprint", None)
        if fingerprint is not None:
            hashed = str(fingerprint).encode()
        else:
            histories = [[(7 * row + 3 * place) % self.vocab_size for place in range(8)] for row in range(16)]
            hashed = self.next_logits(histories).numpy().tobytes()
        if self.tokenizing is not None:
            tokenizer_hash = hash_tokenizer(self.tokenizing.tokenizer)
        else:
            encoded = self.encode_batch([PROBE_TEXT]) if self.has_texts else "token ids"
            tokenizer_hash = hashlib.sha256(repr(encoded).encode()).hexdigest()
        return ModelIdentity(
            name=self.name,
            revision=None,
            weights_hash=hashlib.sha256(hashed).hexdigest(),
            tokenizer_hash=tokenizer_hash,
            parameters=None,
            dtype="float32",
            device="cpu",
        )


def _require_sum(rows: Tensor, name: str) -> None:
    excess = rows.double().logsumexp(-1).abs()
    if not bool((excess <= ADDS_UP_WITHIN).all()):
        total = float(rows[int(excess.nan_to_num(nan=torch.inf).argmax())].double().exp().sum())
        raise ModelError(
            f"next_log_probs of {name} gave a row whose probabilities add up to {total:g} instead of 1; normalise it, "
            "or call the method next_logits if rows are meant to be normalised by byrote."
        )
