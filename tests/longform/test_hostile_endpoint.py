"""Nothing an endpoint sends can hang an audit, empty a purse, follow the key elsewhere, or make a resume fail."""

import gzip
import json
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rote.errors import ConfigError, EndpointError
from rote.longform.budget import Ceilings, Prices
from rote.longform.journal import read_journal
from rote.longform.loop import Stop
from rote.longform.run import AuditResult, AuditRun, run_audit
from rote.models.bounded_http import BoundedClient
from rote.models.chat import ChatResponder
from rote.models.origin import check_endpoint, key_from_environment
from rote.models.responder import Message, Request, RequestFailed, RetryPolicy
from tests.longform.audits import KEY, CountingClock, invented_book, make_run
from tests.loopback.brains import KnowsByHeart
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

BOOK = invented_book(260)
KNOWS = KnowsByHeart(BOOK)
REQUEST = Request((Message("user", "hello " * 40),), max_tokens=60)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def honest(body: Mapping[str, Any]) -> Act:
    (text,) = KNOWS(body)
    prompt = sum(len(message["content"].split()) for message in body["messages"])
    return sent(completion(text, usage={"prompt_tokens": prompt, "completion_tokens": len(text.split())}))


def at(place: int, act: Act) -> Callable[[int, Mapping[str, Any]], Act]:
    """Honest but for one request."""
    return lambda number, body: act if number == place else honest(body)


def responder_for(server: HostileServer, **arguments: Any) -> ChatResponder:
    return ChatResponder(server.url, "hostile", **({"key": KEY, "timeout_seconds": 10.0} | arguments))


def audited(server: HostileServer, run: AuditRun, **arguments: Any) -> AuditResult:
    responder = responder_for(server, **arguments)
    try:
        return run_audit(run, responder, sleep=CountingClock().sleep)
    finally:
        responder.close()


def one_request(act: Act, **arguments: Any) -> Any:
    with HostileServer(lambda number, body: act) as server:
        responder = responder_for(server, **arguments)
        try:
            return responder.complete(REQUEST, idempotency_key="one")
        finally:
            responder.close()


# --- replies are validated before they are journalled, and a resume never fails -------------------------------------

USAGES = {
    "missing": "absent",
    "null": None,
    "a list": [1, 2],
    "half": {"prompt_tokens": 100},
    "negative": {"prompt_tokens": -5, "completion_tokens": 10},
    "a fraction": {"prompt_tokens": 100, "completion_tokens": 1.5},
    "text": {"prompt_tokens": "100", "completion_tokens": "10"},
    "a truth": {"prompt_tokens": True, "completion_tokens": True},
    "not a number": {"prompt_tokens": float("nan"), "completion_tokens": float("inf")},
    "absurd": {"prompt_tokens": 10**30, "completion_tokens": 10**30},
    "nothing": {"prompt_tokens": 0, "completion_tokens": 0},
    "too few for the text": {"prompt_tokens": 1, "completion_tokens": 60},
}


@pytest.mark.parametrize("usage", USAGES.values(), ids=USAGES)
def test_a_usage_that_cannot_be_true_is_booked_at_no_less_than_the_worst_case(tmp_path: Path, usage: Any) -> None:
    def choose(number: int, body: Mapping[str, Any]) -> Act:
        return sent(completion(KNOWS(body)[0], usage=usage)) if number == 1 else honest(body)

    run = make_run(BOOK, tmp_path / "run")
    with HostileServer(choose) as server:
        result = audited(server, run)
        assert result.trials[0].sections[0].outcome.stop is Stop.END_OF_BOOK
        records = read_journal(tmp_path / "run" / "journal.jsonl")
        (intent, answer) = [record for record in records if record["place"].endswith("phase-2/0")]
        assert answer["booked"]["prompt_tokens"] >= intent["worst_case"]["prompt_tokens"]
        assert answer["booked"]["completion_tokens"] >= 60
        asked = len(server.bodies)
        again = audited(server, run)
    assert (again.trials, again.costs) == (result.trials, result.costs)
    assert len(server.bodies) == asked, "resuming pays nothing"


