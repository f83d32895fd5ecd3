"""show, export, plan and help: what a user reads, on finished and unfinished runs, in a terminal and in a pipe."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.main import get_command

from byrote import __version__
from byrote.cli.main import app, main, normalised
from byrote.store.session import RunSession
from tests.scan.scans import Command, TinyLab, scan_arguments

COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]
DRAWN = re.compile(r"[━╸╺▏▎▍▌▋▊▉█⠋⠙⠹\r\x1b]")
"""Characters of progress bars, spinners, and of moving the cursor."""


@pytest.fixture(scope="module")
def run(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("commands") / "run"
    with pytest.raises(SystemExit) as ended:
        main([*scan_arguments(lab, out, limit=12, windows_per_part=4), "--control", str(lab.files.controls)])
    assert ended.value.code in (0, None)
    return out


@pytest.fixture(scope="module")
def unfinished(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scan that got Ctrl-C when four windows were finished."""
    out = tmp_path_factory.mktemp("unfinished") / "run"
    add = RunSession.add

    def interrupted(session: RunSession, row: Any, continuations: Any) -> None:
        if len(session._pending) == 4:
            raise KeyboardInterrupt
        add(session, row, continuations)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunSession, "add", interrupted)
        with pytest.raises(SystemExit) as ended:
            main([*scan_arguments(lab, out, limit=12), "--control", str(lab.files.controls)])
    assert ended.value.code == 130
    return out


