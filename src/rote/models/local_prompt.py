"""Prompts of a local model as token ids: what was generated is carried on as it was, never tokenised again.

Decoding and tokenising again is not the identity: SentencePiece drops a leading blank, merges differ, a character may
be cut in two. So an answer enters the next prompt by its own ids, and its text is read off in the place where it
stands (`text_after`). When a prompt outgrows its room, the oldest words go; the beginning-of-text token, the
instruction and the chat template stay.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from rote.errors import ModelError
from rote.models.hf import HuggingFaceModel
from rote.models.responder import Message

_ANCHOR = "☺"
"""Text in the middle of a conversation is tokenised behind it, so that no tokenizer takes it for a beginning."""
_MARK = "<rote-answer>"
_REPLACEMENT = "\ufffd"


class Exchange(NamedTuple):
    """An answer by its ids, and the template's ids from its end to the beginning of the next answer."""

    answer: tuple[int, ...]
    then: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return len(self.answer) + len(self.then)


class PromptWriter:
    """Writes the prompts of one model, by its chat template or as plain text."""

    def __init__(self, model: HuggingFaceModel, *, chat: bool) -> None:
        if chat and not getattr(model.tokenizer, "chat_template", None):
            raise ModelError(f"The tokenizer of {model.name} has no chat template; use --style text for a base model.")
        self.model = model
        self.chat = chat
        self._tails: dict[Message, tuple[int, ...]] = {}

    def prompt(self, messages: Sequence[Message], *, room: int | None, most: int | None) -> list[int]:
        """At most `room` tokens (None: any number); a beginning that cannot be cut may take up to `most`."""
        if not self.chat:
            return self._text_prompt(messages, room)
        head = self._head(messages[0])
        exchanges = self._exchanges(messages)
        if room is not None:
            exchanges = _latest(exchanges, room - len(head))
        ids = [*head, *(token for exchange in exchanges for part in exchange for token in part)]
        if most is not None and len(ids) > most:
            raise ModelError(
                f"The instruction and the prefix take {len(ids)} tokens of the {most} there are for a prompt; "
                "shorten --prefix-words or raise --context-tokens."
            )
        return ids

    def text_after(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> str:
        """What `ids` say where they stand: with their leading blank, and with characters they complete.

        Plain texts go on in the next turn, so a character whose last bytes are still to come is left to that turn.
        """
        before = self.model.decode(prompt_ids)
        whole = self.model.decode([*prompt_ids, *ids])
        if not self.chat:
            before, whole = before.rstrip(_REPLACEMENT), whole.rstrip(_REPLACEMENT)
        return whole.removeprefix(before) if whole.startswith(before) else self.model.decode(ids)

    def _text_prompt(self, messages: Sequence[Message], room: int | None) -> list[int]:
        opening, *further = messages
        ids = list(self._encode(opening.content, beginning=True))
        ids += [token for message in further for token in self._message_ids(message)]
        if room is None or len(ids) <= room:
            return ids
        head = ids[: self._beginning_tokens]
        return [*head, *ids[len(ids) - max(0, room - len(head)) :]]

    @cached_property
    def _beginning_tokens(self) -> int:
        """How many special tokens the tokenizer puts before a text."""
        plain, marked = (
            self.model.tokenizer("a", add_special_tokens=is_marked)["input_ids"] for is_marked in (False, True)
        )
        return next((n for n in range(len(marked)) if marked[n : n + len(plain)] == plain), 0)

    def _exchanges(self, messages: Sequence[Message]) -> list[Exchange]:
        pairs = zip(messages[1::2], messages[2::2], strict=True)
        return [Exchange(self._message_ids(answer), self._tail(messages[0], question)) for answer, question in pairs]

    def _message_ids(self, message: Message) -> tuple[int, ...]:
        return message.token_ids if message.token_ids is not None else self._encode(message.content)

    def _head(self, opening: Message) -> tuple[int, ...]:
        return self._template_ids(self._rendered(opening), opening.content, beginning=True)

    def _tail(self, opening: Message, question: Message) -> tuple[int, ...]:
        """What the template writes between two answers. It depends on the question alone and is made once."""
        if question not in self._tails:
            _, found, tail = self._rendered(opening, Message("assistant", _MARK), question).partition(_MARK)
            if not found:
                raise ModelError(
                    f"The chat template of {self.model.name} leaves out earlier answers; set history_turns to 0 "
                    "or use --style text."
                )
            self._tails[question] = self._template_ids(tail, question.content)
        return self._tails[question]

    def _template_ids(self, text: str, content: str, *, beginning: bool = False) -> tuple[int, ...]:
        """Ids of what the template wrote around one message; special tokens in the message itself are text."""
        before, found, after = text.partition(content.strip())
        if not found or not any(token in content for token in self.model.tokenizer.get_added_vocab()):
            return self._encode(text, beginning=beginning, is_template=True)
        return (
            *self._encode(before, beginning=beginning, is_template=True),
            *self._encode(content.strip()),
            *self._encode(after, is_template=True),
        )

    def _rendered(self, *messages: Message) -> str:
        conversation = [{"role": message.role, "content": message.content} for message in messages]
        return str(self.model.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True))

    def _encode(self, text: str, *, beginning: bool = False, is_template: bool = False) -> tuple[int, ...]:
        """Ids of a text. Special tokens are only those that the template wrote or that open a plain text."""
        settings: dict[str, Any] = {"verbose": False, "split_special_tokens": not is_template}
        if beginning:
            # A template has written its own beginning-of-text token.
            return tuple(self.model.tokenizer(text, add_special_tokens=not is_template, **settings)["input_ids"])
        anchor, whole = (
            self.model.tokenizer(words, add_special_tokens=False, **settings)["input_ids"]
            for words in (_ANCHOR, _ANCHOR + text)
        )
        if whole[: len(anchor)] == anchor:
            return tuple(whole[len(anchor) :])
        return tuple(self.model.tokenizer(text, add_special_tokens=False, **settings)["input_ids"])


def _latest(exchanges: list[Exchange], room: int) -> list[Exchange]:
    """The latest exchanges that fit; of the last one always the template and of its answer as much as fits."""
    kept: list[Exchange] = []
    for exchange in reversed(exchanges):
        if exchange.tokens > room:
            break
        kept.insert(0, exchange)
        room -= exchange.tokens
    if exchanges and not kept:
        last = exchanges[-1]
        fitting = max(0, room - len(last.then))
        kept = [last._replace(answer=last.answer[len(last.answer) - fitting :])]
    return kept
