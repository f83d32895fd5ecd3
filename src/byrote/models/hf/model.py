"""The Hugging Face back end: loading, tokenising, and the contracts of `base` on top of a causal language model."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from byrote.models.base import ModelIdentity, TreeSession, WindowScores
from byrote.models.hf.graphs import compile_layers, most_layers_together
from byrote.models.hf.head import ChunkedHead
from byrote.models.hf.identity import hash_weights, quantization_of, settings_of
from byrote.models.hf.probe import USUAL_TOKENS, Probed, probe_trees
from byrote.models.hf.tree import TreeSessionHF
from byrote.models.hf.weights import check_tokenizer, explained, load_weights
from byrote.models.history import HistorySession
from byrote.models.numbers import check_weights
from byrote.models.scoring import score_tokens
from byrote.models.tokenizer import Tokenizing, hash_tokenizer
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
        self.model = _with_soft_caps(model.eval())
        self.revision, self.adapter_hash = revision, adapter_hash
        self._probed: dict[int, Probed] = {}
        """Results of probes, by the length of their histories."""
        self._faults: set[str] = set()
        """Why some sessions recompute their histories."""

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
        ids: set[int] = set()
        generation = getattr(self.model, "generation_config", None)
        for source in (generation, self.model.config.get_text_config(), self.tokenizer):
            value = getattr(source, "eos_token_id", None)
            ids |= set(value) if isinstance(value, list) else {value} if isinstance(value, int) else set()
        return frozenset(token for token in ids if 0 <= token < self.vocab_size)

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
        rows, length = ids.shape
        parts = [
            score_tokens(logits, wanted, policies)
            for batch in torch.split(ids, self._head.sequences_at_once(rows, length))
            for logits, wanted in self._logits_and_targets(batch, suffix_tokens)
        ]
        shape = (rows, suffix_tokens)
        return WindowScores(
            torch.cat([part.log_probs for part in parts], -1).reshape(len(policies), *shape),
            torch.cat([part.ranks for part in parts]).reshape(shape),
            torch.cat([part.model_log_probs for part in parts]).reshape(shape),
        )

    def _logits_and_targets(self, ids: Tensor, suffix_tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(logits, the token that follows) of every suffix token, a few rows at a time, window by window."""
        targets = ids[:, -suffix_tokens:].flatten()
        evaluated = ids[:, :-1]  # nothing follows the last token
        rows, length = evaluated.shape
        places = torch.arange(length - suffix_tokens, length, device=ids.device)
        starts = length * torch.arange(rows, device=ids.device)
        chunks = self._head.chunks(self._head.states((starts[:, None] + places).flatten(), input_ids=evaluated))
        yield from zip(chunks, torch.split(targets, self._head.rows_at_once), strict=True)

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
            logits=head.logits,
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

    @cached_property
    def identity(self) -> ModelIdentity:
        return ModelIdentity(
            name=self.name,
            revision=self.revision,
            weights_hash=hash_weights(self.model),
            tokenizer_hash=hash_tokenizer(self.tokenizer),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            dtype=str(self.model.dtype).removeprefix("torch."),
            device=str(self.model.device),
            adapter_hash=self.adapter_hash,
            quantization=quantization_of(self.model),
            settings=settings_of(self.model),
        )


def load(
    name: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    adapter: str | None = None,
) -> HuggingFaceModel:
    """Load a model folder or hub id. Offline mode (HF_HUB_OFFLINE) is honoured by the library itself."""
    from transformers import AutoTokenizer

    weights = load_weights(name, revision=revision, dtype=dtype, device=device, adapter=adapter)
    try:
        tokenizer = AutoTokenizer.from_pretrained(weights.tokenizer_source, revision=revision, trust_remote_code=False)
    except Exception as error:  # whatever libraries raise for a damaged folder
        raise explained(name, error) from error
    commit = getattr(weights.model.config, "_commit_hash", None)
    loaded = HuggingFaceModel(
        weights.model, tokenizer, name=name, revision=revision or commit, adapter_hash=weights.adapter_hash
    )
    check_tokenizer(name, tokenizer, loaded.vocab_size)
    return loaded


def _with_soft_caps(model: Any) -> Any:
    """Some versions of the library choose a fused attention that silently leaves out soft caps (Gemma 2)."""
    has_caps = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    if has_caps and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation("eager")
    return model
