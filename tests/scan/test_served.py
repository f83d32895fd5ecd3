"""`byrote scan --model endpoint:URL` from end to end: the tiny model behind a loopback server against the same model on
this machine, under caps, faults, ceilings and restarts."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.served.client import RequestLimits
from byrote.scan import served
from tests.loopback.logprobs import Habits, LogprobServer, small
from tests.loopback.server import Fault
from tests.models.served import KEY
from tests.scan.scans import SMALL, Command, Outcome, TinyLab, scan_arguments

WINDOWS = 3
ROUNDING = 1e-4
"""Rows of a batch and rows alone differ by float32 rounding, and servers tell float32."""


@pytest.fixture(scope="module")
def model(lab: TinyLab) -> HuggingFaceModel:
    return load(str(lab.model.path), device="cpu")


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(served, "RequestLimits", partial(RequestLimits, sleep=lambda seconds: None))


@contextmanager
def serve(model: HuggingFaceModel, habits: Habits | None = None, **further: Any) -> Iterator[LogprobServer]:
    with LogprobServer(model, lambda text: model.encode_batch([text])[0].ids, habits, **further) as server:
        yield server


def scan(byrote: Command, lab: TinyLab, server: LogprobServer | str, out: Path, **options: object) -> Outcome:
    url = server if isinstance(server, str) else server.url
    given: dict[str, object] = {"tokenizer": lab.model.path, "limit": WINDOWS, "screen": "off", "ask-twice": 0}
    given["key-variable"] = "OPENAI_API_KEY"
    return byrote(*scan_arguments(lab, out, model=f"endpoint:{url}", **(given | options)))


def rows_of(out: Path) -> list[dict[str, Any]]:
    return pl.read_parquet(out / "results.parquet").to_dicts()


def manifest_of(out: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((out / "manifest.json").read_bytes())
    return manifest


@pytest.fixture(scope="module")
def local(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of the same scan on this machine."""
    from byrote.cli.main import main

    out = tmp_path_factory.mktemp("local") / "run"
    with pytest.raises(SystemExit):
        main(scan_arguments(lab, out, limit=WINDOWS, screen="off", answers=0))
    return rows_of(out)


