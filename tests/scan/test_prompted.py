"""Scans with prompts, from the command to the page: a lab model with a chat template, judged by its own forward."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import byrote as package
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.prompts import INSTRUCTION, make_prompt
from byrote.report.analysis.comparison import compare_runs
from byrote.report.analysis.prompts import prompt_rates
from byrote.report.view import load_view
from byrote.store.columns import window_of
from tests.loopback.logprobs import Habits, LogprobServer
from tests.scan.chatting import chatting_model
from tests.scan.scans import SMALL, Command, TinyLab, scan_arguments

PROMPTS = ("plain", "chat", "ask")


@pytest.fixture(scope="module")
def chatting(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    model = chatting_model(tmp_path_factory.mktemp("chatting-model"))
    return TinyLab(model, model.write_texts(tmp_path_factory.mktemp("chatting")))


@pytest.fixture(scope="module")
def model(chatting: TinyLab) -> HuggingFaceModel:
    return load(str(chatting.model.path), device="cpu")


@pytest.fixture(scope="module")
def runs(chatting: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One command with three prompts."""
    from byrote.cli.main import main

    out = tmp_path_factory.mktemp("prompts") / "runs"
    with pytest.raises(SystemExit) as ended:
        main(scan_arguments(chatting, out, prompt=",".join(PROMPTS), sample=24, control=chatting.files.controls))
    assert not ended.value.code
    return out


def rows_of(run: Path) -> list[dict[str, Any]]:
    return pl.read_parquet(run / "results.parquet").sort("window_id").to_dicts()


