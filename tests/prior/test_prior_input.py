"""Bad input of `byrote prior` gets one sentence."""

import math
from pathlib import Path
from typing import Any

import pytest

from byrote.errors import ByroteError, ConfigError, ModelError, TextError, WindowError
from byrote.models.hf.model import HuggingFaceModel
from byrote.prior import run as prior_run
from tests.models.tiny import tiny_model, tiny_tokenizer
from tests.prior.priors import run


def refused(place: Path, tmp_path: Path, **changes: Any) -> ByroteError:
    with pytest.raises(ByroteError) as caught:
        run(place, tmp_path / "out", **changes)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return caught.value


def test_a_suffix_longer_than_the_context_gets_one_sentence(place: Path, tmp_path: Path) -> None:
    error = refused(place, tmp_path, suffix_tokens=60)
    assert isinstance(error, WindowError)
    assert "tokens, but the model takes at most 64. Shorten --prefix-tokens or the suffixes." in str(error)


def test_an_empty_prior_corpus_gets_one_sentence(place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    assert isinstance(refused(place, tmp_path, prior_text=(str(tmp_path / "empty.txt"),)), TextError)


def test_a_prior_corpus_too_short_for_a_prefix_gets_one_sentence(place: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("short")
    error = refused(place, tmp_path, prior_text=(str(tmp_path / "short.txt"),))
    assert "short.txt has 5 tokens" in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"least_probability": 1.0}, "least-probability is 1.0"),
        ({"least_ratio": -2.0}, "least-ratio is -2.0"),
        ({"least_ratio": math.nan}, "least-ratio is nan"),
        ({"text": ()}, "exactly one of"),
        ({"pairs": "x.jsonl"}, "exactly one of"),
        ({"prior_prefixes": 0}, "prior-prefixes is 0"),
        ({"prior_prefixes": 1, "trials": 1}, "no standard error"),
        ({"prefix_lengths": (0,)}, "prefix-lengths holds 0"),
        ({"span_kinds": ("passport",)}, "passport"),
        ({"text": (), "pairs": "p.jsonl", "spans": "auto"}, "inside texts"),
        ({"top_k": 0}, "top-k is 0"),
        ({"model": ""}, "model is empty"),
    ],
)
def test_options_outside_their_range_get_one_sentence(
    place: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    error = refused(place, tmp_path, **changes)
    assert isinstance(error, ConfigError)
    assert words in str(error)


def test_a_tokenizer_that_cannot_map_characters_gets_one_sentence(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        is_fast = False
        bos_token_id = None

        def __call__(self, *texts: str, **_: Any) -> Any:
            return tiny_tokenizer()(*texts)

        def __getattr__(self, name: str) -> Any:
            return getattr(tiny_tokenizer(), name)

    slow = HuggingFaceModel(tiny_model("llama", vocab_size=258), Slow(), name="slow")
    monkeypatch.setattr(prior_run, "open_model", lambda *_, **__: slow)
    error = refused(place, tmp_path)
    assert isinstance(error, ModelError)
    assert "cannot map tokens to characters" in str(error)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1: not JSON"),
        ('{"prefix": "a"}', "suffix is missing"),
        ('{"prefix": "", "suffix": "b"}', "prefix is missing, empty"),
        ("", "no pair"),
    ],
)
def test_bad_pairs_get_one_sentence(place: Path, tmp_path: Path, line: str, words: str) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(line + "\n")
    assert words in str(refused(place, tmp_path, text=(), pairs=str(pairs)))


def test_generic_texts_too_few_get_one_sentence(place: Path, tmp_path: Path) -> None:
    (tmp_path / "generic.txt").write_text("one line only\n")
    assert "1 generic texts are too few" in str(refused(place, tmp_path, generic=str(tmp_path / "generic.txt")))
