"""Runs counted in characters: the same windows for every tokenizer, rates that agree, editions, shards, answers."""

import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from rapidfuzz.distance import Levenshtein

import byrote
from byrote.errors import ConfigError
from byrote.lab.pocket import TINY, plan_stream
from byrote.lab.train import train, train_tokenizer
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.served.client import RequestLimits
from byrote.report.analysis.comparison import compare_runs, paired_differences
from byrote.report.analysis.records import nearly_rows
from byrote.report.view import load_view
from byrote.scan import served
from byrote.scan.options import RunConfig
from byrote.scan.report import masked
from byrote.stats.answers import log_tail
from tests.distance.plain_text import plain_normal_form
from tests.loopback.logprobs import Habits
from tests.models.served import KEY
from tests.scan.alike import assert_same_run
from tests.scan.scans import Command, TinyLab
from tests.scan.test_pairs import write_records
from tests.scan.test_served import assert_same_rows as assert_same_numbers
from tests.scan.test_served import serve
from tests.scan.test_stopped_early import ctrl_c_after

CHARS = {"unit": "text", "prefix_chars": 80, "suffix_chars": 60, "stride_chars": 60, "top_k": 10, "beam_width": 6}


@pytest.fixture(scope="module")
def other_tokens(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same size, trained on the same copies in other tokens."""
    stream = plan_stream(TINY)
    stream = stream._replace(tokenizer=train_tokenizer(stream.background, vocabulary_size=420))
    folder = tmp_path_factory.mktemp("other")
    train(TINY.training, stream.documents(TINY.seed), stream.tokenizer, folder=folder)
    return folder


def arguments(lab: TinyLab, out: Path, *further: object, model: object = None, text: Path | None = None) -> Any:
    options = [f"--set={name}={value}" for name, value in CHARS.items()]
    texts = ["--text", text] if text else ["--text", lab.files.targets, "--control", lab.files.controls]
    return ["scan", "--model", model or lab.model.path, "--device", "cpu", *texts, "--out", out, *options, *further]


@pytest.fixture(scope="module")
def runs(lab: TinyLab, other_tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from byrote.cli.main import main

    folder = tmp_path_factory.mktemp("runs")
    for name, model in (("own", lab.model.path), ("other", other_tokens)):
        with pytest.raises(SystemExit) as ended:
            main([str(part) for part in arguments(lab, folder / name, model=model)])
        assert not ended.value.code
    return folder / "own", folder / "other"


def test_windows_are_the_same_stretches_for_every_tokenizer(runs: tuple[Path, Path]) -> None:
    own, other = (byrote.read_run(path).to_polars().sort("window_id") for path in runs)
    for name in ("window_id", "suffix_char_start", "char_end"):
        assert own[name].to_list() == other[name].to_list()
    assert own["suffix_ids"].to_list() != other["suffix_ids"].to_list()
    assert "greedy_hamming" not in own.columns
    assert set(own["mass_lower"].list.len()) == {60 // 10 + 1}


def test_rates_of_models_with_different_tokenizers_agree(
    runs: tuple[Path, Path], byrote: Command, tmp_path: Path
) -> None:
    """Both have seen the same copies equally often: the paired difference of the exact text may be 0."""
    views = [load_view(path) for path in runs]
    compared = compare_runs(views)
    assert compared.aligned is not None
    rows = paired_differences(compared, 0.001)
    (exact,) = [row for row in rows if row.quantity == "near" and row.edits == 0]
    assert exact.found.first > 0.2
    assert exact.found.interval.low <= 0 <= exact.found.interval.high
    outcome = byrote("report", *runs, "--out", tmp_path / "page")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "Paired differences" in page
    assert "6 character edits" in page
    outcome = byrote("change", *runs, "--out", tmp_path / "change")
    assert outcome.code == 0, outcome.err


def test_a_prompt_stands_around_windows_of_characters(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    (tmp_path / "told.txt").write_text("He told me: {prefix}", encoding="utf-8")
    outcome = byrote(*arguments(lab, tmp_path / "run", "--limit=3", "--prompt", tmp_path / "told.txt"))
    assert outcome.code == 0, outcome.err
    for row in pl.read_parquet(tmp_path / "run" / "results.parquet").to_dicts():
        assert row["given_ids"][-len(row["prefix_ids"]) :] == row["prefix_ids"]
        assert len(row["given_ids"]) > len(row["prefix_ids"])


def test_token_runs_of_different_tokenizers_are_not_paired(
    lab: TinyLab, other_tokens: Path, byrote: Command, tmp_path: Path
) -> None:
    for name, model in (("own", lab.model.path), ("other", other_tokens)):
        given = ["--prefix-tokens=8", "--suffix-tokens=8", "--limit=4", "--measures=verbatim", "--device=cpu"]
        assert byrote("scan", "--model", model, "--text", lab.files.targets, "--out", tmp_path / name, *given).code == 0
    compared = compare_runs([load_view(tmp_path / name) for name in ("own", "other")])
    assert compared.aligned is None
    assert compared.reason is not None
    assert "--unit text" in compared.reason


def test_another_edition_of_the_target_is_found(lab: TinyLab, tmp_path: Path) -> None:
    """Line breaks, quotes and dashes that a typesetter changed: token edits miss the text, character edits do not."""
    model = load(str(lab.model.path), device="cpu")
    passage = max((one for one in lab.model.targets if one.trained_text is None), key=lambda one: one.copies)
    cut = re.search(r"\s", passage.text[80:])
    assert cut is not None
    place = 80 + cut.start()
    typeset = passage.text[:place] + re.sub(" ", "\n", passage.text[place:]).replace("'", "’").replace('"', "”")
    shared = {"whole_documents": True, "screen": "off", "stop_rule": "off"}
    masses = {}
    for name, text in (("trained", passage.text), ("typeset", typeset)):
        windows = byrote.read_windows(model, texts=[text], **(CHARS | shared))
        (row,) = byrote.scan(model, windows)
        masses[name] = row["mass_lower"][0]
    tokens = {"prefix_tokens": 20, "suffix_tokens": 15, "top_k": 10, "beam_width": 6}
    windows = byrote.read_windows(model, texts=[typeset], **(shared | tokens))
    (row,) = byrote.scan(model, windows)
    assert masses["trained"] > 0.05
    assert masses["typeset"] == pytest.approx(masses["trained"], rel=0.3)
    assert row["mass_lower"][-1] < 0.1 * masses["typeset"]


def test_shards_merge_and_runs_resume(lab: TinyLab, runs: tuple[Path, Path], byrote: Command, tmp_path: Path) -> None:
    for index in range(2):
        outcome = byrote(*arguments(lab, tmp_path / f"shard{index}", "--shard", f"{index}/2"))
        assert outcome.code == 0, outcome.err
    assert byrote("merge", tmp_path / "merged", tmp_path / "shard0", tmp_path / "shard1").code == 0
    assert_same_run(tmp_path / "merged", runs[0])
    assert byrote(*arguments(lab, runs[0])).code == 0, "a finished run is found finished"
    assert byrote("verify", runs[0]).code == 0
    assert byrote("gate", runs[0], "--max-rate", "near=1").code == 0


def test_a_stopped_run_goes_on_to_the_same_rows(
    lab: TinyLab, runs: tuple[Path, Path], byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ctrl_c_after(4, monkeypatch):
        assert byrote(*arguments(lab, tmp_path / "run")).code == 130
    assert not (tmp_path / "run" / "manifest.json").exists()
    assert byrote(*arguments(lab, tmp_path / "run")).code == 0
    assert_same_run(tmp_path / "run", runs[0])


def test_samples_of_a_run_lie_inside_its_bounds(runs: tuple[Path, Path], lab: TinyLab) -> None:
    """By `byrote mc`, and by the library's own generation, decoded and compared in plain Python. Each check fails by
    chance less than once in a million."""
    rows = byrote.read_run(runs[0]).to_polars().sort(pl.col("mass_lower").list.last(), descending=True).head(4)
    texts = {path.name: path.read_text(encoding="utf-8") for path in lab.files.targets.iterdir()}
    model = load(str(lab.model.path), device="cpu")
    for row in rows.to_dicts():
        lower, upper = (np.array([row[name][-1]]) for name in ("mass_lower", "mass_upper"))
        target = plain_normal_form(texts[row["document"]][row["suffix_char_start"] : row["char_end"]])
        (drawn,) = byrote.mc(runs[0], model=model, window=row["window_id"], samples=300).to_dicts()
        for hits, count in ((drawn["hits"], drawn["samples"]), (_hits(model, row, target, 300), 300)):
            counts = np.array([count])
            assert log_tail(hits, counts, lower) > math.log(1e-7)
            assert log_tail(count - hits, counts, 1 - upper) > math.log(1e-7)


def _hits(model: HuggingFaceModel, row: dict[str, Any], target: str, answers: int) -> int:
    torch.manual_seed(0)
    prompt = torch.tensor([row["prefix_ids"]])
    found = model.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        top_k=10,
        max_new_tokens=2 * len(row["suffix_ids"]),
        num_return_sequences=answers,
        pad_token_id=min(model.eos_ids),
    )[:, prompt.shape[1] :].tolist()
    hits = 0
    for ids in found:
        ends = [place for place, token in enumerate(ids) if token in model.eos_ids]
        text = plain_normal_form(model.decode(ids[: ends[0]] if ends else ids))[: len(target)]
        hits += Levenshtein.distance(text, target) <= 60 // 10
    return hits


def test_passages_are_followed_in_characters(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shorter = ("--set=prefix_chars=40", "--set=suffix_chars=30", "--set=passage_roots=3")
    outcome = byrote(*arguments(lab, run, *shorter, "--passage=30,60,90", "--sample=24"))
    assert outcome.code == 0, outcome.err
    rows, texts = byrote_rows(run)
    assert "90 characters" in byrote("show", run).out
    assert byrote("report", run).code == 0
    assert (run / "report" / "figures" / "passages.svg").exists()
    found = [row for row in rows if row["passage_lower"][1] > 0]
    assert found
    for row in rows:
        assert row["passage_lower"][0] == row["mass_lower"][-1]
        assert row["passage_upper"][0] == row["mass_upper"][-1]
        assert 0 <= row["passage_lower"][1] <= row["passage_upper"][1] <= row["passage_upper"][0]
    for row in found:
        text = texts[row["document"]][row["suffix_char_start"] :]
        assert text.startswith(row["passage_target"])
        assert len(row["passage_target"]) > row["char_end"] - row["suffix_char_start"]
        near, target = plain_normal_form(row["passage_text"]), plain_normal_form(row["passage_target"])
        assert Levenshtein.distance(near, target) <= 3 * 3


def test_records_are_measured_in_characters(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    records = write_records(lab, tmp_path / "records.jsonl", count=24)
    budget = min(len(plain_normal_form(record["suffix"])) for record in records) // 10
    given = ["--model", lab.model.path, "--device=cpu", "--pairs", tmp_path / "records.jsonl", "--unit=text"]
    outcome = byrote("scan", *given, "--top-k=10", "--out", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    rows, texts = byrote_rows(tmp_path / "run")
    assert [row["window_id"] for row in rows] == [record["id"] for record in records]
    for row, record in zip(rows, records, strict=True):
        assert texts[row["document"]][row["suffix_char_start"] : row["char_end"]] == record["suffix"]
        assert len(row["mass_lower"]) == budget + 1
        assert row["p_verbatim"] <= row["mass_lower"][0] <= row["mass_upper"][-1]
    assert sum(row["verdict"] == "extractable" for row in rows) > 3
    shown = " ".join(byrote("show", tmp_path / "run").out.split())
    longest = max(len(record["prefix"]) for record in records)
    assert f"The model was given up to {longest} characters of a text" in shown
    view = load_view(tmp_path / "run")
    assert nearly_rows([masked(view)]) == nearly_rows([view]), "records are compared as they are, whatever is shown"
    for row in nearly_rows([view]):
        own = next(plain_normal_form(one["suffix"]) for one in records if one["id"] == row["record"])
        others = {plain_normal_form(one["suffix"]) for one in records} - {own}
        assert row["edits_to_it"] == min(Levenshtein.distance(own, other) for other in others)
    assert byrote("report", tmp_path / "run").code == 0
    assert byrote("mc", tmp_path / "run", "--sample=2", "--samples=20").code == 0
    for index in range(2):
        assert byrote("scan", *given, "--top-k=10", "--out", tmp_path / f"{index}", "--shard", f"{index}/2").code == 0
    assert byrote("merge", tmp_path / "merged", tmp_path / "0", tmp_path / "1").code == 0
    assert_same_run(tmp_path / "merged", tmp_path / "run")


def byrote_rows(run: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows of a run, and the texts of its documents."""
    texts = pl.read_parquet(run / "texts.parquet").select("name", "text").iter_rows()
    return pl.read_parquet(run / "results.parquet").to_dicts(), dict(texts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"distance": "hamming"}, "unit is text, but distance is about"),
        ({"passage": (50, 200)}, "give rising multiples of suffix_chars, which is 200"),
        ({"rank": "screen_score"}, "unit is text, but rank is about"),
        ({"viability": "published"}, "unit is text, but viability is about"),
        ({"estimate": "all"}, "unit is text, but estimate is about"),
        ({"pairs": ("records.jsonl",), "passage": (200,)}, "leave pairs out"),
        ({"edit_budget": 100}, "edit-budget is 100 characters, but targets have 100 to 200"),
    ],
)
def test_what_does_not_go_with_text_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RunConfig(unit="text", **options)


