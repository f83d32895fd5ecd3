"""The gate: what passes, what fails, what cannot be told, and how often it passes what it must not."""

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
import yaml
from numpy.typing import NDArray
from scipy.stats import binom

from byrote.errors import ConfigError, RunError
from byrote.report.gate import Finding, Outcome, judge, parse_rule
from byrote.report.view import RunView, load_view
from byrote.stats.limits import drawn_share
from byrote.stats.population import population_of
from tests.report.known_runs import known_run
from tests.report.synthetic_run import books, write_run
from tests.report.test_textbook import row, view_of
from tests.scan.scans import make_command

POPULATIONS, MOST = 24, 5
"""More than 5 of 24 at a rate of 5 % have a chance of 1 in 1,000."""


def test_false_passes_are_no_more_frequent_than_stated() -> None:
    """Table models with known masses; the limit is just below the true rate or mean mass, of all windows and of what a
    half of them says about all. A false alarm once in 250 runs of the suite, if it erred as often as it may."""
    generator = np.random.default_rng(3)
    false_passes: Counter[str] = Counter()
    outcomes = set()
    for number in range(POPULATIONS):
        run = known_run(number)
        if not run.true_count:
            continue
        size = len(run.rows)
        rules = [f"near={(run.true_count - 1) / size}", f"mass={0.9999 * run.mean_mass}"]
        views = {"all": run.view(), "drawn": run.sample(size // 2, generator)}
        for (name, view), rule in product(views.items(), rules):
            outcome = judge(view, [parse_rule(rule)]).outcome
            false_passes[f"{name} {rule.partition('=')[0]}"] += outcome is Outcome.PASS
            outcomes.add(outcome)
        for within in ("near=1", "mass=1", f"near={run.true_count / size}", f"mass={1.0001 * run.mean_mass}"):
            outcome = judge(run.view(), [parse_rule(within)]).outcome
            assert outcome is Outcome.PASS if within.endswith("=1") else outcome is not Outcome.FAIL
    assert outcomes >= {Outcome.FAIL, Outcome.CANNOT_TELL}
    assert max(false_passes.values()) <= MOST


SIMULATED = 400
FEW = int(binom.isf(1e-6, SIMULATED, 0.05))


@pytest.mark.parametrize("kind", ["at the threshold", "one window knows it all", "nearly", "searches find half"])
def test_false_passes_of_simulated_runs_are_as_rare_as_stated(kind: str) -> None:
    """Bounds that say little, so that answers decide; limits just below the truth. False alarm below 1e-6 each, if the
    gate erred as often as it may."""
    generator = np.random.default_rng(11)
    false_passes: Counter[str] = Counter()
    passed = 0
    for _ in range(SIMULATED):
        masses = simulated_masses(kind, generator)
        is_found = (generator.random(len(masses)) < 0.5) & (kind == "searches find half")
        view = answered_view(masses, is_found, generator, answers=4)
        limits = {"near": ((masses >= TAU).sum() - 1) / len(masses), "mass": 0.9999 * masses.mean()}
        for name, limit in limits.items():
            false_passes[name] += judge(view, [parse_rule(f"{name}={limit}")]).outcome is Outcome.PASS
        roomy = [parse_rule("near=0.9"), parse_rule(f"mass={min(1.0, 2 * masses.mean() + 0.05)}")]
        passed += judge(view, roomy).outcome is Outcome.PASS
    assert max(false_passes.values()) <= FEW
    assert passed > SIMULATED // 2, "a gate that never passes is of no use"


TAU = 0.2


def simulated_masses(kind: str, generator: np.random.Generator) -> NDArray[np.float64]:
    masses = np.zeros(100)
    if kind == "one window knows it all":
        masses[0] = 1.0
        return masses
    known = int(generator.integers(1, 40))
    masses[:known] = TAU if kind != "searches find half" else generator.uniform(TAU, 1.0, known)
    masses[known:] = 0.999 * TAU * (generator.random(100 - known) < 0.5) * (kind == "nearly")
    return masses


def answered_view(
    masses: NDArray[np.float64], is_found: NDArray[np.bool_], generator: np.random.Generator, *, answers: int
) -> RunView:
    """A run of windows with these masses: bounds that are tight where a search found the mass and open elsewhere."""
    rows = []
    for number, (mass, found) in enumerate(zip(masses.tolist(), is_found.tolist(), strict=True)):
        made = row(number, masses=(0.0, mass if found else 0.0, mass if found else 1.0))
        rows.append(made | {"answers": answers, "answer_hits": [0, int(generator.binomial(answers, mass))]})
    return view_of(rows, threshold=TAU)


def hand_made(certified: Collection[int], *, windows: int = 10) -> RunView:
    """Windows with four answers each and no hit; those certified have the mass τ, of the others nothing is known."""
    rows = [
        row(number, masses=(0.0, TAU, TAU) if number in certified else (0.0, 0.0, 1.0))
        | {"answers": 4, "answer_hits": [0, 0]}
        for number in range(windows)
    ]
    return view_of(rows, threshold=TAU)


@pytest.mark.parametrize(
    ("rule", "outcome", "ends"),
    [
        ("certified=0.2", Outcome.PASS, (0.2, 0.2)),
        ("certified=0.19", Outcome.FAIL, (0.2, 0.2)),
        # No hit in 4k answers has a chance of 0.8^(4k): 0.0687 for 3 windows, 0.0281 for 4.
        ("near=0.5", Outcome.PASS, (0.2, 0.5)),
        ("near=0.49", Outcome.CANNOT_TELL, (0.2, 0.5)),
        ("near=0.19", Outcome.FAIL, (0.2, 0.5)),
        # Of 40 answers none hit: at most 1 − 0.05^(1/40).
        ("mass=0.073", Outcome.PASS, (0.04, 1 - 0.05 ** (1 / 40))),
        ("mass=0.072", Outcome.CANNOT_TELL, (0.04, 1 - 0.05 ** (1 / 40))),
        ("mass=0.039", Outcome.FAIL, (0.04, 1 - 0.05 ** (1 / 40))),
        ("document:target-0 near=0.5", Outcome.PASS, (0.2, 0.5)),
    ],
)
def test_rules_worked_out_by_hand(rule: str, outcome: Outcome, ends: tuple[float, float]) -> None:
    (finding,) = judge(hand_made({0, 1}), [parse_rule(rule)]).findings
    assert (finding.low, finding.high) == pytest.approx(ends)
    assert finding.outcome is outcome
    assert ("--answers" in finding.words) == (outcome is Outcome.CANNOT_TELL)


def test_the_answers_it_takes_are_those_that_would_decide() -> None:
    """Down to 2 windows more: 0.8^(3n) < 0.05 from n = 5 on; down to none 0.8^n < 0.05, from n = 14 on."""
    for limit, answers in ((0.4, 5), (0.2, 20)):
        (finding,) = judge(hand_made({0, 1}), [parse_rule(f"near={limit}")]).findings
        assert finding.words.endswith(
            f"--answers {answers} would bring all that can be down to {10 * limit:.0f} windows, if none comes near."
        )


@pytest.mark.parametrize(("limit", "outcome"), [(0.1, Outcome.PASS), (0.09, Outcome.FAIL)])
@pytest.mark.parametrize("name", ["near", "certified"])
def test_an_increase_worked_out_by_hand(name: str, limit: float, outcome: Outcome) -> None:
    """Two windows more, one fewer, of ten; that the others are open in both runs does not matter."""
    rule = parse_rule(f"{name}={limit}", is_increase=True)
    (finding,) = judge(hand_made({1, 2, 3}), [rule], baseline=hand_made({0, 1})).findings
    assert (finding.low, finding.high) == pytest.approx((0.1, 0.1))
    assert finding.outcome is outcome


def test_an_increase_of_drawn_windows_allows_for_the_draw() -> None:
    """By the limits of both shares: of the windows that are more and of those that are fewer, each at half of α."""
    now, before = hand_made(range(10, 60), windows=100), hand_made(range(20), windows=100)
    selection = {"kind": "sample", "size": 100, "starts": {"target": 100_000}}
    drawn = replace(now, manifest={**now.manifest, "totals": {"selection": selection}})
    more, fewer = (drawn_share(count, 100, 100_000, alpha=0.025) for count in (40, 10))
    found = {}
    for limit in (0.005, 0.2, 0.6):
        (found[limit],) = judge(drawn, [parse_rule(str(limit), is_increase=True)], baseline=before).findings
    ends = more.low - fewer.high, more.high - fewer.low
    assert ends[0] < 0.2 < ends[1]
    assert all((finding.low, finding.high) == pytest.approx(ends) for finding in found.values())
    assert [finding.outcome for finding in found.values()] == [Outcome.FAIL, Outcome.CANNOT_TELL, Outcome.PASS]
    assert " windows would decide it, if their share stays the same." in found[0.2].words


def test_the_mean_mass_of_all_windows_is_limited_by_those_drawn() -> None:
    """Of 300 drawn none hit: with Chernoff, (1 − m)^300 = 0.025."""
    whole = hand_made((), windows=300)
    selection = {"kind": "sample", "size": 300, "starts": {"target": 100_000}}
    drawn = replace(whole, manifest={**whole.manifest, "totals": {"selection": selection}})
    (finding,) = judge(drawn, [parse_rule("mass=0.02")]).findings
    assert (finding.low, finding.high) == pytest.approx((0.0, 1 - 0.025 ** (1 / 300)), abs=1e-9)
    assert finding.outcome is Outcome.PASS
    (open_one,) = judge(drawn, [parse_rule("mass=0.002")]).findings
    assert open_one.outcome is Outcome.CANNOT_TELL
    assert open_one.words.endswith(" 3,000 windows would decide it, if their share stays the same.")
    (close,) = judge(drawn, [parse_rule("mass=0")]).findings
    assert close.words.endswith(
        " 30,000 windows would not decide it either, should their share stay so near the limit."
    )


def test_the_mass_has_no_increase() -> None:
    with pytest.raises(ConfigError, match="about 'mass'; choose greedy, verbatim, certified, near, and"):
        parse_rule("mass=0.1", is_increase=True)


def test_the_confidence_is_that_of_all_rules_together() -> None:
    run = known_run(2)
    rule = parse_rule("near=0.5")
    (alone,) = judge(run.view(), [rule]).findings
    several = judge(run.view(), [rule, *[parse_rule("verbatim=1")] * 9]).findings[0]
    (careful,) = judge(run.view(), [rule], confidence=0.995).findings
    assert alone.high <= several.high
    assert several.high == careful.high


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("gate") / "run", books(3000), stride=100)


def found(run: Path, *rules: str) -> tuple[Finding, ...]:
    return judge(load_view(run), [parse_rule(rule) for rule in rules]).findings


def test_exact_criteria_are_judged_by_their_counts(run: Path) -> None:
    view = load_view(run)
    targets = ~view.population.is_control
    share = float((view.population.verbatim()[targets] >= view.threshold).mean())
    passed, failed = found(run, f"verbatim={share}", f"verbatim={share - 1e-6}")
    assert (passed.outcome, failed.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert passed.low == passed.high == share


def test_a_probability_that_a_server_leaves_open_is_counted_by_both_of_its_ends(run: Path) -> None:
    """With a short list of tokens p_verbatim is a lower bound: what may be extractable must not pass."""
    view = load_view(run)
    capped = view.results.with_columns(p_verbatim_upper=pl.max_horizontal("p_verbatim", pl.lit(view.threshold)))
    served = replace(view, results=capped, population=population_of(capped))
    (exact,), (open_one,) = (judge(one, [parse_rule("verbatim=0.999")]).findings for one in (view, served))
    assert exact.outcome is Outcome.PASS
    assert (open_one.outcome, open_one.low, open_one.high) == (Outcome.CANNOT_TELL, exact.low, 1.0)


def test_a_sample_that_took_every_window_is_no_sample() -> None:
    known = known_run(1)
    whole = known.view(known.rows)
    starts = {"target": len(known.rows) + 3}
    for size, is_exact in ((len(known.rows) + 50, True), (len(known.rows), False)):
        selection = {"kind": "sample", "size": size, "starts": starts}
        view = replace(whole, manifest={**whole.manifest, "totals": {"selection": selection}})
        (finding,) = judge(view, [parse_rule("verbatim=0.5")]).findings
        assert (finding.low == finding.high) == is_exact
        is_open = finding.outcome is Outcome.CANNOT_TELL
        assert ("would decide it, if" in finding.words) == is_open


def test_undecided_windows_are_counted_and_never_guessed(run: Path) -> None:
    (finding,) = found(run, "near=0.5")
    view = load_view(run)
    targets = ~view.population.is_control
    lower, upper = view.population.mass_lower, view.population.mass_upper
    assert lower is not None
    assert upper is not None
    assert finding.low == float((lower[targets, -1] >= view.threshold).mean())
    assert finding.high == float((upper[targets, -1] >= view.threshold).mean())
    assert finding.words.endswith("windows, if none comes near.") or "Not even" in finding.words


def test_groups_have_rules_of_their_own(run: Path) -> None:
    name = load_view(run).documents[0].name
    document, control, every = found(run, f"document:{name} verbatim=1", "split:control near=1", "near=1")
    assert document.windows < every.windows
    assert control.windows == int(load_view(run).population.is_control.sum())


def test_a_run_is_within_nothing_of_itself(run: Path) -> None:
    """Undecided windows are as undecided as before: what neither scan certifies shows no change."""
    view = load_view(run)
    rules = [parse_rule("verbatim=0", is_increase=True), parse_rule("0", is_increase=True)]
    exact, near = judge(view, rules, baseline=view).findings
    assert near.rule.measured == "near"
    for finding in (exact, near):
        assert (finding.outcome, finding.low, finding.high) == (Outcome.PASS, 0.0, 0.0)
        assert "is 0.0 percentage points, at most 0.0 percentage points, as allowed" in finding.words


def test_a_baseline_of_other_windows_is_refused(run: Path, tmp_path: Path) -> None:
    other = load_view(write_run(tmp_path / "other", books(1500), stride=100))
    with pytest.raises(RunError, match="only scans of the same windows are compared"):
        judge(load_view(run), [parse_rule("0.1", is_increase=True)], baseline=other)
    with pytest.raises(ConfigError, match="needs --baseline"):
        judge(load_view(run), [parse_rule("0.1", is_increase=True)])


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", 0.5), ("top_k", 7), ("top_p", 0.9), ("prefix_tokens", 49), ("suffix_tokens", 3)]
)
def test_a_baseline_that_was_asked_something_else_is_refused(run: Path, name: str, value: float) -> None:
    view = load_view(run)
    other = replace(view, manifest={**view.manifest, "config": {**view.config, name: value}})
    with pytest.raises(RunError, match=f"{name.replace('_', '-')} {value}.*; only scans that were measured alike"):
        judge(view, [parse_rule("0.1", is_increase=True)], baseline=other)


def test_a_baseline_of_other_texts_by_the_same_names_is_refused(run: Path) -> None:
    view = load_view(run)
    first, *others = view.documents
    other = replace(view, documents=(replace(first, content_hash="another"), *others))
    with pytest.raises(RunError, match=f"{first.name} is another text in"):
        judge(view, [parse_rule("0.1", is_increase=True)], baseline=other)


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    unfinished = write_run(tmp_path / "run", books(1500)[:1], stride=200, is_complete=False)
    with pytest.raises(RunError, match="is not finished"):
        found(unfinished, "near=1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("near", "ends in no number"),
        ("near=" + "x" * 3000, "a rule has 3,005 characters"),
        ("near=x", "ends in no number"),
        ("nearly=0.1", "about 'nearly'; choose greedy, verbatim, certified, near, mass"),
        ("near=1.5", "between 0 and 1"),
        ("near=nan", "between 0 and 1"),
        ("phone near=0.1", "has the group 'phone'"),
        ("city:x near=0.1", "choose kind, tag, document, split"),
    ],
)
def test_a_rule_that_says_nothing_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_rule(text)


