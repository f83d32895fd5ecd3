"""A stand-in for the module `vllm`: the arguments, requests and answers of the engine that byrote uses, computed by any
causal model. It refuses what the engine refuses, and counts what arrives."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from byrote.models.base import CausalModel
from byrote.models.hf.model import HuggingFaceModel, load

KNOWN_ARGUMENTS = {
    "model", "dtype", "skip_tokenizer_init", "trust_remote_code", "generation_config", "max_logprobs", "logprobs_mode",
    "disable_log_stats", "use_tqdm_on_load", "enable_prefix_caching", "load_format", "seed", "enforce_eager",
    "block_size", "tensor_parallel_size", "gpu_memory_utilization", "max_model_len", "quantization",
}  # fmt: skip
DRAWN = 2
"""The token that every answer generates."""


@dataclass
class FlatLogprobs:
    """The lists of all places, one behind the other. Each begins with the token that was drawn or comes next."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def append(self, entries: Sequence[tuple[int, float]]) -> None:
        self.start_indices.append(len(self.token_ids))
        self.token_ids += [token for token, _ in entries]
        self.logprobs += [value for _, value in entries]
        self.end_indices.append(len(self.token_ids))


@dataclass(frozen=True)
class SamplingParams:
    """Fields of the engine's class, those that byrote may set."""

    max_tokens: int
    temperature: float
    logprobs: int
    prompt_logprobs: int | None
    detokenize: bool
    flat_logprobs: bool


@dataclass
class StandIn:
    """Module and engine in one. `opens` makes the model of a folder; `dies_after` calls of `generate` it ends."""

    opens: Callable[[str], CausalModel] = load
    dies_after: float = math.inf
    __version__: str = "0.32.0"
    SamplingParams = SamplingParams
    arguments: Mapping[str, Any] = field(default_factory=dict)
    calls: list[list[tuple[int, ...]]] = field(default_factory=list)

    def LLM(self, **arguments: Any) -> "StandIn":
        if unknown := arguments.keys() - KNOWN_ARGUMENTS:
            raise TypeError(f"EngineArgs.__init__() got an unexpected keyword argument {sorted(unknown)[0]!r}")
        self.arguments, self._model = arguments, self.opens(arguments["model"])
        return self

    def generate(
        self, prompts: Sequence[Mapping[str, Any]], params: Sequence[SamplingParams], *, use_tqdm: bool
    ) -> Any:
        assert not use_tqdm
        self.calls.append([tuple(prompt["prompt_token_ids"]) for prompt in prompts])
        if len(self.calls) > self.dies_after:
            raise RuntimeError("EngineCore encountered an issue.\nSee stack trace above.")
        return [self._answer(given, one) for given, one in zip(self.calls[-1], params, strict=True)]

    def _answer(self, token_ids: tuple[int, ...], params: SamplingParams) -> Any:
        assert (params.max_tokens, params.flat_logprobs, params.detokenize) == (1, True, False)
        assert 0 < len(token_ids) < self.arguments.get("max_model_len", 1 << 20), "the engine refuses it"
        inside = None
        if params.prompt_logprobs is not None:
            inside = FlatLogprobs([0], [0])
            for place in range(1, len(token_ids)):
                inside.append(self._listed(token_ids[:place], token_ids[place], params.prompt_logprobs))
        generated = FlatLogprobs()
        generated.append(self._listed(token_ids, DRAWN, params.logprobs))
        return SimpleNamespace(prompt_logprobs=inside, outputs=[SimpleNamespace(logprobs=generated)])

    def _listed(self, history: Sequence[int], first: int, listed: int) -> list[tuple[int, float]]:
        """The token that comes next, then the most likely ones: among equals the engine promises no order."""
        (log_probs,) = self._model.next_logits([list(history)]).log_softmax(-1).tolist()
        order = sorted(range(len(log_probs)), key=lambda token: (-log_probs[token], -token))
        return [(token, log_probs[token]) for token in (first, *(order if listed == -1 else order[:listed]))]


def small_model(folder: str) -> HuggingFaceModel:
    return load(folder, device="cpu", dtype="float32")
