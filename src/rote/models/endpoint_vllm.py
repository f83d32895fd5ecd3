"""vLLM, and servers that speak like it: /v1/completions with token ids.

What follows each place of a prompt comes as `prompt_logprobs`, a mapping by token id; or, where a server does not know
that field, by `echo`, in the same lists as for generated tokens. Keys of those lists are `token_id:123`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rote.models.chat_reply import Unreadable
from rote.models.endpoint_dialects import (
    ALL_TOKENS,
    Prompt,
    Said,
    field,
    in_order,
    items,
    number,
    require_whole,
    text_keys,
    token_id,
)

_KEY = "token_id:"


class Vllm:
    name = "vllm"
    path = "/v1/completions"
    lifts_cap = "start vLLM with --max-logprobs {needed}"

    def __init__(self, scores: Literal["prompt_logprobs", "echo"] = "prompt_logprobs") -> None:
        self.scores: str | None = scores

    def body(self, prompts: Sequence[Prompt], *, model: str, listed: int, temperature: float) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "model": model,
            "prompt": [list(prompt.token_ids) for prompt in prompts],
            "max_tokens": 1,
            "logprobs": listed,
            "return_tokens_as_token_ids": True,
            **ALL_TOKENS,
            "temperature": temperature,
            "top_k": -1,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }
        if any(prompt.is_chain for prompt in prompts):
            asked |= {"prompt_logprobs": listed} if self.scores == "prompt_logprobs" else {"echo": True}
        return asked

    def read(self, answer: Any, prompts: Sequence[Prompt]) -> list[list[Said]]:
        choices = in_order(field(answer, "choices"), "choices", len(prompts))
        usage = answer.get("usage")
        require_whole(usage.get("prompt_tokens") if isinstance(usage, dict) else None, prompts)
        return [self._choice(choice, prompt) for choice, prompt in zip(choices, prompts, strict=True)]

    def _choice(self, choice: Any, prompt: Prompt) -> list[Said]:
        listed = items(field(field(choice, "logprobs"), "top_logprobs"), "lists of tokens")
        if not listed:
            raise Unreadable("it has no log-probabilities")
        last = _by_key(listed[-1])
        if not prompt.is_chain:
            return [last]
        first = prompt.first_place + 1
        if self.scores == "echo":
            places = items(listed, "lists for prompt and answer", len(prompt.token_ids) + 1)[first:-1]
            inside = [_by_key(place) for place in places]
        else:
            whole = items(choice.get("prompt_logprobs"), "prompt_logprobs", len(prompt.token_ids))
            inside = [_by_id(place) for place in whole[first:]]
        return [*inside, last]

    def tokenize_body(self, text: str, *, model: str) -> dict[str, Any]:
        return {"model": model, "prompt": text, "add_special_tokens": False}


def _by_key(place: Any) -> Said:
    """A place of `top_logprobs`: keys are texts unless the server was able to do as asked."""
    if not isinstance(place, Mapping) or not place:
        raise Unreadable("a place has no log-probabilities")
    if not all(isinstance(key, str) and key.startswith(_KEY) and key[len(_KEY) :].isdecimal() for key in place):
        raise text_keys("the server")
    return {token_id(int(key[len(_KEY) :])): number(value) for key, value in place.items()}


def _by_id(place: Any) -> Said:
    """A place of `prompt_logprobs`."""
    if not isinstance(place, Mapping) or not place:
        raise Unreadable("a place of the prompt has no log-probabilities")
    if not all(isinstance(key, str) and key.isdecimal() for key in place):
        raise text_keys("the server")
    return {token_id(int(key)): number(field(value, "logprob")) for key, value in place.items()}
