"""An OpenAI-compatible chat endpoint as a responder. The only module that imports openai.

The client's own retries are off: every attempt must be journalled and paid for knowingly. The key comes from the
environment, stays in the client object, and is cut out of every message that leaves this module.
"""

import math
import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import openai
from openai.types import CompletionUsage

from rote.errors import ConfigError, EndpointError
from rote.models.responder import Answer, Reply, Request, RequestFailed, RequestRejected, Usage

_REMOVED = "[key removed]"
_SHOWN_CHARACTERS = 300


def key_from_environment(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"No key: the environment variable {variable} is not set; export it "
            "(any value does for a server that asks for none), or name another with --key-variable."
        )
    return key


def check_endpoint(url: str) -> str:
    """The URL, if it is one of http or https without a name, password or query that would end up in files."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--endpoint {url!r} is not a URL; write it like https://host/v1.")
    if parts.username or parts.password or parts.query:
        raise ConfigError("--endpoint holds credentials or a query; keys are only taken from the environment.")
    return url


class ChatResponder:
    """One model behind one endpoint. `stream` reads the answer as it is written; an unfinished stream is a failure."""

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
        self.endpoint = check_endpoint(endpoint)
        self.model = model
        self._key = key
        self._stream = stream
        self._token_parameter = token_parameter
        self._client = openai.OpenAI(api_key=key, base_url=endpoint, max_retries=0, timeout=timeout_seconds)

    def close(self) -> None:
        self._client.close()

    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        arguments = self._arguments(request) | {"extra_headers": {"Idempotency-Key": idempotency_key}}
        try:
            reply = self._streamed(arguments) if self._stream else self._whole(arguments)
        except openai.APIStatusError as error:
            raise self._status_error(error) from error
        except openai.APIConnectionError as error:
            raise self._connection_failure(error) from error
        except (openai.OpenAIError, ValueError) as error:
            raise self._failure(f"gave an answer that cannot be read ({error})", may_be_billed=True) from error
        except Exception as error:
            # A stream that breaks off while it is read raises the transport's own error, whose package has two names.
            if type(error).__module__.split(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2"):
                raise
            raise self._failure("broke off in the middle of the answer", may_be_billed=True) from error
        if not reply.answers:
            raise self._failure("gave an answer without a completion", may_be_billed=True)
        return reply._replace(
            answers=tuple(answer._replace(text=self._without_key(answer.text)) for answer in reply.answers)
        )

    def _arguments(self, request: Request) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "temperature": request.temperature,
            self._token_parameter: request.max_tokens,
        }
        if request.completions > 1:
            arguments["n"] = request.completions
        for name in ("frequency_penalty", "presence_penalty"):
            if (value := getattr(request, name)) is not None:
                arguments[name] = value
        return arguments

    def _whole(self, arguments: Mapping[str, Any]) -> Reply:
        completion = self._client.chat.completions.create(**arguments)
        if isinstance(completion, str) or not getattr(completion, "choices", None):
            return Reply((), None)
        choices = sorted(completion.choices, key=lambda choice: choice.index)
        answers = tuple(Answer(choice.message.content or "", choice.finish_reason) for choice in choices)
        return Reply(answers, _usage(completion.usage))

    def _streamed(self, arguments: Mapping[str, Any]) -> Reply:
        texts: dict[int, str] = {}
        reasons: dict[int, str | None] = {}
        usage: CompletionUsage | None = None
        create = self._client.chat.completions.create
        with create(stream=True, stream_options={"include_usage": True}, **arguments) as chunks:
            for chunk in chunks:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
                    reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
        if None in reasons.values():
            raise self._failure("broke off in the middle of the answer", may_be_billed=True)
        return Reply(tuple(Answer(texts[index], reasons[index]) for index in sorted(texts)), _usage(usage))

    def _connection_failure(self, error: openai.APIConnectionError) -> RequestFailed:
        # The client hides the transport's error, but only that says whether a connection ever came about.
        was_reached = not type(error.__cause__).__name__.startswith("Connect")
        if not was_reached:
            what = "cannot be reached"
        elif isinstance(error, openai.APITimeoutError):
            what = "did not answer in time"
        else:
            what = "closed the connection before the answer was complete"
        return self._failure(what, may_be_billed=was_reached, was_reached=was_reached)

    def _failure(self, what: str, *, may_be_billed: bool, was_reached: bool = True) -> RequestFailed:
        return RequestFailed(
            self._without_key(f"{self.endpoint} {what}."), may_be_billed=may_be_billed, was_reached=was_reached
        )

    def _status_error(self, error: openai.APIStatusError) -> EndpointError:
        said = self._without_key(str(error.message))[:_SHOWN_CHARACTERS]
        status = error.status_code
        if status in (408, 409, 429) or status >= 500:
            return RequestFailed(
                f"{self.endpoint} answered {status}: {said}",
                retry_after_seconds=_retry_after(error.response.headers),
                may_be_billed=False,
            )
        if status in (400, 413, 422):
            return RequestRejected(f"{self.endpoint} answered {status}: {said}; change the settings it objects to.")
        advice = {
            401: "check the key in the environment",
            403: "check the key in the environment",
            404: f"check --endpoint and --model {self.model!r}",
        }.get(status, "see its documentation")
        return EndpointError(f"{self.endpoint} answered {status}: {said}; {advice}.")

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, _REMOVED)


def _usage(usage: CompletionUsage | None) -> Usage | None:
    if usage is None:
        return None
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached or 0)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait the server asks for, given in seconds or as a date; None when absent or unreadable."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)
