"""Windows of characters on random table models against enumeration: every answer decoded, normalised and compared.

Tokens hold one to three characters, none, or parts of a character. An answer that is not complete after twice the
tokens of its target may be in or out: its mass belongs to no lower bound, and to every upper bound that it can reach.
"""

import math
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from byrote.policy import Policy
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.search.base import TOKENS_PER_TARGET_TOKEN
from byrote.types import Split, Window
from byrote.verdict import Bounds
from tests.distance.plain_text import plain_normal_form, text_of
from tests.oracle import textbook_policy
from tests.scan.fuzz import Tally, check_answers
from tests.scan.streams import passed
from tests.table import TableModel

PIECES = (
    *(b"a", b"b", b" ", b"ab", b"ba ", b" a", b"-", b"\xe2\x80\x94", b"\xe2\x80", b"\x94", b"\x99b", b"", b"aab"),
    *("é".encode(), b"e\xcc", b"\x81", b"\xc3", b"\xa9a", "“".encode(), b'"', "…".encode(), b".", b"\xed", b"\xa0"),
)
WHOLE_BEAM = 250
"""Wider than any tree: 5³ or 3⁵ answers lack their last token."""
TEXTS = ("a", "b", "ab", "a b", "—", "-", "é", "e\u0301a", "“a”", '"a"', "aab", "... a", "b\u00ad ")


class Masses(NamedTuple):
    """By edits: what is in, and what was cut off and may end within them."""

    within: NDArray[np.float64]
    open: NDArray[np.float64]


class AnswersTo:
    """All answers of a model to a prefix, enumerated as far as they are needed."""

    def __init__(self, model: TableModel, prefix: tuple[int, ...], policy: Policy) -> None:
        self._model = model
        self.children = cache(lambda path: textbook_policy(self.logits((*prefix, *path)), policy))
        self.text = cache(lambda path: plain_normal_form(text_of(model.token_texts.pieces, path)))

    def logits(self, history: tuple[int, ...]) -> list[float]:
        logits: list[float] = self._model.next_logits([history])[0].tolist()
        return logits

    def masses(self, target: str, *, most: int, budget: int) -> Masses:
        """Of the answers whose text is near a normalised target; they have so many tokens at most."""
        within, left = np.zeros(budget + 1), np.zeros(budget + 1)
        distance = cache(lambda text: Levenshtein.distance(text, target))
        stack: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
        while stack:
            path, chance = stack.pop()
            for token, p in self.children(path).items():
                longer = (*path, token)
                text, has_ended = self.text(longer)[: len(target)], token in self._model.eos_ids
                if has_ended or len(text) == len(target):
                    within[distance(text) :] += chance * p
                elif len(longer) < most:
                    stack.append((longer, chance * p))
                else:
                    left[least_distance(text, target) :] += chance * p
        return Masses(within, left)


def least_distance(text: str, target: str) -> int:
    return min(
        Levenshtein.distance(text, target[:column]) + max(0, len(text) - column) for column in range(len(target) + 1)
    )


def random_config(generator: np.random.Generator, number: int, **further: Any) -> RunConfig:
    top_p = [None, None, 0.9][int(generator.integers(3))]
    children = [None, 2, 1024][int(generator.integers(3))]
    options = dict(
        unit="text",
        suffix_chars=12,
        prefix_tokens=3,
        suffix_tokens=3 * TOKENS_PER_TARGET_TOKEN,
        temperature=float(generator.choice([1.0, 0.7, 1.6])),
        top_k=[None, 2, 3][int(generator.integers(3))],
        top_p=top_p,
        edit_budget=int(generator.integers(0, 5)),
        beam_width=int(generator.choice([1, 2, 5, 5, 20, 20, WHOLE_BEAM])),
        pin=bool(generator.integers(2)),
        negligible=float(generator.choice([0.0, 1e-10, 0.02])),
        max_children=children,
        stop_rule=["mass", "off"][int(generator.integers(2))],  # type: ignore[arg-type]
        threshold=float(generator.choice([0.001, 0.05, 0.5])),
        screen=["auto", "off"][int(generator.integers(2))],  # type: ignore[arg-type]
        screen_floor=float(generator.choice([1e-6, 0.5])),
        screen_min_windows=0,
        policies=("k=1", "k=2+t=0.7") if top_p is None and generator.random() < 0.2 else (),
        answers=int(generator.choice([0, 2])),
        keep=int(generator.integers(0, 9)),
        slots=int(generator.integers(1, 9)),
        seed=number,
    )
    return RunConfig(**(options | further))


