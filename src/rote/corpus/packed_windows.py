"""Windows in few bytes, for pairs, which are all cut before the first is measured.

A window of 100 tokens is 400 bytes of token ids, its name and some numbers: a tenth of what it is as an object.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from rote.types import Split, Window


class PackedWindows(Sequence[Window]):
    """A sequence of windows, each made anew when it is asked for. Equal `further` columns are held once."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._names: list[str] = []
        self._documents: list[str] = []
        self._splits: list[Split] = []
        self._further: list[Mapping[str, Any]] = []
        self._ids, self._boundaries = array("i"), array("q", [0])
        self._places = array("q")
        shared: dict[str, Mapping[str, Any]] = {}
        for window in windows:
            name = window.window_id
            self._names.append(name)
            # One string where they are equal, as for most pairs.
            self._documents.append(name if window.document == name else window.document)
            self._splits.append(window.split)
            self._further.append(shared.setdefault(repr(window.further), window.further))
            for ids in (window.prefix_ids, window.suffix_ids):
                self._ids.extend(ids)
                self._boundaries.append(len(self._ids))
            self._places.extend((window.char_start, window.suffix_char_start, window.char_end))

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, place: int) -> Window: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Window]: ...

    def __getitem__(self, place: int | slice) -> Window | Sequence[Window]:
        if isinstance(place, slice):
            chosen = range(len(self))[place]
            return self if len(chosen) == len(self) and chosen.step > 0 else PackedWindows(self[at] for at in chosen)
        at = range(len(self))[place]
        first, middle, last = self._boundaries[2 * at : 2 * at + 3]
        char_start, suffix_char_start, char_end = self._places[3 * at : 3 * at + 3]
        return Window(
            self._names[at],
            self._documents[at],
            self._splits[at],
            char_start,
            suffix_char_start,
            char_end,
            tuple(self._ids[first:middle]),
            tuple(self._ids[middle:last]),
            self._further[at],
        )
