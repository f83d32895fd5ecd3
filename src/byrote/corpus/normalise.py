"""Light normalisation before words are compared, and the way back to the original text.

Benign differences of typography are removed, each step once and in this order, as published: compatibility forms
(NFKC); the shapes of quotes (a backtick is one), dashes and ellipses; three or more dots with blanks between them
become an ellipsis; a blank between an ellipsis and a letter or digit; `_italics_` marks; case. Nothing is stemmed and
no other punctuation is touched: dots without blanks stay as they are, and of `__x__` the inner marks go. Every
normalised character is mapped to the span of the original text that it came from.
"""

import itertools
import re
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_PUNCTUATION = str.maketrans(
    dict.fromkeys("‘’‚‛ʼ′‹›`", "'") | dict.fromkeys("“”„‟«»〝〞〟", '"') | dict.fromkeys("‒–―⸺⸻", "—") | {"‐": "-"}
)
_NOT_ASCII_STRETCH = re.compile(r"[^ \n]*[^\x00-\x7f][^ \n]*")
_ITALICS = re.compile(r"_([^_]+)_")
_SPACED_DOTS = re.compile(r"(?<!\.)\.(?:[ \t]+\.){2,}(?!\.)")
_ELLIPSIS_THEN_WORD = re.compile(r"(?<=\.\.\.)(?=[^\W_])")
_WORD = re.compile(r"\S+")


class Words(NamedTuple):
    """The normalised words of a text and where each came from: `text[char_starts[n]:char_ends[n]]`."""

    words: tuple[str, ...]
    char_starts: Integers
    char_ends: Integers


@dataclass(frozen=True, slots=True)
class _Traced:
    """A text whose character n comes from `original[starts[n]:ends[n]]`."""

    text: str
    starts: Integers
    ends: Integers


class _Edit(NamedTuple):
    start: int
    end: int
    replacement: str


def normalised_words(text: str) -> Words:
    """The normalised text split on white space, with each word's span in the original text."""
    traced = _trace(text)
    matches = list(_WORD.finditer(traced.text))
    first = np.array([match.start() for match in matches], dtype=np.int64)
    last = np.array([match.end() - 1 for match in matches], dtype=np.int64)
    return Words(tuple(match.group() for match in matches), traced.starts[first], traced.ends[last])


def _trace(text: str) -> _Traced:
    positions = np.arange(len(text), dtype=np.int64)
    current = _compatible(_Traced(text, positions, positions + 1))
    current = _Traced(current.text.translate(_PUNCTUATION), current.starts, current.ends)
    current = _edited(current, [_Edit(*m.span(), "...") for m in _SPACED_DOTS.finditer(current.text)])
    current = _edited(current, [_Edit(*m.span(), " ") for m in _ELLIPSIS_THEN_WORD.finditer(current.text)])
    marks = [mark for match in _ITALICS.finditer(current.text) for mark in (match.start(), match.end() - 1)]
    current = _edited(current, [_Edit(mark, mark + 1, "") for mark in marks])
    return _lower_case(current)


def _compatible(traced: _Traced) -> _Traced:
    """NFKC. Spaces and line ends never combine with their neighbours: what is between them is normalised alone."""
    if unicodedata.is_normalized("NFKC", traced.text):
        return traced
    edits: list[_Edit] = []
    for match in _NOT_ASCII_STRETCH.finditer(traced.text):
        if not unicodedata.is_normalized("NFKC", match.group()):
            edits += _compatible_edits(match.group(), offset=match.start())
    return _edited(traced, edits)


def _compatible_edits(stretch: str, *, offset: int) -> list[_Edit]:
    """Edits of single clusters (a character and its combining marks), or of the whole stretch where clusters join."""
    starts = [n for n, character in enumerate(stretch) if n == 0 or not unicodedata.combining(character)]
    clusters = [stretch[start:end] for start, end in itertools.pairwise([*starts, len(stretch)])]
    pieces = [unicodedata.normalize("NFKC", cluster) for cluster in clusters]
    whole = unicodedata.normalize("NFKC", stretch)
    if "".join(pieces) != whole:
        return [_Edit(offset, offset + len(stretch), whole)]
    return [
        _Edit(offset + start, offset + start + len(cluster), piece)
        for start, cluster, piece in zip(starts, clusters, pieces, strict=True)
        if piece != cluster
    ]


def _lower_case(traced: _Traced) -> _Traced:
    lowered = traced.text.lower()
    if len(lowered) == len(traced.text):
        return _Traced(lowered, traced.starts, traced.ends)
    widths = [len(character.lower()) for character in traced.text]
    return _Traced(lowered, np.repeat(traced.starts, widths), np.repeat(traced.ends, widths))


def _edited(traced: _Traced, edits: list[_Edit]) -> _Traced:
    """The text after the edits (in order, not overlapping); what an edit writes comes from all that it replaced."""
    if not edits:
        return traced
    pieces: list[str] = []
    starts: list[Integers] = []
    ends: list[Integers] = []
    kept_from = 0
    for edit in [*edits, _Edit(len(traced.text), len(traced.text), "")]:
        pieces += [traced.text[kept_from : edit.start], edit.replacement]
        if edit.start < edit.end:
            source_start, source_end = traced.starts[edit.start], traced.ends[edit.end - 1]
        else:
            source_start = source_end = traced.ends[edit.start - 1] if edit.start > 0 else 0
        width = len(edit.replacement)
        starts += [traced.starts[kept_from : edit.start], np.full(width, source_start, dtype=np.int64)]
        ends += [traced.ends[kept_from : edit.start], np.full(width, source_end, dtype=np.int64)]
        kept_from = edit.end
    return _Traced("".join(pieces), np.concatenate(starts), np.concatenate(ends))
