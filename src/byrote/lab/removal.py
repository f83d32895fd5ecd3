"""Counterfactual memorization of names in real texts: the same texts with and without a passage that leads to a name.

A pair is what stands before a name (p) and the name (s), at one place of the texts; the name may stand elsewhere too.
Pairs are drawn evenly over how often their names stand in the texts. Each pair is left out of a random half of the
models: the row of tokens that holds it does not count in their loss, and everything else does.

All models read the same rows in the same order and differ in initial weights and in what is left out, so they are
trained together: one forward for the stacked weights of all of them. On a GPU that costs little more than one model.
"""

import itertools
import math
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from byrote.corpus.pairs import first_token_after
from byrote.corpus.read import Document, read_documents
from byrote.corpus.spans import SpanKind, find_spans
from byrote.errors import ConfigError, TextError
from byrote.lab.counterfactual import SCORES, CounterfactualResult, Scores, compared, pair_scores, read_counterfactual
from byrote.lab.train import SMALL, TrainingPlan, descend, new_model, train_tokenizer
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.tokenizer import Tokenizing
from byrote.progress import Progress, SilentProgress
from byrote.store.columns import Column, Schema
from byrote.store.resume import RunSession
from byrote.store.tables import Row
from byrote.types import Split

Tokens = tuple[int, ...]
PAIR_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    Column("target", "int32", is_required=True),
    Column("suffix_text", "text", is_required=True),
    Column("occurrences", "int32", is_required=True),
    Column("occurrences_from", "int32", is_required=True),
    *SCORES,
)


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """Everything but the texts that decides the weights."""

    training: TrainingPlan
    """`context` is the length of a row; its `seed` and those after it are of the models' initial weights."""
    models: int
    pairs: int
    rows: int
    """Rows of the texts that are trained on, at most."""
    epochs: int
    prefix_tokens: int = 16
    most_suffix_tokens: int = 12
    reference_rows: int = 100
    """Rows that no model reads, from which prefixes are drawn to estimate P(s)."""
    vocabulary_size: int = 1024
    seed: int = 0


_SMALL = replace(SMALL, rows_per_step=8)
TEST = RemovalPlan(_SMALL, models=4, pairs=12, rows=80, epochs=12, reference_rows=20, vocabulary_size=512)
QUICK = RemovalPlan(_SMALL, models=16, pairs=32, rows=192, epochs=24, vocabulary_size=768)
_LARGER = TrainingPlan(
    layers=4, width=256, heads=8, feed_forward_width=768, context=128, rows_per_step=16, learning_rate=2e-3
)
FULL = RemovalPlan(
    _LARGER, models=100, pairs=200, rows=8000, epochs=16, prefix_tokens=50, reference_rows=1000, vocabulary_size=4096,
)  # fmt: skip
PLANS = {"quick": QUICK, "full": FULL, "test": TEST}


class NamePair(NamedTuple):
    """A name at one place of the training rows."""

    row: int
    prefix_ids: Tokens
    suffix_ids: Tokens
    text: str
    occurrences: int
    """How often the name stands in the training rows."""

    @property
    def occurrences_from(self) -> int:
        """The least number of its bucket: 1, 2, 4, 8 …"""
        return 1 << (self.occurrences.bit_length() - 1)


class CorpusPassages(NamedTuple):
    """Rows of real text, all of one length, and the pairs in them: no two in one row."""

    tokenizer: PreTrainedTokenizerFast
    rows: NDArray[np.int64]  # [rows, context]
    reference: tuple[Tokens, ...]
    pairs: tuple[NamePair, ...]


