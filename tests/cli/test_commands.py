"""show, export, plan and help: what a user reads, on finished and unfinished runs, in a terminal and in a pipe."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.main import get_command

import byrote as package
from byrote import __version__
from byrote.cli.main import app, main, normalised
from byrote.errors import ByroteError
from byrote.scan.options import RunConfig
from byrote.store.resume import RunSession
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
    words = " ".join(byrote("scan", "--help-all").out.split())
    for flag, kind, default in (
        ("--top-k", "INTEGER", "40"),
        ("--beam-width", "INTEGER", "20"),
        ("--threshold, --tau", "FLOAT", "0.001"),
        ("--screen", r"\[auto\|off\]", "auto"),
    ):
        assert re.search(rf"{flag} {kind} [^\[]*\[default: {re.escape(default)}\]", words), flag


def flags_in(shown: str) -> set[str]:
    """The first name of every flag that a help text explains."""
    return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", shown, re.MULTILINE))


@pytest.mark.parametrize("command", ["scan", "prior", "audit", "plan"])
def test_help_shows_the_common_options_and_help_all_every_one(byrote: Command, command: str) -> None:
    common, every = (byrote(command, flag) for flag in ("--help", "--help-all"))
    assert common.code == every.code == 0
    declared = {flag for each in get_command(app).commands[command].params for flag in each.opts}  # type: ignore[attr-defined]
    hidden = declared - {flag for flag in declared if flag in common.out}
    assert len(flags_in(common.out)) <= 26
    assert flags_in(common.out) < flags_in(every.out)
    assert hidden
    assert all(flag in every.out for flag in declared)
    assert "--help-all" in common.out


def test_commands_with_few_options_take_help_all_for_help(byrote: Command) -> None:
    few = [(name,) for name in get_command(app).commands if name not in ("scan", "prior", "audit", "plan")]  # type: ignore[attr-defined]
    for command in ((), *few, ("lab", "counterfactual")):
        shown = byrote(*command, "--help-all")
        assert (shown.code, shown.out) == (0, byrote(*command, "--help").out)


def test_help_of_a_scan_says_what_must_be_given_and_groups_options(byrote: Command) -> None:
    shown = byrote("scan", "--help").out
    words = " ".join(shown.split())
    assert 13 <= len(flags_in(shown)) - len({"--config", "--verbose", "--quiet", "--help", "--help-all"}) <= 17
    for flag, needed in (("--model", "required"), ("--text", "required, or --pairs"), ("--out", "required")):
        assert re.search(rf"{flag}[ ,][^\[]*\[{needed}\]", words), flag
    sections = dict(re.findall(r"^(\w+):\n(.*?)(?=^\w|\Z)", shown, re.MULTILINE | re.DOTALL))
    assert "--out" in sections["Output"]
    assert "--seed" in sections["Estimates"]


def test_usage_shows_what_must_be_given_without_brackets(byrote: Command) -> None:
    assert "show [OPTIONS] RUNS..." in byrote("show", "--help").out
    assert "runs [OPTIONS] [FOLDER]" in byrote("runs", "--help").out


def test_names_of_other_tools_are_taken(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    arguments = scan_arguments(lab, tmp_path / "run", limit=2, edit_budget=None, measures="verbatim")
    other = {"--out": "--output-path", "--model": "--model"}
    given = [*(other.get(str(each), each) for each in arguments), "--epsilon", 1, "--tau", 0.5, "--batch-size", 3]
    assert byrote(*given).code == 0
    config = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))["config"]
    assert [config[name] for name in ("edit_budget", "threshold", "batch_windows")] == [1, 0.5, 3]


def test_code_of_a_model_is_refused_with_the_reason(byrote: Command) -> None:
    outcome = byrote("scan", "--model", "x", "--trust-remote-code")
    assert outcome.code == 2
    assert "code that comes with a model could change what is measured" in outcome.err
    with pytest.raises(ByroteError, match="code that comes with a model"):
        package.load_model("gpt2", trust_remote_code=True)


def test_quiet_shows_results_and_errors_and_verbose_what_is_being_done(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    arguments = scan_arguments(lab, tmp_path / "run", limit=2, measures="verbatim")
    assert byrote(*arguments, "-q") == (0, "", "")
    assert "nothing was measured" in byrote(*arguments).err
    log = byrote(*arguments, "--fresh", "-v").err
    assert re.search(r"loading .*: done in \d+\.\d s", log)
    assert "measuring 2, 0 of them done before" in log
    assert logging.getLogger("byrote").level == logging.NOTSET
    refused = byrote("show", tmp_path / "nowhere", "-q")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "leave one of them out" in byrote(*arguments, "-q", "-v").err


def test_shells_complete_commands_and_flags() -> None:
    code = "import sys; sys.argv = ['byrote']; from byrote.cli.main import main; main([])"
    for line, place, found in (("byrote sc", 1, "scan"), ("byrote scan --epsi", 2, "--epsilon")):
        asked = {"_BYROTE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(place)}
        done = subprocess.run([sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True)
        assert found in done.stdout.split(), done.stderr


def test_help_shows_whole_sentences(byrote: Command) -> None:
    outcome = byrote("--help")
    assert "..." not in outcome.out.split("Commands:")[1]


def test_the_version_is_that_of_the_package(byrote: Command) -> None:
    outcome = byrote("--version")
    assert outcome == (0, f"byrote {__version__}\n", "")


def heavy_packages(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own; its exit code is 0 when no package that takes long to import was imported."""
    code = (
        "import sys; from byrote.cli.main import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "found = {'torch', 'transformers', 'pyarrow', 'polars', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False)


@pytest.mark.parametrize("command", ["", *COMMANDS, "lab"])
def test_help_waits_for_no_heavy_package(command: str) -> None:
    done = heavy_packages(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert b"Usage:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("scan --modle m", "--modle"),
        ("scan --model m --text NOWHERE/t.txt --out NOWHERE/out", "t.txt"),
        ("scan --model NOWHERE/m --text HERE --out NOWHERE/out", "no model folder"),
        ("prior --model m --text NOWHERE/t.txt --prior-text HERE --out NOWHERE/out", "t.txt"),
        ("recall --book NOWHERE/b.txt --generation HERE", "b.txt"),
        ("plan --model NOWHERE/m --text HERE", "no model folder"),
        ("show NOWHERE", "is not a folder"),
        ("report NOWHERE", "is not a folder"),
    ],
)
def test_what_is_misspelt_or_missing_is_refused_without_heavy_packages(
    tmp_path: Path, arguments: str, words: str
) -> None:
    text = tmp_path / "here.txt"
    text.write_text("A text.", encoding="utf-8")
    places = {"NOWHERE": str(tmp_path / "nowhere"), "HERE": str(text)}
    done = heavy_packages(
        *(re.sub("NOWHERE|HERE", lambda found: places[found[0]], argument) for argument in arguments.split())
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert done.stderr.startswith(b"error: ")
    assert words.encode() in done.stderr


def test_a_misspelt_command_is_refused_in_sentences(byrote: Command) -> None:
    """Typer guesses the command, in later versions."""
    refused = byrote("scna")
    assert refused.code == 2
    assert "'scna'" in refused.err
    assert "?;" not in refused.err


def test_without_arguments_the_help_is_shown(byrote: Command) -> None:
    outcome = byrote()
    assert "Usage:" in outcome.out + outcome.err


def test_a_piped_scan_prints_what_begins_and_where_the_results_are(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", measures="verbatim", limit=2))
    assert outcome.code == 0
    assert outcome.out == ""
    *phases, headline, where, advice = outcome.err.splitlines()
    assert phases == [
        "loading libraries",
        f"loading {lab.model.path}",
        "cutting windows",
        "measuring 2 windows",
        "hashing",
        "writing results",
    ]
    assert "of the 2 target passages measured, word for word" in headline
    assert [where, advice] == [
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
    assert len(done.stderr.splitlines()) == 9, done.stderr
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


def test_csv_has_a_column_for_every_edit_and_the_passages(byrote: Command, run: Path, tmp_path: Path) -> None:
    results, texts = (pl.read_parquet(run / f"{name}.parquet") for name in ("results", "texts"))
    assert byrote("export", run, "--out", tmp_path / "rows.csv").code == 0
    rows = pl.read_csv(tmp_path / "rows.csv")
    masses = [[row[f"mass_lower_{edits}"] for edits in range(3)] for row in rows.iter_rows(named=True)]
    assert masses == results["mass_lower"].to_list()
    assert {"mass_upper_2", "answer_hits_0"} <= set(rows.columns)
    assert "mass_lower" not in rows.columns
    by_name = dict(texts.select("name", "text").iter_rows())
    for row in rows.iter_rows(named=True):
        passage = by_name[row["document"]][row["char_start"] : row["char_end"]]
        assert row["prefix_text"] + row["suffix_text"] == passage
    assert byrote("export", run, "--no-texts", "--out", tmp_path / "bare.csv").code == 0
    assert not {"prefix_text", "suffix_text"} & set(pl.read_csv(tmp_path / "bare.csv").columns)


def test_show_reads_a_scan_at_a_smaller_edit_budget(byrote: Command, run: Path) -> None:
    results = pl.read_parquet(run / "results.parquet").filter(pl.col("split") == "target")
    found = json.loads(byrote("show", run, "--epsilon", 1, "--json").out)
    assert "read at ε ≤ 1 of a scan that searched up to 2 edits" in " ".join(
        byrote("show", run, "--epsilon", 1).out.split()
    )
    near = [one for one in _rates(found) if one["criterion"] == "near" and one["split"] == "target"]
    assert [one["edits"] for one in near] == [0, 1]
    threshold = RunConfig().threshold
    assert near[1]["hits"] == sum(mass[1] >= threshold for mass in results["mass_lower"])


def _rates(found: Any) -> list[dict[str, Any]]:
    """Every rate of `show --json`, wherever it stands."""
    if isinstance(found, dict) and "criterion" in found:
        return [found]
    parts = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return [rate for part in parts for rate in _rates(part)]


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


def test_plan_in_characters_leaves_tokens_to_a_pilot(byrote: Command) -> None:
    out = " ".join(byrote("plan", "--unit", "text").out.split())
    assert "Token evaluations per window are not listed" in out
    assert "Monte Carlo samples" in out
    assert "200 + 200 tokens" not in out


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
