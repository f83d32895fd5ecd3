"""A small OpenAI-compatible chat server on the loopback interface, with faults on demand.

What it answers is decided by a brain: any function from the request's body to the texts of the completions. What goes
wrong is decided by `faults`: the n-th request that arrives (from 0) suffers `faults[n]`. It honours idempotency keys:
a key it has answered before gets the same answer again and is not billed twice.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.loopback.base import Loopback

Brain = Callable[[Mapping[str, Any]], list[str]]
REFUSAL = "I'm sorry, but I can't continue this text because it is copyrighted material."


class Fault(StrEnum):
    REFUSAL = "refusal"
    EMPTY = "empty"
    RATE_LIMIT = "rate_limit"
    """429 with Retry-After: 7."""
    SERVER_ERROR = "server_error"
    TRUNCATED = "truncated"
    """The body, or the stream, ends in the middle. The work is billed."""
    SLOW = "slow"
    """No answer until the server is closed. The work is billed."""
    DROPPED = "dropped"
    """The connection is closed before anything was worked on."""
    DROPPED_AFTER_WORK = "dropped_after_work"
    """The work is done and billed, and the connection closed without an answer."""
    NOT_JSON = "not_json"
    NO_CHOICES = "no_choices"
    NO_USAGE = "no_usage"
    ECHO_KEY = "echo_key"
    """401 with the key in the message, as some gateways do."""
    NOT_FOUND = "not_found"
    TOO_LONG = "too_long"
    """400: the conversation does not fit the model."""
    OUT_OF_MEMORY = "out of memory"
    """500, with these words."""


STATUS = {
    Fault.RATE_LIMIT: 429,
    Fault.SERVER_ERROR: 500,
    Fault.ECHO_KEY: 401,
    Fault.NOT_FOUND: 404,
    Fault.TOO_LONG: 400,
    Fault.OUT_OF_MEMORY: 500,
}


@dataclass
class Log:
    """What the server saw. `billed` holds the usage of every piece of work, once per idempotency key."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    authorisations: list[str] = field(default_factory=list)
    billed: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def billed_tokens(self) -> int:
        return sum(usage["prompt_tokens"] + usage["completion_tokens"] for usage in self.billed.values())


class LoopbackServer(Loopback):
    """Answers chat requests by its brain."""

    def __init__(self, brain: Brain, faults: Mapping[int, Fault] | None = None, *, cached_share: float = 0.0) -> None:
        self.brain = brain
        self.faults = dict(faults or {})
        self.cached_share = cached_share
        self.log = Log()
        self.answers: dict[str, dict[str, Any]] = {}
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handler(self)))

    def admit(self, body: dict[str, Any], key: str, authorisation: str) -> Fault | None:
        with self.lock:
            number = len(self.log.bodies)
            self.log.bodies.append(body)
            self.log.keys.append(key)
            self.log.authorisations.append(authorisation)
            return self.faults.get(number)

    def work(self, body: dict[str, Any], key: str, fault: Fault | None) -> dict[str, Any]:
        """The completion, billed once per key."""
        with self.lock:
            if key not in self.answers:
                self.answers[key] = self._completion(body, fault)
                self.log.billed[key] = self.answers[key]["usage"]
            return self.answers[key]

    def _completion(self, body: dict[str, Any], fault: Fault | None) -> dict[str, Any]:
        texts = self.brain(body)
        if fault in (Fault.REFUSAL, Fault.EMPTY):
            texts = [REFUSAL if fault is Fault.REFUSAL else ""] * len(texts)
        prompt_tokens = sum(len(message["content"].split()) for message in body["messages"])
        completion_tokens = sum(len(text.split()) for text in texts)
        return {
            "id": "loopback",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {"index": n, "finish_reason": "stop", "message": {"role": "assistant", "content": text or None}}
                for n, text in enumerate(texts)
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
                "prompt_tokens_details": {"cached_tokens": int(self.cached_share * prompt_tokens)},
            },
        }


def _handler(server: LoopbackServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = self.headers.get("Idempotency-Key", "")
            fault = server.admit(body, key, self.headers.get("Authorization", ""))
            if fault is Fault.DROPPED:
                self.close_connection = True
            elif fault in STATUS:
                self.refuse(fault)
            else:
                self.answer(body, server.work(body, key, fault), fault)

        def refuse(self, fault: Fault) -> None:
            message = f"invalid: {self.headers['Authorization']}" if fault is Fault.ECHO_KEY else f"fault: {fault}"
            headers = {"Retry-After": "7"} if fault is Fault.RATE_LIMIT else {}
            self.send(STATUS[fault], json.dumps({"error": {"message": message}}).encode(), headers)

        def answer(self, body: dict[str, Any], completion: dict[str, Any], fault: Fault | None) -> None:
            if fault is Fault.SLOW:
                server.closing.wait()
            if fault in (Fault.SLOW, Fault.DROPPED_AFTER_WORK):
                self.close_connection = True
                return
            if fault is Fault.NO_CHOICES:
                completion = completion | {"choices": []}
            if fault is Fault.NO_USAGE:
                completion = {name: value for name, value in completion.items() if name != "usage"}
            if body.get("stream"):
                self.send_stream(completion, fault)
            else:
                content = b"this is not JSON" if fault is Fault.NOT_JSON else json.dumps(completion).encode()
                self.send(200, content, {}, cut=fault is Fault.TRUNCATED)

        def send(self, status: int, content: bytes, headers: dict[str, str], *, cut: bool = False) -> None:
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(content)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)
            self.close_connection = cut

        def send_stream(self, completion: dict[str, Any], fault: Fault | None) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            events = list(_events(completion))
            for event in events[: len(events) // 2] if fault is Fault.TRUNCATED else events:
                self.wfile.write(f"data: {event}\n\n".encode())
            self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    return Handler


def _events(completion: dict[str, Any]) -> list[str]:
    base = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    events = []
    for choice in completion["choices"]:
        for n, word in enumerate((choice["message"]["content"] or "").split(" ")):
            content = f" {word}" if n else word
            delta = {"index": choice["index"], "delta": {"content": content}, "finish_reason": None}
            events.append(base | {"choices": [delta]})
        closing = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        events.append(base | {"choices": [closing]})
    events.append(base | {"choices": [], "usage": completion.get("usage")})
    return [*(json.dumps(event) for event in events), "[DONE]"]
