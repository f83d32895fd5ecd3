"""Every example runs as its docstring says and prints what it promises."""

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import byrote
from tests.scan.scans import TinyLab

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name: str, arguments: list[object], patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_every_example_is_tested_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in source] == []


def test_scan_in_python_finds_memorized_text_and_saves_a_run(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memorized = lab.files.targets / "prose-0064-00.txt"
    run_example("scan_in_python.py", [lab.model.path, memorized, "--out", tmp_path / "run"], monkeypatch)
    out = capsys.readouterr().out
    assert "prose-0064-00.txt@0: verbatim" in out
    assert "100% of" in out
    assert (tmp_path / "run" / "manifest.json").exists()


def test_policy_sweep_prints_a_row_per_policy(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example("policy_sweep.py", [lab.model.path, lab.files.targets], monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 4 * 3
    shares = {line[:28].strip(): int(line[28:].strip().removesuffix("%")) for line in lines[1:]}
    # Fewer competitors for a token that is likely anyway: truncation and cooling only help memorized text here.
    assert shares["temperature 0.5, top-k 40"] >= shares["temperature 1.5, top-k 40"]
    assert shares["temperature 1, top-k 10"] > 0


def test_recall_of_a_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"word{number}" for number in range(400)]
    (tmp_path / "book.txt").write_text(" ".join(words), encoding="utf-8")
    (tmp_path / "generation.txt").write_text("Well then: " + " ".join(words[100:300]), encoding="utf-8")
    run_example("recall_of_a_generation.py", [tmp_path / "book.txt", tmp_path / "generation.txt"], monkeypatch)
    assert capsys.readouterr().out == "near-verbatim recall: 50.0%\n"


def test_the_ngram_model_reproduces_what_it_was_trained_on(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = lab.files.targets / "prose-0064-00.txt"
    control = sorted(lab.files.controls.glob("*.txt"))[0]
    run_example("ngram_model.py", [target, "--control", control], monkeypatch)
    shares = dict(re.findall(r"^(\w+): (\d+)% of \d+ windows", capsys.readouterr().out, re.MULTILINE))
    assert shares.keys() == {"target", "control"}
    assert int(shares["target"]) >= 90
    assert int(shares["control"]) <= 10


def test_records_by_copies_prints_a_rate_for_every_number_of_copies_and_every_kind(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [lab.model.path, lab.files.catalogue, "--records", 30, "--out", tmp_path / "run"]
    run_example("records_by_copies.py", arguments, monkeypatch)
    line = r"^ *(\S.*?) +([0-9.]+)% of +(\d+) records \(([0-9.]+)% to ([0-9.]+)%\)$"
    rates = {name: tuple(map(float, numbers)) for name, *numbers in re.findall(line, capsys.readouterr().out, re.M)}
    assert rates.keys() == {"0 copies", "1 copies", "16 copies", "64 copies", "prose, target", "prose, control"}
    shared = pl.read_parquet(tmp_path / "run" / "results.parquet")["shared_with"].count()
    assert sum(count for name, (_, count, *_) in rates.items() if "copies" in name) == 30 - shared
    assert rates["64 copies"][0] > rates["0 copies"][0]
    assert all(low <= share <= high for share, _, low, high in rates.values())


def test_train_with_panel_shows_that_extractable_windows_follow_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate, which is not installed")
    run_example("train_with_panel.py", ["--out", tmp_path], monkeypatch)
    out = capsys.readouterr().out
    line = r"^ *(\d+) cop(?:y|ies): (\d+) of (\d+) windows became extractable"
    found = {int(copies): (int(hits), int(windows)) for copies, hits, windows in re.findall(line, out, re.M)}
    assert found.keys() == {1, 16, 64}
    assert found[1][0] == 0
    assert found[64][0] == found[64][1]
    half = {int(copies): int(step) for copies, step in re.findall(r"^ *(\d+) copies.*by step (\d+)$", out, re.M)}
    assert half[64] < half[16], "what stands in the data more often becomes extractable earlier"
    controls = re.findall(r"^ *\d+ +\S+% +\S+% +(\S+)%", out, re.M)
    assert len(controls) == 10
    assert set(controls) == {"0.0"}


def write_arrays(lab: TinyLab, folder: Path, rows: int, *, tokens: int = 12) -> list[list[int]]:
    """Windows of the lab's passages as the challenge's arrays; the suffixes."""
    model = byrote.load_model(str(lab.model.path), device="cpu")
    texts = [passage.text for passage in (*lab.model.targets, *lab.model.controls)]
    encoded = [encoding.ids[: 2 * tokens] for encoding in model.encode_batch(texts)]
    ids = np.array([window for window in encoded if len(window) == 2 * tokens][:rows], dtype=np.uint16)
    np.save(folder / "val_prefix.npy", ids[:, :tokens])
    np.save(folder / "val_suffix.npy", ids[:, tokens:])
    suffixes: list[list[int]] = ids[:, tokens:].tolist()
    return suffixes


def test_extraction_challenge_writes_guesses_that_its_rules_score_alike(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suffixes = write_arrays(lab, tmp_path, 20)
    arguments = [lab.model.path, tmp_path / "val_prefix.npy", "--out", tmp_path / "guesses.csv"]
    run_example("extraction_challenge.py", arguments, monkeypatch)
    rows = pl.read_csv(tmp_path / "guesses.csv")
    assert rows.columns == ["Example ID", "Suffix Guess"]
    right = [json.loads(guess) == suffixes[example] for example, guess in rows.iter_rows()]
    out = capsys.readouterr().out
    assert f"{len(right)} guesses for {len(suffixes)} examples" in out, "an answer that ends early is no guess"
    assert 0 < sum(right) < len(right)
    assert right[0], "the surest guess is text that the model was trained on many times"
    assert f"{sum(right) / 1000:.1%} of 1000 examples solved" in out


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 5))
def test_recall_counts_what_is_solved_before_the_last_allowed_error(are_right: list[bool], errors: int) -> None:
    recall = runpy.run_path(str(EXAMPLES / "extraction_challenge.py"))["recall_at_errors"]
    wrong = [place for place, is_right in enumerate(are_right) if not is_right]
    end = wrong[errors - 1] if len(wrong) >= errors else len(are_right)
    assert recall(are_right, errors=errors, examples=9) == pytest.approx(sum(are_right[:end]) / 9)
