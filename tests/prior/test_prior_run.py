"""What a prior run computes: rows, thresholds, pairs, spans, sweeps, the joined view."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from byrote.errors import ConfigError, RunError, WindowError
from byrote.models.hf.model import load
from byrote.models.shared_prefix import PLAIN
from byrote.prior.run import cheaper_words
from byrote.scan.options import RunConfig
from byrote.scan.run import scan_to_folder
from byrote.store.read import read_run
from byrote.verdict import PriorVerdict
from tests.models.tiny import tiny_model, tiny_tokenizer
from tests.prior.priors import Silent, config, mean_over_reference, run, totals


def test_a_run_of_hours_says_how_many_prefixes_take_minutes(place: Path, tmp_path: Path) -> None:
    """By hand: ten of 300 minutes pay for 4,074 / 30 = 135.8 prefixes, 27.16 in each of five trials."""
    given, drawn = config(place, tmp_path / "out", trials=5), [(1, 2)] * 4074
    assert cheaper_words(300, drawn, given).startswith("--prior-prefixes 27 --fresh takes at most about 10 min")
    pooled = config(place, tmp_path / "out", text=(), run="runs/scan", pool=1000)
    plain = "--sample and --prior-prefixes lower it."
    assert [cheaper_words(*one) for one in ((10, drawn, given), (1e6, drawn, given), (300, drawn, pooled))] == [
        plain
    ] * 3


THRESHOLD = 1e-9
"""A random model gives three bytes little probability; some windows lie above this, some below."""


def test_rows_hold_the_definition_over_every_prefix_of_a_small_corpus(place: Path, tmp_path: Path) -> None:
    rows = run(place, tmp_path / "out")
    model = load(str(place / "model"))
    for row in rows.iter_rows(named=True):
        own = model.score([row["prefix_ids"] + row["suffix_ids"]], 3, [PLAIN]).log_probs[0].sum().item()
        assert row["log_p_conditional"] == pytest.approx(own, abs=1e-4)
        assert row["log_p_prior"] == pytest.approx(mean_over_reference(model, row["suffix_ids"]), abs=1e-4)
        assert row["log_ratio"] == pytest.approx(row["log_p_conditional"] - row["log_p_prior"])
        assert row["log_ratio_sound_low"] < row["log_ratio"] < row["log_ratio_sound_high"]
    assert rows["document"].unique().to_list() == ["text.txt"]
    # The corpus has 312 characters, a start every 20, and the last start that is long enough at 300.
    reference = totals(tmp_path / "out")["reference"]
    assert reference == {"distinct_prefixes": 16, "draws": 16, "is_exhaustive": True, "independent_prefixes": 16}


def test_a_shorter_reference_text_settles_nothing_that_a_longer_one_of_its_kind_leaves_open(
    place: Path, tmp_path: Path
) -> None:
    """Whether it is taken whole or drawn from: its first sixth, and six times as much text of the same kind."""
    words = ["rain", "market", "baker", "early", "train", "window", "letter", "garden"]
    generator = np.random.default_rng(1)
    text = " ".join(generator.choice(words, 400))
    (tmp_path / "long.txt").write_text(text, encoding="utf-8")
    (tmp_path / "short.txt").write_text(text[: len(text) // 6], encoding="utf-8")
    widths, settled = {}, {}
    for name, changes in (("short", {}), ("long", {}), ("long drawn", {"prior_prefixes": 40})):
        given = {
            "prior_text": (str(tmp_path / f"{name.split()[0]}.txt"),),
            "least_probability": 0.0,
            "least_ratio": 5.0,
        }
        changes = {"prior_prefixes": 2000, "stride_chars": 1, "limit": 20} | changes
        rows = run(place, tmp_path / f"out {name}", **given, **changes)
        widths[name] = (rows["log_ratio_sound_high"] - rows["log_ratio_sound_low"]).mean()
        settled[name] = rows["is_settled"].sum()
    assert 0.0 < widths["long"] < widths["short"]
    assert settled["short"] <= settled["long"]
    assert 0.0 < widths["long"] < widths["long drawn"]


def test_spans_may_be_filtered_by_their_length_in_tokens(place: Path, tmp_path: Path) -> None:
    spans = {"spans": "auto", "limit": None}
    every = run(place, tmp_path / "every", **spans)
    lengths = [len(ids) for ids in every["suffix_ids"]]
    chosen = run(place, tmp_path / "chosen", **spans, span_tokens=(lengths[0],))
    assert [len(ids) for ids in chosen["suffix_ids"]] == [length for length in lengths if length == lengths[0]]
    assert totals(tmp_path / "chosen")["spans_of_other_lengths"] == len(lengths) - chosen.height > 0
    with pytest.raises(WindowError, match=r"no span has 99 tokens; they have \d+"):
        run(place, tmp_path / "none", **spans, span_tokens=(99,))


def test_rows_hold_the_definition_over_drawn_prefixes(place: Path, tmp_path: Path) -> None:
    rows = run(place, tmp_path / "out", prior_prefixes=100, stride_chars=1)
    model = load(str(place / "model"))
    for row in rows.iter_rows(named=True):
        # 6 standard errors of 200 draws: no false alarm in practice, and the seed is fixed.
        expected = mean_over_reference(model, row["suffix_ids"], stride_chars=1)
        assert abs(row["log_p_prior"] - expected) < 6 * row["prior_relative_error"] + 1e-3
        assert row["log_ratio_sound_low"] < row["log_ratio"] < row["log_ratio_sound_high"]
        assert (row["log_ratio_low"] is None) == (row["prior_effective_prefixes"] < 100)
        assert len(row["trial_log_priors"]) == 2
    assert totals(tmp_path / "out")["reference"]["draws"] == 200


def test_threshold_n_is_the_mean_ratio_over_halved_generic_texts(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out")
    model = load(str(place / "model"))
    ratios = []
    for line in (place / "generic.txt").read_text().splitlines():
        ids = model.encode_batch([line])[0].ids
        half = len(ids) // 2
        own = model.score([ids[half - 6 : half + 3]], 3, [PLAIN]).log_probs[0].sum().item()
        ratios.append(math.exp(own - mean_over_reference(model, ids[half : half + 3])))
    entry = totals(tmp_path / "out")["thresholds"][0]["by_suffix_tokens"]["3"]
    assert math.exp(entry["log_least_ratio"]) == pytest.approx(np.mean(ratios), rel=1e-3)
    assert math.exp(entry["log_geometric_mean"]) == pytest.approx(np.exp(np.mean(np.log(ratios))), rel=1e-3)
    assert entry["generic_texts"] == 3
    assert entry["log_least_ratio_low"] < entry["log_least_ratio"] < entry["log_least_ratio_high"]


def test_verdict_settled_and_counts_say_the_same(place: Path, tmp_path: Path) -> None:
    rows = run(place, tmp_path / "out", least_probability=0.0, limit=None)
    counts = totals(tmp_path / "out")["by_split"]["target"]["all"]
    assert counts["unsettled"] == (~rows["is_settled"]).sum() == (rows["prior_verdict"] == "unsettled").sum()
    assert counts["unsettled"] > 0
    assert counts["memorized"] + counts["merely_likely"] + counts["unsettled"] == counts["extractable"] == rows.height
    for row in rows.iter_rows(named=True):
        ends = (row["log_ratio_sound_low"], row["log_ratio_sound_high"])
        overlaps = ends[0] <= row["log_least_ratio_high"] and ends[1] > row["log_least_ratio_low"]
        assert overlaps == (not row["is_settled"])
        if row["is_settled"]:
            assert row["prior_verdict"] == row["point_verdict"]


def test_a_policy_that_can_say_no_generic_text_leaves_n_undefined_and_nothing_memorized(
    place: Path, tmp_path: Path
) -> None:
    rows = run(place, tmp_path / "out", top_k=100, least_probability=0.0, limit=None, stride_chars=1)
    entry = totals(tmp_path / "out")["thresholds"][0]["by_suffix_tokens"]["3"]
    assert entry["log_least_ratio"] == "NaN"
    assert "generic suffixes" in entry["reason"]
    assert set(rows["prior_verdict"]) == {"unsettled", "not_extractable"}
    assert rows["log_least_ratio"].null_count() == rows.height


def test_thresholds_given_by_the_user_decide_the_verdicts(place: Path, tmp_path: Path) -> None:
    loose = run(place, tmp_path / "loose", least_probability=0.0, least_ratio=0.0)
    assert set(loose["prior_verdict"]) == {str(PriorVerdict.MEMORIZED)}
    likely = run(place, tmp_path / "likely", least_probability=0.0, least_ratio=1e12)
    assert set(likely["prior_verdict"]) == {str(PriorVerdict.MERELY_LIKELY)}
    strict = run(place, tmp_path / "strict", least_probability=0.999)
    assert set(strict["prior_verdict"]) == {str(PriorVerdict.NOT_EXTRACTABLE)}
    assert totals(tmp_path / "likely")["by_split"]["target"]["all"]["merely_likely"] == 4


def test_pairs_are_scored_as_given(place: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"prefix": "The cat sat", "suffix": " on", "id": "mat", "kind": "idiom"}, {"prefix": "A", "suffix": "bc"}]
    pairs.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = run(place, tmp_path / "out", text=(), pairs=str(pairs), limit=None)
    assert found["window_id"].to_list() == ["mat", "pairs.jsonl#2"]
    assert found["suffix_text"].to_list() == [" on", "bc"]
    assert found["kind"].to_list() == ["idiom", "pair"]
    assert [len(ids) for ids in found["prefix_ids"]] == [6, 1]
    assert set(totals(tmp_path / "out")["by_split"]["target"]["by_kind"]) == {"idiom", "pair"}
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
    likely = found.filter(pl.col("ratio_verdict") == "merely_likely").height
    assert joined["scan_extractable"] == scan.height
    assert joined["merely_likely"] == likely
    assert joined["merely_likely"] + joined["specific_to_their_prefix"] + joined["unsettled"] == scan.height
    assert joined["merely_likely_share"]["value"] == pytest.approx(likely / scan.height)


def test_every_window_of_a_scan_can_be_asked_for(place: Path, tmp_path: Path, scanned: Path) -> None:
    found = run(place, tmp_path / "out", text=(), run=str(scanned), every_window=True, limit=None)
    assert found.height == read_run(scanned).results.height == 5


@pytest.mark.parametrize("tokens", [5, 7])
def test_windows_of_a_scan_keep_their_prefixes(place: Path, tmp_path: Path, scanned: Path, tokens: int) -> None:
    with pytest.raises(
        ConfigError, match=f"prefix-tokens is {tokens}, .* prefixes of 6 tokens; give --prefix-tokens 6"
    ):
        run(place, tmp_path / "out", text=(), run=str(scanned), prefix_tokens=tokens)


def test_a_scan_of_another_model_is_refused(place: Path, tmp_path: Path, scanned: Path) -> None:
    tiny_model("llama", vocab_size=258, seed=1).save_pretrained(tmp_path / "other")
    tiny_tokenizer().save_pretrained(tmp_path / "other")
    with pytest.raises(RunError, match="another model"):
        run(place, tmp_path / "out", text=(), run=str(scanned), model=str(tmp_path / "other"))


def test_shared_prefixes_cost_less_than_pairs_one_by_one(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out")
    found = totals(tmp_path / "out")
    prefixes = found["reference"]["distinct_prefixes"]
    # Every prefix twice: once for n, once for what is scored.
    ideal = prefixes * (2 * 6 + (4 + 3) * 3) + 4 * 9 + 3 * 9
    one_by_one = prefixes * (4 + 3) * (6 + 3)
    assert 0 < found["token_evals"] <= ideal < one_by_one
