"""llama-server's own tokenizer, for whoever has no folder with one: texts to tokens and back by its /tokenize and
/detokenize. Other servers do not tell which characters a token stands for."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rote.errors import ModelError
from rote.models.chat_reply import Unreadable
from rote.models.endpoint_client import Read, Server
from rote.models.endpoint_dialects import field, items, token_id
from rote.types import BosRule, Encoding

_HASHED_TEXT = "The quick brown fox — naïve façade, 12,345.67 €\n\nend"


class ServerTokenizer:
    """Tokens and character spans as the server gives them; every text is one request."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self.name = server, name

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        return list(self._server.pool.map(self._encoding, texts))

    def decode(self, ids: Sequence[int]) -> str:
        return self._server.post("/detokenize", {"tokens": list(ids)}, lambda answer: str(field(answer, "content")))

    def bos_id(self, rule: BosRule) -> int | None:
        """The token that the server itself puts before a text, for `auto` and `always`."""
        if rule == "never":
            return None
        plain, begun = (self._ids("a", is_begun=is_begun) for is_begun in (False, True))
        added = begun[0] if len(begun) > len(plain) else None
        if added is None and rule == "always":
            raise ModelError(f"{self.name} puts no beginning-of-text token before a text. Use --bos never.")
        return added

    @property
    def eos_ids(self) -> frozenset[int]:
        """The token that the server says ends a text, where it says so."""
        named = self._server.get("/props", lambda props: props.get("eos_token") if isinstance(props, dict) else None)
        ids = self._ids(named, is_special=True) if isinstance(named, str) and named else []
        return frozenset(ids) if len(ids) == 1 else frozenset()

    @property
    def hash(self) -> str:
        """There is no file to hash: what becomes of a fixed text."""
        return hashlib.sha256(repr(self._ids(_HASHED_TEXT)).encode()).hexdigest()

    def _ids(self, text: str, *, is_begun: bool = False, is_special: bool = False) -> list[int]:
        asked = {"content": text, "add_special": is_begun, "parse_special": is_special}
        return self._tokenized(asked, token_id)

    def _encoding(self, text: str) -> Encoding:
        asked = {"content": text, "add_special": False, "parse_special": False, "with_pieces": True}
        tokens = self._tokenized(asked, lambda token: (token_id(field(token, "id")), _bytes(field(token, "piece"))))
        return Encoding([own for own, _ in tokens], spans_of(text, [piece for _, piece in tokens], name=self.name))

    def _tokenized(self, body: dict[str, Any], read: Callable[[Any], Read]) -> list[Read]:
        """What `read` makes of each token."""
        return self._server.post(
            "/tokenize", body, lambda answer: [read(token) for token in items(field(answer, "tokens"), "tokens")]
        )


def spans_of(text: str, pieces: Sequence[bytes], *, name: str) -> list[tuple[int, int]]:
    """The characters that each piece stands for; a blank that the tokenizer put in front stands for none."""
    said, written = b"".join(pieces), text.encode()
    added = len(said) - len(written)
    if said != b" " * added + written or added > 1:
        raise ModelError(
            f"the pieces that {name} makes of {text[:40]!r} are not that text; give --tokenizer FOLDER instead."
        )
    characters = np.repeat(np.arange(len(text)), [len(character.encode()) for character in text])
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64) - added
    starts = np.maximum(0, ends - [len(piece) for piece in pieces])
    return [
        (int(characters[start]), int(characters[end - 1]) + 1) if end > start else (0, 0)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _bytes(piece: Any) -> bytes:
    """A piece is a text, or bytes where these are no whole characters."""
    if isinstance(piece, str):
        return piece.encode()
    values = items(piece, "bytes")
    if not all(isinstance(value, int) and 0 <= value < 256 for value in values):
        raise Unreadable("a piece is neither text nor bytes")
    return bytes(values)
