"""`byrote prior` in a terminal: counts that add up, thresholds, examples without personal data."""

import re
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from byrote.cli.commands import prior
from byrote.prior.report import basis_sentences, joined_sentence, read, shortened
from byrote.prior.run import prior_to_folder
from byrote.report.content import Asked
from byrote.report.terminal import show_content
from byrote.store.read import read_run
from tests.prior.priors import Killed, KilledAfter, config, run, totals
from tests.scan.scans import make_command


def invoked(place: Path, out: Path, *more: object) -> str:
    app = typer.Typer()
    app.command()(prior)
    given = ["--model", place / "model", "--text", place / "text.txt", "--prior-text", place / "reference.txt"]
    sizes = ["--prefix-tokens", 6, "--suffix-tokens", 3, "--prior-prefixes", 10, "--trials", 2, "--limit", 3]
    words = [str(part) for part in (*given, *sizes, "--out", out, "--least-probability", 0, *more)]
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    assert shown.exit_code == 0
    return shown.output


def printed(path: Path, *, width: int = 100, reveal: bool = False) -> str:
    console = Console(width=width, force_terminal=False, highlight=False)
    with console.capture() as capture:
        for part in show_content(read([path], Asked(reveal=reveal))):
            console.print(part)
    return capture.get()


def test_the_command_prints_counts_thresholds_and_examples(place: Path, tmp_path: Path) -> None:
    words = invoked(place, tmp_path / "out")
    assert read_run(tmp_path / "out").results.height == 3
    for expected in ("unsettled", "n from", "Lowest ratio", "and this n", "3 of 6 suffixes", "all 16 prefixes"):
        assert expected in " ".join(words.split())


def test_the_headline_has_targets_beside_controls_and_examples_say_where(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out", least_probability=0.0, control=(str(place / "reference.txt"),))
    found = read([tmp_path / "out"])
    by_split = totals(tmp_path / "out")["by_split"]
    counts = {split: by_split[split]["all"] for split in ("target", "control")}
    for split, one in counts.items():
        assert f"{one['memorized']} of {one['suffixes']} {split} suffixes" in found.headline
    (lowest,) = (table for table in found.tables if table.name == "lowest_ratio")
    assert {row[1] for row in lowest.rows} <= set(read_run(tmp_path / "out").results["window_id"])
    unsettled = sum(one["unsettled"] for one in counts.values())
    assert ("More generic texts" in " ".join(found.sentences)) == (unsettled > 0)


def test_the_columns_of_the_counts_add_up_to_the_suffixes_above_m(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out", least_probability=0.0, limit=None)
    row = next(line for line in printed(tmp_path / "out").splitlines() if line.startswith("target"))
    suffixes, extractable, memorized, likely, unsettled = map(int, row.split()[1:6])
    assert memorized + likely + unsettled == extractable == suffixes


def test_numbers_have_one_format(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out", least_probability=0.0, spans="auto", limit=None)
    assert not re.search(r"\de[+-]?\d", printed(tmp_path / "out"))


@pytest.mark.parametrize("source", [{"spans": "auto"}, {"suffix_tokens": 12, "stride_chars": 30}])
def test_personal_data_is_masked_unless_asked_for(place: Path, tmp_path: Path, source: dict[str, object]) -> None:
    run(place, tmp_path / "out", least_probability=0.0, limit=None, **source)
    masked, plain = (printed(tmp_path / "out", reveal=reveal) for reveal in (False, True))
    assert "959-4" not in masked
    assert "959-4" in plain
    assert "•" in masked
    assert "--reveal" in masked


def test_examples_show_ratio_and_verdict_however_long_the_text_is(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out", least_probability=0.0, suffix_tokens=50, stride_chars=40, limit=None)
    lines = printed(tmp_path / "out", width=60).splitlines()
    first = lines[lines.index(next(line for line in lines if line.startswith("suffix "))) + 1]
    assert re.search(r"(memorized|likely|unsettled)", first)
    assert all(len(line) <= 60 for line in lines)
    assert shortened("x" * 121) == "x" * 120 + "…"


def test_a_sweep_is_told_by_prefix_length(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out", least_probability=0.0, prefix_lengths=(3,))
    words = printed(tmp_path / "out")
    (thresholds,) = (table for table in read([tmp_path / "out"]).tables if table.name == "thresholds")
    assert {row[1] for row in thresholds.rows} == {"3", "6"}
    assert "By prefix length" in words


def test_texts_that_are_in_the_reference_corpus_too_are_named(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "apart")
    assert totals(tmp_path / "apart")["in_reference"] == 0
    run(place, tmp_path / "out", prior_text=(str(place / "reference.txt"), str(place / "text.txt")))
    assert totals(tmp_path / "out")["in_reference"] == 4
    assert "4 suffixes come from texts that are in the reference corpus too" in printed(tmp_path / "out")


def test_windows_that_came_out_short_are_not_said_to_be_left_out_by_choice(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out")
    told = totals(tmp_path / "out")
    short = {**told, "available": told["windows"] + 2, "short_windows": 2}
    words = " ".join(basis_sentences(short))
    assert "chosen by --limit" not in words
    assert "2 windows at the end of a text came out too short" in words
    assert "chosen by --limit or --sample" in " ".join(basis_sentences({**short, "short_windows": 1}))


def test_reveal_is_an_option_of_the_command(place: Path, tmp_path: Path) -> None:
    assert "959-481-5012" in invoked(place, tmp_path / "out", "--spans", "auto", "--span-kinds", "phone", "--reveal")
    assert "-5012" not in invoked(place, tmp_path / "out", "--spans", "auto", "--span-kinds", "phone")


def test_a_threshold_that_cannot_be_calibrated_says_why(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out", top_k=2)
    words = " ".join(printed(tmp_path / "out").split())
    assert "No n at 3 tokens: the policy can say 0 of 3 generic suffixes" in words


def test_a_joined_scan_is_told_in_counts_that_add_up() -> None:
    share = {"value": 0.5, "low": 0.2, "high": 0.8}
    join = {"scan_extractable": 10, "merely_likely": 5, "specific_to_their_prefix": 2, "unsettled": 3}
    join |= {"published_memorized": 4, "published_merely_likely": 3, "is_by_ball": False}
    words = joined_sentence(join | {"merely_likely_share": share})
    assert "Of 10 windows" in words
    assert "50.0 %, 95 % interval 20.0 % to 80.0 %" in words


def test_a_prior_run_is_shown_and_reported_from_its_folder_alone(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and numbers of people are masked on the page too, whose manifest holds the examples."""
    out = tmp_path / "out"
    run(place, out, spans="auto", span_kinds=("phone",), prefix_lengths=(3,), least_probability=0.0)
    byrote = make_command(capsys)
    shown = byrote("show", out)
    assert shown.code == 0
    assert "n from" in " ".join(shown.out.split())
    assert byrote("report", out).code == 0
    figures = {path.name for path in (out / "report" / "figures").glob("*.svg")}
    assert figures == {"prior_scatter.svg", "prior_ratios.svg", "prior_by_prefix_length.svg"}
    page = (out / "report" / "index.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 3
    assert "Memorized, not just likely after any prefix" in page
    assert "-5012" not in page  # alone it may stand in a hash or a coordinate


def test_an_unfinished_prior_run_says_that_it_is(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Killed):
        prior_to_folder(config(place, tmp_path / "out"), progress=KilledAfter(1))
    refused = make_command(capsys)("show", tmp_path / "out")
    assert refused.code == 2
    assert "is not finished" in " ".join(refused.err.split())
