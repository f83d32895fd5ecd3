"""Models trained together on real text: the same as one by one; who leaves out what; the study end to end."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaForCausalLM
from typer.testing import CliRunner

from byrote.cli.main import lab_app
from byrote.corpus.read import Document
from byrote.errors import ConfigError, TextError
from byrote.lab.counterfactual import read_counterfactual
from byrote.lab.removal import (
    FULL,
    TEST,
    CorpusPassages,
    RemovalPlan,
    read_passages,
    removals,
    run_removal,
    train_together,
)
from byrote.lab.texts import write_passages, write_records
from byrote.lab.train import learning_rate_share, new_model
from byrote.store.read import read_run
from byrote.types import Split

MINIATURE = replace(
    TEST,
    models=2,
    pairs=4,
    rows=24,
    epochs=2,
    training=replace(TEST.training, layers=1, width=16, heads=2, feed_forward_width=16, rows_per_step=4),
)


def lines(count: int) -> str:
    """Invented prose with records of people between: some names stand once, others often."""
    records = write_records(0, count // 4)
    prose = write_passages(0, count, least_words=40)
    return "\n".join(text for group in zip(prose, records * 4, strict=False) for text in group)


@pytest.fixture(scope="module")
def document() -> Document:
    return Document.from_text("lines.txt", lines(120), split=Split.TARGET)


@pytest.fixture(scope="module")
def passages(document: Document) -> CorpusPassages:
    return read_passages(MINIATURE, [document])


def test_every_pair_is_a_name_after_its_prefix_in_a_row_of_its_own(document: Document) -> None:
    found = read_passages(TEST, [document])
    assert len(found.pairs) == TEST.pairs
    assert len({pair.row for pair in found.pairs}) == TEST.pairs
    rows = found.rows.tolist()
    assert not set(map(tuple, rows)) & {tuple(row) for row in found.reference}
    for pair in found.pairs:
        whole = [*pair.prefix_ids, *pair.suffix_ids]
        row = rows[pair.row]
        assert any(row[start : start + len(whole)] == whole for start in range(len(row)))
        assert pair.text in found.tokenizer.decode(pair.suffix_ids)
        assert len(pair.prefix_ids) == TEST.prefix_tokens
        held = sum(found.tokenizer.decode(ids).count(pair.text) for ids in rows)
        # A name cut by the end of a row stands in neither part of it.
        assert 1 <= held <= pair.occurrences + len(rows)
    assert len({pair.occurrences_from for pair in found.pairs}) > 1


@given(models=st.integers(2, 20), pairs=st.integers(1, 20), seed=st.integers(0, 5))
def test_every_pair_is_left_out_of_half_of_the_models(models: int, pairs: int, seed: int) -> None:
    is_removed = removals(replace(TEST, models=models, pairs=pairs, seed=seed))
    assert is_removed.sum(axis=0).tolist() == [models // 2] * pairs


def one_by_one(plan: RemovalPlan, passages: CorpusPassages, number: int, counts: np.ndarray) -> LlamaForCausalLM:
    """The obvious way: a model of its own, whose batches hold only the rows that count."""
    training = plan.training
    torch.manual_seed(training.seed + number)
    model = new_model(training, passages.tokenizer)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=training.learning_rate, betas=(0.9, 0.95), weight_decay=training.weight_decay
    )
    generator = np.random.default_rng([plan.seed, 23])
    size, rows = training.rows_per_step, torch.from_numpy(passages.rows)
    orders = [generator.permutation(len(rows)) for _ in range(plan.epochs)]
    batches = [order[first : first + size] for order in orders for first in range(0, len(order), size)]
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate * learning_rate_share(step, steps=len(batches), plan=training)
        held = rows[batch[counts[batch]]]
        if len(held):
            logits = model(input_ids=held[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), held[:, 1:].flatten())
            (loss * len(held) / len(batch)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.gradient_norm_limit)
        optimizer.step()
        optimizer.zero_grad()
    return model


def test_training_together_is_training_one_by_one_without_the_rows_that_are_left_out(passages: CorpusPassages) -> None:
    counts = np.random.default_rng(0).random((3, len(passages.rows))) < 0.7
    together = train_together(MINIATURE, passages, counts, device=torch.device("cpu"))
    for number, model in enumerate(together):
        alone = one_by_one(MINIATURE, passages, number, counts[number])
        for name, weight in alone.state_dict().items():
            assert torch.allclose(model.state_dict()[name], weight, atol=2e-4), name


def test_test_sized_study_finds_what_was_left_out(document: Document, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text(document.text, encoding="utf-8")
    result = run_removal(TEST, [str(tmp_path / "lines.txt")], tmp_path / "out")
    rows = read_run(tmp_path / "out").results
    assert rows.height == TEST.pairs
    for row in rows.iter_rows(named=True):
        assert len(row["log_p_with"]) == len(row["log_p_without"]) == TEST.models // 2
        expected = np.mean(row["log_p_with"]) - np.mean(row["log_p_without"])
        assert row["counterfactual"] == pytest.approx(expected)
        assert row["log_ratio"] == pytest.approx(np.mean(row["log_p_with"]) - np.mean(row["log_priors"]))
    # A name is likelier to models that were trained on its passage; by chance in 1 of 4,000 runs, seeded.
    assert (rows["counterfactual"] > 0).sum() >= 10
    assert result.agreement.targets == TEST.pairs
    assert read_counterfactual(tmp_path / "out").agreement == result.agreement
    again = run_removal(TEST, [str(tmp_path / "lines.txt")], tmp_path / "out")
    assert again == read_counterfactual(tmp_path / "out")


def test_too_little_text_and_too_few_names_are_one_sentence(passages: CorpusPassages, document: Document) -> None:
    with pytest.raises(TextError, match=r"the texts have \d+ rows of 128 tokens; give longer ones"):
        read_passages(FULL, [document])
    nameless = Document.from_text("nameless.txt", document.text.lower(), split=Split.TARGET)
    with pytest.raises(TextError, match=r"0 rows of the texts hold a name .*, 4 are needed"):
        read_passages(MINIATURE, [nameless])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--models", "4"], "--models and --device are for models that are trained together on --text"),
        (["--text", "lines.txt", "--processes", "2"], "--processes is for invented texts"),
        (["--text", "lines.txt", "--device", "tpu"], "device is 'tpu'"),
    ],
)
def test_options_of_the_other_study_are_refused(options: list[str], words: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(lab_app, ["counterfactual", "--out", str(tmp_path / "out"), *options])
    assert isinstance(shown.exception, ConfigError)
    assert words in str(shown.exception)


def test_the_command_trains_on_the_texts_that_are_given(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byrote.cli.lab.PLANS", {"quick": MINIATURE})
    (tmp_path / "lines.txt").write_text(document.text, encoding="utf-8")
    options = ["counterfactual", "--text", str(tmp_path / "lines.txt"), "--models", "4", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(lab_app, options, catch_exceptions=False)
    assert shown.exit_code == 0
    assert "occurrences from" in shown.output
    assert len(read_run(tmp_path / "out").results["log_p_with"][0]) == 2
