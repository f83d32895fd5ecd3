"""Text as text: tokens of what is written, even where it spells a special token.

A document may hold the characters `</s>` or `<|endoftext|>`. Tokenizers turn them into the token that ends a text,
which the text does not mean. The library's `split_special_tokens` is not enough: a Unigram or a word-level
vocabulary lists special tokens among its pieces, and a BPE may have learned to merge up to them. So a text in which one
came out is tokenised again by a copy of the tokenizer that has the same ids under names no text can spell.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from byrote.errors import ModelError
from byrote.types import BosRule, Encoding

ANCHOR = "☺"
"""Text from the middle of a prompt is tokenised behind it, so that no tokenizer takes it for a beginning."""
UNSPELLABLE = "\U0010ffff"
"""A noncharacter of Unicode: no text that is exchanged may hold it."""


class Tokenizing:
    """A tokenizer with the name of its model, for messages."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.tokenizer, self.name = tokenizer, name

    def bos_id(self, rule: BosRule) -> int | None:
        """The token to put before every prefix; None for none. `auto` does what the tokenizer itself does."""
        bos = getattr(self.tokenizer, "bos_token_id", None)
        if rule == "never":
            return None
        if rule == "always":
            if bos is None:
                raise ModelError(f"{self.name} has no beginning-of-text token; leave bos at auto, or set it to never.")
            return int(bos)
        added = self.tokenizer("a")["input_ids"]
        return int(bos) if bos is not None and added and added[0] == bos else None

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """Tokens of each text alone with their spans; nothing added, nothing special but the unknown token, for text
        that the vocabulary cannot write."""
        if not getattr(self.tokenizer, "is_fast", False):
            raise ModelError(
                f"the tokenizer of {self.name} cannot map tokens to characters. Use a model with a fast tokenizer."
            )
        if not texts:
            return []
        # verbose=False: texts longer than the model's context are cut by us, not by the tokenizer.
        out = self.tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        encodings = [_encoding(ids, spans) for ids, spans in zip(out["input_ids"], out["offset_mapping"], strict=True)]
        spelled = [place for place, encoding in enumerate(encodings) if not self.special_ids.isdisjoint(encoding.ids)]
        if spelled:
            again = self._without_special.encode_batch([texts[place] for place in spelled], add_special_tokens=False)
            for place, found in zip(spelled, again, strict=True):
                encodings[place] = _encoding(found.ids, found.offsets)
        return encodings

    @cached_property
    def special_ids(self) -> frozenset[int]:
        added = self.tokenizer.added_tokens_decoder.items()
        return frozenset(self.tokenizer.all_special_ids) | {token for token, entry in added if entry.special}

    @cached_property
    def _without_special(self) -> Any:
        """The same tokenizer, the same ids, with special tokens under names that no text spells."""
        backend = self.tokenizer.backend_tokenizer
        names = {backend.id_to_token(token): f"{UNSPELLABLE}{token}" for token in self.special_ids}
        description = json.loads(backend.to_str())
        for entry in description["added_tokens"]:
            entry["content"] = names.get(entry["content"], entry["content"])
        _rename(description["model"], names)
        renamed = type(backend).from_str(json.dumps(description))
        renamed.no_padding()
        renamed.no_truncation()
        return renamed

    @property
    def chat_template(self) -> str | None:
        """The template that writes conversations for this model; None for a base model."""
        template = getattr(self.tokenizer, "chat_template", None)
        return str(self.tokenizer.get_chat_template()) if template else None

    def rendered(self, messages: Sequence[Mapping[str, str]], *, is_open: bool = True, thinks: bool = False) -> str:
        """A conversation as the chat template writes it, up to the beginning of the next answer where it `is_open`.
        `thinks` is for templates that have a switch."""
        if self.chat_template is None:
            raise ModelError(f"The tokenizer of {self.name} has no chat template; write prompts as plain text.")
        switches = {"enable_thinking": thinks, "thinking": thinks}
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    [dict(message) for message in messages], tokenize=False, add_generation_prompt=is_open, **switches
                )
            )
        except Exception as error:  # a template is a program of the model's makers
            raise ModelError(f"the chat template of {self.name} refuses the conversation: {error}.") from error

    def encode_head(self, text: str) -> tuple[int, ...]:
        """Ids of what a template writes before a text: line breaks at its end are no end."""
        ids = self.encode_part(text, begins=True, is_template=True)
        letter = self.encode_part("a", is_template=True)
        followed = self.encode_part(text + "a", begins=True, is_template=True)
        return followed[: -len(letter)] if followed[-len(letter) :] == letter else ids

    def encode_part(self, text: str, *, begins: bool = False, is_template: bool = False) -> tuple[int, ...]:
        """Ids of a text behind others, or of one that `begins` a prompt. Special tokens are only those that a template
        wrote, or that the tokenizer puts before a plain text."""
        settings: dict[str, Any] = {"verbose": False, "split_special_tokens": not is_template}
        if begins:
            # A template has written its own beginning-of-text token.
            return tuple(self.tokenizer(text, add_special_tokens=not is_template, **settings)["input_ids"])
        anchor, whole = (
            self.tokenizer(words, add_special_tokens=False, **settings)["input_ids"]
            for words in (ANCHOR, ANCHOR + text)
        )
        if whole[: len(anchor)] == anchor:
            return tuple(whole[len(anchor) :])
        return tuple(self.tokenizer(text, add_special_tokens=False, **settings)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _encoding(ids: list[int], spans: Sequence[Sequence[int]]) -> Encoding:
    return Encoding(ids, [(start, end) for start, end in spans])


def _rename(model: dict[str, Any], names: dict[str, str]) -> None:
    """Rename entries of a tokenizer model's vocabulary; merges that would spell a renamed one are dropped."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
        return
    model["vocab"] = {names.get(piece, piece): token for piece, token in vocabulary.items()}
    if model.get("unk_token") is not None:
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if _is_known(merge, model)]


def _is_known(merge: str | list[str], model: dict[str, Any]) -> bool:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    joined = left + right.removeprefix(model.get("continuing_subword_prefix") or "")
    return all(piece in model["vocab"] for piece in (left, right, joined))


def ids_within(vocab_size: int, *named: Any) -> frozenset[int]:
    """The ids among values that may be an id, a list of them or nothing."""
    ids: set[int] = set()
    for value in named:
        ids |= set(value) if isinstance(value, list) else {value} if isinstance(value, int) else set()
    return frozenset(token for token in ids if 0 <= token < vocab_size)


def hash_tokenizer(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    description = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    special = sorted((str(name), str(token)) for name, token in tokenizer.special_tokens_map.items())
    return hashlib.sha256(f"{description}{special}".encode()).hexdigest()
