"""Membership scores of a scan against a computation by hand, on the tiny model."""

import json
import math
import zlib
from pathlib import Path

import polars as pl
import pytest
import torch

from byrote.errors import ModelError
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.report.words import percent
from byrote.scan.measures.membership import begin, mean_of_lowest, membership_scores
from byrote.scan.options import RunConfig
from byrote.store.read import read_run
from tests.scan.scans import Command, TinyLab, scan_arguments


@pytest.fixture(scope="module")
def other_model(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model a little off, as a reference with the same tokenizer."""
    folder = tmp_path_factory.mktemp("reference")
    model = load(str(lab.model.path), device="cpu")
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.mul_(0.9)
    model.model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def log_probs_by_hand(model: HuggingFaceModel, ids: list[int], suffix: int) -> torch.Tensor:
    """[suffix, vocab] of a plain forward."""
    with torch.inference_mode():
        logits = model.model(torch.tensor([ids])).logits[0]
    return logits[-suffix - 1 : -1].double().log_softmax(-1)


def test_scores_equal_a_computation_by_hand_on_ten_windows(
    lab: TinyLab, byrote: Command, tmp_path: Path, other_model: Path
) -> None:
    out = tmp_path / "run"
    arguments = scan_arguments(
        lab, out, measures="verbatim,membership", limit=10, min_k=0.25, reference_model=other_model
    )
    assert byrote(*arguments).code == 0
    results = read_run(out).results
    assert results.height == 10
    model, reference = load(str(lab.model.path), device="cpu"), load(str(other_model), device="cpu")
    for row in results.iter_rows(named=True):
        suffix = row["suffix_ids"]
        every = log_probs_by_hand(model, row["prefix_ids"] + suffix, len(suffix))
        own = every[range(len(suffix)), suffix]
        loss = -float(own.mean())
        text = model.decode(suffix)
        mean = (every.exp() * every).sum(-1)
        deviation = ((every.exp() * every**2).sum(-1) - mean**2).sqrt()
        other = log_probs_by_hand(reference, row["prefix_ids"] + suffix, len(suffix))[range(len(suffix)), suffix]
        expected = {
            "loss": loss,
            "zlib_ratio": loss / len(zlib.compress(text.encode())),
            "min_k": float(own.sort().values[:2].mean()),
            "min_k_plus_plus": float(((own - mean) / deviation).sort().values[:2].mean()),
            "reference_loss": -float(other.mean()),
            "reference_ratio": loss + float(other.mean()),
        }
        # The packed forward sums in another order than the plain one: float32 logits of size 10.
        assert {name: row[name] for name in expected} == pytest.approx(expected, abs=2e-4, rel=2e-4)


def test_a_run_with_another_reference_is_another_run(
    lab: TinyLab, byrote: Command, tmp_path: Path, other_model: Path
) -> None:
    def scan(reference: object) -> int:
        options = {"measures": "verbatim,membership", "limit": 4, "reference_model": reference}
        return byrote(*scan_arguments(lab, tmp_path / "run", **options)).code

    assert scan(other_model) == 0
    assert scan(lab.model.path) == 2
    assert scan(other_model) == 0


def test_without_a_reference_its_columns_are_null(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    assert byrote(*scan_arguments(lab, tmp_path / "run", measures="membership", limit=4)).code == 0
    results = read_run(tmp_path / "run").results
    assert results.select(pl.col("reference_loss", "reference_ratio").null_count()).row(0) == (4, 4)
    assert "p_verbatim" not in results.columns


@pytest.mark.parametrize(("measures", "with_controls"), [("membership", True), ("membership", False), ("greedy", True)])
def test_scans_without_probabilities_are_shown_and_reported(
    lab: TinyLab, byrote: Command, tmp_path: Path, measures: str, with_controls: bool
) -> None:
    controls = ["--control", str(lab.files.controls)] if with_controls else []
    out = tmp_path / "run"
    assert byrote(*scan_arguments(lab, out, measures=measures, limit=12), *controls).code == 0
    shown = byrote("show", out)
    assert shown.code == 0, shown.err
    assert "the scan measured no probabilities" in " ".join(shown.out.split())
    (entry,) = json.loads(byrote("show", out, "--json").out)
    assert byrote("report", out).code == 0
    tables = {path.stem: pl.read_csv(path) for path in (out / "report/tables").glob("*.csv")}
    scored = read_run(out).results
    if measures == "greedy":
        exact = scored.filter(pl.col("split") == "target")["greedy_levenshtein"].eq_missing(0)
        assert tables["rates"]["target"][0].split(" (")[0] == percent(float(exact.mean()))
        return
    medians = dict(tables["scores"].filter(pl.col("run").str.contains("target")).select("score", "median").iter_rows())
    losses = scored.filter(pl.col("split") == "target")["loss"]
    assert float(medians["loss"]) == pytest.approx(losses.median(), rel=1e-3)
    assert (out / "report/figures/membership.svg").exists() == with_controls
    (numbers,) = entry["numbers"].values()
    assert {one["score"] for one in numbers["membership"]} == (
        {"loss", "zlib_ratio", "min_k", "min_k_plus_plus"} if with_controls else set()
    )


def test_a_reference_that_nothing_is_compared_with_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", reference_model=lab.model.path))
    assert outcome.code == 2
    assert "has no effect; add membership to --measures" in " ".join(outcome.err.split())


def test_a_reference_with_other_tokens_is_refused_by_the_windows_name(lab: TinyLab) -> None:
    from byrote.models.load import open_model
    from byrote.models.scoring import VerbatimScore
    from byrote.scan.measures.base import Measured
    from byrote.types import Split, Window

    window = Window("a.txt@0", "a.txt", Split.TARGET, 0, 2, 4, (5, 6), (7, 8))
    item = Measured(VerbatimScore(window, (-1.0,), (0.5, 0.5), (0, 0), -1.0, (), (), (-0.5, -0.5), (0.0, 0.0)), None)
    config = RunConfig(measures=("membership",), reference_model=str(lab.model.path), device="cpu")
    score = begin(config, open_model(str(lab.model.path), device="cpu"), lambda ids: "another text")
    with pytest.raises(ModelError, match=r"the tokens of window a.txt@0 mean another text to"):
        score([item])


def test_the_lowest_share_has_at_least_one_token() -> None:
    assert mean_of_lowest([-1.0, -3.0, -2.0], 0.1) == -3.0
    assert mean_of_lowest([-1.0, -3.0, -2.0, -5.0], 0.5) == -4.0
    assert mean_of_lowest([float(-number) for number in range(100)], 0.29) == -85.0
    impossible = membership_scores([-1.0, -math.inf], [0.0, -math.inf], "ab", min_k=0.5)
    assert (impossible.loss, impossible.min_k, impossible.min_k_plus_plus) == (math.inf, -math.inf, -math.inf)


def test_show_and_report_tell_how_well_scores_separate_and_read_a_run_at_a_threshold_from_its_controls(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = scan_arguments(lab, out, measures="verbatim,near,membership", sample=160)
    assert byrote(*arguments, "--control", lab.files.controls).code == 0
    shown = byrote("show", out, "--threshold", "from-control=0.05")
    assert shown.code == 0
    assert "Min-K %++" in shown.out
    words = " ".join(shown.out.split())
    assert "A further control window reaches τ = " in words
    assert "with probability 5.0% at most" in words
    as_json = json.loads(byrote("show", out, "--threshold", "0.25", "--json").out)
    (numbers,) = as_json[0]["numbers"].values()
    assert numbers["threshold"] == 0.25
    assert {entry["score"] for entry in numbers["membership"]} >= {"loss", "min_k"}
    refused = byrote("show", out, "--threshold", "from-control=0.001")
    assert refused.code == 2
    assert "cannot be had from" in refused.err
    for command in (("show",), ("report", "--out", tmp_path / "both")):
        assert byrote(*command, out, out, "--threshold", "from-control=0.05").code == 2, "runs have their own controls"
    assert byrote("report", out).code == 0
    table = pl.read_csv(out / "report" / "tables" / "membership.csv")
    assert set(table["score"]) == {"loss", "zlib_ratio", "min_k", "min_k_plus_plus", "log_p_verbatim", "near"}
    assert table.filter(pl.col("score") == "loss")["auc"].item() > 0.8, "half of the tiny model's texts are memorized"
    assert (out / "report" / "figures" / "membership.svg").exists()
    assert json.loads((out / "manifest.json").read_text())["config"]["threshold"] == 0.001, "the run stays as it was"
