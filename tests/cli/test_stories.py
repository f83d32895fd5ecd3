"""Five people with five jobs on the pocket model, each from the first command to the answer they came for.

What the model has learned is known (`tests/cli/pocket.py`), by margins of many powers of ten: passages with 64 copies
have a probability of 0.1 and more where 0.001 is asked for, controls of less than 10⁻¹⁸.
"""

import hashlib
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import byrote as package
from tests.cli.pocket import PocketLab
from tests.scan.scans import Command

pytestmark = [pytest.mark.usefixtures("unrendered"), pytest.mark.slow]

KNOWN = ("prose-0128-00", "prose-0128-01", "prose-0064-00", "prose-0064-01")
OTHER_EDITION = ("edition-0064-00", "edition-0064-01")
SEEN_ONCE = ("prose-0001-00", "prose-0001-01")
CONTROLS = ("control-prose-00", "control-prose-01", "control-prose-02", "control-prose-03")
ON_CPU = ("--whole-documents", "--device", "cpu")


def exported(byrote: Command, run: Path, out: Path) -> dict[str, dict[str, Any]]:
    """The rows of a run as another program would read them, by passage."""
    assert byrote("export", run, "--format", "jsonl", "--out", out).code == 0
    rows = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    return {row["document"].removeprefix("target/").removesuffix(".txt"): row for row in rows}


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_a_researcher_compares_settings_and_checks_them_by_sampling(
    pocket: PocketLab, byrote: Command, tmp_path: Path
) -> None:
    """How much comes out, does a wider beam find more, and do plain samples say the same?"""
    texts = pocket.write(tmp_path / "texts", *KNOWN, *OTHER_EDITION, *SEEN_ONCE)
    controls = pocket.write(tmp_path / "controls", *CONTROLS)
    narrow, wide = tmp_path / "runs" / "narrow", tmp_path / "runs" / "wide"
    places = ("--model", pocket.model.path, "--text", texts, "--control", controls, *ON_CPU)
    for out, width in ((narrow, 2), (wide, 20)):
        assert byrote("scan", *places, "--beam-width", width, "--out", out).code == 0
    rows = exported(byrote, wide, tmp_path / "rows.jsonl")
    assert {name for name, row in rows.items() if row["verdict"] == "extractable"} == {*KNOWN, *OTHER_EDITION}
    assert {name for name, row in rows.items() if row["p_verbatim"] >= 0.001} == set(KNOWN)
    shown = in_one_line(byrote("show", wide).out)
    assert "75.0%" in shown, "six of eight target passages"
    assert "n = 1000" in byrote("show", wide, "--queries", 1000).out
    assert "2 scan runs together" in byrote("show", narrow, wide).out
    assert byrote("report", narrow, wide, "--out", tmp_path / "compared").code == 0
    differences = pl.read_csv(tmp_path / "compared" / "tables" / "compare.csv")
    assert set(differences["quantity"]) == {"greedy", "verbatim", "near", "mean_mass"}
    assert (tmp_path / "compared" / "figures" / "beam-widths.svg").exists()
    sampled = byrote("mc", wide, "--sample", 4, "--samples", 100, "--device", "cpu", "--out", tmp_path / "runs" / "mc")
    assert sampled.code == 0, sampled.err
    assert "certified bounds share a value" in in_one_line(byrote("show", tmp_path / "runs" / "mc").out)
    listed = byrote("runs", tmp_path / "runs").out
    assert all(name in listed for name in ("narrow", "wide", "mc"))