def test_the_contract_names_commands_that_exist() -> None:
    assert {"demo", "scan", "report", "show", "export", "plan", "recall", "audit"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(byrote: Command, command: str) -> None:
    outcome = byrote(command, "--help")
    assert outcome.code == 0
    assert f"byrote {command}" in outcome.out or "Usage:" in outcome.out
    assert outcome.err == ""


def test_help_names_every_command(byrote: Command) -> None:
    outcome = byrote("--help")
    assert outcome.code == 0
    assert all(command in outcome.out for command in COMMANDS)
    assert "bounds you can defend" in outcome.out


def test_scan_help_shows_types_and_defaults(byrote: Command) -> None:
    words = " ".join(byrote("scan", "--help").out.split())
    for flag, kind, default in (
        ("--top-k", "INTEGER", "40"),
        ("--beam-width", "INTEGER", "20"),
        ("--threshold", "FLOAT", "0.001"),
        ("--screen", r"\[auto\|off\]", "auto"),
    ):
        assert re.search(rf"{flag} {kind} [^\[]*\[default: {re.escape(default)}\]", words), flag


def test_help_shows_whole_sentences(byrote: Command) -> None:
    outcome = byrote("--help")
    assert "..." not in outcome.out.split("Commands:")[1]


def test_the_version_is_that_of_the_package(byrote: Command) -> None:
    outcome = byrote("--version")
    assert outcome == (0, f"byrote {__version__}\n", "")


@pytest.mark.parametrize("command", ["", *COMMANDS, "lab"])
def test_help_waits_for_no_heavy_package(command: str) -> None:
    """In a process of its own: torch, and the like, take seconds to import."""
    code = (
        "import sys; from byrote.cli.main import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "found = {'torch', 'transformers', 'pyarrow', 'polars', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command.split(), "--help"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Usage:" in done.stdout


@pytest.mark.parametrize(
    ("flags", "sentences"),
    [
        (("--verify",), ["--verify scores continuations again, 20 token evaluations each"]),
        (
            ("--set", "self_check=2"),
            ["self_check searches 2 windows three more", "at most 282 token evaluations"],
        ),
        (("--measures", "verbatim"), []),
    ],
)
def test_checks_say_beforehand_what_they_cost(
    lab: TinyLab, byrote: Command, tmp_path: Path, flags: tuple[object, ...], sentences: list[str]
) -> None:
    """A search of 12 + 8 tokens with 4 beams and the pinned one evaluates at most 12 + 7 × 5 tokens."""
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", limit=2), *flags)
    assert outcome.code == 0
    assert all(words in outcome.err.splitlines()[0] for words in sentences)
    assert len(outcome.err.splitlines()) == (3 if sentences else 2)


def test_without_arguments_the_help_is_shown(byrote: Command) -> None:
    outcome = byrote()
    assert "Usage:" in outcome.out + outcome.err


def test_a_piped_scan_prints_nothing_but_where_the_results_are(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", measures="verbatim", limit=2))
    assert outcome.code == 0
    assert outcome.out == ""
    assert outcome.err.splitlines() == [
        f"Results: {tmp_path / 'run'}",
        f"See them with: byrote show {tmp_path / 'run'}",
    ]


def test_the_module_runs_like_the_command(lab: TinyLab, tmp_path: Path) -> None:
    """A real process with real pipes: no bar, no cursor movement, no warning of a library."""
    done = subprocess.run(
        [sys.executable, "-m", "byrote", *scan_arguments(lab, tmp_path / "run", measures="verbatim", limit=2)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert not DRAWN.search(done.stderr)
    assert len(done.stderr.splitlines()) == 2, done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["command_line"][1] == "scan"


def test_show_summarises_a_finished_run(byrote: Command, run: Path) -> None:
    outcome = byrote("show", run)
    assert outcome.code == 0
    assert outcome.err == ""
    assert not re.search(r"[\r\x1b]", outcome.out), "no colours in a pipe"
    for word in ("greedy", "verbatim", "near-verbatim", "target", "12 windows"):
        assert word in outcome.out


def test_show_reads_an_unfinished_run(byrote: Command, unfinished: Path) -> None:
    outcome = byrote("show", unfinished)
    assert outcome.code == 0
    assert "4 windows" in outcome.out


def test_export_keeps_every_digit(byrote: Command, run: Path, tmp_path: Path) -> None:
    results = pl.read_parquet(run / "results.parquet")
    outcome = byrote("export", run, "--format", "jsonl", "--out", tmp_path / "rows.jsonl")
    assert outcome.code == 0
    assert f"12 rows: {tmp_path / 'rows.jsonl'}" in outcome.err
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["p_verbatim"] for line in lines] == results["p_verbatim"].to_list()
    assert [line["mass_lower"] for line in lines] == results["mass_lower"].to_list()


def test_export_of_an_unfinished_run_says_so(byrote: Command, unfinished: Path, tmp_path: Path) -> None:
    outcome = byrote("export", unfinished, "--format", "csv", "--out", tmp_path / "rows.csv")
    assert outcome.code == 0
    assert "4 rows" in outcome.err
    assert "not finished" in outcome.err
    assert pl.read_csv(tmp_path / "rows.csv").height == 4


def test_export_of_continuations(byrote: Command, run: Path, tmp_path: Path) -> None:
    outcome = byrote("export", run, "--format", "csv", "--table", "continuations", "--out", tmp_path / "found.csv")
    assert outcome.code == 0
    expected = pl.read_parquet(run / "continuations.parquet").height
    assert pl.read_csv(tmp_path / "found.csv").height == expected > 0


def numbers_of(line: str) -> list[str]:
    return re.findall(r"[\d,.]+", line)


def plan_line(byrote: Command, start: str, *arguments: object, title: str) -> str:
    out = byrote("plan", *arguments).out
    section = out[out.index(title) :].splitlines()
    return next(line for line in section if line.strip().startswith(start))


@pytest.mark.parametrize(
    ("mass", "counts"),
    [("0.1", ["51", "29", "7"]), ("0.01", ["528", "299", "69"]), ("0.001", ["5,296", "2,995", "693"])],
)
def test_plan_prints_the_published_sample_sizes(byrote: Command, mass: str, counts: list[str]) -> None:
    line = plan_line(byrote, f"{mass} ", title="Monte Carlo samples")
    assert numbers_of(line)[:4] == [mass, *counts]


def test_plan_prints_the_samples_for_ten_percent_error(byrote: Command) -> None:
    assert numbers_of(plan_line(byrote, "0.001 ", title="Monte Carlo samples"))[5] == "99,900"


@pytest.mark.parametrize(
    ("measure", "evaluations"),
    [
        ("verbatim", ["100", "99"]),
        ("greedy", ["99", "148"]),
        ("beam search, 20 beams", ["1,030", "1,079"]),
        ("all of these", ["1,128"]),
        ("Monte Carlo, 3,000 samples", ["147,050"]),
        ("Monte Carlo, 100,000 samples", ["4,900,050"]),
    ],
)
def test_plan_prints_token_evaluations_as_published_and_as_a_scan_counts_them(
    byrote: Command, measure: str, evaluations: list[str]
) -> None:
    line = plan_line(byrote, measure, title="Token evaluations per window (50 + 50 tokens)")
    assert numbers_of(line.removeprefix(measure))[-len(evaluations) :] == evaluations


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("steps with probability at most 0.5", "9"),
        ("steps with probability at most 0.1", "3"),
        ("steps at rank 40 or beyond", "1"),
        ("geometric mean", "0.871"),
        ("a path above this probability survives 20 beams", "0.0476"),
    ],
)
def test_plan_prints_what_the_threshold_allows(byrote: Command, fact: str, value: str) -> None:
    assert numbers_of(plan_line(byrote, fact, title="What τ = 0.001 allows"))[-1] == value


def test_plan_fits_a_pipe_of_eighty_columns(byrote: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "…" not in byrote("plan").out
    digits = byrote("plan", "--mass", "1e-9").out.replace(",", "").split()
    assert "…" not in "".join(digits), "a number that lost its end reads as another one"


def test_plan_takes_other_numbers(byrote: Command) -> None:
    line = plan_line(
        byrote, "beam search, 5 beams", "--beam-width", 5, "--suffix-tokens", 10, title="Token evaluations"
    )
    assert numbers_of(line)[-2:] == [str(50 + 9 * 5), str(50 + 9 * 6)]
    assert numbers_of(plan_line(byrote, "0.5 ", "--mass", 0.5, title="Queries until"))[1:] == ["1", "4", "10"]


@pytest.mark.parametrize("bad", [("--mass", 0), ("--mass", 2), ("--threshold", 0), ("--suffix-tokens", 0)])
def test_plan_refuses_numbers_that_cannot_work(byrote: Command, bad: tuple[object, ...]) -> None:
    outcome = byrote("plan", *bad)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("given", "spread"),
    [
        (["scan", "--text", "a", "b", "c"], ["scan", "--text", "a", "--text", "b", "--text", "c"]),
        (["--text", "a", "--control", "x", "y"], ["--text", "a", "--control", "x", "--control", "y"]),
        (["--text", "a", "--out", "o", "--text", "b"], ["--text", "a", "--out", "o", "--text", "b"]),
        (["--out", "o", "p"], ["--out", "o", "p"]),
        (["--text"], ["--text"]),
        (["--top_k", "a_b", "--top_p=a_b", "-1_0"], ["--top-k", "a_b", "--top-p=a_b", "-1_0"]),
        (["--text", "a", "--", "--b_c", "d"], ["--text", "a", "--", "--b_c", "d"]),
        ([], []),
    ],
)
def test_arguments_are_normalised(given: list[str], spread: list[str]) -> None:
    assert normalised(given) == spread


def test_plan_says_what_a_window_of_a_served_model_costs(byrote: Command) -> None:
    title = "A window of a served model (vllm, 50 + 50 tokens)"
    line = plan_line(byrote, "verbatim", "--endpoint", title=title)
    assert numbers_of(line)[-4:] == ["0.125", "1", "100", "100"]
    assert title not in byrote("plan").out
