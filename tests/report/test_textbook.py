"""Gate, rates by copies and membership against the definitions written out in plain Python, on made-up rows."""

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.errors import RunError
from byrote.report.analysis.groups import copies_rates
from byrote.report.analysis.membership import FALSE_POSITIVE_RATES, separations
from byrote.report.analysis.rates import Criterion
from byrote.report.analysis.risk import document_risks
from byrote.report.gate import Outcome, judge, parse_rule
from byrote.report.view import DECISIVE, RunView, ViewedDocument
from byrote.stats.population import population_of

TAU = 0.5
LEVELS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
"""Few levels, so that ties and values at τ are common."""
Row = dict[str, Any]


def row(number: int, split: str = "target", document: int = 0, masses: tuple[float, ...] = (0.0, 0.0, 0.0)) -> Row:
    """A window with its exact probability and the bounds of its mass within one edit."""
    exact, lower, upper = masses
    return {
        "window_id": f"w{number}", "document": f"{split}-{document}", "split": split, "char_start": 100 * number,
        "suffix_char_start": 100 * number + 5, "char_end": 100 * number + 10, "prefix_ids": [number],
        "suffix_ids": [number, 1], "p_verbatim": exact, "log_p_verbatim": math.log(exact) if exact else -math.inf,
        "mass_lower": [exact, lower], "mass_upper": [exact, upper], "copies": None, "kind": None, "token_evals": 1,
    }  # fmt: skip


@st.composite
def records(draw: st.DrawFn, *, least: int = 1, controls: bool = True) -> list[Row]:
    made = []
    for number in range(draw(st.integers(least, 8))):
        split = draw(st.sampled_from(["target", "control"])) if controls else "target"
        masses = sorted(draw(st.tuples(LEVELS, LEVELS, LEVELS)))
        known = {
            "copies": draw(st.none() | st.integers(0, 3)),
            "kind": draw(st.sampled_from([None, "phone", "name"])),
            "loss": draw(st.sampled_from([1.0, 2.0, math.nan, math.inf])),
        }
        made.append(row(number, split, draw(st.integers(0, 2)), tuple(masses)) | known)
    return made


def view_of(rows: list[Row], *, threshold: float = TAU) -> RunView:
    frame = pl.DataFrame(rows, infer_schema_length=None, schema_overrides={"copies": pl.Int64, "kind": pl.String})
    own = {"threshold": threshold, "edit_budget": 1, "distance": "levenshtein"}
    config = dict.fromkeys(DECISIVE) | own
    manifest = {"config": config, "model": {"name": "made up"}, "totals": {}}
    return RunView("made up", Path("made-up"), manifest, frame, None, (), population_of(frame), is_complete=True)


def share(rows: list[Row], reaches: str) -> float:
    values = [row[reaches][-1] if isinstance(row[reaches], list) else row[reaches] for row in rows]
    return sum(value >= TAU for value in values) / len(rows)


def outcome_by_hand(low: float, high: float, limit: float) -> Outcome:
    return Outcome.PASS if high <= limit else Outcome.FAIL if low > limit else Outcome.CANNOT_TELL


@given(records(), LEVELS, st.sampled_from(["", "kind:phone ", "split:control ", "document:target-0 "]))
def test_a_gate_counts_certified_windows_from_below_and_those_not_ruled_out_from_above(
    rows: list[Row], limit: float, group: str
) -> None:
    side = "control" if group.startswith("split") else "target"
    chosen = [row for row in rows if row["split"] == side]
    if group.startswith("kind"):
        chosen = [row for row in chosen if row["kind"] == "phone"]
    if group.startswith("document"):
        chosen = [row for row in chosen if row["document"] == "target-0"]
    rules = [parse_rule(f"{group}near={limit}"), parse_rule(f"{group}verbatim={limit}")]
    if not chosen:
        with pytest.raises(RunError, match="a rate of nothing"):
            judge(view_of(rows), rules)
        return
    near, exact = judge(view_of(rows), rules).findings
    assert (near.low, near.high) == pytest.approx((share(chosen, "mass_lower"), share(chosen, "mass_upper")))
    assert near.outcome is outcome_by_hand(share(chosen, "mass_lower"), share(chosen, "mass_upper"), limit)
    assert exact.outcome is outcome_by_hand(share(chosen, "p_verbatim"), share(chosen, "p_verbatim"), limit)


@given(st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=6), LEVELS)
def test_greedy_answers_count_when_they_are_exact_also_without_masses(
    distances: list[int | None], limit: float
) -> None:
    """The made-up runs have ε = 1, which plays no part; null is beyond it."""
    left_out = ("p_verbatim", "log_p_verbatim", "mass_lower", "mass_upper")
    plain = [{name: value for name, value in row(number).items() if name not in left_out} for number in range(9)]
    rows = [{**one, "greedy_levenshtein": each} for one, each in zip(plain, distances, strict=False)]
    (finding,) = judge(view_of(rows), [parse_rule(f"greedy={limit}")]).findings
    exact = sum(each == 0 for each in distances) / len(distances)
    assert finding.low == finding.high == pytest.approx(exact)
    assert finding.outcome is outcome_by_hand(exact, exact, limit)


def binomial_tail(hits: int, answers: int, chance: float) -> float:
    """P(at most `hits` hits), term by term."""
    each = (math.comb(answers, k) * chance**k * (1 - chance) ** (answers - k) for k in range(min(hits, answers) + 1))
    return sum(each)


