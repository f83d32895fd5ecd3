"""Words a user of the lab chooses among."""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from transformers import PreTrainedTokenizerFast

from byrote.errors import ConfigError
from byrote.lab import prose
from byrote.lab.cache import CachedFolder, cached_folder, content_key, default_cache_dir
from byrote.lab.copies import NEAR_DUPLICATE_SHARE, near_duplicate
from byrote.lab.train import TrainingPlan, encode_all, train, train_tokenizer

PresetName = Literal["quick", "full", "test"]


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
        generator = random.Random(f"lab counterfactual {plan.seed} {spec.repetition} {target} {level}")
        documents += [
            near_duplicate(original, donor, share=plan.near_duplicate_share, generator=generator)
            for _ in range(near_duplicates)
        ]
    random.Random(f"lab counterfactual stream {plan.seed} {spec.name}").shuffle(documents)
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


# One thread each: the study trains as many models at once as there are cores.
_SMALL = TrainingPlan(
    layers=2, width=64, heads=4, feed_forward_width=192, context=64, rows_per_step=1, learning_rate=6e-3, threads=1
)
_LARGER = TrainingPlan(
    layers=4, width=192, heads=6, feed_forward_width=512, context=256, rows_per_step=4, learning_rate=2e-3, threads=1
)

QUICK = CounterfactualPlan(
    training=replace(_SMALL, width=128, feed_forward_width=384, learning_rate=3e-3),
    targets=14,
    sequences=2000,
    half_tokens=20,
)
FULL = CounterfactualPlan(
    training=_LARGER, targets=28, sequences=5000, half_tokens=50, repetitions=5, vocabulary_size=2048
)
TEST = CounterfactualPlan(
    training=_SMALL,
    levels=((0, 90), (30, 45), (60, 0)),
    targets=9,
    sequences=800,
    half_tokens=8,
    vocabulary_size=512,
    reference_passages=40,
)
PRESETS: dict[PresetName, CounterfactualPlan] = {"quick": QUICK, "full": FULL, "test": TEST}
