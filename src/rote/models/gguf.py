"""GGUF files in process, by llama-cpp-python: `--model model.gguf`. Needs the extra `rote[gguf]`."""

import ctypes
import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rote.errors import ModelError
from rote.models.base import TreeBatch
from rote.models.gguf_trees import Asked, GgufTrees
from rote.models.gguf_trial import try_file
from rote.models.hf_identity import ModelIdentity
from rote.models.model_folder import require_gguf
from rote.models.scoring import WindowScores, score_tokens
from rote.models.token_memory import TokenMemory
from rote.policy import Policy
from rote.types import BosRule, Encoding

CHUNK_ELEMENTS = 1 << 24
"""Logits in one piece of a forward."""


class GgufModel:
    """A language model in a .gguf file with its own tokenizer. Histories are evaluated as a tree in every pass; no keys
    or values are kept from one to the next."""

    dtype = torch.float32
    device = torch.device("cpu")
    searches_trees = True

    def __init__(self, path: str | Path, *, device: str = "auto") -> None:
        self._path = require_gguf(str(path))
        self.name = str(path)
        try_file(self._path)
        self._trees = GgufTrees(str(self._path), on_gpu=device != "cpu", threads=torch.get_num_threads())
        self.vocab_size = self._trees.vocab_size
        self.max_positions = self._trees.max_positions

    def logits(self, asked: Sequence[Asked]) -> Tensor:
        """The rows of all that is asked, one below the other. [places, vocab] float32"""
        rows = self._trees.logits(asked)
        return torch.from_numpy(np.concatenate(rows)) if rows else torch.empty(0, self.vocab_size)

    def next_logits(self, histories: Sequence[Sequence[int]]) -> Tensor:
        return self.logits([Asked(tuple(history), (len(history) - 1,)) for history in histories])

    def score(self, windows: Sequence[Sequence[int]], suffix_tokens: int, policies: Sequence[Policy]) -> WindowScores:
        places = [tuple(range(len(window) - 1))[-suffix_tokens:] for window in windows]
        asked = [Asked(tuple(window[:-1]), place) for window, place in zip(windows, places, strict=True)]
        wanted = torch.tensor([list(window[-suffix_tokens:]) for window in windows])
        scores = score_tokens(self.logits(asked), wanted.flatten(), policies)
        return WindowScores(
            scores.log_probs.reshape(len(policies), *wanted.shape),
            scores.ranks.reshape(wanted.shape),
            scores.model_log_probs.reshape(wanted.shape),
        )

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> "GgufSession":
        return GgufSession(self, slots, entries)

    def tree_bytes_per_entry(self) -> int:
        return 8

    def score_bytes_per_token(self) -> int:
        return 8

    @property
    def in_float32(self) -> "GgufModel":
        return self

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        is_end = self._call("llama_vocab_is_eog")
        return frozenset(token for token in range(self.vocab_size) if is_end(token))

    def bos_id(self, rule: BosRule) -> int | None:
        """The token to put before every prefix; None for none. `auto` does what the file says."""
        bos = int(self._call("llama_vocab_bos")())
        if rule == "always" and bos < 0:
            raise ModelError(f"{self.name} has no beginning-of-text token. Use --bos never.")
        is_added = rule == "always" or (rule == "auto" and bool(self._call("llama_vocab_get_add_bos")()))
        return bos if is_added and bos >= 0 else None

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> Encoding:
        """Tokens whose bytes, one after the other, are the text's; a span holds every character they have a part of."""
        raw = text.encode()
        ids = self._tokenize(raw)
        pieces = [self._piece(token) for token in ids]
        # Some tokenizers begin every text with a space of their own.
        own_space = b"".join(pieces) == b" " + raw
        if not own_space and b"".join(pieces) != raw:
            raise ModelError(
                f"the tokenizer of {self.name} changes what it reads, so tokens cannot be mapped to characters."
            )
        first, last = _character_at(text)
        ends = np.cumsum([len(piece) for piece in pieces]) - own_space
        starts = np.maximum(np.concatenate([[0], ends[:-1]]), 0) if len(ends) else ends
        return Encoding(ids, [(first[int(a)], last[int(b)]) for a, b in zip(starts, ends, strict=True)])

    def _tokenize(self, raw: bytes) -> list[int]:
        room = (ctypes.c_int32 * (len(raw) + 8))()
        count = self._call("llama_tokenize")(raw, len(raw), room, len(room), False, False)
        if count < 0:
            raise ModelError(f"the tokenizer of {self.name} gives more tokens than a text has bytes.")
        return list(room[:count])

    def _piece(self, token: int) -> bytes:
        room = ctypes.create_string_buffer(512)
        length = self._call("llama_token_to_piece")(token, room, len(room), 0, True)
        return room.raw[: max(0, int(length))]

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self._piece, ids)).decode(errors="replace")

    def _call(self, name: str) -> Any:
        """A function of llama.cpp about this model's vocabulary."""
        function, vocabulary = getattr(self._trees._functions, name), self._trees.vocabulary
        return lambda *arguments: function(vocabulary, *arguments)

    @cached_property
    def identity(self) -> ModelIdentity:
        with self._path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return ModelIdentity(
            name=self.name,
            revision=None,
            weights_hash=digest,
            tokenizer_hash=digest,
            parameters=int(self._trees._functions.llama_model_n_params(self._trees.model)),
            dtype="gguf",
            device="llama.cpp",
        )


class GgufSession(TokenMemory):
    """Tokens by slot and entry; the histories of a batch are one tree for llama.cpp, so that what they share is
    evaluated once."""

    def __init__(self, model: GgufModel, slots: int, entries: int) -> None:
        super().__init__(slots, entries, model.device)
        self._model = model

    def forward(self, batch: TreeBatch) -> Tensor:
        return torch.cat(list(self.forward_in_chunks(batch)))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        by_output: dict[int, tuple[tuple[int, ...], int]] = {}
        for history in self.take(batch):
            tokens = tuple(history.token_ids.tolist())
            places = zip(history.outputs, history.places, strict=True)
            by_output |= {output: (tokens[: place + 1], place) for output, place in places}
        asked = [Asked(tokens, (place,)) for _, (tokens, place) in sorted(by_output.items())]
        count = max(1, CHUNK_ELEMENTS // self._model.vocab_size)
        return (self._model.logits(asked[first : first + count]) for first in range(0, max(1, len(asked)), count))


def _character_at(text: str) -> tuple[list[int], list[int]]:
    """For every byte offset of a text: the character it lies in, and the first one that begins at or after it."""
    first, last = [], []
    for place, character in enumerate(text):
        width = len(character.encode())
        first += [place] * width
        last += [place] + [place + 1] * (width - 1)
    return [*first, len(text)], [*last, len(text)]
