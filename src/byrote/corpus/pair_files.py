"""Token ids that were made elsewhere, as arrays: mapped, and cut without any text.

- `NAME.npy` of two dimensions: one window a row, its first tokens; of one dimension: a stream;
- `NAME.uint16.bin`, `NAME.uint32.bin`: a stream of little-endian ids without a header, as training data are kept.

A stream is cut into windows that stand behind each other; what is left at its end is too short for one.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byrote.corpus.read import read_json_lines, read_plain_text
from byrote.errors import TextError
from byrote.files import require_regular
from byrote.types import Split

Ids = np.ndarray[Any, np.dtype[np.integer[Any]]]
STREAM_TYPES = {".uint16": "<u2", ".uint32": "<u4"}


class TokenRow(NamedTuple):
    """The tokens of one window. `number` is its row, or the place of its first token in a stream."""

    number: int
    ids: tuple[int, ...]
    is_of_stream: bool


def token_rows(path: Path, tokens: int) -> Iterator[TokenRow]:
    """Windows of so many tokens each."""
    array = read_stream(path) if path.suffix.lower() == ".bin" else read_array(path)
    is_stream = array.ndim == 1
    if array.shape[-1] < tokens:
        what = "tokens" if is_stream else "tokens a row"
        raise TextError(
            f"{path} has {array.shape[-1]} {what}; prefix + suffix need {tokens}. "
            "Shorten --prefix-tokens or --suffix-tokens."
        )
    shared = SharedIds()
    starts = range(0, len(array) - tokens + 1, tokens) if is_stream else range(len(array))
    for start in starts:
        row = array[start : start + tokens] if is_stream else array[start, :tokens]
        yield TokenRow(start, shared(_ids(row, path)), is_stream)


def read_stream(path: Path) -> Ids:
    kind = STREAM_TYPES.get(Path(path.stem).suffix.lower())
    if kind is None:
        raise TextError(f"{path} does not say how wide its ids are; name it NAME.uint16.bin or NAME.uint32.bin.")
    try:
        require_regular(path)
        ids: Ids = np.memmap(path, dtype=kind, mode="r")
    except (OSError, ValueError) as error:
        raise TextError(f"{path} cannot be read as token ids: {error}.") from error
    return ids


def read_array(path: Path) -> Ids:
    """An array of token ids of one or two dimensions, mapped and not read into memory."""
    try:
        require_regular(path)
        array: Ids = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # whatever numpy, and Python's own parser in it, make of a damaged header
        words = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise TextError(f"{path} cannot be read as a numpy array: {words.rstrip('.')}.") from error
    if array.ndim not in (1, 2) or array.dtype.kind not in "iu" or 0 in array.shape:
        shape = "×".join(map(str, array.shape))
        raise TextError(f"{path} is an array of {shape} {array.dtype}; give whole numbers, [rows, tokens].")
    return array


class SharedIds:
    """Tuples of token ids in which equal numbers are one object: 8 bytes a token instead of 40."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def __call__(self, ids: Iterable[int]) -> tuple[int, ...]:
        shared = self._known.setdefault
        return tuple(shared(one, one) for one in ids)


def _ids(row: Ids, path: Path) -> list[int]:
    ids: list[int] = row.tolist()
    if min(ids) < 0:
        raise TextError(f"{path} has the token id {min(ids)}; ids are 0 or more.")
    return ids


PAIR_SUFFIXES = (".jsonl", ".csv", ".txt", ".md", ".npy", ".bin")
MARKED_PREFIX_CHARACTERS = 1 << 16
"""A mark in a book needs no more of what stands before it."""
MARK = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pair:
    """A prefix and a suffix, both texts or both token ids. `place` says where it was read, for sentences about it."""

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
        found = False
        for pair in _pairs_of(path.expanduser(), (prefix_tokens, suffix_tokens)):
            if pair.name in pairs:
                raise TextError(f"{pair.place} uses the id {pair.name!r} a second time; give every pair its own.")
            pairs[pair.name] = pair
            found = True
        if not found:
            raise TextError(f"{path} holds no pair; give prefixes and suffixes, or a text with [[suffix]] marks.")
    return list(pairs.values())


