"""The Hugging Face back end around models in memory and on disk: ids, rules, identity, and what it refuses."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from byrote.errors import ConfigError, ModelError, WindowError
from byrote.models.hf import weights
from byrote.models.hf.graphs import compile_layers
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.hf.weights import explained, fingerprint_weights, hash_weights
from byrote.models.tokenizer import hash_tokenizer
from byrote.policy import Policy
from byrote.search.base import Limits
from byrote.search.engine import Engine
from byrote.store.manifest import differences
from tests.models.test_hf_architectures import OPTIONS
from tests.models.tiny import (
    CONFIGS,
    EOS,
    VOCABULARY,
    WITHOUT_LIMIT,
    load_without_tokenizer,
    tiny_model,
    tiny_tokenizer,
)

BYTES = 258


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with its tokenizer."""
    path = tmp_path_factory.mktemp("model")
    tiny_model("llama", vocab_size=BYTES, bos_token_id=0, eos_token_id=1).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def spoken(**changes: Any) -> HuggingFaceModel:
    return HuggingFaceModel(tiny_model("llama", vocab_size=BYTES), tiny_tokenizer(**changes))


@pytest.mark.parametrize("architecture", sorted(CONFIGS))
def test_vocabulary_and_context_are_read_from_every_architecture(architecture: str) -> None:
    model = HuggingFaceModel(tiny_model(architecture), None)
    assert model.vocab_size == VOCABULARY
    assert model.max_positions == (None if architecture in WITHOUT_LIMIT else 64)
    assert model.next_logits([[4, 5], [6, 7]]).shape == (2, VOCABULARY)
    assert EOS in model.eos_ids


@pytest.mark.parametrize("architecture", sorted(CONFIGS))
def test_without_its_weights_a_model_is_small_to_send_and_describes_itself_the_same(architecture: str) -> None:
    model = HuggingFaceModel(tiny_model(architecture), tiny_tokenizer())
    bare = pickle.loads(pickle.dumps(model.without_weights()))
    assert all(parameter.is_meta for parameter in bare.model.parameters())
    for name in ("identity", "described", "vocab_size", "max_positions", "eos_ids"):
        assert getattr(bare, name) == getattr(model, name), name
    assert bare.encode_batch(["ab"]) == model.encode_batch(["ab"])


def test_vocabulary_is_what_the_model_outputs_not_what_the_tokenizer_knows() -> None:
    padded = HuggingFaceModel(tiny_model("llama", vocab_size=320), tiny_tokenizer())
    assert padded.vocab_size == 320


def test_a_model_whose_angles_change_with_length_is_limited_to_its_original_length() -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [3.0] * 4,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    changes = {"rope_parameters": rope, "original_max_position_embeddings": 16, "sliding_window": None}
    model = HuggingFaceModel(tiny_model("phi3", **changes), None)
    with pytest.raises(WindowError, match=r"prefix \+ suffix are 17 tokens, but the model takes at most 16"):
        Engine(model, OPTIONS, slots=1, limits=Limits(10, 7))


def test_end_of_text_ids_are_gathered_from_settings_and_tokenizer_within_the_vocabulary() -> None:
    model = tiny_model("llama", vocab_size=BYTES, eos_token_id=[7, 9])
    model.generation_config.eos_token_id = [7, 11, 50_000]
    assert HuggingFaceModel(model, tiny_tokenizer()).eos_ids == {1, 7, 9, 11}


def test_bos_rules() -> None:
    silent, eager = spoken(), spoken(adds_bos=True)
    assert silent.bos_id("auto") is None
    assert eager.bos_id("auto") == 0
    for model in (silent, eager):
        assert model.bos_id("never") is None
        assert model.bos_id("always") == 0
    silent.tokenizer.bos_token = None
    with pytest.raises(ModelError, match="no beginning-of-text token"):
        silent.bos_id("always")


def test_encodings_carry_character_spans_and_no_special_tokens() -> None:
    model = spoken(adds_bos=True)
    texts = ["abc", "naïve → ok", ""]
    for text, encoding in zip(texts, model.encode_batch(texts), strict=True):
        assert len(encoding.ids) == len(text.encode()) == len(encoding.spans)
        assert model.bos_id("always") not in encoding.ids
        assert model.decode(encoding.ids) == text
        # Spans cover the text in order; the bytes of one character share its span.
        covered = sorted(set(encoding.spans))
        assert "".join(text[start:end] for start, end in covered) == text


def test_a_text_beyond_the_context_is_encoded_without_a_warning() -> None:
    (encoding,) = spoken().encode_batch(["a" * 500])
    assert len(encoding.ids) == 500


