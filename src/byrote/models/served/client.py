"""What a chat endpoint sent, read with suspicion: a `Reply` of checked types, or `Unreadable` with the reason.

Endpoints differ, and some are broken or hostile. Texts are kept as they came. What decides costs or the course of an
audit is taken only when it has the right type: a usage with a missing, negative or non-whole count is no usage.
"""

import json
import math
import os
import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx2

from byrote.errors import BudgetError, ConfigError, EndpointError
from byrote.models.responder import (
    Answer,
    AnswerUnreadable,
    NothingThere,
    Reply,
    RequestFailed,
    RequestRejected,
    Retries,
    RetryPolicy,
    Usage,
)
from byrote.printable import keep_secret, redacted

_LONGEST_REASON = 100


class Unreadable(Exception):
    """The body is no completion; the message says why, in our words."""


ODD_VALUES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What code that reads an answer may raise over values that it did not expect."""


@contextmanager
def reading() -> Iterator[None]:
    """Reading an answer inside this block gives a value or raises `Unreadable` (or an error of ours), nothing else."""
    try:
        yield
    except ODD_VALUES as error:
        raise Unreadable(f"it holds a value that cannot be used ({type(error).__name__})") from error


def read_whole(body: bytes) -> Reply:
    """A body that is one JSON object."""
    completion = _object(body)
    choices = _choices(completion)
    return Reply(tuple(_answer(_part(choice, "message"), choice) for choice in choices), _usage(completion))


def read_stream(body: bytes) -> Reply:
    """A body of server-sent events, each a piece of one or several answers."""
    pieces: dict[int, list[Mapping[str, Any]]] = {}
    reasons: dict[int, Any] = {}
    usage: Usage | None = None
    for chunk in _events(body):
        usage = _usage(chunk) or usage
        for choice in _choices(chunk) if chunk.get("choices") else ():
            index = _count(choice.get("index", 0))
            if index is None:
                raise Unreadable("a choice has no number")
            pieces.setdefault(index, []).append(_part(choice, "delta"))
            reasons[index] = choice.get("finish_reason") or reasons.get(index)
    if not pieces:
        raise Unreadable("it has no completion")
    if None in reasons.values():
        raise Unreadable("it broke off in the middle")
    return Reply(tuple(_answer(_joined(pieces[n]), {"finish_reason": reasons[n]}) for n in sorted(pieces)), usage)


def is_content_filter(body: bytes) -> bool:
    """Whether an error's body says that a filter stopped the request: some endpoints refuse in this way."""
    try:
        error = _object(body).get("error")
    except Unreadable:
        return False
    named = [error.get("code"), error.get("type")] if isinstance(error, dict) else []
    return any(name in ("content_filter", "content_policy_violation") for name in named)


def error_message(body: bytes) -> str:
    """What an error's body says, as text; its first characters when it is no JSON."""
    try:
        error = _object(body).get("error")
    except Unreadable:
        return body[:1000].decode("utf-8", "replace")
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    if not isinstance(value, dict):
        raise Unreadable("it is not a JSON object")
    return value


def _events(body: bytes) -> Iterable[dict[str, Any]]:
    # Lines of bytes: only line feeds and carriage returns end them, as the standard says.
    for line in body.splitlines():
        name, _, data = line.partition(b":")
        if name == b"data" and data.strip() not in (b"", b"[DONE]"):
            yield _object(data)


