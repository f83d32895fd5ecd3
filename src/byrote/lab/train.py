"""Training from scratch: a small byte-level BPE tokenizer and a small Llama, the same for the same text and plan.

The tokenizer is byte level, so every text survives the round trip. Digits stand alone, so that numbers of equal length
have equally many tokens. One special token `<|endoftext|>` (id 0) is beginning, end and padding; it is not added by
default.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from byrote.progress import Progress, SilentProgress

END_OF_TEXT = "<|endoftext|>"


def train_tokenizer(texts: Iterable[str], *, vocabulary_size: int) -> PreTrainedTokenizerFast:
    """A fast tokenizer with character offsets and at most `vocabulary_size` tokens (fewer when the text is poor)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )


def encode_all(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of every text, no special token added."""
    if not texts:
        return []
    encoded: list[list[int]] = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return encoded


IGNORED_LABEL = -100
"""Marks positions without a target; the value is PyTorch's own default for cross-entropy."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Everything but the text that decides the weights."""

    layers: int
    width: int
    heads: int
    feed_forward_width: int
    context: int
    rows_per_step: int
    learning_rate: float
    """The peak, reached after the warm-up; then half a cosine down to `final_share` of it."""
    warmup_share: float = 0.1
    final_share: float = 0.1
    weight_decay: float = 0.0
    gradient_norm_limit: float = 1.0
    step_limit: int | None = None
    """None: as many steps as the documents give, each read once."""
    threads: int = 1
    """Two gain little on kernels this small, and when other work has the cores every kernel waits for the slower one
    (seen once: 518 s with two threads, 88 s with one, both on a busy machine)."""
    seed: int = 0


SMALL = TrainingPlan(
    layers=2, width=64, heads=4, feed_forward_width=192, context=64, rows_per_step=1, learning_rate=6e-3
)


class PackedRows(NamedTuple):
    """`input_ids` and `labels`, both [rows, context]: the label of a position is the token that follows it."""

    input_ids: Tensor
    labels: Tensor


class TrainedModel(NamedTuple):
    model: LlamaForCausalLM
    losses: list[float]
    """Of every step: the mean negative log-likelihood per token, in nats."""


def train_model(
    plan: TrainingPlan,
    documents: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerFast,
    *,
    progress: Progress | None = None,
) -> TrainedModel:
    """Train from scratch; `progress` has the loss of the last step as a remark."""
    rows = pack(documents, end_of_text=int(tokenizer.eos_token_id), context=plan.context)
    with _repeatable(plan):
        model = new_model(plan, tokenizer)
        return TrainedModel(model, _fit(model, plan, rows, progress=progress or SilentProgress()))


def train(
    plan: TrainingPlan,
    documents: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerFast,
    *,
    folder: Path,
    progress: Progress | None = None,
) -> Path:
    """Train from scratch and save a Hugging Face folder (float32 safetensors and tokenizer) with `training.json`."""
    model, losses = train_model(plan, documents, tokenizer, progress=progress)
    # Saving a small model is instant; a bar on standard error would only break the caller's own display.
    disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    summary = {"plan": asdict(plan), "steps": len(losses), "losses": losses}
    (folder / "training.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    return folder


def new_model(plan: TrainingPlan, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Untrained, with weights drawn from torch's generator."""
    end_of_text = int(tokenizer.eos_token_id)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=plan.width,
        intermediate_size=plan.feed_forward_width,
        num_hidden_layers=plan.layers,
        num_attention_heads=plan.heads,
        max_position_embeddings=plan.context,
        tie_word_embeddings=True,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
        pad_token_id=end_of_text,
    )
    return LlamaForCausalLM(config)


def pack(documents: Sequence[Sequence[int]], *, end_of_text: int, context: int) -> PackedRows:
    """All documents end to end, each after an end-of-text token and a last one at the end, cut into rows.

    Every token of every document is the label of exactly one position; the tail of the last row is padding.
    """
    stream = [token for document in documents for token in (end_of_text, *document)]
    labels = [*stream[1:], end_of_text]
    padding = -len(stream) % context
    stream += [end_of_text] * padding
    labels += [IGNORED_LABEL] * padding
    return PackedRows(torch.tensor(stream).view(-1, context), torch.tensor(labels).view(-1, context))


def learning_rate_share(step: int, *, steps: int, plan: TrainingPlan) -> float:
    """The fraction of the peak learning rate at `step` (counted from 0): linear rise, then half a cosine."""
    warmup_steps = max(1, round(plan.warmup_share * steps))
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    phase = (step - warmup_steps) / max(1, steps - warmup_steps)
    return plan.final_share + (1 - plan.final_share) * (1 + math.cos(math.pi * phase)) / 2


def descend(
    weights: Sequence[Tensor],
    plan: TrainingPlan,
    batches: Sequence[Any],
    loss_of: Callable[[Any], Tensor],
    *,
    clip: Callable[[Sequence[Tensor], float], object],
) -> Iterator[Tensor]:
    """A step of AdamW for every batch, at the plan's learning rate; the loss of each step before it is taken."""
    optimizer = torch.optim.AdamW(weights, lr=plan.learning_rate, betas=(0.9, 0.95), weight_decay=plan.weight_decay)
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate * learning_rate_share(step, steps=len(batches), plan=plan)
        loss = loss_of(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        clip(weights, plan.gradient_norm_limit)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()


def _fit(model: LlamaForCausalLM, plan: TrainingPlan, rows: PackedRows, *, progress: Progress) -> list[float]:
    starts = range(0, len(rows.input_ids), plan.rows_per_step)[: plan.step_limit]
    progress.start(len(starts), 0)

    def loss_of(start: int) -> Tensor:
        input_ids, labels = (each[start : start + plan.rows_per_step] for each in rows)
        logits = model(input_ids=input_ids, use_cache=False).logits  # [rows, context, vocabulary]
        return cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL)

    losses: list[float] = []
    model.train()
    for loss in descend(list(model.parameters()), plan, starts, loss_of, clip=clip_grad_norm_):
        losses.append(loss.item())
        progress.remark(f"loss {losses[-1]:.2f}")
        progress.advance(1)
    model.eval()
    return losses


@contextmanager
def _repeatable(plan: TrainingPlan) -> Iterator[None]:
    """Seed, thread count and deterministic kernels of the plan; the caller's settings are restored afterwards."""
    threads, was_deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        torch.set_num_threads(plan.threads)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(was_deterministic)
