"""Texts, records and spans that no reader should trip over, each beside what an independent reading makes of it."""

import contextlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from byrote.corpus.read import Document, read_corpus, read_json_lines
from byrote.corpus.spans import read_spans
from byrote.types import Split

ODD = [
    "", " ", "\0", "\x1b[31mred", "\u202egnp.txt", "\ud800", "\ufeff", "\u2028", "a\r\nb", "é", "𝔘", "[bold]", "=1+1",
    "🎈" * 50, "x" * 5000, "\n\n", "\t", "%s{0}", "\\u0000", "NaN", "-0", "1e999", "\x9b2J", "\u0301" * 40,
]  # fmt: skip
NUMBERS: list[Any] = [0, -1, 2**31, 2**63, 2**64, 10**30, -(2**63), 1.5, 1e308, float("nan"), float("inf"), True, None]


def odd_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(6 if depth < 4 else 3)
    if kind == 0:
        return rng.choice(ODD)
    if kind in (1, 2):
        return rng.choice(NUMBERS) if kind == 1 else "".join(rng.choices("abc def\n", k=rng.randrange(40)))
    if kind in (3, 4):
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(ODD) or "k": odd_value(rng, depth + 1) for _ in range(rng.randrange(4))}


def odd_bytes(rng: random.Random) -> bytes:
    shapes: list[Callable[[], bytes]] = [
        lambda: rng.randbytes(rng.randrange(200)),
        lambda: rng.choice(ODD).encode("utf-8", "surrogatepass"),
        lambda: b"\xef\xbb\xbf" + b"word " * rng.randrange(20),
        lambda: b"Plain words of a book. " * rng.randrange(1, 50),
        lambda: ("Plain words. " * 20).encode("utf-16"),
        lambda: b"word " * 20 + rng.choice([b"\xff", b"\x00", b"\xed\xa0\x80", b"\xc0\xaf"]) + b"word",
        lambda: b"\x1f\x8b\x08" + rng.randbytes(50),
    ]
    return rng.choice(shapes)()


def special(rng: random.Random, path: Path) -> None:
    """Something under this name that is not a plain file; device nodes are only named."""
    kind = rng.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(path.name)
    elif kind == 2:
        path.symlink_to("nowhere")
    elif kind == 3:
        path.symlink_to(rng.choice(["/dev/null", "/dev/zero", "/dev/tty"]))
    elif kind == 4:
        path.mkdir()
    else:
        path.touch(mode=0o000)


def read_texts(case: Any) -> None:
    """A text file, a Parquet file or a special one through `byrote recall` and through the reader."""
    rng = case.rng
    path = case.folder / f"book{rng.choice(['.txt', '.txt', '.md', '.TXT', '.parquet', '.pdf', ''])}"
    content = odd_bytes(rng)
    shape = rng.randrange(4)
    if shape == 0:
        special(rng, path)
    elif shape == 1:
        path = path.with_suffix(".parquet")
        _parquet(rng, path)
    else:
        path.write_bytes(content)
    case.what = f"{path.name} {content[:40]!r} shape {shape}"
    other = case.folder / "other.txt"
    other.write_text("one two three four five", encoding="utf-8")
    case.command("recall", "--book", str(path), "--generation", str(other))
    documents = case.refuses(lambda: read_corpus([str(path)]))
    if documents is not None and shape > 1 and path.suffix != ".parquet":
        expected = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
        case.expect(documents[0].text == expected, "another text than its bytes")


def _parquet(rng: random.Random, path: Path) -> None:
    words = ["plain words", "", None, "é" * 10]
    columns: list[Callable[[], Any]] = [
        lambda: pa.array(rng.choices(words, k=3), pa.string()),
        lambda: pa.array([b"\xff\xfe", b"ok", b"\xc0"], pa.binary()),
        lambda: pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
        ),
        lambda: pa.array([2**62, -(2**62), 0], pa.timestamp("us")),
        lambda: pa.array([1, 2, 3]),
        lambda: pa.array([["a"], [], None]),
    ]
    text = rng.choice(columns)()
    ids = rng.choice(columns)()
    size = min(len(text), len(ids))
    names = [rng.choice(["text", "text", "body"]), rng.choice(["id", "year"])]
    pq.write_table(pa.table([text.slice(0, size), ids.slice(0, size)], names=names), path)
    if rng.random() < 0.4:
        content = bytearray(path.read_bytes())
        for _ in range(rng.randrange(1, 6)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.randrange(len(content))] if rng.random() < 0.3 else content)


