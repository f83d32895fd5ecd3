"""Five people with five jobs, each from the first command to the answer they came for."""

import hashlib
import json
import zipfile
from pathlib import Path

import polars as pl
import pytest

import rote as package
from tests.longform.audits import KEY, invented_book
from tests.loopback.brains import KnowsByHeart
from tests.loopback.server import LoopbackServer
from tests.scan.scans import SMALL, Command, TinyLab, scan_arguments

pytestmark = pytest.mark.usefixtures("unrendered")


def test_a_researcher_compares_settings_and_checks_them_by_sampling(
    lab: TinyLab, rote: Command, tmp_path: Path
) -> None:
    """How much comes out, does a wider beam find more, and do plain samples say the same?"""
    narrow, wide = tmp_path / "narrow", tmp_path / "wide"
    controls = ("--control", lab.files.controls)
    for out, width in ((narrow, 4), (wide, 8)):
        assert rote(*scan_arguments(lab, out, beam_width=width, limit=12, pin=False), *controls).code == 0
    assert "near-verbatim" in rote("show", narrow).out
    assert "n = 1000" in rote("show", narrow, "--queries", 1000).out
    assert "2 scan runs together" in rote("show", narrow, wide).out
    assert rote("report", narrow, wide, "--out", tmp_path / "compared").code == 0
    differences = pl.read_csv(tmp_path / "compared" / "tables" / "compare.csv")
    assert set(differences["quantity"]) == {"greedy", "verbatim", "near", "mean_mass"}
    assert (tmp_path / "compared" / "figures" / "beam-widths.svg").exists()
    assert rote("mc", narrow, "--sample", 2, "--samples", 40, "--device", "cpu", "--out", tmp_path / "mc").code == 0
    assert "certified bounds share a value" in " ".join(rote("show", tmp_path / "mc").out.split())
    assert "scan" in rote("runs", tmp_path).out


def test_a_release_engineer_lets_a_gate_decide(lab: TinyLab, rote: Command, tmp_path: Path) -> None:
    """Measured, written into the model card, checked, and judged by exit code."""
    run = tmp_path / "candidate"
    arguments = scan_arguments(lab, run, limit=16)
    assert rote(*arguments, "--control", lab.files.controls).code == 0
    assert rote("report", run).code == 0
    card = (run / "report" / "model_card.md").read_text(encoding="utf-8")
    assert "near-verbatim" in card
    assert "control" in card
    assert rote("verify-run", run).code == 0
    assert rote("gate", run, "--max-rate", "verbatim=1").code == 0
    failed = rote("gate", run, "--max-rate", "verbatim=0", "--json", tmp_path / "gate.json")
    assert failed.code == 1, "the tiny model has memorized some of its texts"
    assert json.loads((tmp_path / "gate.json").read_text(encoding="utf-8"))
    assert rote("gate", run, "--max-rate", "split:control verbatim=0").code == 0
    unchanged = rote("gate", run, "--baseline", run, "--max-increase", "verbatim=0", "--junit", tmp_path / "gate.xml")
    assert unchanged.code == 0, unchanged.out
    assert 'failures="0"' in (tmp_path / "gate.xml").read_text(encoding="utf-8")


