"""Long passages on random table models against enumeration: R(m) by adding up every answer of m blocks."""

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.types import PassageBlock, Split, Window
from tests.oracle import enumerate_tree
from tests.scan.fuzz import Tally, distances_of
from tests.table import TableModel


def random_passages(number: int, *, groups: int, windows_of_a_group: int) -> tuple[TableModel, RunConfig, list[Window]]:
    """A model, options and windows whose targets are three or four blocks of two tokens, or two of three."""
    generator = np.random.default_rng([33, number])
    block, blocks = [(2, 3), (2, 4), (3, 2)][int(generator.integers(3))]
    vocabulary = 3
    model = TableModel.random(
        number,
        vocab_size=vocabulary,
        spread=float(generator.uniform(0.3, 4.0)),
        eos_ids=frozenset({0}) if generator.random() < 0.4 else frozenset(),
    )
    asked = sorted({block * int(length) for length in generator.integers(1, blocks + 1, 3)} | {block * blocks})
    config = RunConfig(
        prefix_tokens=3,
        suffix_tokens=block,
        passage=tuple(asked),
        passage_roots=int(generator.choice([1, 2, 4, 100])),
        temperature=float(generator.choice([1.0, 0.7, 1.6])),
        top_k=[None, 2, 3][int(generator.integers(3))],
        top_p=[None, 0.9][int(generator.integers(2))],
        distance=["levenshtein", "hamming"][int(generator.integers(2))],  # type: ignore[arg-type]
        viability=["exact", "published"][int(generator.integers(2))],  # type: ignore[arg-type]
        edit_budget=int(generator.integers(0, block)),
        beam_width=int(generator.integers(1, 8)),
        max_children=[None, 2, 1024][int(generator.integers(3))],
        threshold=float(generator.choice([0.001, 0.05, 0.3])),
        screen=["auto", "off"][int(generator.integers(2))],  # type: ignore[arg-type]
        screen_floor=float(generator.choice([1e-6, 0.5])),
        screen_min_windows=0,
        keep=int(generator.integers(0, 4)),
        closure=int(generator.choice([0, 0, 5])),
        answers=0,
        slots=int(generator.integers(1, 9)),
    )
    windows = []
    for group in range(groups):
        prefix = tuple(generator.integers(0, vocabulary, int(generator.integers(1, 4))).tolist())
        tree = enumerate_tree(model, prefix, block * blocks, config.policy).finished
        said, weights = list(tree), np.array(list(tree.values()))
        for place in range(windows_of_a_group):
            target = tuple(generator.integers(0, vocabulary, block * blocks).tolist())
            if place % 2 and len(said):
                target = said[generator.choice(len(said), p=weights / weights.sum())]
            name = f"{number}/{group}/{place}"
            first, *further = [target[start : start + block] for start in range(0, len(target), block)]
            windows.append(
                Window(name, "text", Split.TARGET, 0, 0, 0, prefix, first, blocks=tuple(map(PassageBlock, further)))
            )
    return model, config, windows


class Answers(NamedTuple):
    """Every answer of so many blocks to a prefix."""

    chances: dict[tuple[int, ...], float]
    codes: NDArray[np.int64]  # [answers, blocks]: every block as a number


class TreesOf:
    """Answers enumerated once, and which blocks are near which."""

    def __init__(self, model: TableModel, config: RunConfig) -> None:
        self._model, self._policy, self._block = model, config.policy, config.suffix_tokens
        self._found: dict[tuple[tuple[int, ...], int], Answers] = {}
        every = list(itertools.product(range(model.vocab_size), repeat=config.suffix_tokens))
        self._code = {block: code for code, block in enumerate(every)}
        self.is_near = distances_of(every, every, config.distance) <= config.edit_budget

    def codes(self, path: tuple[int, ...]) -> list[int]:
        return [self._code[path[first : first + self._block]] for first in range(0, len(path), self._block)]

    def __call__(self, prefix: tuple[int, ...], length: int) -> Answers:
        if (prefix, length) not in self._found:
            chances = enumerate_tree(self._model, prefix, length, self._policy).finished
            codes = np.array([self.codes(path) for path in chances], dtype=np.int64)
            self._found[prefix, length] = Answers(chances, codes.reshape(len(chances), length // self._block))
        return self._found[prefix, length]


def whole_target(window: Window) -> tuple[int, ...]:
    return window.suffix_ids + tuple(token for block in window.blocks for token in block.token_ids)


def true_passages(config: RunConfig, window: Window, trees: TreesOf) -> list[float]:
    """R(1), R(2) …: the mass of all answers of m blocks that are within the edit budget in each of them."""
    target, block = whole_target(window), config.suffix_tokens
    masses = []
    for blocks in range(1, len(target) // block + 1):
        answers = trees(window.prefix_ids, blocks * block)
        wanted = trees.codes(target[: blocks * block])
        near = trees.is_near[answers.codes, wanted].all(-1) if answers.chances else np.zeros(0, dtype=bool)
        masses.append(math.fsum(np.array(list(answers.chances.values()))[near]))
    return masses


def check_passages(number: int, tally: Tally, *, groups: int = 4, windows_of_a_group: int = 100) -> None:
    model, config, windows = random_passages(number, groups=groups, windows_of_a_group=windows_of_a_group)
    by_id = {window.window_id: window for window in windows}
    trees, truths = TreesOf(model, config), dict[tuple[tuple[int, ...], ...], list[float]]()
    for measured in Pipeline(model, config, decode=str).run(windows):
        row = measured.row
        window = by_id.pop(row["window_id"])
        key = window.prefix_ids, whole_target(window)
        if key not in truths:
            truths[key] = true_passages(config, window, trees)
        truth = truths[key]
        for length, low, high in zip(config.passage, row["passage_lower"], row["passage_upper"], strict=True):
            name, mass = f"{row['window_id']} {length}", truth[length // config.suffix_tokens - 1]
            tally.at_most(low, mass, f"{name} LB")
            tally.at_most(mass, high, f"{name} UB")
        expected = config.suffix_tokens * math.fsum(truth)
        tally.at_most(row["passage_expected_lower"], expected, f"{row['window_id']} expected LB")
        tally.at_most(expected, row["passage_expected_upper"], f"{row['window_id']} expected UB")
        _check_longest(window, row, trees, tally)
        tally.windows += 1
    tally.holds(not by_id, "every window exactly once")
    tally.cases += 1


def _check_longest(window: Window, row: dict[str, object], trees: TreesOf, tally: Tally) -> None:
    """The answer that is shown has its probability, and is near the target in every block."""
    found = row["passage_ids"]
    if found is None:
        return
    assert isinstance(found, list)
    target, answers = whole_target(window), trees(window.prefix_ids, len(found))
    log_p = math.log(answers.chances[tuple(found)])
    tally.equal(float(row["passage_log_p"]), log_p, f"{row['window_id']} longest")  # type: ignore[arg-type]
    pairs = zip(trees.codes(tuple(found)), trees.codes(target[: len(found)]), strict=True)
    tally.holds(all(trees.is_near[pair] for pair in pairs), f"{row['window_id']} longest is far")
