"""Long passages of text on random table models against enumeration: R(m) by adding up every answer, block by block."""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from byrote.policy import Policy
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.search.base import TOKENS_PER_TARGET_TOKEN
from byrote.types import PassageBlock, Split, Window
from tests.distance.plain_text import plain_normal_form, text_of
from tests.scan.fuzz import Tally
from tests.scan.texts import PIECES, TEXTS, AnswersTo, least_distance, random_config
from tests.table import TableModel

CHARS = 12
"""Characters of a block, by the options."""


def texts_of(window: Window) -> list[str]:
    return [text or "" for text in (window.suffix_text, *(block.text for block in window.blocks))]


def ends_of(texts: list[str]) -> list[int]:
    """Characters of the first 1, 2 … blocks in normal form."""
    return [len(plain_normal_form("".join(texts[: number + 1]))) for number in range(len(texts))]


def random_text_passages(
    number: int, *, groups: int, windows_of_a_group: int
) -> tuple[TableModel, RunConfig, list[Window]]:
    """A model, options and windows whose targets are two or three blocks of one or two tokens."""
    generator = np.random.default_rng([36, number])
    blocks = int(generator.integers(2, 4))
    vocabulary = int(generator.integers(3, 5))
    model = TableModel.random(
        number,
        vocab_size=vocabulary,
        spread=float(generator.uniform(0.3, 3.0)),
        eos_ids=frozenset({0}) if generator.random() < 0.6 else frozenset(),
        pieces=[None, *(PIECES[place] for place in generator.choice(len(PIECES), vocabulary - 1, replace=False))],
    )
    asked = sorted({CHARS * int(length) for length in generator.integers(1, blocks + 1, 2)} | {CHARS * blocks})
    config = random_config(
        generator,
        number,
        suffix_tokens=2 * TOKENS_PER_TARGET_TOKEN,
        passage=tuple(asked),
        passage_roots=int(generator.choice([1, 2, 4, 100])),
        answers=0,
        policies=(),
    )
    windows = []
    for group in range(groups):
        prefix = tuple(generator.integers(0, vocabulary, int(generator.integers(1, 4))).tolist())
        for place in range(windows_of_a_group):
            made: list[PassageBlock] = []
            while len(made) < blocks:
                # Enumeration goes to eight tokens at most.
                tokens = 1 if len(made) == 2 or vocabulary > 3 else int(generator.integers(1, 3))
                ids = tuple(generator.integers(1, vocabulary, tokens).tolist())
                text = text_of(model.token_texts.pieces, ids)
                if not plain_normal_form(text) or generator.random() < 0.3:
                    text = str(generator.choice(TEXTS))
                before = [block.text or "" for block in made]
                if len(set(ends_of([*before, text]))) == len(made) + 1:  # not if it is a blank behind a blank
                    made.append(PassageBlock(ids, text))
            first, *further = made
            windows.append(
                Window(
                    f"{number}/{group}/{place}", "text", Split.TARGET, 0, 0, 0, prefix, first.token_ids,
                    suffix_text=first.text, blocks=tuple(further),
                )
            )  # fmt: skip
    return model, config, windows


class TrueMasses(NamedTuple):
    """By blocks: what stays near in each of so many, and what was cut off and may do so."""

    within: NDArray[np.float64]
    open: NDArray[np.float64]


def true_passages(model: TableModel, answers: AnswersTo, window: Window, *, budget: int) -> TrueMasses:
    """By every answer of up to twice the tokens of all blocks. The first m blocks of an answer are the stretches of its
    characters that are as long as those of the target, or what there is of them where it ended."""
    texts = texts_of(window)
    target, ends = plain_normal_form("".join(texts)), [0, *ends_of(texts)]
    tokens = sum(map(len, (window.suffix_ids, *(block.token_ids for block in window.blocks))))
    within, left = np.zeros(len(texts)), np.zeros(len(texts))
    stack: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while stack:
        path, chance = stack.pop()
        for token, p in answers.children(path).items():
            longer, mass = (*path, token), chance * p
            text, has_ended = answers.text(longer), token in model.eos_ids
            near, is_settled = 0, True
            for start, end in pairwise(ends):
                said, wanted = text[start:end], target[start:end]
                if len(said) < len(wanted) and not has_ended:
                    is_settled = least_distance(said, wanted) > budget
                    break
                if Levenshtein.distance(said, wanted) > budget:
                    break
                near += 1
            if is_settled:
                within[:near] += mass
            elif len(longer) < TOKENS_PER_TARGET_TOKEN * tokens:
                stack.append((longer, mass))
            else:
                within[:near] += mass
                left[near:] += mass
    return TrueMasses(within, left)


def check_text_passages(
    number: int, tally: Tally, *, groups: int = 4, windows_of_a_group: int = 100, max_positions: int | None = None
) -> None:
    model, config, windows = random_text_passages(number, groups=groups, windows_of_a_group=windows_of_a_group)
    model.max_positions = max_positions
    by_id = {window.window_id: window for window in windows}
    answers: dict[tuple[tuple[int, ...], Policy], AnswersTo] = {}
    for measured in Pipeline(model, config, decode=str).run(windows):
        row = measured.row
        window = by_id.pop(row["window_id"])
        key = window.prefix_ids, config.policy
        if key not in answers:
            answers[key] = AnswersTo(model, *key)
        truth = true_passages(model, answers[key], window, budget=config.edits)
        whole = truth.within + truth.open
        for length, low, high in zip(config.passage, row["passage_lower"], row["passage_upper"], strict=True):
            name, place = f"{row['window_id']} {length}", length // CHARS - 1
            tally.at_most(low, truth.within[place], f"{name} LB")
            tally.at_most(whole[place], high, f"{name} UB")
        lengths = np.diff([0, *ends_of(texts_of(window))])
        tally.at_most(row["passage_expected_lower"], truth.within @ lengths, f"{row['window_id']} expected LB")
        tally.at_most(whole @ lengths, row["passage_expected_upper"], f"{row['window_id']} expected UB")
        if row["passage_ids"] is not None:
            _check_longest(window, row, answers[key], config, tally)
        tally.windows += 1
    tally.holds(not by_id, "every window exactly once")
    tally.cases += 1


def _check_longest(window: Window, row: dict[str, object], answers: AnswersTo, config: RunConfig, tally: Tally) -> None:
    """The answer that is shown has its probability, and is near the target in every block that stands beside it."""
    found, name = row["passage_ids"], row["window_id"]
    assert isinstance(found, list)
    chances = [answers.children(tuple(found[:place]))[token] for place, token in enumerate(found)]
    tally.equal(float(row["passage_log_p"]), math.fsum(map(math.log, chances)), f"{name} longest")  # type: ignore[arg-type]
    shown, texts = str(row["passage_target"]), texts_of(window)
    text, target = answers.text(tuple(found)), plain_normal_form("".join(texts))
    for number, (start, end) in enumerate(pairwise([0, *ends_of(texts)])):
        if len("".join(texts[:number])) < len(shown):
            far = Levenshtein.distance(text[start:end], target[start:end])
            tally.holds(far <= config.edits, f"{name} longest is far")
