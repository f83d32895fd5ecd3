"""Windows: `prefix_tokens` followed by `suffix_tokens`, cut from documents every few characters.

A window starts at a character, not at a token: the slice of text from there on is tokenised afresh and its first
tokens are kept, as in the published studies. So windows do not depend on each other, and a window's id
(`<document>@<char_start>`) names the same tokens in every run with the same text, tokenizer and options.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from byrote.corpus.read import Document
from byrote.types import Encoding, PassageBlock, Split, Window

CHARACTERS_PER_TOKEN = 8
"""First guess of the slice length: 800 characters for 100 tokens, as published."""
CUT_MARGIN_CHARACTERS = 256
"""A token this far before the cut cannot have been shaped by it, even in a text without spaces."""
SLICES_PER_BATCH = 512
CHARACTERS_PER_BATCH = 1 << 24

ChoiceName = Literal["all", "limit", "sample"]
WORD_BREAK = re.compile(r"\S\s+\S")


class Tokenizer(Protocol):
    """A tokenizer as the corpus uses it: many texts in one call, nothing added to them."""

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]: ...


class Finished(Protocol):
    """Windows that are measured already, by id or, for a whole document at once, by first characters."""

    def __contains__(self, window_id: str) -> bool: ...

    def holds_places(self, document: str, char_starts: NDArray[np.int64]) -> NDArray[np.bool_]: ...


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """How windows are cut. `stride_chars` None means whole documents: one window at the start of each.

    With room for more tokens, a window is cut that long and its outer ends are dropped: the last `prefix_tokens` of
    `prefix_room` stay, and the first `suffix_tokens` of `suffix_room`. So the same room gives the same targets after
    prefixes of any length, and the same prefixes before targets of any length.
    """

    prefix_tokens: int = 50
    suffix_tokens: int = 50
    stride_chars: int | None = 20
    prefix_room: int | None = None
    suffix_room: int | None = None
    passage_tokens: int | None = None
    """Tokens of a long passage, which begins with the suffix."""

    @property
    def cut_prefix(self) -> int:
        """Tokens before the target while cutting."""
        return self.prefix_room or self.prefix_tokens

    @property
    def cut_suffix(self) -> int:
        return max(self.suffix_room or self.suffix_tokens, self.passage_tokens or 0)

    @property
    def tokens(self) -> int:
        """Tokens that a text must have from a start on."""
        return self.cut_prefix + self.cut_suffix

    @property
    def needed(self) -> str:
        """The same in words."""
        return f"prefix + suffix need {self.cut_prefix} + {self.cut_suffix} = {self.tokens} tokens"


class WindowStart(NamedTuple):
    """Where a window may begin. Cheap: nothing is tokenised yet, and the window may come out short."""

    document: Document
    char_start: int

    @property
    def window_id(self) -> str:
        return f"{self.document.name}@{self.char_start}"


class ShortWindow(NamedTuple):
    """A start from which the document ends too soon: `length` tokens (BOS included), or characters, are all there
    are."""

    document: str
    char_start: int
    length: int

    @property
    def window_id(self) -> str:
        return f"{self.document}@{self.char_start}"


@dataclass(slots=True)
class Tally:
    """What came out of cutting, by document: windows, and starts that came out short. Counted, never hidden."""

    windows: Counter[str] = field(default_factory=Counter)
    short: Counter[str] = field(default_factory=Counter)
    longest_short: ShortWindow | None = None
    """Of the short windows, the one that came closest to being long enough."""

    def add(self, cut: Window | ShortWindow) -> None:
        if isinstance(cut, Window):
            self.windows[cut.document] += 1
            return
        self.short[cut.document] += 1
        if self.longest_short is None or cut.length > self.longest_short.length:
            self.longest_short = cut


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of all windows were taken: the first ones, random ones, or all (`size` None)."""

    kind: ChoiceName
    size: int | None
    seed: int
    starts: dict[Split, int]
    """Places where a window may begin, by split. The last ones of a document come out short."""

    @property
    def most(self) -> int:
        """No more windows than this come out."""
        total = sum(self.starts.values())
        return total if self.size is None else min(self.size, total)


