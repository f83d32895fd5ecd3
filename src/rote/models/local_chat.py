"""A Hugging Face model on this machine as a responder: by its chat template, or by plain continuation."""

from typing import Any

import torch

from rote.errors import ConfigError
from rote.models.hf import HuggingFaceModel
from rote.models.local_prompt import PromptWriter
from rote.models.responder import Answer, Reply, Request, Usage


class LocalResponder:
    """Answers with transformers' own `generate`: greedy at temperature 0, else sampling with a fixed seed.

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
        if beams < 1:
            raise ConfigError(f"The beam width is {beams}; it must be 1 or more.")
        if context_tokens is not None and context_tokens < 2:
            raise ConfigError(f"--context-tokens is {context_tokens}; prompt and answer need at least 2.")
        limits = [limit for limit in (model.max_positions, context_tokens) if limit is not None]
        self.context_tokens = min(limits) if limits else None
        self.model = model
        self.chat = chat
        self.writer = PromptWriter(model, chat=chat)
        self.beams = beams
        self.seed = seed

    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        prompt_ids = self._prompt_ids(request)
        left = None if self.context_tokens is None else self.context_tokens - len(prompt_ids)
        new_tokens = request.max_tokens if left is None else min(request.max_tokens, left)
        prompt = torch.tensor([prompt_ids], device=self.model.device)
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(self.seed + request.repetition)
            generated = self.model.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=self._generation_config(request, new_tokens=new_tokens),
            )
        completions = [self._until_end(row[len(prompt_ids) :].tolist()) for row in generated]
        answers = tuple(
            Answer(self.writer.text_after(prompt_ids, ids), "length" if len(ids) == new_tokens else "stop", tuple(ids))
            for ids in completions
        )
        return Reply(answers, Usage(len(prompt_ids), sum(len(ids) for ids in completions)))

    def close(self) -> None:
        """Nothing to let go of."""

    def _prompt_ids(self, request: Request) -> list[int]:
        if self.context_tokens is None:
            return self.writer.prompt(request.messages, room=None, most=None)
        room = max(self.context_tokens - request.max_tokens, self.context_tokens // 2)
        return self.writer.prompt(request.messages, room=room, most=self.context_tokens - 1)

    def _generation_config(self, request: Request, *, new_tokens: int) -> Any:
        """Complete, so that nothing is left to the defaults that a model brings along."""
        from transformers import GenerationConfig

        if request.temperature == 0 and request.completions > self.beams:
            raise ConfigError(
                f"{request.completions} completions at temperature 0 need as many beams; there are {self.beams}."
            )
        if request.frequency_penalty is not None or request.presence_penalty is not None:
            raise ConfigError("A local model has no frequency or presence penalty; leave them out.")
        if request.further_fields:
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

    def _until_end(self, ids: list[int]) -> list[int]:
        for place, token in enumerate(ids):
            if token in self.model.eos_ids:
                return ids[:place]
        return ids
