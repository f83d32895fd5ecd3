"""Models of the user's own go through the whole scan: bounds hold the truth, runs are written, mistakes are named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from transformers import LlamaConfig, LlamaForCausalLM

import byrote as package
from byrote.errors import ByroteError, ConfigError, ModelError
from byrote.types import Split
from tests.oracle import true_mass
from tests.scan.scans import TinyLab
from tests.table import TableModel

VOCABULARY = 5
OPTIONS: dict[str, Any] = {"top_k": 4, "beam_width": 64, "edit_budget": 2, "screen": "off", "stop_rule": "off"}


class Bare:
    """Nothing but what the contract asks for."""

    vocab_size = VOCABULARY

    def __init__(self, seed: int) -> None:
        self.table = TableModel.random(seed, vocab_size=VOCABULARY)

    def next_logits(self, histories: Sequence[Sequence[int]]) -> np.ndarray:
        logits: np.ndarray = self.table.next_logits(histories).numpy()
        return logits


def windows_of(seed: int, count: int = 4) -> list[package.Window]:
    ids = np.random.default_rng(seed).integers(VOCABULARY, size=(count, 8)).tolist()
    return [
        package.Window(f"a@{row}", "a", Split.TARGET, row, row + 3, row + 8, tuple(tokens[:3]), tuple(tokens[3:]))
        for row, tokens in enumerate(ids)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_the_enumerated_mass_of_a_bare_model(seed: int) -> None:
    """64 beams are wider than 4 allowed tokens to the power of 5 tokens minus pruning: the bounds meet at the truth."""
    model, windows = Bare(seed), windows_of(seed)
    results = package.scan(model, windows, **OPTIONS)
    for window, row in zip(windows, results, strict=True):
        truth = enumerated(model, window)
        for edits, mass in enumerate(truth):
            assert row["mass_lower"][edits] <= mass + 1e-6
            assert row["mass_upper"][edits] >= mass - 1e-6
        assert row["p_verbatim"] == pytest.approx(truth[0], abs=1e-7)


def enumerated(model: Bare, window: package.Window) -> list[float]:
    """Mass within 0, 1, 2 edits over all continuations."""
    policy = package.Policy(1.0, 4)
    return [
        true_mass(model.table, window.prefix_ids, window.suffix_ids, policy, budget=edits, distance="levenshtein")
        for edits in range(3)
    ]


def test_a_session_of_its_own_changes_no_number() -> None:
    windows = windows_of(1)
    bare, with_session = Bare(1), TableModel.random(1, vocab_size=VOCABULARY)
    for one, other in zip(
        package.scan(bare, windows, **OPTIONS), package.scan(with_session, windows, **OPTIONS), strict=True
    ):
        assert one["mass_lower"] == pytest.approx(other["mass_lower"])
        assert one["token_evals"] == other["token_evals"]


def test_rows_come_one_by_one_and_callbacks_hear_of_them() -> None:
    windows, heard, told = windows_of(2), [], []
    results = package.scan(Bare(2), windows, on_row=heard.append, progress=lambda *done: told.append(done), **OPTIONS)
    streamed = list(package.scan_rows(Bare(2), windows, **OPTIONS))
    assert sorted(row["window_id"] for row in heard) == sorted(row["window_id"] for row in results)
    assert heard == streamed
    assert told == [(done, len(windows)) for done in range(1, len(windows) + 1)]
    package.scan(Bare(2), windows, progress=True, **OPTIONS)


class Words(Bare):
    """Letters are tokens."""

    def __init__(self, seed: int, fingerprint: str | None = None) -> None:
        super().__init__(seed)
        if fingerprint is not None:
            self.fingerprint = fingerprint

    def encode_batch(self, texts: Sequence[str]) -> list[Any]:
        return [([ord(letter) % 5 for letter in text], [(i, i + 1) for i in range(len(text))]) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join("abcde"[token] for token in ids)


CUT: dict[str, Any] = {"prefix_tokens": 4, "suffix_tokens": 5, "stride_chars": 4}


def test_a_model_with_texts_is_saved_as_a_run_that_names_it(tmp_path: Path) -> None:
    text = tmp_path / "book.txt"
    text.write_text("abcdeabcdeedcbaabcde", encoding="utf-8")
    model = Words(0)
    windows = package.read_windows(model, text, **CUT, **OPTIONS)
    saved = package.scan(model, windows).save(tmp_path / "run")
    assert len(pl.read_parquet(saved / "results.parquet")) == len(windows) == 3
    stored = pl.read_parquet(saved / "continuations.parquet")
    assert set("".join(stored["text"])) <= set("abcde")
    again = package.read_windows(Words(0), str(text), **CUT, **OPTIONS)
    assert package.scan(Words(0), again).save(saved) == saved, "the same answers are the same model"
    for other in (Words(1), Words(0, fingerprint="another")):
        read = package.read_windows(other, [text], **CUT, **OPTIONS)
        with pytest.raises(ByroteError, match="model"):
            package.scan(other, read).save(saved)


def test_a_model_without_texts_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("abc" * 50, encoding="utf-8")
    with pytest.raises(ModelError, match="has neither a tokenizer nor encode_batch"):
        package.read_windows(Bare(0), tmp_path / "book.txt", top_k=4)


@pytest.mark.parametrize("given", [None, 3, {"vocab_size": 4}, object()])
def test_what_is_no_model_is_refused(given: object) -> None:
    with pytest.raises(ModelError, match="is no model; give a folder or hub id"):
        package.scan(given, windows_of(0))


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ("book.txt", r"cut it: byrote.read_windows\(model, 'book.txt'\)"),
        (Path("book.txt"), "cut it"),
        (["book.txt"], "what byrote.read_windows gives"),
        (7, "what byrote.read_windows gives"),
        ([], "windows is empty"),
    ],
)
def test_what_are_no_windows_is_refused(windows: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        package.scan(Bare(0), windows)


def test_wrong_options_get_the_sentences_of_the_command() -> None:
    with pytest.raises(ConfigError, match=r"byrote.scan has the unknown option beam_widht. Did you mean beam_width\?"):
        package.scan(Bare(0), windows_of(0), beam_widht=3)
    with pytest.raises(ConfigError, match="beam-width is 0"):
        package.scan(Bare(0), windows_of(0), beam_width=0)
    with pytest.raises(ConfigError, match=r"byrote.read_windows has the unknown option"):
        package.read_windows(Words(0), "book.txt", strides=3)
    with pytest.raises(ConfigError, match="text is missing"):
        package.read_windows(Words(0), top_k=4)


def test_measures_may_be_one_word() -> None:
    results = package.scan(Bare(0), windows_of(0), measures="verbatim", top_k=4)
    assert "mass_lower" not in results.to_polars().columns


def test_a_hugging_face_model_in_memory_works_with_its_tokenizer(lab: TinyLab, tmp_path: Path) -> None:
    loaded = package.load_model(lab.model.path, device="cpu")
    text = next(lab.files.targets.glob("*.txt"))
    small: dict[str, Any] = {"prefix_tokens": 12, "suffix_tokens": 8, "limit": 2, "measures": "verbatim"}
    in_memory = package.load_model(loaded.model, tokenizer=loaded.tokenizer)  # type: ignore[attr-defined]
    rows = [list(package.scan(model, package.read_windows(model, text, **small))) for model in (loaded, in_memory)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2


def test_a_hugging_face_model_without_its_tokenizer_is_refused() -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16, **sizes))
    with pytest.raises(ModelError, match=r"give both: byrote.load_model\(model, tokenizer=tokenizer\)"):
        package.scan(model, windows_of(0))
