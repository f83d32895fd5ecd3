"""`byrote.*`: what is public, what results can be asked, runs read back, priors and audits from Python."""

import json
import math
import pydoc
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
    import byrote.study.run

    assert callable(byrote.prior)
    assert callable(byrote.scan)
    assert callable(byrote.study)
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


PROSE = {name: (name + " and ") * 40 for name in ("alpha", "beta")}


def test_texts_in_memory_are_cut_as_files_of_their_names_would_be(model: LanguageModel, tmp_path: Path) -> None:
    options = OPTIONS | {"limit": 6}
    for name, text in PROSE.items():
        (tmp_path / name).with_suffix(".txt").write_text(text, encoding="utf-8")
    files = [tmp_path / "alpha.txt", tmp_path / "beta.txt"]
    from_files = byrote.read_windows(model, files[:1], control=files[1:], **options)
    in_memory = byrote.read_windows(
        model,
        texts=[{"id": "alpha.txt", "text": PROSE["alpha"], "stars": 5}],
        control_texts=[{"id": "beta.txt", "text": PROSE["beta"]}],
        **options,
    )
    assert list(in_memory) == list(from_files)
    saved = byrote.scan(model, in_memory, measures="verbatim").save(tmp_path / "run")
    assert pl.read_parquet(saved / "texts.parquet")["text"].to_list() == list(PROSE.values())
    named = byrote.read_windows(model, texts=list(PROSE.values()), **options)
    assert {window.document for window in named} == {"text-1", "text-2"}
    assert {window.split for window in named} == {"target"}


def test_a_dataset_in_memory_is_read_row_by_row(model: LanguageModel) -> None:
    datasets = pytest.importorskip("datasets", reason="an extra: pip install 'byrote[datasets]'")
    rows = {"text": list(PROSE.values()), "id": [3, 4]}
    windows = byrote.read_windows(model, texts=datasets.Dataset.from_dict(rows), **OPTIONS | {"limit": 4})
    assert {window.document for window in windows} == {"3", "4"}
    with pytest.raises(byrote.ByroteError, match="a mapping; give one of its values"):
        byrote.read_windows(model, texts=datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows)}))


def test_pairs_in_memory_are_those_of_a_file(model: LanguageModel, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "prefix": PROSE["alpha"][:80], "suffix": " and so on and so on", "copies": 3},
        {"id": "b", "prefix": PROSE["beta"][:80], "suffix": " and so on and so on", "copies": 0, "kind": "phone"},
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    options: dict[str, Any] = {"edit_budget": 1, "device": "cpu"}
    windows = byrote.read_windows(model, pairs=rows, **options)
    assert list(windows) == list(byrote.read_windows(model, pairs=tmp_path / "pairs.jsonl", **options))
    assert [window.further for window in windows][1]["kind"] == "phone"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"texts": "one long text"}, "are one text; give a list of texts"),
        ({"texts": []}, "hold no text"),
        ({"texts": ["  "]}, "hold no text"),
        ({"texts": [3]}, "target text 1 is a int"),
        ({"texts": [{"body": "x"}]}, "field 'text' is missing"),
        ({"texts": ["\ud800 half"]}, "half of a surrogate pair"),
        ({"texts": ["a"], "text": "book.txt"}, "one of the three"),
        ({"texts": ["a"], "pairs": [{"prefix": "a", "suffix": "b"}]}, "one of the three"),
        ({"control_texts": ["a"]}, "target texts hold no text"),
        ({"pairs": [{"prefix": "a"}]}, "suffix is missing"),
        ({"pairs": [("a", "b")]}, "pair 1 is a tuple"),
    ],
)
def test_texts_in_memory_that_are_none_are_refused(model: LanguageModel, given: dict[str, Any], words: str) -> None:
    with pytest.raises(byrote.ByroteError, match=words):
        byrote.read_windows(model, **given)