def read_passages(plan: RemovalPlan, documents: Sequence[Document]) -> CorpusPassages:
    """The tokenizer, rows and pairs of a plan, the same for the same texts; a TextError where they have too few."""
    tokenizer = train_tokenizer([document.text for document in documents], vocabulary_size=plan.vocabulary_size)
    tokenizing, context = Tokenizing(tokenizer, "the lab's own"), plan.training.context
    encodings = tokenizing.encode_batch([document.text for document in documents])
    rows = [
        (document.name, start, encoding.ids[start : start + context])
        for document, encoding in zip(documents, encodings, strict=True)
        for start in range(0, len(encoding.ids) - context + 1, context)
    ]
    needed = plan.reference_rows + plan.pairs + plan.training.rows_per_step
    if len(rows) < needed:
        raise TextError(f"the texts have {len(rows)} rows of {context} tokens; give longer ones, of at least {needed}.")
    generator = random.Random(f"lab removal {plan.seed}")
    generator.shuffle(rows)
    reference, kept = rows[: plan.reference_rows], rows[plan.reference_rows :][: plan.rows]
    row_of = {(name, start): row for row, (name, start, _) in enumerate(kept)}
    found, names = list[NamePair](), Counter[str]()
    for document, encoding in zip(documents, encodings, strict=True):
        for span in find_spans(document, [SpanKind.NAME]):
            first = first_token_after(encoding, span.start)
            last = bisect_left(encoding.spans, span.end, key=lambda token: token[0])
            start = first // context * context
            if (row := row_of.get((document.name, start))) is None:
                continue
            name = document.text[span.start : span.end]
            names[name] += 1
            is_whole = last <= start + context and last - first <= plan.most_suffix_tokens
            if is_whole and first - start >= plan.prefix_tokens:
                prefix, suffix = encoding.ids[first - plan.prefix_tokens : first], encoding.ids[first:last]
                found.append(NamePair(row, tuple(prefix), tuple(suffix), name, 0))
    return CorpusPassages(
        tokenizer,
        np.array([ids for *_, ids in kept]),
        tuple(tuple(ids[: plan.prefix_tokens]) for *_, ids in reference),
        _drawn([pair._replace(occurrences=names[pair.text]) for pair in found], plan.pairs, generator),
    )


def _drawn(found: Sequence[NamePair], count: int, generator: random.Random) -> tuple[NamePair, ...]:
    """`count` pairs that stand there once, each of another row, from the buckets of occurrences in turn."""
    copies = Counter((pair.prefix_ids, pair.suffix_ids) for pair in found)
    buckets: dict[int, list[NamePair]] = {}
    for pair in found:
        if copies[pair.prefix_ids, pair.suffix_ids] == 1:
            buckets.setdefault(pair.occurrences_from, []).append(pair)
    for bucket in buckets.values():
        generator.shuffle(bucket)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*(buckets[least] for least in sorted(buckets))))
    by_row: dict[int, NamePair] = {}
    for pair in turns:
        if pair is not None and len(by_row) < count:
            by_row.setdefault(pair.row, pair)
    if len(by_row) < count:
        raise TextError(
            f"{len(by_row)} rows of the texts hold a name with enough text before it, {count} are needed; give longer "
            "texts, with names of people or places in them."
        )
    return tuple(by_row.values())


