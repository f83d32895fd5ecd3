"""Spans worth protecting inside documents: found by regular expressions, or named by the user in a JSONL file.

The expressions look for the common shapes of identifiers, not for every one: what they miss a user can name. A span
becomes a window whose suffix is the tokens that cover it and whose prefix is what stands before it.
"""

import re
import reprlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from byrote.corpus.pairs import first_token_after
from byrote.corpus.read import Document, read_json_lines
from byrote.corpus.windows import Tokenizer
from byrote.errors import TextError
from byrote.types import Encoding, Window


class SpanKind(StrEnum):
    """Common identifiers, in order of precedence: where two overlap, the earlier one stands."""

    EMAIL = "email"
    DATE = "date"
    PHONE = "phone"
    NUMBER = "number"
    NAME = "name"


_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
PATTERNS: dict[SpanKind, re.Pattern[str]] = {
    SpanKind.EMAIL: re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    SpanKind.DATE: re.compile(
        rf"\b\d{{1,2}}(?:st|nd|rd|th)? {_MONTH},? \d{{4}}\b|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b"
        r"|\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
    ),
    # Groups of two to four digits joined by single hyphens, dots or blanks, as telephones are written.
    SpanKind.PHONE: re.compile(
        r"(?<![\w-])(?:\+\d{1,3}[ .-]?)?(?:\(\d{2,4}\)[ .-]?\d{3,4}[ .-]\d{3,4}|\d{2,4}[.-]\d{3,4}[.-]\d{3,4})(?![\w-])"
        r"|(?<!\w)\+\d{1,3}(?: \d{2,4}){2,4}(?!\w)"
    ),
    # Account, card, record and passport numbers: four digits or more, in groups or in one piece, letters may lead.
    SpanKind.NUMBER: re.compile(r"\b[A-Z]{0,3}\d{2,}(?:[ -]\d{3,})+\b|\b[A-Z]{0,3}\d{4,}\b"),
    SpanKind.NAME: re.compile(
        r"\b[A-Z][a-z]+(?:'[A-Z][a-z]+)?(?: [A-Z]\.)*(?: (?:(?:de|van|von|der|la) )*[A-Z][a-z]+)+\b"
    ),
}


@dataclass(frozen=True, slots=True)
class TextSpan:
    """`text[start:end]` of the document called `document`, and its kind."""

    document: str
    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class SpanWindow:
    """A span as a window: the suffix is the tokens that cover it."""

    span: TextSpan
    window: Window


@dataclass(frozen=True, slots=True)
class SpanWindows:
    """Windows of spans in document order; a span with nothing before it has no window and is counted."""

    windows: list[SpanWindow]
    without_prefix: int
    over_boundary: int
    """Windows whose suffix holds characters outside the span, because a token reaches over one of its ends."""


def find_spans(document: Document, kinds: Iterable[SpanKind] = tuple(SpanKind)) -> list[TextSpan]:
    """Identifiers of these kinds in order of appearance. No two overlap: an earlier kind of `SpanKind` wins."""
    found: list[TextSpan] = []
    is_taken = bytearray(len(document.text))
    for kind in sorted(set(kinds), key=list(SpanKind).index):
        for match in PATTERNS[kind].finditer(document.text):
            start, end = match.span()
            if not any(is_taken[start:end]):
                is_taken[start:end] = b"\x01" * (end - start)
                found.append(TextSpan(document.name, start, end, str(kind)))
    return sorted(found, key=lambda span: span.start)


def read_spans(path: Path, documents: Sequence[Document]) -> list[TextSpan]:
    """The spans of a JSONL file, one object a line, in file order.

    A line has `document` and either `start` and `end` (characters) or `text` (every place where it stands); `kind` is
    free and defaults to "span". `document` may be left out when there is only one.
    """
    by_name = {document.name: document for document in documents}
    spans: list[TextSpan] = []
    for line in read_json_lines(path):
        spans += _spans_of_line(line.fields, line.place, by_name)
    if not spans:
        raise TextError(f"{path} names no span; write one JSON object a line with document, start and end.")
    return spans


