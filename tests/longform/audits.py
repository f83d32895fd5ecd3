"""Shared by the audit tests: a book, a run against the loopback server, and a clock that only counts."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from byrote.corpus.read import Document
from byrote.longform.options import AuditOptions, GenerationSettings
from byrote.longform.run import AuditResult, AuditRun, run_audit
from byrote.models.responder import Answer, Reply, Request, Usage
from byrote.models.served.chat import ChatResponder
from byrote.types import Split
from tests.loopback.server import Brain, LoopbackServer

KEY = "sk-very-secret-0123456789"


def invented_book(words: int = 400, *, seed: int = 0) -> str:
    rng = random.Random(seed)
    syllables = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu"]
    return " ".join("".join(rng.choices(syllables, k=3)) for _ in range(words))


SMALL: dict[str, Any] = {
    "prefix_words": 20,
    "target_words": 20,
    "first_max_tokens": 50,
    "settings": GenerationSettings(max_tokens=60),
}


@dataclass
class CountingClock:
    """`sleep` that returns at once and remembers what was asked of it."""

    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@contextmanager
def responder_for(server: LoopbackServer, **arguments: Any) -> Iterator[ChatResponder]:
    responder = ChatResponder(server.url, "loopback-model", key=KEY, **({"timeout_seconds": 20.0} | arguments))
    try:
        yield responder
    finally:
        responder.close()


def make_run(book: str, out: Path, *, options: dict[str, Any] | None = None, **arguments: Any) -> AuditRun:
    return AuditRun(
        book=Document.from_text("book.txt", book, split=Split.TARGET),
        model={"endpoint": "loopback", "name": "loopback-model"},
        options=AuditOptions(**(SMALL | (options or {}))),
        out=out,
        **arguments,
    )


def audit(
    server: LoopbackServer,
    run: AuditRun,
    *,
    clock: CountingClock | None = None,
    **responder_arguments: Any,
) -> AuditResult:
    with responder_for(server, **responder_arguments) as responder:
        return run_audit(run, responder, sleep=(clock or CountingClock()).sleep)


@dataclass
class InProcess:
    """A responder without a network: bills each idempotency key once, as the loopback server does."""

    brain: Brain
    billed: dict[str, Usage] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    answers: dict[str, Reply] = field(default_factory=dict)

    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        self.sent.append(idempotency_key)
        if idempotency_key not in self.answers:
            body = {
                "messages": [message._asdict() for message in request.messages],
                "max_tokens": request.max_tokens,
                "n": request.completions,
            }
            texts = self.brain(body)
            prompt_tokens = sum(len(message.content.split()) for message in request.messages)
            usage = Usage(prompt_tokens, sum(len(text.split()) for text in texts))
            self.billed[idempotency_key] = usage
            self.answers[idempotency_key] = Reply(tuple(Answer(text, "stop") for text in texts), usage)
        return self.answers[idempotency_key]

    def close(self) -> None:
        """Nothing to close."""

    @property
    def billed_tokens(self) -> int:
        return sum(usage.prompt_tokens + usage.completion_tokens for usage in self.billed.values())
