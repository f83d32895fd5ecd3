"""Commands in odd surroundings: streams that cannot be written, encodings, widths, umasks, and links in a run folder.

Every case ends with the code it should have and at most one sentence, leaves no traceback, and touches nothing outside
of the folder that it was given.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from byrote.report.figures.style import save_bytes
from tests.cli.every_kind import make_every_kind
from tests.cli.replacing import replaced_everywhere
from tests.scan.scans import Command, TinyLab, scan_arguments

Stream = Callable[[], int]


class Surroundings(NamedTuple):
    """What a command finds around it. Streams are descriptors that it gets; None: a pipe that is read."""

    environment: tuple[tuple[str, str], ...] = ()
    output: Stream | None = None
    errors: Stream | None = None
    closed: tuple[int, ...] = ()
    """Descriptors that are not open at all."""


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def left() -> int:
    """A pipe whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


ODD = {
    "COLUMNS=0": Surroundings((("COLUMNS", "0"), ("LINES", "0"))),
    "COLUMNS of a million": Surroundings((("COLUMNS", "1000000"), ("LINES", "²"))),
    "latin-1": Surroundings((("PYTHONIOENCODING", "latin-1"),)),
    "ascii": Surroundings((("PYTHONIOENCODING", "ascii"), ("LC_ALL", "C"))),
    "stdout full": Surroundings(output=full),
    "stdout without a reader": Surroundings(output=left),
    "stdout closed": Surroundings(closed=(1,)),
    "stderr full": Surroundings(errors=full),
    "stderr without a reader": Surroundings(errors=left),
    "everything closed": Surroundings(closed=(0, 1, 2)),
    "nothing can be written": Surroundings(output=full, errors=full),
}
NOT_PRINTED = {"stdout full": 2, "nothing can be written": 2, "stdout without a reader": 1}
"""Codes of commands whose results do not reach anybody."""


class Done(NamedTuple):
    code: int
    out: bytes
    err: bytes