def manifest_of(run: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((run / "manifest.json").read_bytes())
    return manifest


def log_p(model: HuggingFaceModel, context: list[int], target: list[int], top_k: int) -> float:
    """By the library's own forward, position by position."""
    with torch.inference_mode():
        logits = model.model(torch.tensor([context + target])).logits[0].double()
    total = 0.0
    for place, token in enumerate(target):
        row = logits[len(context) - 1 + place]
        kept = row.sort(descending=True, stable=True).indices[:top_k].tolist()
        if token not in kept:
            return -np.inf
        total += float(row[token] - row[kept].logsumexp(0))
    return total


@pytest.mark.parametrize("prompt", PROMPTS)
def test_probabilities_are_those_of_the_target_behind_the_whole_prompt(
    prompt: str, runs: Path, model: HuggingFaceModel
) -> None:
    for row in rows_of(runs / prompt):
        context = row["given_ids"] if prompt != "plain" else row["prefix_ids"]
        expected = log_p(model, list(context), list(row["suffix_ids"]), 10)
        assert row["log_p_verbatim"] == pytest.approx(expected, abs=1e-3)


def test_windows_are_the_same_and_what_is_given_is_not(runs: Path, model: HuggingFaceModel) -> None:
    plain, chat, ask = (rows_of(runs / prompt) for prompt in PROMPTS)
    assert (
        [row["window_id"] for row in plain] == [row["window_id"] for row in chat] == [row["window_id"] for row in ask]
    )
    assert "given_ids" not in plain[0]
    for one, other, asked in zip(plain, chat, ask, strict=True):
        for name in ("prefix_ids", "char_start", "suffix_char_start", "char_end"):
            assert one[name] == other[name] == asked[name]
        assert one["suffix_ids"] == other["suffix_ids"]
        assert other["given_ids"][-len(one["prefix_ids"]) :] == one["prefix_ids"]
        assert INSTRUCTION in model.decode(other["given_ids"])
        assert model.decode(asked["suffix_ids"]) == model.decode(one["suffix_ids"]).lstrip()
        assert model.decode(asked["given_ids"]).endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_several_prompts_are_the_runs_of_each(runs: Path, chatting: TinyLab, byrote: Command, tmp_path: Path) -> None:
    given = {"prompt": "chat", "sample": 24, "control": chatting.files.controls}
    assert byrote(*scan_arguments(chatting, tmp_path / "alone", **given)).code == 0
    alone, together = rows_of(tmp_path / "alone"), rows_of(runs / "chat")
    for one, other in zip(alone, together, strict=True):
        assert one.keys() == other.keys()
        assert one["window_id"] == other["window_id"]
        assert one["p_verbatim"] == pytest.approx(other["p_verbatim"], rel=1e-6)
        assert one["mass_lower"] == pytest.approx(other["mass_lower"], rel=1e-6)


def test_mean_and_maximum_follow_from_the_rows_of_single_runs(runs: Path) -> None:
    views = [load_view(runs / prompt) for prompt in PROMPTS]
    found = prompt_rates(views, compare_runs(views))
    assert {row.tried for row in found} == {1, 3}
    frames = [rows_of(runs / prompt) for prompt in PROMPTS]
    for split in ("target", "control"):
        own = [[row for row in rows if row["split"] == split and not row["shared_with"]] for rows in frames]
        lower = np.array([[row["mass_lower"][-1] for row in rows] for rows in own])
        upper = np.array([[row["mass_upper"][-1] for row in rows] for rows in own])
        verbatim = np.array([[row["p_verbatim"] for row in rows] for rows in own])
        for criterion, low, high in (("near", lower, upper), ("verbatim", verbatim, verbatim)):
            of = {row.prompt: row for row in found if (row.split, row.criterion) == (split, criterion)}
            assert list(of) == [*PROMPTS, "mean", "maximum"]
            for name, values, tops in (
                *zip(PROMPTS, low, high, strict=True),
                ("mean", low.mean(0), high.mean(0)),
                ("maximum", low.max(0), high.max(0)),
            ):
                assert of[name].hits == int((values >= 0.001).sum())
                assert of[name].not_ruled_out == int((tops >= 0.001).sum())
                assert of[name].mass_lower == pytest.approx(values.mean())
                assert of[name].mass_upper == pytest.approx(tops.mean())


def test_no_ensemble_is_made_of_runs_that_are_none(runs: Path) -> None:
    plain, chat = load_view(runs / "plain"), load_view(runs / "chat")
    assert prompt_rates([plain, plain], compare_runs([plain, plain])) == []
    assert prompt_rates([chat], compare_runs([chat])) == []
    other = dict(chat.manifest) | {"model": {**chat.manifest["model"], "weights_hash": "another"}}
    object.__setattr__(chat, "manifest", other)
    assert prompt_rates([plain, chat], compare_runs([plain, chat])) == []


def test_a_page_has_the_rates_of_all_prompts(runs: Path, byrote: Command, tmp_path: Path) -> None:
    folders = [runs / prompt for prompt in PROMPTS]
    shown = " ".join(byrote("show", *folders).out.split())
    assert "with at least one of the 3 prompts tried" in shown
    assert byrote("report", *folders, "--out", tmp_path / "page").code == 0
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "maximum of 3 prompts" in page
    assert (tmp_path / "page" / "figures" / "prompts.svg").exists()
    with (tmp_path / "page" / "tables" / "prompts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["prompt"] for row in rows} == {*PROMPTS, "mean", "maximum"}
    assert {row["prompts_tried"] for row in rows if row["prompt"] == "maximum"} == {"3"}
    hits = {row["prompt"]: int(row["hits"]) for row in rows if (row["split"], row["criterion"]) == ("target", "near")}
    assert hits["ask"] < hits["plain"] <= hits["maximum"], "one prompt finds what another misses"


def test_a_plain_scan_of_a_chat_model_says_so_in_one_line(
    runs: Path, byrote: Command, chatting: TinyLab, lab: TinyLab, tmp_path: Path
) -> None:
    said = "has a chat template and was measured without it"
    assert said in " ".join(byrote("show", runs / "plain").out.split())
    assert byrote("report", runs / "plain", "--out", tmp_path / "page").code == 0
    assert said in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    chat = " ".join(byrote("show", runs / "chat").out.split())
    assert said not in chat
    assert "12 tokens of a text, inside the prompt chat." in chat
    assert byrote(*scan_arguments(lab, tmp_path / "base", limit=4)).code == 0
    assert said not in " ".join(byrote("show", tmp_path / "base").out.split())


def test_the_prompt_belongs_to_the_run(runs: Path, byrote: Command, chatting: TinyLab, tmp_path: Path) -> None:
    facts = manifest_of(runs / "chat")["prompt"]
    assert (facts["name"], facts["has_chat_template"], facts["thinking"]) == ("chat", True, "none")
    assert len(facts["template_hash"]) == len(facts["hash"]) == 64
    own = tmp_path / "own.txt"
    own.write_text("Book: {prefix}", encoding="utf-8")
    given = {"prompt": own, "limit": 2}
    assert byrote(*scan_arguments(chatting, tmp_path / "run", **given)).code == 0
    assert "was complete already" in byrote(*scan_arguments(chatting, tmp_path / "run", **given)).err
    own.write_text("Novel: {prefix}", encoding="utf-8")
    changed = byrote(*scan_arguments(chatting, tmp_path / "run", **given))
    assert changed.code == 2
    assert "prompt" in changed.err
    assert manifest_of(runs / "plain")["prompt"] == {"name": "plain", "has_chat_template": True}
    assert "prompt" not in json.loads((runs / "plain" / "identity.json").read_bytes())["identity"]


@pytest.mark.parametrize("prompt", ["chat", "ask"])
@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
def test_a_served_model_is_given_the_same_prompts(
    prompt: str, dialect: str, chatting: TinyLab, model: HuggingFaceModel, byrote: Command, tmp_path: Path
) -> None:
    given: dict[str, object] = {"prompt": prompt, "limit": 3, "screen": "off"}
    tokenize = lambda text: model.encode_batch([text])[0].ids  # noqa: E731
    with LogprobServer(model, tokenize, Habits(dialect=dialect)) as server:
        served = {"model": f"endpoint:{server.url}", "tokenizer": chatting.model.path, "ask-twice": 0}
        outcome = byrote(*scan_arguments(chatting, tmp_path / "served", **(given | served)))
    assert outcome.code == 0, outcome.err
    assert byrote(*scan_arguments(chatting, tmp_path / "here", **given)).code == 0
    for one, other in zip(rows_of(tmp_path / "served"), rows_of(tmp_path / "here"), strict=True):
        assert one["given_ids"] == other["given_ids"]
        assert one["p_verbatim"] == pytest.approx(other["p_verbatim"], rel=1e-4, abs=1e-9)
        assert one["mass_lower"] == pytest.approx(other["mass_lower"], rel=1e-4, abs=1e-9)
        assert one["verdict"] == other["verdict"]


def test_samples_are_drawn_with_the_prompt_of_the_run_or_another(runs: Path, byrote: Command, tmp_path: Path) -> None:
    drawn = ["--samples", 400, "--sample", 3, "--device", "cpu"]
    assert byrote("mc", runs / "chat", *drawn, "--out", tmp_path / "own").code == 0
    bounds = {row["window_id"]: row for row in rows_of(runs / "chat")}
    for row in rows_of(tmp_path / "own"):
        assert row["given_ids"] == bounds[row["window_id"]]["given_ids"]
        assert row["certified_lower"] == bounds[row["window_id"]]["mass_lower"][-1]
        # Five standard errors and a little: less than one false alarm in a million.
        assert row["mass"] >= row["certified_lower"] - 5 * (0.25 / 400) ** 0.5
    assert byrote("mc", runs / "plain", *drawn, "--prompt", "chat", "--out", tmp_path / "other").code == 0
    for row in rows_of(tmp_path / "other"):
        assert row["given_ids"] == bounds[row["window_id"]]["given_ids"]
        assert row["certified_lower"] is None, "the run's bounds are about another question"
    refused = byrote("mc", runs / "ask", *drawn, "--prompt", "chat")
    assert refused.code == 2
    assert "measured with the prompt ask" in refused.err


def test_python_takes_a_prompt(runs: Path, chatting: TinyLab, model: HuggingFaceModel, tmp_path: Path) -> None:
    text = str(sorted(chatting.files.targets.glob("conversation*.txt"))[0])
    options = {name: SMALL[name] for name in SMALL if name != "device"} | {"limit": 4, "screen": "off"}
    windows = package.read_windows(model, text, prompt="ask", **options)
    results = package.scan(model, windows)
    prompt = make_prompt("ask", model, bos_id=model.bos_id("auto"))
    assert prompt is not None
    for window, row in zip(windows, results, strict=True):
        assert row["given_ids"] == list(window.context_ids)
        assert window_of(row) == window
        assert window.context_ids[: len(prompt.head_ids)] == prompt.head_ids
    assert "given_ids" in results.to_polars().columns
    results.save(tmp_path / "saved")
    assert manifest_of(tmp_path / "saved")["prompt"]["name"] == "ask"
    with pytest.raises(package.ByroteError, match="one prompt at a time"):
        package.read_windows(model, text, prompt="chat,ask", **options)
    with pytest.raises(package.ByroteError, match="windows were read with prompt"):
        package.scan(model, windows, prompt="chat")


def test_pairs_take_a_prompt(chatting: TinyLab, model: HuggingFaceModel, byrote: Command, tmp_path: Path) -> None:
    source = tmp_path / "pairs.jsonl"
    pairs = [{"prefix": "The harbour was grey that", "suffix": " morning and nobody had counted the boats yet."}] * 2
    source.write_text(
        "".join(json.dumps(pair | {"id": str(n)}) + "\n" for n, pair in enumerate(pairs)), encoding="utf-8"
    )
    small = ["--device", "cpu", "--top-k", 10, "--beam-width", 4, "--edit-budget", 2]
    arguments = ["scan", "--model", chatting.model.path, "--pairs", source, "--out", tmp_path / "run", *small]
    outcome = byrote(*arguments, "--prompt", "ask")
    assert outcome.code == 0, outcome.err
    for row in rows_of(tmp_path / "run"):
        assert model.decode(row["suffix_ids"]) == pairs[0]["suffix"].strip()
        expected = log_p(model, row["given_ids"], row["suffix_ids"], 10)
        assert row["log_p_verbatim"] == pytest.approx(expected, abs=1e-3)


def bad(tmp_path: Path) -> Iterator[tuple[str, str]]:
    yield "chat,chat", "give every prompt once"
    yield str(tmp_path / "nowhere.txt"), "neither plain, chat or ask nor a file"


def test_bad_prompts_are_one_sentence(chatting: TinyLab, lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    for prompt, words in bad(tmp_path):
        outcome = byrote(*scan_arguments(chatting, tmp_path / "run", prompt=prompt))
        assert outcome.code == 2
        assert words in outcome.err
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", prompt="chat"))
    assert outcome.code == 2
    assert "has no chat template" in outcome.err
    assert "Traceback" not in outcome.err
