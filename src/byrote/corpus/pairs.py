"""Pairs of prefix and suffix: read from files, tokenised as one text, cut into windows.

Formats: `.jsonl` and `.csv` with `prefix` and `suffix`, `prefix_ids` and `suffix_ids`, or a `text` with [[marks]]; a
`.txt` or `.md` with [[marks]]; and token ids as arrays, which are mapped and cut without any text:

- `NAME_prefix.npy` beside `NAME_suffix.npy`, a row of ids for every pair;
- `NAME.npy` of two dimensions: one window a row, its first tokens; of one dimension: a stream;
- `NAME.uint16.bin`, `NAME.uint32.bin`: a stream of little-endian ids without a header, as training data are kept.

A stream is cut into consecutive windows; a remainder that is too short for one is left out.

Tokenised apart, a suffix would begin like the beginning of a text (▁ in front, no blank merged into the word), with
tokens that never follow that prefix. Tokenised together, a token may reach over the boundary; it then belongs to the
suffix whole, and the pair is counted as merged. Where answers are compared as text, the tokens of a suffix must be its
text: it is tokenised with the prefix where a token begins at the boundary, and otherwise by itself.
"""

import csv
import io
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from byrote.corpus.read import Document, read_json_lines, read_plain_text
from byrote.corpus.text_windows import first_word, tokenised
from byrote.corpus.windows import CHARACTERS_PER_TOKEN, CUT_MARGIN_CHARACTERS, SLICES_PER_BATCH, Tokenizer
from byrote.errors import TextError
from byrote.files import require_regular
from byrote.normal_form import normalised
from byrote.types import Encoding, Split, Window

PAIR_SUFFIXES = (".jsonl", ".csv", ".txt", ".md", ".npy", ".bin")
STREAM_TYPES = {".uint16": "<u2", ".uint32": "<u4"}
MARK = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
MARKED_PREFIX_CHARACTERS = 1 << 16
"""A mark in a book needs no more of what stands before it."""
BETWEEN_PAIRS = "\n\n"

Ids = np.ndarray[Any, np.dtype[np.integer[Any]]]


@dataclass(frozen=True, slots=True)
class Pair:
    """A prefix and a suffix, both texts or both token ids. `place` is where it was read, for messages."""

    name: str
    document: str
    split: Split
    place: str
    prefix: str | tuple[int, ...]
    suffix: str | tuple[int, ...]
    text: str | None = None
    """The whole text that a marked suffix stands in; the prefix is what stands before it."""
    start: int = 0
    """Where the suffix begins in `text`."""
    copies: int | None = None
    kind: str | None = None
    tags: tuple[str, ...] = ()


def read_pairs(paths: Sequence[str | Path], *, prefix_tokens: int = 50, suffix_tokens: int = 50) -> list[Pair]:
    """The pairs of every file, in order; names are unique. Token ids without a boundary are cut at these lengths."""
    pairs: dict[str, Pair] = {}
    for path in map(Path, paths):
        before = len(pairs)
        _add_unique(pairs, _pairs_of(path.expanduser(), (prefix_tokens, suffix_tokens)))
        if len(pairs) == before:
            raise TextError(f"{path} holds no pair; give prefixes and suffixes, or a text with [[suffix]] marks.")
    return list(pairs.values())


def pairs_of(rows: Iterable[Mapping[str, Any]]) -> list[Pair]:
    """Pairs in memory, with the fields of a `.jsonl` file."""
    pairs: dict[str, Pair] = {}
    for number, fields in enumerate(rows, start=1):
        if not isinstance(fields, Mapping):
            raise TextError(f"pair {number} is a {type(fields).__name__}; give mappings with prefix and suffix.")
        _add_unique(pairs, _of_row(fields, f"pair {number}", f"pair-{number}"))
    if not pairs:
        raise TextError("No pairs were given; give mappings with prefix and suffix.")
    return list(pairs.values())


def _add_unique(pairs: dict[str, Pair], further: Iterable[Pair]) -> None:
    for pair in further:
        if pair.name in pairs:
            raise TextError(f"{pair.place} uses the id {pair.name!r} a second time; give every pair its own.")
        pairs[pair.name] = pair


