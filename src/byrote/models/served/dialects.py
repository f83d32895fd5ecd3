"""How each kind of server is requested to list its most likely next tokens, and how its answers are read.

Token ids are required in both directions. Answers that name tokens by their text are refused: different tokens can
have the same text, and one of them would silently take the place of the others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from byrote.errors import EndpointError
from byrote.models.listed import Listing, Prompt
from byrote.models.served.client import Unreadable

ALL_TOKENS: Mapping[str, Any] = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0}
"""Turns off what a server might do to its probabilities before it lists them. Defaults differ, and may come from a
model's own files, so everything is set. No seed: nothing that is sampled is used, and vLLM on a CPU ends over a seeded
request whose prompt it computes in parts."""
NEUTRAL_SAMPLING: Mapping[str, Any] = {
    **ALL_TOKENS,
    "top_k": -1,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""The same in the words that vLLM and SGLang share."""
MAX_VOCABULARY = 2**24
"""Of a vocabulary; a row of logits of a larger one would not fit into memory."""


class ModelCard(NamedTuple):
    """A server's own description of the model it serves."""

    name: str
    owner: str
    max_positions: int | None
    vocab_size: int | None


class Dialect(Protocol):
    """A kind of server. `scores` names its way to list tokens at places inside a prompt; None: one prompt a place."""

    name: str
    path: str
    """Where requests go, from the root of the server."""
    scores: str | None
    lifts_cap: str
    """The setting of the server that lets it list more tokens, in words."""

    def body(self, prompts: Sequence[Prompt], *, model: str, listed: int) -> dict[str, Any]:
        """One request; its prompts are all chains or none is."""

    def read(self, answer: Any, prompts: Sequence[Prompt]) -> list[list[Listing]]:
        """The lists of each prompt, place by place. Raises `Unreadable`, or `EndpointError` for text keys."""

    def tokenize_body(self, text: str, *, model: str) -> dict[str, Any]:
        """What /tokenize takes: the text's tokens, without special ones added."""


def text_keys(server: str) -> EndpointError:
    return EndpointError(
        f"{server} names tokens by their text, not by their ids; tokens with the same text would be lost. Use a server "
        "that gives ids (vLLM, SGLang, llama.cpp's llama-server) and is recent."
    )


def number(value: Any) -> float:
    """A log-probability; servers may write minus infinity as null."""
    if value is None:
        return -float("inf")
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise Unreadable(f"a log-probability is {str(value)[:40]!r}")
    return float(value)


