"""Pairs of prefix and suffix as tokens: tokenised as one text, because that is what a model was trained on.

Tokenised apart, a suffix would begin like the beginning of a text (▁ in front, no blank merged into the word), with
tokens that never follow that prefix. Tokenised together, a token may reach over the boundary; it then belongs to the
suffix whole, and the pair says so.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, overload

import numpy as np

from byrote.corpus.documents import Document
from byrote.corpus.pair_files import Pair
from byrote.corpus.select import SmallestRanks, limit_ranks, sample_ranks, share_out
from byrote.corpus.windows import (
    CHARACTERS_PER_TOKEN,
    CUT_MARGIN_CHARACTERS,
    SLICES_PER_BATCH,
    ChoiceName,
    Selection,
    Tokenizer,
)
from byrote.errors import TextError
from byrote.types import Encoding, Split, Window


class TextPair(NamedTuple):
    prefix: str
    suffix: str


class JoinedPair(NamedTuple):
    """A pair as tokens. Either side may have come out empty, which the caller must refuse in its own words."""

    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    suffix_char_start: int
    """Where the first suffix token begins in prefix + suffix: before the boundary if it reaches over it."""
    is_clean: bool
    """Whether the prefix alone has these very prefix tokens; otherwise the tokenizer merged across the boundary."""


def join_pairs(pairs: Sequence[TextPair], tokenizer: Tokenizer) -> list[JoinedPair]:
    """Each pair tokenised as prefix + suffix and cut before the first token that holds a character of the suffix."""
    joined: list[JoinedPair] = []
    for first in range(0, len(pairs), SLICES_PER_BATCH):
        batch = pairs[first : first + SLICES_PER_BATCH]
        together = tokenizer.encode_batch([pair.prefix + pair.suffix for pair in batch])
        alone = tokenizer.encode_batch([pair.prefix for pair in batch])
        joined += [
            _join(encoding, len(pair.prefix), prefix.ids)
            for pair, encoding, prefix in zip(batch, together, alone, strict=True)
        ]
    return joined


def require_both_sides(pair: JoinedPair, place: str, *, bos_id: int | None) -> None:
    """A pair can be measured when something stands before the suffix, BOS included, and the suffix has a token."""
    if not pair.suffix_ids:
        raise TextError(f"{place}: the suffix has no token in this model's vocabulary; give it visible text.")
    if not pair.prefix_ids and bos_id is None:
        raise TextError(
            f"{place}: the first token already reaches into the suffix, so nothing is left of the prefix; "
            "make the prefix longer."
        )


def first_token_after(encoding: Encoding, boundary: int) -> int:
    """The place of the first token that ends behind character `boundary`."""
    return bisect_left(encoding.spans, boundary + 1, key=lambda span: span[1])


def _join(encoding: Encoding, boundary: int, prefix_alone: list[int]) -> JoinedPair:
    first = first_token_after(encoding, boundary)
    begins = encoding.spans[first][0] if first < len(encoding.ids) else boundary
    prefix, suffix = tuple(encoding.ids[:first]), tuple(encoding.ids[first:])
    # Spans may leave out the blank that a token begins with, so they cannot tell whether the boundary is clean.
    return JoinedPair(prefix, suffix, begins, is_clean=list(prefix) == prefix_alone)


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


BETWEEN_PAIRS = "\n\n"


class PairTokenizer(Tokenizer, Protocol):
    """What pairs need of a model: tokens of texts, and texts of token ids."""

    @property
    def vocab_size(self) -> int: ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class PairWindows:
    """One window per pair, in order, and the texts they stand in."""

    windows: PackedWindows
    documents: list[Document]
    merged: int
    """Windows in which a token reaches over the boundary of prefix and suffix; it belongs to the suffix whole."""


def pair_windows(
    pairs: Sequence[Pair], tokenizer: PairTokenizer, *, bos_id: int | None, marked_prefix_tokens: int
) -> PairWindows:
    """BOS stands before every prefix, token ids included, and is counted among the tokens of a marked prefix."""
    documents, merged = _Documents(), 0

    def windows() -> Iterator[Window]:
        nonlocal merged
        for pair, cut in zip(pairs, _cut(pairs, tokenizer, marked_prefix_tokens), strict=True):
            require_both_sides(cut.joined, pair.place, bos_id=bos_id)
            merged += not cut.joined.is_clean
            offset = documents.place(pair, cut.text) + cut.skipped
            yield _window(pair, cut, offset, bos_id=bos_id, marked_prefix_tokens=marked_prefix_tokens)

    packed = PackedWindows(windows())
    return PairWindows(packed, documents.made(), merged)


def _window(pair: Pair, cut: "_Cut", offset: int, *, bos_id: int | None, marked_prefix_tokens: int) -> Window:
    prefix_ids = cut.joined.prefix_ids
    if pair.text is not None:
        prefix_ids = prefix_ids[max(0, len(prefix_ids) - marked_prefix_tokens + (bos_id is not None)) :]
    return Window(
        window_id=pair.name,
        document=pair.document,
        split=pair.split,
        char_start=offset,
        suffix_char_start=offset + cut.joined.suffix_char_start,
        char_end=offset + cut.length,
        prefix_ids=(() if bos_id is None else (bos_id,)) + prefix_ids,
        suffix_ids=cut.joined.suffix_ids,
        further={"copies": pair.copies, "kind": pair.kind, "tags": list(pair.tags)},
    )


def longest_of(windows: Iterable[Window]) -> tuple[int, int]:
    """Tokens of the longest prefix and of the longest suffix."""
    lengths = [(len(window.prefix_ids), len(window.suffix_ids)) for window in windows]
    return max(prefix for prefix, _ in lengths), max(suffix for _, suffix in lengths)


class ChosenPairs(NamedTuple):
    pairs: list[Pair]
    selection: Selection


def choose_pairs(
    pairs: Sequence[Pair], *, limit: int | None = None, sample: int | None = None, seed: int = 0
) -> ChosenPairs:
    """All pairs, or N that targets and controls, and documents, have their share of (as `byrote.corpus.select`)."""
    numbers: dict[Split, dict[str, list[int]]] = {}
    for number, pair in enumerate(pairs):
        numbers.setdefault(pair.split, {}).setdefault(pair.document, []).append(number)
    counts = {split: sum(map(len, numbers[split].values())) for split in Split if split in numbers}
    kind: ChoiceName = "sample" if sample is not None else "limit" if limit is not None else "all"
    size = min((value for value in (limit, sample) if value is not None), default=None)
    selection = Selection(kind, size, seed, counts)
    if size is None:
        return ChosenPairs(list(pairs), selection)
    kept: list[int] = []
    for split, share in share_out(size, counts).items():
        smallest = SmallestRanks(share)
        for place, (document, own) in enumerate(numbers[split].items()):
            starts = np.arange(len(own))
            ranks = sample_ranks(document, starts, seed) if kind == "sample" else limit_ranks(place, starts)
            smallest.add(0, np.array(own), ranks)
        kept += smallest.ranked().char_starts.tolist()
    return ChosenPairs([pairs[number] for number in sorted(kept)], selection)


class _Cut(NamedTuple):
    """A pair as tokens, and the text it brings along: `length` characters from `skipped` on are the pair's own."""

    joined: JoinedPair
    text: str
    skipped: int
    length: int


