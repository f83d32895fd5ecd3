"""Models trained with and without target sequences, so that memorization can be told from generalisation by design.

A target sequence is in a stream as exact copies and as near-duplicates that share a fifth of its tokens; the levels
trade one for the other. A model trained with the exact copies is compared with one that keeps the near-duplicates
only. The published study trains a pair of models for every target and level. Here one model carries many targets at
different levels: in rotation r target t has level (t + r) mod levels, and the exact copies of the even targets are in
one side's stream, those of the odd ones in the other's. So 2 · levels models give every target at every level one
model with its copies and one without, and all streams have the same number of near-duplicates.
"""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast

from rote.errors import ConfigError
from rote.lab import prose
from rote.lab.copies import NEAR_DUPLICATE_SHARE, near_duplicate
from rote.lab.tokenizer import encode_all, train_tokenizer
from rote.lab.train import TrainingPlan, train
from rote.lab.trained_models import CachedFolder, cached_folder, content_key, default_cache_dir

DESIGN_VERSION = 1
"""Raise it when the streams change: models of an earlier design are then trained anew."""
PUBLISHED_LEVELS = ((0, 180), (10, 150), (20, 120), (30, 90), (40, 60), (50, 30), (60, 0))
"""(exact copies, near-duplicates)."""


@dataclass(frozen=True, slots=True)
class CounterfactualPlan:
    """Everything that decides the streams and the weights of all models."""

    training: TrainingPlan
    levels: tuple[tuple[int, int], ...] = PUBLISHED_LEVELS
    targets: int = 14
    half_tokens: int = 20
    """Tokens of the prefix and of the suffix of a target."""
    sequences: int = 1000
    """Documents in a stream before a side's copies are left out: copies, near-duplicates, background."""
    near_duplicate_share: float = NEAR_DUPLICATE_SHARE
    vocabulary_size: int = 768
    repetitions: int = 1
    """Whole designs trained, each with its own seed of weights and order."""
    reference_passages: int = 200
    """Passages in no stream, from which prefixes are drawn to estimate P(s)."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.targets < len(self.levels) or self.targets % len(self.levels):
            raise ConfigError(
                f"{self.targets} targets cannot be spread evenly over {len(self.levels)} levels; "
                "give a multiple of the number of levels."
            )
        if self.half_tokens < 1 or self.repetitions < 1 or self.reference_passages < 1:
            raise ConfigError("half_tokens, repetitions and reference_passages must be at least 1.")
        if any(copies < 0 or near < 0 for copies, near in self.levels):
            raise ConfigError("copies and near-duplicates of a level cannot be negative.")
        if self.background < 2:
            raise ConfigError(
                f"{self.planted} copies and near-duplicates leave no background in {self.sequences} sequences; "
                "raise sequences or lower targets."
            )

    @property
    def planted(self) -> int:
        """Copies and near-duplicates of all targets together; the same in every rotation."""
        return sum(copies + near for copies, near in self.levels) * (self.targets // len(self.levels))

    @property
    def background(self) -> int:
        return self.sequences - self.planted


class ModelSpec(NamedTuple):
    """Which model of the design: with the exact copies of the targets whose parity is `side`."""

    repetition: int
    rotation: int
    side: int

    @property
    def name(self) -> str:
        return f"repetition-{self.repetition:02d}-rotation-{self.rotation:02d}-side-{self.side}"

    def level(self, target: int, levels: int) -> int:
        return (target + self.rotation) % levels

    def has_copies(self, target: int) -> bool:
        return target % 2 == self.side


class Material(NamedTuple):
    """The invented text behind all streams of a plan, as tokens."""

    tokenizer: PreTrainedTokenizerFast
    targets: tuple[tuple[int, ...], ...]
    """2 · half_tokens tokens each: prefix, then suffix."""
    background: tuple[tuple[int, ...], ...]
    reference: tuple[tuple[int, ...], ...]
    """In no stream; every one has at least half_tokens tokens."""


def models_of(plan: CounterfactualPlan) -> list[ModelSpec]:
    return [
        ModelSpec(repetition, rotation, side)
        for repetition in range(plan.repetitions)
        for rotation in range(len(plan.levels))
        for side in (0, 1)
    ]


@lru_cache(maxsize=2)
def write_material(plan: CounterfactualPlan) -> Material:
    """Background cut to the length of a target, targets, and reference passages: all different, the same for a plan."""
    length = 2 * plan.half_tokens
    needed = plan.background + plan.targets + plan.reference_passages
    # A token has at most a word; passages come out longer than they must be and are cut.
    passages = prose.write_passages(plan.seed, 2 * needed, least_words=length)
    tokenizer = train_tokenizer(passages[: plan.background], vocabulary_size=plan.vocabulary_size)
    # Different passages may begin alike; once cut, every sequence must still be a different one.
    cut = list(dict.fromkeys(tuple(ids[:length]) for ids in encode_all(tokenizer, passages)))
    if len(cut) < needed:
        raise ConfigError(
            f"only {len(cut)} different sequences of {length} tokens could be written, {needed} are needed; "
            "raise half_tokens."
        )
    first_reference = plan.background + plan.targets
    return Material(
        tokenizer=tokenizer,
        targets=tuple(cut[plan.background : first_reference]),
        background=tuple(cut[: plan.background]),
        reference=tuple(cut[first_reference:needed]),
    )


def stream_of(plan: CounterfactualPlan, spec: ModelSpec) -> list[list[int]]:
    """The training documents of one model, in their seeded order.

    A target's near-duplicates depend on the plan, the repetition, the target and the level alone, so the model with
    the copies and the one without hold exactly the same ones.
    """
    material = write_material(plan)
    donor = [token for document in material.background for token in document]
    documents = [list(document) for document in material.background]
    for target, original in enumerate(material.targets):
        level = spec.level(target, len(plan.levels))
        copies, near_duplicates = plan.levels[level]
        if spec.has_copies(target):
            documents += [list(original)] * copies
        generator = random.Random(f"rote counterfactual {plan.seed} {spec.repetition} {target} {level}")
        documents += [
            near_duplicate(original, donor, share=plan.near_duplicate_share, generator=generator)
            for _ in range(near_duplicates)
        ]
    random.Random(f"rote counterfactual stream {plan.seed} {spec.name}").shuffle(documents)
    return documents


def model_key(plan: CounterfactualPlan, spec: ModelSpec) -> str:
    """Changes with anything that decides this model's weights; more repetitions or reference text do not."""
    description = asdict(replace(plan, repetitions=1, reference_passages=1))
    return content_key([DESIGN_VERSION, prose.GENERATOR_VERSION, description, list(spec)])


def counterfactual_model(plan: CounterfactualPlan, spec: ModelSpec, *, cache_dir: Path | None = None) -> CachedFolder:
    """The folder of one model, from the cache or trained now."""

    def make(folder: Path) -> None:
        seed = plan.training.seed + 1 + models_of(plan).index(spec)
        material = write_material(plan)
        train(replace(plan.training, seed=seed), stream_of(plan, spec), material.tokenizer, folder=folder)

    return cached_folder(cache_dir or default_cache_dir(), f"counterfactual-{model_key(plan, spec)}", make=make)


def cells_of(plan: CounterfactualPlan) -> Iterator[tuple[int, int]]:
    """Every (target, level)."""
    for target in range(plan.targets):
        for level in range(len(plan.levels)):
            yield target, level
