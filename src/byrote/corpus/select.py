"""Mixing 64-bit numbers."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.corpus.documents import Document, require_unique_names
from byrote.corpus.windows import (
    ChoiceName,
    Finished,
    Selection,
    Tally,
    Tokenizer,
    WindowOptions,
    WindowSet,
    WindowStart,
    count_by_split,
    cut_starts,
    starts_of,
)
from byrote.errors import ConfigError, WindowError
from byrote.types import Split, Window

Hashes = NDArray[np.uint64]


def mixed(values: Hashes) -> Hashes:
    """A bijection of 64-bit numbers in which every bit depends on every bit (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


SLACK = 4096


class Ranked(NamedTuple):
    """Starts by number of their document and first character, smallest rank first."""

    documents: NDArray[np.int64]
    char_starts: NDArray[np.int64]

    def behind(self, count: int) -> "Ranked":
        """Without the first `count`."""
        return Ranked(self.documents[count:], self.char_starts[count:])


class SmallestRanks:
    """The `size` starts of smallest rank among all that are added, in memory for some four times as many."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pieces: list[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]] = []
        self._held = 0
        self._bound = np.inf

    def add(self, document: int, char_starts: NDArray[np.int64], ranks: NDArray[np.float64]) -> None:
        kept = ranks <= self._bound
        starts = char_starts[kept]
        self._pieces.append((ranks[kept], np.full(starts.size, document), starts))
        self._held += starts.size
        if self._held > 4 * self._size + SLACK:
            self._shrink()

    def ranked(self) -> Ranked:
        self._shrink()
        return Ranked(*self._pieces[0][1:]) if self._pieces else Ranked(np.empty(0, np.int64), np.empty(0, np.int64))

    def _shrink(self) -> None:
        if not self._pieces:
            return
        ranks, documents, starts = (np.concatenate(parts) for parts in zip(*self._pieces, strict=True))
        order = np.lexsort((starts, documents, ranks))[: self._size]
        self._pieces = [(ranks[order], documents[order], starts[order])]
        self._held = order.size
        if order.size == self._size:
            self._bound = float(ranks[order[-1]])


def limit_ranks(place: int, char_starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Ranks of a document's starts in text order; `place` is the document's number."""
    return (np.arange(char_starts.size) + place / (place + 1)) / char_starts.size


def sample_ranks(name: str, char_starts: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Ranks of a document's starts in the order of their hashes."""
    keys = sample_keys(name, char_starts, seed)
    order = np.empty(char_starts.size)
    order[np.argsort(keys, kind="stable")] = np.arange(char_starts.size)
    return (order + float(sample_keys(name, np.array([-1]), seed)[0]) / 2**64) / char_starts.size


def sample_keys(name: str, char_starts: NDArray[np.int64], seed: int) -> Hashes:
    """A 64-bit number for each start that depends on the document's name, the position and the seed alone."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=str(seed).encode()).digest()
    base = np.uint64(int.from_bytes(digest, "big"))
    # The generator splitmix64: a counter in odd steps, mixed.
    return mixed(base + (char_starts.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))


Chosen = dict[int, NDArray[np.int64]]
"""Number of a document → the starts taken from it, rising."""


class DocumentStarts(NamedTuple):
    """Where windows of one document may begin."""

    document: Document
    char_starts: NDArray[np.int64]


@dataclass(frozen=True)
class WindowPlan:
    """The windows that a run measures, cut when they are asked for; `documents` can be gone through again and again.

    Memory: one document, one batch of slices and, for a limit or a sample, a few numbers per window chosen.
    """

    documents: Iterable[Document]
    options: WindowOptions
    selection: Selection

    def cut(
        self,
        tokenizer: Tokenizer,
        *,
        bos_id: int | None,
        tally: Tally | None = None,
        finished: Finished | None = None,
        is_wanted: Callable[[str], bool] = lambda window_id: True,
    ) -> Iterator[Window]:
        """The windows, but for finished ones, which are neither tokenised nor tallied.

        What is not wanted belongs to somebody else: it counts towards a limit or a sample, and that is all.
        """
        tally = Tally() if tally is None else tally
        taken: Counter[Split] = Counter()
        found: Counter[Split] = Counter()
        while (chosen := self._next_starts(taken, found)) is not None:
            starts = _passing_over(chosen, finished, found)
            if self.selection.size is None:
                starts = (start for start in starts if is_wanted(start.window_id))
            for cut in cut_starts(starts, tokenizer, self.options, bos_id=bos_id):
                if isinstance(cut, Window):
                    found[cut.split] += 1
                if is_wanted(cut.window_id):
                    tally.add(cut)
                    if isinstance(cut, Window):
                        yield cut

    def _next_starts(self, taken: Counter[Split], found: Counter[Split]) -> Iterator[DocumentStarts] | None:
        """As many further starts of each split as it lacks windows; None when nothing is lacking or left."""
        left = {split: count - taken[split] for split, count in self.selection.starts.items()}
        if self.selection.size is None:
            taken.update(left)
            return self._all_starts() if any(left.values()) else None
        wanted = share_out(self.selection.size, {split: found[split] + count for split, count in left.items()})
        lacking = {split: wanted[split] - found[split] for split in wanted if wanted[split] > found[split]}
        if not lacking:
            return None
        chosen = self._chosen(lacking, taken)
        taken.update(lacking)
        return self._starts_at(chosen)

    def _chosen(self, lacking: Mapping[Split, int], taken: Mapping[Split, int]) -> Chosen:
        """The next starts of the order: `lacking` of each split, behind those taken already."""
        smallest = {split: SmallestRanks(taken[split] + count) for split, count in lacking.items()}
        places: Counter[Split] = Counter()
        for number, document in enumerate(self.documents):
            if document.split in smallest:
                starts = np.array(starts_of(document, self.options))
                smallest[document.split].add(number, starts, self._ranks(document, places[document.split], starts))
                places[document.split] += 1
        chosen: dict[int, list[int]] = {}
        for split, found in smallest.items():
            for number, start in zip(*found.ranked().behind(taken[split]), strict=True):
                chosen.setdefault(int(number), []).append(int(start))
        return {number: np.sort(starts) for number, starts in chosen.items()}

    def _ranks(self, document: Document, place: int, starts: NDArray[np.int64]) -> NDArray[np.float64]:
        if self.selection.kind == "sample":
            return sample_ranks(document.name, starts, self.selection.seed)
        return limit_ranks(place, starts)

    def _all_starts(self) -> Iterator[DocumentStarts]:
        return (DocumentStarts(document, np.array(starts_of(document, self.options))) for document in self.documents)

    def _starts_at(self, chosen: Chosen) -> Iterator[DocumentStarts]:
        for number, document in enumerate(self.documents):
            if number in chosen:
                yield DocumentStarts(document, chosen[number])


def plan_windows(
    documents: Iterable[Document],
    options: WindowOptions,
    *,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> WindowPlan:
    """Count what there is and say what is taken. Nothing is tokenised. With limit and sample, the smaller sample."""
    sizes = {"limit": limit, "sample": sample}
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1.")
    starts = count_by_split(documents, options)
    given = {name: value for name, value in sizes.items() if value is not None}
    kind: ChoiceName = "sample" if sample is not None else "limit" if limit is not None else "all"
    size = min(given.values(), default=None)
    if size is not None:
        share_out(size, starts)
    return WindowPlan(documents, options, Selection(kind, size, seed, starts))


def share_out(size: int, counts: Mapping[Split, int]) -> dict[Split, int]:
    """`size` in equal shares, none larger than its count and none empty; what one cannot take goes to the others."""
    if size < len(counts):
        raise ConfigError(f"{size} cannot hold both targets and controls; ask for at least {len(counts)}.")
    shares = dict.fromkeys(counts, 0)
    while (open_ones := [split for split in counts if shares[split] < counts[split]]) and sum(shares.values()) < size:
        missing = size - sum(shares.values())
        for place, split in enumerate(open_ones):
            # The remainder goes to those that come first, targets before controls.
            part = missing // len(open_ones) + (place < missing % len(open_ones))
            shares[split] = min(counts[split], shares[split] + part)
    return shares


def select_windows(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    options: WindowOptions,
    *,
    bos_id: int | None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> WindowSet:
    """The windows of a plan as a list in document order; at least one, else a WindowError says why there is none."""
    documents = list(documents)
    require_unique_names(documents)
    plan, tally = plan_windows(documents, options, limit=limit, sample=sample, seed=seed), Tally()
    windows = list(plan.cut(tokenizer, bos_id=bos_id, tally=tally))
    require_windows(tally, options)
    place_of = {document.name: place for place, document in enumerate(documents)}
    windows.sort(key=lambda window: (place_of[window.document], window.char_start))
    return WindowSet(windows, tally, plan.selection)


def sample_key(window_id: str, seed: int) -> bytes:
    """A random-looking key that depends on the id and the seed alone: the smallest keys are a uniform sample."""
    return hashlib.blake2b(window_id.encode(), digest_size=16, key=str(seed).encode()).digest()


def require_windows(tally: Tally, options: WindowOptions) -> None:
    """Raise a WindowError with the numbers unless there is at least one window."""
    if tally.windows:
        return
    need = f"prefix + suffix need {options.cut_prefix} + {options.cut_suffix} = {options.tokens}"
    short = tally.longest_short
    if short is None:
        raise WindowError(f"There is no document to cut windows from; {need} tokens of text.")
    where = short.document if short.char_start == 0 else f"{short.document} from character {short.char_start} on"
    others = len(tally.short) - 1
    rest = f" and {others} other document{'s' * (others > 1)} no more" if others else ""
    raise WindowError(
        f"{where} has {short.tokens} tokens{rest}; {need}. "
        "Shorten --prefix-tokens or --suffix-tokens, or give more text."
    )


def _passing_over(
    chosen: Iterable[DocumentStarts], finished: Finished | None, found: Counter[Split]
) -> Iterator[WindowStart]:
    for document, starts in chosen:
        if finished is not None:
            is_finished = finished.holds_places(document.name, starts)
            found[document.split] += int(is_finished.sum())
            starts = starts[~is_finished]
        if starts.size:
            # Read once, and forgotten with its last window.
            yield from map(WindowStart, repeat(document.held()), starts.tolist())