def run_in(surroundings: Surroundings, *arguments: object) -> Done:
    given = [surroundings.output, surroundings.errors]
    streams = [subprocess.PIPE if make is None else make() for make in given]

    def close() -> None:
        for descriptor in surroundings.closed:
            os.close(descriptor)

    done = subprocess.run(
        [sys.executable, "-m", "byrote", *map(str, arguments)],
        stdout=streams[0],
        stderr=streams[1],
        env={**os.environ, **dict(surroundings.environment), "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=close,
        check=False,
    )
    for make, descriptor in zip(given, streams, strict=True):
        if make is not None:
            os.close(descriptor)
    return Done(done.returncode, done.stdout or b"", done.stderr or b"")


@pytest.fixture(scope="module")
def scanned(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scan of a text whose name holds what acts on a terminal and what latin-1 lacks."""
    from byrote.cli.main import main

    folder = tmp_path_factory.mktemp("surroundings")
    text = folder / "τ–ε \x9b2J é.txt"
    shutil.copy(sorted(lab.files.targets.glob("*.txt"))[0], text)
    with pytest.raises(SystemExit) as ended:
        main(scan_arguments(lab, folder / "run", texts=(text,), limit=6))
    assert ended.value.code == 0
    return folder / "run"


@pytest.mark.parametrize("odd", ODD)
def test_what_is_printed_is_printed_or_refused(scanned: Path, odd: str) -> None:
    done = run_in(ODD[odd], "show", scanned)
    assert done.code == NOT_PRINTED.get(odd, 0), done.err
    assert b"Traceback" not in done.err
    assert b"Exception ignored" not in done.err
    if odd == "stdout full":
        assert done.err.startswith(b"error: standard output cannot be written: No space left on device")
        assert done.err.count(b"\n") == 1
    else:
        assert done.err == b""


@pytest.mark.parametrize(
    ("odd", "limit", "verdict"),
    [
        *((odd, "near=1", 0) for odd in ODD if "stdout" in odd or "stderr" in odd or "nothing" in odd),
        ("stdout full", "near=0", 1),
        ("nothing can be written", "near=0", 1),
    ],
)
def test_the_exit_code_of_a_gate_is_its_verdict(scanned: Path, odd: str, limit: str, verdict: int) -> None:
    done = run_in(ODD[odd], "gate", scanned, "--max-rate", limit)
    assert done.code == verdict, done.err
    assert b"Traceback" not in done.err


@pytest.mark.parametrize("odd", ["latin-1", "stdout full", "stdout without a reader"])
def test_json_is_ascii_and_every_character_comes_back(scanned: Path, odd: str) -> None:
    done = run_in(ODD[odd], "show", scanned, "--json")
    assert done.code == NOT_PRINTED.get(odd, 0), done.err
    assert b"Traceback" not in done.err
    if done.code == 0:
        assert all(byte == 10 or 32 <= byte < 127 for byte in done.out)
        assert "τ–ε \x9b2J é.txt" in json.dumps(json.loads(done.out), ensure_ascii=False)


def test_a_scan_whose_streams_cannot_be_written_is_measured_all_the_same(lab: TinyLab, tmp_path: Path) -> None:
    arguments = scan_arguments(lab, tmp_path / "run", limit=3, measures="verbatim")
    assert run_in(ODD["everything closed"], *arguments).code == 0
    assert (tmp_path / "run" / "manifest.json").exists()


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn, not rendered: that takes most of the time."""
    replaced_everywhere(save_bytes, lambda figure, kind: b"<svg/>", monkeypatch)


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def test_every_kind_of_run_report_and_export_is_its_owners_alone(
    lab: TinyLab, byrote: Command, tmp_path: Path, unrendered: None
) -> None:
    """Under a umask that takes nothing away. What the makers put beside the runs is theirs."""
    with umask(0):
        runs = make_every_kind(lab, tmp_path)
        for kind, run in runs.items():
            assert byrote("report", run).code == 0, kind
            assert byrote("report", run, "--out", run.parent / "report").code == 0, kind
        for run in (runs["scan"], runs["prior"], runs["mc"]):
            for form in ("csv", "jsonl"):
                assert byrote("export", run, "--format", form).code == 0
        both = tmp_path / "both"
        assert byrote("report", runs["scan"], runs["audit"], "--out", both).code == 0
        json_file, page = tmp_path / "gate.json", tmp_path / "recall.html"
        assert byrote("gate", runs["scan"], "--max-rate", "near=1", "--json", json_file).code == 0
        texts = [runs["recall"].parent / name for name in ("novel.txt", "answer.txt")]
        assert byrote("recall", "--book", texts[0], "--generation", texts[1], "--html", page).code == 0
    folders = [both, *runs.values(), *(run.parent / "report" for run in runs.values())]
    for path in (json_file, page, *folders, *(path for folder in folders for path in folder.rglob("*"))):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


LINKED = ["report", "report/index.html", "report/figures", "report/tables/rates.csv", "results.csv", ".lock", "parts"]


@pytest.mark.parametrize("name", LINKED)
def test_no_command_writes_through_a_link_in_a_run_folder(
    lab: TinyLab, scanned: Path, byrote: Command, tmp_path: Path, unrendered: None, name: str
) -> None:
    """The folder came from somebody else, who knows where the user keeps what."""
    run, home = tmp_path / "run", tmp_path / "home"
    shutil.copytree(scanned, run)
    home.mkdir()
    mine = home / ("mine" if "." in name else "mine/index.html")
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(home / "mine")
    scan = scan_arguments(lab, run, limit=6)
    commands = {"results.csv": ["export", run, "--format", "csv"], ".lock": scan, "parts": scan}
    outcome = byrote(*commands.get(name, ["report", run]))
    assert outcome.code == 2
    assert f"{name} is a link" in outcome.err.splitlines()[-1]
    assert mine.read_text() == "mine"
    assert [path for path in home.rglob("*") if path.is_file()] == [mine]
