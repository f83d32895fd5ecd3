"""Budgets of a scan: how much may be spent on it now, and which windows that buys.

With a budget, windows are measured in a random order that depends on their ids and the seed alone. When the budget is
spent no further window is begun, and every one that was begun is finished: so the windows measured are the first of the
random order, a random sample of all, whatever they cost. Opened again, the run goes on with those that come next.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rote.corpus.packed_windows import PackedWindows
from rote.corpus.select import sample_key
from rote.corpus.windows import Finished, Selection
from rote.scan.options import RunConfig
from rote.scan.source import Source
from rote.types import Split, Window


class Spending:
    """What an opening of a run has spent, and how many windows it has not begun."""

    def __init__(self, config: RunConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock, self._started = config, clock, clock()
        self._token_evals = 0
        self.left: dict[Split, int] = {}
        """Windows that were not begun, by split."""

    def note(self, row: Mapping[str, Any]) -> None:
        self._token_evals += row["token_evals"]

    @property
    def spent(self) -> str | None:
        """The budget that is spent; None while none is."""
        config = self._config
        if config.max_seconds is not None and self._clock() - self._started >= config.max_seconds:
            return f"max-seconds {config.max_seconds:g}"
        if config.max_evals is not None and self._token_evals >= config.max_evals:
            return f"max-evals {config.max_evals}"
        return None

    def draw(self, windows: Iterable[Window], finished: Iterable[str]) -> Iterator[Window]:
        """Windows in random order until the budget is spent, and at least up to the last one of those `finished`: only
        without gaps they are a sample. At least one is begun, so that every opening gets further."""
        seed = self._config.seed
        packed = PackedWindows(windows)
        keys = [sample_key(window.window_id, seed) for window in packed]
        order = sorted(range(len(packed)), key=keys.__getitem__)
        last = max((sample_key(window_id, seed) for window_id in finished), default=b"")
        for place, number in enumerate(order):
            if place and keys[number] > last and self.spent is not None:
                self.left = dict(Counter(packed[other].split for other in order[place:]))
                return
            yield packed[number]

    def section(self) -> dict[str, Any]:
        """What the manifest says about a run that its budget stopped."""
        return {"by": self.spent, "windows_left": sum(self.left.values())}


def of_finished(source: Source, finished: Finished, counts: Mapping[Split, int], left: Mapping[Split, int]) -> Source:
    """The source of a run that its budget stopped: the windows that were measured, as the sample they are. `counts` are
    those windows and `left` the others, by split."""

    def cut(tally: Any, passed_over: Finished | None) -> Iterator[Window]:
        return (window for window in source.cut(tally, passed_over) if window.window_id in finished)

    pairs = None if source.pairs is None else [one for one in source.pairs if one.window_id in finished]
    selection = source.selection
    taken = replace(source, cut=cut, pairs=pairs)
    starts = {split: counts.get(split, 0) + left.get(split, 0) for split in selection.starts}
    if selection.kind == "sample":
        starts = selection.starts
    return replace(taken, selection=Selection("sample", sum(counts.values()), selection.seed, starts))
