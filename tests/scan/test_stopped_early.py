"""A run that is stopped at any moment: what it has measured is a fair sample, and nobody takes it for the whole."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from byrote.random_order import MeasuredOrder, sample_key
from byrote.report.summary import certainty
from byrote.report.view import load_view, view_of
from byrote.scan.options import RunConfig
from byrote.store.files import write_sealed_json
from byrote.store.parts import read_part_list
from byrote.store.read import read_run, shown_name
from byrote.store.resume import RunSession
from tests.scan.scans import Command, TinyLab, scan_arguments
from tests.scan.streams import random_windows

SLOTS, HITS, WINDOWS = 8, 40, 120
RUNS = 400


def test_an_interrupted_run_estimates_the_whole_without_bias() -> None:
    """Windows that are extractable take ten times as long as others, eight are under way at once, and the run is
    stopped after a fixed time. By Wald's identity the expectation of hits − rate · windows is 0 up to and with the
    first open window of the order, so that without it the sample is off by less than one window. Over 400 runs of about
    48 windows the mean has a standard error of 0.17: 0.8 has a chance of 2e-6. All that is finished is off by five."""
    windows = random_windows(WINDOWS)
    hits = {window.window_id for window in windows[:HITS]}

    def excess(names: list[str]) -> float:
        return sum(name in hits for name in names) - HITS / WINDOWS * len(names)

    of_sample, of_finished, with_open = 0.0, 0.0, 0.0
    for seed in range(RUNS):
        measured, keys = (
            MeasuredOrder(seed),
            {window.window_id: sample_key(window.window_id, seed) for window in windows},
        )
        queue = measured.begin(sorted(windows, key=lambda window: keys[window.window_id]))
        slots: dict[str, int] = {}
        finished: list[str] = []
        for now in range(60):
            for name in [name for name, until in slots.items() if until <= now]:
                del slots[name]
                finished.append(name)
                measured.end(name)
            while len(slots) < SLOTS and (window := next(queue, None)) is not None:
                slots[window.window_id] = now + (20 if window.window_id in hits else 2)
        assert measured.mark is not None
        sample = [name for name in finished if keys[name] <= measured.mark]
        of_sample += excess(sample) / RUNS
        of_finished += excess(finished) / RUNS
        with_open += excess(sorted(keys, key=keys.__getitem__)[: len(sample) + 1]) / RUNS
    assert abs(with_open) < 0.8
    assert abs(of_sample) < 1
    assert of_finished < -4


@contextmanager
def ctrl_c_after(rows: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A scan in this context gets Ctrl-C after so many rows."""
    added, add = 0, RunSession.add

    def counted(session: RunSession, row: Any, continuations: Any = ()) -> None:
        nonlocal added
        add(session, row, continuations)
        added += 1
        if added == rows:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(RunSession, "add", counted)
        yield


def stopped_run(
    lab: TinyLab, byrote: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, *, after: int, **options: Any
) -> Path:
    with ctrl_c_after(after, monkeypatch):
        assert byrote(*scan_arguments(lab, folder, **options)).code == 130
    return folder


SMALL = {"screen": "off", "batch_windows": 4, "slots": 3, "stride_chars": 90}


def test_a_stopped_run_says_how_far_it_is_and_of_which_model(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped_run(lab, byrote, tmp_path / "first-try", monkeypatch, after=20, **SMALL)
    stored = read_run(run)
    view = load_view(run)
    assert view.so_far is not None
    assert view.so_far.is_sample
    assert 0 < len(view.population) <= len(stored.results)
    keys = {name: sample_key(name, RunConfig().seed).hex() for name in stored.results["window_id"]}
    assert set(view.population.window_id) == {name for name, key in keys.items() if key <= (stored.mark or "")}
    shown = byrote("show", run)
    words = " ".join(shown.out.split())
    assert f"So far {len(view.population)} of {view.so_far.windows} windows, a random sample" in words
    assert "certified" not in words.split("rates")[0].split("How likely")[0]
    assert "first-try" not in words.split("How likely")[0]
    assert view.model == shown_name(str(lab.model.path))
    assert "Control texts none given" in words
    assert "target:" not in byrote("runs", tmp_path).out


def test_it_goes_on_to_the_rows_of_a_run_that_was_never_stopped(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = stopped_run(lab, byrote, tmp_path / "stopped", monkeypatch, after=9, **SMALL)
    first = set(load_view(stopped).population.window_id)
    assert byrote(*scan_arguments(lab, stopped, **SMALL)).code == 0
    assert byrote(*scan_arguments(lab, tmp_path / "whole", **SMALL)).code == 0
    found, expected = (read_run(path).results for path in (stopped, tmp_path / "whole"))
    assert found["window_id"].to_list() == expected["window_id"].to_list()
    assert load_view(stopped).so_far is None
    order = sorted(expected["window_id"], key=lambda name: sample_key(name, 0))
    assert first == set(order[: len(first)]), "the beginning of the random order, without a gap"


def test_without_a_mark_a_run_is_called_not_representative(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped_run(lab, byrote, tmp_path / "run", monkeypatch, after=9, **SMALL)
    listed = read_part_list(run / "parts.json", run_id=read_run(run).run_id)
    write_sealed_json(run / "parts.json", {**(listed or {}), "mark": None})
    words = " ".join(byrote("show", run).out.split())
    assert "windows, not representative" in words
    assert "random sample" not in words
    assert "95% interval " not in words
    assert "no interval: not representative" in words


def test_controls_are_awaited_only_by_a_run_that_was_given_some(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped_run(lab, byrote, tmp_path / "run", monkeypatch, after=9, **SMALL, control=lab.files.controls)
    view = load_view(run)
    targets = view.results.filter(pl.col("split") == "target")
    for is_given in (True, False):
        texts = {name: entry for name, entry in view.manifest["texts"].items() if is_given or "control:" not in name}
        alone = view_of(targets, {**view.manifest, "texts": texts}, path=run, texts={}, is_complete=False)
        words = " ".join(certainty(replace(alone, so_far=view.so_far)))
        assert ("No control is measured yet" in words) == is_given
        assert ("No control text was given" in words) == (not is_given)


def test_pairs_come_in_random_order_and_are_stored_in_that_of_the_file(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    text = next(lab.files.targets.iterdir()).read_text(encoding="utf-8")
    pairs = [
        {"id": f"r{number}", "prefix": text[9 * number :][:60], "suffix": text[9 * number + 60 :][:60]}
        for number in range(12)
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    command = ["scan", "--model", lab.model.path, "--pairs", file, "--out", tmp_path / "run", "--measures", "verbatim"]
    assert byrote(*command, "--device", "cpu").code == 0
    assert read_run(tmp_path / "run").results["window_id"].to_list() == [pair["id"] for pair in pairs]
