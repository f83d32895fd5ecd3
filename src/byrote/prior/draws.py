"""Prefixes of the reference corpus: all of them where the corpus has no more than the draws, otherwise drawn.

Draws are independent, uniform over the corpus's window starts, with replacement, and the same for the same seed.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from byrote.corpus.read import Document
from byrote.corpus.select import require_windows
from byrote.corpus.windows import Tally, Tokenizer, WindowOptions, WindowStart, cut_starts, starts_of
from byrote.search.sizing import require_memory
from byrote.types import Window

MOST_SHORT = 0.5
"""Share of drawn starts that may be too short before all starts are listed."""

BYTES_PER_DRAW = 200
"""Beside its count in every trial: the number drawn and what Python keeps of it."""

Prefix = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DrawnPrefixes:
    """Distinct prefixes and how often each was drawn; a prefix drawn twice is evaluated once and counted twice."""

    prefixes: tuple[Prefix, ...]
    counts: NDArray[np.int64]  # [prefixes, trials]
    is_exhaustive: bool = False
    """Nothing was drawn: these are all prefixes of the corpus, counted as often as they stand there."""
    starts: int | None = None
    """Window starts of the corpus; with as many draws or more it is taken whole."""
    stretches: float = math.inf
    """Different stretches as long as a prefix that the corpus has side by side: what it can say of other text."""

    @property
    def draws(self) -> int:
        return int(self.counts.sum())

    @property
    def independent(self) -> float:
        """Prefixes that limits count: overlapping ones add nothing about text in general."""
        return min(self.draws, self.stretches)

    def shortened(self, tokens: int, bos_id: int | None) -> "DrawnPrefixes":
        """The same draws with only the last `tokens` tokens of each prefix, BOS kept and counted."""
        shorter = [shorten(prefix, tokens, bos_id) for prefix in self.prefixes]
        return DrawnPrefixes(*_merge_equal(shorter, self.counts), self.is_exhaustive, self.starts, self.stretches)


def shorten(prefix: Sequence[int], tokens: int, bos_id: int | None) -> Prefix:
    """The last `tokens` tokens; a BOS in front stays in front and counts."""
    if len(prefix) <= tokens:
        return tuple(prefix)
    if bos_id is not None and prefix[0] == bos_id:
        return (bos_id, *prefix[len(prefix) - tokens + 1 :])
    return tuple(prefix[-tokens:])


def draw_prefixes(
    documents: Sequence[Document],
    tokenizer: Tokenizer,
    *,
    prefix_tokens: int,
    stride_chars: int | None,
    bos_id: int | None,
    draws: int,
    trials: int,
    seed: int,
) -> DrawnPrefixes:
    """`draws` prefixes for each trial; all prefixes, in one trial, where the corpus has no more starts than that.

    Starts too close to a document's end to have a prefix and one token after it do not count.
    """
    # One more token than the prefix: a prefix that ends its document has nothing to be followed by.
    options = WindowOptions(prefix_tokens=prefix_tokens, suffix_tokens=1, stride_chars=stride_chars)
    starts = _Starts(documents, tokenizer, options, bos_id)
    is_exhaustive = starts.count <= draws * trials
    if is_exhaustive:
        needed = starts.count * (8 * prefix_tokens + BYTES_PER_DRAW)
        what = f"listing all {starts.count:,} prefixes of the reference corpus"
    else:
        needed = draws * trials * (8 * trials + BYTES_PER_DRAW)
        what = f"drawing {draws:,} prefixes in each of {trials:,} trials"
    require_memory(needed, torch.device("cpu"), what=what, advice="lower --prior-prefixes or --trials")
    if is_exhaustive:
        prefixes = list(starts.prefixes(range(starts.count)).values())
        counts = np.ones((len(prefixes), 1), dtype=np.int64)
    else:
        prefixes = starts.draw(draws * trials, np.random.default_rng([seed, 7]))
        counts = np.eye(trials, dtype=np.int64).repeat(draws, axis=0)
    distinct, merged = _merge_equal(prefixes, counts)
    stretches = starts.side_by_side()
    if is_exhaustive:  # a passage that is repeated inside a document is no new one
        stretches = min(stretches, len(distinct))
    return DrawnPrefixes(distinct, merged, is_exhaustive, starts.count, stretches)


def _merge_equal(prefixes: Sequence[Prefix], counts: NDArray[np.int64]) -> tuple[tuple[Prefix, ...], NDArray[np.int64]]:
    """Equal prefixes become one, their counts added, in order of first appearance."""
    place_of = {prefix: place for place, prefix in enumerate(dict.fromkeys(prefixes))}
    merged = np.zeros((len(place_of), counts.shape[1]), dtype=np.int64)
    np.add.at(merged, [place_of[prefix] for prefix in prefixes], counts)
    return tuple(place_of), merged


class _Starts:
    """Window starts by number, without listing them."""

    def __init__(
        self, documents: Sequence[Document], tokenizer: Tokenizer, options: WindowOptions, bos_id: int | None
    ) -> None:
        self._documents, self._tokenizer, self._options, self._bos_id = documents, tokenizer, options, bos_id
        self._ends = list(accumulate(len(starts_of(document, options.stride_chars)) for document in documents))
        self.count = self._ends[-1]
        self._characters: list[int] = []

    def side_by_side(self) -> int:
        """Stretches of a prefix's mean length that the different documents have without overlap, at least 1; one a
        document where documents are cut whole."""
        lengths = {document.content_hash: document.characters for document in self._documents}
        mean = max(1.0, fmean(self._characters))
        each = [int(length // mean) for length in lengths.values()]
        return max(1, sum(each) if self._options.stride_chars else sum(map(bool, each)))

    def draw(self, size: int, generator: np.random.Generator) -> list[Prefix]:
        """Prefixes of `size` starts drawn among those that are long enough; a short one is drawn again."""
        chosen = generator.integers(0, self.count, size=size)
        found: dict[int, Prefix] = {}
        seen: set[int] = set()
        while True:
            new = sorted(set(chosen.tolist()) - seen)
            found |= self.prefixes(new)
            seen.update(new)
            is_short = np.array([place not in found for place in chosen.tolist()])
            if not is_short.any():
                break
            if is_short.mean() > MOST_SHORT:
                # Drawing again would take for ever: list the starts that are long enough and draw among them.
                found = self.prefixes(range(self.count))
                chosen = generator.choice(np.array(sorted(found)), size=size)
                break
            chosen[is_short] = generator.integers(0, self.count, size=int(is_short.sum()))
        return [found[place] for place in chosen.tolist()]

    def prefixes(self, places: Sequence[int]) -> dict[int, Prefix]:
        """The prefixes at those of `places` that are long enough; a WindowError when no start at all is."""
        cuts = list(cut_starts(map(self._at, places), self._tokenizer, self._options, bos_id=self._bos_id))
        if len(places) == self.count:
            tally = Tally()
            for cut in cuts:
                tally.add(cut)
            require_windows(tally, self._options)
        found = {place: cut for place, cut in zip(places, cuts, strict=True) if isinstance(cut, Window)}
        self._characters += [cut.suffix_char_start - cut.char_start for cut in found.values()]
        return {place: cut.prefix_ids for place, cut in found.items()}

    def _at(self, place: int) -> WindowStart:
        number = bisect_right(self._ends, place)
        inside = place - (self._ends[number - 1] if number else 0)
        return WindowStart(self._documents[number], inside * (self._options.stride_chars or 0))
