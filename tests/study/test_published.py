"""Every measure of a published number, against its definition in plain Python over made-up windows; what a file's
entries stand for; and that what enters p_z alone cannot enter a measure of the search."""

import math
import statistics
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.stats.population import population_of
from byrote.study.published import MEASURES, CellSide, Published, expanded, read_measure

TAU = 0.5
LEVELS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
Row = dict[str, Any]


@st.composite
def families(draw: st.DrawFn) -> list[list[Row]]:
    """The same windows under up to three models: what the search found within 0, 1 and 2 edits, and p_z beside it."""
    windows, models = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    return [[made(draw, number) for number in range(windows)] for _ in range(models)]


def made(draw: st.DrawFn, number: int) -> Row:
    found, p_z = sorted(draw(st.tuples(LEVELS, LEVELS, LEVELS))), draw(LEVELS)
    return {
        "window_id": f"w{number}", "document": "d", "split": "target", "char_start": 100 * number,
        "suffix_char_start": 100 * number + 5, "char_end": 100 * number + 10, "prefix_ids": [number],
        "suffix_ids": [number, 1], "p_verbatim": p_z, "log_p_verbatim": math.log(p_z) if p_z else -math.inf,
        "log_p[k=2]": draw(st.sampled_from([-math.inf, -3.0, 0.0])), "mass_lower": [max(p_z, one) for one in found],
        "search_lower": found, "greedy_levenshtein": draw(st.integers(0, 3)), "token_evals": 1,
        "posthoc_bleu_found": draw(LEVELS), "posthoc_levenshtein_found": draw(LEVELS),
    }  # fmt: skip


def side_of(rows: list[Row], **further: Any) -> CellSide:
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return CellSide(population_of(frame), frame, TAU, **further)


def sides_of(models: list[list[Row]]) -> list[CellSide]:
    family = [side_of(rows) for rows in models]
    return [side_of(rows, family=family, place=place) for place, rows in enumerate(models)]


def read(side: CellSide, measure: str, unit: str | None = None, **further: Any) -> float | None:
    unit = unit or MEASURES[measure].unit
    found = read_measure(side, Published(quantity="q", source="s", measure=measure, unit=unit, **further))  # type: ignore[arg-type]
    return None if found is None else found.value


def within(n: float, log_p: float) -> float:
    return 1 - (1 - math.exp(log_p)) ** n


@given(families())
def test_every_measure_is_its_definition(models: list[list[Row]]) -> None:
    for place, (side, rows) in enumerate(zip(sides_of(models), models, strict=True)):
        s0, s1, s2 = ([one["search_lower"][edits] for one in rows] for edits in range(3))
        p_z = [one["p_verbatim"] for one in rows]
        every = range(len(rows))
        extractable = [i for i in every if s2[i] >= TAU]
        unlocked = [i for i in extractable if s0[i] < TAU]
        counts = {
            ("windows", ()): len(rows),
            ("greedy", ()): sum(one["greedy_levenshtein"] == 0 for one in rows),
            ("greedy", (("edits", 2),)): sum(one["greedy_levenshtein"] <= 2 for one in rows),
            ("verbatim", ()): sum(p >= TAU for p in p_z),
            ("possible", ()): sum(p > 0 for p in p_z),
            ("near", ()): sum(max(p, s) >= TAU for p, s in zip(p_z, s2, strict=True)),
            ("search_near", ()): len(extractable),
            ("search_near", (("edits", 0),)): sum(s >= TAU for s in s0),
            ("search_near", (("edits", 1),)): sum(s >= TAU for s in s1),
            ("unlocked", ()): len(unlocked),
            ("unlocked_from_zero", ()): sum(s0[i] == 0 for i in unlocked),
            ("gain_at", (("at", 0.25),)): sum(s2[i] - s0[i] >= 0.25 for i in every),
            ("missed", ()): sum(p >= TAU > s for p, s in zip(p_z, s0, strict=True)),
            ("within_queries", (("queries", 2.0), ("probability", 0.9))): sum(1 - (1 - p) ** 2 >= 0.9 for p in p_z),
            ("within_queries", (("queries", 10.0), ("policy", "k=2"))): sum(
                within(10, one["log_p[k=2]"]) >= 0.5 for one in rows
            ),
            ("posthoc", (("metrics", "bleu"),)): sum(one["posthoc_bleu_found"] >= TAU for one in rows),
            ("posthoc", (("metrics", "bleu&levenshtein"),)): sum(
                min(one["posthoc_bleu_found"], one["posthoc_levenshtein_found"]) >= TAU for one in rows
            ),
            ("posthoc", (("metrics", "bleu-levenshtein"),)): sum(
                one["posthoc_bleu_found"] >= TAU > one["posthoc_levenshtein_found"] for one in rows
            ),
        }
        for (measure, given_), expected in counts.items():
            assert read(side, measure, **dict(given_)) == expected, (measure, given_)
            assert read(side, measure, "share", **dict(given_)) == pytest.approx(expected / len(rows))

        def share(part: list[int], whole: list[int]) -> Any:
            return pytest.approx(len(part) / len(whole) if whole else math.nan, nan_ok=True)

        exact = [i for i in extractable if s0[i] >= TAU]
        assert read(side, "search_near", "share", edits=0, among="extractable") == share(exact, extractable)
        assert read(side, "unlocked", "share", among="extractable") == share(unlocked, extractable)

        def mean(values: list[float], of: Any = statistics.fmean) -> Any:
            return pytest.approx(of(values) if values else math.nan, nan_ok=True)

        fixed = [i for i in every if all(other[i]["search_lower"][2] >= TAU for other in models)]
        new = [i for i in extractable if all(other[i]["search_lower"][2] < TAU for other in models[:place])]
        for measure, of in (("mass_mean", statistics.fmean), ("mass_median", statistics.median), ("mass_max", max)):
            for name, part in (("all", every), ("unlocked", unlocked), ("fixed", fixed), ("new", new)):
                assert read(side, measure, among=name) == mean([s2[i] for i in part], of), (measure, name)
        shares = [s0[i] / s2[i] for i in extractable]
        assert read(side, "verbatim_share_median", among="extractable") == mean(shares, statistics.median)
        assert read(side, "verbatim_mass") == mean(p_z)
        assert read(side, "mass_mean", edits=1) == mean(s1)
        assert read(side, "mass_mean", edits=3) is None, "beyond what the run searched for"

        known = [i for i in every if p_z[i] >= TAU]
        ratio = sum(s >= TAU for s in s0) / len(known) if known else math.nan
        assert read(side, "recovery") == pytest.approx(ratio, nan_ok=True)
        found = sum(s0[i] / p_z[i] > 0.5 for i in known) / len(known) if known else math.nan
        assert read(side, "found_share") == pytest.approx(found, nan_ok=True)

        greedy = counts["greedy", ()]
        reached = [n for n in range(1, 100) if sum(1 - (1 - p) ** n >= 0.9 for p in p_z) > greedy]
        assert read(side, "queries_to_greedy", probability=0.9) == (reached[0] if reached else math.inf)

        if place + 1 < len(models):
            larger = models[place + 1]
            assert read(side, "promoted") == sum(larger[i]["search_lower"][0] >= TAU for i in unlocked)
        else:
            assert read(side, "promoted") is None


