"""Nothing an endpoint sends can hang an audit or make a resume fail."""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from byrote.longform.loop import Stop
from byrote.models.responder import RequestFailed
from byrote.models.served.client import HttpClient
from tests.longform.audits import make_run
from tests.longform.hostile_audits import BOOK, HEAD, KNOWS, at, audited, one_request
from tests.loopback.hostile import (
    GZIP_BOMB,
    Act,
    HostileServer,
    completion,
    endless,
    events,
    raw,
    sent,
    silent,
    trickling,
)

CONTENTS = {
    "null": (None, ""),
    "parts": ([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}], "one two"),
    "no parts": ([], ""),
    "a lone surrogate": ("one \ud800 two", "one \ud800 two"),
    "a NUL": ("one \x00 two", "one \x00 two"),
}


@pytest.mark.parametrize(("content", "text"), CONTENTS.values(), ids=CONTENTS)
def test_content_in_every_form_is_a_text(content: Any, text: str) -> None:
    assert one_request(sent(completion({"content": content}))).answers[0].text == text


UNREADABLE = {
    "no choices": completion("", choices=[]),
    "choices that are null": completion("", choices=None).replace(b'"choices": [', b'"choices": null, "x": ['),
    "choices that are numbers": completion("", choices=[1, 2]),
    "no message": completion("", choices=[{"index": 0}]),
    "a message that is a text": completion("", choices=[{"index": 0, "message": "hello"}]),
    "content that is a number": completion({"content": 7}),
    "parts that are numbers": completion({"content": [7]}),
    "a text of a part that is an object": completion({"content": [{"text": {"value": "x"}}]}),
    "a list": b"[]",
    "null": b"null",
    "nothing": b"",
    "no JSON": b"<html>busy</html>",
    "JSON too deep": b"[" * 100_000,
    "a number too long": b'{"choices": ' + b"9" * 100_000 + b"}",
    "no UTF-8": b'{"choices": "\xff\xfe"}',
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_completion_is_a_failure_that_may_have_been_billed(content: bytes) -> None:
    with pytest.raises(RequestFailed, match="gave an answer that cannot be read") as raised:
        one_request(sent(content))
    assert raised.value.may_be_billed


def test_halves_of_a_character_in_two_pieces_of_a_stream_do_not_make_a_resume_fail(tmp_path: Path) -> None:
    """Apart in memory and one character when read from the journal, they changed the next request on resuming."""

    def choose(number: int, body: Mapping[str, Any]) -> Act:
        (text,) = KNOWS(body)
        halves = [{"index": 0, "delta": {"content": half}} for half in (f"{text} \ud83d", "\ude42 \ud800")]
        closing = {"index": 0, "delta": {}, "finish_reason": "stop"}
        return sent(events(*({"choices": [piece]} for piece in (*halves, closing))))

    run = make_run(BOOK, tmp_path / "run", options={"max_turns": 3})
    with HostileServer(choose) as server:
        first = audited(server, run, stream=True)
        asked = len(server.bodies)
        assert audited(server, run, stream=True).trials == first.trials
    assert len(server.bodies) == asked
    assert "🙂 \ud800" in first.trials[0].sections[0].generation


SLOW = {
    "silence": silent,
    "a trickling body": trickling(HEAD + b"Content-Length: 1000000\r\n\r\n{", b" "),
    "trickling chunks": trickling(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "trickling headers": trickling(HEAD, b"X: y\r\n"),
    "a trickling status": trickling(b"HTTP/1.1 ", b""),
    "preliminary answers without end": trickling(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.parametrize("act", SLOW.values(), ids=SLOW)
def test_a_request_has_one_deadline_whatever_trickles_in(act: Act) -> None:
    with pytest.raises(RequestFailed, match="did not answer in time") as raised:
        one_request(act, timeout_seconds=0.4)
    assert raised.value.may_be_billed


LARGE = {
    "a body without end": endless(HEAD + b"Connection: close\r\n\r\n", b" " * 65536),
    "chunks without end": endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"8000\r\n" + b" " * 0x8000 + b"\r\n"),
    "a bomb": sent(GZIP_BOMB, headers={"Content-Encoding": "gzip"}),
    "an error without end": endless(b"HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n", b" " * 65536),
}


@pytest.mark.parametrize("act", LARGE.values(), ids=LARGE)
def test_a_body_is_cut_off_at_the_limit_before_and_after_it_is_unpacked(act: Act) -> None:
    with HostileServer(lambda number, body: act) as server:
        client = HttpClient(server.url, "x", timeout_seconds=20, max_body_bytes=200_000)
        with pytest.raises(RequestFailed, match=r"more (than the 200,000 bytes|bytes than) allowed"):
            client.request("", {})
        client.close()


def test_a_packed_answer_is_unpacked_and_an_unknown_packing_refused() -> None:
    content = completion("hello there")
    for encoding, packed in {"gzip": gzip.compress(content), "deflate": zlib.compress(content)}.items():
        assert one_request(sent(packed, headers={"Content-Encoding": encoding})).answers[0].text == "hello there"
    with pytest.raises(RequestFailed, match="packed its answer in an unknown way"):
        one_request(sent(content, headers={"Content-Encoding": "zstd"}))
    with pytest.raises(RequestFailed, match="broke off in the middle"):
        one_request(sent(gzip.compress(content)[:-9], headers={"Content-Encoding": "gzip"}))
    with pytest.raises(RequestFailed, match="closed the connection before the answer was complete"):
        one_request(sent(b"no gzip", headers={"Content-Encoding": "gzip"}))


GARBAGE = {
    "nothing": raw(b""),
    "no HTTP": raw(b"hello\r\n\r\n"),
    "a short body": sent(b"{}", headers={"Content-Length": "50"}),
    "a length that is no number": sent(b"{}", headers={"Content-Length": "many"}),
    "a chunk that is none": raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "headers without end": raw(HEAD + b"X: " + b"y" * 500_000),
}


@pytest.mark.parametrize("act", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_a_failure_in_our_words(act: Act) -> None:
    with pytest.raises(RequestFailed, match="closed the connection before the answer was complete"):
        one_request(act)


DECLARED = {
    "a filter": sent(completion("and so they", finish_reason="content_filter")),
    "a filter with nothing": sent(completion({"content": None}, finish_reason="content_filter")),
    "a refusal field": sent(completion({"content": None, "refusal": "No."})),
    "a refusal part": sent(completion({"content": [{"type": "refusal", "refusal": "No."}]})),
    "a refusal as the reason": sent(completion("", finish_reason="refusal")),
    "a filter as an error": sent(b'{"error": {"code": "content_filter", "message": "x"}}', status="400 Bad Request"),
}


@pytest.mark.parametrize("act", DECLARED.values(), ids=DECLARED)
def test_a_declared_refusal_ends_phase_2_and_is_not_asked_again(tmp_path: Path, act: Act) -> None:
    run = make_run(BOOK, tmp_path / "run", options={"refusal_retries": 5, "max_empty": 5})
    with HostileServer(at(2, act)) as server:
        outcome = audited(server, run).trials[0].sections[0]
    assert (outcome.stop, outcome.turns) == (Stop.DECLARED_REFUSAL, 2)
    assert len(server.bodies) == 3
    assert outcome.generation.split() == BOOK.split()[20 : 20 + 50 + 60], "what a filter cut off is no part of it"


def test_a_declared_refusal_in_a_stream() -> None:
    pieces = [{"index": 0, "delta": {"refusal": piece}} for piece in ("I ", "won't.")]
    act = sent(
        events(*({"choices": [piece]} for piece in (*pieces, {"index": 0, "delta": {}, "finish_reason": "stop"})))
    )
    (answer,) = one_request(act, stream=True).answers
    assert (answer.text, answer.refusal, answer.is_declared_refusal) == ("", "I won't.", True)


def test_an_endpoint_that_does_not_stream_is_read_whole() -> None:
    assert one_request(sent(completion("hello")), stream=True).answers[0].text == "hello"
