"""Spans: common identifiers found, none overlapping, cut into windows whose tokens cover them."""

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.corpus.read import Document
from byrote.corpus.spans import SpanKind, TextSpan, cut_spans, find_spans, read_spans
from byrote.errors import TextError
from byrote.lab.texts import write_records
from byrote.types import Split
from tests.corpus.toy_tokenizers import ByteTokenizer, WordTokenizer


def document(text: str, name: str = "letter.txt") -> Document:
    return Document.from_text(name, text, split=Split.TARGET)


def found(text: str, kind: SpanKind) -> list[str]:
    return [text[span.start : span.end] for span in find_spans(document(text)) if span.kind == kind]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (SpanKind.EMAIL, "write to ada.b+c@mail.example.org, please", ["ada.b+c@mail.example.org"]),
        (SpanKind.EMAIL, "an @ alone, or a@b", []),
        (SpanKind.PHONE, "Telephone 959-481-5012.", ["959-481-5012"]),
        (SpanKind.PHONE, "call (020) 7946-0958 or +44 20 7946 0958", ["(020) 7946-0958", "+44 20 7946 0958"]),
        (SpanKind.PHONE, "pages 12-14 and 3-5", []),
        (
            SpanKind.DATE,
            "born on 17 October 1943, or on 1943-10-17 or 17/10/1943",
            ["17 October 1943", "1943-10-17", "17/10/1943"],
        ),
        (SpanKind.DATE, "on March 3rd, 1999", ["March 3rd, 1999"]),
        (SpanKind.NUMBER, "Account number 3218 1960 0133 or RX12 3456 7890", ["3218 1960 0133", "RX12 3456 7890"]),
        (SpanKind.NUMBER, "room 12, three of 7", []),
        (SpanKind.NAME, "kin: Hamid Oakhurst and Umar D. Abernathy", ["Hamid Oakhurst", "Umar D. Abernathy"]),
        (SpanKind.NAME, "then Ludwig van der Rohe left", ["Ludwig van der Rohe"]),
        (SpanKind.NAME, "nobody here", []),
    ],
)
def test_common_identifiers_are_found(kind: SpanKind, text: str, expected: list[str]) -> None:
    assert found(text, kind) == expected


@given(st.integers(0, 10_000))
def test_every_identifier_of_an_invented_record_is_found(seed: int) -> None:
    (record,) = write_records(seed, 1)
    patterns = {
        SpanKind.PHONE: r"0\d\d-555-01\d\d",
        SpanKind.EMAIL: r"[a-z]+\.[a-z]+\d\d@[a-z]+\.example",
        SpanKind.NUMBER: r"RX\d\d \d{4} \d{4}",
        SpanKind.DATE: r"\d{1,2} [A-Z][a-z]+ (19|20)\d\d",
    }
    spans = {(span.start, span.end, span.kind) for span in find_spans(document(record))}
    for kind, pattern in patterns.items():
        expected = {(*match.span(), kind) for match in re.finditer(pattern, record)}
        assert expected
        assert expected <= spans


@given(st.text(alphabet="Ab1 -@.", max_size=60))
def test_spans_never_overlap_and_come_in_order(text: str) -> None:
    spans = find_spans(document(text))
    assert all(left.end <= right.start for left, right in itertools.pairwise(spans))
    assert all(0 <= span.start < span.end <= len(text) for span in spans)


def test_only_the_kinds_asked_for_are_found() -> None:
    spans = find_spans(document("Ada Byron, 959-481-5012"), [SpanKind.PHONE])
    assert [span.kind for span in spans] == ["phone"]


@given(st.text(alphabet="abé1 ", min_size=1, max_size=40), st.data())
def test_suffix_tokens_cover_the_span_and_the_prefix_ends_where_they_begin(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    prefix_tokens = data.draw(st.integers(1, 12))
    cut = cut_spans(
        [document(text)], [TextSpan("letter.txt", start, end, "span")], ByteTokenizer(), prefix_tokens=prefix_tokens
    )
    if start == 0:
        assert cut.without_prefix == 1
        return
    (window,) = [entry.window for entry in cut.windows]
    assert cut.over_boundary == 0
    assert bytes(window.suffix_ids).decode() == text[start:end] == text[window.suffix_char_start : window.char_end]
    assert len(window.prefix_ids) == min(prefix_tokens, len(text[:start].encode()))
    assert text[:start].encode().endswith(bytes(window.prefix_ids))


def test_a_token_that_reaches_over_the_span_belongs_to_the_suffix_whole() -> None:
    spans = [TextSpan("letter.txt", 5, 7, "span")]
    cut = cut_spans([document("one twothree four")], spans, WordTokenizer(), prefix_tokens=3)
    (entry,) = cut.windows
    assert cut.over_boundary == 1
    assert (entry.window.suffix_char_start, entry.window.char_end) == (3, 12)
    assert len(entry.window.suffix_ids) == 1


def test_bos_counts_inside_the_prefix_and_serves_a_span_at_the_very_beginning() -> None:
    spans = [TextSpan("letter.txt", 0, 2, "span"), TextSpan("letter.txt", 4, 6, "span")]
    cut = cut_spans([document("abcdef")], spans, ByteTokenizer(), prefix_tokens=3, bos_id=0)
    assert [len(entry.window.prefix_ids) for entry in cut.windows] == [1, 3]
    assert all(entry.window.prefix_ids[0] == 0 for entry in cut.windows)


def test_user_spans_are_read_by_position_and_by_text(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    rows = [
        {"document": "letter.txt", "start": 4, "end": 9, "kind": "secret"},
        {"text": "the", "kind": "word"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    spans = read_spans(path, [document("the plums and the bees")])
    assert [(span.start, span.end, span.kind) for span in spans] == [(4, 9, "secret"), (0, 3, "word"), (14, 17, "word")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "not a JSON object"),
        ('{"document": "other.txt", "start": 0, "end": 1}', "not among the texts"),
        ('{"start": 3, "end": 3}', "not a span of letter.txt"),
        ('{"start": 0, "end": 99}', "not a span of letter.txt"),
        ('{"start": true, "end": 2}', "not a span of letter.txt"),
        ('{"start": 0, "end": 1.0}', "not a span of letter.txt"),
        ('{"document": ["letter.txt"], "text": "a"}', "not among the texts"),
        ('{"text": "plum"}', "does not occur in"),
        ('{"text": ""}', "does not occur in"),
        ('{"text": 3}', "does not occur in"),
        ("", "names no span"),
    ],
)
def test_bad_span_files_get_one_sentence(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(TextError, match=words):
        read_spans(path, [document("abc")])


def test_a_span_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="cannot be read"):
        read_spans(tmp_path / "none.jsonl", [document("abc")])