@given(records(controls=False), st.integers(0, 6), st.data())
def test_answers_limit_how_many_open_windows_can_be_extractable_and_what_a_query_brings(
    rows: list[Row], answers: int, data: st.DataObject
) -> None:
    """Of k extractable windows with n answers each, h hits or fewer have at most the chance P(Bin(kn, τ) ≤ h)."""
    counts = [data.draw(st.integers(0, answers)) for _ in rows]
    rows = [one | {"answers": answers, "answer_hits": [0, hit]} for one, hit in zip(rows, counts, strict=True)]
    limit = data.draw(LEVELS)
    rules = [parse_rule(f"{name}={limit}") for name in ("certified", "near", "mass")]
    certified, near, mass = (judge(view_of(rows), [rule]).findings[0] for rule in rules)
    sure = sum(one["mass_lower"][-1] >= TAU for one in rows)
    is_open = [one["mass_lower"][-1] < TAU <= one["mass_upper"][-1] for one in rows]
    hits = sum(hit for hit, one in zip(counts, is_open, strict=True) if one)
    likely = [k for k in range(sum(is_open) + 1) if binomial_tail(hits, k * answers, TAU) >= 0.05 - 1e-12]
    ends = sure / len(rows), (sure + max(likely)) / len(rows)
    assert (certified.low, certified.high) == pytest.approx((ends[0], ends[0]))
    assert (near.low, near.high) == pytest.approx(ends)
    low, high = (sum(one[side][-1] for one in rows) / len(rows) for side in ("mass_lower", "mass_upper"))
    if answers:
        asked, seen = answers * len(rows), sum(counts)
        assert mass.high <= high + 1e-12
        if mass.high < high - 1e-9:
            assert binomial_tail(seen, asked, mass.high) == pytest.approx(0.05)
        elif seen < asked:
            assert binomial_tail(seen, asked, high) >= 0.05 - 1e-9
    else:
        assert mass.high == pytest.approx(high)
    assert mass.low == pytest.approx(low)
    for finding in (certified, near, mass):
        assert finding.outcome is outcome_by_hand(finding.low, finding.high, limit)


@given(records(controls=False), st.data(), st.sampled_from(["near", "certified", "verbatim"]))
def test_an_increase_is_counted_window_by_window(rows: list[Row], data: st.DataObject, name: str) -> None:
    """What meets the criterion now and did not, less what did and does not; in another order of the windows too."""
    masses = st.tuples(LEVELS, LEVELS, LEVELS).map(lambda drawn: tuple(sorted(drawn)))
    before = [
        row(number, "target", 0, data.draw(masses)) | {"kind": rows[number]["kind"]} for number in range(len(rows))
    ]
    column, limit = "p_verbatim" if name == "verbatim" else "mass_lower", data.draw(LEVELS)
    meets = [[share([one], column) == 1 for one in each] for each in (rows, before)]
    more = sum(now and not then for now, then in zip(*meets, strict=True))
    fewer = sum(then and not now for now, then in zip(*meets, strict=True))
    change = (more - fewer) / len(rows)
    rule = parse_rule(f"{name}={limit}", is_increase=True)
    (finding,) = judge(view_of(rows), [rule], baseline=view_of(data.draw(st.permutations(before)))).findings
    assert (finding.low, finding.high) == pytest.approx((change, change))
    assert finding.outcome is outcome_by_hand(finding.low, finding.high, limit)
    assert finding.outcome is not Outcome.CANNOT_TELL


@given(records())
def test_rates_by_copies_are_those_of_the_records_that_say_so(rows: list[Row]) -> None:
    """Also where records of one document differ, and where some say nothing."""
    said = [(row["copies"] if row["copies"] is not None or row["split"] == "target" else 0, row) for row in rows]
    by_hand = {copies: [row for each, row in said if each == copies] for copies in {each for each, _ in said} - {None}}
    for criterion, column in ((Criterion.VERBATIM, "p_verbatim"), (Criterion.NEAR, "mass_lower")):
        found = {one.copies: one.rate.value for one in copies_rates(view_of(rows)) if one.criterion is criterion}
        assert found == pytest.approx({copies: share(own, column) for copies, own in by_hand.items()})


@settings(max_examples=60)
@given(records(least=2))
def test_membership_is_told_by_every_two_windows_and_every_threshold(rows: list[Row]) -> None:
    known = [row for row in rows if not math.isnan(row["loss"])]
    targets, controls = ([-row["loss"] for row in known if row["split"] == side] for side in ("target", "control"))
    found = {entry.score: entry for entry in separations(view_of(rows))}
    if not targets or not controls:
        assert "loss" not in found
        return
    wins = [1.0 if one > other else 0.5 if one == other else 0.0 for one in targets for other in controls]
    assert found["loss"].area.auc == pytest.approx(sum(wins) / len(wins))
    for rate, seen in zip(FALSE_POSITIVE_RATES, found["loss"].found, strict=True):
        allowed = [t for t in (*targets, *controls, math.inf) if sum(c >= t for c in controls) <= rate * len(controls)]
        best = max((sum(one >= t for one in targets) for t in allowed), default=0) / len(targets)
        assert seen.value == pytest.approx(best)


def test_suffixes_without_characters_have_no_share_of_them() -> None:
    """Token ids may stand for no text at all."""
    empty = [{**row(number, masses=(0.5, 0.6, 0.7)), "char_end": row(number)["suffix_char_start"]} for number in (0, 1)]
    document = ViewedDocument("target-0", "target", None, None, None, 0, None, False, 0, 2)
    for risk in document_risks(view_of(empty), document, (10.0,)):
        assert risk.characters_covered == risk.characters_at_least == risk.characters_at_most == 0
        assert math.isnan(risk.share_limit)
        assert 0 < risk.leak_at_least <= risk.leak_at_most <= 1
