"""`byrote audit` as a user runs it, and every bad input as one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from byrote.cli.commands import audit
from byrote.errors import ByroteError, ConfigError, EndpointError, TextError
from byrote.longform.matching import MergePass
from byrote.longform.options import AuditCommand, AuditOptions, GenerationSettings, Style, Sweep
from byrote.options import gather
from tests.longform.audits import KEY, invented_book
from tests.loopback.brains import KnowsByHeart
from tests.loopback.server import LoopbackServer

BOOK = invented_book(300)
SMALL = {"prefix_words": 20, "target_words": 20, "first_max_tokens": 50, "settings": {"max_tokens": 60}}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "book.txt").write_text(BOOK, encoding="utf-8")
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    (tmp_path / "short.txt").write_text("too short for a seed", encoding="utf-8")
    (tmp_path / "small.yaml").write_text(json.dumps(SMALL), encoding="utf-8")
    return tmp_path


def invoke(files: Path, url: str, **changes: str | None) -> Result:
    options: dict[str, str | None] = {
        "endpoint": url,
        "model": "loopback-model",
        "book": str(files / "book.txt"),
        "out": str(files / "run"),
        "config": str(files / "small.yaml"),
        "key_variable": "OPENAI_API_KEY",
    }
    arguments = []
    for name, value in (options | changes).items():
        if value is not None:
            arguments += [f"--{name.replace('_', '-')}", value]
    app = typer.Typer()
    app.command()(audit)
    return CliRunner().invoke(app, arguments)


def test_an_audit_from_the_command_line(files: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        prices = {"price_input": "3", "price_output": "15", "max_cost": "1"}
        result = invoke(files, server.url, **prices)
    assert result.exit_code == 0, result.output
    output = " ".join(result.output.replace("·", "").split())
    assert "gave back 93.3% of book.txt" in output
    assert "280 of the book's 300 words" in output
    assert "the model said that the book had ended" in output
    assert "cost 0.0" in output
    manifest = json.loads((files / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["model"] == {"name": "loopback-model", "endpoint": server.url}
    assert manifest["nv_recall"] == {"0": pytest.approx(280 / 300)}
    assert manifest["config"]["prefix_words"] == 20
    assert [path.name for path in (files / "run" / "generations").iterdir()] == ["trial-000-section-000.txt"]
    assert {path.name for path in (files / "run" / "report").iterdir()} == {"index.html", "exhibit.zip", "figures"}


def test_a_control_from_the_command_line(files: Path) -> None:
    with LoopbackServer(KnowsByHeart(invented_book(seed=9))) as server:
        result = invoke(files, server.url)
    assert "phase 1 failed" in result.output
    assert len(server.log.bodies) == 1


UNREACHABLE = "http://127.0.0.1:9/v1"  # the discard port: nothing listens


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({}, EndpointError, "127.0.0.1:9/v1 cannot be reached. Nothing answered is lost; check --endpoint."),
        ({"key_variable": "NO_SUCH_KEY"}, ConfigError, "No key: the environment variable NO_SUCH_KEY is not set"),
        ({"book": "{files}/empty.txt"}, TextError, "empty.txt holds no text"),
        ({"book": "{files}/short.txt"}, TextError, "The book has 5 words from character 0 on; the seed needs 40"),
        ({"max_cost": "5"}, ConfigError, "A ceiling of 5.0 needs prices"),
        ({"endpoint": "localhost:80"}, ConfigError, "--endpoint 'localhost:80' is not a URL"),
        ({"endpoint": "http://user:secret@127.0.0.1:9"}, ConfigError, "--endpoint holds credentials"),
        (
            {"token_parameter": "tokens"},
            ConfigError,
            "token-parameter is 'tokens'; choose max_tokens, max_completion_tokens",
        ),
        ({"best_of_n": "3"}, ConfigError, "best-of-n is 3 without an authorisation"),
        ({"style": "prose"}, ConfigError, "style is 'prose'; choose chat, text"),
        ({"attempts": "0"}, ConfigError, "attempts is 0; it must be at least 1"),
        ({"config": "{files}/nowhere.yaml"}, ConfigError, "nowhere.yaml cannot be read"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_journal(
    files: Path, changes: dict[str, str], error: type[ByroteError], message: str
) -> None:
    changes = {name: value.replace("{files}", str(files)) for name, value in changes.items()}
    result = invoke(files, UNREACHABLE, **changes)
    assert isinstance(result.exception, error), result.exception
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert "secret" not in str(result.exception)
    if changes:
        assert not (files / "run").exists(), "nothing is written for input that cannot work"


def read_options(path: Path | None, given: dict[str, Any]) -> AuditOptions:
    who = {"model": "m", "book": "b.txt", "out": "o"}
    _, options = gather((AuditCommand, AuditOptions), who | given, path)
    assert isinstance(options, AuditOptions)
    return options


def test_the_file_gives_options_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "audit.yaml"
    path.write_text(
        """
        prefix_words: 30
        max_turns: 7
        style: text
        chapters: true
        stop_phrases: [FINIS]
        passes: [[2, 1, 20], [10, 3, 50]]
        settings: {max_tokens: 100, temperature: 1}
        sweep: {max_tokens: [100, 200], presence_penalty: [0.1]}
        """,
        encoding="utf-8",
    )
    options = read_options(path, {"max_turns": "9", "seed": None, "temperature": "0.5", "max_tokens": None})
    assert options == AuditOptions(
        prefix_words=30,
        max_turns=9,
        style=Style.TEXT,
        chapters=True,
        stop_phrases=("FINIS",),
        passes=(MergePass(2, 1, 20), MergePass(10, 3, 50)),
        settings=GenerationSettings(max_tokens=100, temperature=0.5),
        sweep=Sweep(max_tokens=(100, 200), presence_penalty=(0.1,)),
    )
    assert read_options(None, {}) == AuditOptions()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prefix_wrods: 3", "unknown option prefix_wrods. Did you mean prefix_words?"),
        ("settings: {tokens: 3}", "settings has the unknown option tokens. Did you mean max_tokens?"),
        ("prefix_words: many", "prefix-words is 'many'; it must be a whole number"),
        ("prefix_words: 2.5", "prefix-words is '2.5'; it must be a whole number"),
        ("similarity: high", "similarity is 'high'; it must be a number"),
        ("chapters: maybe", "chapters is 'maybe'; it must be true or false"),
        ("passes: [[1, 2]]", "passes holds ['1', '2']; it must be 3 values: MAX_GAP,"),
        ("settings: 3", "settings is '3'; it must be a table"),
        ("- a list", "must be a mapping of option names to values"),
        ("{", "is not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "audit.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_options(path, {})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_absent_values_of_a_file_stay_absent(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    content: dict[str, Any] = {"history_turns": None, "settings": None}
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read_options(path, {}) == AuditOptions()
