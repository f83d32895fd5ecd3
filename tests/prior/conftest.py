"""A tiny model with a text, a reference corpus and generic texts, and the model loaded once."""

from pathlib import Path

import pytest

from byrote.prior import run as prior_run
from tests.models.tiny import tiny_model, tiny_tokenizer
from tests.prior.priors import REFERENCE, TEXT, loaded


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prior")
    tiny_model("llama", vocab_size=258).save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    (folder / "reference.txt").write_text(REFERENCE, encoding="utf-8")
    (folder / "generic.txt").write_text("once upon a time\nthank you very much\nhow do you do\n", encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior_run, "open_model", loaded)