def token_id(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise Unreadable(f"a token id is {str(value)[:40]!r}")
    return value


def items(value: Any, what: str, count: int | None = None) -> list[Any]:
    """A list, of `count` elements where that is known."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        found = f"{len(value)} of {count}" if isinstance(value, list) else "none"
        raise Unreadable(f"it should hold {what}, and has {found}")
    return value


def in_order(value: Any, what: str, count: int) -> list[Any]:
    """A list of `count` elements in the order of the prompts: by their numbers where they have some."""
    answers = items(value, what, count)
    numbers = [one["index"] for one in answers if isinstance(one, dict) and "index" in one]
    if not numbers:
        return answers
    # Anything else would give one prompt's probabilities to another.
    if sorted(map(repr, numbers)) != sorted(map(repr, range(count))):
        raise Unreadable(f"its {what} are not numbered as the prompts are")
    return sorted(answers, key=lambda one: int(one["index"]))


def require_whole(counted: Any, prompts: Sequence[Prompt]) -> None:
    """Refuse an answer about prompts that were cut, or that a server put tokens of its own before. `counted` is the
    server's number of prompt tokens, where it gives one."""
    sent = sum(len(prompt.token_ids) for prompt in prompts)
    if isinstance(counted, int) and counted != sent:
        raise Unreadable(f"it is about {counted} tokens where {sent} were sent, so it was given another text")


def field(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise Unreadable(f"it has no {name}")
    return value[name]


def card_of(entry: Any) -> ModelCard:
    """An entry of /v1/models."""
    known: dict[str, Any] = entry if isinstance(entry, dict) else {}
    inner = known.get("meta")
    meta: dict[str, Any] = inner if isinstance(inner, dict) else {}
    return ModelCard(
        str(known.get("id", "")),
        str(known.get("owned_by", "")),
        _whole(known.get("max_model_len")) or _whole(meta.get("n_ctx")) or _whole(meta.get("n_ctx_train")),
        _whole(meta.get("n_vocab"), most=MAX_VOCABULARY),
    )


def _whole(value: Any, most: int = 2**31) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most else None


SAMPLES_A_LETTER = [["a", 1000.0]]


class LlamaCpp:
    name = "llamacpp"
    path = "/completion"
    scores: str | None = None
    lifts_cap = "raise logprobs if you gave it (llama-server itself has no limit)"

    def body(self, prompts: Sequence[Prompt], *, model: str, listed: int) -> dict[str, Any]:
        return {
            "prompt": [list(prompt.token_ids) for prompt in prompts],
            "n_predict": 1,
            "n_probs": listed,
            **ALL_TOKENS,
            "top_k": 0,
            "repeat_penalty": 1.0,
            "post_sampling_probs": False,
            "logit_bias": SAMPLES_A_LETTER,
            "cache_prompt": True,
        }

    def read(self, answer: Any, prompts: Sequence[Prompt]) -> list[list[Listing]]:
        # One prompt is answered without a list around the answer.
        answers = in_order(answer if isinstance(answer, list) else [answer], "answers", len(prompts))
        for one, prompt in zip(answers, prompts, strict=True):
            require_whole(one.get("tokens_evaluated") if isinstance(one, dict) else None, [prompt])
        return [[_last(one)] for one in answers]

    def tokenize_body(self, text: str, *, model: str) -> dict[str, Any]:
        return {"content": text, "add_special": False, "parse_special": False}


def _last(answer: Any) -> Listing:
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


class Sglang:
    name = "sglang"
    path = "/generate"
    scores: str | None = "logprob_start_len"
    lifts_cap = "raise logprobs if you gave it (SGLang itself has no limit)"

    def body(self, prompts: Sequence[Prompt], *, model: str, listed: int) -> dict[str, Any]:
        return {
            "input_ids": [list(prompt.token_ids) for prompt in prompts],
            "sampling_params": {"max_new_tokens": 1, **NEUTRAL_SAMPLING},
            "return_logprob": True,
            "logprob_start_len": [prompt.first_place if prompt.is_chain else -1 for prompt in prompts],
            "top_logprobs_num": listed,
            "return_text_in_logprobs": False,
        }

    def read(self, answer: Any, prompts: Sequence[Prompt]) -> list[list[Listing]]:
        answers = items(answer if isinstance(answer, list) else [answer], "answers", len(prompts))
        return [self._one(one, prompt) for one, prompt in zip(answers, prompts, strict=True)]

    def _one(self, answer: Any, prompt: Prompt) -> list[Listing]:
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


def _by_token(place: Any) -> Listing:
    return {_token(entry): number(entry[0]) for entry in items(place, "a list of tokens")}


def _token(entry: Any) -> int:
    entry = items(entry, "a log-probability and a token")
    if len(entry) < 2:
        raise Unreadable("a listed token has no id")
    if isinstance(entry[1], str):
        raise text_keys("the server")
    return token_id(entry[1])


class Vllm:
    name = "vllm"
    path = "/v1/completions"
    scores: str | None = "prompt_logprobs"
    lifts_cap = "start vLLM with --max-logprobs {needed}"

    def body(self, prompts: Sequence[Prompt], *, model: str, listed: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "prompt": [list(prompt.token_ids) for prompt in prompts],
            "max_tokens": 1,
            "logprobs": listed,
            "return_tokens_as_token_ids": True,
            **NEUTRAL_SAMPLING,
        }
        if any(prompt.is_chain for prompt in prompts):
            body["prompt_logprobs"] = listed
        return body

    def read(self, answer: Any, prompts: Sequence[Prompt]) -> list[list[Listing]]:
        choices = in_order(field(answer, "choices"), "choices", len(prompts))
        usage = answer.get("usage")
        require_whole(usage.get("prompt_tokens") if isinstance(usage, dict) else None, prompts)
        return [self._choice(choice, prompt) for choice, prompt in zip(choices, prompts, strict=True)]

    def _choice(self, choice: Any, prompt: Prompt) -> list[Listing]:
        listed = items(field(field(choice, "logprobs"), "top_logprobs"), "lists of tokens")
        if not listed:
            raise Unreadable("it has no log-probabilities")
        last = _by_id(listed[-1], number, prefix="token_id:")
        if not prompt.is_chain:
            return [last]
        inside = items(choice.get("prompt_logprobs"), "prompt_logprobs", len(prompt.token_ids))
        wanted = inside[prompt.first_place + 1 :]
        return [*(_by_id(place, lambda entry: number(field(entry, "logprob"))) for place in wanted), last]

    def tokenize_body(self, text: str, *, model: str) -> dict[str, Any]:
        return {"model": model, "prompt": text, "add_special_tokens": False}


def _by_id(place: Any, log_prob: Callable[[Any], float], *, prefix: str = "") -> Listing:
    """A list whose keys are ids behind `prefix`; they are texts where the server does not support ids."""
    if not isinstance(place, Mapping) or not place:
        raise Unreadable("a place has no log-probabilities")
    if not all(isinstance(key, str) and key.startswith(prefix) and key[len(prefix) :].isdecimal() for key in place):
        raise text_keys("the server")
    return {token_id(int(key[len(prefix) :])): log_prob(value) for key, value in place.items()}
