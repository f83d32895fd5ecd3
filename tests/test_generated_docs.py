"""Generated documents are what docs/generate.py makes now, and the code says all they need."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import byrote

FOLDER = Path(__file__).parent.parent / "docs"


def generator() -> ModuleType:
    """docs/generate.py, which is no package."""
    spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = generator()


@pytest.mark.parametrize("path", GENERATE.DOCUMENTS, ids=lambda path: path.name)
def test_a_generated_document_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATE.DOCUMENTS[path](), "run python docs/generate.py"


def test_the_interface_documents_every_public_name() -> None:
    text = (FOLDER / "api.md").read_text(encoding="utf-8")
    assert [name for name in byrote.__all__ if f"### `byrote.{name}`\n" not in text] == []


def test_no_words_are_kept_for_columns_that_are_gone() -> None:
    shown = (FOLDER / "columns.md").read_text(encoding="utf-8")
    for room in ("scan", "prior", "store"):
        for table in GENERATE.words_of(room).values():
            assert [name for name, words in table.items() if words not in shown] == [], room


def test_a_column_without_words_is_an_error() -> None:
    with pytest.raises(AssertionError, match="what the column tomorrow holds"):
        GENERATE.meaning("tomorrow", {"today": "…"})
    assert GENERATE.meaning("log_p[k=10]", {"log_p[[]*": "a policy"}) == "a policy"
