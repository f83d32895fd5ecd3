"""The responder of a local model: prompts as token ids, answered by transformers' own `generate`.

What was generated enters the next prompt by its own ids and is never tokenised again: decoding and tokenising is not
the identity (SentencePiece drops a leading blank, merges differ, a character may be cut in two). Its text is read off
in the place where it stands (`text_after`). When a prompt exceeds its capacity, the oldest words are dropped; the
beginning-of-text token, the instruction and the chat template stay.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

import torch

from byrote.errors import ConfigError, ModelError
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.responder import Answer, Message, Reply, Request, Usage

_MARK = "<byrote-answer>"
_REPLACEMENT = "\ufffd"


Exchange = tuple[tuple[int, ...], tuple[int, ...]]
"""An answer by its ids, and the template's ids from its end to the beginning of the next answer."""


class PromptWriter:
    """Writes the prompts of one model, by its chat template or as plain text."""

    def __init__(self, model: HuggingFaceModel, *, chat: bool) -> None:
        if chat and not getattr(model.tokenizer, "chat_template", None):
            raise ModelError(f"The tokenizer of {model.name} has no chat template; use --style text for a base model.")
        self.model = model
        self.chat = chat
        self._tails: dict[Message, tuple[int, ...]] = {}

    def prompt(self, messages: Sequence[Message], *, capacity: int | None, most: int | None) -> list[int]:
        """At most `capacity` tokens (None: any number); a beginning that cannot be cut may take up to `most`."""
        if not self.chat:
            return self._text_prompt(messages, capacity)
        opening = messages[0]
        head = self._template_ids(self._rendered(opening), opening.content, beginning=True)
        exchanges = [
            (self._message_ids(answer), self._tail(opening, question))
            for answer, question in zip(messages[1::2], messages[2::2], strict=True)
        ]
        if capacity is not None:
            exchanges = _latest(exchanges, capacity - len(head))
        ids = [*head, *(token for exchange in exchanges for part in exchange for token in part)]
        if most is not None and len(ids) > most:
            raise ModelError(
                f"The instruction and the prefix take {len(ids)} tokens of the {most} there are for a prompt; "
                "shorten --prefix-words or raise --context-tokens."
            )
        return ids

    def text_after(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> str:
        """The text of `ids` where they stand: with their leading blank, and with characters they complete.

        Plain texts go on in the next turn, so an incomplete last character is left to that turn.
        """
        read = self.model.decode if self.chat else self._complete_text
        before, whole = read(prompt_ids), read([*prompt_ids, *ids])
        return whole.removeprefix(before) if whole.startswith(before) else self.model.decode(ids)

    def _complete_text(self, ids: Sequence[int]) -> str:
        """The text without an incomplete last character, of which up to three bytes may be there. Some tokenizers
        spoil every byte before it, too."""
        for end in range(len(ids), max(0, len(ids) - 4), -1):
            text = self.model.decode(ids[:end])
            if not text.endswith(_REPLACEMENT):
                return text
        return self.model.decode(ids).rstrip(_REPLACEMENT)

    def _text_prompt(self, messages: Sequence[Message], capacity: int | None) -> list[int]:
        opening, *further = messages
        ids = list(self.model.encode_part(opening.content, begins=True))
        ids += [token for message in further for token in self._message_ids(message)]
        if capacity is None or len(ids) <= capacity:
            return ids
        head = ids[: self._beginning_tokens]
        return [*head, *ids[len(ids) - max(0, capacity - len(head)) :]]

    @cached_property
    def _beginning_tokens(self) -> int:
        """How many special tokens the tokenizer puts before a text."""
        plain, marked = (
            self.model.tokenizer("a", add_special_tokens=is_marked)["input_ids"] for is_marked in (False, True)
        )
        return next((n for n in range(len(marked)) if marked[n : n + len(plain)] == plain), 0)

    def _message_ids(self, message: Message) -> tuple[int, ...]:
        return self.model.encode_part(message.content) if message.token_ids is None else message.token_ids

    def _tail(self, opening: Message, question: Message) -> tuple[int, ...]:
        """What the template writes between two answers. It depends on the question alone and is rendered once."""
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
            return self.model.encode_part(text, begins=beginning, is_template=True)
        return (
            *self.model.encode_part(before, begins=beginning, is_template=True),
            *self.model.encode_part(content.strip()),
            *self.model.encode_part(after, is_template=True),
        )

    def _rendered(self, *messages: Message) -> str:
        conversation = [{"role": message.role, "content": message.content} for message in messages]
        return str(self.model.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True))


