"""A server that is asked many things at once: one deadline a request, repetition when it may help, a key that goes
nowhere else."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rote.errors import EndpointError
from rote.models.bounded_http import BoundedClient, Posted
from rote.models.chat_reply import Unreadable
from rote.models.origin import Origin
from rote.models.responder import RequestFailed, RetryPolicy

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


class Server:
    """One address: bodies to answers, with repetition. Threads may share it."""

    def __init__(self, root: str, key: str, manners: Manners) -> None:
        self.root, self.manners = root, manners
        self._origin = Origin(root, key, option="--model endpoint:URL")
        self._own = threading.local()
        self._clients: list[BoundedClient] = []
        self._was_reached = False

    def close(self) -> None:
        """Let go of threads and connections; nothing is asked afterwards."""
        self.pool.shutdown()
        for client in self._clients:
            client.close()

    def post(self, path: str, body: Mapping[str, Any], *, before: Callable[[], None] = lambda: None) -> Any:
        """The JSON that is answered. `before` is called before every attempt."""
        return self._repeated(lambda: self._client.post(self.root + path, body, self._origin.headers), path, before)

    def get(self, path: str) -> Any:
        return self._repeated(lambda: self._client.get(self.root + path, self._origin.headers), path, lambda: None)

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

    def _repeated(self, send: Callable[[], Posted], path: str, before: Callable[[], None]) -> Any:
        retry = self.manners.retry
        for failures in range(1, retry.attempts + 1):
            before()
            try:
                answer = self._attempt(send, path)
                self._was_reached = True
                return answer
            except RequestFailed as failure:
                self._was_reached |= failure.was_reached
                if failures == retry.attempts or not self._was_reached:
                    advice = "run the same command again later" if self._was_reached else "check --model endpoint:URL"
                    raise EndpointError(f"{failure} Nothing answered is lost; {advice}.") from failure
                wait = retry.wait_seconds(failures, failure.retry_after_seconds)
                if wait > retry.longest_wait_seconds:
                    raise EndpointError(
                        f"{failure} It asks to wait {wait:.0f} seconds; run the same command again after that."
                    ) from failure
                self.manners.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, send: Callable[[], Posted], path: str) -> Any:
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

    def unreadable(self, error: Unreadable) -> EndpointError:
        return EndpointError(f"{self.root} gave an answer that cannot be read: {error}; check --dialect.")
