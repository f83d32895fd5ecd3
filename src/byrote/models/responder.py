"""The contract of long-form audits: a responder (a chat endpoint, a local model) answers a conversation.

Requests that fail in a way that may pass are repeated by `served/retries.py`.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from byrote.errors import EndpointError


class Message(NamedTuple):
    role: str
    content: str
    token_ids: tuple[int, ...] | None = None
    """The tokens as a local model generated them; None for any other message."""


class Answer(NamedTuple):
    """One completion. `text` is empty when the model gave none; `finish_reason` is the back end's word."""

    text: str
    finish_reason: str | None
    token_ids: tuple[int, ...] | None = None
    """Of a local model: the next prompt goes on from these, since tokenising the text may give other tokens."""
    refusal: str | None = None
    """The back end's message in place of an answer, where it has a field for that."""
    cut_characters: int | None = None
    """Characters cut off at its end because they are more than the requested tokens can have."""

    @property
    def is_declared_refusal(self) -> bool:
        """Whether the back end declared that it or a filter refused; such a request is not repeated."""
        return self.finish_reason in ("content_filter", "refusal") or bool(self.refusal)


class Usage(NamedTuple):
    """Tokens of one request, as counted by the back end; `prompt_tokens` include `cached_prompt_tokens`."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int = 0


class Reply(NamedTuple):
    """All completions of one request, at least one; `usage` is None when the back end does not count."""

    answers: tuple[Answer, ...]
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that determines an answer. `max_tokens` limits each of the `completions`."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    completions: int = 1
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition: int = 0
    """Number of a repeated trial; a local model samples each with a seed of its own."""
    further_fields: str = ""
    """JSON of an object whose fields are sent to an endpoint unchanged."""


class Responder(Protocol):
    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        """Answer once. Raises `RequestFailed` when a repetition may help, another EndpointError when it cannot.

        A back end that supports idempotency keys answers a repeated key without doing (or billing) the work again.
        """

    def close(self) -> None:
        """Close connections; no request follows."""


class RequestFailed(EndpointError):
    """One request failed in a way that may pass: overload, a server's error, a broken connection."""

    def __init__(
        self, message: str, *, retry_after_seconds: float | None = None, may_be_billed: bool, was_reached: bool = True
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.may_be_billed = may_be_billed
        """Whether the request may have been processed, so that its cost counts."""
        self.was_reached = was_reached
        """False when no connection was made."""


class RequestRejected(EndpointError):
    """The endpoint will never accept this request: too long for the model, a bad setting."""


class RequestTooLarge(RequestRejected):
    """The endpoint cannot hold what this request needs; a smaller one may fit."""


class AnswerUnreadable(EndpointError):
    """A complete answer with status 200, but not in the format of this kind of server."""


class NothingThere(EndpointError):
    """The endpoint has nothing at the requested address."""
