"""Tiny random Hugging Face models of every architecture, and a byte-level tokenizer, made in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers import models as tokenizer_models
from transformers import PreTrainedTokenizerFast

from byrote.models.hf.model import HuggingFaceModel
from byrote.models.hf.weights import load_weights

VOCABULARY = 64
EOS = 3
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "pad_token_id": 0,
}
FULL_HEADS = {**SHAPE, "num_key_value_heads": 4}
WITHOUT_GROUPS = {name: value for name, value in SHAPE.items() if name != "num_key_value_heads"}
LOCAL_AND_FULL = ["sliding_attention", "full_attention"]
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def _llama(**changes: Any) -> Any:
    return transformers.LlamaConfig(**{**SHAPE, **changes})


def _mistral(**changes: Any) -> Any:
    return transformers.MistralConfig(**{**SHAPE, "head_dim": 8, "sliding_window": 5, **changes})


def _qwen2(**changes: Any) -> Any:
    return transformers.Qwen2Config(**{**SHAPE, **changes})


def _qwen2_sliding(**changes: Any) -> Any:
    local = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    return transformers.Qwen2Config(**{**SHAPE, **local, **changes})


def _qwen3(**changes: Any) -> Any:
    return transformers.Qwen3Config(**{**SHAPE, "head_dim": 8, **changes})


def _olmo2(**changes: Any) -> Any:
    return transformers.Olmo2Config(**{**SHAPE, **changes})


def _olmo3(**changes: Any) -> Any:
    local = {"sliding_window": 5, "layer_types": LOCAL_AND_FULL}
    return transformers.Olmo3Config(**{**SHAPE, **local, **changes})


def _gpt_neox(**changes: Any) -> Any:
    return transformers.GPTNeoXConfig(**{**WITHOUT_GROUPS, "rotary_pct": 0.5, **changes})


def _gpt2(**changes: Any) -> Any:
    shape = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    return transformers.GPT2Config(**{**shape, "bos_token_id": 1, "eos_token_id": EOS, **changes})


def _gpt_neo(**changes: Any) -> Any:
    shape = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "intermediate_size": 48}
    local = {"attention_types": [[["global", "local"], 1]], "window_size": 5, "max_position_embeddings": 64}
    return transformers.GPTNeoConfig(**{**shape, **local, "bos_token_id": 1, "eos_token_id": EOS, **changes})


def _opt(**changes: Any) -> Any:
    return transformers.OPTConfig(**{**WITHOUT_GROUPS, "ffn_dim": 48, "word_embed_proj_dim": 32, **changes})


def _gemma2(**changes: Any) -> Any:
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 8}
    local = {"head_dim": 8, "sliding_window": 5, "layer_types": LOCAL_AND_FULL}
    return transformers.Gemma2Config(**{**SHAPE, **caps, **local, **changes})


def _gemma3(**changes: Any) -> Any:
    local = {"head_dim": 8, "sliding_window": 5, "layer_types": LOCAL_AND_FULL, "query_pre_attn_scalar": 8}
    return transformers.Gemma3TextConfig(**{**SHAPE, **local, **changes})


def _phi(**changes: Any) -> Any:
    return transformers.PhiConfig(**{**FULL_HEADS, "partial_rotary_factor": 0.5, **changes})


def _phi3(**changes: Any) -> Any:
    return transformers.Phi3Config(**{**SHAPE, "sliding_window": 5, **changes})


def _gpt_oss(**changes: Any) -> Any:
    local = {"head_dim": 8, "sliding_window": 5, "layer_types": LOCAL_AND_FULL, "rope_scaling": None}
    return transformers.GptOssConfig(**{**SHAPE, **EXPERTS, **local, **changes})


def _qwen2_moe(**changes: Any) -> Any:
    local = {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 2}
    return transformers.Qwen2MoeConfig(
        **{**SHAPE, **EXPERTS, **local, "shared_expert_intermediate_size": 16, "decoder_sparse_step": 1, **changes}
    )


def _phimoe(**changes: Any) -> Any:
    return transformers.PhimoeConfig(**{**SHAPE, **EXPERTS, "sliding_window": 12, **changes})


def _llama4(**changes: Any) -> Any:
    local = {"attention_chunk_size": 12, "layer_types": ["chunked_attention", "full_attention"], "head_dim": 8}
    return transformers.Llama4TextConfig(
        **{**SHAPE, **EXPERTS, **local, "intermediate_size_mlp": 48, "no_rope_layers": [1, 0], **changes}
    )


def _gemma3_multimodal(**changes: Any) -> Any:
    vision = transformers.SiglipVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    tokens = {"image_token_index": 60, "boi_token_index": 61, "eoi_token_index": 62, "mm_tokens_per_image": 4}
    return transformers.Gemma3Config(text_config=_gemma3(**changes), vision_config=vision, **tokens)


def _mixtral(**changes: Any) -> Any:
    return transformers.MixtralConfig(**{**SHAPE, **EXPERTS, "sliding_window": 5, **changes})


def _deepseek_v3(**changes: Any) -> Any:
    latent = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6}
    routing = {"first_k_dense_replace": 2, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
    return transformers.DeepseekV3Config(**{**FULL_HEADS, **latent, **routing, **changes})


def _cohere(**changes: Any) -> Any:
    return transformers.CohereConfig(**{**SHAPE, "logit_scale": 0.25, **changes})


def _granite(**changes: Any) -> Any:
    return transformers.GraniteConfig(**{**SHAPE, "logits_scaling": 4.0, "residual_multiplier": 0.5, **changes})


def _bloom(**changes: Any) -> Any:
    shape = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4}
    return transformers.BloomConfig(**{**shape, "bos_token_id": 1, "eos_token_id": EOS, **changes})


def _gptj(**changes: Any) -> Any:
    shape = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4}
    return transformers.GPTJConfig(**{**shape, "bos_token_id": 1, "eos_token_id": EOS, **changes})


def _mamba(**changes: Any) -> Any:
    shape = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
    return transformers.MambaConfig(**{**shape, "eos_token_id": EOS, **changes})


WITHOUT_LIMIT = {"bloom", "mamba"}
"""Positions are not counted: biases by distance, or a recurrent state."""

CONFIGS: dict[str, Callable[..., Any]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen2_sliding": _qwen2_sliding,
    "qwen3": _qwen3,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "gpt_neox": _gpt_neox,
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "opt": _opt,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi": _phi,
    "phi3": _phi3,
    "gpt_oss": _gpt_oss,
    "qwen2_moe": _qwen2_moe,
    "phimoe": _phimoe,
    "llama4": _llama4,
    "gemma3_multimodal": _gemma3_multimodal,
    "mixtral": _mixtral,
    "deepseek_v3": _deepseek_v3,
    "cohere": _cohere,
    "granite": _granite,
    "bloom": _bloom,
    "gptj": _gptj,
    "mamba": _mamba,
}


def tiny_model(architecture: str, *, seed: int = 0, **changes: Any) -> Any:
    """A model of two layers whose weights are drawn wide, so that its distributions are far from flat."""
    config = CONFIGS[architecture](**changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0, 0.35)
                else:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def tiny_tokenizer(*, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """One token per byte after <s>, </s>: 258 ids, exact offsets, no merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(tokenizer_models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def load_without_tokenizer(folder: Path, *, dtype: str = "auto", device: str = "auto") -> HuggingFaceModel:
    """A saved model without its tokenizer."""
    weights = load_weights(str(folder), revision=None, dtype=dtype, device=device, adapter=None)
    return HuggingFaceModel(weights.model, None, name=str(folder))
