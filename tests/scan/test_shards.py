"""A scan in shards, merged, is the scan that was never divided: rows, continuations, audited sample, counts."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.cli.main import main
from byrote.errors import ConfigError
from byrote.scan.options import Shard, parse_shard
from byrote.store.read import read_run
from tests.scan.alike import assert_same_rows, assert_same_run
from tests.scan.scans import Command, TinyLab, scan_arguments

OPTIONS: dict[str, Any] = {"stride_chars": 90, "screen_min_windows": 12, "screen_share": 0.05, "screen_floor": 0.2}


@pytest.fixture(scope="module")
def whole(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_command(lab, tmp_path_factory.mktemp("whole") / "run")


def run_command(lab: TinyLab, out: Path, **options: Any) -> Path:
    texts = (lab.files.targets,)
    with pytest.raises(SystemExit) as ended:
        main(scan_arguments(lab, out, texts=texts, control=lab.files.controls, **(OPTIONS | options)))
    assert not ended.value.code
    return out


@pytest.fixture(scope="module")
def shards(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("shards")
    return [run_command(lab, folder / f"shard{index}", shard=f"{index}/3") for index in range(3)]


def audited(path: Path) -> set[str]:
    rows = read_run(path).results.filter(pl.col("was_screened") & (pl.col("stop_reason") != "screened"))
    return set(rows["window_id"])


def test_merged_shards_are_the_run_that_was_never_divided(
    whole: Path, shards: list[Path], byrote: Command, tmp_path: Path
) -> None:
    outcome = byrote("merge", tmp_path / "merged", shards[2], shards[0], shards[1])
    assert outcome.code == 0, outcome.err
    assert audited(tmp_path / "merged") == audited(whole)
    assert set.union(*map(audited, shards)) == audited(whole)
    assert len(audited(whole)) > OPTIONS["screen_share"] * len(read_run(whole).results), "the minimum is at work"
    assert_same_run(tmp_path / "merged", whole)
    assert byrote("verify", tmp_path / "merged").code == 0
    assert byrote("show", shards[0]).code == 0


def test_a_scan_finds_the_merged_run_complete(
    lab: TinyLab, shards: list[Path], byrote: Command, tmp_path: Path
) -> None:
    byrote("merge", tmp_path / "merged", *shards)
    arguments = scan_arguments(lab, tmp_path / "merged", control=lab.files.controls, **OPTIONS)
    assert "was complete already" in byrote(*arguments).err


def test_a_missing_or_doubled_shard_is_refused_by_name(shards: list[Path], byrote: Command, tmp_path: Path) -> None:
    missing = byrote("merge", tmp_path / "out", shards[0], shards[2])
    assert (missing.code, "shard 1/3 is missing" in missing.err) == (2, True)
    copy = shutil.copytree(shards[1], tmp_path / "copy")
    doubled = byrote("merge", tmp_path / "out", *shards, copy)
    assert doubled.code == 2
    assert "shard 1/3 is given twice" in doubled.err
    assert str(copy) in doubled.err.replace("\n", "")


def test_shards_of_different_runs_are_refused_by_name(
    lab: TinyLab, shards: list[Path], whole: Path, byrote: Command, tmp_path: Path
) -> None:
    other = run_command(lab, tmp_path / "other", shard="1/3", seed=1, limit=6)
    told = byrote("merge", tmp_path / "out", shards[0], other, shards[2])
    assert told.code == 2
    assert "shards of different runs" in told.err
    assert "config.seed: 0 in" in told.err
    assert "is no shard" in byrote("merge", tmp_path / "out", shards[0], whole).err
    assert not (tmp_path / "out").exists()


def test_another_shard_does_not_resume_this_one(lab: TinyLab, shards: list[Path], byrote: Command) -> None:
    told = byrote(*scan_arguments(lab, shards[0], control=lab.files.controls, shard="1/3", **OPTIONS))
    assert told.code == 2
    assert 'shard: "0/3" in the run, "1/3" now' in told.err


def test_pairs_come_back_in_the_order_of_their_file(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    text = next(Path(lab.files.targets).glob("*.txt")).read_text(encoding="utf-8")
    words = text.split()
    records = [
        {"prefix": " ".join(words[place : place + 6]), "suffix": " " + " ".join(words[place + 6 : place + 12])}
        | {"document": f"d{place % 3}", "copies": place % 3}
        for place in range(7)
    ]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    common = ["--model", lab.model.path, "--pairs", file, "--device", "cpu", "--top-k", 10, "--beam-width", 2]
    common += ["--edit-budget", 2, "--measures", "verbatim"]
    assert byrote("scan", "--out", tmp_path / "whole", *common).code == 0
    folders = [tmp_path / f"shard{index}" for index in range(4)]
    for index, folder in enumerate(folders):
        assert byrote("scan", "--out", folder, "--shard", f"{index}/4", *common).code == 0
    assert byrote("merge", tmp_path / "merged", *folders).code == 0
    merged, whole = read_run(tmp_path / "merged"), read_run(tmp_path / "whole")
    assert_same_rows(merged.results, whole.results)
    assert merged.manifest is not None
    assert whole.manifest is not None
    assert merged.manifest["texts"] == whole.manifest["texts"]


@given(st.text(), st.integers(1, 9))
def test_every_window_is_in_one_shard(window_id: str, count: int) -> None:
    assert sum(Shard(index, count).holds(window_id) for index in range(count)) == 1


@pytest.mark.parametrize("text", ["3/3", "1", "-1/3", "0/0", "a/b", "1/3 "])
def test_a_shard_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="of three shards the first is 0/3"):
        parse_shard(text)
