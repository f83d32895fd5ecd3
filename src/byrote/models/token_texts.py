"""The text of every token of a model, from its tokenizer's vocabulary.

    byte-level BPE             each character of a piece stands for a byte, as in GPT-2
    SentencePiece, Metaspace   '▁' is a blank, and <0x41> a byte where the tokenizer falls back to bytes
    other                      the decoded text of each token alone

Special tokens, and those that end a text, have none. Some texts are encoded, and the texts of their tokens, one after
the other, must be what the tokenizer decodes.
"""

import json
import re
from typing import TYPE_CHECKING

from byrote.distance.text import TokenTexts
from byrote.errors import ModelError
from byrote.models.tokenizer import Tokenizing
from byrote.normal_form import normalised

if TYPE_CHECKING:
    from byrote.models.base import LanguageModel

CHECKED_TEXTS = (
    "The quick brown fox, they said, doesn't jump over 12 dogs.\n\nIt \"sleeps\" -- or so I've heard; who can say?",
    "“Où est l’été?” – naïve Ärger… 漢字 и текст, ελληνικά 😀.\n\tEnd",
)
_BYTE = re.compile("<0x([0-9A-F]{2})>")


def token_texts_of(model: "LanguageModel") -> TokenTexts:
    """On the model's device."""
    tokenizing = model.tokenizing
    if tokenizing is not None:
        pieces = _pieces_of(tokenizing, model.vocab_size)
    else:
        pieces = [model.decode([token]).encode() for token in range(model.vocab_size)]
    for token in model.eos_ids:
        pieces[token] = None  # also where it is not marked as special
    texts = TokenTexts.of(pieces)
    for text, encoding in zip(CHECKED_TEXTS, model.encode_batch(CHECKED_TEXTS), strict=True):
        written = [token for token in encoding.ids if pieces[token] is not None]  # not the unknown token
        decoded, joined = normalised(model.decode(written)), normalised(texts.text(written))
        if decoded != joined:
            raise ModelError(
                f"the tokenizer of {model.name} decodes {text[:20]!r} as {decoded[:40]!r}, but the texts of its tokens "
                f"are {joined[:40]!r}: characters cannot be followed token by token; measure --unit tokens."
            )
    return texts.on(model.device)


def _pieces_of(tokenizing: Tokenizing, vocab_size: int) -> list[bytes | None]:
    """UTF-8 of the tokens 0 … vocab_size − 1; None for special ones and for rows that no token has."""
    backend = tokenizing.tokenizer.backend_tokenizer
    decoder = json.loads(backend.to_str())["decoder"] or {}
    kinds = {str(part["type"]) for part in decoder.get("decoders", [decoder]) if part}
    added = {token: entry.content for token, entry in tokenizing.tokenizer.added_tokens_decoder.items()}
    byte_of = _bytes_of_characters()
    pieces: list[bytes | None] = [None] * vocab_size
    for token in range(vocab_size):
        piece = backend.id_to_token(token)
        if piece is None or token in tokenizing.special_ids:
            continue
        if token in added:
            pieces[token] = added[token].encode()
        elif "ByteLevel" in kinds:
            pieces[token] = bytes(byte_of[one] for one in piece)
        elif "ByteFallback" in kinds and (found := _BYTE.fullmatch(piece)):
            pieces[token] = bytes([int(found[1], 16)])
        elif kinds & {"Metaspace", "ByteFallback", "Replace"}:
            pieces[token] = piece.replace("▁", " ").encode()
        else:
            pieces[token] = tokenizing.decode([token]).encode()
    return pieces


def _bytes_of_characters() -> dict[str, int]:
    """GPT-2 writes a byte as the Latin-1 character of its number, or one from 256 on where that cannot be seen."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(others)}
