"""Text files: UTF-8, kept exactly as written; only a byte-order mark goes."""

from pathlib import Path

from rote.errors import TextError
from rote.files import read_bytes

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_plain_text(path: Path) -> str:
    try:
        content = read_bytes(path)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error
    mark = len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0
    try:
        text = content[mark:].decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start + mark
        raise TextError(
            f"{path} is not UTF-8 text: byte 0x{content[offset]:02x} at offset {offset}; convert it to UTF-8 first."
        ) from error
    zero = content.find(b"\0")
    if zero >= 0:
        raise TextError(f"{path} is a binary file: zero byte at offset {zero}; give a text file.")
    return text
