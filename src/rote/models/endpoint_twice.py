"""Do a server's numbers move? The same prompts asked again, in other company, compared with the first answers."""

import math
from collections.abc import Mapping

from rote.models.endpoint_asking import Book, unpacked
from rote.models.endpoint_rows import Row


class SecondAsking:
    """A book that finds nothing, so that everything is asked again, and compares what comes with what came first.
    Requests are counted in the first book: they cost the same."""

    def __init__(self, first: Book) -> None:
        self._first = first
        self.prompts_compared = 0
        self.largest_shift = math.nan
        """Largest change of a log-probability, of tokens listed both times; NaN while nothing was compared."""
        self.lists_changed = 0
        """Places at which another token came into the list."""

    @property
    def requests(self) -> int:
        return self._first.requests

    @property
    def tokens(self) -> int:
        return self._first.tokens

    def find(self, key: str) -> bytes | None:
        return None

    def sending(self, *, prompts: int, tokens: int) -> None:
        self._first.sending(prompts=prompts, tokens=tokens)

    def keep(self, answers: Mapping[str, bytes]) -> None:
        for key, now in answers.items():
            before = self._first.find(key)
            if before is not None:
                self.prompts_compared += 1
                for first, second in zip(unpacked(before), unpacked(now), strict=True):
                    self._compare(first, second)

    def _compare(self, first: Row, second: Row) -> None:
        before, now = first.by_token, second.by_token
        common = before.keys() & now.keys()
        self.lists_changed += len(common) < len(before)
        # A probability that a server rounded to 0 once, and not the other time, has no change in nat.
        shifts = [abs(before[token] - now[token]) for token in common if min(before[token], now[token]) > -math.inf]
        self.largest_shift = max(0.0 if math.isnan(self.largest_shift) else self.largest_shift, *shifts, 0.0)
