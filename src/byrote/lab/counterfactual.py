"""The counterfactual design: models trained with and without exact copies of targets, and the streams they see.

Every target is at every level once a repetition (rotations), in one model with its copies and in one without (sides).

`byrote lab counterfactual`: train the grid in parallel, score every model, correlate.

    mem(s | p) = mean over models trained with the sequence of log P(s|p)
               − mean over models trained without it of log P(s|p)

How well the cheap log-ratio agrees with it is Pearson's correlation over (target, level) cells. Cells of one target
share its text, so the interval comes from resampling whole targets.

Every model is trained and scored by one worker; its scores are a block of the run folder, so an interrupted study is
resumed without training a model again. A finished one has a row for every target at every level.
"""

import itertools
import math
import multiprocessing
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import ArrayLike
from transformers import PreTrainedTokenizerFast

from byrote.errors import RunError
from byrote.lab import texts
from byrote.lab.train import SMALL, TrainingPlan, encode_all, train_model, train_tokenizer
from byrote.models.base import TreeModel
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.shared_prefix import SharedPrefixScorer
from byrote.progress import Progress, SilentProgress
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Section, of_manifests
from byrote.report.words import listed
from byrote.stats.intervals import undefined
from byrote.stats.prior_mean import PriorSums
from byrote.store.columns import Column, Schema
from byrote.store.read import read_finished
from byrote.store.resume import RunSession
from byrote.store.tables import Row
from byrote.types import Interval

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
    near_duplicate_share: float = 0.2
    vocabulary_size: int = 768
    repetitions: int = 1
    """Whole designs trained, each with its own seed of weights and order."""
    reference_passages: int = 200
    """Passages in no stream, from which prefixes are drawn to estimate P(s)."""
    seed: int = 0

    @property
    def background(self) -> int:
        """Documents beside the copies and near-duplicates of all targets, which are as many in every rotation."""
        return self.sequences - sum(map(sum, self.levels)) * (self.targets // len(self.levels))


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
    grid = itertools.product(range(plan.repetitions), range(len(plan.levels)), (0, 1))
    return [ModelSpec(*place) for place in grid]


@lru_cache(maxsize=2)
def write_material(plan: CounterfactualPlan) -> Material:
    """Background cut to the length of a target, targets, and reference passages: all different, the same for a plan."""
    length = 2 * plan.half_tokens
    needed = plan.background + plan.targets + plan.reference_passages
    # A token has at most a word; passages come out longer than they must be and are cut.
    passages = texts.write_passages(plan.seed, 2 * needed, least_words=length)
    tokenizer = train_tokenizer(passages[: plan.background], vocabulary_size=plan.vocabulary_size)
    # Different passages may begin alike; once cut, every sequence must still be a different one.
    cut = list(dict.fromkeys(tuple(ids[:length]) for ids in encode_all(tokenizer, passages)))
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


def near_duplicate(
    original: Sequence[int], donor: Sequence[int], *, share: float, generator: random.Random
) -> list[int]:
    """`original` with exactly `round(share · length)` positions kept and every other position different.

    The other tokens are a run of `donor` from a random place, so that they read like ordinary text; where the run
    happens to agree with the original it moves on to the next token.
    """
    kept = set(generator.sample(range(len(original)), round(share * len(original))))
    place = generator.randrange(len(donor))
    duplicate: list[int] = []
    for position, token in enumerate(original):
        if position in kept:
            duplicate.append(token)
            continue
        while donor[place % len(donor)] == token:
            place += 1
        duplicate.append(donor[place % len(donor)])
        place += 1
    return duplicate


_LARGER = TrainingPlan(
    layers=4, width=192, heads=6, feed_forward_width=512, context=256, rows_per_step=4, learning_rate=2e-3
)

QUICK = CounterfactualPlan(
    replace(SMALL, width=128, feed_forward_width=384, learning_rate=3e-3), targets=14, sequences=2000, half_tokens=20
)
FULL = CounterfactualPlan(_LARGER, targets=28, sequences=5000, half_tokens=50, repetitions=5, vocabulary_size=2048)
TEST = CounterfactualPlan(
    SMALL,
    levels=((0, 90), (30, 45), (60, 0)),
    targets=9,
    sequences=800,
    half_tokens=8,
    vocabulary_size=512,
    reference_passages=40,
)
PRESETS = {"quick": QUICK, "full": FULL, "test": TEST}


Scores = list[dict[str, float]]
"""log_p and log_prior of one model: an entry a target."""
SCORE_COLUMNS: Schema = tuple(Column(name, "float64") for name in ("log_p", "log_prior"))
SCORES: Schema = (
    *(Column(name, "list[float64]", is_required=True) for name in ("log_p_with", "log_p_without", "log_priors")),
    *(Column(name, "float64", is_required=True) for name in ("counterfactual", "log_ratio")),
)
CELL_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    *(Column(name, "int32", is_required=True) for name in ("target", "copies", "near_duplicates")),
    *SCORES,
)
RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's r; NaN where it is undefined."""

    value: float
    by_target: Interval
    """Percentile bootstrap, whole targets resampled."""
    cells: int
    targets: int


def correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's r; NaN when a side does not vary or fewer than two points are given."""
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if first.size < 2:
        return math.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(first, second)[0, 1])


def correlate(
    x: ArrayLike, y: ArrayLike, targets: ArrayLike, *, generator: np.random.Generator, resamples: int = RESAMPLES
) -> Correlation:
    """Correlation over cells with its 95 % interval; cells with equal `targets` are resampled together."""
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    groups = [np.flatnonzero(np.asarray(targets) == name) for name in np.unique(targets)]
    r = correlation(first, second)
    if math.isnan(r):
        by_target = undefined("the cells do not vary")
    elif len(groups) < 2:
        by_target = undefined("one target cannot be resampled")
    else:
        drawn = []
        for _ in range(resamples):
            cells = np.concatenate([groups[pick] for pick in generator.integers(0, len(groups), len(groups))])
            drawn.append(correlation(first[cells], second[cells]))
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        by_target = Interval(float(low), float(high))
    return Correlation(r, by_target, first.size, len(groups))


@dataclass(frozen=True, slots=True)
class CounterfactualResult:
    """A finished study: the cells, the agreement, and the part of it that is not there by construction."""

    cells: Sequence[Row]
    """CELL_COLUMNS of every target at every level; log-probabilities of its suffix after its prefix, one per model."""
    agreement: Correlation
    """log-ratio against counterfactual score. Both hold log P(s|p) of the models with the copies."""
    prior_against_baseline: Correlation
    """log v̂ against log P(s|p) without the copies: no term in common."""
    level_correlation: float
    """Pearson's r over the means of the levels, as published: noise of single targets averaged out."""

    @classmethod
    def of(cls, cells: Sequence[Row], *, seed: int) -> "CounterfactualResult":
        """The correlations; the same cells and seed give the same intervals."""
        frame, levels = pl.DataFrame(cells), pl.DataFrame(level_means(cells))
        generator = np.random.default_rng([seed, 11])
        agreement = correlate(frame["counterfactual"], frame["log_ratio"], frame["target"], generator=generator)
        without, priors = frame["log_p_without"].list.mean(), frame["log_priors"].list.mean()
        baseline = correlate(without, priors, frame["target"], generator=generator)
        return cls(cells, agreement, baseline, correlation(levels["counterfactual"], levels["log_ratio"]))

    @classmethod
    def stored(
        cls,
        cells: Sequence[Row],
        session: RunSession,
        plan: Any,
        *,
        models: int,
        device: str,
        command_line: Sequence[str],
    ) -> "CounterfactualResult":
        """The correlations, after which the run folder is complete; `plan` is the dataclass of the design."""
        result = cls.of(cells, seed=plan.seed)
        totals = {name: value for name, value in asdict(result).items() if name != "cells"}
        manifest = {
            "config": asdict(plan),
            "model": {"name": f"{models} models trained by the lab"},
            "device": {"name": device},
            "seed": plan.seed,
            "command_line": command_line,
            "totals": totals | {"levels": level_means(cells)},
        }
        session.complete_with(cells, manifest)
        return result


