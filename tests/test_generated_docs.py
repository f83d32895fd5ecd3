"""Generated documents are what docs/generate.py makes now, and the code says all they need."""

import importlib.util
import re
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


PAPERS = {"near-verbatim": (26, 15), "probabilistic": (17, 0), "prior-aware": (6, 2), "production": (14, 11)}
"""How many figures and tables each has."""


@pytest.mark.parametrize("paper", PAPERS)
def test_the_replication_page_has_a_row_for_every_figure_and_table_of_a_paper(paper: str) -> None:
    page = (FOLDER / "replication.md").read_text(encoding="utf-8")
    (rows,) = re.findall(rf"^## {paper} paper\n(.*?)^## ", page, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    places = [line.split(" | ")[0].strip("| ") for line in rows.splitlines() if line.startswith("| ")][2:]
    found: dict[str, set[int]] = {"Fig": set(), "Table": set()}
    for place in places:
        for kind, numbers in re.findall(r"(Fig|Table)s?\.? ([0-9a-z–, ]+(?:and [0-9a-z]+)?)", place):
            for first, last in re.findall(r"(\d+)[a-z]?(?:–(\d+))?", numbers):
                found[kind] |= set(range(int(first), int(last or first) + 1))
    figures, tables = PAPERS[paper]
    assert found == {"Fig": set(range(1, figures + 1)), "Table": set(range(1, tables + 1))}


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
