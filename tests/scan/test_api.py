"""The Python interface gives what the command gives."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import byrote as package
from byrote.errors import ByroteError, ConfigError
from byrote.models.hf.model import HuggingFaceModel
from byrote.scan.api import Results
from tests.scan.scans import SMALL, Command, TinyLab, scan_arguments

OPTIONS = dict(SMALL) | {"limit": 10}
CONFIG = package.RunConfig(**OPTIONS)


@pytest.fixture(scope="module")
def model(lab: TinyLab) -> HuggingFaceModel:
    return package.load_model(str(lab.model.path), device="cpu")


@pytest.fixture(scope="module")
def results(lab: TinyLab, model: HuggingFaceModel) -> Results:
    windows = package.read_windows(model, [lab.files.targets], control=[lab.files.controls], config=CONFIG)
    return package.scan(model, windows, CONFIG)


def test_names_are_imported_on_first_use_and_unknown_ones_are_refused() -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'scam'"):
        package.scam  # noqa: B018


def test_importing_the_package_does_not_wait_for_torch() -> None:
    import subprocess
    import sys

    question = "import sys, byrote; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_results_are_rows_in_the_order_of_the_windows(results: Results, lab: TinyLab) -> None:
    rows = list(results)
    assert len(rows) == len(results) == 10
    starts = [(row["split"] == "control", row["document"], row["char_start"]) for row in rows]
    assert starts == sorted(starts)
    assert repr(results.to_polars().to_dicts()) == repr(rows), "NaN is unequal to itself, but written as itself"


def test_saved_results_are_the_run_the_command_writes(
    results: Results, lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    saved = results.save(tmp_path / "saved")
    arguments = [*scan_arguments(lab, tmp_path / "run", limit=10), "--control", str(lab.files.controls)]
    assert byrote(*arguments).code == 0
    for table in ("results.parquet", "continuations.parquet"):
        assert_frame_equal(
            pl.read_parquet(saved / table),
            pl.read_parquet(tmp_path / "run" / table),
            rel_tol=1e-5,
            abs_tol=1e-12,
        )
    again = [str(saved) if argument == str(tmp_path / "run") else argument for argument in arguments]
    assert "nothing was measured" in byrote(*again).err
    assert results.save(saved) == saved, "saving twice changes nothing"


def test_results_are_saved_with_their_texts_when_the_files_are_gone(
    model: HuggingFaceModel, lab: TinyLab, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    content = next(lab.files.targets.iterdir()).read_text(encoding="utf-8")
    text.write_text(content, encoding="utf-8")
    found = package.scan(model, package.read_windows(model, [text], config=CONFIG), CONFIG)
    text.unlink()
    assert pl.read_parquet(found.save(tmp_path / "saved") / "texts.parquet")["text"].to_list() == [content]


def test_continuations_are_the_ones_a_run_keeps(results: Results, tmp_path: Path) -> None:
    saved = results.save(tmp_path / "saved")
    stored = pl.read_parquet(saved / "continuations.parquet").to_dicts()
    assert list(results.continuations()) == stored


def test_a_part_of_the_windows_can_be_scanned_but_not_saved_as_a_run(
    model: HuggingFaceModel, lab: TinyLab, tmp_path: Path
) -> None:
    windows = package.read_windows(model, [lab.files.targets], config=CONFIG)
    some = package.scan(model, windows[:2], CONFIG)
    assert [row["window_id"] for row in some] == [window.window_id for window in windows[:2]]
    with pytest.raises(ConfigError, match=r"only results of windows from byrote\.read_windows"):
        some.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_windows_put_together_by_hand_have_a_table_with_what_some_of_them_carry(
    model: HuggingFaceModel, lab: TinyLab
) -> None:
    plain = package.read_windows(model, [lab.files.targets], config=CONFIG)
    with_controls = package.read_windows(model, [lab.files.targets], control=[lab.files.controls], config=CONFIG)
    controls = [window for window in with_controls if window.split == "control"]
    frame = package.scan(model, [*plain[:2], *controls[:2]], CONFIG, measures="verbatim").to_polars()
    assert frame["shared_share"].is_null().to_list() == [True, True, False, False]
    assert frame["split"].to_list() == ["target", "target", "control", "control"]


def test_windows_that_cannot_be_measured_are_refused_by_name(model: HuggingFaceModel, lab: TinyLab) -> None:
    first, second = package.read_windows(model, [lab.files.targets], config=CONFIG)[:2]
    refused = {
        f"2 windows are named {first.window_id}": replace(second, window_id=first.window_id),
        f"window {second.window_id} has tokens from .* to 1000, and those of .* are 0 to 767": replace(
            second, prefix_ids=(1000,)
        ),
        "has 0 prefix and 8 suffix tokens": replace(second, prefix_ids=()),
        "has a suffix of 2 tokens, and everything is within 2 edits": replace(second, suffix_ids=second.suffix_ids[:2]),
    }
    for words, window in refused.items():
        with pytest.raises(ConfigError, match=words):
            package.scan(model, [first, window], CONFIG)


@pytest.mark.parametrize("option", ["max_seconds", "max_evals"])
def test_what_only_the_command_does_is_refused_in_memory(model: HuggingFaceModel, lab: TinyLab, option: str) -> None:
    windows = package.read_windows(model, [lab.files.targets], config=CONFIG)
    with pytest.raises(ConfigError, match=f"{option} is 3"):
        package.scan(model, windows, CONFIG, **{option: 3})


@pytest.mark.parametrize("change", [{"stride_chars": 30}, {"limit": 5}, {"bos": "always"}])
def test_results_of_windows_that_were_cut_otherwise_are_not_saved_under_these_options(
    model: HuggingFaceModel, lab: TinyLab, tmp_path: Path, change: dict[str, object]
) -> None:
    """A manifest that names another stride than the windows have would be a number that cannot be traced."""
    windows = package.read_windows(model, [lab.files.targets], config=CONFIG)
    with pytest.raises(ByroteError, match=next(iter(change)).replace("_", ".")):
        package.scan(model, windows, package.RunConfig(**OPTIONS | change)).save(tmp_path / "run")


def test_bad_options_are_refused_as_by_the_command(model: HuggingFaceModel, lab: TinyLab) -> None:
    with pytest.raises(ConfigError, match="vocabulary has 768 tokens"):
        package.read_windows(model, [lab.files.targets], config=package.RunConfig(top_k=10_000))
    with pytest.raises(ByroteError, match="does not exist"):
        package.read_windows(model, ["nowhere.txt"])


def test_a_scan_of_greedy_answers_alone_has_rates(lab: TinyLab, model: HuggingFaceModel) -> None:
    config = replace(CONFIG, measures=("greedy",))
    windows = package.read_windows(model, [lab.files.targets], control=[lab.files.controls], config=config)
    rates = package.scan(model, windows, config).rates()
    assert set(rates["criterion"]) == {"greedy"}
    assert set(rates["split"]) == {"target", "control"}
    assert (rates["rate"] == rates["hits"] / rates["windows"]).all()