def run_counterfactual(
    plan: CounterfactualPlan,
    out: Path,
    *,
    processes: int | None = None,
    progress: Progress | None = None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> CounterfactualResult:
    """Train, score, correlate; afterwards `out` is a finished run folder. What is finished is not done again."""
    with RunSession.open(
        out, kind="counterfactual", identity={"plan": asdict(plan)}, schema=CELL_COLUMNS, fresh=fresh
    ) as session:
        if session.is_complete:
            return read_counterfactual(out)
        scores = measure_models(plan, session, processes, progress or SilentProgress())
        return CounterfactualResult.stored(
            _cells(plan, scores), session, plan, models=len(scores), device="cpu", command_line=command_line
        )


def read_counterfactual(path: Path) -> CounterfactualResult:
    """A finished study; a RunError when it is something else, unfinished, or not as it was written."""
    run, manifest = read_finished(path, "counterfactual")
    return CounterfactualResult.of(run.results.to_dicts(), seed=manifest["seed"])


def measure_models(
    plan: CounterfactualPlan, session: RunSession, processes: int | None, progress: Progress
) -> dict[ModelSpec, Scores]:
    """The scores of every model, those already on the disk read back."""
    specs = models_of(plan)
    stored = {spec: session.read_block(spec.name) for spec in specs}
    scores: dict[ModelSpec, Scores] = {spec: rows for spec, rows in stored.items() if rows is not None}
    missing = [spec for spec in specs if spec not in scores]
    progress.start(len(specs), len(scores))
    at_once = min(processes or os.cpu_count() or 1, max(1, len(missing)))
    for spec, rows in _measure_all(plan, missing, at_once):
        session.write_block(spec.name, rows, SCORE_COLUMNS)
        scores[spec] = rows
        progress.advance(1)
    return {spec: scores[spec] for spec in specs}


def _measure_all(
    plan: CounterfactualPlan, specs: Sequence[ModelSpec], processes: int
) -> Iterator[tuple[ModelSpec, Scores]]:
    if processes == 1:
        for spec in specs:
            yield spec, measure_model(plan, spec)
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        futures = {pool.submit(measure_model, plan, spec): spec for spec in specs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise RunError(
                "a process that trained models was killed from outside, perhaps for want of memory; run the same "
                "command again, with fewer --processes: finished models are kept."
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def measure_model(plan: CounterfactualPlan, spec: ModelSpec) -> Scores:
    """Train one model: P(s|p) and v̂_s of every target."""
    material, half = write_material(plan), plan.half_tokens
    training = replace(plan.training, seed=plan.training.seed + 1 + models_of(plan).index(spec))
    trained = train_model(training, stream_of(plan, spec), material.tokenizer).model
    model = HuggingFaceModel(trained, material.tokenizer)
    pairs = [(target[:half], target[half:]) for target in material.targets]
    return pair_scores(model, pairs, [passage[:half] for passage in material.reference])


def pair_scores(
    model: TreeModel, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], reference: Sequence[Sequence[int]]
) -> Scores:
    """log P(s|p) of every (prefix, suffix) and log v̂_s over the `reference` prefixes; all prefixes are equally long."""
    scorer = SharedPrefixScorer(model, [suffix for _, suffix in pairs])
    own = scorer.score([prefix for prefix, _ in pairs]).diagonal()
    after_others = scorer.score(reference).numpy()
    estimates = PriorSums.of(after_others, np.ones((len(after_others), 1), dtype=np.int64)).estimates()
    return [
        {"log_p": log_p, "log_prior": estimate.log_mean}
        for log_p, estimate in zip(own.tolist(), estimates, strict=True)
    ]


def _cells(plan: CounterfactualPlan, scores: Mapping[ModelSpec, Scores]) -> list[Row]:
    cells: list[Row] = []
    for target, level in itertools.product(range(plan.targets), range(len(plan.levels))):
        copies, near_duplicates = plan.levels[level]
        cells.append(
            {
                "window_id": f"target-{target:04d}-copies-{copies:04d}-{near_duplicates:04d}",
                "target": target,
                "copies": copies,
                "near_duplicates": near_duplicates,
            }
            | compared(
                (spec.has_copies(target), own[target])
                for spec, own in scores.items()
                if spec.level(target, len(plan.levels)) == level
            )
        )
    return cells


def compared(scores: Iterable[tuple[bool, Mapping[str, float]]]) -> dict[str, Any]:
    """SCORES of one target from those of every model, and whether it was trained with the target."""
    groups: dict[bool, list[Mapping[str, float]]] = {True: [], False: []}
    for has_target, own in scores:
        groups[has_target].append(own)
    log_p_with, log_p_without = ([own["log_p"] for own in groups[has]] for has in (True, False))
    log_priors = [own["log_prior"] for own in groups[True]]
    return {
        "log_p_with": log_p_with,
        "log_p_without": log_p_without,
        "log_priors": log_priors,
        "counterfactual": fmean(log_p_with) - fmean(log_p_without),
        # The mean of log P(s|p)/v̂_s over the models trained with the target: it needs no other model.
        "log_ratio": fmean(log_p_with) - fmean(log_priors),
    }


def level_columns(cells: Sequence[Row]) -> list[str]:
    """What makes a level: copies and near-duplicates in invented text, how often a name stands in real text."""
    return [name for name in ("copies", "near_duplicates", "occurrences_from") if name in cells[0]]


def level_means(cells: Sequence[Row]) -> list[dict[str, float]]:
    """Means over targets at every level, as the published figure shows them."""
    levels = pl.DataFrame(cells).sort(level_columns(cells)).group_by(level_columns(cells), maintain_order=True)
    scores, per_model = pl.col("counterfactual", "log_ratio"), pl.col("log_p_with", "log_p_without")
    log_prior = pl.col("log_priors").list.mean().mean().alias("log_prior")
    return levels.agg(scores.mean(), per_model.list.mean().mean(), log_prior).to_dicts()


LEVEL_COLUMNS = {
    "copies": ("copies", ".0f"),
    "near_duplicates": ("near-duplicates", ".0f"),
    "occurrences_from": ("occurrences from", ".0f"),
    "counterfactual": ("counterfactual", ".2f"),
    "log_ratio": ("log ratio", ".2f"),
    "log_p_with": ("log P with", ".2f"),
    "log_p_without": ("without", ".2f"),
}
"""Mean of a level → heading and format."""


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    studies = [(path.name, read_counterfactual(path)) for path in paths]
    is_alone = len(studies) == 1
    values = [_words(study.agreement, digits=2) + ("" if is_alone else f" in {name}") for name, study in studies]
    first = studies[0][1]
    return Content(
        kind="counterfactual",
        label=listed([name for name, _ in studies]),
        headline="Correlation of the cheap ratio log P(s|p)/v̂ with counterfactual memorization: "
        f"{listed(values, most=len(values))}.",
        **of_manifests([(path.name, read_finished(path, "counterfactual")[1]) for path in paths]),
        facts=(
            ("Targets", str(first.agreement.targets)),
            ("Cells (target and level)", str(first.agreement.cells)),
            ("Models with the target, a cell", str(len(first.cells[0]["log_p_with"]))),
        ),
        tables=tuple(_levels(name, study, file="levels" if is_alone else f"levels-{name}") for name, study in studies),
        sentences=tuple(sentence for name, study in studies for sentence in _sentences(name, study)),
        draw=lambda: [
            _drawing(name, study, file="counterfactual" if is_alone else f"counterfactual-{number}")
            for number, (name, study) in enumerate(studies, 1)
        ],
    )


def _words(found: Correlation, *, digits: int = 3) -> str:
    """`0.912 (95 % interval 0.880 to 0.940)`, or why there is none."""
    low, high, _, reason = found.by_target
    ends = f"95 % interval {low:.{digits}f} to {high:.{digits}f}"
    return f"{found.value:.{digits}f} ({f'no interval: {reason}' if reason else ends})"


def _levels(name: str, study: CounterfactualResult, *, file: str) -> Cells:
    means = level_means(study.cells)
    columns = {key: words for key, words in LEVEL_COLUMNS.items() if key in means[0]}
    rows = tuple(tuple(f"{row[key]:{format_}}" for key, (_, format_) in columns.items()) for row in means)
    return Cells(file, f"Means of every level, {name}", tuple(head for head, _ in columns.values()), rows)


def _sentences(name: str, study: CounterfactualResult) -> Iterable[str]:
    yield (
        f"{name}: correlation of log ratio and counterfactual score: {_words(study.agreement)}, targets resampled; "
        f"over level means {study.level_correlation:.3f}."
    )
    yield (
        f"{name}: both of these hold log P(s|p) of the models with the target. Without a term in common, log v̂ against "
        f"log P(s|p) without the target: {_words(study.prior_against_baseline)}."
    )


def _drawing(name: str, study: CounterfactualResult, *, file: str) -> Drawing:
    """Counterfactual score against log-ratio, in nats; darker points have more exact copies."""
    from byrote.report.figures.style import HEAT, INK, house_style, new_figure  # matplotlib: not for the terminal

    figure, axes = new_figure(5.4, 3.8)
    keys = level_columns(study.cells)
    levels = pl.DataFrame(study.cells).sort(keys).partition_by(keys)
    with house_style():
        for number, cells in enumerate(levels):
            x, y = cells["counterfactual"].to_numpy(), cells["log_ratio"].to_numpy()
            colour = HEAT(0.4 + 0.6 * number / max(1, len(levels) - 1))
            label = ", ".join(f"{LEVEL_COLUMNS[key][0]} {cells[key][0]}" for key in keys)
            look: dict[str, Any] = {"edgecolors": INK, "linewidths": 0.9, "zorder": 3, "label": label}
            axes.scatter(x, y, s=16, color=colour, alpha=0.8, linewidths=0)
            axes.scatter([x.mean()], [y.mean()], s=60, color=colour, **look)
        axes.grid(visible=True, axis="both")
        low, high = study.agreement.by_target[:2]
        title = f"r = {study.agreement.value:.2f} (95 % interval {low:.2f} to {high:.2f}, by target)"
        axes.set(xlabel="counterfactual memorization (nats)", ylabel="log P(s|p)/v̂ (nats)", title=title)
        axes.legend(fontsize=7, loc="best")
    caption = f"{name}: every target at every level, later levels in stronger colours; large points are means."
    return Drawing(file, caption, figure)


SECTION = Section(read)
