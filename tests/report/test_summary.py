"""The words of the summary: true to the numbers, for a newcomer, for every kind of run."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.corpus.windows import Selection
from byrote.report.analysis.limits import at_most_percent
from byrote.report.analysis.rates import Criterion
from byrote.report.summary import certainty, documents_words, facts, headline, model_card, question, rate_cards
from byrote.report.view import RunView, load_view, manifest_text, model_name, selection_words, with_threshold
from byrote.report.words import integer, interval_words, listed, percent, plural, probability
from byrote.stats.population import population_of
from byrote.types import Interval, Split
from tests.report.pages import page_of
from tests.report.synthetic_run import books, write_run
from tests.report.test_textbook import Row, row, view_of


def sentences(view: RunView) -> str:
    return " ".join(certainty(view))


def test_recovery_is_told_for_searched_windows_that_reach_the_threshold(view: RunView) -> None:
    rows = [row for row in view.results.iter_rows(named=True) if row["search_lower"] and row["p_verbatim"] >= 0.001]
    lost = replace(view.population, search_lower=np.where(np.arange(len(view.population)) % 2, 0.0, np.nan)[:, None])
    assert rows
    text = sentences(view)
    assert f"in {integer(len(rows))} of the {integer(len(rows))} searched windows where it reaches τ" in text
    assert "recovery 100 %" in text
    assert "recovery 0 %. Its" in sentences(replace(view, population=lost))
    without = replace(view.population, search_lower=np.full((len(view.population), 1), np.nan))
    assert "recovery" not in sentences(replace(view, population=without))


def test_verdicts_add_up_to_all_windows(view: RunView) -> None:
    population = view.population
    lower = population.mass(5)
    assert population.mass_upper is not None
    extractable = int((lower >= 0.001).sum())
    ruled_out = int(((lower < 0.001) & (population.mass_upper[:, -1] < 0.001)).sum())
    neither = len(lower) - extractable - ruled_out
    text = sentences(view)
    assert f"{integer(extractable)} are shown to be extractable" in text
    assert f"{integer(ruled_out)} are ruled out" in text
    assert f"{integer(neither)} are neither" in text


def test_one_window_is_and_several_are() -> None:
    text = sentences(view_of(answered("target", certified=1, left=1, ruled_out=2, answers=0)))
    assert "Of 4 windows, 1 is shown to be extractable; 2 are ruled out, and 1 is neither." in text
    assert "1 target window is neither certified nor ruled out at τ = 0.5. Nothing sampled tells how many" in text


def test_screened_windows_that_are_extractable_anyway_are_not_counted_among_the_open_ones(view: RunView) -> None:
    """With a high --screen-floor p_z alone may reach τ."""
    population = replace(view.population, is_searched=np.zeros(len(view.population), dtype=np.bool_))
    text = sentences(replace(view, population=population))
    (neither, screened) = re.findall(r"and (\S+) are neither, of which (\S+) were screened out", text)[0]
    assert neither == screened != integer(len(population))


def test_the_audit_of_the_screen_names_its_threshold_where_another_was_chosen(view: RunView) -> None:
    audit = {
        "searched_all_the_same": 5, "certified_in_sample": 1, "not_searched": 20,
        "would_be_certified_expected": 4.0, "would_be_certified_at_most": 11,
    }  # fmt: skip
    audited = replace(view, manifest={**view.manifest, "totals": {"screen": audit}})
    assert "1 was certified extractable. At most" in sentences(audited)
    assert "1 was certified extractable at the run's τ = 0.001. At most" in sentences(with_threshold(audited, "0.5"))


def test_what_rounding_does_is_told_where_it_was_looked_at(view: RunView) -> None:
    assert "float32" not in sentences(view)
    checked = view.results.with_columns(
        verified_share=pl.when(pl.int_range(pl.len()) < 2).then(0.9991 + pl.int_range(pl.len()) / 10_000),
        verified_shift=pl.when(pl.int_range(pl.len()) < 2).then(0.25 + pl.int_range(pl.len()) / 4),
    )
    text = sentences(replace(view, results=checked))
    assert "What was found in 2 windows was scored again in float32, > 99.9 % or more of each lower bound: " in text
    assert "log-probabilities moved by 0.5 at most." in text


def test_shared_controls_are_told_and_whether_they_count(tmp_path: Path, view: RunView) -> None:
    assert "share their passage" not in sentences(view)
    folder = write_run(tmp_path / "run", stride=200, shared_every=2)
    shared = load_view(folder)
    count = shared.results["shared_with"].is_not_null().sum()
    controls = int(shared.population.is_control.sum())
    assert 0 < count < controls
    start = f"{count} of {controls} control windows share their passage with target texts"
    assert f"{start} and are left out of the control's rates (in held_out.txt)." in sentences(shared)
    counted = replace(shared, population=population_of(shared.results, counts_shared=True))
    assert f"{start} and are counted among the controls, as this run asked for" in sentences(counted)
    none = replace(shared, results=shared.results.with_columns(shared_with=pl.lit(None, pl.String)))
    assert "No control window shares its passage with target texts." in sentences(none)


def test_controls_that_are_all_left_out_separate_nothing(tmp_path: Path) -> None:
    view = load_view(write_run(tmp_path / "run", books(2000), stride=200, shared_every=1))
    assert "Every control window is left out, so nothing here separates memorized" in sentences(view)
    counted = replace(view, population=population_of(view.results, counts_shared=True))
    assert "show what the same model reaches" in sentences(counted)


def test_a_sample_says_what_it_is_a_sample_of(tmp_path: Path, view: RunView) -> None:
    assert selection_words(view) == f"{integer(len(view.population))} windows"
    every = {"target": 700, "control": 211}
    starts = {Split(split): count for split, count in every.items()}
    for kind, manner in (("sample", "sampled, seed 4"), ("limit", "the first of every document")):
        selection = Selection(kind, 60, 4, starts)  # type: ignore[arg-type]
        some = load_view(write_run(tmp_path / kind, books(2000), stride=400, selection=selection))
        controls = int(some.population.is_control.sum())
        targets = len(some.population) - controls
        words = f"{targets + controls} of 911 windows, {manner} ({targets} of 700 target, {controls} of 211 control)"
        assert selection_words(some) == words
        assert words in dict(facts([some])).values()
        assert words in model_card(some)
    alone = replace(
        some, manifest=dict(some.manifest) | {"totals": {"selection": {"kind": "limit", "starts": {"target": 9}}}}
    )
    assert selection_words(alone) == f"{len(some.population)} of 9 windows, the first of every document"


def test_missing_control_is_said_plainly(view: RunView) -> None:
    targets = replace(view, population=view.population.select(~view.population.is_control))
    assert "No control text was given" in sentences(targets)
    assert "control" not in headline([targets])


def test_screen_audit_of_the_manifest_is_told(view: RunView) -> None:
    audit = {
        "used": True,
        "searched_all_the_same": 100,
        "certified_in_sample": 0,
        "not_searched": 900,
        "would_be_certified_expected": 0.0,
        "would_be_certified_at_most": 33,
    }
    told = sentences(replace(view, manifest={**view.manifest, "totals": {"screen": audit}}))
    assert "100 of the windows it would skip were searched all the same: 0 were certified extractable" in told
    assert "At most 33 of the 900 not searched would have been certified by a search, at 95 % confidence" in told
    assert "left undecided are not counted here and may be extractable too" in told
    assert "missed" not in told
    blind = audit | {"searched_all_the_same": 0, "would_be_certified_expected": None, "would_be_certified_at_most": 900}
    told = sentences(replace(view, manifest={**view.manifest, "totals": {"screen": blind}}))
    assert "none of the 900 windows it skipped was searched" in told
    assert "To check the screen" not in sentences(view)


def test_question_names_window_budget_and_queries(view: RunView) -> None:
    text = question(view)
    for phrase in ("50 tokens", "next 50", "at most 5 token edits", "0.001 per query", f"{integer(1000)} times"):
        assert phrase in text


def test_facts_name_model_texts_and_policy(view: RunView) -> None:
    told = dict(facts([view]))
    assert told["Model"].startswith("library/demo-24m")
    assert told["Control texts"] == "1 document: held_out.txt"
    assert told["Answers sampled with"] == "top-k 40, temperature 1"


def test_many_documents_are_counted_not_listed() -> None:
    assert documents_words(["a", "b"]) == "2 documents: a and b"
    assert documents_words([f"note-{index}" for index in range(9)]) == "9 documents"
    assert documents_words([]) == "none given"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/models/pocket-538e690c8a00081b54b7", "pocket-538e690c"),
        ("EleutherAI/pythia-70m", "EleutherAI/pythia-70m"),
        ("./library_24m", "library_24m"),
    ],
)
def test_models_are_called_as_a_reader_would(given: str, shown: str) -> None:
    assert model_name({"model": {"name": given}}) == shown


def test_manifest_excerpt_counts_documents_where_there_are_many(view: RunView) -> None:
    assert "held_out.txt" in manifest_text(view)
    many = replace(view, manifest={**view.manifest, "texts": {f"{number}.txt": {} for number in range(51)}})
    assert '"texts": "51 documents, listed in manifest.json"' in manifest_text(many)


def test_title_and_cards_name_every_run(view: RunView) -> None:
    other = replace(view, label="another")
    assert f"<title>{view.label} and another" in page_of(view, other)
    for card in rate_cards([view, other]):
        assert [bar.name for bar in card.bars] == [
            view.label, f"{view.label}, control", "another", "another, control"
        ]  # fmt: skip


def test_a_run_of_greedy_answers_alone_has_the_greedy_rate(tmp_path: Path) -> None:
    view = load_view(write_run(tmp_path / "run", books(2000)[:1], stride=200, measures=("greedy",)))
    assert [card.criterion for card in rate_cards([view])] == ["greedy"]


def test_the_near_verbatim_interval_is_said_to_be_that_of_the_certified_share(view: RunView) -> None:
    (near,) = (card for card in rate_cards([view]) if card.criterion == "near")
    assert "Share and interval count certified passages." in near.explanation
    assert "Their 95 % intervals belong to the certified share too." in sentences(view)
    assert "their intervals those of the certified share" in model_card(view)


def test_one_short_window_was_left_out_and_two_were(view: RunView) -> None:
    first, second, *_ = view.documents
    for count, words in ((0, "1 window at the end of a text came out too short and was left"), (1, "2 windows at")):
        documents = tuple(replace(one, short_windows=part) for one, part in ((first, 1), (second, count)))
        assert words in sentences(replace(view, documents=documents))


@pytest.mark.parametrize(("greedy", "words"), [(30, None), (52, "52.0 %")])
def test_a_headline_below_the_greedy_share_says_so(greedy: int, words: str | None) -> None:
    """A greedy answer can be the passage though each sampled one is so with a chance below τ."""
    rows = [
        one | {"greedy_levenshtein": 0 if place < greedy else 9, "greedy_hamming": 0 if place < greedy else 9}
        for place, one in enumerate(answered("target", **SHOWN))
    ]
    said = r"Decoded greedily instead of sampled, it reproduces (\S+ %) of them word for word\."
    found = re.findall(said, headline([view_of(rows)]))
    assert found == ([] if words is None else [words])


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "0 %"), (1.0, "100 %"), (0.0004, "< 0.1 %"), (0.9996, "> 99.9 %"), (0.1234, "12.3 %"), (np.nan, "–")],
)
def test_percentages_never_round_to_none_or_all(share: float, words: str) -> None:
    assert percent(share) == words


def test_numbers_in_words() -> None:
    assert [probability(value) for value in (0, 0.001, 0.5, 2.5e-5, 1e-9)] == [
        "0",
        "0.001",
        "0.5",
        "2.5 × 10⁻⁵",
        "1 × 10⁻⁹",
    ]
    assert plural(1, "window") == "1 window"
    assert plural(1234, "window") == "1\u2009234 windows"
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdef")) == "a, b, c, d and 2 more"
    assert interval_words(Interval(0.1, 0.2)) == "10.0 % to 20.0 %"
    assert interval_words(Interval(np.nan, np.nan, reason="one document")) == "no interval: one document"


def test_a_sample_speaks_of_the_passages_measured_and_no_others(tmp_path: Path) -> None:
    chosen = Selection("sample", 20, 0, {Split.TARGET: 4000})
    view = load_view(write_run(tmp_path / "run", books(1500)[:1], stride=200, selection=chosen))
    words = headline([view])
    assert f"of the {len(view.population)} target passages measured" in words


def answered(
    split: str, *, certified: int, left: int, ruled_out: int = 0, hits: int = 0, answers: int = 2
) -> list[Row]:
    """Windows that are certified, open and ruled out; of the answers to those that are not certified, `hits` hit."""
    made = []
    for number in range(certified + left + ruled_out):
        is_certified, is_open = number < certified, number < certified + left
        masses = (0.0, 0.5, 0.5) if is_certified else (0.0, 0.0, 1.0 if is_open else 0.1)
        hit = answers if is_certified else int(number < certified + hits)
        sampled = {"answers": answers, "answer_hits": [0, hit]} if answers else {}
        made.append(row(number + 500 * (split == "control"), split, masses=masses) | sampled)
    return made


def limited(answers: int, to: str, came: str, at_most: str) -> str:
    seen = f"Of {answers} sampled answers to {to} passages that are not certified {came} came near"
    return f"{seen}: at most {at_most} of queries to them do (95 % confidence)."


SHOWN: dict[str, int] = {"certified": 30, "left": 70}
WHOLE: dict[str, int] = {"certified": 30, "left": 0}


@pytest.mark.parametrize(
    ("targets", "controls", "share", "rest"),
    [
        (SHOWN, None, "30.0 %", limited(140, "target", "none", "2.2 %")),
        (SHOWN | {"hits": 3}, None, "30.0 %", limited(140, "target", "3", "5.5 %")),
        ({"certified": 0, "left": 100}, None, "0 %", limited(200, "target", "none", "1.5 %")),
        ({"certified": 100, "left": 0}, None, "100 %", ""),
        ({"certified": 30, "left": 0, "ruled_out": 70}, None, "30.0 %", limited(140, "target", "none", "2.2 %")),
        (SHOWN | {"answers": 0}, None, "30.0 %", ""),
        (SHOWN, {"certified": 0, "left": 50}, "30.0 %", limited(100, "control", "none", "3 %")),
        (WHOLE, {"certified": 1, "left": 49, "hits": 1}, "100 %", limited(98, "control", "1", "4.8 %")),
    ],
    ids=["no hits", "hits", "nothing", "all", "ruled out", "no answers", "control", "control with hits"],
)  # fmt: skip
def test_the_headline_has_one_number_and_its_interval_and_the_rest_is_below(
    targets: dict[str, int], controls: dict[str, int] | None, share: str, rest: str
) -> None:
    """Limits by hand: 1 − 0.05^(1/140) is 2.12 %, of 200 it is 1.49 %, of 100 2.95 %, each rounded up."""
    rows = answered("target", **targets) + ([] if controls is None else answered("control", **controls))
    view = view_of(rows)
    target = view.rate(Criterion.NEAR, Split.TARGET)
    assert target is not None
    interval = target.rate.interval
    about = f"95 % interval {interval_words(interval)}, for other passages of these texts"
    manner = "come out word for word or nearly so" if share == "0 %" else "word for word or nearly so"
    start = f"made up can be made to reproduce {share} of the target passages, {manner}"
    if share == "0 %":
        start, certain = f"made up: none of the target passages is certified to {manner}", []
    else:
        certain = ["certified"]
    known = "; ".join([*certain, about] if interval.is_defined else certain)
    beside = ""
    if controls is not None:
        few = f" Of the control passages it reproduces {percent(controls['certified'] / 50)}."
        beside = few if controls["certified"] else " None of the control passages is certified."
    assert headline([view]) == f"{start}{f' ({known})' if known else ''}.{beside}"
    assert rest in sentences(view)


@given(st.floats(1e-9, 1.0))
def test_a_limit_is_never_rounded_down(share: float) -> None:
    shown = float(at_most_percent(share).removesuffix(" %")) / 100
    assert share * (1 - 1e-9) <= shown <= min(1.0, share * 1.1 + 1e-12)