def _pairs_of(path: Path, lengths: tuple[int, int]) -> Iterator[Pair]:
    kind = path.suffix.lower()
    if kind not in PAIR_SUFFIXES:
        raise TextError(f"{path} cannot be read as pairs; byrote reads {', '.join(PAIR_SUFFIXES)}.")
    if kind == ".npy" and path.stem.endswith("_prefix"):
        return _row_pairs(path)
    if kind in (".npy", ".bin"):
        return _stream_pairs(path, *lengths)
    if kind in (".txt", ".md"):
        return _marked(Pair(path.name, path.name, Split.TARGET, str(path), "", ""), read_plain_text(path))
    rows = ((line.number, line.fields) for line in read_json_lines(path)) if kind == ".jsonl" else _csv_rows(path)
    return (pair for number, fields in rows for pair in _of_row(fields, f"{path}:{number}", f"{path.name}#{number}"))


def _csv_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    rows = csv.DictReader(io.StringIO(read_plain_text(path), newline=""), strict=True)
    try:
        for fields in rows:
            if None in fields or None in fields.values():
                raise TextError(f"{path}:{rows.line_num} does not have one field per column; quote texts with commas.")
            # An empty field is an absent one.
            yield rows.line_num, {name: _csv_value(name, value) for name, value in fields.items() if value}
    except csv.Error as error:
        raise TextError(f"{path}:{rows.line_num} is not CSV: {error}.") from error


def _csv_value(name: str, value: str) -> Any:
    if name in ("prefix_ids", "suffix_ids"):
        return [_whole(part) for part in value.strip().strip("[]").replace(",", " ").split()]
    if name == "tags":
        return [tag.strip() for tag in value.split(";") if tag.strip()]
    return _whole(value) if name == "copies" else value


def _whole(word: str) -> int | str:
    """A whole number; anything else as it is, refused where a number is needed."""
    try:
        return int(word) if word.isdigit() else word
    except ValueError:  # digits of other kinds, as in m², or more of them than Python reads
        return word


def _of_row(fields: Mapping[str, Any], place: str, default_name: str) -> Iterator[Pair]:
    name = fields.get("id", default_name)
    if not isinstance(name, str | int) or name == "":
        raise TextError(f"{place}: the id is {name!r}; use a string or a whole number.")
    copies = fields.get("copies")
    if copies is not None and not (type(copies) is int and copies >= 0):
        raise TextError(f"{place}: copies is {copies!r}; write a whole number, 0 or more.")
    split, tags = fields.get("split"), fields.get("tags")
    if split is None:
        split = Split.CONTROL if copies == 0 else Split.TARGET
    if split not in tuple(Split):
        raise TextError(f"{place} has the split {split!r}; write target or control, or leave it out.")
    if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        raise TextError(f"{place}: tags is {tags!r}; write a list of words.")
    pair = Pair(
        name=str(name),
        document=str(fields.get("document", name)),
        split=Split(split),
        place=place,
        prefix="",
        suffix="",
        copies=copies,
        kind=None if fields.get("kind") is None else str(fields["kind"]),
        tags=tuple(dict.fromkeys(tags or ())),
    )
    ways = [names for names in (("prefix", "suffix"), ("prefix_ids", "suffix_ids"), ("text",)) if names[0] in fields]
    if len(ways) != 1:
        raise TextError(f"{place} needs prefix and suffix, or prefix_ids and suffix_ids, or a text with [[marks]].")
    if ways[0] == ("text",):
        yield from _marked(pair, _text(fields, "text", place))
        return
    read = _text if ways[0][0] == "prefix" else _token_ids
    prefix, suffix = (read(fields, field, place) for field in ways[0])
    yield replace(pair, prefix=prefix, suffix=suffix)


