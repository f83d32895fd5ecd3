"""Text files: UTF-8, kept exactly as written; only a byte-order mark goes."""

from collections.abc import Iterator
from pathlib import Path

from rote.errors import TextError
from rote.files import open_regular, read_bytes

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_plain_text(path: str | Path) -> str:
    try:
        content = read_bytes(path)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error
    mark = _mark(content)
    return _decoded(content[mark:], path, offset=mark)


def read_plain_lines(path: Path) -> Iterator[str]:
    """The lines of a file without their ends, one at a time; only U+000A ends one."""
    offset = 0
    try:
        with open_regular(path) as file:
            for line in file:
                mark = _mark(line) if offset == 0 else 0
                yield _decoded(line.removesuffix(b"\n")[mark:], path, offset=offset + mark)
                offset += len(line)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error


def _mark(content: bytes) -> int:
    return len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0


def _decoded(content: bytes, path: str | Path, *, offset: int) -> str:
    """The text of bytes that begin at `offset` of the file."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(
            f"{path} is not UTF-8 text: byte 0x{content[error.start]:02x} at offset {offset + error.start}; "
            "convert it to UTF-8 first."
        ) from error
    zero = content.find(b"\0")
    if zero >= 0:
        raise TextError(f"{path} is a binary file: zero byte at offset {offset + zero}; give a text file.")
    return text