@dataclass(frozen=True, slots=True)
class WindowSet:
    """Windows in document order, what was dropped, and what they were chosen from."""

    windows: list[Window]
    tally: Tally
    selection: Selection


def count_by_split(documents: Iterable[Document], stride_chars: int | None) -> dict[Split, int]:
    """The starts of each split that has documents, targets first."""
    starts: Counter[Split] = Counter()
    for document in documents:
        starts[document.split] += len(starts_of(document, stride_chars))
    return {split: starts[split] for split in Split if split in starts}


def cut_starts(
    starts: Iterable[WindowStart], tokenizer: Tokenizer, options: WindowOptions, *, bos_id: int | None
) -> Iterator[Window | ShortWindow]:
    """A window or a ShortWindow for each start, in the same order; tokenised in batches."""
    needed = options.tokens - (0 if bos_id is None else 1)
    for batch in start_batches(starts):
        for start, encoding in zip(batch, _encode_from(batch, tokenizer, needed=needed), strict=True):
            yield _window(start, encoding, options, bos_id=bos_id)


def start_batches(starts: Iterable[WindowStart]) -> Iterator[list[WindowStart]]:
    """SLICES_PER_BATCH starts each, or fewer where their texts, which are held meanwhile, are long."""
    batch, texts, characters = list[WindowStart](), set[str](), 0
    for start in starts:
        is_of_another_text = start.document.name not in texts
        characters += start.document.characters * is_of_another_text
        if len(batch) == SLICES_PER_BATCH or (batch and is_of_another_text and characters > CHARACTERS_PER_BATCH):
            yield batch
            batch, texts, characters = [], set(), start.document.characters
        batch.append(start)
        texts.add(start.document.name)
    if batch:
        yield batch


def starts_of(document: Document, stride_chars: int | None) -> range:
    """The characters at which windows of a document may begin; None: at its first."""
    if stride_chars is None or not document.characters:
        return range(1)
    return range(0, document.characters, stride_chars)


def _encode_from(starts: Sequence[WindowStart], tokenizer: Tokenizer, *, needed: int) -> list[Encoding]:
    """Encodings whose first `needed` tokens are those of the whole rest of the document, or all there are."""
    lengths = [CHARACTERS_PER_TOKEN * needed] * len(starts)
    encodings: list[Encoding | None] = [None] * len(starts)
    open_slots = list(range(len(starts)))
    while open_slots:
        slices = []
        for slot in open_slots:
            document, first = starts[slot]
            slices.append(document.text[first : first + lengths[slot]])
        unsettled = []
        for slot, encoding in zip(open_slots, tokenizer.encode_batch(slices), strict=True):
            if _is_settled(starts[slot], lengths[slot], encoding, needed=needed):
                encodings[slot] = encoding
            else:
                lengths[slot] *= 2
                unsettled.append(slot)
        open_slots = unsettled
    return [encoding for encoding in encodings if encoding is not None]


def _is_settled(start: WindowStart, length: int, encoding: Encoding, *, needed: int) -> bool:
    """Whether more text could not change the first `needed` tokens.

    A cut in the middle of a word invents tokens, so the last wanted token must lie before a word break or far
    from the cut.
    """
    if start.char_start + length >= start.document.characters:
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
    boundary, end = options.cut_prefix - len(bos), needed - options.cut_suffix + options.suffix_tokens
    first = options.cut_prefix - options.prefix_tokens
    block_starts = range(end, boundary + (options.passage_tokens or 0), options.suffix_tokens)
    return Window(
        window_id=start.window_id,
        document=start.document.name,
        split=start.document.split,
        char_start=start.char_start,
        suffix_char_start=start.char_start + encoding.spans[boundary][0],
        char_end=start.char_start + encoding.spans[end - 1][1],
        prefix_ids=bos + tuple(encoding.ids[first:boundary]),
        suffix_ids=tuple(encoding.ids[boundary:end]),
        blocks=tuple(
            PassageBlock(tuple(encoding.ids[place : place + options.suffix_tokens])) for place in block_starts
        ),
        further={}
        if options.prefix_room is None
        else {"prefix_char_start": start.char_start + encoding.spans[first][0]},
    )