def _choices(completion: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise Unreadable("it has no completion")
    if all(_count(choice.get("index")) is not None for choice in choices):
        choices = sorted(choices, key=lambda choice: choice["index"])
    return choices


def _part(choice: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = choice.get(name)
    if not isinstance(part, dict):
        raise Unreadable(f"a choice has no {name}")
    return part


def _answer(message: Mapping[str, Any], choice: Mapping[str, Any]) -> Answer:
    reason = choice.get("finish_reason")
    return Answer(
        text=_text(message.get("content")),
        finish_reason=reason[:_LONGEST_REASON] if isinstance(reason, str) else None,
        refusal=_text(message.get("refusal")) or _refusal_part(message.get("content")),
    )


def _text(content: Any) -> str:
    """A text, nothing, or a list of parts of which those with a text count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return _whole_characters(content)
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text", "") for part in content]
        if all(isinstance(text, str) for text in texts):
            return _whole_characters("".join(texts))
    raise Unreadable("its content is no text")


def _refusal_part(content: Any) -> str | None:
    parts = content if isinstance(content, list) else []
    said = "".join(part["refusal"] for part in parts if isinstance(part.get("refusal"), str))
    return _whole_characters(said) or None


def _joined(deltas: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The message that a stream's pieces make."""
    deltas = list(deltas)
    return {
        "content": "".join(_text(delta.get("content")) for delta in deltas),
        "refusal": "".join(_text(delta.get("refusal")) for delta in deltas),
    }


def _whole_characters(text: str) -> str:
    """Two halves of a character that came in two pieces are one character, as they are when read from a file."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _usage(completion: Mapping[str, Any]) -> Usage | None:
    usage = completion.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, answer = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or answer is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    # Tokens from a cache are cheaper; more of them than there are tokens is no count to go by.
    return Usage(prompt, answer, cached if cached is not None and cached <= prompt else 0)


def _count(value: Any) -> int | None:
    """A whole number that a file of JSON can carry, or nothing."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if is_count else None


_SHOWN_CHARACTERS = 300
_PASSING = (408, 409, 425, 429)
_MAY_BE_BILLED = (408, 502, 504)
"""A gateway says these when it stopped waiting; the work behind it may have been done."""


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


class Origin:
    """One address with its key; makes errors of what went wrong there. `option` is how users give the address."""

    def __init__(self, address: str, key: str, *, option: str = "--endpoint") -> None:
        self.address, self._key, self._option = address, key, option
        keep_secret(key)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"}

    def failure(self, what: str, may_be_billed: bool, was_reached: bool = True) -> RequestFailed:
        message = self.shown(f"{self.address} {what}.")
        return RequestFailed(message, may_be_billed=may_be_billed, was_reached=was_reached)

    def refusal(self, posted: "Posted", *, advice: str) -> EndpointError:
        """The error that a status other than 200 stands for. `advice` is for an address that does not exist."""
        status = posted.status
        # Redacted before it is cut: half a key is no longer recognised.
        said = self.shown(error_message(posted.body))[:_SHOWN_CHARACTERS]
        answered = f"{self.address} answered {status}: {said}"
        if status in _PASSING or status >= 500:
            return RequestFailed(
                answered, retry_after_seconds=retry_after(posted.headers), may_be_billed=status in _MAY_BE_BILLED
            )
        if status in (400, 413, 422):
            return RequestRejected(f"{answered}; change the settings it objects to.")
        if 300 <= status < 400:
            place = self.shown(posted.headers.get("location", ""))[:_SHOWN_CHARACTERS]
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


def without_key(value: Any) -> Any:
    """Parsed JSON with the key removed from every value, so that neither messages nor files can repeat it."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [without_key(entry) for entry in value]
    if isinstance(value, dict):
        return {name: without_key(entry) for name, entry in value.items()}
    return value


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait the server asks for, given in seconds or as a date; None when absent or unreadable."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)


MOST_BODY_BYTES = 16 * 1024 * 1024
_PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Encodings that zlib unpacks piece by piece, with its window bits. Any other one is refused."""


class Posted(NamedTuple):
    """A whole answer, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class BoundedClient:
    """Keeps a connection between requests. `close` when done."""

    def __init__(self, *, timeout_seconds: float, most_body_bytes: int = MOST_BODY_BYTES) -> None:
        self.timeout_seconds = timeout_seconds
        self.most_body_bytes = most_body_bytes
        self._client: httpx2.Client | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def post(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Posted:
        """Send `body` as JSON. Raises `RequestFailed` when no whole answer came within the bounds."""
        # ASCII with escapes: half of a surrogate pair, which an answer may hold, travels too.
        content = json.dumps(body, ensure_ascii=True, allow_nan=False).encode()
        return self._send("POST", url, content, {"Content-Type": "application/json", **headers})

    def get(self, url: str, headers: Mapping[str, str]) -> Posted:
        """The same without a body."""
        return self._send("GET", url, None, headers)

    def _send(self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]) -> Posted:
        if self._client is None:
            self._client = httpx2.Client(follow_redirects=False, timeout=self.timeout_seconds)
        attempt = _Attempt(self._client, method, url, content, headers, most_bytes=self.most_body_bytes)
        # A thread, because neither a name look-up nor a header that trickles in can be interrupted from within.
        threading.Thread(target=attempt.run, daemon=True).start()
        try:
            outcome = attempt.outcome.get(timeout=self.timeout_seconds)
        except queue.Empty:
            self._client = None
            attempt.give_up()
            raise RequestFailed("did not answer in time", may_be_billed=True) from None
        if isinstance(outcome, Posted):
            return outcome
        raise _translated(outcome) from outcome


class _Attempt:
    def __init__(
        self,
        client: httpx2.Client,
        method: str,
        url: str,
        content: bytes | None,
        headers: Mapping[str, str],
        *,
        most_bytes: int,
    ) -> None:
        self.client = client
        self.method, self.url, self.content = method, url, content
        self.headers = {"Accept-Encoding": "identity", **headers}
        self.most_bytes = most_bytes
        self.outcome: queue.SimpleQueue[Posted | Exception] = queue.SimpleQueue()
        self._was_given_up = threading.Event()
        self._has_ended = threading.Event()

    def run(self) -> None:
        try:
            with self.client.stream(self.method, self.url, content=self.content, headers=self.headers) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                posted = Posted(response.status_code, headers, self._body(response, headers))
            self.outcome.put(posted)
        except Exception as error:
            self.outcome.put(error)
        self._has_ended.set()
        if self._was_given_up.is_set():
            self.client.close()

    def give_up(self) -> None:
        """Nobody waits any longer: the thread ends at the next piece it reads, and closes the client."""
        self._was_given_up.set()
        if self._has_ended.is_set():
            self.client.close()

    def _body(self, response: httpx2.Response, headers: Mapping[str, str]) -> bytes:
        unpack = _Unpacker(headers.get("content-encoding", ""), self.most_bytes)
        pieces = []
        received = 0
        for piece in response.iter_raw():
            received += len(piece)
            if received > self.most_bytes or self._was_given_up.is_set():
                raise RequestFailed(f"sent more than the {self.most_bytes:,} bytes allowed", may_be_billed=True)
            pieces.append(unpack(piece))
        unpack.require_end()
        return b"".join(pieces)


class _Unpacker:
    """Unpacks a body piece by piece and never holds more than the limit."""

    def __init__(self, encoding: str, most_bytes: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", *_PACKED):
            # Not quoted: a header may hold anything, the key among it.
            raise RequestFailed("packed its answer in an unknown way though asked not to", may_be_billed=True)
        self.left = most_bytes
        self.inflater = zlib.decompressobj(_PACKED[encoding]) if encoding in _PACKED else None

    def __call__(self, piece: bytes) -> bytes:
        if self.inflater is None:
            return piece
        # One byte more than allowed is enough to know.
        unpacked = self.inflater.decompress(piece, self.left + 1)
        self.left -= len(unpacked)
        if self.left < 0:
            raise RequestFailed("sent an answer that unpacks to more bytes than allowed", may_be_billed=True)
        return unpacked

    def require_end(self) -> None:
        if self.inflater is not None and not self.inflater.eof:
            raise RequestFailed("broke off in the middle of the answer", may_be_billed=True)


def _translated(error: Exception) -> Exception:
    """The transport's errors in our words; `was_reached` is False when no connection came about."""
    if isinstance(error, RequestFailed):
        return error
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return RequestFailed("cannot be reached", may_be_billed=False, was_reached=False)
    if isinstance(error, httpx2.TimeoutException):
        return RequestFailed("did not answer in time", may_be_billed=True)
    if isinstance(error, (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, zlib.error, *ODD_VALUES)):
        return RequestFailed("closed the connection before the answer was complete", may_be_billed=True)
    return error


Read = TypeVar("Read")

PROMPTS_PER_REQUEST = 32
MOST_LISTING_BYTES = 64 * 1024 * 1024


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
        return ThreadPoolExecutor(self.manners.concurrency, thread_name_prefix="byrote-endpoint")

    @property
    def _client(self) -> BoundedClient:
        """One a thread: a request that is given up takes its connections with it."""
        if not hasattr(self._own, "client"):
            timeout = self.manners.timeout_seconds
            self._own.client = BoundedClient(timeout_seconds=timeout, most_body_bytes=MOST_LISTING_BYTES)
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
                self._origin.shown(f"{self.root}{path} gave an answer that cannot be read: {error}; check the dialect.")
            ) from error

    def _attempt(self, send: Callable[[], Posted], path: str, tokens: int) -> Any:
        self._count(tokens)
        try:
            posted = send()
        except RequestFailed as failure:
            raise self._origin.failure(str(failure), failure.may_be_billed, failure.was_reached) from failure
        if posted.status != 200:
            raise self._origin.refusal(posted, advice=f"it has no {path}; check the address and the dialect")
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
