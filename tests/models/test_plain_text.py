"""Text that spells a special token is text, whatever the tokenizer; everything else is tokenised as ever."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.models.hf.model import HuggingFaceModel
from byrote.models.tokenizer import Tokenizing
from tests.models.tiny import tiny_model
from tests.models.tokenizer_kinds import KINDS, WRITES_EVERYTHING_BACK

SPELLED = ["</s>", "<s>", "<unk>", "<|endoftext|>", "[SEP]", "＜/s＞"]
PLAIN = ["the cat ", "mat", " sat on", "a text may", ", ", "12 345 "]

pieces = st.lists(st.sampled_from([*SPELLED, *PLAIN]), min_size=1, max_size=8)
every_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def tokenizer_of(kind: str) -> Any:
    return KINDS[kind]()


@cache
def plain_text_of(kind: str) -> Tokenizing:
    return Tokenizing(tokenizer_of(kind), "it")


@every_kind
@given(parts=pieces)
@settings(deadline=None)
def test_no_text_spells_a_special_token(kind: str, parts: list[str]) -> None:
    text = "".join(parts)
    tokenizer = tokenizer_of(kind)
    (encoding,) = plain_text_of(kind).encode_batch([text])
    assert not set(encoding.ids) & (set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
    assert all(0 <= start <= end <= len(text) for start, end in encoding.spans)
    assert encoding.spans == sorted(encoding.spans)
    # Every character that is not blank belongs to a token: nothing was lost around the special tokens.
    covered = {place for start, end in encoding.spans for place in range(start, end)}
    assert {place for place, character in enumerate(text) if not character.isspace()} <= covered


@pytest.mark.parametrize("kind", WRITES_EVERYTHING_BACK)
@given(parts=pieces)
@settings(deadline=None)
def test_tokens_decode_to_the_text_and_spans_to_their_pieces(kind: str, parts: list[str]) -> None:
    text = "".join(parts).replace("＜/s＞", "").strip()
    tokenizer = tokenizer_of(kind)
    (encoding,) = plain_text_of(kind).encode_batch([text])
    assert tokenizer.decode(encoding.ids, clean_up_tokenization_spaces=False) == text
    for token, (start, end) in zip(encoding.ids, encoding.spans, strict=True):
        surface = tokenizer.convert_ids_to_tokens(token).replace("Ġ", " ").replace("▁", " ")
        assert surface.strip() == text[start:end].strip() or not surface.strip()


@every_kind
@given(parts=st.lists(st.sampled_from(PLAIN), min_size=1, max_size=8))
@settings(deadline=None)
def test_ordinary_text_gets_the_tokens_of_the_library(kind: str, parts: list[str]) -> None:
    text = "".join(parts)
    (encoding,) = plain_text_of(kind).encode_batch([text])
    library = tokenizer_of(kind)(text, add_special_tokens=False, return_offsets_mapping=True)
    assert (encoding.ids, encoding.spans) == (library["input_ids"], [tuple(span) for span in library["offset_mapping"]])


@every_kind
def test_a_text_is_tokenised_the_same_alone_and_among_others(kind: str) -> None:
    texts = ["the cat", "say </s> or [SEP] or <|endoftext|>", "mat"]
    together = plain_text_of(kind).encode_batch(texts)
    assert together == [plain_text_of(kind).encode_batch([text])[0] for text in texts]
    assert plain_text_of(kind).encode_batch([]) == []


@every_kind
def test_the_tokenizer_itself_still_knows_its_special_tokens(kind: str) -> None:
    tokenizer = KINDS[kind]()
    text = f"the cat {tokenizer.eos_token}"
    Tokenizing(tokenizer, "it").encode_batch([text])
    assert tokenizer(text, add_special_tokens=False)["input_ids"][-1] == tokenizer.eos_token_id


def test_a_token_that_was_added_for_text_stays_a_token() -> None:
    tokenizer = KINDS["byte_level_bpe"]()
    tokenizer.add_tokens(["    "])
    (encoding,) = Tokenizing(tokenizer, "it").encode_batch(["mat    <|endoftext|>"])
    assert tokenizer.convert_tokens_to_ids("    ") in encoding.ids
    assert tokenizer.eos_token_id not in encoding.ids


def test_an_end_of_text_that_is_not_marked_special_is_text_too() -> None:
    tokenizer = KINDS["unigram"]()
    tokenizer.add_tokens(["<stop>"])
    tokenizer.eos_token = "<stop>"
    (encoding,) = Tokenizing(tokenizer, "it").encode_batch(["the cat <stop> sat"])
    assert tokenizer.eos_token_id not in encoding.ids


def test_a_model_reads_spelled_tokens_as_text() -> None:
    tokenizer = KINDS["unigram"]()
    model = HuggingFaceModel(tiny_model("llama"), tokenizer)
    (encoding,) = model.encode_batch(["the cat </s> sat"])
    assert tokenizer.eos_token_id not in encoding.ids
    assert model.decode(encoding.ids) == "the cat </s> sat"
