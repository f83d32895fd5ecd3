"""The one HTTP client for served models, of scans and audits alike.

`HttpClient` sends requests to one address and bounds what comes back: in time, in size, and in the errors it can
raise. `Server` adds what a scan needs: retries, ceilings, a count of what was sent, and several requests at a time.
An audit retries around its journal instead (`longform.journal`), by the same loop, `responder.Retries`.
"""

import json
import math
import os
import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx2

from byrote.errors import BudgetError, ConfigError, EndpointError
from byrote.models.responder import AnswerUnreadable, NothingThere, RequestFailed, RequestRejected
from byrote.models.served.retries import Retries, RetryPolicy
from byrote.printable import keep_secret, redacted

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_LISTING_BYTES = 64 * 1024 * 1024
PROMPTS_PER_REQUEST = 32
_SHOWN_CHARACTERS = 300
_TRANSIENT = (408, 409, 425, 429)
_MAY_BE_BILLED = (408, 502, 504)
"""A gateway sends these when it stopped waiting; the work behind it may have been done."""
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Encodings that zlib unpacks piece by piece. Any other one is refused."""
_ODD_VALUES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What code that reads an answer may raise over values that it did not expect."""

Read = TypeVar("Read")


class Unreadable(Exception):
    """An answer is not what it should be; the message is the reason, in our words."""


@contextmanager
def reading() -> Iterator[None]:
    """Reading an answer inside this block gives a value or raises `Unreadable` (or an error of ours), nothing else."""
    try:
        yield
    except _ODD_VALUES as error:
        raise Unreadable(f"it holds a value that cannot be used ({type(error).__name__})") from error


def json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    if not isinstance(value, dict):
        raise Unreadable("it is not a JSON object")
    return value


def key_from_environment(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"No key: the environment variable {variable} is not set; export it "
            "(any value does for a server that asks for none), or name another with --key-variable."
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"The key in {variable} holds characters that no header can carry; export it again.")
    return key


def check_endpoint(url: str, *, option: str = "--endpoint") -> str:
    """The URL, if it is one of http or https without a name, password or query that would end up in files."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not url.isprintable() or " " in url:
        raise ConfigError(f"{option} {url!r} is not a URL; write it like https://host/v1.")
    if parts.username or parts.password or parts.query:
        raise ConfigError(f"{option} holds credentials or a query; keys are only taken from the environment.")
    return url


class HttpResponse(NamedTuple):
    """A whole answer, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """One address with its key. `option` is how users give the address.

    Threads may share a client. Each has a connection of its own: a request that runs past its deadline takes its
    connection with it. Redirects are not followed, so that a key is sent to no address but this one.
    """

    def __init__(
        self,
        address: str,
        key: str,
        *,
        timeout_seconds: float,
        max_body_bytes: int = MAX_BODY_BYTES,
        option: str = "--endpoint",
    ) -> None:
        self.address, self.timeout_seconds, self.max_body_bytes = address, timeout_seconds, max_body_bytes
        self._key, self._option = key, option
        self._connections: dict[int, httpx2.Client] = {}
        keep_secret(key)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Send `body` as JSON. Raises `RequestFailed` when no whole answer came within the bounds."""
        # ASCII with escapes: half of a surrogate pair, which an answer may hold, travels too.
        content = json.dumps(body, ensure_ascii=True, allow_nan=False).encode()
        return self._send("POST", path, content, {"Content-Type": "application/json", **(headers or {})})

    def get(self, path: str) -> HttpResponse:
        """The same without a body."""
        return self._send("GET", path, None, {})

    def failure(self, what: str, *, may_be_billed: bool, was_reached: bool = True) -> RequestFailed:
        message = self.shown(f"{self.address} {what}.")
        return RequestFailed(message, may_be_billed=may_be_billed, was_reached=was_reached)

    def error_of(self, response: HttpResponse, *, advice: str) -> EndpointError:
        """The error for a status other than 200. `advice` is for an address that does not exist."""
        status = response.status
        # Redacted before it is cut: half a key is no longer recognised.
        message = self.shown(_error_message(response.body))[:_SHOWN_CHARACTERS]
        answered = f"{self.address} answered {status}: {message}"
        if status in _TRANSIENT or status >= 500:
            return RequestFailed(
                answered, retry_after_seconds=retry_after(response.headers), may_be_billed=status in _MAY_BE_BILLED
            )
        if status in (400, 413, 422):
            return RequestRejected(f"{answered}; change the settings it objects to.")
        if 300 <= status < 400:
            place = self.shown(response.headers.get("location", ""))[:_SHOWN_CHARACTERS]
            return EndpointError(
                f"{self.address} answered {status} and points to another address, {place!r}; a key is sent to no "
                f"address but the one given, so give that one with {self._option} if you trust it."
            )
        if status in (404, 405):
            return NothingThere(f"{answered}; {advice}.")
        is_key = status in (401, 403)
        return EndpointError(
            f"{answered}; {'check the key in the environment' if is_key else 'see its documentation'}."
        )

    def shown(self, text: str) -> str:
        """For messages, never for answers: without the key, and without characters that a terminal acts upon."""
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in redacted(text))

    def _send(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> HttpResponse:
        thread = threading.get_ident()
        if thread not in self._connections:
            self._connections[thread] = httpx2.Client(follow_redirects=False, timeout=self.timeout_seconds)
        connection = self._connections[thread]
        headers = {"Accept-Encoding": "identity", "Authorization": f"Bearer {self._key}", **headers}
        request = {"method": method, "url": self.address.rstrip("/") + path, "content": content, "headers": headers}
        attempt = _Attempt(connection, request, max_bytes=self.max_body_bytes)
        # A thread, because neither a name look-up nor a header that trickles in can be interrupted from within.
        threading.Thread(target=attempt.run, daemon=True).start()
        try:
            outcome: HttpResponse | Exception = attempt.outcome.get(timeout=self.timeout_seconds)
        except queue.Empty:
            del self._connections[thread]
            attempt.abandon()
            raise self.failure("did not answer in time", may_be_billed=True) from None
        if isinstance(outcome, HttpResponse):
            return outcome
        raise self._translated(outcome) from outcome

    def _translated(self, error: Exception) -> Exception:
        """The transport's errors in our words; `was_reached` is False when no connection came about."""
        if isinstance(error, _BadBody):
            return self.failure(str(error), may_be_billed=True)
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return self.failure("cannot be reached", may_be_billed=False, was_reached=False)
        if isinstance(error, httpx2.TimeoutException):
            return self.failure("did not answer in time", may_be_billed=True)
        if isinstance(error, (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, zlib.error, *_ODD_VALUES)):
            return self.failure("closed the connection before the answer was complete", may_be_billed=True)
        return error