def _cut(pairs: Sequence[Pair], tokenizer: PairTokenizer, marked_prefix_tokens: int) -> Iterator[_Cut]:
    for first in range(0, len(pairs), SLICES_PER_BATCH):
        batch = pairs[first : first + SLICES_PER_BATCH]
        texts = [_text_pair(pair, marked_prefix_tokens) for pair in batch if isinstance(pair.suffix, str)]
        joined = zip(texts, join_pairs(texts, tokenizer), strict=True)
        for pair in batch:
            yield _of_text(pair, *next(joined)) if isinstance(pair.suffix, str) else _of_ids(pair, tokenizer)


def _text_pair(pair: Pair, marked_prefix_tokens: int) -> TextPair:
    assert isinstance(pair.prefix, str)
    assert isinstance(pair.suffix, str)
    if pair.text is None:
        return TextPair(pair.prefix, pair.suffix)
    # Far more characters than so many tokens take; where the slice begins matters to its first tokens alone.
    start = max(0, len(pair.prefix) - CHARACTERS_PER_TOKEN * marked_prefix_tokens - CUT_MARGIN_CHARACTERS)
    return TextPair(pair.prefix[start:], pair.suffix)


def _of_text(pair: Pair, text: TextPair, joined: JoinedPair) -> _Cut:
    length = len(text.prefix) + len(text.suffix)
    if pair.text is None:
        return _Cut(joined, text.prefix + text.suffix, 0, length)
    return _Cut(joined, pair.text, pair.start - len(text.prefix), length)


def _of_ids(pair: Pair, tokenizer: PairTokenizer) -> _Cut:
    assert not isinstance(pair.prefix, str)
    assert not isinstance(pair.suffix, str)
    ids = pair.prefix + pair.suffix
    if max(ids) >= tokenizer.vocab_size:
        raise TextError(
            f"{pair.place} has the token id {max(ids)}, but the model knows {tokenizer.vocab_size} tokens; "
            "give the ids of this model's tokenizer."
        )
    text, prefix = tokenizer.decode(ids), tokenizer.decode(pair.prefix)
    boundary = len(prefix) if text.startswith(prefix) else min(len(prefix), len(text))
    return _Cut(JoinedPair(pair.prefix, pair.suffix, boundary, is_clean=True), text, 0, len(text))


class _Documents:
    """Texts of documents as their pairs come in; a marked text is there once for all its pairs."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._lengths: dict[str, int] = {}
        self._splits: dict[str, Split] = {}
        self._marked: dict[tuple[str, str], int] = {}

    def place(self, pair: Pair, text: str) -> int:
        """Where the text of a pair begins in its document."""
        if self._splits.setdefault(pair.document, pair.split) is not pair.split:
            raise TextError(
                f"{pair.place} is a {pair.split}, but {pair.document!r} is not; pairs of one document are of one split."
            )
        marked = (pair.document, text)
        if pair.text is not None and marked in self._marked:
            return self._marked[marked]
        before = self._lengths.get(pair.document)
        start = 0 if before is None else before + len(BETWEEN_PAIRS)
        self._texts.setdefault(pair.document, []).append(text)
        self._lengths[pair.document] = start + len(text)
        if pair.text is not None:
            self._marked[marked] = start
        return start

    def made(self) -> list[Document]:
        """Each text is joined once: a stream of token ids is one document of a million pieces."""
        return [
            Document.from_text(name, BETWEEN_PAIRS.join(pieces), split=self._splits[name])
            for name, pieces in self._texts.items()
        ]