def test_an_answer_beyond_its_limit_without_a_count_is_booked_by_its_bytes(tmp_path: Path) -> None:
    flood = "word " * 20_000
    with HostileServer(at(1, sent(completion(flood)))) as server:
        audited(server, make_run(BOOK, tmp_path / "run", options={"max_turns": 1}))
    answers = [record for record in read_journal(tmp_path / "run" / "journal.jsonl") if record["kind"] == "answer"]
    assert answers[1]["booked"]["completion_tokens"] == len(flood)


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
    assert "🙂 \ud800" in first.trials[0].sections[0].outcome.generation


# --- ceilings fail closed ------------------------------------------------------------------------------------------


def test_an_endpoint_that_overruns_its_limit_cannot_pass_a_ceiling_twice(tmp_path: Path) -> None:
    """It counts 50,000 tokens for answers limited to 60. One request can do that; the next has 50,000 more to fear."""

    def choose(number: int, body: Mapping[str, Any]) -> Act:
        return sent(completion(KNOWS(body)[0], usage={"prompt_tokens": 100, "completion_tokens": 50_000}))

    run = make_run(BOOK, tmp_path / "run", ceilings=Ceilings(max_tokens_total=120_000))
    with HostileServer(choose) as server:
        result = audited(server, run)
        assert result.is_cut_short
        assert len(server.bodies) == 2
        assert audited(server, run).is_cut_short
        assert len(server.bodies) == 2, "the resumed audit knows it too"


@pytest.mark.parametrize("act", [silent, sent(b"busy", status="502 Bad Gateway"), sent(b"{}")])
def test_requests_have_a_ceiling_that_counts_failures_and_holds_across_resumes(tmp_path: Path, act: Act) -> None:
    run = make_run(BOOK, tmp_path / "run", ceilings=Ceilings(max_requests=3), retry=RetryPolicy(attempts=2))
    with HostileServer(lambda number, body: act) as server:
        for _ in range(3):
            with pytest.raises(EndpointError):
                audited(server, run, timeout_seconds=0.2)
        assert len(server.bodies) == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("name", ["input", "output", "cached_input", "max_cost", "max_tokens_total", "max_requests"])
def test_prices_and_ceilings_that_are_no_finite_number_are_refused(name: str, value: float) -> None:
    known = {"input": 1.0, "output": 1.0}
    with pytest.raises(ConfigError, match=rf"{name} is .*; a (price|ceiling) is a finite number, 0 or more"):
        Prices(**(known | {name: value})) if "max" not in name else Ceilings(**{name: value})  # type: ignore[arg-type]


# --- bounds in time and size, and no way elsewhere -----------------------------------------------------------------

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
        client = BoundedClient(timeout_seconds=20, most_body_bytes=200_000)
        with pytest.raises(RequestFailed, match=r"more (than the 200,000 bytes|bytes than) allowed"):
            client.post(server.url, {}, {})
        client.close()


def test_a_packed_answer_is_unpacked_and_an_unknown_packing_refused() -> None:
    content = completion("hello there")
    for encoding, packed in {"gzip": gzip.compress(content), "deflate": zlib.compress(content)}.items():
        assert one_request(sent(packed, headers={"Content-Encoding": encoding})).answers[0].text == "hello there"
    with pytest.raises(RequestFailed, match="packed its answer as 'zstd' though asked not to"):
        one_request(sent(content, headers={"Content-Encoding": "zstd"}))
    with pytest.raises(RequestFailed, match="broke off in the middle"):
        one_request(sent(gzip.compress(content)[:-9], headers={"Content-Encoding": "gzip"}))
    with pytest.raises(RequestFailed, match="closed the connection before the answer was complete"):
        one_request(sent(b"no gzip", headers={"Content-Encoding": "gzip"}))


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_the_key_follows_no_redirect(tmp_path: Path, status: str) -> None:
    with HostileServer(lambda number, body: sent(completion("gotcha"))) as elsewhere:
        act = sent(b"", status=status, headers={"Location": f"{elsewhere.url}/chat/completions"})
        with (
            HostileServer(lambda number, body: act) as server,
            pytest.raises(EndpointError, match=r"points to another address, .*give that one with --endpoint"),
        ):
            audited(server, make_run(BOOK, tmp_path / "run"))
        assert elsewhere.bodies == []
        assert len(server.bodies) == 1


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


