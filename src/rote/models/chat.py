"""An OpenAI-compatible chat endpoint as a responder.

Nothing is repeated here: every attempt must be journalled and paid for knowingly. The key comes from the environment
and is cut out of every message of an error; answers are handed on as they came.
"""

import json
import math
import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from rote.errors import ConfigError, EndpointError
from rote.models.bounded_http import BoundedClient, Posted
from rote.models.chat_reply import Unreadable, error_message, is_content_filter, read_stream, read_whole
from rote.models.responder import Answer, Reply, Request, RequestFailed, RequestRejected

_REMOVED = "[key removed]"
_SHORTEST_KEY_REMOVED = 8
"""Shorter keys are placeholders of servers that ask for none; removing "x" would spoil every message."""
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


def check_endpoint(url: str) -> str:
    """The URL, if it is one of http or https without a name, password or query that would end up in files."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not url.isprintable() or " " in url:
        raise ConfigError(f"--endpoint {url!r} is not a URL; write it like https://host/v1.")
    if parts.username or parts.password or parts.query:
        raise ConfigError("--endpoint holds credentials or a query; keys are only taken from the environment.")
    return url


class ChatResponder:
    """One model behind one endpoint. `timeout_seconds` is the deadline of one request, from look-up to last byte.

    With `stream` the answer is sent as it is written; an unfinished stream is a failure.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        *,
        key: str,
        timeout_seconds: float = 300.0,
        stream: bool = False,
        token_parameter: str = "max_tokens",
    ) -> None:
        if token_parameter not in ("max_tokens", "max_completion_tokens"):
            raise ConfigError(
                f"--token-parameter is {token_parameter!r}; use max_tokens or, for endpoints that ask for it, "
                "max_completion_tokens."
            )
        if not 0 < timeout_seconds < math.inf:
            raise ConfigError(f"--timeout-seconds is {timeout_seconds}; give a number of seconds above 0.")
        self.endpoint = check_endpoint(endpoint)
        self.model = model
        self._key = key
        self._stream = stream
        self._token_parameter = token_parameter
        self._client = BoundedClient(timeout_seconds=timeout_seconds)

    def close(self) -> None:
        self._client.close()

    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": idempotency_key}
        url = f"{self.endpoint.rstrip('/')}/chat/completions"
        try:
            posted = self._client.post(url, self._body(request), headers)
        except RequestFailed as failure:
            raise self._failure(str(failure), failure.may_be_billed, was_reached=failure.was_reached) from failure
        if posted.status != 200:
            return self._refused(posted)
        try:
            is_stream = self._stream and not posted.body.lstrip().startswith(b"{")
            return read_stream(posted.body) if is_stream else read_whole(posted.body)
        except Unreadable as error:
            raise self._failure(f"gave an answer that cannot be read: {error}", may_be_billed=True) from error

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(request.further_fields or "{}") | {
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "temperature": request.temperature,
            self._token_parameter: request.max_tokens,
        }
        if request.completions > 1:
            body["n"] = request.completions
        for name in ("frequency_penalty", "presence_penalty"):
            if (value := getattr(request, name)) is not None:
                body[name] = value
        if self._stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def _failure(self, what: str, may_be_billed: bool, *, was_reached: bool = True) -> RequestFailed:
        message = self._shown(f"{self.endpoint} {what}.")
        return RequestFailed(message, may_be_billed=may_be_billed, was_reached=was_reached)

    def _refused(self, posted: Posted) -> Reply:
        """An answer that another status than 200 stands for, or the error it is."""
        status = posted.status
        if is_content_filter(posted.body):
            return Reply((Answer("", "content_filter"),), None)
        said = self._shown(error_message(posted.body)[:_SHOWN_CHARACTERS])
        answered = f"{self.endpoint} answered {status}: {said}"
        if status in _PASSING or status >= 500:
            raise RequestFailed(
                answered,
                retry_after_seconds=_retry_after(posted.headers),
                may_be_billed=status in _MAY_BE_BILLED,
            )
        if status in (400, 413, 422):
            raise RequestRejected(f"{answered}; change the settings it objects to.")
        if 300 <= status < 400:
            raise EndpointError(
                f"{self.endpoint} answered {status} and points to another address, "
                f"{self._shown(posted.headers.get('location', ''))[:_SHOWN_CHARACTERS]!r}; a key is sent to no address "
                "but the one given, so give that one with --endpoint if you trust it."
            )
        advice = {
            401: "check the key in the environment",
            403: "check the key in the environment",
            404: f"check --endpoint and --model {self.model!r}",
        }.get(status, "see its documentation")
        raise EndpointError(f"{answered}; {advice}.")

    def _shown(self, text: str) -> str:
        """For messages, never for answers: without the key, and without characters that a terminal acts upon."""
        if len(self._key) >= _SHORTEST_KEY_REMOVED:
            text = text.replace(self._key, _REMOVED)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _retry_after(headers: Mapping[str, str]) -> float | None:
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