def test_a_release_engineer_lets_a_gate_decide(pocket: PocketLab, byrote: Command, tmp_path: Path) -> None:
    """Measured, written into the model card, checked, compared with the last release, and judged by exit code."""
    texts = pocket.write(tmp_path / "texts", *KNOWN, *SEEN_ONCE)
    controls = pocket.write(tmp_path / "controls", *CONTROLS)
    candidate, last, drawn = tmp_path / "candidate", tmp_path / "last", tmp_path / "drawn"
    places = ("--text", texts, "--control", controls, *ON_CPU)
    assert byrote("scan", "--model", pocket.model.path, *places, "--out", candidate).code == 0
    assert byrote("scan", "--model", pocket.untrained, *places, "--out", last).code == 0
    assert byrote("report", candidate).code == 0
    card = (candidate / "report" / "model_card.md").read_text(encoding="utf-8")
    assert "near-verbatim" in card
    assert "control" in card
    assert byrote("verify", candidate).code == 0
    assert byrote("gate", candidate, "--max-rate", "split:control verbatim=0", "--max-rate", "verbatim=0.7").code == 0
    assert byrote("gate", candidate, "--max-rate", "near=0.5").code == 1, "four of six passages are certified"
    compared = ("--baseline", last, "--max-increase", "verbatim=0.1", "--json", tmp_path / "gate.json")
    assert byrote("gate", candidate, *compared).code == 1
    (rule,) = json.loads((tmp_path / "gate.json").read_text(encoding="utf-8"))["rules"]
    assert rule["low"] == rule["high"] == pytest.approx(4 / 6)
    improved = byrote(
        "gate", last, "--baseline", candidate, "--max-increase", "verbatim=0", "--junit", tmp_path / "g.xml"
    )
    assert improved.code == 0, improved.out
    assert 'failures="0"' in (tmp_path / "g.xml").read_text(encoding="utf-8")
    open_still = byrote("gate", candidate, "--max-rate", "near=0.67")
    assert open_still.code == 3
    assert re.search(r"--answers \d+ would bring all that can be down to 4 windows", in_one_line(open_still.out))
    assert byrote("scan", "--model", pocket.model.path, *places, "--sample", 6, "--out", drawn).code == 0
    undecided = byrote("gate", drawn, "--max-rate", "verbatim=0.7")
    assert undecided.code == 3
    assert "cannot tell" in undecided.out
    assert "All 6 windows would decide it" in in_one_line(undecided.out)


