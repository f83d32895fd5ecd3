"""Token ids that were made elsewhere, as arrays: mapped, and cut without any text.

- `NAME.npy` of two dimensions: one window a row, its first tokens; of one dimension: a stream;
- `NAME.uint16.bin`, `NAME.uint32.bin`: a stream of little-endian ids without a header, as training data are kept.

A stream is cut into windows that stand behind each other; what is left at its end is too short for one.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rote.errors import TextError
from rote.files import require_regular

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
