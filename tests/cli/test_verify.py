"""`byrote verify` on runs of every kind: what was checked, and one sentence for what does not fit."""

from pathlib import Path

import pytest

from byrote.cli.main import main
from tests.longform.audits import InProcess, invented_book, make_run
from tests.longform.test_audit_resume import run_in_process
from tests.loopback.brains import KnowsByHeart
from tests.scan.scans import Command, TinyLab, scan_arguments

BOOK = invented_book(260)


def scan(lab: TinyLab, out: Path) -> None:
    main(scan_arguments(lab, out, limit=4, measures="verbatim"))


def prior(lab: TinyLab, out: Path) -> None:
    small = {"prefix-tokens": 8, "suffix-tokens": 4, "stride-chars": 60, "prior-prefixes": 8, "trials": 2, "limit": 3}
    texts = ["--text", str(lab.files.targets), "--prior-text", str(lab.files.controls), "--least-ratio", "2"]
    options = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    main(["prior", "--model", str(lab.model.path), "--out", str(out), *texts, *options])


@pytest.fixture(scope="module")
def runs(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A complete run of every kind."""
    folder = tmp_path_factory.mktemp("kinds")
    for kind, make in (("scan", scan), ("prior", prior)):
        with pytest.raises(SystemExit) as ended:
            make(lab, folder / kind)
        assert ended.value.code in (0, None)
    run_in_process(make_run(BOOK, folder / "audit"), InProcess(KnowsByHeart(BOOK)))
    return {kind: folder / kind for kind in ("scan", "prior", "audit")}


@pytest.mark.parametrize("kind", ["scan", "prior", "audit"])
def test_what_was_checked_is_told(byrote: Command, runs: dict[str, Path], kind: str) -> None:
    outcome = byrote("verify", runs[kind])
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "manifest.json: sealed"
    assert lines[-1].startswith(f"{kind} run ")
    assert ", complete: every file of the run is as it was written" in lines[-1]
    bound = {"scan": "texts.parquet", "prior": "results.parquet", "audit": "journal.jsonl"}[kind]
    assert any(line.startswith(f"{bound}: ") and " bytes, sha256 " in line for line in lines)


@pytest.mark.parametrize("kind", ["scan", "prior", "audit"])
def test_every_file_that_was_changed_is_named(byrote: Command, runs: dict[str, Path], kind: str) -> None:
    """One bit in the middle of every file that the run wrote; reports and figures are made again at will."""
    files = [path for path in runs[kind].rglob("*") if path.is_file() and "report" not in path.parts]
    changed = [path for path in files if path.name != ".lock"]
    assert len(changed) >= 3
    for path in changed:
        content = path.read_bytes()
        try:
            flipped = bytearray(content)
            flipped[len(content) // 2] ^= 1
            path.write_bytes(flipped)
            outcome = byrote("verify", runs[kind])
            assert outcome.code == 2
            assert path.name in outcome.err
            assert "Traceback" not in outcome.err
        finally:
            path.write_bytes(content)
    assert byrote("verify", runs[kind]).code == 0


def test_what_is_no_run_is_one_sentence(byrote: Command, tmp_path: Path) -> None:
    outcome = byrote("verify", tmp_path)
    assert outcome.code == 2
    assert "holds no byrote run" in outcome.err


def test_an_altered_page_export_or_task_is_never_said_to_be_as_written(byrote: Command, runs: dict[str, Path]) -> None:
    """Pages and exports are what people read and pass on: a word changed in one is an error that names it."""
    run = runs["scan"]
    for command in (["report", run], ["export", run], ["export", run, "--format", "lm-eval"]):
        assert byrote(*command).code == 0
    outcome = byrote("verify", run)
    assert outcome.code == 0
    assert "as it was written, and so are" in outcome.out
    assert "Not checked" not in outcome.out
    for name in ("report/index.html", "report/tables/rates.csv", "results.csv", "lm-eval/byrote_scan_target.yaml"):
        assert f"{name}: " in outcome.out
        content = (run / name).read_bytes()
        (run / name).write_bytes(content.replace(b"a", b"e", 1))
        altered = byrote("verify", run)
        (run / name).write_bytes(content)
        assert altered.code == 2
        assert "as it was written" not in altered.out
        assert Path(name).name in altered.err
    (run / "notes.txt").write_text("mine", encoding="utf-8")
    assert byrote("verify", run).out.endswith("Not checked, since no hash was noted for them: notes.txt.\n")
    (run / "notes.txt").unlink()


def test_an_altered_exhibit_is_named(byrote: Command, runs: dict[str, Path]) -> None:
    assert byrote("report", runs["audit"]).code == 0
    page = runs["audit"] / "report" / "index.html"
    page.write_bytes(page.read_bytes().replace(b"words", b"pages", 1))
    outcome = byrote("verify", runs["audit"])
    assert outcome.code == 2
    assert str(page) in " ".join(outcome.err.split())
