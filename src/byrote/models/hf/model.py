"""The Hugging Face back end: loading, tokenising, and the contracts of `base` on top of a causal language model."""

import copy
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from byrote.distance.text import TokenTexts
from byrote.models.base import ModelIdentity, TreeSession, WindowScores
from byrote.models.hf import weights
from byrote.models.hf.graphs import compile_layers, most_layers_together
from byrote.models.hf.head import ChunkedHead
from byrote.models.hf.probe import USUAL_TOKENS, Probed, probe_trees
from byrote.models.hf.tree import TreeSessionHF
from byrote.models.history import HistorySession
from byrote.models.scoring import check_weights, score_tokens
from byrote.models.token_texts import token_texts_of
from byrote.models.tokenizer import Tokenizing, hash_tokenizer, ids_within
from byrote.policy import Policy


class HuggingFaceModel(Tokenizing):
    """A causal language model with its tokenizer. Build one with `load`, or around objects already in memory."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "in memory",
        revision: str | None = None,
        adapter_hash: str | None = None,
    ) -> None:
        check_weights(model, name)
        super().__init__(tokenizer, name)
        has_caps = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
        if has_caps and model.config._attn_implementation == "sdpa":
            # Some versions of the library choose a fused attention that silently leaves out soft caps (Gemma 2).
            model.set_attn_implementation("eager")
        self.model = model.eval()
        self.revision, self.adapter_hash = revision, adapter_hash
        self._probed: dict[int, Probed] = {}
        """Results of probes, by the length of their histories."""
        self._faults: set[str] = set()
        """Why some sessions recompute their histories."""

    def __repr__(self) -> str:
        return f"<byrote model {self.name}: {self.vocab_size:,} tokens, {self.dtype}, on {self.device}>"

    @property
    def tokenizing(self) -> Tokenizing:
        return self

    @property
    def vocab_size(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @cached_property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.model.dtype  # which walks over all modules
        return dtype

    @property
    def max_positions(self) -> int | None:
        config = self.model.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "longrope":
            # Beyond the original length every position turns by other angles, those already stored included.
            original = rope.get("original_max_position_embeddings") or limit
            limit = original if limit is None else min(limit, original)
        return None if limit is None else int(limit)

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a generation: the generation settings' and the tokenizer's."""
        generation = getattr(self.model, "generation_config", None)
        sources = (generation, self.model.config.get_text_config(), self.tokenizer)
        return ids_within(self.vocab_size, *(getattr(source, "eos_token_id", None) for source in sources))

    @cached_property
    def token_texts(self) -> TokenTexts:
        return token_texts_of(self)

    @torch.inference_mode()
    def next_logits(self, histories: Sequence[Sequence[int]]) -> Tensor:
        ids = torch.tensor([list(history) for history in histories], device=self.device)
        count, length = ids.shape
        ends = torch.arange(1, count + 1, device=ids.device) * length - 1
        return self._head.logits(self._head.states(ends, input_ids=ids))

    @torch.inference_mode()
    def score(self, windows: Sequence[Sequence[int]], suffix_tokens: int, policies: Sequence[Policy]) -> WindowScores:
        """Teacher-force windows of one length: scores of the last `suffix_tokens` of each under every policy.

        One pass of the body; the head is applied to a few rows at a time, so that logits of all positions never
        exist at once.
        """
        ids = torch.tensor([list(window) for window in windows], device=self.device)
        length = ids.shape[1] - 1  # nothing follows the last token
        parts = []
        for batch in torch.split(ids, self._head.sequences_at_once(*ids.shape)):
            starts = length * torch.arange(len(batch), device=ids.device)
            places = starts[:, None] + torch.arange(length - suffix_tokens, length, device=ids.device)
            states = self._head.states(places.flatten(), input_ids=batch[:, :-1])
            targets = torch.split(batch[:, -suffix_tokens:].flatten(), self._head.rows_at_once)
            for logits, wanted in zip(self._head.chunks(states), targets, strict=True):
                parts.append(score_tokens(logits, wanted, policies))
        shape = (len(ids), suffix_tokens)
        return WindowScores(
            torch.cat([part.log_probs for part in parts], -1).reshape(len(policies), *shape),
            torch.cat([part.ranks for part in parts]).reshape(shape),
            torch.cat([part.model_log_probs for part in parts]).reshape(shape),
        )

    @cached_property
    def _head(self) -> ChunkedHead:
        return ChunkedHead(self.model)

    @property
    def searches_trees(self) -> bool:
        """Whether beams are evaluated as a tree in all sessions so far; decided by comparing with the plain forward."""
        return self._takes_trees(USUAL_TOKENS) and not self._faults

    def _takes_trees(self, longest: int | None) -> bool:
        """Whether histories of up to this many tokens, or any number, can be searched as a tree."""
        tokens = max(longest or USUAL_TOKENS, USUAL_TOKENS)
        tokens = tokens if self.max_positions is None else min(tokens, self.max_positions)
        if tokens not in self._probed:
            self._probed[tokens] = probe_trees(self._head, tokens=tokens)
        fault = self._probed[tokens].why_not(longest)
        if fault is not None and fault not in self._faults:
            self._faults.add(fault)
            warnings.warn(
                f"{type(self.model).__name__} {fault}; histories are recomputed, which is slower and gives the same "
                "numbers.",
                stacklevel=3,
            )
        return fault is None

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> TreeSession:
        head = self._head
        if self._takes_trees(longest):
            return TreeSessionHF(head, slots, entries)
        return HistorySession(
            slots,
            entries,
            device=self.device,
            evaluate=head.states_of,
            logits=head.logits_of,
            rows_at_once=head.rows_at_once,
        )

    def tree_bytes_per_entry(self) -> int:
        """On the device that has most of the layers."""
        if not self._takes_trees(USUAL_TOKENS):
            return 8
        config = self.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        both = 2 * width
        if getattr(config, "kv_lora_rank", None):
            # Latent attention: keys and values come out of the layer at widths of their own.
            both = config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim
        return int(most_layers_together(self.model) * heads * both * self.dtype.itemsize)

    def score_bytes_per_token(self) -> int:
        """Hidden states and a layer's products, thrice each."""
        config = self.model.config.get_text_config()
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        return int(3 * (config.hidden_size + inner) * self.dtype.itemsize)

    def compile_layers(self) -> None:
        compile_layers(self.model)

    @cached_property
    def in_float32(self) -> "HuggingFaceModel":
        """This model in float32 for checks of precision: itself, or a copy that is kept from then on."""
        if self.dtype == torch.float32:
            return self
        return HuggingFaceModel(copy.deepcopy(self.model).float(), self.tokenizer, name=self.name)

    def without_weights(self) -> "HuggingFaceModel":
        """This model for a process that measures nothing with it: its tokenizer, sizes and identity."""
        with torch.device("meta"):
            shapes = type(self.model)(self.model.config)
        shapes.generation_config = self.model.generation_config
        bare = HuggingFaceModel(shapes, self.tokenizer, name=self.name)
        bare.described, bare.identity = self.described, self.identity
        return bare

    def with_changed_weights(self) -> "HuggingFaceModel":
        """The same model after its weights were changed in place: hashed afresh, and not probed again."""
        changed = HuggingFaceModel(self.model, self.tokenizer, name=self.name, revision=self.revision)
        changed._probed, changed._faults = self._probed, self._faults
        return changed

    @cached_property
    def described(self) -> ModelIdentity:
        """Hashing all weights begins here, in the background."""
        config, self._weights_hash = self.model.config, weights.hash_in_background(self.model)
        return ModelIdentity(
            name=self.name,
            revision=self.revision,
            weights_hash="",
            weights_fingerprint=weights.fingerprint_weights(self.model),
            tokenizer_hash=hash_tokenizer(self.tokenizer),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            dtype=str(self.model.dtype).removeprefix("torch."),
            device=str(self.model.device),
            adapter_hash=self.adapter_hash,
            quantization=weights.quantization_of(config),
            settings=json.dumps(weights.settings_of(config.to_diff_dict()), sort_keys=True, default=str),
        )

    @cached_property
    def identity(self) -> ModelIdentity:
        described = self.described
        return replace(described, weights_hash=self._weights_hash.result())


def load(
    name: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    adapter: str | None = None,
) -> HuggingFaceModel:
    """Load a model folder or hub id. Offline mode (HF_HUB_OFFLINE) is honoured by the library itself."""
    found = weights.load_weights(name, revision=revision, dtype=dtype, device=device, adapter=adapter)
    tokenizer = weights.read_tokenizer(name, found.tokenizer_source, revision=revision)
    commit = getattr(found.model.config, "_commit_hash", None)
    loaded = HuggingFaceModel(
        found.model, tokenizer, name=name, revision=revision or commit, adapter_hash=found.adapter_hash
    )
    weights.check_tokenizer(name, tokenizer, loaded.vocab_size)
    return loaded
