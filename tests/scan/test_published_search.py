"""`viability=published, pin=no` is the search of the papers: its account against their algorithm, written plainly.

Nothing of byrote's search is used here but the policy's textbook twin: dictionaries of paths, whole edit tables.
"""

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.policy import Policy
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.types import Split, StopReason, Window
from tests.oracle import textbook_edit_row, textbook_levenshtein, textbook_policy
from tests.table import TableModel

Path = tuple[int, ...]


class Published(NamedTuple):
    """What the papers' search finds and where the rest of the probability went."""

    lower: list[float]
    bank: float
    left: float
    eos: float
    refuted: float
    was_stopped: bool


def published_search(
    model: TableModel, window: Window, policy: Policy, *, width: int, budget: int, threshold: float | None
) -> Published:
    """Expand every beam, drop what no row of the edit table admits, keep the best; check distances at the end."""
    target, length = window.suffix_ids, len(window.suffix_ids)
    children = policy.width(model.vocab_size)
    beams: dict[Path, float] = {(): 1.0}
    bank = eos = refuted = 0.0
    for step in range(1, length + 1):
        viable: dict[Path, float] = {}
        for path, mass in beams.items():
            kept = textbook_policy(model.next_logits([[*window.prefix_ids, *path]])[0].tolist(), policy)
            for token, chance in kept.items():
                child = (*path, token)
                if token in model.eos_ids and step < length:
                    eos += mass * chance
                elif min(textbook_edit_row(child, target)) > budget:
                    refuted += mass * chance
                else:
                    viable[child] = mass * chance
        if step == length:
            distances = {path: textbook_levenshtein(path, target) for path in viable}
            refuted += sum(mass for path, mass in viable.items() if distances[path] > budget)
            lower = [sum(viable[path] for path in viable if distances[path] <= e) for e in range(budget + 1)]
            return Published(lower, bank, 0.0, eos, refuted, was_stopped=False)
        ranked = sorted(viable.items(), key=lambda item: -item[1])
        beams, pruned = dict(ranked[:width]), ranked[width:]
        bank += sum(mass for _, mass in pruned)
        best = max(beams.values(), default=0.0)
        if not beams or (threshold is not None and best < threshold / (width * children)):
            return Published([0.0] * (budget + 1), bank, sum(beams.values()), eos, refuted, was_stopped=True)
    raise AssertionError("a suffix has at least one token")


def scanned(model: TableModel, window: Window, config: RunConfig) -> dict[str, Any]:
    """The stored row."""
    (measured,) = Pipeline(model, config, decode=str).run([window])
    return measured.row


@st.composite
def windows(draw: st.DrawFn) -> Window:
    ids = draw(st.lists(st.integers(0, 3), min_size=6, max_size=6))
    return Window("w", "text", Split.TARGET, 0, 0, 0, tuple(ids[:2]), tuple(ids[2:]))


@settings(max_examples=80)
@given(
    window=windows(),
    seed=st.integers(0, 5000),
    width=st.integers(1, 4),
    budget=st.integers(0, 2),
    stop_rule=st.sampled_from(["off", "published"]),
    eos_ids=st.sampled_from([frozenset[int](), frozenset({3})]),
)
def test_the_stored_account_is_that_of_the_papers(
    window: Window, seed: int, width: int, budget: int, stop_rule: Any, eos_ids: frozenset[int]
) -> None:
    model = TableModel.random(seed, vocab_size=4, eos_ids=eos_ids)
    config = RunConfig(
        prefix_tokens=2, suffix_tokens=4, top_k=3, beam_width=width, edit_budget=budget, threshold=0.2,
        viability="published", pin=False, negligible=0.0, stop_rule=stop_rule, screen="off",
    )  # fmt: skip
    row = scanned(model, window, config)
    expected = published_search(
        model, window, config.policy, width=width, budget=budget, threshold=None if stop_rule == "off" else 0.2
    )
    # Sums of the same numbers in another order: 16 digits less what a few dozen additions round.
    close = {"rel": 1e-12, "abs": 1e-15}
    assert row["search_lower"] == pytest.approx(expected.lower, **close)
    assert row["open_mass"] == pytest.approx(expected.bank + expected.left, **close)
    assert row["eos_mass"] == pytest.approx(expected.eos, **close)
    assert row["refuted_mass"] == pytest.approx(expected.refuted, **close)
    assert (row["stop_reason"] != StopReason.FINISHED) == expected.was_stopped
    assert row["mass_lower"][0] == row["mass_upper"][0] == row["p_verbatim"]


def test_a_search_that_loses_the_target_says_so_in_its_own_account_only() -> None:
    """One beam, and the target's first token is the second choice: found is what lies beside it, p_z is added."""
    explicit = {(1, 2): [0.0, 1.0, -9.0, -9.0], (1, 2, 1): [5.0, 0.0, 0.0, 0.0], (1, 2, 0): [5.0, 0.0, 0.0, 0.0]}
    model = TableModel(torch.zeros(1, 4), explicit=explicit)
    window = Window("w", "text", Split.TARGET, 0, 0, 0, (1, 2), (0, 0))
    config = RunConfig(
        prefix_tokens=2, suffix_tokens=2, top_k=2, beam_width=1, edit_budget=1, viability="published", pin=False,
        negligible=0.0, stop_rule="off", screen="off",
    )  # fmt: skip
    row = scanned(model, window, config)
    assert row["search_lower"][0] == 0
    assert row["search_lower"][1] > 0
    assert row["mass_lower"][0] > 0.2
    assert row["mass_lower"][1] == pytest.approx(row["mass_lower"][0] + row["search_lower"][1])
