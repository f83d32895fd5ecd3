"""The seam of long-form audits: something that answers a conversation. Behind it: a chat endpoint or a local model."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from byrote.errors import ConfigError, EndpointError

Answered = TypeVar("Answered")


class Message(NamedTuple):
    role: str
    content: str
    token_ids: tuple[int, ...] | None = None
    """What a model on this machine generated, token by token; None for all that was not."""


class Answer(NamedTuple):
    """One completion, as it came. `text` is empty when the model gave none; `finish_reason` is the back end's word."""

    text: str
    finish_reason: str | None
    token_ids: tuple[int, ...] | None = None
    """Of a model on this machine: what to go on from, since tokenising the text again may give other tokens."""
    refusal: str | None = None
    """What the back end said in place of an answer, where it has a field for that."""
    cut_characters: int | None = None
    """Characters at its end that were not kept, because they are more than the tokens asked for can have."""

    @property
    def is_declared_refusal(self) -> bool:
        """The back end itself says that it or a filter refused; asking again is asking against its word."""
        return self.finish_reason in ("content_filter", "refusal") or bool(self.refusal)


class Usage(NamedTuple):
    """Tokens one request took, as the back end counted them; `cached_prompt_tokens` are among `prompt_tokens`."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int = 0


class Reply(NamedTuple):
    """All completions of one request, at least one; `usage` is None when the back end did not count."""

    answers: tuple[Answer, ...]
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Request:
    """All that decides an answer. `max_tokens` limits each of the `completions`."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    completions: int = 1
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition: int = 0
    """Tells repeated trials apart; a local model samples each with a seed of its own."""
    further_fields: str = ""
    """JSON of an object whose fields an endpoint gets as they are."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.completions < 1:
            raise ConfigError(
                f"A request needs at least 1 token and 1 completion; got {self.max_tokens} and {self.completions}."
            )
        if self.temperature < 0:
            raise ConfigError(f"The temperature is {self.temperature}; it must be 0 or more.")


class Responder(Protocol):
    def complete(self, request: Request, *, idempotency_key: str) -> Reply:
        """Answer once. Raises `RequestFailed` when a repetition may help, another EndpointError when it cannot.

        A back end that knows idempotency keys answers a repeated key without doing (or billing) the work again.
        """
        ...

    def close(self) -> None:
        """Let go of connections; nothing is asked afterwards."""
        ...


class RequestFailed(EndpointError):
    """One request failed in a way that may pass: overload, a server's error, a broken connection."""

    def __init__(
        self, message: str, *, retry_after_seconds: float | None = None, may_be_billed: bool, was_reached: bool = True
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.may_be_billed = may_be_billed
        """The request may have been worked on: its cost must be reckoned with."""
        self.was_reached = was_reached
        """False when no connection came about at all."""


class RequestRejected(EndpointError):
    """The endpoint will not take this request however often it is sent: too long for the model, a bad setting."""


class AnswerUnreadable(EndpointError):
    """An answer came, whole and with status 200, but not in the form that its kind of server gives."""


class NothingThere(EndpointError):
    """The endpoint has nothing at the address that was asked."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts at one request and the waits between them: what the server asks for, else doubling from `base`."""

    attempts: int = 6
    base_seconds: float = 1.0
    longest_wait_seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"{self.attempts} attempts were asked for; at least one is needed.")

    def wait_seconds(self, failures: int, retry_after_seconds: float | None) -> float:
        if retry_after_seconds is not None:
            return retry_after_seconds
        doubled: float = self.base_seconds * 2 ** min(failures - 1, 30)
        return min(doubled, self.longest_wait_seconds)


class Retries:
    """The retry loop of one address. It remembers whether the address was ever reached: if not, the first failure is
    final. Waits that the server does not ask for are shortened at random to between half and all of their length, so
    that requests that failed together are not repeated together. `option` is how users give the address.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        option: str,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self.policy, self._option, self._sleep, self._uniform = policy, option, sleep, uniform
        self._was_reached = False

    def __call__(self, attempt: Callable[[], Answered]) -> Answered:
        """What `attempt` returns, the first time that it does not raise `RequestFailed`."""
        for failures in range(1, self.policy.attempts + 1):
            try:
                answered = attempt()
                self._was_reached = True
                return answered
            except RequestFailed as failure:
                self._was_reached |= failure.was_reached
                if failures == self.policy.attempts or not self._was_reached:
                    advice = "run the same command again later" if failure.was_reached else f"check {self._option}"
                    raise EndpointError(f"{failure} Nothing answered is lost; {advice}.") from failure
                self._sleep(self._wait_seconds(failures, failure))
        raise AssertionError("the last attempt returns or raises")

    def _wait_seconds(self, failures: int, failure: RequestFailed) -> float:
        wait = self.policy.wait_seconds(failures, failure.retry_after_seconds)
        if wait > self.policy.longest_wait_seconds:
            raise EndpointError(
                f"{failure} It asks to wait {wait:.0f} seconds; run the same command again after that."
            ) from failure
        return wait if failure.retry_after_seconds is not None else wait * (0.5 + self._uniform() / 2)
