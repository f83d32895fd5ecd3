"""Pairs, token ids and datasets that no reader should trip over, each beside an independent reading of it."""

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import input_files
import numpy as np

from byrote.corpus.pairs import read_pairs
from byrote.corpus.read import read_corpus

WORDS = [
    "one",
    "two words",
    "[[marked]]",
    "a [[marked]] text",
    "[[",
    "]]",
    "[[]]",
    "[[a]] and [[b]]",
    "[1, 2]",
    "1 2",
    "²",
    "1 ²",
]
FIELDS = [
    "prefix", "suffix", "prefix_ids", "suffix_ids", "text", "id", "document", "split", "copies", "kind", "tags", "",
    "PREFIX", "more",
]  # fmt: skip
KINDS = ["u1", "<u2", ">u2", "<i4", "<i8", "<f4", "?", "S3", "U2", "O", "M8[s]", "c8", "V4", "<u8", "f2"]


def read_pair_files(case: Any) -> None:
    """JSON Lines, CSV and marked texts as pairs, through the reader and through `byrote scan`."""
    rng = case.rng
    path = case.folder / f"pairs{rng.choice(['.jsonl', '.jsonl', '.csv', '.csv', '.txt', '.md', '.tsv', '.JSONL'])}"
    shape = rng.randrange(8)
    if shape == 0:
        input_files.special(rng, path)
    else:
        content = {".csv": _csv, ".txt": _marked, ".md": _marked}.get(path.suffix, _lines)(rng)
        path.write_bytes(content)
        case.what = repr(content)[:250]
    pairs = case.refuses(lambda: read_pairs([path]))
    if pairs is not None:
        case.expect(all(pair.prefix is not None and pair.suffix for pair in pairs), "a pair without a suffix")
        case.expect(len({pair.name for pair in pairs}) == len(pairs), "a name twice")
        sides = [side for pair in pairs for side in (pair.prefix, pair.suffix)]
        case.expect(all(type(token) is int for side in sides if isinstance(side, tuple) for token in side), "no id")
    case.command("scan", "--model", str(case.folder / "none"), "--out", str(case.folder / "run"), "--pairs", str(path))


def _fields(rng: random.Random) -> dict[str, Any]:
    chosen = {rng.choice(FIELDS): input_files.odd_value(rng, 3) for _ in range(rng.randrange(3))}
    sides = [
        {"prefix": rng.choice(WORDS), "suffix": rng.choice(WORDS)},
        {"prefix_ids": [1, 2], "suffix_ids": rng.choice([[3], [], [-1], [1.5], ["3"], [True], [2**63], [10**30]])},
        {"text": rng.choice(WORDS)},
    ]
    return rng.choice(sides) | (chosen if rng.random() < 0.6 else {})


def _lines(rng: random.Random) -> bytes:
    lines = [json.dumps(_fields(rng)).encode() for _ in range(rng.randrange(4))]
    if rng.random() < 0.3:
        lines.append(input_files.odd_bytes(rng).replace(b"\n", b" "))
    return b"\n".join(lines)


def _csv(rng: random.Random) -> bytes:
    names = rng.sample(FIELDS, k=rng.randrange(1, 5)) if rng.random() < 0.4 else ["prefix", "suffix", "copies"]
    if rng.random() < 0.3:
        names = ["prefix_ids", "suffix_ids", "tags"]
    written = io.StringIO()
    table = csv.writer(written)
    table.writerow(names)
    odd = [
        *WORDS,
        "",
        "3",
        "١",
        "9" * 5000,
        "-1",
        "1.5",
        '"',
        "a,b",
        "\r",
        "\n",
        "\0",
        "x" * 200_000,
        "1 2 3",
        "[4, 5]",
    ]
    for _ in range(rng.randrange(4)):
        table.writerow([rng.choice(odd) for _ in range(len(names) + rng.choice([0, 0, 0, 0, 1, -1]))])
    text = written.getvalue().encode("utf-8", "surrogatepass")
    return text.replace(b'"', b"", 1) if rng.random() < 0.2 else text


def _marked(rng: random.Random) -> bytes:
    return " ".join(rng.choice([*WORDS, *input_files.ODD]) for _ in range(rng.randrange(6))).encode(
        "utf-8", "surrogatepass"
    )


