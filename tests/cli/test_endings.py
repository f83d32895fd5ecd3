"""How commands end: one sentence and an exit code, whatever happened; nothing printed acts on the terminal."""

import errno
import io
import os
import re
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from byrote.cli import plan
from byrote.cli.main import ABOUT_A_DEVICE
from byrote.errors import RunError
from byrote.printable import keep_secret
from byrote.progress import SafeConsole
from byrote.store.journal import AnswerFile
from tests.cli.test_bad_input import assert_one_sentence
from tests.scan.scans import Command

HOSTILE = "evil \x1b[31m[bold]red[/bold]\x07 \u202etxt.exe\r\n\x9b2J"
SHOWN = "evil \\x1b[31m[bold]red[/bold]\\x07 \\u202etxt.exe\\r\\n\\x9b2J"


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """`byrote plan` raises what it is given; tracebacks go into a folder of the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def raising(error: BaseException) -> None:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(plan, "_computed", fail)

    return raising


def test_an_unexpected_error_is_one_sentence_with_the_path_of_its_traceback(
    byrote: Command, breaking: object, tmp_path: Path
) -> None:
    breaking(KeyError(f"no such thing {HOSTILE}"))  # type: ignore[operator]
    outcome = byrote("plan")
    assert outcome.code == 70
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("error: unexpected KeyError: ")
    assert "Traceback" not in outcome.err
    (file,) = tmp_path.glob("byrote-*-traceback.txt")
    assert str(file) in outcome.err
    assert file.stat().st_mode & 0o077 == 0, "it may quote texts"
    assert "Traceback (most recent call last)" in file.read_text(encoding="utf-8")


def test_no_key_stands_in_a_sentence_or_a_traceback(byrote: Command, breaking: object, tmp_path: Path) -> None:
    key = "sk-loopback-0123456789"
    keep_secret(key)
    error = KeyError(f"{'x' * 170}{key}")
    error.add_note(f"asked with {key}")
    breaking(error)  # type: ignore[operator]
    outcome = byrote("plan")
    assert outcome.code == 70
    (file,) = tmp_path.glob("byrote-*-traceback.txt")
    assert key[:5] not in outcome.err
    assert key not in file.read_text(encoding="utf-8")
    breaking(RunError(f"The run {key} is foreign."))  # type: ignore[operator]
    assert_one_sentence(byrote("plan"), "The run [key removed] is foreign.")


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), OSError(errno.EIO, "no", "a/run/x")])
def test_a_device_that_fails_is_one_sentence(byrote: Command, breaking: object, error: OSError) -> None:
    breaking(error)  # type: ignore[operator]
    outcome = byrote("plan")
    assert_one_sentence(
        outcome, f"{error.filename or 'a file'} cannot be read or written: {str(error.strerror).lower()}"
    )


@pytest.mark.parametrize("call", ["close", "fsync"])
def test_answers_and_locks_that_cannot_be_closed_are_an_error_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Such an error says errno EIO, which ends a command with a sentence, and no descriptor is left open."""
    answers, original = AnswerFile.open(tmp_path / "answers.jsonl", "run"), os.close
    closed = []

    def fail(descriptor: int) -> None:
        if call == "close":
            original(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def note(descriptor: int) -> None:
        closed.append(descriptor)
        original(descriptor)

    monkeypatch.setattr(os, "close", note)
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="Input/output error") as raised:
        answers.close()
    assert raised.value.errno in ABOUT_A_DEVICE
    assert call == "close" or len(closed) == 1


def test_an_error_whose_traceback_cannot_be_written_is_one_sentence_too(
    byrote: Command, breaking: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(ZeroDivisionError("x"))  # type: ignore[operator]
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    outcome = byrote("plan")
    assert (outcome.code, outcome.err.count("\n")) == (70, 1)
    assert "could not be written (No such file or directory)" in outcome.err


def test_a_hostile_name_in_an_error_is_shown_not_sent(byrote: Command, breaking: object) -> None:
    breaking(RunError(f"The run {HOSTILE} is foreign."))  # type: ignore[operator]
    assert_one_sentence(byrote("plan"), f"The run {SHOWN} is foreign.")


def test_warnings_are_lines_of_their_own_and_harmless(byrote: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object) -> list[Table]:
        warnings.warn(f"slower {HOSTILE}", stacklevel=1)
        return []

    monkeypatch.setattr(plan, "_computed", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        outcome = byrote("plan")
    assert outcome.code == 0
    assert outcome.err.startswith("warning: slower evil \\x1b[31m[bold]red[/bold]")
    assert not re.search("[\x1b\x07\x9b\u202e]", outcome.err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("scan", "--beam-with", 3), "--beam-with"),
        (("scan", "--top-k"), "Option '--top-k' requires an argument; see"),
        (("nothing",), "No such command 'nothing'"),
        (("lab",), "Missing command; see"),
        (("verify", "a", "b"), "unexpected extra argument"),
        (("verify",), "run is missing; name it after the command"),
        (("export", "x", "--format", "xml"), "format is 'xml'; choose csv, jsonl"),
        (("plan", "--mass", HOSTILE), "mass holds 'evil \\x1b[31m"),
    ],
)
def test_wrong_usage_is_one_sentence(byrote: Command, arguments: tuple[object, ...], words: str) -> None:
    assert_one_sentence(byrote(*arguments), words)


def test_a_console_shows_control_characters_in_texts_tables_and_progress() -> None:
    screen = io.StringIO()
    console = SafeConsole(file=screen, force_terminal=True, markup=False, highlight=False, width=200)
    console.print(f"plain {HOSTILE}")
    console.print(Text(HOSTILE, style="bold red"))
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    console.print(table)
    with Progress(TextColumn("{task.description}", markup=False), console=console) as progress:
        progress.add_task(HOSTILE)
    ours = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "\x1b[1;31m" in screen.getvalue(), "styles of ours are kept"
    assert "\x1b[31m" not in screen.getvalue().replace("\x1b[1;31m", "")
    assert not re.search("[\x07\x9b\u202e]", ours)
    assert ours.count("evil \\x1b[31m[bold]red[/bold]") >= 5
    assert "[bold]red[/bold]" in ours


def test_commands_print_on_harmless_consoles_only() -> None:
    for path in Path(plan.__file__).parent.glob("*.py"):
        made = re.findall(r"(?<!Safe)\bConsole\(", path.read_text(encoding="utf-8"))
        assert not made, f"{path.name} makes a console of its own; use make_console"


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    """`byrote plan | head`: nobody reads what is written."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "byrote", "plan"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("command", ["show", "report", "runs", "verify", "mc", "risk"])
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(byrote: Command, command: str) -> None:
    outcome = byrote(command, "9" * 5000)
    assert outcome.code == 2
    assert_one_sentence(outcome)
    assert "unexpected" not in outcome.err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
    ],
    ids=lambda error: f"{type(error).__name__} {error}",
)
def test_want_of_memory_is_one_sentence(byrote: Command, breaking: object, error: Exception) -> None:
    breaking(error)  # type: ignore[operator]
    assert_one_sentence(byrote("plan"), "the memory is used up")


def test_a_tight_address_space_is_refused_before_libraries_are_imported() -> None:
    """Some of them abort, and some never return."""
    limit = 2 << 30
    done = subprocess.run(
        [sys.executable, "-m", "byrote", "plan"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: this process may reserve 2.0 GiB of addresses (ulimit -v)")
    assert done.stderr.count("\n") == 1
