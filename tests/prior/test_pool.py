"""The pool as the null of every ball: enumeration on table models judges its counts and its limits."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.lab.texts import write_passages, write_records
from byrote.lab.train import TrainingPlan, encode_all, train, train_tokenizer
from byrote.policy import Policy
from byrote.prior.draws import DrawnPrefixes
from byrote.prior.options import PriorConfig
from byrote.prior.pool import ENDED, Pool, PooledBalls, ScannedBall, ball_ratio, hits_of, sample_pool
from byrote.prior.report import read
from byrote.prior.run import prior_to_folder
from byrote.scan.options import RunConfig
from byrote.scan.run import scan_to_folder
from byrote.store.read import read_run
from byrote.types import DistanceName, Interval
from tests.oracle import textbook_hamming, textbook_levenshtein, true_mass
from tests.prior.priors import Killed, KilledAfter, Silent, config, totals
from tests.table import TableModel

POLICY = Policy(temperature=0.8, top_k=4)
PREFIXES = ((1, 2, 3), (3, 2, 1), (2, 2, 2), (4, 1, 4), (1, 1, 4))
TARGETS = ((1, 2, 3, 4), (2, 2, 2, 2), (4, 3, 4, 3))


def drawn(draws: int, *, seed: int = 0) -> DrawnPrefixes:
    """Independent uniform draws of the prefixes."""
    counts = np.random.default_rng(seed).multinomial(draws, [1 / len(PREFIXES)] * len(PREFIXES))
    return DrawnPrefixes(PREFIXES, counts[:, None])


def after_random_prefix(model: TableModel, target: Sequence[int], *, distance: str = "levenshtein") -> float:
    """E_q P(ball | q) by enumeration, one edit allowed."""
    return fmean(true_mass(model, prefix, target, POLICY, budget=1, distance=distance) for prefix in PREFIXES)


def judged(hits: int, members: int) -> PooledBalls:
    return PooledBalls(ScannedBall("levenshtein", 1, POLICY, 0.001), [hits], members, members, {})


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), distance=st.sampled_from(["levenshtein", "hamming"]), ends=st.booleans())
def test_the_share_of_hits_is_the_enumerated_mean_mass(seed: int, distance: DistanceName, ends: bool) -> None:
    """A continuation that ends too soon is no hit. 5 standard errors: a false alarm in less than 1 of 10,000 runs."""
    model = TableModel.random(seed, vocab_size=5, spread=1.0, eos_ids=frozenset({0} if ends else ()))
    members = 4000
    pool = sample_pool(model, drawn(members, seed=seed), POLICY, members=members, tokens=4, seed=seed)
    for target, hits in zip(TARGETS, hits_of(pool, TARGETS, distance=distance, edits=1), strict=True):
        exact = after_random_prefix(model, target, distance=distance)
        assert abs(hits / members - exact) <= 5 * math.sqrt(exact * (1 - exact) / members) + 2 / members


def test_limits_of_many_pools_cover_the_enumerated_value() -> None:
    """The interval and either one-sided limit cover with 95 % or more. Of 400 pools, fewer than 92 % do by chance in
    about 1 of 200 cases at the worst; seeded."""
    model, pools, members = TableModel.random(3, vocab_size=5, spread=1.0), 400, 150
    every = sample_pool(model, drawn(pools * members), POLICY, members=pools * members, tokens=4, seed=1)
    for target in TARGETS:
        exact = after_random_prefix(model, target)
        covered = below = above = 0
        for part in np.split(every.token_ids, pools):
            (hits,) = hits_of(Pool(part, members), [target], distance="levenshtein", edits=1)
            found, one_sided = judged(hits, members).prior(hits), judged(hits, members).prior(hits, level=0.9)
            covered += found.low <= exact <= found.high
            below += one_sided.low <= exact
            above += exact <= one_sided.high
        assert 0.001 < exact < 0.2
        assert min(covered, below, above) / pools >= 0.92


@pytest.mark.parametrize("members", [100, 1000, 5000])
def test_a_pool_without_a_hit_bounds_the_ratio_by_mass_times_a_third_of_its_size(members: int) -> None:
    prior = judged(0, members).prior(0, level=0.9)
    assert prior.low == 0.0
    assert prior.high == pytest.approx(3 / members, rel=0.03)
    ratio = ball_ratio(0.4, 0.7, prior)
    assert math.exp(ratio.low) == pytest.approx(0.4 * members / 3, rel=0.03)
    assert ratio.high == math.inf


@given(lower=st.floats(0.01, 1), more=st.floats(0, 1), low=st.floats(1e-6, 0.5), wide=st.floats(1, 2))
def test_the_ratio_of_every_mass_and_prior_within_their_bounds_is_inside(
    lower: float, more: float, low: float, wide: float
) -> None:
    upper = lower + more * (1 - lower)
    found = ball_ratio(lower, upper, Interval(low, low * wide))
    for mass in (lower, upper):
        for prior in (low, low * wide):
            assert found.low - 1e-9 <= math.log(mass / prior) <= found.high + 1e-9


TOKENS = st.integers(0, 3)


@given(
    members=st.lists(st.lists(TOKENS, min_size=6, max_size=6), min_size=1, max_size=8),
    ended=st.lists(st.integers(1, 6), min_size=8, max_size=8),
    targets=st.lists(st.lists(TOKENS, min_size=1, max_size=6), min_size=1, max_size=6),
    edits=st.integers(0, 3),
    distance=st.sampled_from(["levenshtein", "hamming"]),
)
def test_hits_are_those_of_the_textbook_distance(
    members: list[list[int]], ended: list[int], targets: list[list[int]], edits: int, distance: DistanceName
) -> None:
    measure = textbook_hamming if distance == "hamming" else textbook_levenshtein
    pool = np.array(members)
    for row, end in zip(pool, ended, strict=False):
        row[end:] = ENDED
    expected = [
        sum(
            ENDED not in member[: len(target)] and measure(member[: len(target)], target) <= edits
            for member in pool.tolist()
        )
        for target in targets
    ]
    assert hits_of(Pool(pool, len(pool)), targets, distance=distance, edits=edits) == expected


def test_limits_count_no_more_members_than_independent_prefixes() -> None:
    model = TableModel.random(0, vocab_size=5)
    few = DrawnPrefixes(PREFIXES, np.ones((len(PREFIXES), 1), dtype=np.int64), is_exhaustive=True, stretches=3.0)
    pool = sample_pool(model, few, POLICY, members=600, tokens=4, seed=0)
    assert pool.token_ids.shape == (600, 4)
    assert pool.independent == 3.0


PHRASE = " Thank you very much for your kind attention to this letter, and good night."


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of records, some of them 60 times in its training text, and of sentences that all end in one phrase."""
    place = tmp_path_factory.mktemp("letters")
    records = write_records(0, 12)
    sentences = [f"{text.split('.')[0]}.{PHRASE}" for text in write_passages(0, 1000, least_words=20)]
    tokenizer = train_tokenizer([*sentences, *records], vocabulary_size=512)
    stream = encode_all(tokenizer, [*sentences[:400], *(record for record in records[:6] for _ in range(60))])
    random.Random(0).shuffle(stream)
    plan = TrainingPlan(
        layers=2, width=64, heads=4, feed_forward_width=192, context=128, rows_per_step=2, learning_rate=6e-3, threads=1
    )
    train(plan, stream, tokenizer, folder=place / "model")
    (place / "reference.txt").write_text(" ".join(sentences[430:]), encoding="utf-8")
    pairs = [
        (tokenizer.decode(ids[20:40]), tokenizer.decode(ids[40:56]), "seen" if number < 6 else "unseen")
        for number, ids in enumerate(encode_all(tokenizer, records))
    ]
    openings = encode_all(tokenizer, [text.removesuffix(PHRASE) for text in sentences[400:406]])
    pairs += [(tokenizer.decode(ids[-20:]), PHRASE, "phrase") for ids in openings]
    lines = [json.dumps({"prefix": prefix, "suffix": suffix, "kind": kind}) for prefix, suffix, kind in pairs]
    (place / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    scan = RunConfig(
        model=str(place / "model"),
        pairs=(str(place / "pairs.jsonl"),),
        out=str(place / "scan"),
        edit_budget=2,
    )
    scan_to_folder(scan, progress=Silent())
    return place


def test_records_with_copies_are_memorized_and_a_phrase_is_merely_likely(letters: Path, tmp_path: Path) -> None:
    """Both come out nearly; the phrase follows a random prefix of letters too."""
    rows, found = judged_letters(letters, tmp_path / "out")
    by_kind = {kind: rows.filter(pl.col("kind") == kind) for kind in ("seen", "unseen", "phrase")}
    assert by_kind["seen"]["ball_verdict"].to_list() == ["memorized"] * 6
    assert by_kind["phrase"]["ball_verdict"].to_list() == ["merely_likely"] * 6
    assert set(by_kind["unseen"]["ball_verdict"]) == {"not_extractable"}
    assert by_kind["phrase"]["log_ball_ratio_high"].max() < math.log(100) < by_kind["seen"]["log_ball_ratio_low"].min()
    # Of a random record's beginning nothing is in the pool: mass times a third of its independent members.
    independent = found["balls"]["independent_members"]
    for row in by_kind["seen"].iter_rows(named=True):
        assert row["pool_hits"] == 0
        assert math.exp(row["log_ball_ratio_at_least"]) == pytest.approx(
            row["ball_mass_lower"] * independent / 3, rel=0.03
        )
    joined = found["joined"]
    assert joined["is_by_ball"]
    assert (joined["specific_to_their_prefix"], joined["merely_likely"]) == (6, 6)
    assert (
        joined["published_memorized"] == rows.filter(scan_verdict="extractable", ball_point_verdict="memorized").height
    )


def judged_letters(letters: Path, out: Path, **changes: Any) -> tuple[pl.DataFrame, dict[str, Any]]:
    progress = changes.pop("progress", Silent())
    settings: dict[str, Any] = {"least_ratio": 100.0, "pool": 1500, "every_window": True} | changes
    given = PriorConfig(
        model=str(letters / "model"),
        run=str(letters / "scan"),
        prior_text=(str(letters / "reference.txt"),),
        out=str(out),
        prefix_tokens=int(read_run(letters / "scan").results["prefix_ids"].list.len().max()),
        prior_prefixes=20,
        trials=1,
        stride_chars=1,
        **settings,
    )
    prior_to_folder(given, progress=progress)
    return read_run(out).results, totals(out)


def test_a_prior_of_another_policy_has_no_threshold_for_the_balls(letters: Path, tmp_path: Path) -> None:
    rows, found = judged_letters(letters, tmp_path / "out", least_ratio=None)
    assert set(rows["ball_verdict"]) == {"unsettled", "not_extractable"}
    assert rows["ball_point_verdict"].to_list() == rows["ball_verdict"].to_list()
    assert "n is of temperature 1, the scan's masses are of temperature 1, top-k 40" in found["balls"]["no_threshold"]
    assert not found["joined"]["is_by_ball"]
    words = " ".join(read([tmp_path / "out"]).sentences)
    assert "No verdict about near-verbatim masses" in words


def test_settled_and_published_verdicts_of_balls_are_shown_together(letters: Path, tmp_path: Path) -> None:
    _, found = judged_letters(letters, tmp_path / "out")
    content = read([tmp_path / "out"])
    (table,) = (table for table in content.tables if table.name == "balls")
    (every,) = (row for row in table.rows if row[0] == "target")
    shown = dict(zip(table.heads, every, strict=True))
    counts = found["balls"]["by_split"]["target"]["all"]
    assert (shown["memorized"], shown["merely likely"]) == ("6", "6")
    assert shown["published"] == str(counts["by_point_estimates"]["memorized"])
    assert f"within 2 edits 6 (published rule: {shown['published']})" in content.headline


def test_an_interrupted_pool_goes_on_with_the_same_members(letters: Path, tmp_path: Path) -> None:
    whole, _ = judged_letters(letters, tmp_path / "whole")
    with pytest.raises(Killed):
        judged_letters(letters, tmp_path / "out", progress=KilledAfter(3))
    resumed, _ = judged_letters(letters, tmp_path / "out")
    assert resumed["pool_hits"].to_list() == whole["pool_hits"].to_list()


def test_no_pool_leaves_no_columns(letters: Path, tmp_path: Path) -> None:
    rows, found = judged_letters(letters, tmp_path / "out", pool=0)
    assert not {"pool_hits", "ball_verdict"} & set(rows.columns)
    assert "balls" not in found


def test_a_pool_without_a_scan_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--pool is for near-verbatim masses, .* name the scan with --run"):
        config(place, tmp_path / "out", pool=100)