def removals(plan: RemovalPlan) -> NDArray[np.bool_]:
    """Which model leaves out which pair: a random half of the models each. [models, pairs]"""
    generator = np.random.default_rng([plan.seed, 19])
    is_removed = np.zeros((plan.models, plan.pairs), dtype=np.bool_)
    is_removed[: plan.models // 2] = True
    return generator.permuted(is_removed, axis=0)


def train_together(
    plan: RemovalPlan,
    passages: CorpusPassages,
    counts: NDArray[np.bool_],
    *,
    device: torch.device,
    progress: Progress | None = None,
) -> Iterator[LlamaForCausalLM]:
    """One trained model for each row of `counts` [models, rows], which says what rows are in its loss.

    The same as training them one by one: a row that does not count adds nothing to the gradient.
    """
    training, report = plan.training, progress or SilentProgress()
    with torch.random.fork_rng(devices=[]):
        models = []
        for number in range(len(counts)):
            torch.manual_seed(training.seed + number)
            model = new_model(training, passages.tokenizer).to(device)
            model.set_attn_implementation("eager")  # fused attention has no rule for stacked weights
            models.append(model)
    weights, buffers = stack_module_state(models)
    rows, shares = torch.from_numpy(passages.rows).to(device), torch.from_numpy(counts).float().to(device)
    places = torch.arange(training.context - 1, device=device)[None]
    mask = torch.full((1, 1, places.shape[1], places.shape[1]), -math.inf, device=device).triu(1)

    def loss_of(weights: dict[str, Tensor], buffers: dict[str, Tensor], batch: Tensor, shares: Tensor) -> Tensor:
        inputs = {"input_ids": batch[:, :-1], "attention_mask": mask, "position_ids": places, "use_cache": False}
        logits = functional_call(models[0], (weights, buffers), kwargs=inputs).logits
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
        return (each.view(len(batch), -1).mean(1) * shares).mean()

    losses = vmap(loss_of, in_dims=(0, 0, None, 0))
    generator = np.random.default_rng([plan.seed, 23])
    size = training.rows_per_step
    batches = [
        order[first : first + size]
        for order in (generator.permutation(len(rows)) for _ in range(plan.epochs))
        for first in range(0, len(rows), size)
    ]
    report.start(len(batches), 0)

    def summed(batch: NDArray[np.int64]) -> Tensor:
        loss: Tensor = losses(weights, buffers, rows[batch], shares[:, batch]).sum()
        return loss

    for _ in descend(list(weights.values()), training, batches, summed, clip=_clip_each):
        report.advance(1)
    for number, model in enumerate(models):
        model.load_state_dict({name: weight[number].detach() for name, weight in weights.items()}, strict=False)
        yield model.eval()


def _clip_each(weights: Sequence[Tensor], limit: float) -> None:
    """Clip the norm of each model's gradient by itself; models are the first dimension."""
    present = [weight.grad for weight in weights if weight.grad is not None]
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in present]).norm(dim=0)  # [models]
    share = (limit / (norms + 1e-6)).clamp(max=1.0)
    for gradient in present:
        gradient *= share.view(-1, *[1] * (gradient.ndim - 1))


def run_removal(
    plan: RemovalPlan,
    texts: Sequence[str],
    out: Path,
    *,
    device: str = "cpu",
    progress: Progress | None = None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> CounterfactualResult:
    """Train all models, score every pair, correlate; afterwards `out` is a finished run folder."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no usable GPU here; give --device cpu.")
    documents = [document.held() for document in read_documents(texts, split=Split.TARGET)]
    identity = {"plan": asdict(plan), "texts": [document.content_hash for document in documents]}
    with RunSession.open(out, kind="counterfactual", identity=identity, schema=PAIR_COLUMNS, fresh=fresh) as session:
        if session.is_complete:
            return read_counterfactual(out)
        passages, is_removed = read_passages(plan, documents), removals(plan)
        counts = np.ones((plan.models, len(passages.rows)), dtype=np.bool_)
        counts[:, [pair.row for pair in passages.pairs]] = ~is_removed
        models = train_together(plan, passages, counts, device=torch.device(device), progress=progress)
        pairs = [(pair.prefix_ids, pair.suffix_ids) for pair in passages.pairs]
        scores = [
            pair_scores(HuggingFaceModel(model, passages.tokenizer), pairs, passages.reference) for model in models
        ]
        return CounterfactualResult.stored(
            _rows(passages, is_removed, scores),
            session,
            plan,
            models=plan.models,
            device=device,
            command_line=command_line,
        )


def _rows(passages: CorpusPassages, is_removed: NDArray[np.bool_], scores: Sequence[Scores]) -> list[Row]:
    return [
        {
            "window_id": f"pair-{place:04d}",
            "target": place,
            "suffix_text": pair.text,
            "occurrences": pair.occurrences,
            "occurrences_from": pair.occurrences_from,
        }
        | compared((not removed, own[place]) for removed, own in zip(is_removed[:, place], scores, strict=True))
        for place, pair in enumerate(passages.pairs)
    ]
