"""Extraction-challenge arrays in, guess file out, judged by that benchmark's rules written down anew."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.scan.challenge import recall_at_errors
from rote.store.read import read_run
from tests.scan.scans import Command, TinyLab

NEAR = ("--measures", "greedy,near", "--edit-budget", "2", "--beam-width", "4", "--top-k", "10")
BLIND = ("--distance", "none", "--no-pin", "--screen", "off", "--stop-rule", "off")


def accepted_recall(file: Path, answers: np.ndarray, *, examples: int = 1000) -> float:
    """The benchmark's validation and its score, from its description: rows in the file's order, a guess is right when
    its last 50 ids are the answer's, and what is solved before the 100th error counts."""
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["Example ID", "Suffix Guess"]
    wrong, solved, best = 0, np.zeros(examples), 0.0
    for row in rows:
        example, words = int(row["Example ID"]), row["Suffix Guess"]
        assert 0 <= example < 1000
        assert (words[0], words[-1]) == ("[", "]")
        guess = [int(word) for word in words[1:-1].split(",")]
        assert len(guess) == answers.shape[1]
        if guess[-50:] == answers[-1000:][example][-50:].tolist():
            solved[example] = 1
            best = float(solved.mean()) if wrong < 100 else best
        else:
            wrong += 1
    return best


def write_arrays(lab: TinyLab, folder: Path, rows: int, *, tokens: int = 12) -> np.ndarray:
    """Windows of the lab's passages as the challenge's arrays."""
    from rote.models.hf import load

    model = load(str(lab.model.path), device="cpu")
    texts = [passage.text for passage in (*lab.model.targets, *lab.model.controls)]
    encoded = [encoding.ids for encoding in model.encode_batch(texts)]
    windows = [
        ids[start : start + 2 * tokens]
        for start in range(0, 200, 5)
        for ids in encoded
        if len(ids) >= start + 2 * tokens
    ]
    ids = np.array(windows[:rows], dtype=np.uint16)
    np.save(folder / "val_prefix.npy", ids[:, :tokens])
    np.save(folder / "val_suffix.npy", ids[:, tokens:])
    return ids[:, tokens:]


def scan(lab: TinyLab, folder: Path, out: str, *options: str) -> list[str]:
    return ["scan", "--model", str(lab.model.path), "--pairs", str(folder / "val_prefix.npy"),
            "--out", str(folder / out), "--device", "cpu", *options]  # fmt: skip


def test_guesses_are_accepted_and_score_what_the_command_says(lab: TinyLab, rote: Command, tmp_path: Path) -> None:
    answers = write_arrays(lab, tmp_path, 60)
    assert rote(*scan(lab, tmp_path, "greedy", "--measures", "greedy", "--greedy", "full")).code == 0
    assert rote(*scan(lab, tmp_path, "both", *NEAR, *BLIND, "--greedy", "full")).code == 0
    recalls = {}
    for name in ("greedy", "both"):
        outcome = rote("export", tmp_path / name, "--challenge", tmp_path / f"{name}.csv")
        assert outcome.code == 0
        recalls[name] = accepted_recall(tmp_path / f"{name}.csv", answers)
        assert f"{100 * recalls[name]:.1f} % of 1000 examples solved" in " ".join(outcome.err.split())
    results = read_run(tmp_path / "greedy").results
    assert recalls["greedy"] == (results["greedy_levenshtein"] == 0).sum() / 1000
    assert recalls["greedy"] >= 0.005, "some of the tiny model's passages are memorized"
    assert recalls["both"] >= recalls["greedy"] - 0.01, "the likelier of two guesses is hardly ever the worse one"


def test_arrays_of_the_challenges_own_shape_are_measured_and_scored(
    lab: TinyLab, rote: Command, tmp_path: Path
) -> None:
    answers = write_arrays(lab, tmp_path, 40, tokens=50)
    assert (answers.dtype, answers.shape) == (np.uint16, (40, 50))
    assert rote(*scan(lab, tmp_path, "run", "--measures", "greedy", "--greedy", "full")).code == 0
    assert rote("export", tmp_path / "run", "--challenge", tmp_path / "guesses.csv").code == 0
    right = (read_run(tmp_path / "run").results["greedy_levenshtein"] == 0).sum()
    assert accepted_recall(tmp_path / "guesses.csv", answers) == right / 1000
    assert right > 0, "passages of 64 copies are known by heart"


def test_guesses_come_surest_first_and_do_not_know_the_answers(lab: TinyLab, rote: Command, tmp_path: Path) -> None:
    answers = write_arrays(lab, tmp_path, 20)
    assert rote(*scan(lab, tmp_path, "true", *NEAR, *BLIND, "--greedy", "full")).code == 0
    np.save(tmp_path / "val_suffix.npy", np.roll(answers, 1, axis=0))
    assert rote(*scan(lab, tmp_path, "other", *NEAR, *BLIND, "--greedy", "full")).code == 0
    for name in ("true", "other"):
        assert rote("export", tmp_path / name, "--challenge", tmp_path / f"{name}.csv").code == 0
    guesses = [(tmp_path / f"{name}.csv").read_text().splitlines() for name in ("true", "other")]
    assert len(guesses[0]) == 21
    assert guesses[0] == guesses[1]


def test_a_run_whose_search_knew_the_target_has_no_guesses(lab: TinyLab, rote: Command, tmp_path: Path) -> None:
    write_arrays(lab, tmp_path, 12)
    assert rote(*scan(lab, tmp_path, "run", *NEAR, "--limit", "6")).code == 0
    outcome = rote("export", tmp_path / "run", "--challenge", tmp_path / "guesses.csv")
    assert outcome.code == 2
    assert "has no guess that does not know its target; scan with --greedy full" in " ".join(outcome.err.split())
    assert not (tmp_path / "guesses.csv").exists()
    neither = rote("export", tmp_path / "run")
    assert neither.code == 2
    assert "say what to write: --format csv" in " ".join(neither.err.split())


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=30), st.integers(1, 5))
def test_recall_counts_what_is_solved_before_the_last_allowed_error(
    ranked: list[tuple[int, bool]], errors: int
) -> None:
    wrong = [place for place, (_, is_right) in enumerate(ranked) if not is_right]
    end = wrong[errors - 1] if len(wrong) >= errors else len(ranked)
    solved = {example for example, is_right in ranked[:end] if is_right}
    assert recall_at_errors(ranked, errors=errors, examples=9) == pytest.approx(len(solved) / 9)
