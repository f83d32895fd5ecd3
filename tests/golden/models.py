"""Models of the golden cases, and the texts they know. Their numbers do not depend on the machine.

`LetterModel` is a user's own model: a table of logits by history. `write_word_model` writes a Hugging Face folder whose
logits after a word are nearly a row of a table, so that commands have a model too. `jitter` moves every logit by that
much at most: with it the cases must give the same values, or they would not on another machine either.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.models.tiny import tiny_model, tiny_tokenizer

ALPHABET = "abcdefgh "
LETTER_EOS = len(ALPHABET)


def uniform(*key: object, count: int) -> np.ndarray:
    """Numbers in [0, 1) that depend on the key alone."""
    digest = hashlib.shake_128(repr(key).encode()).digest(8 * count)
    return np.frombuffer(digest, dtype="<u8") / 2.0**64


def letters(key: str, length: int) -> str:
    """A text of letters that depends on the key alone: words of two to six."""
    drawn = uniform("letters", key, count=2 * length)
    text = ""
    for place in range(length):
        lengths = 2 + int(drawn[2 * place] * 5)
        text += "".join(ALPHABET[int(one * 8)] for one in uniform("word", key, place, count=lengths)) + " "
        if len(text) > length:
            break
    return text[:length].strip()


KNOWN, HALF_KNOWN, UNKNOWN = letters("known", 90), letters("half known", 90), letters("unknown", 90)


class LetterModel:
    """Letters are tokens. Logits are noise by the whole history; after four letters of a text that it knows, the next
    one is likely."""

    name = "letters"
    vocab_size = len(ALPHABET) + 1
    eos_ids = frozenset({LETTER_EOS})
    fingerprint = "letters of the golden cases"

    def __init__(self, *, jitter: float = 0.0) -> None:
        self.jitter = jitter
        self.calls = 0
        self.calls_left: int | None = None
        """Calls that are answered before one fails; None: all are."""
        self.bonus = _bonuses({KNOWN: 6.0, HALF_KNOWN: 3.0})
        self._row = lru_cache(maxsize=None)(self._make_row)

    def next_logits(self, histories: Sequence[Sequence[int]]) -> np.ndarray:
        self.calls += 1
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise RuntimeError("the model fails, as the case asks for")
        return np.array([self._row(tuple(history)) for history in histories])

    def _make_row(self, history: tuple[int, ...]) -> np.ndarray:
        row = -4.0 * uniform(history, count=self.vocab_size)
        row[LETTER_EOS] -= 2.0
        known = self.bonus.get(history[-4:])
        if known is not None:
            row[known[0]] += known[1]
        return row + self.jitter * (2 * uniform("jitter", history, count=self.vocab_size) - 1)

    def encode_batch(self, texts: Sequence[str]) -> list[Any]:
        return [
            ([token_of(letter) for letter in text], [(place, place + 1) for place in range(len(text))])
            for text in texts
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join((*ALPHABET, "")[token] for token in ids)


def token_of(letter: str) -> int:
    """Letters of other alphabets count as one of this."""
    return ALPHABET.find(letter) if letter in ALPHABET else ord(letter) % len(ALPHABET)


def _bonuses(texts: dict[str, float]) -> dict[tuple[int, ...], tuple[int, float]]:
    """Four tokens → the next one and what it gains."""
    found: dict[tuple[int, ...], tuple[int, float]] = {}
    for text, gain in texts.items():
        ids = [ALPHABET.index(letter) for letter in text]
        for place in range(4, len(ids)):
            found.setdefault(tuple(ids[place - 4 : place]), (ids[place], gain))
    return found


WORDS = tuple(
    first + second + third
    for first in ("ba", "ke", "li", "mo", "nu", "ra")
    for second in ("se", "ti", "vo", "zu", "da", "fe")
    for third in ("gan", "hol", "jin", "kup", "lem", "mar", "nos")
)
"""252 different words, the vocabulary of the word model after <s>, </s>, <unk> and <pad>."""
SPECIAL = ("<s>", "</s>", "<unk>", "<pad>")
SIZE = len(SPECIAL) + len(WORDS)
ATTENTION = 1e-3
"""Size of what attention adds: some hundredths of a nat, far more than rounding and far less than what words gain."""


class Chain(NamedTuple):
    """Words that follow each other; `gain` is what the next one gains over noise in [-4, 0], in nats."""

    words: tuple[str, ...]
    gain: float

    @property
    def text(self) -> str:
        return " ".join(self.words)


def shuffled(key: str, words: Sequence[str]) -> tuple[str, ...]:
    return tuple(words[int(place)] for place in np.argsort(uniform(key, count=len(words))))


LEARNED = Chain(shuffled("learned", WORDS[:120]), 9.0)
HALF_LEARNED = Chain(shuffled("half learned", WORDS[120:200]), 5.5)
OTHER = Chain(shuffled("other", WORDS[:252:2]), 0.0)
"""Words in an order that the model does not know."""


def write_word_model(folder: Path, *chains: Chain, seed: str = "words", jitter: float = 0.0) -> Path:
    """A Llama of one layer: logits after a word are its row of a table, moved a little by the words before it."""
    place = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    table = np.stack([-4.0 * uniform(seed, token, count=SIZE) for token in range(SIZE)])  # [token, next token]
    table[:, 0] -= 20.0
    table[:, 2:4] -= 20.0
    table[:, 1] -= 1.0
    for chain in chains:
        for word, following in zip(chain.words, (*chain.words[1:], "</s>"), strict=True):
            table[place[word], place[following]] += chain.gain
    table += jitter * (2 * uniform("jitter", seed, count=SIZE * SIZE).reshape(SIZE, SIZE) - 1)
    config = LlamaConfig(
        vocab_size=SIZE, hidden_size=SIZE, intermediate_size=8, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=3, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for layer in model.model.layers:
            attention = layer.self_attn
            for name, scale in (("q_proj", 0.1), ("k_proj", 0.1), ("v_proj", 0.02), ("o_proj", ATTENTION)):
                drawn = 2 * uniform(seed, name, count=SIZE * SIZE).reshape(SIZE, SIZE) - 1
                getattr(attention, name).weight.copy_(torch.from_numpy(scale * drawn))
            layer.mlp.down_proj.weight.zero_()
        # The norm makes rows of the identity into √SIZE times themselves.
        model.model.embed_tokens.weight.copy_(torch.eye(SIZE))
        model.lm_head.weight.copy_(torch.from_numpy(table.T / SIZE**0.5))
    model.save_pretrained(folder)
    _word_tokenizer(place).save_pretrained(folder)
    return folder


def _word_tokenizer(place: dict[str, int]) -> PreTrainedTokenizerFast:
    pieces = {token if token in SPECIAL else f"▁{token}": number for token, number in place.items()}
    tokenizer = Tokenizer(tokenizer_models.WordLevel(pieces, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    )


def random_network(architecture: str, *, jitter: float = 0.0) -> Any:
    """A tiny model with random weights and real attention, loaded with a tokenizer of bytes."""
    from tests.golden.names import package

    network = tiny_model(architecture, seed=5, vocab_size=258)
    if jitter:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(1 + jitter * (2 * torch.rand(parameter.shape, generator=generator) - 1))
    return package.load_model(network, tokenizer=tiny_tokenizer())
