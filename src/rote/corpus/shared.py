"""Leakage: passages of control texts that also stand in a target text.

A control shows what a model reaches on text it cannot have learned. A passage that the control shares with a target is
no such text. A *shared passage* is a stretch of a control in which every word belongs to a run of RUN_WORDS words that
some target holds too (case, punctuation and layout aside). A window is shared when at least half of its suffix lies in
shared passages; docs/method.md says why these numbers.

The controls are indexed a group at a time and the targets stream past each group. So memory is bounded by a group, not
by either side; what is kept are the shared passages.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.corpus.documents import Document
from rote.corpus.hashes import Hashes
from rote.corpus.shingles import Places, Runs, runs_of
from rote.types import Split, Window

RUN_WORDS = 8
LEAST_SHARE = 0.5
GROUP_RUNS = 1 << 21
"""Runs of one group of controls: about 100 MB, and two million words (a dozen books) go through the targets once."""
SHARE_COLUMN = "shared_share"
WITH_COLUMN = "shared_with"


class Passages(NamedTuple):
    """Shared passages of one control document, in order and disjoint, each with a target that holds it."""

    starts: Places
    ends: Places
    targets: NDArray[np.int64]

    @property
    def characters(self) -> int:
        return int((self.ends - self.starts).sum())


NO_PASSAGES = Passages(*(np.empty(0, np.int64) for _ in range(3)))


class Share(NamedTuple):
    """How much of a stretch of text is shared, in characters, and the target that holds most of it."""

    share: float
    target: str | None


@dataclass(frozen=True, slots=True)
class SharedText:
    """What the controls of a corpus share with its targets."""

    targets: dict[int, str] = field(default_factory=dict)
    """Names of the targets that passages are shared with."""
    passages: dict[str, Passages] = field(default_factory=dict)
    """By control document; documents that share nothing are not listed."""

    def share_of(self, document: str, start: int, end: int) -> Share:
        """The shared part of characters `start` to `end` of a control document."""
        found = self.passages.get(document)
        if found is None or end <= start:
            return Share(0.0, None)
        first, last = np.searchsorted(found.ends, start, "right"), np.searchsorted(found.starts, end, "left")
        if first >= last:
            return Share(0.0, None)
        overlap = np.minimum(found.ends[first:last], end) - np.maximum(found.starts[first:last], start)
        by_target = np.bincount(found.targets[first:last], weights=overlap)
        return Share(float(overlap.sum()) / (end - start), self.targets[int(by_target.argmax())])


def find_shared(documents: Iterable[Document]) -> SharedText:
    """The shared passages of every control. `documents` is gone through once, and once more for every group."""
    shared = SharedText()
    for group in _groups(document for document in documents if document.split is Split.CONTROL):
        index = _Index(group)
        for place, target in enumerate(documents):
            if target.split is Split.TARGET and index.look_up(target, place):
                shared.targets[place] = target.name
        for name, found in index.passages():
            earlier = shared.passages.get(name, NO_PASSAGES)
            shared.passages[name] = _joined(*map(np.concatenate, zip(earlier, found, strict=True)))
    return shared


def mark_shared(windows: Iterable[Window], shared: SharedText) -> Iterator[Window]:
    """The same windows, each with its two columns: nulls for targets, which cannot leak into themselves."""
    for window in windows:
        share, target = None, None
        if window.split is Split.CONTROL:
            share, target = shared.share_of(window.document, window.suffix_char_start, window.char_end)
        columns = {SHARE_COLUMN: share, WITH_COLUMN: target if (share or 0.0) >= LEAST_SHARE else None}
        yield replace(window, further={**window.further, **columns})


class _Piece(NamedTuple):
    """Some runs of a control document."""

    document: str
    runs: Runs


class _Index:
    """The runs of some controls, and for each the first target that was seen to hold it."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self._pieces = pieces
        self._hashes: Hashes = np.unique(np.concatenate([piece.runs.hashes for piece in pieces]))
        self._target = np.full(self._hashes.size, -1, np.int64)

    def look_up(self, target: Document, place: int) -> bool:
        """Whether this target holds runs that no earlier one held."""
        is_first = False
        for runs in runs_of(target.text, RUN_WORDS):
            places = np.minimum(np.searchsorted(self._hashes, runs.hashes), self._hashes.size - 1)
            found = places[(self._hashes[places] == runs.hashes) & (self._target[places] < 0)]
            self._target[found] = place
            is_first |= found.size > 0
        return is_first

    def passages(self) -> Iterator[tuple[str, Passages]]:
        for document, (hashes, starts, ends) in self._pieces:
            target = self._target[np.searchsorted(self._hashes, hashes)]
            is_held = target >= 0
            if is_held.any():
                yield document, _joined(starts[is_held], ends[is_held], target[is_held])


def _joined(starts: Places, ends: Places, targets: NDArray[np.int64]) -> Passages:
    """Stretches that overlap and stand in the same target as one passage each."""
    # They come in order, and later ones end later: only neighbours can overlap.
    begins = np.concatenate([[True], (starts[1:] >= ends[:-1]) | (targets[1:] != targets[:-1])])
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], starts.size) - 1
    # Where the target changes inside an overlap, the earlier passage ends where the later one begins.
    stops = np.minimum(ends[lasts], np.append(starts[firsts[1:]], ends[-1]))
    return Passages(starts[firsts], stops, targets[firsts])


def _groups(controls: Iterable[Document]) -> Iterator[list[_Piece]]:
    """The runs of the controls in groups of about GROUP_RUNS."""
    group: list[_Piece] = []
    size = 0
    for control in controls:
        for runs in runs_of(control.text, RUN_WORDS):
            group.append(_Piece(control.name, runs))
            size += runs.hashes.size
            if size >= GROUP_RUNS:
                yield group
                group, size = [], 0
    if group:
        yield group
