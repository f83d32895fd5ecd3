"""`byrote scan` from end to end on the tiny model: columns, numbers, independence of batching, and the manifest."""

import itertools
import json
import math
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from transformers import AutoModelForCausalLM

from byrote.cli.main import main
from byrote.scan.options import MEASURES, RunConfig
from byrote.scan.stages.screen import audit_key
from tests.oracle import textbook_levenshtein, textbook_policy
from tests.scan.scans import SMALL, Command, TinyLab, scan_arguments

WINDOW = [
    "window_id",
    "document",
    "split",
    "char_start",
    "suffix_char_start",
    "char_end",
    "prefix_ids",
    "suffix_ids",
]
SHARED = ["shared_share", "shared_with"]
"""Of runs that have controls."""
VERBATIM = {"log_p_verbatim", "p_verbatim", "suffix_ranks"}
GREEDY = {"greedy_hamming", "greedy_levenshtein", "greedy_is_beyond_budget"}
SEARCH = {"mass_lower", "mass_upper", "search_lower", "open_mass", "eos_mass", "refuted_mass", "verdict", "stop_reason"}
NEAR = SEARCH | {"stop_step", "screen_score", "was_screened", "screen_density", "answers", "answer_hits"}
CONTRACT = [
    *WINDOW,
    *SHARED,
    "log_p_verbatim",
    "p_verbatim",
    "suffix_ranks",
    "greedy_hamming",
    "greedy_levenshtein",
    "greedy_is_beyond_budget",
    "answers",
    "answer_hits",
    "mass_lower",
    "mass_upper",
    "search_lower",
    "open_mass",
    "eos_mass",
    "refuted_mass",
    "verdict",
    "stop_reason",
    "stop_step",
    "screen_score",
    "was_screened",
    "screen_density",
    "token_evals",
]
SUBSETS = [subset for size in (1, 2, 3) for subset in itertools.combinations(MEASURES, size)]


def controls(lab: TinyLab) -> list[str]:
    return ["--control", str(lab.files.controls)]