def test_lengths_in_the_other_unit_have_no_effect_and_are_refused() -> None:
    with pytest.raises(ConfigError, match="prefix_tokens is 30, but has no effect with --unit text"):
        RunConfig(unit="text", prefix_tokens=30).require_use()
    with pytest.raises(ConfigError, match="suffix_chars is 90, but has no effect with --unit tokens"):
        RunConfig(suffix_chars=90).require_use()


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
def test_a_served_model_has_the_numbers_of_the_model(
    dialect: str, lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(served, "RequestLimits", partial(RequestLimits, sleep=lambda seconds: None))
    few = ("--limit=3", "--screen=off", "--answers=0")
    assert byrote(*arguments(lab, tmp_path / "local", *few)).code == 0
    asked = ("--tokenizer", lab.model.path, "--key-variable=OPENAI_API_KEY", "--set=ask_twice=0")
    with serve(load(str(lab.model.path), device="cpu"), Habits(dialect=dialect)) as server:
        outcome = byrote(*arguments(lab, tmp_path / "run", *few, *asked, model=f"endpoint:{server.url}"))
    assert outcome.code == 0, outcome.err
    ours, theirs = (pl.read_parquet(tmp_path / name / "results.parquet").to_dicts() for name in ("run", "local"))
    assert_same_numbers(ours, theirs)


class Letters:
    """A model of one's own: tokens are letters, all equally likely after any history."""

    vocab_size = 27
    name = "letters"
    alphabet = "abcdefghijklmnopqrstuvwxyz "

    def next_logits(self, histories: list[list[int]]) -> list[list[float]]:
        return [[0.0] * self.vocab_size for _ in histories]

    def encode_batch(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        found = [[(self.alphabet.find(one), place) for place, one in enumerate(text.lower())] for text in texts]
        return [
            ([token for token, _ in one if token >= 0], [(place, place + 1) for token, place in one if token >= 0])
            for one in found
        ]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.alphabet[token] for token in ids)


def test_models_of_ones_own_are_measured_by_their_texts() -> None:
    """Tokens are letters, so a text of five letters and a blank has as many writings as there are runs of blanks: any
    number before it, one or more inside."""
    options = {"unit": "text", "prefix_chars": 8, "suffix_chars": 10, "edit_budget": 0, "whole_documents": True}
    options |= {"top_k": None, "screen": "off", "negligible": 0.0, "stop_rule": "off", "measures": ("verbatim", "near")}
    model = byrote.load_model(Letters())
    windows = byrote.read_windows(model, texts=["as we go to the sea we see it"], **options)
    (row,) = byrote.scan(model, windows)
    assert windows[0].suffix_text == " to the"
    (listed,) = byrote.scan(model, list(windows), unit="text", top_k=None, suffix_chars=20, screen="off")
    assert len(listed["mass_lower"]) == 3, "a tenth of suffix_chars, as for windows that were read"
    assert row["p_verbatim"] == pytest.approx(27.0**-7)
    assert row["mass_lower"][0] == pytest.approx(27 / 26 * 27.0**-5 / 26, rel=1e-5)
    assert row["mass_upper"][0] == pytest.approx(row["mass_lower"][0], rel=1e-5)
