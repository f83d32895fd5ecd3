"""Brute force and textbook versions: slow, obvious, and the judge of everything fast."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from byrote.models.base import CausalModel
from byrote.policy import Policy


def textbook_levenshtein(left: Sequence[int], right: Sequence[int]) -> int:
    """The recursive definition, memoised by a full table."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in range(len(left) + 1):
        for j in range(len(right) + 1):
            if i == 0 or j == 0:
                table[i][j] = i + j
            else:
                table[i][j] = min(
                    table[i - 1][j] + 1,
                    table[i][j - 1] + 1,
                    table[i - 1][j - 1] + (left[i - 1] != right[j - 1]),
                )
    return table[-1][-1]


def textbook_edit_row(stream: Sequence[int], target: Sequence[int]) -> list[int]:
    """D[t, 0 … T]: the distance of the whole stream to every beginning of the target."""
    return [textbook_levenshtein(stream, target[:columns]) for columns in range(len(target) + 1)]


def textbook_hamming(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(a != b for a, b in zip(left, right, strict=True))


def textbook_policy(logits: Sequence[float], policy: Policy) -> dict[int, float]:
    """token → probability, by sorting everything in plain Python; ties by lower id."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    kept = order[: policy.top_k] if policy.top_k is not None else order
    kept = [token for token in kept if logits[token] > -math.inf]
    highest = logits[kept[0]]
    weights = [math.exp((logits[token] - highest) / policy.temperature) for token in kept]
    total = math.fsum(weights)
    if policy.top_p is not None and policy.top_p < 1:
        reached, count = 0.0, 0
        for weight in weights:
            reached += weight / total
            count += 1
            if reached >= policy.top_p:
                break
        kept, weights = kept[:count], weights[:count]
        total = math.fsum(weights)
    return {token: weight / total for token, weight in zip(kept, weights, strict=True)}


class Path(NamedTuple):
    token_ids: tuple[int, ...]
    probability: float


def every_continuation(model: CausalModel, prefix: Sequence[int], length: int, policy: Policy) -> Iterator[Path]:
    """Every continuation of exactly `length` tokens with its probability; EOS may only come last."""

    def grow(path: tuple[int, ...], probability: float) -> Iterator[Path]:
        if len(path) == length:
            yield Path(path, probability)
            return
        logits = model.next_logits([[*prefix, *path]])[0].tolist()
        for token, chance in textbook_policy(logits, policy).items():
            if token in model.eos_ids and len(path) + 1 < length:
                continue
            yield from grow((*path, token), probability * chance)

    return grow((), 1.0)


def true_mass(
    model: CausalModel, prefix: Sequence[int], target: Sequence[int], policy: Policy, *, budget: int, distance: str
) -> float:
    """Σ of the probabilities of all continuations within `budget` of the target."""
    measure = textbook_hamming if distance == "hamming" else textbook_levenshtein
    paths = every_continuation(model, prefix, len(target), policy)
    return math.fsum(path.probability for path in paths if measure(path.token_ids, target) <= budget)


def nearest_completion(path: Sequence[int], target: Sequence[int], *, vocabulary: int, distance: str) -> int:
    """The least distance over all completions of `path` to the target's length, by enumeration."""
    measure = textbook_hamming if distance == "hamming" else textbook_levenshtein
    rest = len(target) - len(path)
    return min(measure([*path, *tail], target) for tail in itertools.product(range(vocabulary), repeat=rest))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Enumeration(NamedTuple):
    """Every path of a window's tree: partial ones that can still reach length T, finished ones, mass that ended."""

    partial: dict[tuple[int, ...], float]
    finished: dict[tuple[int, ...], float]
    ended: float

    def mass_within(self, target: Sequence[int], budget: int, distance: str) -> float:
        measure = textbook_hamming if distance == "hamming" else textbook_levenshtein
        return math.fsum(p for path, p in self.finished.items() if measure(path, target) <= budget)


def enumerate_tree(model: CausalModel, prefix: Sequence[int], length: int, policy: Policy) -> Enumeration:
    """All paths of at most `length` tokens with their probabilities; EOS before the last token ends a path."""
    partial: dict[tuple[int, ...], float] = {(): 1.0}
    ended = 0.0
    for step in range(1, length + 1):
        longer: dict[tuple[int, ...], float] = {}
        for path in [path for path in partial if len(path) == step - 1]:
            logits = model.next_logits([[*prefix, *path]])[0].tolist()
            for token, chance in textbook_policy(logits, policy).items():
                if token in model.eos_ids and step < length:
                    ended += partial[path] * chance
                else:
                    longer[(*path, token)] = partial[path] * chance
        if step == length:
            return Enumeration(partial, longer, ended)
        partial |= longer
    raise AssertionError("a suffix has at least one token")


def poisson_binomial_tail(probabilities: Sequence[float], failures: int) -> float:
    """The chance that independent trials fail at most `failures` times, by adding up all outcomes."""
    total = 0.0
    for outcome in itertools.product([True, False], repeat=len(probabilities)):
        if outcome.count(False) <= failures:
            total += math.prod(p if success else 1 - p for p, success in zip(probabilities, outcome, strict=True))
    return total