@pytest.fixture(scope="module")
def run(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All measures on targets and controls."""
    out = tmp_path_factory.mktemp("scan") / "run"
    with pytest.raises(SystemExit) as ended:
        main([*scan_arguments(lab, out), *controls(lab)])
    assert ended.value.code in (0, None)
    return out


@pytest.fixture(scope="module")
def results(run: Path) -> pl.DataFrame:
    return pl.read_parquet(run / "results.parquet")


@pytest.fixture(scope="module")
def network(lab: TinyLab) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(lab.model.path).eval()


def test_columns_are_those_of_the_contract_in_its_order(results: pl.DataFrame) -> None:
    assert results.columns == CONTRACT


@pytest.mark.parametrize("measures", SUBSETS, ids=",".join)
def test_every_subset_of_measures_has_its_columns_and_the_same_numbers(
    lab: TinyLab, byrote: Command, results: pl.DataFrame, tmp_path: Path, measures: tuple[str, ...]
) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", measures=",".join(measures), limit=6, screen="off"))
    assert outcome.code == 0
    found = pl.read_parquet(tmp_path / "run" / "results.parquet")
    asked = {name for measure in measures for name in {"verbatim": VERBATIM, "greedy": GREEDY, "near": NEAR}[measure]}
    assert found.columns == [name for name in CONTRACT if name in {*WINDOW, *asked, "token_evals"}]
    assert (tmp_path / "run" / "continuations.parquet").exists() == ("near" in measures)
    # What the screen decides is not compared: it was off here.
    shared = [name for name in found.columns if name not in {"token_evals"} | NEAR]
    expected = results.join(found.select("window_id"), on="window_id", how="semi", maintain_order="left")
    assert_frame_equal(found.select(shared), expected.select(shared), rel_tol=1e-5, abs_tol=1e-12)


def test_p_verbatim_and_ranks_equal_a_direct_computation(results: pl.DataFrame, network: torch.nn.Module) -> None:
    from byrote.policy import Policy

    policy = Policy(1.0, 10)
    for row in results.gather_every(3).iter_rows(named=True):
        ids = [*row["prefix_ids"], *row["suffix_ids"]]
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([ids])).logits[0].double().tolist()
        expected, ranks = 1.0, []
        for place in range(len(row["prefix_ids"]), len(ids)):
            before = logits[place - 1]
            expected *= textbook_policy(before, policy).get(ids[place], 0.0)
            ranks.append(1 + sum(value > before[ids[place]] for value in before))
        assert row["p_verbatim"] == pytest.approx(expected, rel=1e-4, abs=1e-14)
        assert row["log_p_verbatim"] == pytest.approx(math.log(expected) if expected else -math.inf, rel=1e-4)
        assert row["suffix_ranks"] == ranks


def test_greedy_distances_equal_a_naive_generation(
    results: pl.DataFrame, network: torch.nn.Module, lab: TinyLab
) -> None:
    eos = json.loads((lab.model.path / "config.json").read_text(encoding="utf-8"))["eos_token_id"]
    for row in results.gather_every(4).iter_rows(named=True):
        generated: list[int] = []
        while len(generated) < len(row["suffix_ids"]) and generated[-1:] != [eos]:
            with torch.no_grad():
                logits = network(input_ids=torch.tensor([[*row["prefix_ids"], *generated]])).logits[0, -1]
            generated.append(int(logits.argmax()))
        distance = textbook_levenshtein(generated, row["suffix_ids"])
        if row["greedy_is_beyond_budget"]:
            assert row["greedy_hamming"] is row["greedy_levenshtein"] is None
            assert distance > int(str(SMALL["edit_budget"]))
        else:
            assert row["greedy_levenshtein"] == distance
            agree = sum(one == other for one, other in zip(generated, row["suffix_ids"], strict=False))
            assert row["greedy_hamming"] == len(row["suffix_ids"]) - agree


def test_bounds_hold_together(results: pl.DataFrame) -> None:
    for row in results.iter_rows(named=True):
        lower, upper = row["mass_lower"], row["mass_upper"]
        assert len(lower) == len(upper) == 3
        assert lower == sorted(lower)
        assert upper == sorted(upper)
        assert row["p_verbatim"] == lower[0] == upper[0]
        assert all(low <= high <= 1 for low, high in zip(lower, upper, strict=True))
        extractable = lower[-1] >= 0.001
        ruled_out = not extractable and upper[-1] < 0.001
        verdict = "extractable" if extractable else "ruled_out" if ruled_out else "not_shown"
        assert row["verdict"] == verdict


def test_the_searchs_own_account_adds_up_to_1(results: pl.DataFrame) -> None:
    searched = results.filter(pl.col("stop_reason") != "screened")
    assert searched.height > 0
    for row in searched.iter_rows(named=True):
        own = row["search_lower"]
        assert own[-1] + row["open_mass"] + row["eos_mass"] + row["refuted_mass"] == pytest.approx(1, rel=1e-9)
        if row["stop_reason"] == "finished":
            assert own[0] == pytest.approx(row["p_verbatim"], rel=1e-4), "the verbatim path is pinned"
        else:
            assert own == [0, 0, 0]


def test_memorized_text_is_found_and_controls_are_not(results: pl.DataFrame) -> None:
    most = results.filter(pl.col("document").str.contains("prose-0064"))
    assert (most["verdict"] == "extractable").mean() > 0.5
    none = results.filter(pl.col("split") == "control")
    assert none.height > 0
    assert (none["p_verbatim"] < 0.001).all()


def test_screened_windows_keep_the_verbatim_bound(run: Path, results: pl.DataFrame) -> None:
    screened = results.filter(pl.col("stop_reason") == "screened")
    assert screened.height > 0
    assert screened["was_screened"].all()
    assert (screened["mass_upper"].list.slice(1).list.eval(pl.element() == 1).list.all()).all()
    assert (screened["mass_upper"].list.first() == screened["p_verbatim"]).all()
    assert screened.select("search_lower", "open_mass", "eos_mass", "refuted_mass").null_count().row(0) == (
        (screened.height,) * 4
    )
    assert (screened["mass_lower"].list.last() == screened["p_verbatim"]).all()
    below = results.filter(pl.col("was_screened"))
    assert (below["screen_score"] < 1e-6).all()
    assert (results.filter(~pl.col("was_screened"))["screen_score"] >= 1e-6).all()
    share = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["config"]["screen_share"]
    expected = max(0.045, SMALL["screen_min_windows"] / len(results))
    assert share == pytest.approx(expected, rel=0.1), "short windows count too"
    config = RunConfig(screen_floor=1e-6, seed=0)
    audited = {name for name, score in below.select("window_id", "screen_score").iter_rows()
               if audit_key(config, name, score) < share}  # fmt: skip
    assert set(below.filter(pl.col("stop_reason") != "screened")["window_id"]) == audited


def test_windows_are_in_document_order_and_their_characters_are_the_text(
    results: pl.DataFrame, run: Path, lab: TinyLab
) -> None:
    texts = {passage.name: passage.text for passage in (*lab.model.targets, *lab.model.controls)}
    splits = results["split"].to_list()
    assert splits == sorted(splits, reverse=True), "targets first"
    for row in results.iter_rows(named=True):
        name = Path(row["document"]).stem
        assert row["window_id"] == f"{row['document']}@{row['char_start']}"
        assert 0 <= row["char_start"] < row["suffix_char_start"] < row["char_end"] <= len(texts[name])


def test_continuations_are_the_heaviest_accepted_ones(run: Path, results: pl.DataFrame) -> None:
    found = pl.read_parquet(run / "continuations.parquet")
    assert found.columns == ["window_id", "rank", "token_ids", "text", "log_p", "distance"]
    rows = {row["window_id"]: row for row in results.iter_rows(named=True)}
    for window_id, group in found.group_by("window_id", maintain_order=True):
        row = rows[str(window_id[0])]
        assert group["rank"].to_list() == list(range(1, group.height + 1))
        assert group.height <= 3
        assert group["log_p"].to_list() == sorted(group["log_p"], reverse=True)
        assert group["log_p"].exp().sum() <= row["mass_lower"][-1] * (1 + 1e-9)
        for token_ids, distance in group.select("token_ids", "distance").iter_rows():
            assert distance == textbook_levenshtein(token_ids, row["suffix_ids"]) <= 2


@pytest.mark.parametrize(
    "grouping",
    [
        {"slots": 1, "batch_windows": 1, "windows_per_part": 3},
        {"slots": 50, "batch_windows": 7, "windows_per_part": 1000},
    ],
    ids=["alone", "crowded"],
)
def test_results_do_not_depend_on_slots_batches_or_parts(
    lab: TinyLab, byrote: Command, run: Path, tmp_path: Path, grouping: dict[str, int]
) -> None:
    assert byrote(*scan_arguments(lab, tmp_path / "run", **grouping), *controls(lab)).code == 0
    for table in ("results.parquet", "continuations.parquet"):
        found, expected = pl.read_parquet(tmp_path / "run" / table), pl.read_parquet(run / table)
        assert_frame_equal(found, expected, rel_tol=1e-5, abs_tol=1e-12)


def test_every_number_can_be_traced_through_the_manifest(run: Path, results: pl.DataFrame, lab: TinyLab) -> None:
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["config"]["top_k"] == 10
    assert manifest["config"]["text"] == [str(lab.files.targets)]
    assert manifest["seed"] == 0
    assert manifest["model"]["name"] == str(lab.model.path)
    assert len(manifest["model"]["weights_hash"]) == len(manifest["model"]["tokenizer_hash"]) == 64
    assert manifest["model"]["dtype"] == "float32"
    assert "bos_id" in manifest["model"]
    assert {"python", "torch", "transformers", "byrote"} <= set(manifest["versions"])
    assert manifest["device"]["name"] == "cpu"
    assert manifest["device"]["slots"] >= 1
    assert manifest["timings"]["measuring_seconds"] > 0
    assert manifest["timings"]["windows_resumed"] == 0
    assert isinstance(manifest["command_line"], list)
    documents = manifest["texts"]
    assert {name: facts["windows"] for name, facts in documents.items()} == dict(
        results.group_by("document").len().iter_rows()
    )
    assert all(facts["short_windows"] >= 1 and len(facts["content_hash"]) == 64 for facts in documents.values())
    totals = manifest["totals"]
    assert totals["windows"] == results.height
    assert totals["token_evals"] == results["token_evals"].sum()
    assert totals["windows_by_split"] == dict(results.group_by("split").len().iter_rows())
    assert sum(totals["stop_reasons"].values()) == results.height
    screen = totals["screen"]
    assert screen["rated_below_floor"] == results["was_screened"].sum()
    assert screen["not_searched"] == (results["stop_reason"] == "screened").sum()
    assert screen["searched_all_the_same"] == screen["rated_below_floor"] - screen["not_searched"]
    assert sum(stratum["windows"] for stratum in screen["strata"]) == screen["rated_below_floor"]
    assert 0 <= screen["would_be_certified_at_most"] <= screen["not_searched"]
    if screen["not_searched"]:
        assert screen["would_be_certified_at_most"] >= max(1, screen["would_be_certified_expected"])


def test_token_evaluations_are_those_of_the_formulas(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    """One forward over a + T − 1 tokens serves all; greedy answers add what is decoded beyond the target's tokens."""
    sums = {}
    for measures, greedy in (("verbatim", "decided"), ("greedy", "full")):
        assert byrote(*scan_arguments(lab, tmp_path / measures, measures=measures, greedy=greedy, limit=3)).code == 0
        sums[measures] = pl.read_parquet(tmp_path / measures / "results.parquet")
    assert sums["verbatim"]["token_evals"].to_list() == [19] * 3
    for row in sums["greedy"].iter_rows(named=True):
        pairs = zip(row["greedy_ids"], row["suffix_ids"], strict=False)
        shared = next((place for place, (one, other) in enumerate(pairs) if one != other), len(row["greedy_ids"]))
        assert row["token_evals"] == 19 + max(0, len(row["greedy_ids"]) - shared - 1)


def test_a_sample_is_seeded_and_whole_documents_give_one_window_each(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    def ids(name: str, **options: object) -> list[str]:
        assert byrote(*scan_arguments(lab, tmp_path / name, measures="verbatim", **options)).code == 0
        return pl.read_parquet(tmp_path / name / "results.parquet")["window_id"].to_list()

    first, again, other = (ids(f"sample-{n}", sample=5, seed=seed) for n, seed in enumerate((1, 1, 2)))
    assert len(first) == 5
    assert first == again != other
    whole = ids("whole", whole_documents=True)
    assert len(whole) == len(lab.model.targets)
    assert all(window_id.endswith("@0") for window_id in whole)
