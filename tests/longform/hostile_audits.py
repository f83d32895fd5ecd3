"""Audits of endpoints that break, lie or attack."""

from collections.abc import Callable, Mapping
from typing import Any

from byrote.longform.run import AuditResult, AuditRun, run_audit
from byrote.models.responder import Message, Request
from byrote.models.served.chat import ChatResponder
from tests.longform.audits import KEY, CountingClock, invented_book
from tests.loopback.brains import KnowsByHeart
from tests.loopback.hostile import (
    Act,
    HostileServer,
    completion,
    sent,
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
