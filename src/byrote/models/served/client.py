"""The one HTTP client for served models, of scans and audits alike.

`HttpClient` sends requests to one address at a `Pace` and bounds what comes back: in time, in size, and in the errors
it can raise. `Server` adds what a scan needs: retries, ceilings, a count of what was sent, and several requests at a
time, as many as its `Ramp` finds that the server takes.
An audit retries around its journal instead (`longform.journal`), by the same loop, `retries.Retries`.
"""

import json
import math
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from byrote.deferred import Deferred
from byrote.errors import BudgetError, ConfigError, EndpointError
from byrote.models.responder import AnswerUnreadable, NothingThere, RequestFailed, RequestRejected, RequestTooLarge
from byrote.models.served.retries import Retries, RetryPolicy
from byrote.printable import keep_secret, redacted

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = Deferred("httpx2")

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_LISTING_BYTES = 64 * 1024 * 1024
PROMPTS_PER_REQUEST = 32
CHAINS_PER_REQUEST = 8
"""Answers about all places of a prompt are large: a list for every token."""
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


def credentials_for(url: str, variable: str | None, *, option: str, over_http: bool = False) -> str | None:
    """The key in the environment variable that the user named, for the server at `url`; None where none was named. The
    URL is checked first, and a key is sent without encryption to this machine alone unless `over_http`."""
    check_endpoint(url, option=option)
    if variable is None:
        return None
    if urlsplit(url).scheme == "http" and not over_http and not is_loopback(url):
        raise ConfigError(
            f"{option} {url} is plain http, and the key in {variable} could be read on the way; use https, leave "
            "--key-variable out, or give --set key_over_http=true."
        )
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"No key: the environment variable {variable} is not set; export it, or leave --key-variable out for a "
            "server that needs none."
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"The key in {variable} holds characters that no header can carry; export it again.")
    return key


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


