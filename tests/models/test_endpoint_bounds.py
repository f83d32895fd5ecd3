"""A served table model against the table model itself: the same bounds when the server lists all that the policy keeps,
bounds that enclose the enumerated truth when it does not."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.models.listed import RowFiller, row_of
from byrote.policy import Policy, keep
from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from tests.loopback.logprobs import Habits
from tests.models.served import DIALECTS, open_served, serving
from tests.oracle import enumerate_tree, textbook_policy
from tests.table import TableModel

LIMITS = Limits(prefix_tokens=4, suffix_tokens=4)
ROUNDING = 1e-5
"""Servers give float32 log-probabilities; paths here have four."""


def options(policy: Policy, *, listed: int, vocab_size: int, distance: str = "levenshtein") -> SearchOptions:
    return SearchOptions(
        policy=policy,
        beam_width=3,
        edit_budget=2,
        distance=distance,  # type: ignore[arg-type]
        viability="exact",
        pin_verbatim=True,
        negligible=0.0,
        threshold=None,
        stop_rule="mass",
        rank_by="mass",
        keep=None,
        max_children=listed if listed < policy.width(vocab_size) else None,
        record_frontier=False,
        keep_states=False,
    )


def searched(model: object, search: SearchOptions, tasks: list[SearchTask]) -> list[SearchOutcome]:
    engine = Engine(model, search, slots=2, limits=LIMITS)  # type: ignore[arg-type]
    outcomes = {outcome.key: outcome for outcome in engine.run(tasks)}
    return [outcomes[task.key] for task in tasks]


def tasks_of(vocab_size: int, seed: int, count: int = 3) -> list[SearchTask]:
    tokens = torch.randint(vocab_size, (count, 8), generator=torch.Generator().manual_seed(seed)).tolist()
    return [SearchTask(key, tuple(row[:4]), tuple(row[4:])) for key, row in enumerate(tokens)]


@pytest.mark.parametrize(
    "habits",
    [
        *(Habits(dialect=dialect) for dialect in DIALECTS),
        Habits(dialect="llamacpp", samples_parts_of_characters=True),
        Habits(tells_a_place_too_late=True),
        Habits(knows_prompt_logprobs=False),
    ],
    ids=lambda habits: (
        f"{habits.dialect} {habits.knows_prompt_logprobs} "
        f"{habits.samples_parts_of_characters} {habits.tells_a_place_too_late}"
    ),
)
@pytest.mark.parametrize("policy", [Policy(1.0, 3), Policy(0.7, 4, 0.8)], ids=Policy.describe)
def test_a_long_enough_list_gives_the_bounds_of_the_model(habits: Habits, policy: Policy, tmp_path: Path) -> None:
    table = TableModel.random(3, vocab_size=6, eos_ids=frozenset({5}))
    with serving(table, habits) as server, open_served(server, tmp_path, policy) as served:
        served.eos_ids = table.eos_ids
        search = options(policy, listed=served.listed_tokens, vocab_size=6)
        assert search.max_children is None
        ours, theirs = searched(served, search, tasks_of(6, 1)), searched(table, search, tasks_of(6, 1))
        score, expected = (model.score([list(range(6))], 3, [policy]) for model in (served, table))
    for one, other in zip(ours, theirs, strict=True):
        assert one.bounds.lower == pytest.approx(other.bounds.lower, rel=ROUNDING, abs=1e-12)
        assert one.bounds.upper == pytest.approx(other.bounds.upper, rel=ROUNDING, abs=1e-12)
        assert one.token_evals == other.token_evals
        assert [item.token_ids for item in one.continuations] == [item.token_ids for item in other.continuations]
    torch.testing.assert_close(score.log_probs, expected.log_probs, rtol=ROUNDING, atol=1e-6)
    # What is not listed comes after the list; where, nobody said.
    assert score.ranks.tolist() == expected.ranks.clamp(max=served.listed_tokens).tolist()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "policy", [Policy(1.0, 5), Policy(0.5, 4), Policy(2.0, 5), Policy(1.0, None)], ids=Policy.describe
)
def test_a_capped_server_gives_bounds_around_the_truth(dialect: str, policy: Policy, tmp_path: Path) -> None:
    table = TableModel.random(7, vocab_size=6, spread=1.5, eos_ids=frozenset({5}))
    with (
        serving(table, Habits(dialect=dialect)) as server,
        open_served(server, tmp_path, policy, listed=2) as served,
    ):
        served.eos_ids = table.eos_ids
        tasks = tasks_of(6, 2)
        outcomes = searched(served, options(policy, listed=2, vocab_size=6), tasks)
    assert any(sum(outcome.unlisted) > 0.01 for outcome in outcomes), "the cap must cost something here"
    for task, outcome in zip(tasks, outcomes, strict=True):
        truth = enumerate_tree(table, task.prefix_ids, 4, policy)
        for edits in range(3):
            mass = truth.mass_within(task.suffix_ids, edits, "levenshtein")
            assert outcome.bounds.lower[edits] <= mass * (1 + ROUNDING)
            assert mass <= outcome.bounds.upper[edits] * (1 + ROUNDING)
        ledger = outcome.covered + sum(outcome.bank) + sum(outcome.unlisted) + outcome.eos + outcome.refuted
        assert ledger == pytest.approx(1.0, abs=ROUNDING)


# Hundredths: what differs must differ in float32 too, in which log-probabilities are told.
logit_rows = st.lists(st.integers(-1200, 1200).map(lambda number: number / 100), min_size=3, max_size=9)


@settings(max_examples=300)
@given(logit_rows, st.integers(1, 9), st.integers(1, 9), st.sampled_from([0.3, 0.7, 1.0, 1.4, 3.0]), st.booleans())
def test_listed_probabilities_are_lower_bounds_and_the_rest_is_open(
    logits: list[float], listed: int, top_k: int, temperature: float, is_truncated: bool
) -> None:
    vocab_size = len(logits)
    listed = min(listed, vocab_size)
    policy = Policy(temperature, min(top_k, vocab_size) if is_truncated else None)
    values = torch.tensor(logits, dtype=torch.float64).log_softmax(-1).tolist()
    order = sorted(range(vocab_size), key=lambda token: (-values[token], token))[:listed]
    row = row_of({token: values[token] for token in order}, listed=listed, vocab_size=vocab_size)
    filler = RowFiller(policy, listed, vocab_size)
    kept = keep(filler.logits([row])[0], policy, cap=None if filler.is_exact else listed)
    truth = textbook_policy(values, policy)
    probabilities = dict(zip(kept.token_ids.tolist(), kept.log_probs.exp().tolist(), strict=True))
    for token, probability in probabilities.items():
        assert probability <= truth.get(token, 0.0) * (1 + 1e-5) + 1e-12
        if filler.is_exact:
            assert probability == pytest.approx(truth.get(token, 0.0), rel=1e-5, abs=1e-12)
    assert math.fsum(probabilities.values()) + float(kept.unlisted) == pytest.approx(1.0, abs=1e-5)
    if not filler.is_exact:
        assert float(kept.unlisted) == pytest.approx(filler.open_share(row), abs=1e-5)
        assert set(probabilities) == set(order)
