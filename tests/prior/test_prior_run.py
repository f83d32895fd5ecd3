"""`rote prior` as a user meets it: run folders, resume, pairs, spans, sweeps, the joined view, bad input."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from rote.cli.prior import decimal, prior
from rote.errors import ConfigError, ModelError, RoteError, RunError, TextError, WindowError
from rote.models.hf import HuggingFaceModel, load
from rote.models.shared_prefix import PLAIN
from rote.prior import estimate as prior_estimate
from rote.prior.options import PriorConfig
from rote.prior.run import prior_to_folder
from rote.scan.options import RunConfig
from rote.scan.run import scan_to_folder
from rote.stats.prior_mean import PriorVerdict
from rote.store.read import read_run
from rote.store.session import RunSession
from tests.models.tiny import tiny_model, tiny_tokenizer

TEXT = "Ada Byron lives at 12 Mill Lane. Telephone 959-481-5012. The kettle sings and the cat sleeps by the door. "
THRESHOLD = 1e-9
"""A random model gives three bytes little probability; some windows lie above this, some below."""
REFERENCE = (
    "It rained for a week and nobody came to the fair, so the baker gave away his bread and went home early. " * 3
)


class Silent:
    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        yield

    def start(self, total: int, done: int) -> None: ...

    def advance(self, windows: int) -> None: ...


class Killed(Exception):
    pass


class KilledAfter(Silent):
    """Dies when the given number of blocks is on the disk."""

    def __init__(self, blocks: int) -> None:
        self.left = blocks

    def advance(self, windows: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prior")
    tiny_model("llama", vocab_size=258).save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    (folder / "reference.txt").write_text(REFERENCE, encoding="utf-8")
    (folder / "generic.txt").write_text("once upon a time\nthank you very much\nhow do you do\n", encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rote.prior.run.load", loaded)


@lru_cache
def loaded(name: str, **_: object) -> HuggingFaceModel:
    """Loading is tested elsewhere; here one model serves all runs."""
    return load(name)


def config(place: Path, out: Path, **changes: Any) -> PriorConfig:
    settings: dict[str, Any] = {
        "model": str(place / "model"),
        "prior_text": (str(place / "reference.txt"),),
        "text": (str(place / "text.txt"),),
        "out": str(out),
        "prefix_tokens": 6,
        "suffix_tokens": 3,
        "prior_prefixes": 20,
        "trials": 2,
        "limit": 4,
        "generic": str(place / "generic.txt"),
        **changes,
    }
    return PriorConfig(**settings)


def run(place: Path, out: Path, **changes: Any) -> pl.DataFrame:
    prior_to_folder(config(place, out, **changes), progress=Silent())
    return read_run(out).results


def totals(out: Path) -> dict[str, Any]:
    manifest = read_run(out).manifest
    assert manifest is not None
    found: dict[str, Any] = manifest["totals"]
    return found


def mean_over_reference(model: HuggingFaceModel, suffix: list[int], *, prefix_tokens: int) -> float:
    """log v over every start of the reference text, by teacher forcing: what the draws must approach."""
    ids = model.encode_batch([REFERENCE])[0].ids
    starts = range(0, len(REFERENCE), 20)
    prefixes = [ids[start : start + prefix_tokens] for start in starts if start + prefix_tokens + 1 <= len(ids)]
    scores = model.score([[*prefix, *suffix] for prefix in prefixes], len(suffix), [PLAIN]).log_probs[0].sum(-1)
    return float(scores.exp().mean().log())


def test_rows_hold_the_definition(place: Path, tmp_path: Path) -> None:
    rows = run(place, tmp_path / "out", prior_prefixes=4000)
    model = load(str(place / "model"))
    for row in rows.iter_rows(named=True):
        own = model.score([row["prefix_ids"] + row["suffix_ids"]], 3, [PLAIN]).log_probs[0].sum().item()
        assert row["log_p_conditional"] == pytest.approx(own, abs=1e-4)
        # 6 standard errors of 8,000 draws over 15 prefixes: no false alarm in practice, and the seed is fixed.
        expected = mean_over_reference(model, row["suffix_ids"], prefix_tokens=6)
        assert abs(row["log_p_prior"] - expected) < 6 * row["prior_relative_error"] + 1e-3
        assert row["log_ratio"] == pytest.approx(row["log_p_conditional"] - row["log_p_prior"])
        assert row["log_ratio_low"] < row["log_ratio"] < row["log_ratio_high"]
        assert len(row["trial_log_priors"]) == 2
    assert rows["document"].unique().to_list() == ["text.txt"]


def test_threshold_n_is_the_mean_ratio_over_halved_generic_texts(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out", prior_prefixes=4000)
    model = load(str(place / "model"))
    ratios = []
    for line in (place / "generic.txt").read_text().splitlines():
        ids = model.encode_batch([line])[0].ids[:6]
        own = model.score([ids], 3, [PLAIN]).log_probs[0].sum().item()
        ratios.append(math.exp(own - mean_over_reference(model, ids[3:], prefix_tokens=6)))
    entry = totals(tmp_path / "out")["thresholds"][0]["by_suffix_tokens"]["3"]
    assert math.exp(entry["log_least_ratio"]) == pytest.approx(np.mean(ratios), rel=0.2)
    assert entry["generic_texts"] == 3


def test_thresholds_given_by_the_user_decide_the_verdicts(place: Path, tmp_path: Path) -> None:
    loose = run(place, tmp_path / "loose", least_probability=0.0, least_ratio=0.0)
    assert set(loose["prior_verdict"]) == {str(PriorVerdict.MEMORIZED)}
    likely = run(place, tmp_path / "likely", least_probability=0.0, least_ratio=1e12)
    assert set(likely["prior_verdict"]) == {str(PriorVerdict.MERELY_LIKELY)}
    strict = run(place, tmp_path / "strict", least_probability=0.999)
    assert set(strict["prior_verdict"]) == {str(PriorVerdict.NOT_EXTRACTABLE)}
    assert totals(tmp_path / "likely")["all"]["merely_likely"] == 4


def test_killed_run_resumes_without_repeating_finished_blocks_and_ends_in_the_same_numbers(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prior_estimate, "BLOCK_PREFIXES", 4)
    whole = run(place, tmp_path / "whole")
    out = tmp_path / "killed"
    with pytest.raises(Killed):
        prior_to_folder(config(place, out), progress=KilledAfter(2))
    kept = {file.stem for file in (out / "blocks").iterdir()}
    assert len(kept) == 2
    written: list[str] = []
    original = RunSession.write_block
    monkeypatch.setattr(RunSession, "write_block", lambda *given: (written.append(given[1]), original(*given)))
    again = run(place, out)
    assert written
    assert kept.isdisjoint(written)
    assert again.equals(whole)
    assert not (out / "blocks").exists()
    assert prior_to_folder(config(place, out), progress=Silent()).was_complete


def test_a_damaged_block_is_measured_again(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior_estimate, "BLOCK_PREFIXES", 4)
    whole = run(place, tmp_path / "whole")
    out = tmp_path / "damaged"
    with pytest.raises(Killed):
        prior_to_folder(config(place, out), progress=KilledAfter(2))
    first = min((out / "blocks").iterdir())
    first.write_bytes(first.read_bytes()[:100])
    assert run(place, out).equals(whole)


def test_the_same_folder_with_other_options_is_refused(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out")
    with pytest.raises(RunError, match="made with something else"):
        run(place, tmp_path / "out", prior_prefixes=21)


def test_seed_decides_the_draws(place: Path, tmp_path: Path) -> None:
    first, second = (run(place, tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 2)))
    assert first["log_p_prior"].to_list() != second["log_p_prior"].to_list()
    assert first["log_p_conditional"].to_list() == second["log_p_conditional"].to_list()


def test_pairs_are_scored_as_given(place: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"prefix": "The cat sat", "suffix": " on", "id": "mat", "kind": "idiom"}, {"prefix": "A", "suffix": "bc"}]
    pairs.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = run(place, tmp_path / "out", text=(), pairs=str(pairs), limit=None)
    assert found["window_id"].to_list() == ["mat", "pairs.jsonl#2"]
    assert found["suffix_text"].to_list() == [" on", "bc"]
    assert found["kind"].to_list() == ["idiom", "pair"]
    assert [len(ids) for ids in found["prefix_ids"]] == [6, 1]
    assert set(totals(tmp_path / "out")["by_kind"]) == {"idiom", "pair"}
    assert totals(tmp_path / "out")["boundaries_merged"] == 0


def test_spans_become_suffixes(place: Path, tmp_path: Path) -> None:
    found = run(place, tmp_path / "out", spans="auto", span_kinds=("phone",), limit=None)
    assert found["suffix_text"].to_list() == ["959-481-5012"]
    assert found["kind"].to_list() == ["phone"]


def test_sweep_repeats_everything_at_every_prefix_length(place: Path, tmp_path: Path) -> None:
    swept = run(place, tmp_path / "swept", prefix_lengths=(3, 9))
    assert swept["sweep_prefix_tokens"].to_list() == [[6, 3, 9]] * 4
    model = load(str(place / "model"))
    row = swept.row(0, named=True)
    shorter = model.score([row["prefix_ids"][-3:] + row["suffix_ids"]], 3, [PLAIN]).log_probs[0].sum().item()
    assert row["sweep_log_p_conditional"][1] == pytest.approx(shorter, abs=1e-4)
    assert row["sweep_log_p_conditional"][0] == row["log_p_conditional"]
    assert set(totals(tmp_path / "swept")["by_prefix_tokens"]) == {"3", "6", "9"}
    assert (tmp_path / "swept/report/figures/prior_by_prefix_length.svg").exists()


@pytest.fixture(scope="module")
def scanned(place: Path) -> Path:
    options = RunConfig(
        model=str(place / "model"),
        text=(str(place / "text.txt"),),
        out=str(place / "scan"),
        prefix_tokens=6,
        suffix_tokens=3,
        top_k=None,
        threshold=THRESHOLD,
        measures=("verbatim",),
        limit=5,
    )
    return scan_to_folder(options, progress=Silent()).path


def test_a_scan_is_joined_by_window_with_its_share_of_merely_likely_windows(
    place: Path, tmp_path: Path, scanned: Path
) -> None:
    found = run(place, tmp_path / "out", text=(), run=str(scanned), limit=None)
    scan = read_run(scanned).results.filter(pl.col("p_verbatim") >= THRESHOLD)
    assert scan.height > 0
    assert found["window_id"].to_list() == scan["window_id"].to_list()
    assert found["log_p_conditional"].to_list() == pytest.approx(scan["log_p_verbatim"].to_list(), abs=1e-4)
    joined = totals(tmp_path / "out")["joined"]
    likely = found.filter(pl.col("log_ratio") <= pl.col("log_least_ratio")).height
    assert joined["scan_extractable"] == scan.height
    assert joined["merely_likely"] == likely
    assert joined["merely_likely_share"]["value"] == pytest.approx(likely / scan.height)


def test_every_window_of_a_scan_can_be_asked_for(place: Path, tmp_path: Path, scanned: Path) -> None:
    found = run(place, tmp_path / "out", text=(), run=str(scanned), every_window=True, limit=None)
    assert found.height == read_run(scanned).results.height == 5


def test_a_scan_of_another_model_is_refused(place: Path, tmp_path: Path, scanned: Path) -> None:
    tiny_model("llama", vocab_size=258, seed=1).save_pretrained(tmp_path / "other")
    tiny_tokenizer().save_pretrained(tmp_path / "other")
    with pytest.raises(RunError, match="another model"):
        run(place, tmp_path / "out", text=(), run=str(scanned), model=str(tmp_path / "other"))


def test_shared_prefixes_cost_less_than_pairs_one_by_one(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out")
    found = totals(tmp_path / "out")
    prefixes = found["distinct_prefixes"]
    ideal = prefixes * (6 + (4 + 3) * 3) + 4 * 9 + 3 * 6
    assert 0 < found["token_evals"] <= ideal < found["naive_token_evals"]


def refused(place: Path, tmp_path: Path, **changes: Any) -> RoteError:
    with pytest.raises(RoteError) as caught:
        run(place, tmp_path / "out", **changes)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return caught.value


def test_a_suffix_longer_than_the_context_gets_one_sentence(place: Path, tmp_path: Path) -> None:
    error = refused(place, tmp_path, suffix_tokens=60)
    assert isinstance(error, WindowError)
    assert "60 tokens do not fit the model's context of 64" in str(error)


def test_an_empty_prior_corpus_gets_one_sentence(place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    assert isinstance(refused(place, tmp_path, prior_text=(str(tmp_path / "empty.txt"),)), TextError)


def test_a_prior_corpus_too_short_for_a_prefix_gets_one_sentence(place: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("short")
    error = refused(place, tmp_path, prior_text=(str(tmp_path / "short.txt"),))
    assert "short.txt has 5 tokens" in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"least_probability": 1.0}, "least-probability is 1.0"),
        ({"least_ratio": -2.0}, "least-ratio is -2.0"),
        ({"least_ratio": math.nan}, "least-ratio is nan"),
        ({"text": ()}, "exactly one of"),
        ({"pairs": "x.jsonl"}, "exactly one of"),
        ({"prior_prefixes": 0}, "prior-prefixes is 0"),
        ({"prior_prefixes": 1, "trials": 1}, "no standard error"),
        ({"prefix_lengths": (0,)}, "prefix-lengths holds 0"),
        ({"span_kinds": ("passport",)}, "passport"),
        ({"text": (), "pairs": "p.jsonl", "spans": "auto"}, "inside texts"),
        ({"top_k": 0}, "top-k is 0"),
        ({"model": ""}, "model is empty"),
    ],
)
def test_options_outside_their_range_get_one_sentence(
    place: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    error = refused(place, tmp_path, **changes)
    assert isinstance(error, ConfigError)
    assert words in str(error)


def test_a_tokenizer_that_cannot_map_characters_gets_one_sentence(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        is_fast = False
        bos_token_id = None

        def __call__(self, *texts: str, **_: Any) -> Any:
            return tiny_tokenizer()(*texts)

        def __getattr__(self, name: str) -> Any:
            return getattr(tiny_tokenizer(), name)

    slow = HuggingFaceModel(tiny_model("llama", vocab_size=258), Slow(), name="slow")
    monkeypatch.setattr("rote.prior.run.load", lambda *_, **__: slow)
    error = refused(place, tmp_path)
    assert isinstance(error, ModelError)
    assert "cannot map tokens to characters" in str(error)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not JSON"),
        ('{"prefix": "a"}', "needs the texts"),
        ('{"prefix": "", "suffix": "b"}', "neither"),
        ("", "no pair"),
    ],
)
def test_bad_pairs_get_one_sentence(place: Path, tmp_path: Path, line: str, words: str) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(line + "\n")
    assert words in str(refused(place, tmp_path, text=(), pairs=str(pairs)))


def test_generic_texts_too_few_get_one_sentence(place: Path, tmp_path: Path) -> None:
    (tmp_path / "generic.txt").write_text("one line only\n")
    assert "1 generic texts are too few" in str(refused(place, tmp_path, generic=str(tmp_path / "generic.txt")))


def test_the_command_prints_counts_thresholds_and_examples(place: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(prior)
    options = ["--model", place / "model", "--text", place / "text.txt", "--prior-text", place / "reference.txt"]
    sizes = ["--prefix-tokens", 6, "--suffix-tokens", 3, "--prior-prefixes", 10, "--trials", 2, "--limit", 3]
    out = ["--out", tmp_path / "out", "--least-probability", 0]
    shown = CliRunner().invoke(app, [str(part) for part in (*options, *sizes, *out)], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "memorized" in shown.output
    assert "n = " in shown.output
    assert "lowest ratio" in shown.output
    assert read_run(tmp_path / "out").results.height == 3


@pytest.mark.parametrize(
    ("log_value", "words"),
    [(0.0, "1"), (math.log(3.14159), "3.14"), (math.log(10) * 57.38, "2.4e+57"), ("Infinity", "∞"), (-math.inf, "0")],
)
def test_large_ratios_are_written_as_powers_of_ten(log_value: float | str, words: str) -> None:
    assert decimal(log_value) == words
