"""`byrote.*`: what is public, what results can be asked, runs read back, priors and audits from Python."""

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import byrote
from byrote.errors import ConfigError, RunError
from byrote.models.base import LanguageModel
from tests.scan.scans import SMALL, TinyLab

OPTIONS: dict[str, Any] = dict(SMALL) | {"limit": 10}


@pytest.fixture(scope="module")
def model(lab: TinyLab) -> LanguageModel:
    return byrote.load_model(lab.model.path, device="cpu")


@pytest.fixture(scope="module")
def windows(lab: TinyLab, model: LanguageModel) -> byrote.Windows:
    return byrote.read_windows(model, lab.files.targets, control=lab.files.controls, **OPTIONS)


@pytest.fixture(scope="module")
def results(model: LanguageModel, windows: byrote.Windows) -> byrote.Results:
    return byrote.scan(model, windows)


@pytest.fixture(scope="module")
def saved(results: byrote.Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results.save(tmp_path_factory.mktemp("saved") / "run")


def plain(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that can be compared: NaN is not equal to itself."""
    return [
        {name: "NaN" if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
        for row in rows
    ]


def test_the_public_names_are_listed_once_and_dir_shows_them() -> None:
    assert set(byrote.__all__) == {*byrote._HOMES, "errors", "testing"}
    assert set(dir(byrote)) == {*byrote.__all__, "__doc__", "__version__"}
    for name in byrote.__all__:
        assert getattr(byrote, name).__doc__, f"byrote.{name} has no docstring"


def test_functions_are_not_hidden_by_rooms_of_their_name() -> None:
    import byrote.prior.run
    import byrote.scan.run

    assert callable(byrote.prior)
    assert callable(byrote.scan)
    assert sys.modules["byrote.prior"] is not byrote.prior


def test_results_say_what_they_are(results: byrote.Results, windows: byrote.Windows) -> None:
    assert repr(results).startswith("<byrote.Results: 10 windows of ")
    assert "of them extractable; model " in repr(results)
    assert repr(windows).startswith("<byrote.Windows: 10 windows of ")


def test_every_table_holds_the_same_rows(results: byrote.Results) -> None:
    rows = list(results)
    assert plain(results.to_arrow().to_pylist()) == plain(rows)
    assert plain(results.to_polars().to_dicts()) == plain(rows)
    pytest.importorskip("pandas", reason="pandas is an extra")
    frame = results.to_pandas()
    assert frame["window_id"].tolist() == [row["window_id"] for row in rows]
    assert frame["mass_lower"].map(list).tolist() == [row["mass_lower"] for row in rows]


def test_without_pandas_one_sentence_says_what_to_install(
    results: byrote.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install 'byrote\[pandas\]', or use to_polars"):
        results.to_pandas()


def test_rates_in_memory_are_those_of_the_saved_run(results: byrote.Results, saved: Path) -> None:
    stored = byrote.read_run(saved)
    assert isinstance(stored, byrote.SavedRun)
    assert_frame_equal(results.rates(), stored.rates())
    near = results.rates().filter((pl.col("criterion") == "near") & (pl.col("split") == "target"))
    extractable = [row["mass_lower"][-1] >= 0.001 for row in results if row["split"] == "target"]
    assert near.sort("edits")["hits"][-1] == sum(extractable)


def test_a_saved_run_is_read_back(results: byrote.Results, saved: Path) -> None:
    run = byrote.read_run(saved)
    assert isinstance(run, byrote.SavedRun)
    assert (run.kind, run.is_complete, len(run)) == ("scan", True, 10)
    assert repr(run) == f"<byrote.SavedRun: scan with 10 rows; {saved}>"
    assert plain(run.to_polars().to_dicts()) == plain(results)
    assert plain(run.to_arrow().to_pylist()) == plain(results)
    assert run.manifest is not None
    found = run.continuations()
    assert found is not None
    assert found.to_dicts() == list(results.continuations())
    with pytest.raises(RunError, match="nowhere"):
        byrote.read_run(saved / "nowhere")


def test_comparing_scans_gives_paired_differences(
    model: LanguageModel, windows: byrote.Windows, results: byrote.Results, saved: Path
) -> None:
    cooler = byrote.scan(model, windows, temperature=0.5)
    table = results.compare(cooler)
    targets = [(first, second) for first, second in zip(results, cooler, strict=True) if first["split"] == "target"]
    verbatim = table.filter(pl.col("criterion") == "verbatim").row(0, named=True)
    shares = [sum(pair[side]["p_verbatim"] >= 0.001 for pair in targets) / len(targets) for side in (0, 1)]
    assert [verbatim["first"], verbatim["second"]] == pytest.approx(shares)
    assert verbatim["difference"] == pytest.approx(shares[1] - shares[0])
    assert verbatim["windows"] == len(targets)
    assert table.filter(pl.col("criterion") == "near")["edits"].to_list() == [0, 1, 2]
    same = byrote.read_run(saved)
    assert isinstance(same, byrote.SavedRun)
    nothing = same.compare(results)
    assert nothing["difference"].to_list() == [0.0] * len(nothing)
    assert all(math.isnan(low) for low in nothing["interval_low"]), "no spread, no interval"
    stricter = byrote.scan(model, windows, threshold=0.5)
    for table in (results.compare(stricter), stricter.compare(results)):
        assert table["threshold"].unique().to_list() == [0.5], "below it the second scan may have stopped"
        assert table["difference"].to_list() == [0.0] * len(table), "one model differs from itself nowhere"
        assert set(table["criterion"]) == {"greedy", "verbatim", "near"}


def test_scans_of_other_windows_are_not_compared(model: LanguageModel, lab: TinyLab, results: byrote.Results) -> None:
    other = byrote.scan(model, byrote.read_windows(model, lab.files.targets, **OPTIONS | {"stride_chars": 30}))
    with pytest.raises(RunError, match="are not those of"):
        results.compare(other)
    with pytest.raises(ConfigError, match="not dict"):
        results.compare({})  # type: ignore[arg-type]


def test_results_in_memory_and_saved_ones_become_a_page(results: byrote.Results, saved: Path, tmp_path: Path) -> None:
    page = results.report(tmp_path / "page")
    assert page == tmp_path / "page" / "index.html"
    assert "extractable" in page.read_text(encoding="utf-8")
    run = byrote.read_run(saved)
    assert isinstance(run, byrote.SavedRun)
    assert run.report() == saved / "report" / "index.html"


def test_a_prior_from_python_is_the_run_of_the_command(lab: TinyLab, model: LanguageModel, tmp_path: Path) -> None:
    said: list[str] = []
    options: dict[str, Any] = {
        "prior_text": lab.files.controls,
        "prefix_tokens": 8,
        "suffix_tokens": 4,
        "limit": 4,
        "prior_prefixes": 20,
        "trials": 2,
        "say": said.append,
    }
    run = byrote.prior(model, lab.files.targets, out=tmp_path / "memory", **options)
    named = byrote.prior(lab.model.path, lab.files.targets, out=tmp_path / "named", device="cpu", **options)
    assert (run.kind, run.is_complete) == ("prior", True)
    assert_frame_equal(run.to_polars(), named.to_polars())
    with pytest.raises(RunError, match="is a prior run, not a scan"):
        run.rates()
    with pytest.raises(ConfigError, match=r"byrote.prior has the unknown option trails. Did you mean trials\?"):
        byrote.prior(model, "book.txt", prior_text="other.txt", out=tmp_path / "x", trails=3)


def test_an_audit_from_python_leaves_its_folder_and_exhibit(lab: TinyLab, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    parts = sorted(lab.files.targets.glob("prose-*.txt"))[:3]
    book.write_text(" ".join(part.read_text(encoding="utf-8") for part in parts), encoding="utf-8")
    heard: list[int] = []
    audit = byrote.audit(
        str(lab.model.path),
        book,
        out=tmp_path / "audit",
        device="cpu",
        style="text",
        max_turns=1,
        max_tokens=16,
        on_answer=lambda place, answered: heard.append(answered),
    )
    assert audit.manifest["texts"]
    assert len(audit.trials) >= 1
    assert repr(audit).startswith("<byrote.AuditFolder: ")
    assert f"words of book.txt near-verbatim in the best of {len(audit.trials)} trials" in repr(audit)
    assert heard
    assert (tmp_path / "audit" / "report" / "index.html").exists()
    again = byrote.read_run(tmp_path / "audit")
    assert again == audit
    with pytest.raises(ConfigError, match=r"byrote.audit has the unknown option max_turn. Did you mean max_turns\?"):
        byrote.audit("model", book, out=tmp_path / "x", max_turn=3)


def test_every_error_is_a_byrote_error() -> None:
    with pytest.raises(byrote.ByroteError):
        byrote.load_model(None)
    assert issubclass(byrote.errors.WindowError, byrote.ByroteError)