# --- refusals that the endpoint declares ---------------------------------------------------------------------------

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
        outcome = audited(server, run).trials[0].sections[0].outcome
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


# --- the key -------------------------------------------------------------------------------------------------------


def test_the_journal_keeps_an_answer_as_it_came_even_with_the_key_in_it(tmp_path: Path) -> None:
    def choose(number: int, body: Mapping[str, Any]) -> Act:
        return sent(completion(f"{KNOWS(body)[0]} {KEY}"))

    with HostileServer(choose) as server:
        audited(server, make_run(BOOK, tmp_path / "run", options={"max_turns": 1}))
    answers = [record for record in read_journal(tmp_path / "run" / "journal.jsonl") if record["kind"] == "answer"]
    assert all(answer["answers"][0]["text"].endswith(f" {KEY}") for answer in answers)


@pytest.mark.parametrize(("key", "shown"), [(KEY, "bad [key removed]!"), ("bad", "bad bad!")])
def test_a_message_of_an_error_loses_the_key_unless_it_is_too_short_to_be_one(key: str, shown: str) -> None:
    error = json.dumps({"error": {"message": f"bad {key}!"}}).encode()
    with pytest.raises(EndpointError) as raised:
        one_request(sent(error, status="401 Unauthorized"), key=key)
    assert f"answered 401: {shown}" in str(raised.value)


def test_a_server_s_words_cannot_act_on_a_terminal() -> None:
    error = json.dumps({"error": {"message": "\x1b[2J\u202egnp\x07 ok"}}).encode()
    with pytest.raises(EndpointError) as raised:
        one_request(sent(error, status="401 Unauthorized"))
    assert "answered 401: \\x1b[2J\\u202egnp\\x07 ok; check the key" in str(raised.value)


@pytest.mark.parametrize("key", ["sk-0123\n4567", "sk-schlüssel", "sk-\x1b[0m01234567"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("SOME_KEY", key)
    with pytest.raises(ConfigError, match="The key in SOME_KEY holds characters") as raised:
        key_from_environment("SOME_KEY")
    assert key not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://[", "http://host:99999999/v1", "http://a b/", "http://h\x00st", "ftp://x", "//x"]
)
def test_a_malformed_endpoint_is_one_sentence(url: str) -> None:
    with pytest.raises(ConfigError, match="is not a URL; write it like"):
        check_endpoint(url)


def test_files_with_answers_are_the_owner_s_alone(tmp_path: Path) -> None:
    with HostileServer(lambda number, body: honest(body)) as server:
        audited(server, make_run(BOOK, tmp_path / "run"))
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != ".lock"]
    assert {path.name for path in files} >= {"journal.jsonl", "findings.json", "trial-000-section-000.txt"}
    assert {oct(os.stat(path).st_mode & 0o777) for path in files} == {"0o600"}


def test_a_killed_audit_leaves_no_litter(tmp_path: Path) -> None:
    """SIGKILL while a file is written leaves its half; whoever resumes takes it away, and nothing of others."""
    run = make_run(BOOK, tmp_path / "run", options={"max_turns": 1})
    with HostileServer(lambda number, body: honest(body)) as server:
        audited(server, run)
        halves = [
            tmp_path / "run" / name for name in (".findings.json.4000000.rote-tmp", "generations/.a.txt.1.rote-tmp")
        ]
        for path in (*halves, tmp_path / "run" / "my-notes.txt"):
            path.write_text("half", encoding="utf-8")
        audited(server, run)
    assert not [path for path in halves if path.exists()]
    assert (tmp_path / "run" / "my-notes.txt").exists()
