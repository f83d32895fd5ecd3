"""A server that is asked many things at once: one deadline a request, repetition when it may help, a key that goes
nowhere else."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from rote.errors import BudgetError
from rote.models.bounded_http import BoundedClient, Posted
from rote.models.chat_reply import Unreadable, reading
from rote.models.origin import Origin, without_key
from rote.models.responder import AnswerUnreadable, RequestFailed, Retries, RetryPolicy

Read = TypeVar("Read")

PROMPTS_PER_REQUEST = 32
MOST_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Manners:
    """How a server is asked."""

    concurrency: int = 8
    """Requests under way at once."""
    timeout_seconds: float = 300.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_requests: int | None = None
    max_tokens: int | None = None
    prompts_per_request: int = PROMPTS_PER_REQUEST
    sleep: Callable[[float], None] = time.sleep


class Sent(Protocol):
    """Requests sent, failed ones included, and the tokens of their prompts, over all openings of a run."""

    @property
    def requests(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    def add(self, *, tokens: int) -> None:
        """One more request is about to be sent; remembered before this returns."""
        ...

    def close(self) -> None: ...


@dataclass
class SentInMemory:
    """Counts for one opening alone."""

    requests: int = 0
    tokens: int = 0

    def add(self, *, tokens: int) -> None:
        self.requests += 1
        self.tokens += tokens

    def close(self) -> None:
        """Nothing to close."""


class Server:
    """One address: bodies to answers, with repetition. Every request, whatever it asks for, is counted in `sent` before
    it goes out, and every answer is read here. Threads may share it."""

    def __init__(self, root: str, key: str, manners: Manners, sent: Sent | None = None) -> None:
        self.root, self.manners = root, manners
        self.sent: Sent = SentInMemory() if sent is None else sent
        option = "--model endpoint:URL"
        self._origin = Origin(root, key, option=option)
        self._retries = Retries(manners.retry, option=option, sleep=manners.sleep)
        self._own, self._lock = threading.local(), threading.Lock()
        self._clients: list[BoundedClient] = []

    def close(self) -> None:
        """Let go of threads and connections; nothing is asked afterwards."""
        self.pool.shutdown()
        for client in self._clients:
            client.close()
        self.sent.close()

    def post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], Read], *, tokens: int = 0) -> Read:
        """What `read` makes of the JSON that is answered. `tokens` are those of the prompts in `body`.

        Raises `AnswerUnreadable` where `read` raises `Unreadable` or stumbles over a value.
        """
        return self._asked(lambda: self._client.post(self.root + path, body, self._origin.headers), path, read, tokens)

    def get(self, path: str, read: Callable[[Any], Read]) -> Read:
        """The same without a body."""
        return self._asked(lambda: self._client.get(self.root + path, self._origin.headers), path, read, 0)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """As many threads as requests may be under way."""
        return ThreadPoolExecutor(self.manners.concurrency, thread_name_prefix="rote-endpoint")

    @property
    def _client(self) -> BoundedClient:
        """One a thread: a request that is given up takes its connections with it."""
        if not hasattr(self._own, "client"):
            timeout = self.manners.timeout_seconds
            self._own.client = BoundedClient(timeout_seconds=timeout, most_body_bytes=MOST_BODY_BYTES)
            self._clients.append(self._own.client)
        client: BoundedClient = self._own.client
        return client

    def _asked(self, send: Callable[[], Posted], path: str, read: Callable[[Any], Read], tokens: int) -> Read:
        answer = self._retries(lambda: self._attempt(send, path, tokens))
        try:
            with reading():
                return read(without_key(answer))
        except Unreadable as error:
            raise AnswerUnreadable(
                self._origin.shown(f"{self.root}{path} gave an answer that cannot be read: {error}; check --dialect.")
            ) from error

    def _attempt(self, send: Callable[[], Posted], path: str, tokens: int) -> Any:
        self._count(tokens)
        try:
            posted = send()
        except RequestFailed as failure:
            raise self._origin.failure(str(failure), failure.may_be_billed, failure.was_reached) from failure
        if posted.status != 200:
            raise self._origin.refusal(posted, advice=f"it has no {path}; check the address and --dialect")
        try:
            return json.loads(posted.body)
        except (ValueError, RecursionError) as error:
            raise self._origin.failure("gave an answer that is not JSON", may_be_billed=True) from error

    def _count(self, tokens: int) -> None:
        """Before every attempt: within the ceilings, and counted."""
        with self._lock:
            for ceiling, total, name in (
                (self.manners.max_requests, self.sent.requests + 1, "requests"),
                (self.manners.max_tokens, self.sent.tokens + tokens, "tokens-total"),
            ):
                if ceiling is not None and total > ceiling:
                    raise BudgetError(
                        f"The next request would be more than --max-{name} {ceiling:,} allows; nothing answered is "
                        "lost: raise it and run the same command again."
                    )
            self.sent.add(tokens=tokens)