def _text(fields: Mapping[str, Any], name: str, place: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise TextError(f"{place}: {name} is missing, empty or not text; give every pair both sides.")
    return value


def _token_ids(fields: Mapping[str, Any], name: str, place: str) -> tuple[int, ...]:
    value = fields.get(name)
    if not isinstance(value, list) or not value or not all(type(token) is int and token >= 0 for token in value):
        raise TextError(f"{place}: {name} is not a list of token ids; write whole numbers, 0 or more.")
    return tuple(value)


def _marked(pair: Pair, text: str) -> Iterator[Pair]:
    """One pair for every mark; the marks themselves are not part of the text."""
    plain, spans, end = "", [], 0
    for mark in MARK.finditer(text):
        plain += text[end : mark.start()]
        spans.append((len(plain), len(plain) + len(mark.group(1))))
        plain += mark.group(1)
        end = mark.end()
    plain += text[end:]
    if not spans or any(start == stop for start, stop in spans) or "[[" in plain or "]]" in plain:
        raise TextError(f"{pair.place}: mark every suffix as [[suffix]], none empty, each mark closed and not nested.")
    for number, (start, stop) in enumerate(spans, start=1):
        name = pair.name if len(spans) == 1 else f"{pair.name}~{number}"
        before = plain[max(0, start - MARKED_PREFIX_CHARACTERS) : start]
        yield replace(pair, name=name, prefix=before, suffix=plain[start:stop], text=plain, start=start)


def _row_pairs(path: Path) -> Iterator[Pair]:
    """The pairs of two arrays, prefixes and suffixes, row by row."""
    name = path.stem.removesuffix("_prefix")
    paths = path, path.with_name(f"{name}_suffix{path.suffix}")
    prefixes, suffixes = (_read_array(one, dimensions=(2,)) for one in paths)
    if len(prefixes) != len(suffixes):
        raise TextError(f"{path} has {len(prefixes)} prefixes, but there are {len(suffixes)} suffixes beside it.")
    shared: dict[int, int] = {}
    for number, sides in enumerate(zip(prefixes, suffixes, strict=True)):
        prefix, suffix = (_id_tuple(ids, one, shared) for ids, one in zip(sides, paths, strict=True))
        own = f"{name}#{number}"
        yield Pair(own, own, Split.TARGET, f"{path}, row {number}", prefix, suffix)


def _stream_pairs(path: Path, prefix_tokens: int, suffix_tokens: int) -> Iterator[Pair]:
    """Windows of a stream, which is one document, or the first tokens of rows, which are documents of their own."""
    ids = _read_stream(path) if path.suffix.lower() == ".bin" else _read_array(path)
    is_stream, tokens = ids.ndim == 1, prefix_tokens + suffix_tokens
    if ids.shape[-1] < tokens:
        what = "tokens" if is_stream else "tokens a row"
        raise TextError(
            f"{path} has {ids.shape[-1]} {what}; prefix + suffix need {tokens}. "
            "Shorten --prefix-tokens or --suffix-tokens."
        )
    shared: dict[int, int] = {}
    for number in range(0, len(ids) - tokens + 1, tokens) if is_stream else range(len(ids)):
        window = _id_tuple(ids[number : number + tokens] if is_stream else ids[number, :tokens], path, shared)
        own, place = f"{path.name}#{number}", f"{path}, {'token' if is_stream else 'row'} {number}"
        document = path.name if is_stream else own
        yield Pair(own, document, Split.TARGET, place, window[:prefix_tokens], window[prefix_tokens:])


def _read_stream(path: Path) -> Ids:
    kind = STREAM_TYPES.get(Path(path.stem).suffix.lower())
    if kind is None:
        raise TextError(f"{path} does not say how wide its ids are; name it NAME.uint16.bin or NAME.uint32.bin.")
    try:
        require_regular(path)
        ids: Ids = np.memmap(path, dtype=kind, mode="r")
    except (OSError, ValueError) as error:
        raise TextError(f"{path} cannot be read as token ids: {error}.") from error
    return ids


def _read_array(path: Path, *, dimensions: tuple[int, ...] = (1, 2)) -> Ids:
    """An array of token ids of so many dimensions, mapped and not read into memory."""
    try:
        require_regular(path)
        ids: Ids = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # whatever numpy, and Python's own parser in it, make of a damaged header
        words = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise TextError(f"{path} cannot be read as a numpy array: {words.rstrip('.')}.") from error
    if ids.ndim not in dimensions or ids.dtype.kind not in "iu" or 0 in ids.shape:
        shape = "×".join(map(str, ids.shape))
        raise TextError(f"{path} is an array of {shape} {ids.dtype}; give whole numbers, [rows, tokens].")
    return ids


def _id_tuple(row: Ids, path: Path, shared: dict[int, int]) -> tuple[int, ...]:
    """The ids of a window. Equal numbers are one object: 8 bytes a token instead of 40."""
    ids: list[int] = row.tolist()
    if min(ids) < 0:
        raise TextError(f"{path} has the token id {min(ids)}; ids are 0 or more.")
    return tuple(shared.setdefault(one, one) for one in ids)


class PairTokenizer(Tokenizer, Protocol):
    """A model as pairs use it: tokens of texts, and texts of token ids."""

    @property
    def vocab_size(self) -> int: ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class PairWindows:
    """One window per pair, in order, and the texts they come from."""

    windows: list[Window]
    documents: list[Document]
    merged: int
    """Windows in which a token reaches over the boundary of prefix and suffix; it belongs to the suffix whole."""


def pair_windows(
    pairs: Sequence[Pair],
    tokenizer: PairTokenizer,
    *,
    bos_id: int | None,
    marked_prefix_tokens: int,
    marked_prefix_chars: int | None = None,
) -> PairWindows:
    """BOS stands before every prefix, token ids included, and is counted among the tokens of a marked prefix. With
    `marked_prefix_chars` in their place, answers are compared as text."""
    documents, merged = _Documents(), 0
    bos = () if bos_id is None else (bos_id,)

    def windows() -> Iterator[Window]:
        nonlocal merged
        cuts = _cut(pairs, tokenizer, marked_prefix_tokens)
        if marked_prefix_chars is not None:
            cuts = _cut_texts(pairs, tokenizer, marked_prefix_chars)
        for pair, (joined, text, start, end) in zip(pairs, cuts, strict=True):
            require_both_sides(joined, pair.place, bos_id=bos_id)
            merged += not joined.is_clean
            prefix_ids = joined.prefix_ids
            if pair.text is not None and marked_prefix_chars is None:
                prefix_ids = prefix_ids[max(0, len(prefix_ids) - marked_prefix_tokens + len(bos)) :]
            offset = documents.place(pair, text)
            yield Window(
                window_id=pair.name,
                document=pair.document,
                split=pair.split,
                char_start=offset + start,
                suffix_char_start=offset + start + joined.suffix_char_start,
                char_end=offset + end,
                prefix_ids=bos + prefix_ids,
                suffix_ids=joined.suffix_ids,
                suffix_text=None if marked_prefix_chars is None else str(pair.suffix),
                further={"copies": pair.copies, "kind": pair.kind, "tags": list(pair.tags)},
            )

    made = list(with_shared_ids(windows()))
    return PairWindows(made, documents.joined(), merged)


def longest_of(windows: Iterable[Window]) -> tuple[int, int]:
    """Tokens of the longest context and of the longest suffix, or further block."""
    lengths = [
        (len(window.context_ids), max(len(window.suffix_ids), *(len(block.token_ids) for block in window.blocks), 0))
        for window in windows
    ]
    return max(context for context, _ in lengths), max(suffix for _, suffix in lengths)


def _cut(
    pairs: Sequence[Pair], tokenizer: PairTokenizer, marked_prefix_tokens: int
) -> Iterator[tuple["JoinedPair", str, int, int]]:
    """Of each pair: its tokens, the text it comes from, and where in it the pair's own characters begin and end."""
    # Far more characters than so many tokens take; where the slice begins matters to its first tokens alone.
    most = CHARACTERS_PER_TOKEN * marked_prefix_tokens + CUT_MARGIN_CHARACTERS
    for first in range(0, len(pairs), SLICES_PER_BATCH):
        batch = pairs[first : first + SLICES_PER_BATCH]
        texts = []
        for pair in batch:
            if isinstance(pair.prefix, str) and isinstance(pair.suffix, str):
                texts.append((pair.prefix if pair.text is None else pair.prefix[-most:], pair.suffix))
        joined = zip(texts, join_pairs(texts, tokenizer) if texts else [], strict=True)
        for pair in batch:
            if isinstance(pair.suffix, str):
                (prefix, suffix), one = next(joined)
                text = prefix + suffix if pair.text is None else pair.text
                start = 0 if pair.text is None else pair.start - len(prefix)
                yield one, text, start, start + len(prefix) + len(suffix)
            else:
                one, text = _join_ids(pair, tokenizer)
                yield one, text, 0, len(text)


def _cut_texts(
    pairs: Sequence[Pair], tokenizer: PairTokenizer, marked_prefix_chars: int
) -> Iterator[tuple["JoinedPair", str, int, int]]:
    """The same of pairs whose answers are compared as text. Blanks at the boundary are tokenised with the suffix."""
    for first in range(0, len(pairs), SLICES_PER_BATCH):
        batch, texts = pairs[first : first + SLICES_PER_BATCH], []
        for pair in batch:
            if not isinstance(pair.prefix, str) or not isinstance(pair.suffix, str):
                raise TextError(
                    f"{pair.place} has token ids, and unit text compares characters; give prefix and suffix as texts, "
                    "or measure --unit tokens."
                )
            if not normalised(pair.suffix):
                raise TextError(f"{pair.place}: the suffix is blank; give it visible text.")
            start = 0 if pair.text is None else max(0, len(pair.prefix) - marked_prefix_chars)
            begin = start and first_word(pair.prefix, start, marked_prefix_chars)
            texts.append((pair.prefix[begin:], pair.suffix))
        bodies = [prefix.rstrip() or prefix for prefix, _ in texts]
        apart = [(body, (prefix + suffix)[len(body) :]) for body, (prefix, suffix) in zip(bodies, texts, strict=True)]
        for pair, (prefix, suffix), ids in zip(batch, texts, tokenised(apart, tokenizer), strict=True):
            start = 0 if pair.text is None else pair.start - len(prefix)
            text = prefix + suffix if pair.text is None else pair.text
            yield JoinedPair(*ids, len(prefix), is_clean=True), text, start, start + len(prefix) + len(suffix)


def _join_ids(pair: Pair, tokenizer: PairTokenizer) -> tuple["JoinedPair", str]:
    """A pair of token ids, and its text."""
    assert not isinstance(pair.prefix, str)
    assert not isinstance(pair.suffix, str)
    ids = pair.prefix + pair.suffix
    if max(ids) >= tokenizer.vocab_size:
        raise TextError(
            f"{pair.place} has the token id {max(ids)}, but the model has {tokenizer.vocab_size} tokens; "
            "give the ids of this model's tokenizer."
        )
    text, prefix = tokenizer.decode(ids), tokenizer.decode(pair.prefix)
    return JoinedPair(pair.prefix, pair.suffix, min(len(prefix), len(text)), is_clean=True), text


class JoinedPair(NamedTuple):
    """A pair as tokens; either side may have come out empty."""

    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    suffix_char_start: int
    """Where the first suffix token begins in prefix + suffix: before the boundary if it reaches over it."""
    is_clean: bool
    """Whether the prefix alone has these very prefix tokens; otherwise the tokenizer merged across the boundary."""


def join_pairs(pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> list[JoinedPair]:
    """Each pair tokenised as prefix + suffix and cut before the first token that holds a character of the suffix."""
    joined: list[JoinedPair] = []
    together = tokenizer.encode_batch([prefix + suffix for prefix, suffix in pairs])
    alone = tokenizer.encode_batch([prefix for prefix, _ in pairs])
    for (prefix, _), encoding, prefix_alone in zip(pairs, together, alone, strict=True):
        first = first_token_after(encoding, len(prefix))
        begins = encoding.spans[first][0] if first < len(encoding.ids) else len(prefix)
        # Spans may leave out the blank that a token begins with, so they do not show whether the boundary is clean.
        is_clean = encoding.ids[:first] == prefix_alone.ids
        joined.append(JoinedPair(tuple(encoding.ids[:first]), tuple(encoding.ids[first:]), begins, is_clean))
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


class _Documents:
    """The texts of documents, joined from those of their pairs; a marked text is there once for all its pairs."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[str]] = {}
        self._lengths: dict[str, int] = {}
        self._splits: dict[str, Split] = {}
        self._marked: dict[tuple[str, str], int] = {}

    def place(self, pair: Pair, text: str) -> int:
        """Where the text of a pair begins in its document."""
        name = pair.document
        if self._splits.setdefault(name, pair.split) is not pair.split:
            raise TextError(
                f"{pair.place} is a {pair.split}, but {name!r} is not; all pairs of a document belong to one split."
            )
        if pair.text is not None and (name, text) in self._marked:
            return self._marked[name, text]
        start = self._lengths[name] + len(BETWEEN_PAIRS) if name in self._lengths else 0
        self._pieces.setdefault(name, []).append(text)
        self._lengths[name] = start + len(text)
        if pair.text is not None:
            self._marked[name, text] = start
        return start

    def joined(self) -> list[Document]:
        """Each text is joined once: a stream of token ids is one document of a million pieces."""
        texts = ((name, BETWEEN_PAIRS.join(pieces)) for name, pieces in self._pieces.items())
        return [Document.from_text(name, text, split=self._splits[name]) for name, text in texts]


def with_shared_ids(windows: Iterable[Window]) -> Iterator[Window]:
    """The same windows, equal token ids being one object: to be held, they take 8 bytes a token instead of 40."""
    shared: dict[int, int] = {}
    for window in windows:
        prefix_ids, suffix_ids = (
            tuple(shared.setdefault(one, one) for one in ids) for ids in (window.prefix_ids, window.suffix_ids)
        )
        yield replace(window, prefix_ids=prefix_ids, suffix_ids=suffix_ids)
