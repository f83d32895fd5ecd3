"""SGLang's own /generate, with token ids. Lists hold (log-probability, token id, text or null).

Of the prompt's tokens from `logprob_start_len` on, the first has no list; each other one has the list that was made
before it came. So the places wanted begin one after it.
"""

from collections.abc import Sequence
from typing import Any

from rote.models.chat_reply import Unreadable
from rote.models.endpoint_dialects import (
    ALL_TOKENS,
    Prompt,
    Said,
    field,
    items,
    number,
    require_whole,
    text_keys,
    token_id,
)


class Sglang:
    name = "sglang"
    path = "/generate"
    scores: str | None = "logprob_start_len"
    lifts_cap = "raise --logprobs if you gave it (SGLang itself has no limit)"

    def body(self, prompts: Sequence[Prompt], *, model: str, listed: int, temperature: float) -> dict[str, Any]:
        return {
            "input_ids": [list(prompt.token_ids) for prompt in prompts],
            "sampling_params": {
                "max_new_tokens": 1,
                **ALL_TOKENS,
                "temperature": temperature,
                "top_k": -1,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
            },
            "return_logprob": True,
            "logprob_start_len": [prompt.first_place if prompt.is_chain else -1 for prompt in prompts],
            "top_logprobs_num": listed,
            "return_text_in_logprobs": False,
        }

    def read(self, answer: Any, prompts: Sequence[Prompt]) -> list[list[Said]]:
        answers = items(answer if isinstance(answer, list) else [answer], "answers", len(prompts))
        return [self._one(one, prompt) for one, prompt in zip(answers, prompts, strict=True)]

    def _one(self, answer: Any, prompt: Prompt) -> list[Said]:
        meta = field(answer, "meta_info")
        require_whole(meta.get("prompt_tokens") if isinstance(meta, dict) else None, [prompt])
        generated = items(field(meta, "output_top_logprobs"), "lists of tokens")
        if not generated:
            raise Unreadable("it has no log-probabilities")
        last = _by_token(generated[0])
        if not prompt.is_chain:
            return [last]
        own = prompt.token_ids[prompt.first_place + 1 :]
        tokens = [_token(entry) for entry in items(field(meta, "input_token_logprobs"), "tokens of the prompt")]
        if tuple(tokens[-len(own) :]) != own:
            raise Unreadable("its tokens of the prompt are not those that were sent")
        places = items(field(meta, "input_top_logprobs"), "lists for the prompt", len(tokens))[-len(own) :]
        return [*map(_by_token, places), last]

    def tokenize_body(self, text: str, *, model: str) -> dict[str, Any]:
        return {"model": model, "prompt": text, "add_special_tokens": False}


def _by_token(place: Any) -> Said:
    return {_token(entry): number(entry[0]) for entry in items(place, "a list of tokens")}


def _token(entry: Any) -> int:
    entry = items(entry, "a log-probability and a token")
    if len(entry) < 2:
        raise Unreadable("a listed token has no id")
    if isinstance(entry[1], str):
        raise text_keys("the server")
    return token_id(entry[1])
