"""`byrote study` from its file to the page: killed and resumed, across tokenizers, and its refusals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import yaml
from polars.testing import assert_frame_equal
from transformers import LlamaConfig, LlamaForCausalLM

from byrote.cli.commands import StudyCommand
from byrote.cli.study import changes_of
from byrote.errors import RunError
from byrote.lab.texts import write_passages
from byrote.lab.train import train_tokenizer
from byrote.models.base import LanguageModel
from byrote.models.load import open_model
from byrote.report.analysis.rates import split_rows
from byrote.report.view import load_view
from byrote.stats.population import Population
from byrote.store.manifest import read_manifest
from byrote.store.read import read_run
from byrote.study import run as study_run
from byrote.study.compare import paired_cells
from byrote.study.panels import study_drawings
from byrote.study.plan import make_axes, make_cells, plan_study, read_study_file
from byrote.study.report import study_content
from byrote.study.run import MeasuredCell, read_study, require_same_sources, run_study
from byrote.types import Split
from tests.scan.scans import SMALL, Command, option_arguments
from tests.study.conftest import TwoModels

PATIENCE_SECONDS = 120


def write_study(path: Path, models: TwoModels, **changes: Any) -> Path:
    """The file of a small study of both models; an option that is None is left out."""
    small = dict(SMALL)
    values = small | {
        "model": [str(models.smaller), str(models.lab.model.path)],
        "text": [str(models.lab.files.targets)],
        "sample": 12,
        **changes,
    }
    path.write_text(yaml.safe_dump({name: value for name, value in values.items() if value is not None}))
    return path


def kill_when(file: Path, out: Path, *, ready: str) -> None:
    """Run the study as a process of its own and kill it as soon as a file like `ready` is there."""
    command = [sys.executable, "-m", "byrote", "study", str(file), "--out", str(out)]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(out.glob(ready)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_killed_grid_resumes_without_repeating_finished_cells_and_gives_one_page(
    models: TwoModels, byrote: Command, tmp_path: Path
) -> None:
    file = write_study(
        tmp_path / "study.yaml", models, prefix_tokens=[10, 12], beam_width=[1, 4], sweep=["k=1"],
        montecarlo_windows=1, montecarlo_samples=20, control=[str(models.lab.files.controls)],
    )  # fmt: skip
    out = tmp_path / "study"
    kill_when(file, out, ready="cells/02-*/identity.json")
    assert not (out / "manifest.json").exists()
    (first,) = out.glob("cells/01-*")
    finished = read_manifest(first / "manifest.json")
    assert finished is not None
    assert "7 cells not measured yet" in " ".join(byrote("show", out).out.split())

    resumed = byrote("study", file, "--out", out)
    assert resumed.code == 0, resumed.err
    assert "cell 1 of 8" not in resumed.err
    assert "cell 2 of 8" in resumed.err
    assert read_manifest(first / "manifest.json") == finished
    assert len(list(out.glob("cells/*/manifest.json"))) == 8
    checked = byrote("verify", out)
    assert checked.code == 0
    assert checked.out.count("results.parquet") == 1 + 8 + 2, "the study's own, every cell's, every sampled model's"

    views = [load_view(next(out.glob(f"cells/0{number}-*"))) for number in (1, 5)]
    shown = " ".join(byrote("show", out).out.split())
    assert f"models {views[0].model} and {views[1].model} target texts" in shown
    page = (out / "report/index.html").read_text()
    assert all(view.model in page for view in views)
    for name in ("scaling", "prefix-length", "beam-width", "edits", "sweep-1", "montecarlo-1"):
        assert (out / f"report/figures/study-{name}.png").exists(), name
    assert page.count("<figure") == len(list(out.glob("report/figures/*.svg")))
    cells = pl.read_csv(out / "report/tables/cells.csv")
    assert cells["cell"].n_unique() == 8
    sets = pl.read_csv(out / "report/tables/sets.csv")
    assert sets["run"].n_unique() == 8
    assert sets["exact_at_next"].null_count() == sets.height // 2, "the larger model has none after it"
    own = read_run(next(out.glob("cells/01-*"))).results
    assert cells["windows"][0] == own.filter(pl.col("split") == "target").height < own.height
    assert set(pl.read_csv(out / "report/tables/policies.csv")["policy"]) == {"k=10 (searched)", "k=1"}

    table = next(out.glob("cells/05-*/results.parquet"))
    before = (out / "manifest.json").read_bytes()
    assert "nothing was measured" in byrote("study", file, "--out", out).err
    assert (out / "manifest.json").read_bytes() == before
    table.write_bytes(table.read_bytes()[:-1])
    assert byrote("verify", out).code == 2


def test_a_model_is_loaded_once_for_all_its_cells_which_say_what_a_scan_alone_says(
    models: TwoModels, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []

    def counted(name: str, **given: Any) -> LanguageModel:
        loaded.append(name)
        return open_model(name, **given)

    monkeypatch.setattr(study_run, "open_model", counted)
    file = write_study(
        tmp_path / "study.yaml", models, beam_width=[1, 4], sample=6, montecarlo_windows=1, montecarlo_samples=20
    )
    out = tmp_path / "study"
    assert byrote("study", file, "--out", out).code == 0
    assert loaded == [str(models.smaller), str(models.lab.model.path)]
    assert "nothing was measured" in byrote("study", file, "--out", out).err
    assert len(loaded) == 2, "a finished study needs no model"
    alone = SMALL | {"beam_width": 4, "sample": 6}
    options = option_arguments(alone)
    places = ["--model", models.lab.model.path, "--text", models.lab.files.targets, "--out", tmp_path / "alone"]
    assert byrote("scan", *places, *options).code == 0
    (last,) = out.glob("cells/04-*")
    assert_frame_equal(read_run(last).results, read_run(tmp_path / "alone").results)


def targets_of(one: MeasuredCell) -> Population:
    return one.view.population.select(split_rows(one.view.population, Split.TARGET))


def test_cells_of_every_prefix_and_target_length_have_the_same_windows(
    models: TwoModels, byrote: Command, tmp_path: Path
) -> None:
    file = write_study(
        tmp_path / "study.yaml", models, model=str(models.smaller), measures=["verbatim"], prefix_tokens=[5, 11],
        suffix_tokens=[12, 4], stride_chars=50, sample=20,
    )  # fmt: skip
    out = tmp_path / "study"
    assert byrote("study", file, "--out", out).code == 0
    study = read_study(out)
    pairs = paired_cells(study)
    assert [pair.axis.name for pair in pairs] == ["prefix_tokens"] * 2 + ["suffix_tokens"] * 2
    for pair in pairs:
        assert pair.pairing.unpaired_share == 0
        # By hand: the same characters after another prefix; the same first character before another length.
        sides = [
            [
                (document, start, end if pair.axis.name == "prefix_tokens" else None)
                for document, start, end in zip(
                    part.document, part.suffix_char_start.tolist(), part.char_end.tolist(), strict=True
                )
            ]
            for part in (targets_of(pair.first), targets_of(pair.second))
        ]
        assert [sides[1].index(span) for span in sides[0]] == pair.pairing.second.tolist()
    lengths = {
        tuple(one.cell.settings.values())[1:]: one.view.results.select(
            pl.col("prefix_ids", "suffix_ids").list.len().unique()
        ).row(0)
        for one in study.cells
    }
    assert lengths == {(str(a), str(t)): (a, t) for a in (5, 11) for t in (12, 4)}
    assert "100 % of the windows in these comparisons are paired" in " ".join(study_content(study).sentences)


def another_tokenizer(folder: Path) -> Path:
    """An untrained model that cuts the same letters into shorter tokens than the tiny models do."""
    tokenizer = train_tokenizer(write_passages(3, 20, least_words=80), vocabulary_size=300)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(vocab_size=300, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_windows_of_two_tokenizers_are_paired_by_span_and_the_rest_is_stated(
    models: TwoModels, byrote: Command, tmp_path: Path
) -> None:
    stranger = another_tokenizer(tmp_path / "stranger")
    file = write_study(
        tmp_path / "study.yaml", models, model=[str(models.lab.model.path), str(stranger)], measures=["verbatim"],
        suffix_tokens=14, stride_chars=9, sample=None, overlap=0.4,
    )  # fmt: skip
    out = tmp_path / "study"
    assert byrote("study", file, "--out", out).code == 0
    study = read_study(out)
    (pair,) = paired_cells(study)
    assert len(pair.pairing.first) > 20
    assert 0 < pair.pairing.unpaired_share < 1
    parts = [targets_of(one) for one in study.cells]
    for row, column in zip(pair.pairing.first, pair.pairing.second, strict=True):
        first, second = ((part, place) for part, place in zip(parts, (row, column), strict=True))
        assert first[0].document[first[1]] == second[0].document[second[1]]
    assert pair.verbatim is not None
    hits = [part.verbatim() >= 0.001 for part in parts]
    assert pair.verbatim.first == pytest.approx(hits[0][pair.pairing.first].mean())
    words = " ".join(study_content(study).sentences)
    alone = pair.pairing.unpaired_first + pair.pairing.unpaired_second
    assert f"{alone} of" in words
    assert "could not be paired" in words


def test_published_numbers_stand_beside_the_same_measure_of_their_cells(
    models: TwoModels, byrote: Command, tmp_path: Path
) -> None:
    smaller = str(models.smaller)
    published = [
        {"measure": "verbatim", "where": "model=another", "value": 0.5, "source": "a table, p. 3"},
        {"measure": "verbatim", "where": f"model={smaller}", "value": 0.0192, "source": "a table, p. 1"},
        {"measure": "near", "where": f"model={smaller}", "value": 23, "source": "a table, p. 2"},
    ]
    file = write_study(tmp_path / "study.yaml", models, published=published, about="What was printed?")
    out = tmp_path / "study"
    assert byrote("study", file, "--out", out).code == 0
    rows = pl.read_csv(out / "report/tables/published.csv")
    assert rows["published"].to_list() == ["1.92 %", "23", "50.00 %"]
    results = read_run(next(out.glob("cells/01-*"))).results
    verbatim = (results["p_verbatim"] >= 0.001).mean()
    near = (results["mass_lower"].list.last() >= 0.001).sum()
    assert rows["here"].to_list() == [f"{100 * verbatim:.2f} %", str(near), ""]  # type: ignore[operator]
    shown = byrote("show", out).out
    assert "What was printed?" in shown
    assert 0 < shown.find("Every cell") < shown.find("Published numbers"), "what was measured comes first"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "model is missing"),
        ({"beam_width": [4, 4]}, "beam_width has a value twice"),
        ({"beam_width": [4, 0]}, "beam-width is 0; it must be at least 1"),
        ({"policy": ["k=40", "q=3"]}, "sweep has 'q=3'"),
        ({"texts": ["a.txt"]}, "both texts and text"),
        ({"beam_with": [4]}, "unknown option beam_with"),
        ({"published": [{"measure": "near", "value": 1}]}, "has no source"),
        ({"published": [{"measure": "nv_recall", "value": 1, "source": "a table"}]}, "nv_recall, which no scan has"),
        ({"measurement": "poem"}, "measurement is 'poem'"),
        ({"measurement": "prior", "beam_width": 4}, "unknown option beam_width"),
        ({"profile": "gpt-5"}, "profile is 'gpt-5'; use one of"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence_and_nothing_is_measured(
    models: TwoModels, byrote: Command, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    file = write_study(tmp_path / "study.yaml", models, **changes)
    outcome = byrote("study", file, "--out", tmp_path / "study")
    assert outcome.code == 2
    assert words in " ".join(outcome.err.split())
    assert not (tmp_path / "study").exists()


def test_a_text_that_was_edited_between_cells_is_refused(models: TwoModels, tmp_path: Path) -> None:
    cells = make_cells(make_axes({"beam_width": ["1", "2"]}))
    model = {"name": "m", "weights_hash": "w"}
    same, edited = ({"model": model, "texts": {"book": {"content_hash": digest}}} for digest in ("one", "two"))
    require_same_sources(cells, [same, same])
    with pytest.raises(RunError, match="text book was not the same in cells 01"):
        require_same_sources(cells, [same, edited])
    more = {"model": model, "texts": same["texts"] | {"another": {"content_hash": "x"}}}
    with pytest.raises(RunError, match="the set of texts"):
        require_same_sources(cells, [same, more])


def test_every_policy_and_text_with_cells_of_its_own_is_drawn(models: TwoModels, tmp_path: Path) -> None:
    texts = sorted(models.lab.files.targets.iterdir())[:2]
    policies = ["k=10", "t=0.5+k=10", "p=0.9"]
    file = write_study(
        tmp_path / "study.yaml", models, model=str(models.lab.model.path), text=None, texts=list(map(str, texts)),
        policy=policies, top_k=None, sample=6,
    )  # fmt: skip
    out = tmp_path / "study"
    values = read_study_file(file)
    run_study(plan_study(values, place="here"), out)
    study = read_study(out)
    drawings = {drawing.name: drawing.figure for drawing in study_drawings(study)}
    assert {"study-policies", "study-texts", "study-policy-queries-1", "study-policy-queries-2"} <= set(drawings)
    for axes in drawings["study-policy-queries-1"].axes:
        labels = [str(line.get_label()) for line in axes.get_lines()]
        assert [label for label in labels if not label.startswith("_")] == policies, "dashed parts have no label"
    rates = drawings["study-policies"].axes[0]
    for line, text in zip(rates.get_lines(), texts, strict=True):
        own = [one for one in study.cells if one.cell.settings["texts"] == str(text)]
        hits = [(one.view.population.verbatim() >= 0.001).mean() for one in own]
        assert list(line.get_ydata()) == pytest.approx(hits)
    policies_shown = [row[1] for cells in study_content(study).tables if cells.name == "policies" for row in cells.rows]
    assert policies_shown == [f"{policy} (searched)" for policy in policies] * 2


def test_models_texts_the_sample_and_options_of_a_file_are_replaced() -> None:
    values = {"model": ["a", "b"], "texts": ["x", "y"], "control": ["c"], "sample": "9", "top_k": "40"}

    def changes(**given: Any) -> dict[str, Any]:
        return changes_of(StudyCommand(file=Path("study.yaml"), **given), values)

    assert changes() == {}
    assert changes(model=("m",), sample=5) == {"model": ["m"], "sample": 5}
    assert changes(text=("t",), change=("top-k=10",)) == {"texts": ["t"], "top_k": "10"}