def test_an_expert_witness_hands_over_an_exhibit_that_checks_itself(
    rote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was reproduced, from which prompt, and proof that nothing was changed since."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    book, control = tmp_path / "book.txt", tmp_path / "control.txt"
    book.write_text(invented_book(300), encoding="utf-8")
    control.write_text(invented_book(200, seed=7), encoding="utf-8")
    sizes = {"prefix_words": 20, "target_words": 20, "first_max_tokens": 50, "settings": {"max_tokens": 60}}
    (tmp_path / "small.yaml").write_text(json.dumps(sizes), encoding="utf-8")
    run = tmp_path / "audit"
    with LoopbackServer(KnowsByHeart(invented_book(300))) as server:
        asked = ("--endpoint", server.url, "--model", "loopback", "--book", book, "--control", control)
        assert rote("audit", *asked, "--config", tmp_path / "small.yaml", "--out", run).code == 0
    assert "The control book failed phase 1" in " ".join(rote("show", run).out.split())
    assert rote("report", run).code == 0
    with zipfile.ZipFile(run / "report" / "exhibit.zip") as bundle:
        bundle.extractall(tmp_path / "unpacked")
    exhibit = tmp_path / "unpacked" / "exhibit"
    for line in (exhibit / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((exhibit / name).read_bytes()).hexdigest() == digest
    assert rote("verify-run", exhibit).code == 0
    (exhibit / "findings.json").write_text("{}", encoding="utf-8")
    refused = rote("verify-run", exhibit)
    assert refused.code == 2
    assert "findings.json" in refused.err
    assert rote("recall", "--book", book, "--generation", book, "--out", tmp_path / "recall").code == 0
    both = rote("report", run, tmp_path / "recall", "--out", tmp_path / "both")
    assert both.code == 0, both.err


def test_a_privacy_engineer_tells_leaks_from_likely_words_and_shows_no_names(
    lab: TinyLab, rote: Command, tmp_path: Path
) -> None:
    """Records by kind, which of them are memorized rather than likely, and a page that can be passed on."""
    passages = [*lab.model.targets, *lab.model.controls]
    rows = []
    for passage in passages:
        words = passage.text.split(" ")
        pair = {"prefix": " ".join(words[:9]), "suffix": " " + " ".join(words[9:16]), "kind": str(passage.kind)}
        rows.append(pair | {"copies": passage.copies})
    records = tmp_path / "records.jsonl"
    records.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    sizes = {name: value for name, value in SMALL.items() if not name.endswith(("-tokens", "-chars"))}
    given = [part for name, value in sizes.items() for part in (f"--{name}", value)]
    run, prior = tmp_path / "records", tmp_path / "prior"
    assert rote("scan", "--model", lab.model.path, "--pairs", records, "--out", run, *given).code == 0
    shown = rote("show", run).out
    assert all(str(passage.kind) in shown for passage in passages)
    drawn = ("--prior-prefixes", 20, "--trials", 2, "--prefix-tokens", 8, "--device", "cpu")
    scored = rote(
        "prior",
        "--model",
        lab.model.path,
        "--pairs",
        records,
        "--prior-text",
        lab.files.controls,
        "--out",
        prior,
        *drawn,
    )
    assert scored.code == 0, scored.err
    assert "memorized" in scored.out
    scores = rote("scan", "--model", lab.model.path, "--pairs", records, "--measures", "membership", "--out",
                  tmp_path / "scores", *given)  # fmt: skip
    assert scores.code == 0, scores.err
    assert "Min-K %++" in rote("show", tmp_path / "scores").out
    together = rote("report", run, prior, "--out", tmp_path / "page")
    assert together.code == 0, together.err
    assert "At least: by lower bounds" in " ".join(rote("risk", run).out.split())
    assert rote("export", run, "--format", "csv", "--out", tmp_path / "rows.csv").code == 0
    assert pl.read_csv(tmp_path / "rows.csv").height == len(rows)


def test_a_python_developer_goes_from_model_to_folder_and_back(lab: TinyLab, rote: Command, tmp_path: Path) -> None:
    """The same numbers in memory, on the disk and in the terminal."""
    options = {name.replace("-", "_"): value for name, value in SMALL.items()} | {"limit": 10}
    config = package.RunConfig(**options)  # type: ignore[arg-type]
    model = package.load_model(str(lab.model.path), device="cpu")
    windows = package.read_windows(model, [lab.files.targets], control=[lab.files.controls], config=config)
    results = package.scan(model, windows, config)
    frame = results.to_polars()
    run = results.save(tmp_path / "run")
    assert rote("show", run).code == 0
    assert rote("report", run).code == 0
    assert rote("verify-run", run).code == 0
    assert rote("export", run, "--format", "jsonl", "--out", tmp_path / "rows.jsonl").code == 0
    stored = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["mass_lower"] for row in stored] == frame["mass_lower"].to_list()
    again = rote(*scan_arguments(lab, run, limit=10), "--control", lab.files.controls)
    assert "complete already" in again.err, "the command finds that the folder is its own"
    with pytest.raises(package.RoteError, match=r"config is a dict; give rote.RunConfig"):
        package.scan(model, windows, {"limit": 10})  # type: ignore[arg-type]
    with pytest.raises(package.RoteError, match="generation is a int; give the text itself"):
        package.nv_recall("a book", 3)  # type: ignore[arg-type]
    assert "1 document>" in repr(package.read_windows(model, next(lab.files.targets.glob("*.txt")), config=config))