@given(families(), st.integers(0, 5))
def test_p_z_beyond_the_search_changes_near_and_nothing_of_the_search(models: list[list[Row]], which: int) -> None:
    rows = models[0]
    planted = [dict(one) for one in rows]
    chosen = planted[which % len(planted)]
    chosen |= {"p_verbatim": 1.0, "log_p_verbatim": 0.0, "mass_lower": [1.0, 1.0, 1.0]}
    before, after = side_of(rows), side_of(planted)
    own = rows[which % len(rows)]
    grown = read(before, "near") + (own["mass_lower"][-1] < TAU)  # type: ignore[operator]
    assert read(after, "near") == grown
    for measure in ("search_near", "unlocked", "gain_at", "mass_mean", "verbatim_share_median", "posthoc"):
        given_ = {"metrics": "bleu"} if measure == "posthoc" else {}
        assert read(before, measure, **given_) == pytest.approx(read(after, measure, **given_), nan_ok=True), measure


def test_nothing_is_compared_with_a_search_that_left_windows_out() -> None:
    rows = [{**made_row(), "search_lower": None}, made_row(1)]
    side = side_of(rows)
    assert read(side, "verbatim") == 2
    assert read(side, "search_near") is None
    assert read(side, "recovery") is None


def made_row(number: int = 0) -> Row:
    return {
        "window_id": f"w{number}", "document": "d", "split": "target", "char_start": number, "suffix_char_start": 5,
        "char_end": 10, "prefix_ids": [number], "suffix_ids": [1], "p_verbatim": 1.0, "log_p_verbatim": 0.0,
        "mass_lower": [1.0, 1.0], "search_lower": [1.0, 1.0], "token_evals": 1,
    }  # fmt: skip


def test_monte_carlo_is_compared_with_the_search_by_the_median_of_windows_that_were_hit() -> None:
    rows = [{**made_row(number), "search_lower": [0.0, mass]} for number, mass in enumerate((0.1, 0.2, 0.3, 0.4))]
    samples = [{"window_id": f"w{number}", "mass": mass} for number, mass in enumerate((0.2, 0.2, 0.4, 0.0))]
    assert read(side_of(rows, samples=samples), "mc_ratio") == pytest.approx(statistics.median([0.5, 1.0, 0.75]))
    assert read(side_of(rows), "mc_ratio") is None


def test_an_entry_over_axes_stands_for_a_number_a_cell() -> None:
    axes = {"model": ["small", "large"], "texts": ["a", "b"]}
    blocks = [
        {"measure": "verbatim", "over": "texts, model", "values": [["1%", None], ["2.5%"]], "source": "Table 1"},
        {"measure": "unlocked", "over": "model", "value": "7", "where": "texts=a", "source": "Table 2"},
        {"measure": "recovery", "where": "texts=b", "value": "0.9", "source": "Table 3"},
        {"measure": "verbatim", "where": "texts=b", "value": 0.0192, "source": "Table 3"},
    ]
    rows = [Published(**{"quantity": "q", **row}) for row in expanded(blocks, axes)]
    assert [(one.where, one.unit, pytest.approx(one.value)) for one in rows] == [
        ("texts=a, model=small", "share", 0.01),
        ("texts=b, model=small", "share", 0.025),
        ("model=small, texts=a", "count", 7),
        ("model=large, texts=a", "count", 7),
        ("texts=b", "number", 0.9),
        ("texts=b", "share", 0.0192),
    ]
    assert [one.words(one.value) for one in rows] == ["1.00 %", "2.50 %", "7", "7", "0.9", "1.92 %"]
    with pytest.raises(ConfigError, match="is over beam_width, which is no axis"):
        expanded([{"measure": "verbatim", "over": "beam_width", "values": ["1"]}], axes)
