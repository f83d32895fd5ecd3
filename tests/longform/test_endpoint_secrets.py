"""Keys and answers stay where they belong, whatever an endpoint sends."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from byrote.errors import ConfigError, EndpointError
from byrote.models.responder import Message, Request
from byrote.models.served.chat import ChatResponder
from byrote.models.served.client import check_endpoint, credentials_for
from byrote.store.journal import read_records
from tests.longform.audits import KEY, make_run
from tests.longform.hostile_audits import BOOK, KNOWS, audited, honest, one_request
from tests.loopback.hostile import (
    Act,
    HostileServer,
    completion,
    sent,
)


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


def test_the_journal_keeps_an_answer_as_it_came_even_with_the_key_in_it(tmp_path: Path) -> None:
    def choose(number: int, body: Mapping[str, Any]) -> Act:
        return sent(completion(f"{KNOWS(body)[0]} {KEY}"))

    with HostileServer(choose) as server:
        audited(server, make_run(BOOK, tmp_path / "run", options={"max_turns": 1}))
    answers = [record for record in read_records(tmp_path / "run" / "journal.jsonl") if record["kind"] == "answer"]
    assert all(answer["answers"][0]["text"].endswith(f" {KEY}") for answer in answers)


@pytest.mark.parametrize(("key", "shown"), [(KEY, "bad [key removed]!"), ("bad", "bad bad!")])
def test_a_message_of_an_error_loses_the_key_unless_it_is_too_short_to_be_one(key: str, shown: str) -> None:
    error = json.dumps({"error": {"message": f"bad {key}!"}}).encode()
    with pytest.raises(EndpointError) as raised:
        one_request(sent(error, status="401 Unauthorized"), key=key)
    assert f"answered 401: {shown}" in str(raised.value)


@pytest.mark.parametrize("before", [0, 280, 290, 299])
def test_no_part_of_a_key_is_left_where_a_message_is_cut(before: int) -> None:
    error = json.dumps({"error": {"message": f"{'x' * before}{KEY}"}}).encode()
    with pytest.raises(EndpointError) as raised:
        one_request(sent(error, status="401 Unauthorized"))
    assert KEY[:3] not in str(raised.value)


@pytest.mark.parametrize("header", ["Content-Encoding", "Location", "Retry-After"])
def test_a_key_in_a_header_is_not_shown(header: str) -> None:
    status = {"Content-Encoding": "200 OK", "Location": "307 Elsewhere", "Retry-After": "429 Slow"}[header]
    with pytest.raises(EndpointError) as raised:
        one_request(sent(completion("x"), status=status, headers={header: KEY.upper()}), key=KEY.upper())
    assert KEY[:10] not in str(raised.value).lower()


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
        credentials_for("https://host/v1", "SOME_KEY", option="--endpoint")
    assert key not in str(raised.value)


def test_no_key_is_read_that_was_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert credentials_for("https://host/v1", None, option="--endpoint") is None
    assert credentials_for("https://host/v1", "OPENAI_API_KEY", option="--endpoint") == KEY


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost:8000/v1", True),
        ("http://[::1]:8000", True),
        ("https://host.example/v1", True),
        ("http://host.example/v1", False),
        ("http://10.0.0.7:8000", False),
        ("http://localhost.example/v1", False),
        ("http://127.0.0.1.example/v1", False),
    ],
)
def test_a_key_goes_over_plain_http_to_this_machine_alone(
    monkeypatch: pytest.MonkeyPatch, url: str, is_sent: bool
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    if is_sent:
        assert credentials_for(url, "SOME_KEY", option="--endpoint") == KEY
    else:
        with pytest.raises(ConfigError, match="is plain http, and the key in SOME_KEY could be read") as raised:
            credentials_for(url, "SOME_KEY", option="--endpoint")
        assert KEY not in str(raised.value)
        assert credentials_for(url, "SOME_KEY", option="--endpoint", over_http=True) == KEY
        assert credentials_for(url, None, option="--endpoint") is None


def test_the_url_is_checked_before_the_key_is_read() -> None:
    with pytest.raises(ConfigError, match="is not a URL"):
        credentials_for("htp://host", "NOT_SET_ANYWHERE", option="--endpoint")


def test_a_server_that_requires_a_key_is_told_apart_from_one_that_refuses_it() -> None:
    error = json.dumps({"error": {"message": "who are you"}}).encode()
    with pytest.raises(EndpointError, match="holds its key with --key-variable"):
        one_request(sent(error, status="401 Unauthorized"), key=None)
    with pytest.raises(EndpointError, match="check the key in the environment"):
        one_request(sent(error, status="401 Unauthorized"))


def test_without_a_key_no_authorisation_is_sent() -> None:
    with HostileServer(lambda number, body: honest(body)) as server:
        ChatResponder(server.url, "m", key=None).complete(
            Request((Message("user", "hi"),), max_tokens=5), idempotency_key="k"
        )
    assert server.authorisations == []


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
            tmp_path / "run" / name for name in (".findings.json.4000000.byrote-tmp", "generations/.a.txt.1.byrote-tmp")
        ]
        for path in (*halves, tmp_path / "run" / "my-notes.txt"):
            path.write_text("half", encoding="utf-8")
        audited(server, run)
    assert not [path for path in halves if path.exists()]
    assert (tmp_path / "run" / "my-notes.txt").exists()