def _latest(exchanges: list[Exchange], capacity: int) -> list[Exchange]:
    """The latest exchanges that fit; of the last one always the template and of its answer as much as fits."""
    kept: list[Exchange] = []
    for answer, then in reversed(exchanges):
        if len(answer) + len(then) > capacity:
            break
        kept.insert(0, (answer, then))
        capacity -= len(answer) + len(then)
    if exchanges and not kept:
        answer, then = exchanges[-1]
        kept = [(answer[len(answer) - max(0, capacity - len(then)) :], then)]
    return kept


class LocalResponder:
    """Greedy at temperature 0, else sampling with a fixed seed.

    With `chat` the tokenizer's template writes the conversation, and the model may end its answer. Without, the
    messages are joined as one text that the model goes on with, and the end of text is suppressed, so that every
    answer has its full length. `context_tokens` (at most what the model takes) are shared by prompt and answer: a
    long prompt loses its oldest words, down to no less than half of them, and the answer gets the rest.
    """

    def __init__(
        self,
        model: HuggingFaceModel,
        *,
        chat: bool,
        beams: int = 1,
        seed: int = 0,
        context_tokens: int | None = None,
    ) -> None:
        if context_tokens is not None and context_tokens < 2:
            raise ConfigError(f"--context-tokens is {context_tokens}; prompt and answer need at least 2.")
        limits = [limit for limit in (model.max_positions, context_tokens) if limit is not None]
        self.context_tokens = min(limits) if limits else None
        self.model, self.chat, self.beams, self.seed = model, chat, beams, seed
        self.writer = PromptWriter(model, chat=chat)

    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        if self.context_tokens is None:
            prompt_ids = self.writer.prompt(request.messages, capacity=None, most=None)
            new_tokens = request.max_tokens
        else:
            capacity = max(self.context_tokens - request.max_tokens, self.context_tokens // 2)
            prompt_ids = self.writer.prompt(request.messages, capacity=capacity, most=self.context_tokens - 1)
            new_tokens = min(request.max_tokens, self.context_tokens - len(prompt_ids))
        prompt = torch.tensor([prompt_ids], device=self.model.device)
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(self.seed + request.repetition)
            generated = self.model.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=self._generation_config(request, new_tokens=new_tokens),
            )
        completions = [
            list(takewhile(lambda token: token not in self.model.eos_ids, row[len(prompt_ids) :].tolist()))
            for row in generated
        ]
        answers = tuple(
            Answer(self.writer.text_after(prompt_ids, ids), "length" if len(ids) == new_tokens else "stop", tuple(ids))
            for ids in completions
        )
        return Reply(answers, Usage(len(prompt_ids), sum(len(ids) for ids in completions)))

    def close(self) -> None:
        """No connection to close."""

    def _generation_config(self, request: Request, *, new_tokens: int) -> Any:
        """Complete, so that no default of the model applies."""
        from transformers import GenerationConfig

        if request.temperature == 0 and request.completions > self.beams:
            raise ConfigError(
                f"{request.completions} completions at temperature 0 need as many beams; there are {self.beams}."
            )
        if request.frequency_penalty is not None or request.presence_penalty is not None:
            raise ConfigError("A local model has no frequency or presence penalty; leave them out.")
        if request.further_fields not in ("", "{}"):
            raise ConfigError("A local model takes no request fields; leave --request-fields out.")
        ends = sorted(self.model.eos_ids)
        sampling = {"do_sample": True, "temperature": request.temperature, "top_k": 0, "top_p": 1.0}
        return GenerationConfig(
            max_new_tokens=new_tokens,
            num_return_sequences=request.completions,
            num_beams=self.beams,
            repetition_penalty=1.0,
            eos_token_id=ends or None,
            pad_token_id=ends[0] if ends else 0,
            suppress_tokens=None if self.chat or not ends else ends,
            **(sampling if request.temperature > 0 else {"do_sample": False}),
        )
