"""Retries of requests to servers: one loop, with jitter and the server's own waits, for scans and audits."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from byrote.errors import EndpointError
from byrote.models.responder import RequestFailed

Answered = TypeVar("Answered")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts at one request and the waits between them: as the server requests, else doubling from `base_seconds`."""

    attempts: int = 6
    base_seconds: float = 1.0
    longest_wait_seconds: float = 600.0


class Retries:
    """The retry loop of one address. Until the address was reached once, the first failure is final. Waits differ at
    random, so that requests that failed together are not repeated together: those that the server requests are up to a
    tenth longer, others between half and all of their length. `option` is how users give the address.
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
                    advice = "run the same command again later" if self._was_reached else f"check {self._option}"
                    raise EndpointError(f"{failure} Nothing answered is lost; {advice}.") from failure
                self._sleep(self._wait_seconds(failures, failure))
        raise AssertionError("the last attempt returns or raises")

    def _wait_seconds(self, failures: int, failure: RequestFailed) -> float:
        longest, requested = self.policy.longest_wait_seconds, failure.retry_after_seconds
        if requested is None:
            doubled: float = self.policy.base_seconds * 2 ** min(failures - 1, 30)
            return min(doubled, longest) * (0.5 + self._uniform() / 2)
        if requested > longest:
            raise EndpointError(
                f"{failure} It asks to wait {requested:.0f} seconds; run the same command again after that."
            ) from failure
        return requested * (1.0 + self._uniform() / 10)
