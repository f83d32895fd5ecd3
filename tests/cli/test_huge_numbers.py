"""Numbers that would need more memory than there is: one sentence before anything is allocated, and no folder."""

from pathlib import Path

import pytest

from byrote.scan.pipeline import Pipeline
from byrote.search import sizing
from tests.cli.test_bad_input import assert_one_sentence
from tests.scan.scans import Command, TinyLab, scan_arguments

HUGE = 10**9
SCAN = {
    "slots": ("1,000,000,000 slots", "give slots", "or fewer"),
    "beam_width": ("1,000,000,000 beams", "lower --beam-width"),
    "edit_budget": ("edit-budget is 1000000000", "suffix of 8 tokens"),
    "prefix_tokens": ("1000000008 tokens", "at most 128"),
    "suffix_tokens": ("1000000012 tokens", "at most 128"),
}
HARMLESS = (
    "batch_windows",
    "windows_per_part",
    "stride_chars",
    "keep",
    "sample",
    "screen_min_windows",
)


def one_text(lab: TinyLab) -> Path:
    return sorted(lab.files.targets.iterdir())[-1]


@pytest.mark.parametrize("name", SCAN)
def test_a_scan_too_large_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path, name: str) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(one_text(lab),), **{name: HUGE}))
    assert_one_sentence(outcome, *SCAN[name])
    assert not (tmp_path / "run").exists()


def test_slots_without_a_search_allocate_nothing(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    arguments = scan_arguments(lab, tmp_path / "run", texts=(one_text(lab),), measures="greedy,verbatim", slots=HUGE)
    assert byrote(*arguments).code == 0


def test_a_scan_takes_huge_numbers_that_allocate_nothing(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    options = dict.fromkeys(HARMLESS, HUGE)
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(one_text(lab),), **options))
    assert outcome.code == 0, outcome


def test_slots_beyond_the_automatic_choice_are_allowed_while_they_fit(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(one_text(lab),), slots=1000))
    assert outcome.code == 0, outcome


def test_batches_that_do_not_fit_are_refused(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "available_memory", lambda: 100_000)
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", batch_windows=HUGE))
    assert_one_sentence(outcome, "windows in one pass would take", "give --batch-windows 1 or fewer")
    assert not (tmp_path / "run").exists()


def test_more_samples_than_memory_holds_are_refused(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    assert byrote(*scan_arguments(lab, tmp_path / "run", limit=2)).code == 0
    given = (tmp_path / "run", "--device", "cpu", "--samples", HUGE, "--replicates", HUGE)
    assert_one_sentence(byrote("mc", *given), "1,000,000,000 samples", "lower --samples")


@pytest.mark.parametrize(("name", "value"), [("prior-prefixes", 30), ("trials", 30)])
def test_too_many_drawn_prefixes_are_refused(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    """Huge numbers take the corpus whole; what lies below its size is drawn and must fit."""
    monkeypatch.setattr(sizing, "available_memory", lambda: 1000)
    other = {"prior-prefixes": "trials", "trials": "prior-prefixes"}[name]
    window = ("--prefix-tokens", 12, "--suffix-tokens", 8, "--device", "cpu", f"--{name}", value, f"--{other}", 1)
    texts = ("--text", one_text(lab), "--prior-text", lab.files.targets)
    outcome = byrote("prior", "--model", lab.model.path, *texts, "--out", tmp_path / "run", *window)
    assert_one_sentence(outcome, "drawing", "lower --prior-prefixes or --trials")


@pytest.mark.parametrize("name", ["beams", "completions"])
def test_too_many_answers_at_once_are_refused(lab: TinyLab, byrote: Command, tmp_path: Path, name: str) -> None:
    seed = ("--prefix-words", 10, "--target-words", 5, "--style", "text", "--device", "cpu", f"--{name}", HUGE)
    given = ("--model", lab.model.path, "--book", one_text(lab), "--out", tmp_path / "run", *seed)
    assert_one_sentence(byrote("audit", *given), "1,000,000,000 answers at once", "lower --beams")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 119. TiB for an array"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 260000000000 bytes."),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
)
def test_memory_that_runs_out_all_the_same_is_one_sentence(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Pipeline, "run", fail)
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(one_text(lab),)))
    assert_one_sentence(outcome, "the memory is used up", "slots")


def test_another_error_of_torch_is_not_taken_for_a_lack_of_memory(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Pipeline, "run", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(one_text(lab),)))
    assert outcome.code == 70
    assert "unexpected RuntimeError: shapes do not match" in outcome.err
