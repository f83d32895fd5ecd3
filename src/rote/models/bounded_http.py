"""One request to a server that nobody vouches for: whole, in time and of bounded size, or a `RequestFailed`.

The client library's time-outs are per read, so a server that sends a byte now and then could hold a request for ever,
and a small compressed body can unpack to any size. Here a request has one deadline for everything (name look-up,
connection, headers, body), bodies are cut off at a limit before and after they are unpacked, and redirects are not
followed: the key goes to the origin it was given for and nowhere else.
"""

import json
import queue
import threading
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx2

from rote.models.chat_reply import ODD_VALUES
from rote.models.responder import RequestFailed

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
