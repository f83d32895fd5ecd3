"""Do a server's numbers move? The same prompts asked again, in other company, compared with the first answers."""

import math
from collections.abc import Mapping

from rote.models.endpoint_asking import Book, unpacked
from rote.models.endpoint_rows import Row


class SecondAsking:
    """A book that finds nothing, so that everything is asked again, and compares what comes with what came first."""

    def __init__(self, first: Book) -> None:
        self._first = first
        self.prompts_compared = 0
        self.largest_shift = math.nan
        """Largest change of a log-probability; NaN while nothing was compared. Of a token that is listed only once, the
        least that it must have changed: an unlisted token has no more than the least that is listed."""
        self.lists_changed = 0
        """Places at which another token came into the list."""

    def find(self, key: str) -> bytes | None:
        return None

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
        pairs = [(before[token], now[token]) for token in common]
        pairs += [(value, min(value, min(now.values()))) for token, value in before.items() if token not in common]
        pairs += [(value, min(value, min(before.values()))) for token, value in now.items() if token not in common]
        # A probability that a server rounded to 0 once, and not the other time, has no change in nat.
        shifts = [abs(one - other) for one, other in pairs if min(one, other) > -math.inf]
        self.largest_shift = max(0.0 if math.isnan(self.largest_shift) else self.largest_shift, *shifts, 0.0)
