"""A Hugging Face model on this machine as a responder: by its chat template, or by plain continuation."""

from collections.abc import Sequence
from typing import Any

import torch

from rote.errors import ConfigError, ModelError
from rote.models.responder import Answer, Message, Reply, Request, Usage


class LocalResponder:
    """Answers with transformers' own `generate`: greedy at temperature 0, else sampling with a fixed seed.

    With `chat` the tokenizer's template writes the conversation; without, the messages are joined as one text that
    the model goes on with. What does not fit the model is cut from the left. `beams` > 1 searches with that width.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, chat: bool, beams: int = 1, seed: int = 0, suppress_eos: bool = False
    ) -> None:
        if chat and not getattr(tokenizer, "chat_template", None):
            raise ModelError("The tokenizer has no chat template; use --style text for a base model.")
        if beams < 1:
            raise ConfigError(f"The beam width is {beams}; it must be 1 or more.")
        self.model = model
        self.tokenizer = tokenizer
        self.chat = chat
        self.beams = beams
        self.seed = seed
        self.suppress_eos = suppress_eos

    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        prompt_ids = self._fitting(self._prompt_ids(request.messages), request.max_tokens)
        prompt = torch.tensor([prompt_ids], device=self.model.device)
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(self.seed)
            generated = self.model.generate(
                prompt, attention_mask=torch.ones_like(prompt), **self._generation_arguments(request)
            )
        completions = [row[len(prompt_ids) :].tolist() for row in generated]
        answers = tuple(self._answer(ids, request.max_tokens) for ids in completions)
        tokens = sum(len(self._until_end(ids)) for ids in completions)
        return Reply(answers, Usage(prompt_tokens=len(prompt_ids), completion_tokens=tokens))

    def _prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        if self.chat:
            conversation = [message._asdict() for message in messages]
            text = self.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
            ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            ids = self.tokenizer("".join(message.content for message in messages))["input_ids"]
        return ids

    def _fitting(self, prompt_ids: list[int], max_tokens: int) -> list[int]:
        limit = getattr(self.model.config, "max_position_embeddings", None)
        if limit is None:
            return prompt_ids
        if max_tokens >= limit:
            raise ConfigError(f"max_tokens is {max_tokens}; the model takes {limit} tokens, prompt included.")
        return prompt_ids[-(limit - max_tokens) :]

    def _generation_arguments(self, request: Request) -> dict[str, Any]:
        pad = self.tokenizer.pad_token_id
        arguments: dict[str, Any] = {
            "max_new_tokens": request.max_tokens,
            "num_return_sequences": request.completions,
            "num_beams": self.beams,
            "do_sample": request.temperature > 0,
            "pad_token_id": pad if pad is not None else self.tokenizer.eos_token_id,
        }
        if request.temperature > 0:
            arguments["temperature"] = request.temperature
        elif request.completions > self.beams:
            raise ConfigError(
                f"{request.completions} completions at temperature 0 need as many beams; there are {self.beams}."
            )
        if self.suppress_eos and self.tokenizer.eos_token_id is not None:
            arguments["suppress_tokens"] = [self.tokenizer.eos_token_id]
        return arguments

    def _answer(self, ids: list[int], max_tokens: int) -> Answer:
        ids = self._until_end(ids)
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Answer(text, "length" if len(ids) == max_tokens else "stop")

    def _until_end(self, ids: list[int]) -> list[int]:
        end = self.tokenizer.eos_token_id
        return ids[: ids.index(end)] if end in ids else ids


def load_local(path_or_id: str, *, chat: bool, beams: int = 1, seed: int = 0, device: str = "cpu") -> LocalResponder:
    """The model and tokenizer at a path or hub id, ready to answer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path_or_id)
        model = AutoModelForCausalLM.from_pretrained(path_or_id, dtype=torch.float32).to(device).eval()
    except (OSError, ValueError) as error:
        raise ModelError(f"Cannot load the model {path_or_id!r}: {error}") from error
    return LocalResponder(model, tokenizer, chat=chat, beams=beams, seed=seed, suppress_eos=not chat)
