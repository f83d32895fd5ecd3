"""Bounds for balls that no viability rule knows, against enumeration of every continuation."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.distance.tokens import levenshtein
from byrote.errors import ConfigError
from byrote.policy import Policy
from byrote.report.tables import overlaps_of, posthoc_rows
from byrote.report.view import load_view
from byrote.scan import options as scan_options
from byrote.scan.options import RunConfig
from byrote.scan.stages.posthoc import Candidate, Nearness, judge_of, judged
from byrote.search.base import Limits, SearchTask
from byrote.search.engine import Engine
from byrote.store.read import read_run
from tests.oracle import every_continuation
from tests.report.pages import page_of
from tests.scan.scans import Command, TinyLab, scan_arguments
from tests.search.test_engine_equals_reference import PLAIN
from tests.table import TableModel

WORDS = ("alpha ", "beta ", "alp", "ha ")
"""Two spellings of the first word: tokens (2, 3) decode to what token 0 does."""
BASELINE = replace(PLAIN, distance="none", policy=Policy(1.0, 3), beam_width=4, keep=None, record_frontier=False)
TASK = SearchTask(0, (1, 2), (0, 1, 2, 3, 1))
HOW = Nearness(edit_budget=2, bleu_threshold=0.5)
NAMES = ("text", "levenshtein", "hamming", "bleu", "characters", "words")


def decode(ids: tuple[int, ...]) -> str:
    return "".join(WORDS[token] for token in ids)


def candidate(ids: tuple[int, ...]) -> Candidate:
    return Candidate(ids, decode(ids), levenshtein(ids, TASK.suffix_ids))


TARGET = candidate(TASK.suffix_ids)


def truths(model: TableModel, policy: Policy) -> tuple[dict[str, float], float]:
    """The mass of every metric's ball by enumeration, and the target's own probability."""
    everything = list(every_continuation(model, TASK.prefix_ids, len(TASK.suffix_ids), policy))
    masses = {}
    for name in NAMES:
        is_close = judge_of(name, TARGET, HOW)
        masses[name] = math.fsum(path.probability for path in everything if is_close(candidate(path.token_ids)))
    verbatim = math.fsum(path.probability for path in everything if path.token_ids == TASK.suffix_ids)
    return masses, verbatim


def judge(model: TableModel, options: object, verbatim: float) -> dict[str, Any]:
    (outcome,) = Engine(model, options, slots=1, limits=Limits(6, 6)).run([TASK])  # type: ignore[arg-type]
    return judged(outcome, TARGET, verbatim, NAMES, HOW, decode)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.5, 2.0, 6.0]),
    st.sampled_from([frozenset[int](), frozenset({3})]),
    st.booleans(),
    st.sampled_from([None, 0.001, 0.3]),
)
def test_the_truth_lies_between_the_bounds_of_every_metric(
    seed: int, spread: float, eos: frozenset[int], pins: bool, threshold: float | None
) -> None:
    model = TableModel.random(seed, vocab_size=4, spread=spread, eos_ids=eos)
    masses, verbatim = truths(model, BASELINE.policy)
    found = judge(model, replace(BASELINE, pin_verbatim=pins, threshold=threshold), verbatim)
    for name, truth in masses.items():
        assert found[f"posthoc_{name}_lower"] <= truth + 1e-12, name
        assert truth <= found[f"posthoc_{name}_upper"] + 1e-12, name


def test_a_beam_that_holds_everything_gives_the_truth_and_counts_texts_once() -> None:
    model = TableModel.random(5, vocab_size=4)
    options = replace(BASELINE, beam_width=2000, policy=Policy(1.0, None))
    masses, verbatim = truths(model, options.policy)
    found = judge(model, options, verbatim)
    for name, truth in masses.items():
        assert [found[f"posthoc_{name}_{side}"] for side in ("lower", "upper")] == pytest.approx([truth, truth]), name
    heaviest: dict[str, float] = {}
    everything = list(every_continuation(model, TASK.prefix_ids, 5, options.policy))
    for path in everything:
        text = decode(path.token_ids)
        heaviest[text] = max(heaviest.get(text, 0.0), path.probability)
    assert (found["posthoc_continuations"], found["posthoc_texts"]) == (len(everything), len(heaviest))
    assert found["posthoc_merged_mass"] == pytest.approx(1 - math.fsum(heaviest.values()))
    assert found["posthoc_text_lower"] > verbatim, "the same text in other tokens counts in text space"


def test_a_window_that_was_not_searched_has_its_own_probability_alone() -> None:
    found = judged(None, TARGET, 0.25, NAMES, HOW, decode)
    lower, upper = ({f"posthoc_{name}_{side}" for name in NAMES} for side in ("lower", "upper"))
    assert found == dict.fromkeys(lower, 0.25) | dict.fromkeys(upper, 1.0)


def test_continuations_that_were_not_kept_are_missed_aloud() -> None:
    with pytest.raises(ConfigError, match="keep=None"):
        judge(TableModel.random(5, vocab_size=4), replace(BASELINE, keep=1), 0.1)


BOOK = "The quick brown fox jumps over the lazy dog near the “old” mill."


@pytest.mark.parametrize(
    ("name", "text", "is_close"),
    [
        ("bleu", BOOK, True),
        ("bleu", BOOK.replace("lazy", "sleepy"), True),
        ("bleu", "A slow red hen walks under a barn.", False),
        ("characters", BOOK.replace("quick", "quack"), True),
        ("characters", BOOK.upper(), False),
        ("words", BOOK.upper().replace("“", '"').replace("”", '"'), True),
        ("words", BOOK.replace("brown fox jumps", "grey cat leaps"), False),
        ("text", BOOK, True),
        ("text", BOOK + " ", False),
    ],
)
def test_metrics_on_texts(name: str, text: str, is_close: bool) -> None:
    target = Candidate(tuple(range(20)), BOOK, 0)
    found = Candidate(tuple(range(1, 21)), text, 9)
    assert judge_of(name, target, Nearness(edit_budget=2, bleu_threshold=0.75))(found) is is_close


@pytest.mark.parametrize("name", ["characters", "words"])
def test_the_share_of_characters_or_words_is_whole_where_it_should_be(name: str) -> None:
    """3/11 of 55 is 15, and 14.999… in floats."""
    letters = ["a "] * 55 if name == "words" else ["a"] * 55
    target = Candidate(tuple(range(11)), "".join(letters), 0)
    is_close = judge_of(name, target, Nearness(edit_budget=3, bleu_threshold=0.75))
    for changed, verdict in ((15, True), (16, False)):
        text = "".join([letter.replace("a", "b") for letter in letters[:changed]] + letters[changed:])
        assert is_close(Candidate(tuple(range(1, 12)), text, 9)) is verdict


def test_posthoc_needs_the_baseline_search() -> None:
    with pytest.raises(ConfigError, match="--distance none"):
        RunConfig(posthoc=("bleu",)).require_baseline()


def test_bleu_without_its_library_is_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_options, "find_spec", lambda name: None)
    config = RunConfig(posthoc=("bleu", "words"), distance="none")
    with pytest.raises(ConfigError, match=r"pip install 'byrote\[bleu\]'"):
        config.require_baseline()
    replace(config, posthoc=("words",)).require_baseline()


@pytest.mark.parametrize("further", [{"closure": 50}, {"refine": 200, "threshold": 0.3}, {"estimate": "all"}])
def test_what_is_found_after_the_search_is_judged_too(
    further: dict[str, object], lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options: dict[str, object] = {"distance": "none", "posthoc": "levenshtein,hamming", "screen": "off", "keep": 1}
    assert byrote(*scan_arguments(lab, out, sample=12, **options, **further)).code == 0
    rows = read_run(out).results
    near = {side: rows[f"mass_{side}"].list.last().to_list() for side in ("lower", "upper")}
    assert rows["posthoc_levenshtein_lower"].to_list() == pytest.approx(near["lower"], rel=1e-9)
    # What was refuted for this metric may be close by others, so it stays open; it is never less.
    assert all(map(lambda more, less: more >= less - 1e-12, rows["posthoc_levenshtein_upper"], near["upper"]))


def test_the_command_stores_shows_and_reports_what_each_metric_finds(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    metrics = "levenshtein,hamming,bleu,characters,words"
    arguments = scan_arguments(lab, out, distance="none", posthoc=metrics, screen="off", sample=12)
    assert byrote(*arguments).code == 0
    rows = read_run(out).results
    near = rows["mass_lower"].list.last()
    # One sum over the same continuations, in another order.
    assert rows["posthoc_levenshtein_lower"].to_list() == pytest.approx(near.to_list(), rel=1e-9)
    assert (rows["posthoc_hamming_lower"] <= rows["posthoc_levenshtein_lower"] + 1e-12).all()
    assert (rows["posthoc_text_lower"] >= rows["p_verbatim"]).all()
    table = {each.name: each for each in overlaps_of(load_view(out))}
    hits = {name: rows[f"posthoc_{name}_lower"] >= 0.001 for name in ("bleu", "levenshtein")}
    assert table["bleu"].rate.value == pytest.approx(hits["bleu"].mean())
    assert table["bleu"].found_too["levenshtein"] == (hits["bleu"] & hits["levenshtein"]).sum()
    shown = byrote("show", out)
    assert "BLEU ≥ 0.75" in shown.out
    view = load_view(out)
    (written,) = (row for row in posthoc_rows([view]) if row["metric"] == "bleu")
    assert written["hits"] == hits["bleu"].sum()
    assert "BLEU ≥ 0.75" in page_of(view)
