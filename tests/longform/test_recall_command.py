"""`byrote recall` as a user runs it."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from byrote.cli.commands import recall
from byrote.errors import ByroteError, ConfigError, TextError

PASSAGE = " ".join(f"word{n}" for n in range(150))


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(recall)
    return app


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    book, generation = tmp_path / "book.txt", tmp_path / "generation.txt"
    book.write_text(f"Title page. {PASSAGE} Never said at the end.", encoding="utf-8")
    generation.write_text(f"Sure! [bold]{PASSAGE.upper()}", encoding="utf-8")
    return book, generation


def test_numbers_and_blocks_are_shown_and_written(app: typer.Typer, texts: tuple[Path, Path], tmp_path: Path) -> None:
    book, generation = texts
    arguments = ["--book", str(book), "--generation", str(generation)]
    outputs = ["--html", str(tmp_path / "diff.html"), "--json", str(tmp_path / "recall.json")]
    result = CliRunner().invoke(app, arguments + outputs)
    assert result.exit_code == 0, result.output
    assert "149 of 157" in result.output
    record = json.loads((tmp_path / "recall.json").read_text(encoding="utf-8"))
    assert record["nv_recall"] == pytest.approx(149 / 157)
    assert record["longest_block"] == record["matched_words"] == record["blocks"][0]["matched_words"] == 149
    page = (tmp_path / "diff.html").read_text(encoding="utf-8")
    assert "149 words" in page
    assert page.count("WORD149") == 1, "the answer's text is shown as it was written, beside the book's"


def test_thresholds_are_adjustable(app: typer.Typer, texts: tuple[Path, Path], tmp_path: Path) -> None:
    book, generation = texts
    arguments = ["--book", str(book), "--generation", str(generation), "--json", str(tmp_path / "recall.json")]
    CliRunner().invoke(app, [*arguments, "--pass", "2,1,20", "--pass", "10,3,150"])
    assert json.loads((tmp_path / "recall.json").read_text(encoding="utf-8"))["matched_words"] == 0


@pytest.mark.parametrize(
    ("extra", "error", "message"),
    [
        (["--pass", "2,1"], ConfigError, "passes holds '2,1'; it must be 3 values: MAX_GAP,MAX_MISALIGNMENT,MIN_WORDS"),
        (["--pass", "2,-1,20"], ConfigError, "max-misalignment is -1"),
        (["--book", "nowhere.txt"], TextError, "nowhere.txt"),
    ],
)
def test_bad_input_is_one_sentence(
    app: typer.Typer, texts: tuple[Path, Path], extra: list[str], error: type[ByroteError], message: str
) -> None:
    book, generation = texts
    result = CliRunner().invoke(app, ["--book", str(book), "--generation", str(generation), *extra])
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