def test_an_expert_witness_hands_over_an_exhibit_that_checks_itself(
    pocket: PocketLab, byrote: Command, tmp_path: Path
) -> None:
    """What was reproduced, from which prompt, and proof that nothing was changed since."""
    book, control, run = tmp_path / "book.txt", tmp_path / "control.txt", tmp_path / "audit"
    for path, names in ((book, (*KNOWN[:2], CONTROLS[0])), (control, CONTROLS[1:3])):
        chapters = [f"CHAPTER {number}\n\n{pocket.passage(name).text}" for number, name in enumerate(names, 1)]
        path.write_text("\n\n".join(chapters), encoding="utf-8")
    asked = ("--model", pocket.model.path, "--style", "text", "--book", book, "--control", control, "--chapters")
    sizes = ("--prefix-words", 20, "--target-words", 20, "--max-tokens", 64, "--max-turns", 3, "--pass", "2,1,20")
    audited = byrote("audit", *asked, *sizes, "--device", "cpu", "--out", run)
    assert audited.code == 0, audited.err
    shown = in_one_line(byrote("show", run).out)
    assert "CHAPTER 1: 100% of the target" in shown
    assert "The control book failed phase 1" in shown
    findings = json.loads((run / "findings.json").read_text(encoding="utf-8"))
    (trial,) = findings["trials"]
    assert [section["stop"] == "phase_1_failed" for section in trial["sections"]] == [False, False, True]
    assert 0.3 < trial["nv_recall"] < 2 / 3, "two chapters of three, but for the words that were given"
    assert byrote("report", run).code == 0
    page = (run / "report" / "index.html").read_text(encoding="utf-8")
    assert "2 of 3" in in_one_line(page), "sections that passed phase 1"
    assert " ".join(pocket.passage(KNOWN[0]).text.split()[:20]).replace('"', "&#34;") in in_one_line(page), "the prompt"
    with zipfile.ZipFile(run / "report" / "exhibit.zip") as bundle:
        bundle.extractall(tmp_path / "unpacked")
    exhibit = tmp_path / "unpacked" / "exhibit"
    for line in (exhibit / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((exhibit / name).read_bytes()).hexdigest() == digest
    assert byrote("verify", exhibit).code == 0
    journal = bytearray((exhibit / "journal.jsonl").read_bytes())
    journal[len(journal) // 2] ^= 1
    (exhibit / "journal.jsonl").write_bytes(journal)
    refused = byrote("verify", exhibit)
    assert refused.code == 2
    assert "journal.jsonl" in refused.err


def test_a_privacy_engineer_tells_leaks_from_likely_words_and_shows_no_names(
    pocket: PocketLab, byrote: Command, tmp_path: Path
) -> None:
    """Records by kind, which of them are memorized rather than likely, and output that can be passed on."""
    leaked = [f"person-{copies}-{number:02d}" for copies in ("0128", "0064") for number in range(3)]
    unseen = [f"control-person-{number:02d}" for number in range(6)]
    secrets = pocket.write_identifiers(tmp_path / "records.jsonl", (*leaked, *unseen))
    run, prior = tmp_path / "records", tmp_path / "prior"
    measured = ("--edit-budget", 1, "--device", "cpu", "--out", run)
    scanned = byrote("scan", "--model", pocket.model.path, "--pairs", tmp_path / "records.jsonl", *measured)
    assert scanned.code == 0, scanned.err
    extractable = pl.read_parquet(run / "results.parquet").filter(pl.col("p_verbatim") >= 0.01)
    assert set(extractable["split"]) == {"target"}
    assert extractable.height == 2 * len(leaked), "every number and address of people who were in training often"
    assert byrote("gate", run, "--max-rate", "kind:phone verbatim=0").code == 1
    shown, risk = byrote("show", run).out, byrote("risk", run, "--queries", 1000).out
    first, *_ = (line for line in risk.splitlines() if line.startswith("person-"))
    assert first.endswith("> 0.999")
    people, others = pocket.write(tmp_path / "people", *leaked[:3]), pocket.write(tmp_path / "unseen", *unseen[:3])
    corpus = pocket.write(tmp_path / "corpus", *unseen[3:], *CONTROLS)
    scored = ("--text", people, "--control", others, "--spans", "auto", "--span-kinds", "phone,email")
    drawn = ("--prior-text", corpus, "--prefix-tokens", 20, "--device", "cpu", "--out", prior)
    judged = byrote("prior", "--model", pocket.model.path, *scored, *drawn)
    assert judged.code == 0, judged.err
    counts = json.loads((prior / "manifest.json").read_text(encoding="utf-8"))["totals"]["by_split"]
    assert counts["target"]["all"]["extractable"] > 0
    assert counts["control"]["all"]["extractable"] == 0
    for said in (shown, risk, scanned.out, scanned.err, judged.out, judged.err, byrote("show", prior).out):
        assert not [secret for secret in secrets if secret in said]
    revealed = byrote("show", prior, "--reveal").out
    assert any(secret in revealed for secret in secrets)
    together = byrote("report", run, prior, "--out", tmp_path / "page")
    assert together.code == 0, together.err


def test_a_python_developer_goes_from_model_to_folder_and_back(
    pocket: PocketLab, byrote: Command, tmp_path: Path
) -> None:
    """The same numbers in memory, on the disk and in the terminal."""
    texts = pocket.write(tmp_path / "texts", *KNOWN, *SEEN_ONCE)
    controls = pocket.write(tmp_path / "controls", *CONTROLS)
    config = package.RunConfig(whole_documents=True, device="cpu")
    model = package.load_model(str(pocket.model.path), device="cpu")
    windows = package.read_windows(model, [texts], control=[controls], config=config)
    results = package.scan(model, windows, config)
    run = results.save(tmp_path / "run")
    assert byrote("show", run).code == 0
    assert byrote("report", run).code == 0
    assert byrote("verify", run).code == 0
    stored = exported(byrote, run, tmp_path / "rows.jsonl")
    assert [row["mass_lower"] for row in stored.values()] == results.to_polars()["mass_lower"].to_list()
    assert {name for name, row in stored.items() if row["verdict"] == "extractable"} == set(KNOWN)
    places = ("--model", pocket.model.path, "--text", texts, "--control", controls)
    again = byrote("scan", *places, *ON_CPU, "--out", run)
    assert "complete already" in again.err, "the command finds that the folder is its own"
    untrained = package.scan(package.load_model(str(pocket.untrained), device="cpu"), windows, config)
    (verbatim,) = results.compare(untrained).filter(pl.col("criterion") == "verbatim").iter_rows(named=True)
    assert (verbatim["first"], verbatim["second"]) == (pytest.approx(4 / 6), 0)
    assert verbatim["interval_high"] < 0, "the untrained model reproduces less"
    with pytest.raises(package.ByroteError, match=r"config is a dict; give byrote.RunConfig"):
        package.scan(model, windows, {"limit": 10})  # type: ignore[arg-type]
    with pytest.raises(package.ByroteError, match="generation is a int; give the text itself"):
        package.nv_recall("a book", 3)  # type: ignore[arg-type]
    assert "1 document>" in repr(package.read_windows(model, texts / f"{KNOWN[0]}.txt", config=config))