def test_help_lists_every_option_with_its_words_and_an_example() -> None:
    from byrote.options import settable_of

    shown = pydoc.render_doc(byrote.scan, renderer=pydoc.plaintext)
    assert "results = byrote.scan(model, windows" in shown
    flat = " ".join(shown.split())
    for option in settable_of(byrote.RunConfig):
        assert f"{option.name}: {' '.join(option.help.split())}" in flat
    for function in (byrote.prior, byrote.audit, byrote.mc):
        assert "Options:" in (function.__doc__ or "")


def test_reprs_say_what_a_thing_is(model: LanguageModel, windows: byrote.Windows) -> None:
    assert repr(windows[0]) == f"<byrote.Window {windows[0].window_id!r}: target, 12 + 8 tokens>"
    assert repr(model).startswith(f"<byrote model {model.name}: ")
    assert repr(model).endswith("on cpu>")


def test_a_gate_judges_results_in_memory_as_it_does_a_folder(results: byrote.Results, saved: Path) -> None:
    for run in (results, saved, str(saved), byrote.read_run(saved)):
        assert byrote.gate(run, {"verbatim": 1.0}).outcome == "pass"  # type: ignore[arg-type]
        failed = byrote.gate(run, "verbatim=0")  # type: ignore[arg-type]
        assert failed.outcome == "fail"
        assert failed.findings[0].rule.text == "verbatim=0"
    assert byrote.gate(results, max_increase=["verbatim=0"], baseline=saved).outcome == "pass"
    with pytest.raises(ConfigError, match="ends in no number"):
        byrote.gate(results, ["verbatim"])


def test_risk_is_a_frame_by_document_and_queries(results: byrote.Results, saved: Path) -> None:
    frame = byrote.risk(saved, [100, 1])
    assert_frame_equal(frame.drop("run"), byrote.risk(results, [1, 100]).drop("run"))
    assert frame["queries"].unique().sort().to_list() == [1.0, 100.0]
    row = frame.filter((pl.col("edits") == 0) & (pl.col("queries") == 100)).row(0, named=True)
    own = [each for each in results if each["document"] == row["document"]]
    mean = sum(each["p_verbatim"] for each in own) / len(own)
    assert row["leak_at_least"] == pytest.approx(1 - (1 - mean) ** 100)
    with pytest.raises(ConfigError, match="name one of its documents"):
        byrote.risk(saved, document="nowhere.txt")
    with pytest.raises(ConfigError, match="at least 1"):
        byrote.risk(saved, [0])


def test_windows_of_a_scan_are_sampled_from_python(model: LanguageModel, lab: TinyLab, saved: Path) -> None:
    frame = byrote.mc(saved, model=model, sample=2, samples=40)
    assert len(frame) == 2
    assert frame["samples"].to_list() == [40, 40]
    assert (frame["mass"] == frame["hits"] / 40).all()
    assert_frame_equal(frame, byrote.mc(saved, model=lab.model.path, device="cpu", sample=2, samples=40))
    with pytest.raises(ConfigError, match=r"byrote.mc has the unknown option sampels. Did you mean sample"):
        byrote.mc(saved, sampels=3)


def test_a_study_from_python_has_a_row_for_every_cell(lab: TinyLab, tmp_path: Path) -> None:
    grid: dict[str, Any] = dict(SMALL) | {
        "model": str(lab.model.path),
        "text": str(lab.files.targets),
        "beam_width": [2, 4],
        "limit": 4,
    }
    said: list[str] = []
    run = byrote.study(grid, out=tmp_path / "study", say=said.append)
    assert (run.kind, run.is_complete, len(run)) == ("study", True, 2)
    assert said
    assert byrote.study(grid, out=tmp_path / "study").to_polars().equals(run.to_polars()), "nothing is measured twice"
    with pytest.raises(byrote.ByroteError, match="beam_widht"):
        byrote.study(grid | {"beam_widht": 3}, out=tmp_path / "other")


def test_every_error_is_a_byrote_error() -> None:
    with pytest.raises(byrote.ByroteError):
        byrote.load_model(None)
    assert issubclass(byrote.errors.WindowError, byrote.ByroteError)