def read_token_ids(case: Any) -> None:
    """Arrays and streams of token ids, those of the extraction challenge among them, whole or damaged."""
    rng = case.rng
    name = rng.choice(
        ["ids.npy", "ids.npy", "val_prefix.npy", "ids.uint16.bin", "ids.uint32.bin", "ids.bin", "IDS.NPY"]
    )
    path = case.folder / name
    if rng.random() < 0.08:
        input_files.special(rng, path)
        case.what = f"{name} special"
    else:
        path.write_bytes(_array(case, rng) if path.suffix != ".bin" else rng.randbytes(rng.randrange(80)))
    if "prefix" in name and rng.random() < 0.8:
        (case.folder / "val_suffix.npy").write_bytes(_array(case, rng))
    pairs = case.refuses(lambda: read_pairs([path], prefix_tokens=3, suffix_tokens=2))
    if pairs is not None:
        kind = {"ids.uint16.bin": "<u2", "ids.uint32.bin": "<u4"}.get(name)
        array = np.load(path) if kind is None else np.frombuffer(path.read_bytes(), kind)
        expected = array[: len(array) // 5 * 5].reshape(-1, 5) if array.ndim == 1 else array
        width = expected.shape[1] if "prefix" in name else 3
        case.expect([list(pair.prefix) for pair in pairs] == expected[:, :width].tolist(), "other ids than the array's")
    case.command("scan", "--model", str(case.folder / "none"), "--out", str(case.folder / "run"), "--pairs", str(path))


def _array(case: Any, rng: random.Random) -> bytes:
    shape = rng.choice([(4, 6), (3, 5), (12,), (4,), (), (0, 5), (2, 0), (2, 2, 5), (1, 5)])
    kind = rng.choice(KINDS) if rng.random() < 0.5 else "<u2"
    case.what += f" {kind}{shape}"
    written = io.BytesIO()
    values = np.arange(int(np.prod(shape))).reshape(shape)
    array = values.astype("O") if kind == "O" else (values.astype("<i8") if kind[0] == "V" else values.astype(kind))
    np.save(written, -array if kind == "<i4" and rng.random() < 0.3 else array, allow_pickle=True)
    content = bytearray(written.getvalue())
    damage = rng.randrange(6)
    if damage == 0:
        content = content[: rng.randrange(len(content))]
    elif damage == 1:
        for _ in range(rng.randrange(1, 5)):
            content[rng.randrange(min(len(content), 128))] = rng.randrange(256)
    elif damage == 2:
        header = rng.choice(ODD_HEADERS)
        content = bytearray(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(60))
        case.what += f" header {header[:60]!r}"
    elif damage == 3 and rng.random() < 0.5:
        packed = io.BytesIO()
        np.savez(packed, a=values)
        content = bytearray(packed.getvalue())
        case.what += " npz"
    return bytes(content)


SHAPES = [b"(9999999999999, 9999999999999)", b"(-1, 5)", b"(3, 5)", b"5", b"(2.5,)", b"(True, 20)", b"()", b"(0,)"]
ODD_HEADERS = [
    *(b"{'descr': '<u2', 'fortran_order': False, 'shape': " + shape + b"}\n" for shape in SHAPES),
    b"{'descr': '<u2', 'fortran_order': True, 'shape': (3, 5)}\n",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}\n",
    b"{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (3,)}\n",
    b"{'descr': 'no', 'fortran_order': False, 'shape': (2,)}\n",
    b"{'descr': '<u2', 'fortran_order': 0, 'shape': (5,)}\n",
    b"{}\n", b"(" * 500 + b"\n", b"__import__('os')\n", b"\xff\n", b"",
]  # fmt: skip


def read_datasets(case: Any) -> None:
    """Folders that the library `datasets` saved, and what becomes of them."""
    from datasets import Dataset, DatasetDict, disable_progress_bars

    disable_progress_bars()

    rng = case.rng
    folder = case.folder / rng.choice(["data", "da ta[x]", "dätä"])
    columns = {
        "text": ["one two three", "four five six"],
        "id": rng.choice([["a", "b"], ["a", "a"], [1, 2], [None, "b"]]),
    }
    rows = Dataset.from_dict(columns if rng.random() < 0.8 else {"body": ["a"], "text": [rng.choice([1, None, ["a"]])]})
    (DatasetDict({"train": rows, "test": rows}) if rng.random() < 0.4 else rows).save_to_disk(str(folder))
    rng.choice(DATASET_DAMAGES)(case, folder)
    documents = case.refuses(lambda: read_corpus([str(folder)]))
    if documents is not None and not case.what:
        texts = [document.text for document in documents]
        case.expect(texts in (columns["text"], columns["text"] * 2), "other texts than the dataset's")
    case.command("scan", "--model", str(case.folder / "none"), "--out", str(case.folder / "run"), "--text", str(folder))


def _whole(case: Any, folder: Path) -> None: ...


def _damage(case: Any, folder: Path) -> None:
    path = case.rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    content = bytearray(path.read_bytes())
    if case.rng.random() < 0.4:
        content = content[: case.rng.randrange(len(content))]
    else:
        for _ in range(case.rng.randrange(1, 8)):
            content[case.rng.randrange(len(content))] = case.rng.randrange(256)
    path.write_bytes(content)
    case.what += f" damaged {path.name}"


def _swap(case: Any, folder: Path) -> None:
    path = case.rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    path.unlink()
    if case.rng.random() < 0.5:
        input_files.special(case.rng, path)
    case.what += f" replaced {path.name}"


def _splits(case: Any, folder: Path) -> None:
    odd = [
        ["/etc"],
        ["../.."],
        [1],
        [None],
        "train",
        {},
        None,
        [""],
        ["train", "train"],
        ["nothing"],
        ["a\0b"],
        [["a"]],
    ]
    value = case.rng.choice(odd)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": value}), encoding="utf-8")
    for name in ("state.json", "dataset_info.json"):
        (folder / name).unlink(missing_ok=True)
    case.what += f" splits {value!r}"


def _state(case: Any, folder: Path) -> None:
    for path in folder.rglob("state.json"):
        state = json.loads(path.read_text(encoding="utf-8"))
        state[case.rng.choice(sorted(state))] = case.rng.choice(
            [None, [], {}, "x", -1, [{"filename": "../../x.arrow"}], [{}], 10**30]
        )
        path.write_text(json.dumps(state), encoding="utf-8")
        case.what += f" state {state!r}"[:200]


DATASET_DAMAGES: list[Callable[[Any, Path], None]] = [_whole, _damage, _damage, _swap, _splits, _state]
