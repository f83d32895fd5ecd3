"""Every measure and product gives the values that it gave when `values/` was written.

A failure says that numbers changed. If they should have, `python -m tests.golden.generate CASE` writes them anew, and
the commit says why; a rename belongs into `names.py`.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.golden.cases import CASES, Bench
from tests.golden.compare import TABLE, differences, plain, table
from tests.golden.generate import VALUES, committed, computed


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("case", CASES)
def test_values_are_the_committed_ones(case: str, bench: Bench) -> None:
    apart = list(differences(computed(case, bench), committed(case), CASES[case].tolerance))
    assert not apart, "\n".join(apart[:40])


def test_every_committed_file_is_compared() -> None:
    assert {path.stem for path in VALUES.glob("*.json")} == set(CASES)


ROWS: list[dict[str, Any]] = [
    {"window_id": "a@0", "p": 0.25, "stop_step": 6, "mass_low": 0.1, "mass_high": 0.2, "mass_samples": 50},
    {"window_id": "a@9", "p": 1e-12, "stop_step": 2, "mass_low": None, "mass_high": None, "mass_samples": None},
]


def changed(change: Callable[[list[dict[str, Any]]], None]) -> list[str]:
    """Differences that a change of ROWS makes."""
    rows = copy.deepcopy(ROWS)
    change(rows)
    return list(differences(plain(table(rows, sampled="masses")), plain(table(ROWS, sampled="masses")), TABLE))


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[0].update(p=0.2501),
        lambda rows: rows[0].update(p="0.25"),
        lambda rows: rows[0].update(stop_step=5),
        lambda rows: rows[0].update(window_id="b@0"),
        lambda rows: rows[0].update(mass_low=0.41, mass_high=0.5),
        lambda rows: rows[1].update(mass_low=0.1, mass_high=0.2),
        lambda rows: rows.pop(),
        lambda rows: [row.pop("p") for row in rows],
        lambda rows: [row.update(another=1) for row in rows],
    ],
)
def test_a_changed_value_is_seen(change: Callable[[list[dict[str, Any]]], None]) -> None:
    assert changed(change)


def test_rounding_and_chance_are_allowed() -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        rows[0].update(p=0.250001, mass_low=0.15, mass_high=0.24, mass_samples=80)
        rows[1].update(p=2e-12)

    assert not changed(change)
