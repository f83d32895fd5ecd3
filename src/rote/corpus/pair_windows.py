"""Pairs as windows of any length, with the documents they make up.

Pairs of one document stand behind each other in its text; a marked text is its own document. A pair's window covers the
whole prefix and the whole suffix; only the prefix of a marked span, which may be a book, is cut to its last tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from rote.corpus.documents import Document
from rote.corpus.order import SmallestRanks, limit_ranks, sample_ranks
from rote.corpus.packed_windows import PackedWindows
from rote.corpus.pair_files import Pair
from rote.corpus.pairs import JoinedPair, TextPair, join_pairs, require_both_sides
from rote.corpus.select import share_out
from rote.corpus.windows import (
    CHARACTERS_PER_TOKEN,
    CUT_MARGIN_CHARACTERS,
    SLICES_PER_BATCH,
    ChoiceName,
    Selection,
    Tokenizer,
)
from rote.errors import TextError
from rote.types import Split, Window

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
    """All pairs, or N that targets and controls, and documents, have their share of (as `rote.corpus.select`)."""
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