def test_a_tokenizer_without_offsets_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(ModelError, match="cannot map tokens to characters"):
        HuggingFaceModel(tiny_model("llama"), Slow()).encode_batch(["a"])


def test_weights_hash_is_stable_and_sees_one_changed_weight() -> None:
    model, twin = tiny_model("llama"), tiny_model("llama")
    assert hash_weights(model) == hash_weights(twin)
    with torch.no_grad():
        twin.model.layers[1].mlp.up_proj.weight[3, 2] += 1e-3
    assert hash_weights(model) != hash_weights(twin)
    assert hash_weights(model) != hash_weights(model.to(torch.bfloat16))


def test_the_hash_of_the_thread_is_the_hash_of_the_weights_as_they_were() -> None:
    """`described` begins it; what is done to the parameters' names later does not count."""
    model = HuggingFaceModel(tiny_model("llama"), tiny_tokenizer())
    expected = hash_weights(model.model)
    described = model.described
    assert described.weights_hash == ""
    assert described.weights_fingerprint == fingerprint_weights(model.model)
    model.model.model.layers[0].mlp.renamed = model.model.model.layers[0].mlp.up_proj
    assert model.identity.weights_hash == expected
    assert replace(model.identity, weights_hash="") == described
    assert model.identity.fingerprint == described.fingerprint
    assert "weights_hash" not in described.fingerprint, "a run is known before its weights are hashed"


def test_an_error_of_the_thread_is_raised_where_the_hash_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*given: object) -> str:
        raise RuntimeError("the copy failed")

    monkeypatch.setattr(weights, "_hash", failing)
    hashing = weights.hash_in_background(tiny_model("llama"))
    with pytest.raises(RuntimeError, match="the copy failed"):
        hashing.result()


def test_the_fingerprint_sees_any_one_layer_that_was_changed() -> None:
    model = tiny_model("llama")
    before = fingerprint_weights(model)
    assert before == fingerprint_weights(tiny_model("llama"))
    for _, parameter in model.named_parameters():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.add_(1e-3)
            assert fingerprint_weights(model) != before
            parameter.copy_(kept)
    assert fingerprint_weights(model) == before


def test_the_fingerprint_reads_a_few_blocks_of_a_large_tensor_its_ends_among_them() -> None:
    size = 2 * weights.SAMPLED_BLOCKS * weights.BLOCK_ELEMENTS
    module = torch.nn.Module()
    module.register_buffer("large", torch.arange(size, dtype=torch.float32).reshape(2, -1))
    before = fingerprint_weights(module), hash_weights(module)
    seen = 0
    for place in [0, size - 1, *range(7, size, size // 200)]:
        flat = module.get_buffer("large").view(-1)
        flat[place] += 1
        assert hash_weights(module) != before[1]
        is_seen = fingerprint_weights(module) != before[0]
        assert is_seen or place not in (0, size - 1)
        seen += is_seen
        flat[place] -= 1
    assert (fingerprint_weights(module), hash_weights(module)) == before
    assert 50 < seen < 150, "half of the tensor is in the blocks"
    module.register_buffer("large", module.get_buffer("large").reshape(-1))
    assert fingerprint_weights(module) != before[0], "shapes count"


def test_weights_hash_sees_a_changed_scalar() -> None:
    module = torch.nn.Module()
    module.register_buffer("scale", torch.tensor(1.0))
    before = hash_weights(module)
    module.register_buffer("scale", torch.tensor(2.0))
    assert hash_weights(module) != before


def test_tokenizer_hash_tells_tokenizers_apart() -> None:
    assert hash_tokenizer(tiny_tokenizer()) == hash_tokenizer(tiny_tokenizer())
    assert hash_tokenizer(tiny_tokenizer()) != hash_tokenizer(tiny_tokenizer(adds_bos=True))
    other = tiny_tokenizer()
    other.eos_token = "<s>"
    assert hash_tokenizer(other) != hash_tokenizer(tiny_tokenizer())


def test_settings_that_change_what_the_weights_compute_make_another_model(folder: Path, tmp_path: Path) -> None:
    """The same weights under another norm are another model; the dtype, which is told by itself, changes none."""
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    settings = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(settings | {"rms_norm_eps": 0.1, "use_cache": False}))
    one, two = (load(str(path)).identity for path in (folder, other))
    assert one.weights_hash == two.weights_hash
    changed = list(differences(one.fingerprint, two.fingerprint))
    assert changed == ["settings.rms_norm_eps: 1e-06 in the run, 0.1 now"]
    assert load(str(folder), dtype="bfloat16").identity.settings == one.settings


def test_a_saved_model_loads_with_the_same_numbers_and_identity(folder: Path) -> None:
    loaded = load(str(folder))
    built = tiny_model("llama", vocab_size=BYTES, bos_token_id=0, eos_token_id=1)
    assert loaded.identity.weights_hash == hash_weights(built)
    assert loaded.identity.tokenizer_hash == load(str(folder)).identity.tokenizer_hash
    assert loaded.identity.parameters == sum(parameter.numel() for parameter in built.parameters())
    assert (loaded.identity.dtype, loaded.identity.device) == ("float32", "cpu")
    torch.testing.assert_close(loaded.next_logits([[4, 5]]), HuggingFaceModel(built, None).next_logits([[4, 5]]))


def test_dtype_is_taken_as_asked(folder: Path) -> None:
    assert load(str(folder), dtype="bfloat16", device="cpu").dtype == torch.bfloat16


def is_one_sentence(error: pytest.ExceptionInfo[ModelError]) -> bool:
    return "\n" not in str(error.value) and len(str(error.value)) < 400


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model folder at") as error:
        load(str(tmp_path / "nothing"))
    assert is_one_sentence(error)


def test_a_file_is_not_a_model_folder(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match="there is no model folder at"):
        load(str(tmp_path / "model.bin"))


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="could not be loaded as a causal language model") as error:
        load(str(tmp_path))
    assert is_one_sentence(error)


