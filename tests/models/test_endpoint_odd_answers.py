"""Whatever a server answers, the model is used or refused in one sentence about the server, without the key."""

import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from byrote.errors import ByroteError, EndpointError
from byrote.models.listed import Prompt
from byrote.models.responder import AnswerUnreadable
from byrote.models.served.check import DIALECTS as KINDS
from byrote.models.served.model import EndpointModel, connect
from byrote.policy import Policy
from tests.loopback.logprobs import Habits
from tests.loopback.odd import spoiled
from tests.models.served import DIALECTS, KEY, MemoryRequestCount, open_served, quick, serving
from tests.table import TableModel

POLICY = Policy(1.0, 4)
TABLE = TableModel.random(5, vocab_size=9)
OWN_PATHS = ("/v1/models", "/tokenize", "/props", "/detokenize")


def in_one_answer(kind: str, number: int, change: Callable[[bytes], bytes]) -> Callable[[str, bytes], bytes]:
    """Changes the answer to the request that is number `number` (from 0) of its kind: a path, or "probabilities"."""
    seen: Counter[str] = Counter()

    def spoil(path: str, content: bytes) -> bytes:
        own = path if path in OWN_PATHS else "probabilities"
        seen[own] += 1
        return change(content) if (own, seen[own] - 1) == (kind, number) else content

    return spoil


def use(model: EndpointModel) -> None:
    model.next_logits([[1, 2], [3, 4]])
    model.score([[1, 2, 3, 4, 5]], 2, [POLICY])
    assert KEY not in repr(model.identity)


def assert_one_sentence(error: ByroteError) -> None:
    words = str(error)
    assert KEY not in words
    assert KEY[:12] not in words, "half a key is a key too"
    assert words.isprintable()
    assert len(words) < 900


@pytest.mark.parametrize("seed", range(45))
def test_an_odd_answer_is_used_or_refused_in_one_sentence(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    kind = rng.choice(["/v1/models", "/tokenize", "probabilities", "probabilities"])
    spoil = in_one_answer(kind, rng.choice([0, 0, 0, 1, 2, 4]), lambda content: spoiled(content, rng, KEY)[1])
    with serving(TABLE, Habits(dialect=DIALECTS[seed % 3]), spoil=spoil) as server:
        try:
            with open_served(server, tmp_path, POLICY) as model:
                use(model)
        except ByroteError as error:
            assert_one_sentence(error)


@pytest.mark.parametrize("seed", range(15))
def test_an_odd_answer_of_a_server_s_own_tokenizer_is_used_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    spoil = in_one_answer(
        rng.choice(OWN_PATHS), rng.choice([0, 0, 1, 2]), lambda content: spoiled(content, rng, KEY)[1]
    )

    def pieces(text: str) -> list[tuple[int, str]]:
        return [(ord(character) % 9, character) for character in text]

    habits = Habits(dialect="llamacpp")
    with serving(TABLE, habits, spoil=spoil, pieces=pieces, decode=lambda ids: "x" * len(ids)) as server:
        try:
            model = connect(
                f"endpoint:{server.url}",
                key=KEY,
                policy=POLICY,
                tokenizer=None,
                limits=quick(),
                sent=MemoryRequestCount(),
            )
            with closing(model):
                assert model.bos_id("auto") is None
                assert len(model.encode_batch(["ab"])[0].ids) == 2
                assert KEY not in model.decode([1, 2])
        except ByroteError as error:
            assert_one_sentence(error)


def first_list(answer: Any) -> dict[str, Any]:
    listed: dict[str, Any] = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    return listed


def with_value(value: Any) -> Callable[[Any], Any]:
    def change(answer: Any) -> Any:
        listed = first_list(answer)
        return listed.update(dict.fromkeys(listed, value))

    return change


ODD = {
    "no choices": (lambda answer: answer.pop("choices"), "it has no choices"),
    "a choice too many": (lambda answer: answer["choices"].append(answer["choices"][0]), "2 of 1"),
    "a token too many": (lambda answer: answer["usage"].update(prompt_tokens=99), "about 99 tokens"),
    "NaN": (with_value(float("nan")), "a log-probability is 'nan'"),
    "400 digits": (with_value(10**400), "a value that cannot be used"),
    "a key of 5,000 digits": (
        lambda answer: first_list(answer).update({f"token_id:{'9' * 5000}": -1.0}),
        "a value that cannot be used",
    ),
    "null everywhere": (with_value(None), "they are no probabilities"),
    "positive without end": (with_value(float("inf")), "they are no probabilities"),
}


@pytest.mark.parametrize(("change", "words"), ODD.values(), ids=ODD)
def test_the_first_answer_may_be_odd(change: Callable[[Any], Any], words: str, tmp_path: Path) -> None:
    def changed(content: bytes) -> bytes:
        answer = json.loads(content)
        change(answer)
        return json.dumps(answer).encode()

    spoil = in_one_answer("probabilities", 0, changed)
    # What is no probability is found by the first request whose values are used.
    every = lambda path, content: changed(content) if path == "/v1/completions" else content  # noqa: E731
    is_about_values = words == "they are no probabilities"
    with (
        serving(TABLE, spoil=every if is_about_values else spoil) as server,
        pytest.raises(EndpointError, match=words) as raised,
        open_served(server, tmp_path, POLICY),
    ):
        pass
    assert isinstance(raised.value, AnswerUnreadable) is not is_about_values


@pytest.mark.parametrize("name", ["id", "owned_by"])
def test_a_key_that_a_server_gives_as_a_name_is_neither_told_nor_kept(name: str, tmp_path: Path) -> None:
    def echo(path: str, content: bytes) -> bytes:
        answer = json.loads(content)
        if path == "/v1/models":
            answer["data"][0][name] = f"Bearer {KEY}"
        return json.dumps(answer).encode()

    with serving(TABLE, spoil=echo) as server:
        with (
            pytest.raises(ByroteError, match="key removed") as raised,
            open_served(server, tmp_path, POLICY, served_model="other" if name == "id" else None),
        ):
            pass
        assert_one_sentence(raised.value)
        with open_served(server, tmp_path, POLICY, dialect="vllm") as model:
            use(model)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_seed_is_sent(dialect: str) -> None:
    """A seeded request whose prompt is computed in parts ends a vLLM server on a CPU, and nothing sampled is used."""
    body = KINDS[dialect]().body([Prompt((1, 2, 3), 1)], model="m", listed=4)
    assert "seed" not in json.dumps(body)
