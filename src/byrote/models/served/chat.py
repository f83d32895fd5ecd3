"""An OpenAI-compatible chat endpoint as a responder.

Nothing is repeated here: every attempt must be journalled and paid for knowingly. The key comes from the environment
and is removed from every message of an error; answers are handed on as they came.
"""

import json
import math
from typing import Any

from byrote.errors import ConfigError
from byrote.models.responder import Answer, Reply, Request, RequestFailed
from byrote.models.served.client import (
    BoundedClient,
    Origin,
    Unreadable,
    check_endpoint,
    is_content_filter,
    read_stream,
    read_whole,
    reading,
)


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
        self._origin = Origin(endpoint, key)
        self._stream = stream
        self._token_parameter = token_parameter
        self._client = BoundedClient(timeout_seconds=timeout_seconds)

    def close(self) -> None:
        self._client.close()

    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        headers = {**self._origin.headers, "Idempotency-Key": idempotency_key}
        url = f"{self.endpoint.rstrip('/')}/chat/completions"
        try:
            posted = self._client.post(url, self._body(request), headers)
        except RequestFailed as failure:
            raise self._origin.failure(str(failure), failure.may_be_billed, failure.was_reached) from failure
        if posted.status != 200:
            if is_content_filter(posted.body):
                return Reply((Answer("", "content_filter"),), None)
            raise self._origin.refusal(posted, advice=f"check --endpoint and --model {self.model!r}")
        try:
            is_stream = self._stream and not posted.body.lstrip().startswith(b"{")
            with reading():
                return read_stream(posted.body) if is_stream else read_whole(posted.body)
        except Unreadable as error:
            raise self._origin.failure(f"gave an answer that cannot be read: {error}", may_be_billed=True) from error

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