class Pace:
    """Begins at most so many requests a minute, evenly spaced; None: any number. Threads may share it."""

    def __init__(
        self,
        requests_per_minute: float | None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = 0.0 if requests_per_minute is None else 60.0 / requests_per_minute
        self._sleep, self._clock, self._lock = sleep, clock, threading.Lock()
        self._next = -math.inf

    def wait(self) -> None:
        with self._lock:
            now = self._clock()
            begin = max(now, self._next)
            self._next = begin + self._seconds
        if begin > now:
            self._sleep(begin - now)


class Ramp:
    """How many requests are under way at once: one at first and one more after every answer, up to `most`. A failure
    halves the number; from then on it rises by one after as many answers as it is."""

    def __init__(self, most: int) -> None:
        self._most, self._allowed, self._under_way = float(most), 1.0, 0
        self._has_failed = False
        self._changed = threading.Condition()

    @contextmanager
    def place(self) -> Iterator[None]:
        """While this lasts, one request is under way. Waits until it may begin."""
        with self._changed:
            self._changed.wait_for(lambda: self._under_way < int(self._allowed))
            self._under_way += 1
        has_failed = False
        try:
            yield
        except (RequestFailed, RequestTooLarge):
            has_failed = True
            raise
        finally:
            with self._changed:
                self._under_way -= 1
                self._has_failed |= has_failed
                if has_failed:
                    self._allowed = max(1.0, self._allowed / 2)
                else:
                    step = 1.0 / self._allowed if self._has_failed else 1.0
                    self._allowed = min(self._most, self._allowed + step)
                self._changed.notify_all()


class HttpResponse(NamedTuple):
    """A whole answer, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """One address with its key, None for a server that needs none. `option` is how users give the address.

    Threads may share a client. Each has a connection of its own: a request that runs past its deadline takes its
    connection with it. Redirects are not followed, so that a key is sent to no address but this one.
    """

    def __init__(
        self,
        address: str,
        key: str | None,
        *,
        timeout_seconds: float,
        max_body_bytes: int = MAX_BODY_BYTES,
        option: str = "--endpoint",
        pace: Pace | None = None,
    ) -> None:
        self.pace = pace or Pace(None)
        self.address, self.timeout_seconds, self.max_body_bytes = address, timeout_seconds, max_body_bytes
        self._key, self._option = key, option
        self._connections: dict[int, httpx2.Client] = {}
        if key is not None:
            keep_secret(key)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def failure(self, what: str, *, may_be_billed: bool, was_reached: bool = True) -> RequestFailed:
        message = self.shown(f"{self.address} {what}.")
        return RequestFailed(message, may_be_billed=may_be_billed, was_reached=was_reached)

    def error_of(self, response: HttpResponse, *, advice: str) -> EndpointError:
        """The error for a status other than 200. `advice` is for an address that does not exist."""
        status = response.status
        # Redacted before it is cut: half a key is no longer recognised.
        message = self.shown(_error_message(response.body))[:_SHOWN_CHARACTERS]
        answered = f"{self.address} answered {status}: {message}"
        if status == 413 or (status != 200 and "out of memory" in message.lower()):
            return RequestTooLarge(f"{answered}; it cannot take requests of this size, so give it more memory.")
        if status in _TRANSIENT or status >= 500:
            return RequestFailed(
                answered, retry_after_seconds=retry_after(response.headers), may_be_billed=status in _MAY_BE_BILLED
            )
        if status in (400, 422):
            return RequestRejected(f"{answered}; change the settings it objects to.")
        if 300 <= status < 400:
            place = self.shown(response.headers.get("location", ""))[:_SHOWN_CHARACTERS]
            return EndpointError(
                f"{self.address} answered {status} and points to another address, {place!r}; a key is sent to no "
                f"address but the one given, so give that one with {self._option} if you trust it."
            )
        if status in (404, 405):
            return NothingThere(f"{answered}; {advice}.")
        advice = "see its documentation"
        if status in (401, 403):
            advice = (
                "name the environment variable that holds its key with --key-variable"
                if self._key is None
                else "check the key in the environment"
            )
        return EndpointError(f"{answered}; {advice}.")

    def shown(self, text: str) -> str:
        """For messages, never for answers: without the key, and without characters that a terminal acts upon."""
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in redacted(text))

    def request(
        self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """POST `body` as JSON, or GET. Raises `RequestFailed` when no whole answer came within the bounds."""
        self.pace.wait()
        thread = threading.get_ident()
        if thread not in self._connections:
            self._connections[thread] = httpx2.Client(follow_redirects=False, timeout=self.timeout_seconds)
        sent: dict[str, Any] = {
            "method": "GET" if body is None else "POST",
            "url": self.address.rstrip("/") + path,
            "headers": {"Accept-Encoding": "identity", **(headers or {})},
        }
        if self._key is not None:
            sent["headers"]["Authorization"] = f"Bearer {self._key}"
        if body is not None:
            # ASCII with escapes: half of a surrogate pair, which an answer may hold, travels too.
            sent["content"] = json.dumps(body, ensure_ascii=True, allow_nan=False).encode()
            sent["headers"]["Content-Type"] = "application/json"
        attempt = _Attempt(self._connections[thread], sent, max_bytes=self.max_body_bytes)
        # A thread, because neither a name look-up nor a header that trickles in can be interrupted from within.
        threading.Thread(target=attempt.run, daemon=True).start()
        try:
            error = attempt.outcome.exception(timeout=self.timeout_seconds)
        except TimeoutError:
            del self._connections[thread]
            attempt.abandon()
            raise self.failure("did not answer in time", may_be_billed=True) from None
        if error is not None:
            raise self._translated(error) from error
        return attempt.outcome.result()

    def _translated(self, error: BaseException) -> BaseException:
        """The transport's errors in our words; `was_reached` is False when no connection came about."""
        if isinstance(error, Unreadable):
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


class _Attempt:
    """One request in a thread of its own; `outcome` gets the answer or the error."""

    def __init__(self, connection: "httpx2.Client", request: Mapping[str, Any], *, max_bytes: int) -> None:
        self.outcome: Future[HttpResponse] = Future()
        self._connection, self._request, self._max_bytes = connection, request, max_bytes
        self._is_abandoned = threading.Event()

    def run(self) -> None:
        try:
            with self._connection.stream(**self._request) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                answer = HttpResponse(response.status_code, headers, self._body(response, headers))
            self.outcome.set_result(answer)
        except Exception as error:
            self.outcome.set_exception(error)
        if self._is_abandoned.is_set():
            self._connection.close()

    def abandon(self) -> None:
        """The deadline has passed: the thread ends at the next piece it reads, and closes the connection."""
        self._is_abandoned.set()
        if self.outcome.done():
            self._connection.close()

    def _body(self, response: "httpx2.Response", headers: Mapping[str, str]) -> bytes:
        """The body, unpacked piece by piece; never more than `max_bytes` are held, packed or not."""
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", *_WINDOW_BITS):
            # Not quoted: a header may hold anything, the key among it.
            raise Unreadable("packed its answer in an unknown way though asked not to")
        inflater = zlib.decompressobj(_WINDOW_BITS[encoding]) if encoding in _WINDOW_BITS else None
        body = bytearray()
        received = 0
        for piece in response.iter_raw():
            received += len(piece)
            if received > self._max_bytes or self._is_abandoned.is_set():
                raise Unreadable(f"sent more than the {self._max_bytes:,} bytes allowed")
            # One byte more than allowed is enough to see that there are more.
            body += piece if inflater is None else inflater.decompress(piece, self._max_bytes - len(body) + 1)
            if len(body) > self._max_bytes:
                raise Unreadable("sent an answer that unpacks to more bytes than allowed")
        if inflater is not None and not inflater.eof:
            raise Unreadable("broke off in the middle of the answer")
        return bytes(body)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much is requested of a server, and how fast."""

    concurrency: int = 8
    """Requests under way at once, at most."""
    requests_per_minute: float | None = None
    timeout_seconds: float = 300.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_requests: int | None = None
    max_tokens: int | None = None
    prompts_per_request: int = PROMPTS_PER_REQUEST
    sleep: Callable[[float], None] = time.sleep


class RequestCount(Protocol):
    """Requests sent, failed ones included, and the tokens of their prompts, over all openings of a run."""

    requests: int
    tokens: int

    def add(self, *, tokens: int) -> None:
        """One more request is about to be sent; recorded before this returns."""

    def close(self) -> None: ...


class Server:
    """A server of log-probabilities: JSON to JSON, with retries and ceilings. Every request is counted in `sent` before
    it goes out. Threads may share it."""

    def __init__(self, root: str, key: str | None, limits: RequestLimits, sent: RequestCount) -> None:
        self.root, self.limits, self.sent = root, limits, sent
        option = "--model endpoint:URL"
        self.http = HttpClient(
            root,
            key,
            timeout_seconds=limits.timeout_seconds,
            max_body_bytes=MAX_LISTING_BYTES,
            option=option,
            pace=Pace(limits.requests_per_minute, sleep=limits.sleep),
        )
        self.pool = ThreadPoolExecutor(limits.concurrency, thread_name_prefix="byrote-endpoint")
        """As many threads as requests may be under way; they begin with the first one."""
        self._ramp = Ramp(limits.concurrency)
        self._retries = Retries(limits.retry, option=option, sleep=limits.sleep)
        self._lock = threading.Lock()

    def close(self) -> None:
        """End threads and connections; nothing is sent afterwards."""
        self.pool.shutdown()
        self.http.close()
        self.sent.close()

    def request(
        self, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], Read], *, tokens: int = 0
    ) -> Read:
        """What `read` makes of the JSON that is answered to a POST of `body`, or a GET. `tokens` are those of the
        prompts in `body`. Raises `AnswerUnreadable` where `read` raises `Unreadable` or fails on a value."""
        answer = self._retries(lambda: self._attempt(path, body, tokens))
        try:
            with reading():
                return read(_without_key(answer))
        except Unreadable as error:
            raise AnswerUnreadable(
                self.http.shown(f"{self.root}{path} gave an answer that cannot be read: {error}; check the dialect.")
            ) from error

    def _attempt(self, path: str, body: Mapping[str, Any] | None, tokens: int) -> Any:
        with self._ramp.place():
            self._count(tokens)
            response = self.http.request(path, body)
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
