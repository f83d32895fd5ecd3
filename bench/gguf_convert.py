"""A Llama-architecture model folder as a .gguf file in float32: `python bench/gguf_convert.py FOLDER OUT.gguf`.

Needs the `gguf` package. Byte-level BPE tokenizers only. It is enough for the models of the laboratory and the benches;
llama.cpp's own script converts the others.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, TokenType
from transformers import AutoModelForCausalLM

LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def convert(folder: Path, out: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    if model.config.model_type != "llama":
        raise SystemExit(f"{folder} holds a {model.config.model_type} model; only llama is converted here.")
    writer = GGUFWriter(out, "llama")
    add_settings(writer, model.config)
    add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")), model.config)
    for name, weight in model.state_dict().items():
        target = name_of(name)
        if target is not None and not (target == "output.weight" and model.config.tie_word_embeddings):
            writer.add_tensor(target, arranged(name, weight.numpy(), model.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_settings(writer: GGUFWriter, config: Any) -> None:
    width = config.head_dim or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(0)


def add_tokenizer(writer: GGUFWriter, described: dict[str, Any], config: Any) -> None:
    special = {entry["id"]: entry["content"] for entry in described["added_tokens"]}
    words = {number: word for word, number in described["model"]["vocab"].items()} | special
    kinds = [TokenType.CONTROL if number in special else TokenType.NORMAL for number in range(config.vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([words.get(number, f"<unused {number}>") for number in range(config.vocab_size)])
    writer.add_token_types(kinds)
    merges = described["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    if isinstance(config.eos_token_id, int):
        writer.add_eos_token_id(config.eos_token_id)
    if isinstance(config.bos_token_id, int):
        writer.add_bos_token_id(config.bos_token_id)
    writer.add_add_bos_token(False)


def name_of(name: str) -> str | None:
    """llama.cpp's name of a weight; None for what it does not store."""
    known = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in known:
        return known[name]
    if not name.startswith("model.layers."):
        return None
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def arranged(name: str, weight: np.ndarray, config: Any) -> np.ndarray:
    """Queries and keys with the two halves of every head interleaved, as llama.cpp rotates them."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if f"{part}.weight" in name:
            halves = weight.reshape(count, 2, weight.shape[0] // count // 2, weight.shape[1])
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
    return weight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="model folder with config.json, weights and tokenizer.json")
    parser.add_argument("out", type=Path, help="file to write")
    chosen = parser.parse_args()
    convert(chosen.folder, chosen.out)


if __name__ == "__main__":
    main()