def _pairs_of(path: Path, lengths: tuple[int, int]) -> Iterator[Pair]:
    kind = path.suffix.lower()
    if kind not in PAIR_SUFFIXES:
        raise TextError(f"{path} cannot be read as pairs; byrote reads {', '.join(PAIR_SUFFIXES)}.")
    if kind == ".npy" and path.stem.endswith("_prefix"):
        return _array_pairs(path)
    if kind in (".npy", ".bin"):
        return _cut_pairs(path, *lengths)
    if kind in (".txt", ".md"):
        return _marked(Pair(path.name, path.name, Split.TARGET, str(path), "", ""), read_plain_text(path))
    rows = _json_rows(path) if kind == ".jsonl" else _csv_rows(path)
    return (pair for number, fields in rows for pair in _of_row(fields, f"{path}:{number}", f"{path.name}#{number}"))


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    return ((number, fields) for number, _, fields in read_json_lines(path))


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
        parts = value.strip().strip("[]").replace(",", " ").split()
        return [_whole(part) for part in parts]
    if name == "tags":
        return [tag.strip() for tag in value.split(";") if tag.strip()]
    return _whole(value) if name == "copies" else value


def _whole(word: str) -> int | str:
    """A whole number; anything else as it is, to be refused by whoever wants a number."""
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
    pair = Pair(
        name=str(name),
        document=str(fields.get("document", name)),
        split=_split(fields.get("split"), copies, place),
        place=place,
        prefix="",
        suffix="",
        copies=copies,
        kind=None if fields.get("kind") is None else str(fields["kind"]),
        tags=_tags(fields.get("tags"), place),
    )
    ways = [names for names in (("prefix", "suffix"), ("prefix_ids", "suffix_ids"), ("text",)) if names[0] in fields]
    if len(ways) != 1:
        raise TextError(f"{place} needs prefix and suffix, or prefix_ids and suffix_ids, or a text with [[marks]].")
    if ways[0] == ("text",):
        yield from _marked(pair, _text(fields, "text", place))
        return
    read = _text if ways[0][0] == "prefix" else _ids_of_pair_files
    prefix, suffix = (read(fields, field, place) for field in ways[0])
    yield replace(pair, prefix=prefix, suffix=suffix)


def _split(split: Any, copies: int | None, place: str) -> Split:
    if split is None:
        return Split.CONTROL if copies == 0 else Split.TARGET
    if split not in tuple(Split):
        raise TextError(f"{place} has the split {split!r}; write target or control, or leave it out.")
    return Split(split)


def _tags(tags: Any, place: str) -> tuple[str, ...]:
    if tags is None:
        return ()
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise TextError(f"{place}: tags is {tags!r}; write a list of words.")
    return tuple(dict.fromkeys(tags))


def _text(fields: Mapping[str, Any], name: str, place: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise TextError(f"{place}: {name} is missing, empty or no text; give every pair both sides.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TextError(f"{place}: {name} has half of a surrogate pair at character {error.start}; fix it.") from error
    return value


def _ids_of_pair_files(fields: Mapping[str, Any], name: str, place: str) -> tuple[int, ...]:
    value = fields.get(name)
    if not isinstance(value, list) or not value or not all(type(token) is int and token >= 0 for token in value):
        raise TextError(f"{place}: {name} is no list of token ids; write whole numbers, 0 or more.")
    return tuple(value)


def _marked(pair: Pair, text: str) -> Iterator[Pair]:
    """One pair for every mark; the marks themselves are no part of the text."""
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


def _array_pairs(path: Path) -> Iterator[Pair]:
    name = path.stem.removesuffix("_prefix")
    prefixes, suffixes = read_ids(path), read_ids(path.with_name(f"{name}_suffix{path.suffix}"))
    if len(prefixes) != len(suffixes):
        raise TextError(f"{path} has {len(prefixes)} prefixes, but there are {len(suffixes)} suffixes beside it.")
    shared = SharedIds()
    for number, (prefix, suffix) in enumerate(zip(prefixes, suffixes, strict=True)):
        own, place = f"{name}#{number}", f"{path}, row {number}"
        yield Pair(own, own, Split.TARGET, place, shared(prefix.tolist()), shared(suffix.tolist()))


def _cut_pairs(path: Path, prefix_tokens: int, suffix_tokens: int) -> Iterator[Pair]:
    """Rows are texts of their own; the windows of a stream are one."""
    for number, ids, is_of_stream in token_rows(path, prefix_tokens + suffix_tokens):
        own, place = f"{path.name}#{number}", f"{path}, {'token' if is_of_stream else 'row'} {number}"
        document = path.name if is_of_stream else own
        yield Pair(own, document, Split.TARGET, place, ids[:prefix_tokens], ids[prefix_tokens:])


def read_ids(path: Path) -> Ids:
    """A two-dimensional array of token ids, mapped and not read into memory."""
    array = read_array(path)
    if array.ndim != 2:
        raise TextError(f"{path} is an array of {len(array)} {array.dtype}; give whole numbers, [rows, tokens].")
    return array
