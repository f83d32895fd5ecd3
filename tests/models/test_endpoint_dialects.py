"""What servers answer, read with suspicion: shapes as vLLM, SGLang and llama.cpp give them, and what is none."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.errors import EndpointError, ModelError
from byrote.models.listed import Prompt, row_of
from byrote.models.served.check import DIALECTS
from byrote.models.served.client import Unreadable
from byrote.models.served.dialects import LlamaCpp, Sglang, Vllm
from byrote.models.served.model import spans_of

NEXT = Prompt((5, 6, 7), 2)
CHAIN = Prompt((5, 6, 7), 1)


def vllm_answer(**further: Any) -> dict[str, Any]:
    listed = [{"token_id:8": -0.5, "token_id:9": -1.5}]
    return {"choices": [{"index": 0, "text": "x", "logprobs": {"top_logprobs": listed}, **further}]}


def test_vllm_gives_places_by_prompt_logprobs() -> None:
    places = [None, {"6": {"logprob": -9.0, "rank": 3}}, {"7": {"logprob": -0.1}, "8": {"logprob": -2.0, "rank": 2}}]
    assert Vllm().read(vllm_answer(prompt_logprobs=places), [CHAIN]) == [[{7: -0.1, 8: -2.0}, {8: -0.5, 9: -1.5}]]
    assert Vllm().read(vllm_answer(), [NEXT]) == [[{8: -0.5, 9: -1.5}]]
    with pytest.raises(Unreadable, match="prompt_logprobs"):
        Vllm().read(vllm_answer(), [CHAIN])


def test_sglang_gives_places_from_the_token_after_the_start() -> None:
    meta = {
        "input_token_logprobs": [[None, 6, None], [-0.1, 7, None]],
        "input_top_logprobs": [None, [[-0.1, 7, None], [-2.0, 8, None]]],
        "output_top_logprobs": [[[-0.5, 8, None], [-1.5, 9, None]]],
    }
    assert Sglang().read([{"meta_info": meta}], [CHAIN]) == [[{7: -0.1, 8: -2.0}, {8: -0.5, 9: -1.5}]]
    meta["input_token_logprobs"] = [[None, 6, None], [-0.1, 4, None]]
    with pytest.raises(Unreadable, match="not those that were sent"):
        Sglang().read([{"meta_info": meta}], [CHAIN])


def test_llamacpp_gives_ids_before_sampling() -> None:
    top = [{"id": 8, "token": "x", "bytes": [120], "logprob": -0.5}, {"id": 9, "token": "y", "logprob": -1.5}]
    answer = {"index": 0, "completion_probabilities": [{**top[0], "top_logprobs": top}]}
    assert LlamaCpp().read([answer], [NEXT]) == [[{8: -0.5, 9: -1.5}]]
    after = {"completion_probabilities": [{"id": 8, "prob": 0.5, "top_probs": []}]}
    with pytest.raises(Unreadable, match="after its samplers"):
        LlamaCpp().read([after], [NEXT])


def test_llamacpp_without_probabilities_is_refused() -> None:
    """As it answers when the token it samples is part of a character."""
    with pytest.raises(Unreadable, match="has no completion_probabilities"):
        LlamaCpp().read({"index": 0, "content": "\ufffd", "tokens_evaluated": 3}, [NEXT])


def test_answers_come_in_the_order_of_their_numbers_or_not_at_all() -> None:
    def answer(index: Any, token: int) -> dict[str, Any]:
        top = [{"id": token, "logprob": -0.5}]
        return {"index": index, "completion_probabilities": [{"id": 1, "top_logprobs": top}]}

    two = [NEXT, Prompt((5, 6, 8), 2)]
    assert LlamaCpp().read([answer(1, 21), answer(0, 20)], two) == [[{20: -0.5}], [{21: -0.5}]]
    for numbers in ((0, 0), (1, 2), (0, True), ("0", "1")):
        with pytest.raises(Unreadable, match="not numbered"):
            LlamaCpp().read([answer(number, 20) for number in numbers], two)


@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        ("vllm", {**vllm_answer(), "usage": {"prompt_tokens": 4}}),
        ("sglang", [{"meta_info": {"prompt_tokens": 4, "output_top_logprobs": [[[-0.5, 8, None]]]}}]),
        (
            "llamacpp",
            {"tokens_evaluated": 2, "completion_probabilities": [{"top_logprobs": [{"id": 8, "logprob": -0.5}]}]},
        ),
    ],
)
def test_answers_about_other_tokens_than_were_sent_are_refused(dialect: str, answer: Any) -> None:
    with pytest.raises(Unreadable, match="where 3 were sent"):
        DIALECTS[dialect]().read(answer, [NEXT])


@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        ("vllm", {"choices": [{"logprobs": {"top_logprobs": [{" the": -0.5, "a": -1.0}]}}]}),
        ("vllm", {"choices": [{"logprobs": {"top_logprobs": [{"token_id:x": -0.5}]}}]}),
        ("sglang", [{"meta_info": {"output_top_logprobs": [[[-0.5, " the"]]]}}]),
        ("llamacpp", {"completion_probabilities": [{"content": "x", "probs": [{"tok_str": "x", "prob": 0.5}]}]}),
        ("llamacpp", {"completion_probabilities": [{"top_logprobs": [{"token": "x", "logprob": -1.0}]}]}),
    ],
)
def test_tokens_named_by_their_text_are_refused(dialect: str, answer: Any) -> None:
    with pytest.raises(EndpointError, match="by their text, not by their ids"):
        DIALECTS[dialect]().read(answer, [NEXT])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "logprobs", "top_logprobs", "meta_info", "output_top_logprobs", "token_id:3", "index", "id"]
            )
            | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(DIALECTS)), anything, st.sampled_from([NEXT, CHAIN]))
def test_whatever_comes_is_read_or_refused_in_our_words(dialect: str, answer: Any, prompt: Prompt) -> None:
    try:
        (places,) = DIALECTS[dialect]().read(answer, [prompt])
    except (Unreadable, EndpointError):
        return
    assert places


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({1: -0.5}, "listed 1 tokens where 2"),
        ({1: -0.1, 2: -0.1}, "add up to"),
        ({1: 0.5, 2: -3.0}, "no probabilities"),
        ({1: -0.5, 70: -3.0}, "listed token 70"),
    ],
)
def test_rows_that_cannot_be_are_refused(said: dict[int, float], words: str) -> None:
    with pytest.raises(EndpointError, match=words):
        row_of(said, listed=2, vocab_size=64)


def test_a_row_keeps_the_most_likely_and_drops_what_was_sampled_beside_them() -> None:
    row = row_of({9: -7.0, 4: -1.0, 3: -1.0, 8: -9999.0}, listed=2, vocab_size=64)
    assert row.token_ids.tolist() == [3, 4]


@given(st.text(min_size=1, max_size=20), st.data(), st.booleans())
def test_spans_cover_the_characters_whose_bytes_a_piece_holds(text: str, data: st.DataObject, is_padded: bool) -> None:
    written = (" " if is_padded else "").encode() + text.encode("utf-8", "ignore")
    text = text.encode("utf-8", "ignore").decode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(written)))) | {0, len(written)})
    pieces = [written[start:end] for start, end in pairwise(cuts)]
    spans = spans_of(text, pieces, name="it")
    assert len(spans) == len(pieces)
    place = -1 if is_padded else 0
    for piece, (start, end) in zip(pieces, spans, strict=True):
        held = range(max(0, place), place + len(piece))
        characters = [len(text.encode()[:byte].decode("utf-8", "ignore")) for byte in held]
        expected = (min(characters), max(characters) + 1) if characters else (0, 0)
        assert (start, end) == expected
        place += len(piece)


def test_pieces_that_are_another_text_are_refused() -> None:
    with pytest.raises(ModelError, match="are not that text"):
        spans_of("The cat", [b"the", b" cat"], name="it")
