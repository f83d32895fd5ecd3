"""llama.cpp's llama-server: its own /completion, with token ids.

It says nothing about places inside a prompt, so each place is a prompt of its own; its cache makes that cheap. Values
are those of the model, before any sampler, unless `post_sampling_probs` is asked for.

Where the token that it samples is only part of a character it tells no probabilities at all. So it is made to sample a
letter: a bias acts on what is sampled and not on the values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

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

SAMPLES_A_LETTER = [["a", 1000.0]]


class LlamaCpp:
    name = "llamacpp"
    path = "/completion"
    scores: str | None = None
    lifts_cap = "raise --logprobs if you gave it (llama-server itself has no limit)"

    def body(self, prompts: Sequence[Prompt], *, model: str, listed: int, temperature: float) -> dict[str, Any]:
        return {
            "prompt": [list(prompt.token_ids) for prompt in prompts],
            "n_predict": 1,
            "n_probs": listed,
            **ALL_TOKENS,
            "temperature": temperature,
            "top_k": 0,
            "repeat_penalty": 1.0,
            "post_sampling_probs": False,
            "logit_bias": SAMPLES_A_LETTER,
            "cache_prompt": True,
        }

    def read(self, answer: Any, prompts: Sequence[Prompt]) -> list[list[Said]]:
        # One prompt is answered without a list around the answer.
        answers = in_order(answer if isinstance(answer, list) else [answer], "answers", len(prompts))
        for one, prompt in zip(answers, prompts, strict=True):
            require_whole(one.get("tokens_evaluated") if isinstance(one, dict) else None, [prompt])
        return [[_last(one)] for one in answers]

    def tokenize_body(self, text: str, *, model: str) -> dict[str, Any]:
        return {"content": text, "add_special": False, "parse_special": False}


def _last(answer: Any) -> Said:
    places = items(field(answer, "completion_probabilities"), "lists of tokens")
    if not places or not isinstance(places[0], Mapping):
        raise Unreadable("it has no log-probabilities")
    place = places[0]
    if "probs" in place and "top_logprobs" not in place:
        raise text_keys("this version of llama-server")
    if "top_probs" in place:
        raise Unreadable("its values are those after its samplers, though asked for those before")
    listed = items(field(place, "top_logprobs"), "a list of tokens")
    if any(isinstance(entry, Mapping) and "id" not in entry for entry in listed):
        raise text_keys("this version of llama-server")
    return {token_id(field(entry, "id")): number(field(entry, "logprob")) for entry in listed}
