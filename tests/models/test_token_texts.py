"""The texts of tokens, one after the other, are what the tokenizer decodes, for every common kind of tokenizer."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, trainers
from transformers import PreTrainedTokenizerFast

from byrote.errors import ModelError
from byrote.models.token_texts import token_texts_of
from byrote.models.tokenizer import Tokenizing
from byrote.normal_form import normalised
from tests.models import tokenizer_kinds


def llama_bpe() -> PreTrainedTokenizerFast:
    """As Llama 2 writes it: ▁ by normalisers, bytes for what no piece holds."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    ascii_only = [text.encode("ascii", "ignore").decode() for text in tokenizer_kinds.SENTENCES]
    tokenizer.train_from_iterator(ascii_only, trainers.BpeTrainer(vocab_size=400, special_tokens=special))
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    return made


def with_tokenizer(tokenizer: PreTrainedTokenizerFast) -> SimpleNamespace:
    """What the texts of tokens need of a model; two rows more than the tokenizer has tokens."""
    tokenizing = Tokenizing(tokenizer, "tiny")
    return SimpleNamespace(
        name="tiny",
        tokenizing=tokenizing,
        vocab_size=len(tokenizer) + 2,
        device=torch.device("cpu"),
        encode_batch=tokenizing.encode_batch,
        decode=tokenizing.decode,
        eos_ids=frozenset({tokenizer.eos_token_id}),
    )


KINDS = {
    "byte-level": tokenizer_kinds.byte_level_bpe,
    "byte-level, trimmed": lambda: tokenizer_kinds.byte_level_bpe(trims_offsets=True),
    "metaspace": tokenizer_kinds.metaspace_bpe,
    "llama": llama_bpe,
}


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_tokens_are_what_is_decoded(kind: str) -> None:
    tokenizer = KINDS[kind]()
    model = with_tokenizer(tokenizer)
    texts = token_texts_of(model)  # type: ignore[arg-type]
    assert texts.pieces[tokenizer.eos_token_id] is None
    assert texts.pieces[-1] is None

    @settings(max_examples=100, deadline=None)
    @given(st.text(max_size=20))
    def check(text: str) -> None:
        (encoding,) = model.encode_batch([text])
        if tokenizer.unk_token_id not in encoding.ids:
            assert normalised(texts.text(encoding.ids)) == normalised(model.decode(encoding.ids))

    check()


def test_a_tokenizer_whose_decoded_text_is_not_that_of_its_tokens_is_refused() -> None:
    with pytest.raises(ModelError, match="characters cannot be followed"):
        token_texts_of(with_tokenizer(tokenizer_kinds.word_piece()))  # type: ignore[arg-type]


def test_a_model_without_a_tokenizer_decodes_its_tokens_one_by_one() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz "
    model = SimpleNamespace(
        name="letters",
        tokenizing=None,
        vocab_size=27,
        eos_ids=frozenset({26}),
        device=torch.device("cpu"),
        decode=lambda ids: "".join(letters[token] for token in ids),
        encode_batch=lambda texts: [SimpleNamespace(ids=[1, 2, 3]) for _ in texts],
    )
    texts = token_texts_of(model)  # type: ignore[arg-type]
    assert texts.text([0, 1, 26]) == "ab"
    assert texts.pieces[26] is None
