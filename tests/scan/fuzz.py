"""Random table models, windows and options through the pipeline that a scan uses, against enumeration.

A case is a model, a set of options and groups of windows; the windows of a group share prefix and length, so that one
enumeration of the tree judges them all. Everything follows from the number of the case.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from byrote.policy import Policy
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.stages.search import NearResult
from byrote.search.base import SearchOutcome
from byrote.stats.answers import log_tail
from byrote.types import Split, Window
from byrote.verdict import Bounds
from tests.oracle import Enumeration, enumerate_tree, textbook_hamming, textbook_levenshtein, textbook_policy
from tests.scan.streams import passed
from tests.table import TableModel

MOST_PREFIX, MOST_SUFFIX = 4, 5
GROUPS, WINDOWS_OF_A_GROUP = 5, 100
TOLERANCE = 1e-9
"""Masses are sums of float64 numbers, in one order here and in another there."""

Group = tuple[tuple[int, ...], int]
"""Prefix and length of the suffix: what decides a tree."""


@dataclass(frozen=True)
class Case:
    """What is streamed: windows of mixed lengths in mixed order, with the tree of each group."""

    model: TableModel
    config: RunConfig
    windows: list[Window]
    trees: dict[Group, Enumeration]
    answers: dict[Group, list[int]]
    """The greedy answer to each prefix, at each length."""
    policy_trees: list[dict[Group, Enumeration]]
    """The trees under each of the further policies."""

    def tree_of(self, window: Window) -> Enumeration:
        return self.trees[group_of(window)]


def group_of(window: Window) -> Group:
    return window.prefix_ids, len(window.suffix_ids)


def random_case(number: int, *, windows_of_a_group: int = WINDOWS_OF_A_GROUP) -> Case:
    generator = np.random.default_rng([31, number])
    vocabulary = int(generator.integers(3, 5))
    model = TableModel.random(
        number,
        vocab_size=vocabulary,
        spread=float(generator.uniform(0.3, 5.0)),
        eos_ids=frozenset({0}) if generator.random() < 0.4 else frozenset(),
    )
    config = random_config(generator, vocabulary)
    # A stream of its own, so that the cases are those of campaigns before there were further policies.
    config = with_policies(config, np.random.default_rng([32, number]), vocabulary)
    trees: dict[Group, Enumeration] = {}
    windows: list[Window] = []
    for group in range(GROUPS):
        prefix = tuple(generator.integers(0, vocabulary, generator.integers(1, MOST_PREFIX + 1)).tolist())
        length = int(generator.choice([1, 2, 3, 4, 4, 5, 5, 5]))
        tree = enumerate_tree(model, prefix, length, config.policy)
        trees[prefix, length] = tree
        suffixes = _suffixes(generator, tree, vocabulary, length, windows_of_a_group)
        windows += [
            Window(f"{number}/{group}/{place}", "text", Split.TARGET, 0, 0, 0, prefix, suffix)
            for place, suffix in enumerate(suffixes)
        ]
    order = generator.permutation(len(windows))
    answers = {(prefix, length): greedy_answer(model, prefix, length) for prefix, length in trees}
    policy_trees = [
        {(prefix, length): enumerate_tree(model, prefix, length, policy) for prefix, length in trees}
        for policy in config.bounded_policies
    ]
    return Case(model, config, [windows[place] for place in order], trees, answers, policy_trees)


def _suffixes(
    generator: np.random.Generator, tree: Enumeration, vocabulary: int, length: int, count: int
) -> list[tuple[int, ...]]:
    """Half of them any tokens, half drawn from what the model says, so that there is mass to find."""
    said = list(tree.finished)
    weights = np.array([tree.finished[path] for path in said]) + 1e-12
    # Where every path ends too soon, nothing can be drawn.
    drawn = generator.choice(len(said), count // 2, p=weights / weights.sum()) if said else []
    other = generator.integers(0, vocabulary, (count - len(drawn), length)).tolist()
    return [said[place] for place in drawn] + [tuple(suffix) for suffix in other]


def random_config(generator: np.random.Generator, vocabulary: int) -> RunConfig:
    """Any options that a scan takes."""

    def one_of(*values: object) -> object:
        return values[int(generator.integers(len(values)))]

    return RunConfig(
        prefix_tokens=MOST_PREFIX,
        suffix_tokens=MOST_SUFFIX,
        temperature=one_of(1.0, 1.0, 0.7, 1.6),  # type: ignore[arg-type]
        top_k=one_of(None, 2, 3, vocabulary),  # type: ignore[arg-type]
        top_p=one_of(None, None, 0.8, 0.99),  # type: ignore[arg-type]
        sweep=one_of((), ("k=2", "t=0.5+p=0.9")),  # type: ignore[arg-type]
        greedy=one_of("decided", "full"),  # type: ignore[arg-type]
        beam_width=int(generator.integers(1, 6)),
        edit_budget=int(generator.integers(0, 4)),
        distance=one_of("levenshtein", "levenshtein", "hamming", "none"),  # type: ignore[arg-type]
        viability=one_of("exact", "exact", "published"),  # type: ignore[arg-type]
        pin=bool(generator.integers(2)),
        negligible=one_of(0.0, 1e-10, 0.02),  # type: ignore[arg-type]
        threshold=one_of(0.001, 0.1, 0.5),  # type: ignore[arg-type]
        stop_rule=one_of("mass", "published", "off"),  # type: ignore[arg-type]
        rank=one_of("mass", "screen_score"),  # type: ignore[arg-type]
        max_children=one_of(None, 1, 2, 1024),  # type: ignore[arg-type]
        screen=one_of("auto", "off"),  # type: ignore[arg-type]
        screen_floor=one_of(1e-6, 0.5, 0.99),  # type: ignore[arg-type]
        screen_share=one_of(0.0, 0.1, 1.0),  # type: ignore[arg-type]
        screen_min_windows=one_of(0, 5, 40),  # type: ignore[arg-type]
        keep=one_of(0, 3, 50),  # type: ignore[arg-type]
        closure=one_of(0, 0, 0, 3, 100),  # type: ignore[arg-type]
        refine=one_of(0, 0, 0, 10, 200),  # type: ignore[arg-type]
        estimate=one_of(*["off"] * 6, "undecided", "all"),  # type: ignore[arg-type]
        answers=one_of(0, 1, 2, 5),  # type: ignore[arg-type]
        residual=one_of(None, 30),  # type: ignore[arg-type]
        verify=one_of(*[False] * 7, True),  # type: ignore[arg-type]
        seed=int(generator.integers(1000)),
        slots=one_of(1 + int(generator.integers(8)), 32, 64, 64),  # type: ignore[arg-type]
        batch_windows=one_of(None, 7),  # type: ignore[arg-type]
    )


POLICIES = 6


def with_policies(config: RunConfig, generator: np.random.Generator, vocabulary: int) -> RunConfig:
    """The options with further policies inside the searched one; without a nucleus in the search, and pruned."""
    options = config.search_options()
    if config.top_p is not None or config.distance == "none":
        return config
    caps = [cap for cap in (config.top_k, options.max_children) if cap is not None]
    most = min(caps, default=None)
    found = set()
    while len(found) < POLICIES:
        width = int(generator.integers(1, min(vocabulary, most or vocabulary) + 1))
        parts = [f"k={width}"] if most is not None or generator.random() < 0.7 else []
        parts += [f"t={generator.choice([0.3, 0.7, 1.0, 1.4, 3.0])}"] if generator.random() < 0.7 or not parts else []
        parts += [f"p={generator.choice([0.3, 0.5, 0.8, 0.97])}"] if generator.random() < 0.5 else []
        found.add("+".join(parts))
    return replace(config, policies=tuple(sorted(found)))


Distances = NDArray[np.int64]


def distances_of(paths: Sequence[tuple[int, ...]], targets: Sequence[tuple[int, ...]], name: str) -> Distances:
    """The distance of every path to every target, all of one length. [paths, targets]"""
    left, right = np.array(paths)[:, None, :], np.array(targets)[None, :, :]
    if name == "hamming":
        return np.asarray((left != right).sum(-1))
    length = left.shape[-1]
    row = [np.full((len(paths), len(targets)), column) for column in range(length + 1)]
    for place in range(length):
        longer = [row[0] + 1]
        for column in range(length):
            changed = row[column] + (left[..., place] != right[..., column])
            longer.append(np.minimum(np.minimum(row[column + 1], longer[column]) + 1, changed))
        row = longer
    return row[-1]


def true_masses(case: Case, trees: dict[Group, Enumeration]) -> dict[str, NDArray[np.float64]]:
    """window id → the mass within e edits, e = 0 … budget."""
    masses: dict[str, NDArray[np.float64]] = {}
    budget = np.arange(case.config.edit_budget + 1)
    for key, tree in trees.items():
        group = [window for window in case.windows if group_of(window) == key]
        if not tree.finished:
            masses |= {window.window_id: np.zeros(len(budget)) for window in group}
            continue
        far = distances_of(list(tree.finished), [window.suffix_ids for window in group], case.config.distance)
        chances = np.array(list(tree.finished.values()))
        within = (chances[:, None, None] * (far[..., None] <= budget)).sum(0)  # [windows, budget + 1]
        masses |= {window.window_id: mass for window, mass in zip(group, within, strict=True)}
    return masses


@dataclass
class Tally:
    """What a campaign has seen. `groups`: windows, Σ (UB − LB), Σ (truth − LB) at the budget, by what was done."""

    cases: int = 0
    windows: int = 0
    comparisons: int = 0
    violations: list[str] = field(default_factory=list)
    worst: float = 0.0
    """Largest disagreement that the tolerance allowed."""
    groups: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0, 0.0, 0.0]))
    intervals: int = 0
    intervals_that_cover: int = 0
    policy_bounds: int = 0
    """Pairs of a window and a further policy whose bounds were checked."""
    answers: int = 0
    hits: int = 0
    """Of these answers, those within the budget; on average `expected_hits`, with this variance."""
    expected_hits: float = 0.0
    variance_of_hits: float = 0.0

    def at_most(self, low: float, high: float, words: str) -> None:
        self.comparisons += 1
        excess = float(low) - float(high)
        if excess > TOLERANCE or math.isnan(excess):
            self.violations.append(f"{words}: {low!r} > {high!r}")
        elif excess > self.worst:
            self.worst = excess

    def equal(self, found: float, truth: float, words: str) -> None:
        if found != truth:  # also where both are infinite
            self.at_most(found, truth, words)
            self.at_most(truth, found, words)
        else:
            self.comparisons += 1

    def holds(self, is_true: bool, words: str) -> None:
        self.comparisons += 1
        if not is_true:
            self.violations.append(words)


def check_case(case: Case, tally: Tally) -> None:
    """Every window of a case through the pipeline; what is wrong is added to the tally."""
    truths = true_masses(case, case.trees)
    policy_truths = [true_masses(case, trees) for trees in case.policy_trees]
    seen, answered = [], []
    for item in passed(case.model, case.windows, case.config):
        seen.append(item.window.window_id)
        if item.answers is not None:
            answered.append((item.answers.count, item.answers.hits, truths[item.window.window_id]))
        _check_scores(case, item, tally)
        _check_greedy(case, item, tally)
        assert item.near is not None
        _check_bounds(item, item.near, truths[item.window.window_id], tally)
        for text, bounds, of_policy in zip(case.config.policies, item.near.policy_bounds, policy_truths, strict=True):
            _check_enclosed(f"{item.window.window_id} {text}", bounds, of_policy[item.window.window_id], tally)
            tally.policy_bounds += 1
        if item.near.outcome is not None:
            _check_ledger(item.window.window_id, item.near.outcome, tally)
            _check_continuations(case, item, item.near.outcome, tally)
        _note_tightness(case.config, item.near, truths[item.window.window_id][-1], tally)
    tally.holds(sorted(seen) == sorted(window.window_id for window in case.windows), "every window exactly once")
    check_answers(answered, tally)
    tally.cases += 1
    tally.windows += len(seen)


def check_answers(answered: list[tuple[int, tuple[int, ...], NDArray[np.float64]]], tally: Tally) -> None:
    """Hits of all sampled answers of a case beside the true masses: too few or too many by a chance below 1e-12."""
    if not answered:
        return
    counts, hits, truths = map(np.array, zip(*answered, strict=True))
    tally.answers += int(counts.sum())
    for edits in range(hits.shape[1]):
        seen, chances = hits[:, edits], np.clip(truths[:, edits], 0.0, 1.0)
        tally.holds(log_tail(int(seen.sum()), counts, chances) > math.log(1e-12), f"too few answers at {edits}")
        misses = int((counts - seen).sum())
        tally.holds(log_tail(misses, counts, 1 - chances) > math.log(1e-12), f"too many answers at {edits}")
    tally.hits += int(hits[:, -1].sum())
    tally.expected_hits += float(counts @ truths[:, -1])
    tally.variance_of_hits += float(counts @ (truths[:, -1] * (1 - truths[:, -1])))


def _check_scores(case: Case, item: Measured, tally: Tally) -> None:
    window = item.window
    tally.equal(item.score.p, case.tree_of(window).finished.get(window.suffix_ids, 0.0), f"{window.window_id} p_z")
    for log_p, policy in zip(item.score.log_p[1:], case.config.scored_policies[1:], strict=True):
        tally.equal(math.exp(log_p), _chance(case.model, window, policy), f"{window.window_id} {policy}")


def _chance(model: TableModel, window: Window, policy: Policy) -> float:
    """The probability of the suffix, token by token."""
    if not model.eos_ids.isdisjoint(window.suffix_ids[:-1]):
        return 0.0
    start = len(window.prefix_ids)
    rows = model.next_logits([window.ids[:place] for place in range(start, len(window.ids))]).tolist()
    return math.prod(
        textbook_policy(row, policy).get(token, 0.0) for row, token in zip(rows, window.suffix_ids, strict=True)
    )


def greedy_answer(model: TableModel, prefix: Sequence[int], length: int) -> list[int]:
    answer: list[int] = []
    while len(answer) < length and (not answer or answer[-1] not in model.eos_ids):
        logits = model.next_logits([[*prefix, *answer]])[0].tolist()
        answer.append(max(range(len(logits)), key=lambda token: (logits[token], -token)))
    return answer


def _check_greedy(case: Case, item: Measured, tally: Tally) -> None:
    assert item.greedy is not None
    target, name = item.window.suffix_ids, f"{item.window.window_id} greedy"
    answer = case.answers[group_of(item.window)]
    if item.greedy.levenshtein is None:
        tally.holds(textbook_levenshtein(answer, target) > case.config.edit_budget, f"{name} is not beyond the budget")
        tally.holds(case.config.greedy == "decided", f"{name} is incomplete")
        return
    missing = len(target) - len(answer)
    tally.holds(list(item.greedy.token_ids) == answer, f"{name} answer")
    tally.holds(item.greedy.levenshtein == textbook_levenshtein(answer, target), f"{name} Levenshtein")
    tally.holds(item.greedy.hamming == textbook_hamming(answer, target[: len(answer)]) + missing, f"{name} Hamming")


def _check_bounds(item: Measured, near: NearResult, truth: NDArray[np.float64], tally: Tally) -> None:
    name = item.window.window_id
    _check_enclosed(name, near.bounds, truth, tally)
    tally.equal(near.bounds.upper[0], item.score.p, f"{name} UB at 0")
    if near.outcome is not None:
        # The search alone, before p_z is taken in: its upper bound holds too.
        _check_enclosed(f"{name} search", near.outcome.bounds, truth, tally)
    if item.estimate is not None:
        low, high, *_ = item.estimate.interval
        tally.at_most(near.bounds.lower[-1], low, f"{name} interval below LB")
        tally.at_most(high, near.bounds.upper[-1], f"{name} interval above UB")
        tally.intervals += 1
        tally.intervals_that_cover += bool(low - TOLERANCE <= truth[-1] <= high + TOLERANCE)


def _check_enclosed(name: str, bounds: Bounds, truth: NDArray[np.float64], tally: Tally) -> None:
    for edits, (lower, upper) in enumerate(zip(bounds.lower, bounds.upper, strict=True)):
        tally.at_most(lower, truth[edits], f"{name} LB at {edits}")
        tally.at_most(truth[edits], upper, f"{name} UB at {edits}")


def _check_ledger(name: str, outcome: SearchOutcome, tally: Tally) -> None:
    total = math.fsum((outcome.covered, outcome.open_mass, outcome.eos, outcome.refuted))
    tally.equal(total, 1.0, f"{name} ledger")


def _check_continuations(case: Case, item: Measured, outcome: SearchOutcome, tally: Tally) -> None:
    name, tree, target = item.window.window_id, case.tree_of(item.window), item.window.suffix_ids
    measure = textbook_hamming if case.config.distance == "hamming" else textbook_levenshtein
    for found in outcome.continuations[: case.config.keep]:
        tally.equal(math.exp(found.log_p), tree.finished.get(found.token_ids, 0.0), f"{name} continuation")
        if found.distance is not None:
            tally.holds(found.distance == measure(found.token_ids, target), f"{name} distance of a continuation")


def _note_tightness(config: RunConfig, near: NearResult, truth: float, tally: Tally) -> None:
    done = [name for name in ("closure", "refine") if getattr(config, name)]
    work = " + ".join(["search", *done]) if near.outcome is not None else "not searched"
    sums = tally.groups[f"{config.distance}: {work}"]
    sums[0] += 1
    sums[1] += near.bounds.upper[-1] - near.bounds.lower[-1]
    sums[2] += truth - near.bounds.lower[-1]
