"""Windows: `prefix_tokens` followed by `suffix_tokens`, cut from documents every few characters.

A window starts at a character, not at a token: the slice of text from there on is tokenised afresh and its first
tokens are kept, as in the published studies. So windows do not depend on each other, and a window's id
(`<document>@<char_start>`) names the same tokens in every run with the same text, tokenizer and options.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from rote.corpus.documents import Document, require_unique_names
from rote.errors import ConfigError
from rote.types import Encoding, Window

CHARACTERS_PER_TOKEN = 8
"""First guess of the slice length: 800 characters for 100 tokens, as published."""
CUT_MARGIN_CHARACTERS = 256
"""A token this far before the cut cannot have been shaped by it, even in a text without spaces."""
SLICES_PER_BATCH = 512

WORD_BREAK = re.compile(r"\S\s+\S")


class Tokenizer(Protocol):
    """What the corpus needs of a tokenizer: many texts in one call, nothing added to them."""

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]: ...


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """How windows are cut. `stride_chars` None means whole documents: one window at the start of each."""

    prefix_tokens: int = 50
    suffix_tokens: int = 50
    stride_chars: int | None = 20

    def __post_init__(self) -> None:
        for name in ("prefix_tokens", "suffix_tokens", "stride_chars"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1.")

    @property
    def whole_documents(self) -> bool:
        return self.stride_chars is None

    @property
    def tokens(self) -> int:
        return self.prefix_tokens + self.suffix_tokens


class WindowStart(NamedTuple):
    """Where a window may begin. Cheap: nothing is tokenised yet, and the window may come out short."""

    document: Document
    char_start: int

    @property
    def window_id(self) -> str:
        return f"{self.document.name}@{self.char_start}"


class ShortWindow(NamedTuple):
    """A start from which the document ends too soon: `tokens` (BOS included) are all there are."""

    document: str
    char_start: int
    tokens: int


@dataclass(frozen=True, slots=True)
class WindowSet:
    """Windows in document order, and what was dropped: short windows per document are counted, never hidden."""

    windows: list[Window]
    short_by_document: dict[str, int] = field(default_factory=dict)
    longest_short: ShortWindow | None = None
    """Of the short windows, the one that came closest to being long enough."""


def cut_windows(
    documents: Sequence[Document], tokenizer: Tokenizer, options: WindowOptions, *, bos_id: int | None
) -> WindowSet:
    """All windows of `documents`. For sets that do not fit in memory use `iterate_windows`."""
    require_unique_names(documents)
    return collect(cut_starts(window_starts(documents, options), tokenizer, options, bos_id=bos_id))


def iterate_windows(
    documents: Sequence[Document],
    tokenizer: Tokenizer,
    options: WindowOptions,
    *,
    bos_id: int | None,
    short_by_document: Counter[str] | None = None,
) -> Iterator[Window]:
    """The windows of `cut_windows`, one by one, in flat memory; short ones are counted in `short_by_document`."""
    require_unique_names(documents)
    for cut in cut_starts(window_starts(documents, options), tokenizer, options, bos_id=bos_id):
        if isinstance(cut, Window):
            yield cut
        elif short_by_document is not None:
            short_by_document[cut.document] += 1


def window_starts(documents: Iterable[Document], options: WindowOptions) -> Iterator[WindowStart]:
    """Every place where a window may begin, in document order. An empty document has one, which comes out short."""
    for document in documents:
        for char_start in _starts(document, options):
            yield WindowStart(document, char_start)


def count_starts(documents: Iterable[Document], options: WindowOptions) -> int:
    """How many starts there are, short ones included, without tokenising anything."""
    return sum(len(_starts(document, options)) for document in documents)


def cut_starts(
    starts: Iterable[WindowStart], tokenizer: Tokenizer, options: WindowOptions, *, bos_id: int | None
) -> Iterator[Window | ShortWindow]:
    """One window, or the news that it is short, for each start and in the same order; tokenised in batches."""
    remaining = iter(starts)
    needed = options.tokens - (0 if bos_id is None else 1)
    while batch := list(itertools.islice(remaining, SLICES_PER_BATCH)):
        for start, encoding in zip(batch, _encode_from(batch, tokenizer, needed=needed), strict=True):
            yield _window(start, encoding, options, bos_id=bos_id)


def collect(cuts: Iterable[Window | ShortWindow]) -> WindowSet:
    """Windows and the tally of short ones."""
    windows: list[Window] = []
    short: Counter[str] = Counter()
    longest: ShortWindow | None = None
    for cut in cuts:
        if isinstance(cut, Window):
            windows.append(cut)
            continue
        short[cut.document] += 1
        if longest is None or cut.tokens > longest.tokens:
            longest = cut
    return WindowSet(windows, dict(short), longest)


def _starts(document: Document, options: WindowOptions) -> range:
    if options.stride_chars is None or not document.text:
        return range(1)
    return range(0, len(document.text), options.stride_chars)


def _encode_from(starts: Sequence[WindowStart], tokenizer: Tokenizer, *, needed: int) -> list[Encoding]:
    """Encodings whose first `needed` tokens are those of the whole rest of the document, or all there are."""
    lengths = [CHARACTERS_PER_TOKEN * needed] * len(starts)
    encodings: list[Encoding | None] = [None] * len(starts)
    open_slots = list(range(len(starts)))
    while open_slots:
        slices = [_slice(starts[slot], lengths[slot]) for slot in open_slots]
        unsettled = []
        for slot, encoding in zip(open_slots, tokenizer.encode_batch(slices), strict=True):
            if _is_settled(starts[slot], lengths[slot], encoding, needed=needed):
                encodings[slot] = encoding
            else:
                lengths[slot] *= 2
                unsettled.append(slot)
        open_slots = unsettled
    return [encoding for encoding in encodings if encoding is not None]


def _slice(start: WindowStart, length: int) -> str:
    return start.document.text[start.char_start : start.char_start + length]


def _is_settled(start: WindowStart, length: int, encoding: Encoding, *, needed: int) -> bool:
    """Whether more text could not change the first `needed` tokens.

    A cut in the middle of a word invents tokens, so the last wanted token must lie before a word break or far
    from the cut.
    """
    if start.char_start + length >= len(start.document.text):
        return True
    if len(encoding.ids) < needed:
        return False
    last_start, last_end = encoding.spans[needed - 1]
    if length - last_end >= CUT_MARGIN_CHARACTERS:
        return True
    # From the last character of the token on: a break right behind it counts, blanks inside it do not.
    tail_start = start.char_start + max(last_start, last_end - 1)
    return WORD_BREAK.search(start.document.text, tail_start, start.char_start + length) is not None


def _window(
    start: WindowStart, encoding: Encoding, options: WindowOptions, *, bos_id: int | None
) -> Window | ShortWindow:
    bos = () if bos_id is None else (bos_id,)
    needed = options.tokens - len(bos)
    if len(encoding.ids) < needed:
        return ShortWindow(start.document.name, start.char_start, len(encoding.ids) + len(bos))
    boundary = options.prefix_tokens - len(bos)
    return Window(
        window_id=start.window_id,
        document=start.document.name,
        split=start.document.split,
        char_start=start.char_start,
        suffix_char_start=start.char_start + encoding.spans[boundary][0],
        char_end=start.char_start + encoding.spans[needed - 1][1],
        prefix_ids=bos + tuple(encoding.ids[:boundary]),
        suffix_ids=tuple(encoding.ids[boundary:needed]),
    )