def assert_same_rows(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    assert [row["window_id"] for row in ours] == [row["window_id"] for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for name in ("p_verbatim", "mass_lower", "mass_upper", "open_mass"):
            assert one[name] == pytest.approx(other[name], rel=ROUNDING, abs=1e-9), name
        for name in ("verdict", "stop_reason", "greedy_levenshtein", "suffix_ids"):
            assert one[name] == other[name], name


def assert_key_in_no_file(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert not any(KEY.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
def test_a_served_model_has_the_numbers_of_the_model(
    dialect: str, byrote: Command, lab: TinyLab, model: HuggingFaceModel, local: list[dict[str, Any]], tmp_path: Path
) -> None:
    with serve(model, Habits(dialect=dialect)) as server:
        outcome = scan(byrote, lab, server, tmp_path / "run", **{"ask-twice": 1})
    assert outcome.code == 0, outcome.err
    ours = rows_of(tmp_path / "run")
    assert_same_rows(ours, local)
    if dialect != "llamacpp":
        assert [row["token_evals"] for row in ours] == [row["token_evals"] for row in local]
    manifest = manifest_of(tmp_path / "run")
    known = manifest["model"]
    assert (known["dialect"], known["endpoint"], known["is_verified"]) == (dialect, server.url, False)
    assert known["weights_hash"].startswith("not known")
    assert manifest["served"]["requests"] == server.seen.requests
    twice = manifest["served"]["asked_twice"]
    assert twice["windows"] == 1
    assert twice["largest_shift"] == 0
    assert twice["verdicts_changed"] == 0
    assert "Asked twice" not in outcome.err
    assert manifest["served"]["cap"] is None
    assert server.seen.authorisations == {f"Bearer {KEY}"}
    assert_key_in_no_file(tmp_path)
    assert byrote("verify", tmp_path / "run").code == 0


@pytest.mark.parametrize("crowded", [Fault.SERVER_ERROR, Fault.RATE_LIMIT, Fault.DROPPED])
def test_a_server_that_takes_two_requests_at_once_survives_a_scan(
    crowded: Fault,
    byrote: Command,
    lab: TinyLab,
    model: HuggingFaceModel,
    local: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A third is answered with an error, or its connection is closed; log-probabilities inside more than 40 tokens do
    not fit into its memory. One prompt a request, so that there are many."""
    limits = partial(RequestLimits, sleep=lambda seconds: None, prompts_per_request=1)
    monkeypatch.setattr(served, "RequestLimits", limits)
    with serve(model) as plain:
        server = small(plain)
        server.places, server.crowded = 40, crowded
        outcome = scan(byrote, lab, server, tmp_path / "run")
    assert outcome.code == 0, outcome.err
    assert 0 < server.turned_away < server.seen.requests / 3
    assert_same_rows(rows_of(tmp_path / "run"), local)


def test_llama_server_can_be_asked_for_its_own_tokenizer(
    byrote: Command, lab: TinyLab, model: HuggingFaceModel, local: list[dict[str, Any]], tmp_path: Path
) -> None:
    def pieces(text: str) -> list[tuple[int, str]]:
        ids, spans = model.encode_batch([text])[0]
        return [(token, text[start:end]) for token, (start, end) in zip(ids, spans, strict=True)]

    with serve(model, Habits(dialect="llamacpp"), pieces=pieces, decode=model.decode) as server:
        outcome = scan(byrote, lab, server, tmp_path / "run", tokenizer=None)
    assert outcome.code == 0, outcome.err
    ours = rows_of(tmp_path / "run")
    assert [(row["prefix_ids"], row["char_end"]) for row in ours] == [
        (row["prefix_ids"], row["char_end"]) for row in local
    ]
    for one, other in zip(ours, local, strict=True):
        assert one["p_verbatim"] == pytest.approx(other["p_verbatim"], rel=ROUNDING, abs=1e-9)
    assert manifest_of(tmp_path / "run")["model"]["tokenizer_round_trip"] == "the server's own tokenizer"


def test_a_capped_server_gives_wider_bounds_and_says_what_lifts_the_cap(
    byrote: Command, lab: TinyLab, model: HuggingFaceModel, local: list[dict[str, Any]], tmp_path: Path
) -> None:
    with serve(model, Habits(cap=4)) as server:
        outcome = scan(byrote, lab, server, tmp_path / "run")
    assert outcome.code == 0, outcome.err
    assert "--max-logprobs 10" in outcome.err
    assert "No window was estimated by sampling" in outcome.err
    notes = manifest_of(tmp_path / "run")["served"]["notes"]
    assert [words for words in notes if words not in outcome.err] == []
    page = " ".join(byrote("show", tmp_path / "run").out.split())
    assert "No window was estimated by sampling" in page
    assert "cannot be verified" in page
    assert "computed from the model itself" not in page
    cap = manifest_of(tmp_path / "run")["served"]["cap"]
    assert (cap["listed"], cap["top_k"]) == (4, 10)
    assert 0 < cap["open_share_mean"] <= cap["open_share_largest"] < 1
    for one, other in zip(rows_of(tmp_path / "run"), local, strict=True):
        slack = 1 + ROUNDING
        assert one["p_verbatim"] <= other["p_verbatim"] * slack
        assert other["p_verbatim"] <= one["p_verbatim_upper"] * slack
        for edits, (low, high) in enumerate(zip(one["mass_lower"], one["mass_upper"], strict=True)):
            assert low <= other["mass_upper"][edits] * slack
            assert other["mass_lower"][edits] <= high * slack


def test_faults_lose_nothing(
    byrote: Command, lab: TinyLab, model: HuggingFaceModel, local: list[dict[str, Any]], tmp_path: Path
) -> None:
    kinds = [Fault.RATE_LIMIT, Fault.SERVER_ERROR, Fault.TRUNCATED, Fault.DROPPED, Fault.NOT_JSON]
    faults = {4 + 3 * number: fault for number, fault in enumerate(kinds)}
    with serve(model, faults=faults) as server:
        outcome = scan(byrote, lab, server, tmp_path / "run", concurrency=1)
    assert outcome.code == 0, outcome.err
    assert_same_rows(rows_of(tmp_path / "run"), local)
    assert manifest_of(tmp_path / "run")["served"]["requests"] == server.seen.requests
    answered = Counter(server.seen.prompts)
    # A cut body and one that is not JSON were worked on; their request alone came again.
    assert sum(count - 1 for count in answered.values()) <= 2 * 32 + 4


def test_a_server_that_dies_is_asked_nothing_twice_but_what_was_in_flight(
    byrote: Command, lab: TinyLab, model: HuggingFaceModel, local: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with serve(model, faults=dict.fromkeys(range(9, 1000), Fault.SERVER_ERROR)) as server:
        broken = scan(byrote, lab, server, out, concurrency=1, attempts=2)
        port, first = server.port, list(server.seen.prompts)
    assert broken.code == 2
    assert "Nothing answered is lost" in broken.err
    assert not (out / "manifest.json").exists()
    with serve(model, port=port) as server:
        assert scan(byrote, lab, server, out, concurrency=1).code == 0
        second = list(server.seen.prompts)
    assert_same_rows(rows_of(out), local)
    probes = {prompt for prompt in first if len(prompt) <= 8}
    assert not (set(first) & set(second)) - probes
    assert set(first) - probes, "something was answered before it died"


def test_ceilings_hold_and_may_be_raised(
    byrote: Command, lab: TinyLab, model: HuggingFaceModel, local: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with serve(model) as server:
        outcome = scan(byrote, lab, server, out, **{"max-requests": 20})
        assert outcome.code == 2
        assert "--max-requests 20" in outcome.err
        assert server.seen.bodies
        assert server.seen.requests == 20
        again = scan(byrote, lab, server, out, **{"max-requests": 20})
        assert again.code == 2
        assert "--max-requests 20" in again.err
        assert server.seen.requests == 20, "a ceiling holds for all openings of a run"
        assert scan(byrote, lab, server, out).code == 0
        few = scan(byrote, lab, server, tmp_path / "other", **{"max-tokens-total": 500})
        assert few.code == 2
        assert "--max-tokens-total 500" in few.err
    assert_same_rows(rows_of(out), local)


@pytest.mark.parametrize("path", ["/v1/models", "/tokenize", "/v1/completions"])
def test_a_ceiling_holds_over_openings_that_fail_to_connect(
    path: str, byrote: Command, lab: TinyLab, model: HuggingFaceModel, tmp_path: Path
) -> None:
    """Whatever is asked first: the list of models, the tokens of a text, probabilities."""

    def spoil(asked: str, content: bytes) -> bytes:
        return b"[]" if asked == path else content

    with serve(model, spoil=spoil) as server:
        refused = [scan(byrote, lab, server, tmp_path / "run", **{"max-requests": 14}) for _ in range(15)]
        assert server.seen.requests == 14
        assert [outcome.code for outcome in refused] == [2] * 15
        assert "cannot be read" in refused[0].err
        assert "--max-requests 14" in refused[-1].err
        assert scan(byrote, lab, server, tmp_path / "run", fresh=True, **{"max-requests": 14}).code == 2
        assert server.seen.requests > 14, "a run that is started over counts from 0"


def test_an_answer_that_cannot_be_read_is_no_mistake_of_ours(
    byrote: Command, lab: TinyLab, model: HuggingFaceModel, tmp_path: Path
) -> None:
    for number, odd in enumerate((b"[]", b'{"choices": null}', b'{"choices": [{"logprobs": {"top_logprobs": [7]}}]}')):
        with serve(model, spoil=lambda path, content, odd=odd: odd if path == "/v1/completions" else content) as server:
            outcome = scan(byrote, lab, server, tmp_path / str(number))
        assert outcome.code == 2
        assert "gave an answer that cannot be read" in " ".join(outcome.err.split())


def test_numbers_that_move_with_company_are_reported(
    byrote: Command, lab: TinyLab, model: HuggingFaceModel, tmp_path: Path
) -> None:
    with serve(model, Habits(shift=lambda prompts: 0.0 if prompts == 1 else 0.06)) as server:
        moved = scan(byrote, lab, server, tmp_path / "run", **{"ask-twice": 2, "limit": 2})
    assert moved.code == 0
    assert "up to 0.0600 nat apart" in " ".join(moved.err.split())
    twice = manifest_of(tmp_path / "run")["served"]["asked_twice"]
    assert twice["windows"] == 2
    assert twice["prompts_compared"] > 0
    assert twice["largest_shift"] == pytest.approx(0.06, abs=1e-4)


def test_refusals_are_one_sentence(byrote: Command, lab: TinyLab, model: HuggingFaceModel, tmp_path: Path) -> None:
    def refused(server: LogprobServer | str, **options: object) -> str:
        outcome = scan(byrote, lab, server, tmp_path / "run", **options)
        assert outcome.code == 2
        assert "Traceback" not in outcome.err
        assert KEY not in outcome.err
        return " ".join(outcome.err.split())

    with serve(model) as server:
        assert "give --tokenizer FOLDER" in refused(server, tokenizer=None)
        assert "--served-model" in refused(server, **{"served-model": "other"})
        assert "needs the weights" in refused(server, verify=True)
        assert "membership needs whole distributions" in refused(server, measures="verbatim,membership")
        assert "give --top-k too" in refused(server, **{"top-k": "none", "top-p": 0.9})
        assert "sweep k=20" in refused(server, sweep="k=20", logprobs=10)
        assert "closure, refine, residual, answers and estimates" in refused(server, refine=10, logprobs=4)
        for name, value in (("revision", "main"), ("adapter", "lora"), ("executor", "ray")):
            assert "is a server" in refused(server, **{name: value})
    with serve(model, Habits(owner="me")) as server:
        assert "give --set dialect=" in refused(server)
    with serve(model, Habits(has_text_keys=True)) as server:
        assert "names tokens by their text" in refused(server)
    with serve(model, Habits(dialect="llamacpp", has_text_keys=True)) as server:
        assert "names tokens by their text" in refused(server)
    with serve(model, faults={0: Fault.ECHO_KEY}) as server:
        assert "check the key" in refused(server)
    with LogprobServer(model, lambda text: [1, 2, 3]) as server:
        assert "is not the one that" in refused(server)
    assert "cannot be reached" in refused("http://127.0.0.1:9")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".requests"], "what was sent is counted, no more"


@pytest.mark.parametrize("command", ["prior", "study"])
def test_what_does_not_measure_servers_says_so_before_anything_is_done(
    command: str, byrote: Command, lab: TinyLab, model: HuggingFaceModel, tmp_path: Path
) -> None:
    """A study of served models is a scan a cell; its Monte Carlo sampling is what needs the weights."""
    texts, out = lab.files.targets, tmp_path / "run"
    study = tmp_path / "study.yaml"
    with serve(model) as server:
        name = f"endpoint:{server.url}"
        study.write_text(f"model: {name}\ntext: [{texts}]\nmontecarlo_windows: 1\n", encoding="utf-8")
        given = {
            "prior": ["--model", name, "--text", texts, "--prior-text", lab.files.controls],
            "study": [study],
        }[command]
        refused = byrote(command, *given, "--out", out)
        assert not server.seen.bodies
    assert refused.code == 2
    assert ("behind a server" if command == "study" else "is a server, which lists") in " ".join(refused.err.split())
    assert not out.exists()


def test_a_study_may_scan_a_server(byrote: Command, lab: TinyLab, model: HuggingFaceModel, tmp_path: Path) -> None:
    study, out = tmp_path / "study.yaml", tmp_path / "study"
    small = {**SMALL, "tokenizer": lab.model.path, "limit": 1, "screen": "off", "ask_twice": 0, "beam_width": "[2, 3]"}
    with serve(model, Habits(cap=4)) as server:
        lines = {"model": f"endpoint:{server.url}", "text": f"[{lab.files.targets}]", "overlap": 0.5, **small}
        written = "\n".join(f"{name.replace('-', '_')}: {value}" for name, value in lines.items())
        study.write_text(written, encoding="utf-8")
        outcome = byrote("study", study, "--out", out)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("No window was estimated by sampling") == 2
    assert len(list(out.glob("cells/*/manifest.json"))) == 2


def test_the_ledger_of_a_capped_run_adds_up(
    byrote: Command, lab: TinyLab, model: HuggingFaceModel, tmp_path: Path
) -> None:
    with serve(model) as server:
        assert scan(byrote, lab, server, tmp_path / "run", **{"logprobs": 3, "stop-rule": "off"}).code == 0
    for row in rows_of(tmp_path / "run"):
        parts = (row["search_lower"][-1], row["open_mass"], row["eos_mass"], row["refuted_mass"])
        assert math.fsum(parts) == pytest.approx(1.0, abs=1e-5)
