"""The lab tokenizer: loses nothing, knows where each token stands, and is the same for the same text."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from byrote.lab.texts import write_passages, write_records
from byrote.lab.train import END_OF_TEXT, encode_all, train_tokenizer


@cache
def lab_tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(lab_texts(), vocabulary_size=600)


@cache
def lab_texts() -> tuple[str, ...]:
    return (*write_passages(0, 60, least_words=80), *write_records(0, 20))


def test_same_text_gives_the_same_tokenizer() -> None:
    again = train_tokenizer(lab_texts(), vocabulary_size=600)
    assert again.backend_tokenizer.to_str() == lab_tokenizer().backend_tokenizer.to_str()


@given(text=st.text(max_size=60).filter(lambda text: END_OF_TEXT not in text))
def test_any_text_survives_the_round_trip(text: str) -> None:
    (token_ids,) = encode_all(lab_tokenizer(), [text])
    assert lab_tokenizer().decode(token_ids) == text


@pytest.mark.parametrize("text", lab_texts()[:5] + lab_texts()[-5:])
def test_offsets_cover_the_text_without_gap_or_overlap(text: str) -> None:
    offsets = lab_tokenizer()(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    assert offsets[0][0] == 0
    assert offsets[-1][1] == len(text)
    assert all(before[1] == after[0] for before, after in pairwise(offsets))


def test_every_digit_is_a_token_of_its_own() -> None:
    (token_ids,) = encode_all(lab_tokenizer(), ["RX04 8777 3828"])
    pieces = lab_tokenizer().convert_ids_to_tokens(token_ids)
    assert sum(piece.isdigit() and len(piece) == 1 for piece in pieces) == 10


def test_one_special_token_is_beginning_end_and_padding_and_is_not_added() -> None:
    tokenizer = lab_tokenizer()
    assert tokenizer.bos_token_id == tokenizer.eos_token_id == tokenizer.pad_token_id == 0
    assert 0 not in tokenizer("A quiet town.")["input_ids"]


def test_a_saved_tokenizer_loads_as_any_other(tmp_path: Path) -> None:
    lab_tokenizer().save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.is_fast
    text = lab_texts()[0]
    assert loaded(text)["input_ids"] == lab_tokenizer()(text)["input_ids"]