def _error_message(body: bytes) -> str:
    """The message of an error's body; its first characters when it is no JSON."""
    try:
        error = json_object(body).get("error")
    except Unreadable:
        return body[:1000].decode("utf-8", "replace")
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait that the server requires, given in seconds or as a date; None when absent or unreadable."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)


class _BadBody(Exception):
    """A body beyond the bounds, or that cannot be unpacked; the message is what the endpoint did."""


class _Attempt:
    """One request in a thread of its own; `outcome` gets the answer or the error."""

    def __init__(self, connection: httpx2.Client, request: Mapping[str, Any], *, max_bytes: int) -> None:
        self.outcome: queue.SimpleQueue[HttpResponse | Exception] = queue.SimpleQueue()
        self._connection, self._request, self._max_bytes = connection, request, max_bytes
        self._is_abandoned = threading.Event()
        self._has_ended = threading.Event()

    def run(self) -> None:
        try:
            with self._connection.stream(**self._request) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                answer = HttpResponse(response.status_code, headers, self._body(response, headers))
            self.outcome.put(answer)
        except Exception as error:
            self.outcome.put(error)
        self._has_ended.set()
        if self._is_abandoned.is_set():
            self._connection.close()

    def abandon(self) -> None:
        """The deadline has passed: the thread ends at the next piece it reads, and closes the connection."""
        self._is_abandoned.set()
        if self._has_ended.is_set():
            self._connection.close()

    def _body(self, response: httpx2.Response, headers: Mapping[str, str]) -> bytes:
        """The body, unpacked piece by piece; never more than `max_bytes` are held, packed or not."""
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", *_WINDOW_BITS):
            # Not quoted: a header may hold anything, the key among it.
            raise _BadBody("packed its answer in an unknown way though asked not to")
        inflater = zlib.decompressobj(_WINDOW_BITS[encoding]) if encoding in _WINDOW_BITS else None
        body = bytearray()
        received = 0
        for piece in response.iter_raw():
            received += len(piece)
            if received > self._max_bytes or self._is_abandoned.is_set():
                raise _BadBody(f"sent more than the {self._max_bytes:,} bytes allowed")
            # One byte more than allowed is enough to see that there are more.
            body += piece if inflater is None else inflater.decompress(piece, self._max_bytes - len(body) + 1)
            if len(body) > self._max_bytes:
                raise _BadBody("sent an answer that unpacks to more bytes than allowed")
        if inflater is not None and not inflater.eof:
            raise _BadBody("broke off in the middle of the answer")
        return bytes(body)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much is requested of a server, and how fast."""

    concurrency: int = 8
    """Requests under way at once."""
    timeout_seconds: float = 300.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_requests: int | None = None
    max_tokens: int | None = None
    prompts_per_request: int = PROMPTS_PER_REQUEST
    sleep: Callable[[float], None] = time.sleep


class RequestCount(Protocol):
    """Requests sent, failed ones included, and the tokens of their prompts, over all openings of a run."""

    @property
    def requests(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    def add(self, *, tokens: int) -> None:
        """One more request is about to be sent; recorded before this returns."""
        ...

    def close(self) -> None: ...


@dataclass
class MemoryRequestCount:
    """Counts for one opening alone."""

    requests: int = 0
    tokens: int = 0

    def add(self, *, tokens: int) -> None:
        self.requests += 1
        self.tokens += tokens

    def close(self) -> None:
        """Nothing to close."""


class Server:
    """A server of log-probabilities: JSON to JSON, with retries and ceilings. Every request is counted in `sent` before
    it goes out. Threads may share it."""

    def __init__(self, root: str, key: str, limits: RequestLimits, sent: RequestCount | None = None) -> None:
        self.root, self.limits = root, limits
        self.sent: RequestCount = MemoryRequestCount() if sent is None else sent
        option = "--model endpoint:URL"
        self.http = HttpClient(
            root, key, timeout_seconds=limits.timeout_seconds, max_body_bytes=MAX_LISTING_BYTES, option=option
        )
        self._retries = Retries(limits.retry, option=option, sleep=limits.sleep)
        self._lock = threading.Lock()

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """As many threads as requests may be under way."""
        return ThreadPoolExecutor(self.limits.concurrency, thread_name_prefix="byrote-endpoint")

    def close(self) -> None:
        """End threads and connections; nothing is sent afterwards."""
        self.pool.shutdown()
        self.http.close()
        self.sent.close()

    def post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], Read], *, tokens: int = 0) -> Read:
        """What `read` makes of the JSON that is answered. `tokens` are those of the prompts in `body`.

        Raises `AnswerUnreadable` where `read` raises `Unreadable` or fails on a value.
        """
        return self._read(path, lambda: self.http.post(path, body), read, tokens)

    def get(self, path: str, read: Callable[[Any], Read]) -> Read:
        """The same without a body."""
        return self._read(path, lambda: self.http.get(path), read, 0)

    def _read(self, path: str, send: Callable[[], HttpResponse], read: Callable[[Any], Read], tokens: int) -> Read:
        answer = self._retries(lambda: self._attempt(path, send, tokens))
        try:
            with reading():
                return read(_without_key(answer))
        except Unreadable as error:
            raise AnswerUnreadable(
                self.http.shown(f"{self.root}{path} gave an answer that cannot be read: {error}; check the dialect.")
            ) from error

    def _attempt(self, path: str, send: Callable[[], HttpResponse], tokens: int) -> Any:
        self._count(tokens)
        response = send()
        if response.status != 200:
            raise self.http.error_of(response, advice=f"it has no {path}; check the address and the dialect")
        try:
            return json.loads(response.body)
        except (ValueError, RecursionError) as error:
            raise self.http.failure("gave an answer that is not JSON", may_be_billed=True) from error

    def _count(self, tokens: int) -> None:
        """Before every attempt: within the ceilings, and counted."""
        with self._lock:
            for ceiling, total, name in (
                (self.limits.max_requests, self.sent.requests + 1, "requests"),
                (self.limits.max_tokens, self.sent.tokens + tokens, "tokens-total"),
            ):
                if ceiling is not None and total > ceiling:
                    raise BudgetError(
                        f"The next request would be more than --max-{name} {ceiling:,} allows; nothing answered is "
                        "lost: raise it and run the same command again."
                    )
            self.sent.add(tokens=tokens)


def _without_key(value: Any) -> Any:
    """Parsed JSON with the key removed from every value, so that neither messages nor files can repeat it."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_without_key(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _without_key(entry) for name, entry in value.items()}
    return value
