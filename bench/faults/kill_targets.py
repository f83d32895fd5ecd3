"""Kinds of runs that are killed: the command of each, what it has finished at any moment, and when two are the same."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import polars as pl
from polars.testing import assert_frame_equal
from tests.longform.audits import invented_book
from tests.scan.scans import SMALL, TinyLab, scan_arguments

from byrote.cli.main import main as byrote
from byrote.errors import RunError
from byrote.longform.run import JOURNAL
from byrote.store.journal import read_records
from byrote.store.read import StoredRun, read_run, verify_run
from byrote.study.run import check_cells

BOOK = invented_book(260)
OWN_TO_A_STUDY = ("run_id", "manifest_sha256")
"""Columns of a study's rows that say which runs its cells are: no two are the same."""


class Target(NamedTuple):
    """A kind of run: its command, what it has finished, and whether it is the run it should be."""

    name: str
    arguments: Callable[[Path], list[str]]
    finished: Callable[[Path], set[str]]
    is_same: Callable[[Path, Path], bool]
    most_steps: int | None = None
    """Of its steps so many are killed, evenly spread; None: all."""


class Places(NamedTuple):
    """What kinds need beside the model: a folder for what they read, a server, and a Ray cluster."""

    folder: Path
    endpoint: str | None = None
    cluster: str | None = None


def targets(lab: TinyLab, places: Places) -> list[Target]:
    """Every kind; those that need a server or a cluster where there is one."""
    small = {"limit": 9, "windows_per_part": 2, "slots": 3, "batch_windows": 2}
    found = [
        Target("scan", lambda out: scan_arguments(lab, out, **small), windows, same_rows),
        Target("prior", lambda out: _prior(lab, out), blocks, same_rows),
        Target("audit", lambda out: ["in-process-audit", BOOK, str(out)], answers, same_findings),
        Target("merge", lambda out: ["merge", str(out), *_shards(lab, places.folder)], windows, same_rows),
        Target("study", lambda out: _study(lab, places.folder, out), cells, same_cells, most_steps=50),
        Target("mc", lambda out: _mc(lab, places.folder, out), windows, same_rows),
        Target("recall", lambda out: _recall(places.folder, out), windows, same_rows),
    ]
    if places.endpoint is not None:
        served = {"model": f"endpoint:{places.endpoint}", "tokenizer": lab.model.path, "screen": "off", "ask-twice": 0}
        given = served | small | {"limit": 4, "concurrency": 2}
        found.append(
            Target("endpoint", lambda out: scan_arguments(lab, out, **given), kept_answers, same_rows, most_steps=40)
        )
    if places.cluster is not None:
        ray = {"executor": "ray", "workers": 1, "gpus-per-worker": 0, "address": places.cluster}
        found.append(
            Target("ray", lambda out: scan_arguments(lab, out, **(small | ray)), windows, same_rows, most_steps=10)
        )
    return found


def verify_all(run: Path) -> StoredRun:
    """Every file of a run, those of a study's cells among them."""
    verified = verify_run(run)
    if verified.kind == "study":
        list(check_cells(verified))
    return verified


def _prior(lab: TinyLab, out: Path) -> list[str]:
    small = {"prefix-tokens": 8, "suffix-tokens": 4, "prior-prefixes": 24, "trials": 2, "limit": 4, "least-ratio": 2}
    options = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    texts = ["--text", str(lab.files.targets), "--prior-text", str(lab.files.controls)]
    return ["prior", "--model", str(lab.model.path), "--out", str(out), "--device", "cpu", *texts, *options]


def _shards(lab: TinyLab, folder: Path) -> list[str]:
    paths = [folder / f"shard{index}" for index in range(2)]
    for index, path in enumerate(paths):
        _once(path, scan_arguments(lab, path, limit=12, windows_per_part=2, shard=f"{index}/2"))
    return list(map(str, paths))


def _study(lab: TinyLab, folder: Path, out: Path) -> list[str]:
    file, small = folder / "study.yaml", dict(SMALL)
    sizes = {"limit": 4, "windows_per_part": 2, "slots": 3, "batch_windows": 2, "beam_width": [2, 3]}
    sampled = {"montecarlo_windows": 1, "montecarlo_samples": 20}
    places = {"model": str(lab.model.path), "text": [str(lab.files.targets)]}
    file.write_text(json.dumps(small | places | sizes | sampled), encoding="utf-8")
    return ["study", str(file), "--out", str(out)]


def _mc(lab: TinyLab, folder: Path, out: Path) -> list[str]:
    scan = folder / "scan"
    _once(scan, scan_arguments(lab, scan, limit=12))
    return ["mc", str(scan), "--sample", "4", "--samples", "20", "--device", "cpu", "--out", str(out)]


def _recall(folder: Path, out: Path) -> list[str]:
    words = BOOK.split()
    book, answer = folder / "novel.txt", folder / "answer.txt"
    book.write_text(" ".join(words), encoding="utf-8")
    answer.write_text(" ".join([*words[20:120], "well", *words[150:240]]), encoding="utf-8")
    return ["recall", "--book", str(book), "--generation", str(answer), "--out", str(out)]


def _once(path: Path, arguments: list[str]) -> None:
    if not (path / "manifest.json").exists():
        with suppress(SystemExit):
            byrote(arguments)


def windows(run: Path) -> set[str]:
    return set(read_run(run).results["window_id"])


def blocks(run: Path) -> set[str]:
    """A prior works block by block; its rows are written at once, at the end."""
    return {path.stem for path in (run / "blocks").glob("*.parquet")}


def answers(run: Path) -> set[str]:
    return {record["place"] for record in read_records(run / JOURNAL) if record["kind"] == "answer"}


def kept_answers(run: Path) -> set[str]:
    """Windows, and every answer of the server that was paid for."""
    path = run / "answers.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith(b"\n")]
    kept = {key for record in records if record["kind"] == "answer" for key in record["rows"]}
    with suppress(RunError):
        kept |= windows(run)
    return kept


def cells(run: Path) -> set[str]:
    """Cells, and the windows of every cell, as the log of a session names them."""
    found = set[str]()
    with suppress(RunError):
        found = windows(run)
    for folder in _inner(run):
        with suppress(RunError):
            found |= {f"{folder.name}/{window_id}" for window_id in windows(folder)}
    return found


def _inner(run: Path) -> Iterator[Path]:
    yield from sorted(path.parent for path in run.glob("cells/*/identity.json"))


def same_rows(run: Path, expected: Path) -> bool:
    """Windows that share a forward move each other's numbers by rounding, and by nothing else."""
    with suppress(AssertionError):
        for table in ("results.parquet", "continuations.parquet"):
            if (expected / table).exists():
                rows, wanted = pl.read_parquet(run / table), pl.read_parquet(expected / table)
                assert_frame_equal(rows, wanted, rel_tol=1e-5, abs_tol=1e-12)
        return True
    return False


def same_cells(run: Path, expected: Path) -> bool:
    ours, theirs = (pl.read_parquet(path / "results.parquet").drop(OWN_TO_A_STUDY) for path in (run, expected))
    inner = [folder.relative_to(expected) for folder in _inner(expected)]
    return ours.equals(theirs) and all(same_rows(run / folder, expected / folder) for folder in inner)


def same_findings(run: Path, expected: Path) -> bool:
    return (run / "findings.json").read_bytes() == (expected / "findings.json").read_bytes()