def read_lines(case: Any) -> None:
    """Records and spans as JSON Lines: deep, huge, twice, half."""
    rng = case.rng
    path = case.folder / "records.jsonl"
    good = [b'{"text": "one"}', b'{"text": "two", "id": "b"}', b'{"document": "book", "start": 0, "end": 3}']
    lines = [rng.choice(good) if rng.random() < 0.6 else _line(rng) for _ in range(rng.randrange(1, 4))]
    path.write_bytes(b"\n".join(lines))
    case.what = repr(lines)[:200]
    lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
    rng.choice([_records, _fields, _spans])(case, path, [line for line in lines if line.strip()])


def _records(case: Any, path: Path, lines: list[bytes]) -> None:
    documents = case.refuses(lambda: read_corpus([str(path)]))
    if documents is not None:
        expected = [json.loads(line)["text"] for line in lines]
        case.expect([document.text for document in documents] == expected, "other records than their lines")


def _fields(case: Any, path: Path, lines: list[bytes]) -> None:
    rows = case.refuses(lambda: list(read_json_lines(path)))
    if rows is not None:
        found = [row.fields for row in rows]
        case.expect(repr(found) == repr([json.loads(line) for line in lines]), "other fields")


def _spans(case: Any, path: Path, lines: list[bytes]) -> None:
    book = Document.from_text("book", "one two three two one", split=Split.TARGET)
    spans = case.refuses(lambda: read_spans(path, [book]))
    if spans is not None:
        is_inside = all(0 <= span.start < span.end <= len(book.text) for span in spans)
        case.expect(is_inside and len(spans) >= len(lines), "a span outside of its text, or too few")


def _line(rng: random.Random) -> bytes:
    shapes: list[Callable[[], bytes]] = [
        lambda: json.dumps({"text": rng.choice(["one", "two words", *ODD]), "id": odd_value(rng)}).encode(),
        lambda: json.dumps({"document": "book", "start": rng.choice(NUMBERS), "end": rng.choice(NUMBERS)}).encode(),
        lambda: json.dumps({"document": odd_value(rng), "text": odd_value(rng), "kind": odd_value(rng)}).encode(),
        lambda: json.dumps(odd_value(rng)).encode(),
        lambda: b"[" * rng.choice([10, 2_000, 200_000]),
        lambda: b'{"text": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        lambda: b'{"text": "a", "id": ' + b"9" * rng.choice([18, 400, 100_000]) + b"}",
        lambda: b'{"text": "a", "text": "b"}',
        lambda: b'{"text": "\\ud83d"}',
        lambda: odd_bytes(rng).replace(b"\n", b" "),
        lambda: json.dumps({"text": "w " * 1_000_000}).encode(),
        lambda: b"",
    ]
    return rng.choice(shapes)()


def read_names(case: Any) -> None:
    """Folders, globs and hostile names: the same texts come back, and what is printed is harmless."""
    rng = case.rng
    folder = case.folder / "texts"
    folder.mkdir()
    names = [_name(rng) for _ in range(rng.randrange(1, 4))]
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            (folder / name).write_text(f"words of {name!r}", encoding="utf-8", errors="replace")
    if rng.random() < 0.2:
        special(rng, folder / "special.txt")
    case.what = repr(names)
    source = str(rng.choice([folder, folder / "*.txt", folder / "**", folder / names[0], case.folder / "nothing"]))
    documents = case.refuses(lambda: read_corpus([source]))
    if documents is not None:
        case.expect(all(document.text.startswith("words of ") for document in documents), "another text")
        case.expect(len({document.name for document in documents}) == len(documents), "a name twice")
    if "\0" not in source:
        case.command("scan", "--model", str(case.folder / "none"), "--out", str(case.folder / "run"), "--text", source)
        case.command("show", str(folder / names[0].replace("\0", "")))


def _name(rng: random.Random) -> str:
    stem = rng.choice([*(odd for odd in ODD if odd), "plain", "[a-z]", "*", "~", "-x", "..", "\udcff"])[:60].replace(
        "/", "_"
    )
    return f"{stem}.txt"
