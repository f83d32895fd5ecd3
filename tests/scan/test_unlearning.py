"""The numbers of unlearning papers against hand-worked cases, a textbook decoder and a benchmark's own loop."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import byrote
from byrote.models.hf.model import load
from byrote.scan.measures.unlearning import exact_match, extraction_strength, longest_common_run, rouge_l
from byrote.store.read import read_run
from byrote.types import Window
from tests.scan.letters import ALPHABET, Letters
from tests.scan.scans import Command, TinyLab, scan_arguments
from tests.scan.streams import make_window
from tests.scan.test_greedy import answer_of

HITS = st.lists(st.booleans(), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("hits", "match", "strength"),
    [
        ("1111", 1.0, 1.0),
        ("0111", 0.75, 0.75),
        ("1011", 0.75, 0.5),
        ("1101", 0.75, 0.25),
        ("1110", 0.75, 0.0),
        ("0000", 0.0, 0.0),
        ("0", 0.0, 0.0),
        ("1", 1.0, 1.0),
    ],
)
def test_hand_worked_cases(hits: str, match: float, strength: float) -> None:
    hit = [one == "1" for one in hits]
    assert (exact_match(hit), extraction_strength(hit)) == (match, strength)


def benchmark_strength(hits: Sequence[bool]) -> float:
    """As a benchmark of unlearning computes it: the loop that looks for the first place with nothing but hits after it
    ends at the last place, whether or not that is hit."""
    first = next((place for place in range(len(hits)) if all(hits[place:])), len(hits) - 1)
    return 1 - first / len(hits)


@given(HITS)
def test_the_benchmarks_strength_is_right_where_the_last_token_is_hit_and_1_over_t_elsewhere(hits: list[bool]) -> None:
    own = extraction_strength(hits)
    assert own == pytest.approx(benchmark_strength(hits) if hits[-1] else 0.0)
    if not hits[-1]:
        assert benchmark_strength(hits) == pytest.approx(1 / len(hits))


def test_a_wrong_answer_of_one_token_has_strength_0_and_not_1() -> None:
    """The worked case of docs/method.md: the answer is Paris, and the model's choice is London."""
    hits = [choice == target for choice, target in zip(["London"], ["Paris"], strict=True)]
    assert benchmark_strength(hits) == 1
    assert extraction_strength(hits) == 0
    assert rouge_l("London", "Paris") == 0


@pytest.mark.parametrize(
    ("answer", "target", "found"),
    [
        ("The cat sat.", "the cat sat", 1.0),
        ("police kill the gunman", "police killed the gunman", 3 / 4),
        ("the gunman police killed", "police killed the gunman", 2 / 4),
        ("a b", "a b c d", 2 * 2 / 6),
        ("", "words", 0.0),
        ("words", "… !", None),
    ],
)
def test_rouge_l_of_hand_worked_cases(answer: str, target: str, found: float | None) -> None:
    assert rouge_l(answer, target) == (None if found is None else pytest.approx(found))


TOKENS = st.lists(st.integers(0, 3), max_size=9)


@given(TOKENS, TOKENS)
def test_the_longest_run_is_that_of_all_pairs_of_stretches(answer: list[int], target: list[int]) -> None:
    stretches = [
        {tuple(ids[start:end]) for start in range(len(ids)) for end in range(start + 1, len(ids) + 1)}
        for ids in (answer, target)
    ]
    assert longest_common_run(answer, target) == max(map(len, stretches[0] & stretches[1]), default=0)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Letters, Window]:
    """A target that follows the greedy path except in a few places, in a model with or without an end of text."""
    eos_ids = draw(st.sampled_from([frozenset[int](), frozenset({0})]))
    model = Letters.random(draw(st.integers(0, 10_000)), vocab_size=len(ALPHABET), spread=1.0, eos_ids=eos_ids)
    assert isinstance(model, Letters)
    ids = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    prefix, wrong = len(ids), draw(st.dictionaries(st.integers(0, 5), st.integers(0, 6), max_size=2))
    for place in range(draw(st.integers(1, 6))):
        ids.append(wrong.get(place, answer_of(model, ids, 1)[0]))
    return model, make_window(0, ids, prefix=prefix)


@settings(max_examples=80, deadline=None)
@given(cases())
def test_strength_is_what_decoding_from_every_place_reproduces(case: tuple[Letters, Window]) -> None:
    model, window = case
    prefix, target = window.prefix_ids, window.suffix_ids
    lengths = {"prefix_tokens": len(prefix), "suffix_tokens": len(target)}
    row = byrote.scan(model, [window], measures=("unlearning",), top_k=7, **lengths).to_polars().row(0, named=True)
    reproduced = [
        len(target) - place
        for place in range(len(target))
        if answer_of(model, [*prefix, *target[:place]], len(target) - place) == target[place:]
    ]
    assert row["extraction_strength"] == pytest.approx(max(reproduced, default=0) / len(target))
    hits = [answer_of(model, [*prefix, *target[:place]], 1)[0] == token for place, token in enumerate(target)]
    assert row["exact_match"] == pytest.approx(sum(hits) / len(hits))
    answer = answer_of(model, prefix, len(target))
    assert row["longest_common_run"] == longest_common_run(answer, target)
    texts = (model.decode([token for token in ids if token not in model.eos_ids]) for ids in (answer, target))
    assert row["rouge_l"] == rouge_l(*texts)


def test_a_scan_has_the_numbers_of_plain_forwards_and_of_the_librarys_greedy_answer(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    text = lab.files.targets / "prose-0016-00.txt"
    arguments = scan_arguments(
        lab, tmp_path / "run", texts=(text,), measures="greedy,verbatim,near,unlearning", limit=6
    )
    assert byrote(*arguments).code == 0
    model = load(str(lab.model.path), device="cpu")
    for row in read_run(tmp_path / "run").results.iter_rows(named=True):
        prefix, target = row["prefix_ids"], row["suffix_ids"]
        with torch.no_grad():
            logits = model.model(torch.tensor([prefix + target])).logits[0, len(prefix) - 1 : -1]
        hits = (logits.argmax(-1) == torch.tensor(target)).tolist()
        assert row["exact_match"] == pytest.approx(exact_match(hits))
        assert row["extraction_strength"] == pytest.approx(extraction_strength(hits))
        answer = answer_of(model, prefix, len(target))
        assert row["longest_common_run"] == longest_common_run(answer, target)
        written = model.decode([token for token in answer if token not in model.eos_ids])
        assert row["rouge_l"] == pytest.approx(rouge_l(written, model.decode(target)))
        assert row["greedy_is_beyond_budget"] is False, "answers are decoded in full"


def test_the_measure_alone_is_shown(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    assert byrote(*scan_arguments(lab, tmp_path / "run", measures="unlearning", limit=4)).code == 0
    assert "p_verbatim" not in read_run(tmp_path / "run").results.columns
    assert byrote("show", tmp_path / "run").code == 0