@pytest.mark.parametrize(("rule", "code"), [("near=1", 0), ("verbatim=0", 1), ("near=0.5", 3)])
def test_the_command_exits_as_it_judges_and_writes_what_machines_read(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], rule: str, code: int
) -> None:
    places = [tmp_path / "gate.json", tmp_path / "gate.xml"]
    shown = make_command(capsys)("gate", run, "--max-rate", rule, "--json", places[0], "--junit", places[1])
    assert shown.code == code, shown.out + shown.err
    assert " %" not in shown.out, "a terminal breaks lines there"
    told = json.loads(places[0].read_text(encoding="utf-8"))
    assert told["rules"][0]["rule"] == rule
    assert told["outcome"] == {0: "pass", 1: "fail", 3: "cannot_tell"}[code]
    suite = ElementTree.parse(places[1]).getroot()
    assert (suite.get("failures"), suite.get("errors")) == (str(int(code == 1)), str(int(code == 3)))
    refused = make_command(capsys)("gate", run, "--max-rate", "kind:phone near=1")
    assert refused.code == 2
    assert "has no kind of windows" in refused.err
    name = load_view(run).documents[0].name
    refused = make_command(capsys)("gate", run, "--max-rate", "document:nothing near=1")
    assert f"; choose among {name}" in " ".join(refused.err.split())


def test_the_example_workflow_uses_flags_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    workflow = yaml.safe_load((Path(__file__).parents[2] / "examples" / "gate.yml").read_text(encoding="utf-8"))
    commands = [step["run"] for step in workflow["jobs"]["gate"]["steps"] if step.get("run", "").startswith("byrote ")]
    assert len(commands) == 2
    for words in map(str.split, commands):
        told = make_command(capsys)(words[1], "--help").out
        assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[a-z-]+", told))


def test_greedy_answers_count_when_they_are_exact_as_in_every_table(tmp_path: Path) -> None:
    view = load_view(write_run(tmp_path / "run", books(3000), seed=1, stride=50))
    distances = view.population.greedy_distance
    assert distances is not None
    targets = distances[~view.population.is_control]
    exact, near = float(np.mean(targets == 0)), float(np.mean(targets <= 5))
    assert exact < near
    (found,) = judge(view, [parse_rule(f"greedy={exact}")]).findings
    assert (found.low, found.high, found.outcome) == (exact, exact, Outcome.PASS)
