"""`byrote mc`: windows of a run, sampled plainly, beside what the run certified; a run of its own kind."""

import math
from pathlib import Path

import pytest

from byrote.models.hf.model import load
from byrote.store.read import read_run
from tests.scan.scans import SMALL, Command, TinyLab, scan_arguments


@pytest.fixture(scope="module")
def scanned(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from byrote.cli.main import main

    out = tmp_path_factory.mktemp("scanned") / "run"
    with pytest.raises(SystemExit) as ended:
        main(scan_arguments(lab, out, limit=12))
    assert ended.value.code == 0
    return out


def test_windows_of_a_run_are_sampled_by_its_own_model_and_options_and_agree_with_its_bounds(
    scanned: Path, byrote: Command, tmp_path: Path
) -> None:
    """Each exact interval misses with chance at most 5 %, so all three miss their bounds once in 8,000 runs."""
    out = tmp_path / "mc"
    sized = ["--sample", 3, "--samples", 200, "--interval", "exact", "--device", "cpu"]
    shown = byrote("mc", scanned, *sized, "--out", out)
    assert shown.code == 0, shown.err
    assert "certified" in shown.out
    sampled = read_run(out)
    assert sampled.manifest is not None
    assert sampled.manifest["config"]["edit_budget"] == SMALL["edit_budget"]
    assert sampled.manifest["config"]["top_k"] == SMALL["top_k"]
    rows = {row["window_id"]: row for row in read_run(scanned).results.to_dicts()}
    agreeing = 0
    for row in sampled.results.to_dicts():
        known = rows[row["window_id"]]
        assert (row["certified_lower"], row["certified_upper"]) == (known["mass_lower"][-1], known["mass_upper"][-1])
        assert row["curve_samples"] == [10, 20, 50, 100, 200]
        assert row["hits"] == row["curve_hits"][-1] == round(row["mass"] * 200)
        assert math.isnan(row["standard_error"]) == (row["hits"] in (0, 200))
        agreeing += row["mass_low"] <= row["certified_upper"] and row["certified_lower"] <= row["mass_high"]
    assert sampled.results.height == 3
    assert agreeing >= 1
    again = byrote("mc", scanned, *sized, "--out", out)
    assert again.out == shown.out


def test_other_weights_than_the_runs_are_refused(lab: TinyLab, scanned: Path, byrote: Command, tmp_path: Path) -> None:
    other = tmp_path / "other"
    model = load(str(lab.model.path), device="cpu")
    next(iter(model.model.parameters())).data[0, 0] += 0.5
    model.model.save_pretrained(other)
    for name in lab.model.path.glob("*token*"):
        (other / name.name).write_bytes(name.read_bytes())
    refused = byrote("mc", scanned, "--model", other, "--device", "cpu")
    assert refused.code == 2
    assert "has other weights" in refused.err


def test_one_window_by_id(scanned: Path, byrote: Command, tmp_path: Path) -> None:
    given = ["mc", scanned, "--device", "cpu", "--samples", 20]
    assert byrote(*given, "--sample", 2, "--out", tmp_path / "two").code == 0
    first = read_run(tmp_path / "two").results.to_dicts()[0]
    byrote(*given, "--window", first["window_id"], "--out", tmp_path / "one")
    (again,) = read_run(tmp_path / "one").results.to_dicts()
    assert repr(again) == repr(first), "a window's samples depend on nothing but the window and the seed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "run is missing"),
        (("scan", "--interval", "bayes"), "choose wilson, exact"),
        (("nothing",), "nothing"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(byrote: Command, arguments: tuple[str, ...], words: str) -> None:
    refused = byrote("mc", *arguments)
    assert refused.code == 2
    assert words in refused.err.splitlines()[-1]
    assert refused.err.count("error: ") == 1