def test_a_name_that_is_neither_here_nor_at_the_hub_is_told_so(tmp_path: Path) -> None:
    """Most often a folder was misspelt; the hub's complaint alone would not say so."""
    assert "modle is no folder here, and could not" in str(explained("modle", OSError("We couldn't connect")))
    assert "folder here" not in str(explained(str(tmp_path), OSError("no config.json")))


def test_a_folder_with_broken_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(folder, tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match="cannot be read as safetensors") as error:
        load(str(broken))
    assert is_one_sentence(error)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, r"but the folder holds at most [\d,]+: lm_head\.weight is in no file"),
        ({"other.weight": torch.zeros(64, 32)}, r"lacks 1 of its weights \(lm_head\.weight"),
    ],
    ids=["fewer", "another"],
)
def test_a_model_without_some_of_its_weights_is_refused(
    tmp_path: Path, other: dict[str, torch.Tensor], words: str
) -> None:
    """The library would fill the gap with random numbers."""
    model = tiny_model("llama")
    weights = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    model.save_pretrained(tmp_path, state_dict=weights | other)
    with pytest.raises(ModelError, match=words) as error:
        load_without_tokenizer(tmp_path)
    assert is_one_sentence(error)


def test_tied_weights_are_not_missing(tmp_path: Path) -> None:
    model = tiny_model("gpt2")
    model.save_pretrained(tmp_path)
    assert hash_weights(load_without_tokenizer(tmp_path).model) == hash_weights(model)


def test_a_folder_with_broken_settings_is_refused(folder: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "config.json").write_text('{"model_type": "no such thing"}')
    with pytest.raises(ModelError, match="could not be loaded") as error:
        load(str(broken))
    assert is_one_sentence(error)


def test_an_unknown_dtype_is_refused_with_the_known_ones(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"dtype 'float8' is not known\. Use auto, float32, float16, bfloat16"):
        load(str(folder), dtype="float8")


def test_an_unknown_device_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match="'toaster' is not a device"):
        load(str(folder), device="toaster")


def test_cuda_without_a_gpu_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="device cuda was asked for, but this machine has 0 usable GPUs"):
        load(str(folder), device="cuda")


def test_top_k_above_the_vocabulary_is_refused_when_the_engine_opens() -> None:
    options = replace(OPTIONS, policy=Policy(1.0, VOCABULARY + 1))
    with pytest.raises(ConfigError, match="top-k is 65"):
        Engine(HuggingFaceModel(tiny_model("llama"), None), options, slots=1, limits=Limits(4, 4))


def test_a_model_whose_layers_cannot_be_found_is_not_compiled() -> None:
    with pytest.raises(ModelError, match="compile does not know the layers of Linear"):
        compile_layers(torch.nn.Linear(2, 2))


def test_a_session_is_let_go_when_nobody_uses_it() -> None:
    """The library's table of attention functions must not keep it, and its memory, alive."""
    import gc
    import weakref

    from byrote.policy import Policy
    from byrote.search.tree import Listing, TokenPair, evaluate_chains

    model = HuggingFaceModel(tiny_model("llama"), None)
    session = model.open_tree(2, 8)
    pair = TokenPair((1, 2), (3, 4))
    evaluate_chains(session, [pair], [0], Listing(Policy(1.0, 3), None), device=model.device)
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