def _spans_of_line(fields: Mapping[str, Any], where: str, documents: Mapping[str, Document]) -> list[TextSpan]:
    name = fields.get("document", next(iter(documents)) if len(documents) == 1 else None)
    if not isinstance(name, str) or name not in documents:
        shown = reprlib.repr(name)
        raise TextError(f"{where} names the document {shown}, which is not among the texts; use one of their names.")
    document, kind = documents[name], str(fields.get("kind", "span"))
    if "text" in fields:
        words = fields["text"]
        found = re.finditer(re.escape(words), document.text) if words and isinstance(words, str) else ()
        spans = [TextSpan(document.name, *match.span(), kind) for match in found]
        if not spans:
            raise TextError(f"{where}: {reprlib.repr(words)} does not occur in {document.name}.")
        return spans
    start, end = (value if type(value) is int else None for value in (fields.get("start"), fields.get("end")))
    if start is None or end is None or not (0 <= start < end <= len(document.text)):
        raise TextError(
            f"{where}: start {start} and end {end} are not a span of {document.name}, which has "
            f"{len(document.text)} characters."
        )
    return [TextSpan(document.name, start, end, kind)]


def cut_spans(
    documents: Sequence[Document],
    spans: Iterable[TextSpan],
    tokenizer: Tokenizer,
    *,
    prefix_tokens: int,
    bos_id: int | None = None,
) -> SpanWindows:
    """One window per span: at most `prefix_tokens` tokens (BOS counted) before the tokens that cover it.

    A token that reaches over an end of the span belongs to the suffix whole; the window's positions say so. Near the
    beginning of a document the prefix is shorter. Window ids are `<document>@<start>-<end>`.
    """
    by_document: dict[str, list[TextSpan]] = {}
    for span in spans:
        by_document.setdefault(span.document, []).append(span)
    cut: list[SpanWindow] = []
    without_prefix = 0
    for document in documents:
        if document.name not in by_document:
            continue
        (encoding,) = tokenizer.encode_batch([document.text])
        for span in dict.fromkeys(by_document[document.name]):
            window = _cut(document, span, encoding, prefix_tokens=prefix_tokens, bos_id=bos_id)
            if window is None:
                without_prefix += 1
            else:
                cut.append(SpanWindow(span, window))
    over_boundary = sum(
        entry.window.suffix_char_start < entry.span.start or entry.window.char_end > entry.span.end for entry in cut
    )
    return SpanWindows(cut, without_prefix, over_boundary)


def _cut(
    document: Document, span: TextSpan, encoding: Encoding, *, prefix_tokens: int, bos_id: int | None
) -> Window | None:
    first = first_token_after(encoding, span.start)
    last = bisect_left(encoding.spans, span.end, key=lambda token: token[0])
    bos = () if bos_id is None else (bos_id,)
    prefix_start = max(0, first - prefix_tokens + len(bos))
    prefix = bos + tuple(encoding.ids[prefix_start:first])
    if first == last or not prefix:
        return None
    return Window(
        window_id=f"{document.name}@{span.start}-{span.end}",
        document=document.name,
        split=document.split,
        char_start=encoding.spans[prefix_start][0],
        suffix_char_start=encoding.spans[first][0],
        char_end=encoding.spans[last - 1][1],
        prefix_ids=prefix,
        suffix_ids=tuple(encoding.ids[first:last]),
    )


MASK = "•"
_DIGIT = re.compile(r"\d")
_INNER = re.compile(r"(?<=[^\W\d_])[^\W\d_]")
# A window may begin or end inside an address, where the whole pattern no longer fits.
_PIECE_OF_ADDRESS = re.compile(r"[\w.+-]*@[\w.-]*|\w+(?:\.\w+)+\S*$")


def mask_whole(text: str) -> str:
    """First letters, punctuation and lengths stay: `F•••••• H•••`, `•••-•••-••••`."""
    return _INNER.sub(MASK, _DIGIT.sub(MASK, text))


def mask_identifiers(text: str, *, before: str = "") -> str:
    """Every digit, and what the patterns for identifiers find in `before` + `text`; other words stay readable."""
    whole = before + text
    masked = list(whole)
    patterns = [PATTERNS[kind] for kind in SpanKind]
    for pattern in (*patterns, _PIECE_OF_ADDRESS):
        for match in pattern.finditer(whole):
            masked[match.start() : match.end()] = mask_whole(match.group())
    return _DIGIT.sub(MASK, "".join(masked[len(before) :]))


def mask_place(place: str) -> str:
    """The name of a document or record, which may itself name a person; numbers distinguish documents."""
    for kind in (SpanKind.EMAIL, SpanKind.PHONE, SpanKind.NAME):
        place = PATTERNS[kind].sub(lambda match: mask_whole(match.group()), place)
    return place