class TextCase:
    """A model, options and windows with their true masses; everything follows from the number."""

    def __init__(self, number: int, *, groups: int, windows_of_a_group: int) -> None:
        self._generator = generator = np.random.default_rng([35, number])
        vocabulary = int(generator.integers(3, 6))
        chosen = generator.choice(len(PIECES), vocabulary - 1, replace=False)
        self.model = TableModel.random(
            number,
            vocab_size=vocabulary,
            spread=float(generator.uniform(0.3, 3.0)),
            eos_ids=frozenset({0}) if generator.random() < 0.6 else frozenset(),
            pieces=[None, *(PIECES[place] for place in chosen)],
        )
        self.config = random_config(generator, number)
        self.answers: dict[tuple[tuple[int, ...], Policy], AnswersTo] = {}
        self.windows: list[Window] = []
        for group in range(groups):
            prefix = tuple(generator.integers(0, vocabulary, int(generator.integers(1, 4))).tolist())
            for policy in self.config.scored_policies:
                self.answers[prefix, policy] = AnswersTo(self.model, prefix, policy)
            for place in range(windows_of_a_group):
                self.windows.append(self._window(f"{number}/{group}/{place}", prefix, vocabulary))

    def _window(self, name: str, prefix: tuple[int, ...], vocabulary: int) -> Window:
        """A target that the tokens spell, or one of other words."""
        generator = self._generator
        suffix = tuple(
            generator.integers(1, vocabulary, int(generator.choice([1, 2, 2, 3 if vocabulary == 3 else 2]))).tolist()
        )
        text = text_of(self.model.token_texts.pieces, suffix)
        if not plain_normal_form(text) or generator.random() < 0.3:
            text = "".join(generator.choice(TEXTS, int(generator.integers(1, 3))))
        return Window(name, "text", Split.TARGET, 0, 0, 0, prefix, suffix, suffix_text=text)

    @cached_property
    def is_whole(self) -> bool:
        """Whether the search leaves nothing out that it can reach."""
        config, few = self.config, self.config.search_options().max_children
        is_stopped = config.stop_rule == "mass" or config.screen == "auto"
        return config.beam_width == WHOLE_BEAM and not config.negligible and few != 2 and not is_stopped

    def masses(self, window: Window, policy: Policy) -> Masses:
        most = TOKENS_PER_TARGET_TOKEN * len(window.suffix_ids)
        target = plain_normal_form(window.suffix_text or "")
        return self.answers[window.prefix_ids, policy].masses(target, most=most, budget=self.config.edits)

    def distance(self, window: Window, path: tuple[int, ...]) -> int:
        target = plain_normal_form(window.suffix_text or "")
        answers = self.answers[window.prefix_ids, self.config.policy]
        return int(Levenshtein.distance(answers.text(path)[: len(target)], target))


def check_texts(number: int, tally: Tally, *, groups: int = 4, windows_of_a_group: int = 100) -> None:
    case = TextCase(number, groups=groups, windows_of_a_group=windows_of_a_group)
    by_id, answered = {window.window_id: window for window in case.windows}, []
    for item in passed(case.model, case.windows, case.config):
        window = by_id.pop(item.window.window_id)
        assert item.near is not None
        truth = case.masses(window, case.config.policy)
        _check_enclosed(window.window_id, item.near.bounds, truth, tally)
        for text, policy, bounds in zip(
            case.config.policies, case.config.bounded_policies, item.near.policy_bounds, strict=True
        ):
            _check_enclosed(f"{window.window_id} {text}", bounds, case.masses(window, policy), tally)
            tally.policy_bounds += 1
        if (outcome := item.near.outcome) is not None:
            total = math.fsum((outcome.covered, outcome.open_mass, outcome.eos, outcome.refuted))
            tally.equal(total, 1.0, f"{window.window_id} ledger")
            if case.is_whole:
                for edits, (low, high) in enumerate(zip(outcome.bounds.lower, outcome.bounds.upper, strict=True)):
                    tally.equal(low, truth.within[edits], f"{window.window_id} whole LB at {edits}")
                    whole = truth.within[edits] + truth.open[edits]
                    tally.equal(high, whole, f"{window.window_id} whole UB at {edits}")
            for found in outcome.continuations:
                far = case.distance(window, found.token_ids)
                tally.holds(found.distance == far, f"{window.window_id} distance of a continuation")
        _check_greedy(case, item, tally)
        if item.answers is not None:
            answered.append((item.answers.count, item.answers.hits, truth.within))
        tally.windows += 1
    tally.holds(not by_id, "every window exactly once")
    check_answers(answered, tally)
    tally.cases += 1


def _check_enclosed(name: str, bounds: Bounds, truth: Masses, tally: Tally) -> None:
    for edits, (lower, upper) in enumerate(zip(bounds.lower, bounds.upper, strict=True)):
        tally.at_most(lower, truth.within[edits], f"{name} LB at {edits}")
        tally.at_most(truth.within[edits] + truth.open[edits], upper, f"{name} UB at {edits}")


def _check_greedy(case: TextCase, item: Measured, tally: Tally) -> None:
    assert item.greedy is not None
    window, answer = item.window, tuple[int, ...]()
    answers = case.answers[window.prefix_ids, case.config.policy]
    target = plain_normal_form(window.suffix_text or "")
    most, is_whole = TOKENS_PER_TARGET_TOKEN * len(window.suffix_ids), False
    while not is_whole and len(answer) < most:
        logits = answers.logits((*window.prefix_ids, *answer))
        answer = (*answer, max(range(len(logits)), key=lambda token: (logits[token], -token)))
        is_whole = answer[-1] in case.model.eos_ids or len(answers.text(answer)) >= len(target)
    far = case.distance(window, answer)
    if item.greedy.levenshtein is None:
        tally.holds(not is_whole or far > case.config.edits, f"{window.window_id} greedy is not beyond the budget")
    else:
        tally.holds(item.greedy.token_ids == answer, f"{window.window_id} greedy answer")
        tally.holds(item.greedy.levenshtein == far, f"{window.window_id} greedy distance")
