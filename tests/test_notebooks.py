"""The notebooks run from first to last cell and show what they promise."""

from pathlib import Path
from typing import Any

import pytest

from tests.scan.scans import make_lab

nbclient = pytest.importorskip("nbclient", reason="nbclient and ipykernel are development dependencies")
pytest.importorskip("ipykernel", reason="nbclient and ipykernel are development dependencies")
nbformat = pytest.importorskip("nbformat", reason="it comes with nbclient")
NOTEBOOKS = Path(__file__).parent.parent / "examples"
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def printed(name: str, tmp_path: Path, factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> str:
    """Everything the cells printed or showed as text; an error in a cell is an error of the test."""
    make_lab(factory)
    base = factory.getbasetemp()
    caches = [each for each in (base / "lab-cache", base.parent / "lab-cache") if each.exists()]
    patch.setenv("BYROTE_CACHE", str(caches[0]))
    patch.setenv("BYROTE_EXAMPLE", "tiny")
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs: list[Any] = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


def test_every_notebook_is_tested_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS.glob("*.ipynb") if f'"{path.stem}"' not in source] == []


def test_notebooks_are_kept_without_outputs() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), path


def test_the_researcher_measures_compares_and_keeps(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed("researcher", tmp_path, tmp_path_factory, monkeypatch)
    assert "<byrote.Windows: " in out
    assert "<byrote.Results: " in out
    assert "manifest: True page: True" in out


def test_the_release_engineer_holds_a_model_that_memorized(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed("release_engineer", tmp_path, tmp_path_factory, monkeypatch)
    assert "HOLD: " in out
    assert "protected windows can be extracted" in out
    assert "the control is missing" not in out
    assert "weights: " in out
