"""`byrote scan --pairs`: records of any length, as texts, token ids and marks, with what they say about themselves."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import byrote as interface
from byrote.report.analysis.groups import copies_rates, group_rates
from byrote.report.analysis.rates import Criterion
from byrote.report.analysis.records import nearly_rows
from byrote.report.reader import script_safe_json
from byrote.report.view import load_view
from byrote.report.words import percent
from byrote.scan.options import RunConfig
from byrote.scan.report import masked
from byrote.types import Split
from tests.oracle import textbook_levenshtein, textbook_policy
from tests.scan.scans import SMALL, Command, TinyLab, option_arguments

OPTIONS = {
    name: value for name, value in SMALL.items() if name not in ("prefix_tokens", "suffix_tokens", "stride_chars")
}


def command(lab: TinyLab, out: Path, *pairs: Path, **options: object) -> list[str]:
    flags = option_arguments(OPTIONS | options)
    return ["scan", "--model", str(lab.model.path), "--out", str(out), "--pairs", *map(str, pairs), *flags]


def write_records(lab: TinyLab, path: Path, *, count: int) -> list[dict[str, Any]]:
    """Passages of the lab cut in two at different words, with their copies and kinds."""
    passages = [*lab.model.targets, *lab.model.controls]
    rows: list[dict[str, Any]] = []
    for number in range(count):
        passage = passages[number % len(passages)]
        words = passage.text.split(" ")
        at = 8 + number % 5
        rows.append(
            {
                "id": f"{passage.name}/{number}",
                "prefix": " ".join(words[:at]),
                "suffix": " " + " ".join(words[at : at + 6 + number % 3]),
                "copies": passage.copies,
                "kind": str(passage.kind),
                "tags": ["even" if number % 2 == 0 else "odd", "all"],
            }
        )
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return rows


@pytest.fixture(scope="module")
def run(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    from byrote.cli.main import main

    folder = tmp_path_factory.mktemp("pairs")
    records = write_records(lab, folder / "records.jsonl", count=40)
    with pytest.raises(SystemExit) as ended:
        main(command(lab, folder / "run", folder / "records.jsonl"))
    assert ended.value.code in (0, None)
    return folder / "run", records


def test_every_record_is_measured_whole_with_what_it_says(run: tuple[Path, list[dict[str, Any]]]) -> None:
    rows = {row["window_id"]: row for row in pl.read_parquet(run[0] / "results.parquet").to_dicts()}
    assert list(rows) == [record["id"] for record in run[1]]
    assert len({(len(row["prefix_ids"]), len(row["suffix_ids"])) for row in rows.values()}) > 5
    texts = {row["name"]: row["text"] for row in pl.read_parquet(run[0] / "texts.parquet").to_dicts()}
    for record in run[1]:
        row = rows[record["id"]]
        assert (row["copies"], row["kind"], row["tags"]) == (record["copies"], record["kind"], record["tags"])
        assert row["split"] == ("control" if record["copies"] == 0 else "target")
        text = texts[row["document"]]
        assert text == record["prefix"] + record["suffix"]
        assert text[row["suffix_char_start"] : row["char_end"]] == record["suffix"]


def test_probabilities_of_mixed_lengths_equal_a_direct_computation(
    run: tuple[Path, list[dict[str, Any]]], lab: TinyLab
) -> None:
    from byrote.policy import Policy

    network = AutoModelForCausalLM.from_pretrained(lab.model.path).eval()
    for row in pl.read_parquet(run[0] / "results.parquet").sample(6, seed=1).to_dicts():
        ids = row["prefix_ids"] + row["suffix_ids"]
        with torch.no_grad():
            logits = network(torch.tensor([ids])).logits[0]
        expected = 1.0
        for place in range(len(row["prefix_ids"]), len(ids)):
            expected *= textbook_policy(logits[place - 1].tolist(), Policy(1.0, 10)).get(ids[place], 0.0)
        assert row["p_verbatim"] == pytest.approx(expected, rel=1e-4, abs=1e-14)
        assert row["p_verbatim"] <= row["mass_lower"][-1] <= row["mass_upper"][-1]


def test_rates_by_copies_and_by_kind_have_intervals(run: tuple[Path, list[dict[str, Any]]], byrote: Command) -> None:
    view = load_view(run[0])
    for entry in copies_rates(view):
        assert entry.rate.n == sum(record["copies"] == entry.copies for record in run[1])
    assert {entry.copies for entry in copies_rates(view)} == {record["copies"] for record in run[1]}
    groups = group_rates(view)
    for kind in {record["kind"] for record in run[1]}:
        counted = sum(entry.rate.n for entry in groups if entry.group == kind and entry.criterion == "near")
        assert counted == sum(record["kind"] == kind for record in run[1])
    tags = {entry.group: entry for entry in groups if entry.grouping == "tag" and entry.split == "target"}
    assert set(tags) == {"even", "odd", "all"}
    assert tags["all"].rate.interval.is_defined
    assert byrote("report", run[0]).code == 0
    for name in (
        "figures/kinds.svg",
        "figures/tags.svg",
        "figures/copies.svg",
        "tables/groups.csv",
        "tables/copies.csv",
    ):
        assert (run[0] / "report" / name).exists()
    shown = " ".join(byrote("show", run[0]).out.split())
    assert "up to" in shown
    assert "group side windows greedy verbatim near" in shown
    assert f"kind {run[1][0]['kind']}" in shown


def test_a_record_is_told_by_its_exact_rate_and_near_ones_by_whose_they_may_be(
    run: tuple[Path, list[dict[str, Any]]], byrote: Command
) -> None:
    view = load_view(run[0])
    exact = next(entry for entry in view.rates if entry.criterion == "verbatim" and entry.split == "target")
    near = view.rate(Criterion.NEAR, Split.TARGET)
    assert near is not None
    assert near.hits > exact.hits, "some records come out only nearly"
    words = " ".join(byrote("show", run[0]).out.split())
    share = percent(exact.rate.value).replace(" %", "%")
    start = f"{view.model} can be made to reproduce {share} of the target records, word for word ("
    assert words.startswith(start)
    assert words.index("word for word or within 2 edits") < words.index("kind ")
    rows = nearly_rows([view])
    assert f"{near.hits - exact.hits} target records come out only within 2 edits" in words
    assert len(rows) == near.hits - exact.hits
    suffixes = dict(view.results.select("window_id", "suffix_ids").iter_rows())
    for row in rows:
        own = suffixes[row["record"]]
        distances = {name: textbook_levenshtein(own, ids) for name, ids in suffixes.items() if ids != own}
        assert row["edits_to_it"] == min(distances.values()) == distances[row["nearest_other"]]


def test_records_are_masked_in_pages_unless_asked_for(
    run: tuple[Path, list[dict[str, Any]]], byrote: Command, tmp_path: Path
) -> None:
    view = load_view(run[0])
    hidden = masked(view)
    assert [len(one.text or "") for one in hidden.documents] == [len(one.text or "") for one in view.documents]
    assert hidden.continuations is not None
    assert not any(word in text for text in hidden.continuations["text"] for word in run[1][0]["suffix"].split())
    assert byrote("report", run[0], "--out", tmp_path / "masked").code == 0
    assert byrote("report", run[0], "--out", tmp_path / "open", "--reveal").code == 0
    pages = [(tmp_path / name / "index.html").read_text(encoding="utf-8") for name in ("masked", "open")]
    for record in run[1]:
        assert [script_safe_json(record["suffix"])[1:-1] in page for page in pages] == [False, True]


def test_rates_by_copies_leave_out_controls_that_share_their_passage(run: tuple[Path, list[dict[str, Any]]]) -> None:
    view = load_view(run[0])
    controls = np.flatnonzero(view.population.is_control)
    is_rated = view.population.is_rated.copy()
    is_rated[controls[:3]] = False
    sharing = dataclasses.replace(view, population=dataclasses.replace(view.population, is_rated=is_rated))
    counted = {entry.rate.n for entry in copies_rates(sharing) if entry.copies == 0}
    assert counted == {int((is_rated & view.population.is_control).sum())}


def test_token_ids_give_the_numbers_of_their_texts(
    run: tuple[Path, list[dict[str, Any]]], lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    texts = pl.read_parquet(run[0] / "results.parquet").head(6)
    rows = [
        {"id": row["window_id"], "prefix_ids": row["prefix_ids"], "suffix_ids": row["suffix_ids"]}
        for row in texts.to_dicts()
    ]
    (tmp_path / "ids.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert byrote(*command(lab, tmp_path / "run", tmp_path / "ids.jsonl", bos="never")).code == 0
    found = pl.read_parquet(tmp_path / "run" / "results.parquet")
    for name in ("prefix_ids", "suffix_ids", "char_start", "suffix_char_start", "char_end"):
        assert found[name].to_list() == texts[name].to_list()
    assert found["p_verbatim"].to_list() == pytest.approx(texts["p_verbatim"].to_list(), rel=1e-5)


def test_arrays_and_marks_are_measured(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(lab.model.path)
    ids = np.array([tokenizer(one.text, add_special_tokens=False)["input_ids"][:20] for one in lab.model.targets[:5]])
    np.save(tmp_path / "val_prefix.npy", ids[:, :12].astype(np.uint16))
    np.save(tmp_path / "val_suffix.npy", ids[:, 12:].astype(np.uint16))
    words = lab.model.targets[0].text.split(" ")
    marked = f"{' '.join(words[:20])}[[ {' '.join(words[20:26])}]] {words[26]}[[ {' '.join(words[27:32])}]]"
    (tmp_path / "letter.txt").write_text(marked, encoding="utf-8")
    files = tmp_path / "val_prefix.npy", tmp_path / "letter.txt"
    assert byrote(*command(lab, tmp_path / "run", *files, prefix_tokens=6, measures="verbatim")).code == 0
    rows = {row["window_id"]: row for row in pl.read_parquet(tmp_path / "run" / "results.parquet").to_dicts()}
    assert list(rows) == ["val#0", "val#1", "val#2", "val#3", "val#4", "letter.txt~1", "letter.txt~2"]
    assert [rows[f"val#{n}"]["prefix_ids"] + rows[f"val#{n}"]["suffix_ids"] for n in range(5)] == ids.tolist()
    assert len(rows["letter.txt~2"]["prefix_ids"]) == 6


def test_pairs_are_read_resumed_and_told_apart(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    records = write_records(lab, tmp_path / "records.jsonl", count=6)
    arguments = command(lab, tmp_path / "run", tmp_path / "records.jsonl", measures="verbatim")
    assert byrote(*arguments).code == 0
    assert "was complete already" in byrote(*arguments).err
    records[2]["kind"] = "other"
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    outcome = byrote(*arguments)
    assert outcome.code == 2
    assert "pairs" in outcome.err


@pytest.mark.parametrize(
    ("options", "row", "words"),
    [
        ({}, {"prefix": "The cat sat on the", "suffix": " mat"}, "everything is within 2 edits of it"),
        ({"measures": "verbatim"}, {"prefix": "word " * 4000, "suffix": "end"}, "takes at most"),
        ({"text": Path(__file__).parents[2] / "README.md"}, {"prefix": "a b c", "suffix": " d e f g h"}, "not both"),
    ],
)
def test_pairs_that_cannot_be_measured_are_one_sentence(
    lab: TinyLab, byrote: Command, tmp_path: Path, options: dict[str, object], row: dict[str, str], words: str
) -> None:
    (tmp_path / "records.jsonl").write_text(json.dumps(row), encoding="utf-8")
    outcome = byrote(*command(lab, tmp_path / "run", tmp_path / "records.jsonl", **options))
    assert outcome.code == 2
    assert words in outcome.err
    assert not (tmp_path / "run").exists()


def test_pairs_from_python(lab: TinyLab, tmp_path: Path) -> None:
    write_records(lab, tmp_path / "records.jsonl", count=8)
    config = RunConfig(device="cpu", top_k=10, measures=("verbatim",), limit=4)
    model = interface.load_model(str(lab.model.path), device="cpu")
    windows = interface.read_windows(model, pairs=[tmp_path / "records.jsonl"], config=config)
    frame = interface.scan(model, windows, config).to_polars()
    assert frame.height == 4
    assert frame["kind"].null_count() == 0
