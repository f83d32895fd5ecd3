"""The trainer: every token is a label once, the same plan gives the same weights, and the caller's state is kept."""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from byrote.lab.texts import write_passages
from byrote.lab.train import (
    IGNORED_LABEL,
    TrainingPlan,
    encode_all,
    learning_rate_share,
    pack,
    train,
    train_tokenizer,
)
from byrote.progress import Progress

SMALL = TrainingPlan(
    layers=1, width=16, heads=2, feed_forward_width=32, context=32, rows_per_step=4, learning_rate=1e-2, threads=1
)


@cache
def small_tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(write_passages(0, 20, least_words=40), vocabulary_size=300)


@cache
def small_documents() -> list[list[int]]:
    return encode_all(small_tokenizer(), write_passages(0, 6, least_words=40))


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@given(
    documents=st.lists(st.lists(st.integers(1, 9), max_size=20), min_size=1, max_size=8),
    context=st.integers(1, 17),
)
def test_packing_makes_every_token_the_label_of_one_position(documents: list[list[int]], context: int) -> None:
    rows = pack(documents, end_of_text=0, context=context)
    labels = rows.labels.flatten()
    stream = [0] + [token for document in documents for token in (*document, 0)]
    used = len(stream) - 1
    assert rows.input_ids.shape == rows.labels.shape
    assert rows.input_ids.shape[1] == context
    assert rows.input_ids.flatten()[:used].tolist() == stream[:-1]
    assert labels[:used].tolist() == stream[1:]
    assert set(labels[used:].tolist()) <= {IGNORED_LABEL}
    assert len(labels) - used < context


def test_packed_copies_are_counted_as_planned() -> None:
    rows = pack([[1, 2, 3]] * 5 + [[4, 5]] * 2, end_of_text=0, context=4)
    text = "".join(str(token) for token in rows.labels.flatten().tolist() if token != IGNORED_LABEL)
    assert Counter(text.split("0")) == {"123": 5, "45": 2, "": 1}


def test_same_plan_gives_the_same_bytes_and_another_seed_gives_others(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second", "other")]
    other = TrainingPlan(**{**plan_fields(SMALL), "seed": 1})
    for plan, folder in zip((SMALL, SMALL, other), folders, strict=True):
        train(plan, small_documents(), small_tokenizer(), folder=folder)
    assert weights(folders[0]) == weights(folders[1])
    assert weights(folders[0]) != weights(folders[2])


def plan_fields(plan: TrainingPlan) -> dict[str, object]:
    return {name: getattr(plan, name) for name in plan.__slots__}


class Seen(Progress):
    """What training reported."""

    def __init__(self) -> None:
        self.started, self.done, self.remarks = (0, 0), 0, list[str]()

    def start(self, total: int, done: int) -> None:
        self.started = total, done

    def remark(self, words: str) -> None:
        self.remarks.append(words)

    def advance(self, windows: int) -> None:
        self.done += windows


def test_a_trained_folder_loads_and_its_loss_fell(tmp_path: Path) -> None:
    seen = Seen()
    train(SMALL, small_documents() * 8, small_tokenizer(), folder=tmp_path / "model", progress=seen)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.dtype == torch.float32
    assert model.config.model_type == "llama"
    summary = json.loads((tmp_path / "model" / "training.json").read_text())
    assert seen.remarks == [f"loss {loss:.2f}" for loss in summary["losses"]]
    assert seen.started == (summary["steps"], 0)
    assert seen.done == summary["steps"]
    assert summary["losses"][-1] < summary["losses"][0] - 1


def test_step_limit_is_kept_and_the_schedule_fits_it(tmp_path: Path) -> None:
    plan = TrainingPlan(**{**plan_fields(SMALL), "step_limit": 2})
    train(plan, small_documents(), small_tokenizer(), folder=tmp_path)
    summary = json.loads((tmp_path / "training.json").read_text())
    assert summary["steps"] == 2


def test_training_leaves_the_callers_torch_settings_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    train(SMALL, small_documents(), small_tokenizer(), folder=tmp_path)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


@given(steps=st.integers(1, 300))
def test_learning_rate_rises_to_its_peak_once_and_falls_to_the_final_share(steps: int) -> None:
    shares = [learning_rate_share(step, steps=steps, plan=SMALL) for step in range(steps)]
    peak = shares.index(max(shares))
    assert max(shares) == 1
    assert shares[: peak + 1] == sorted(shares[: peak + 1])
    assert shares[peak:] == sorted(shares[peak:], reverse=True)
    assert min(shares[peak:]) >= SMALL.final_share
