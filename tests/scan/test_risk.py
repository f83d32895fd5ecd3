"""The risk of a document from the rows of a scan, against random queries to a table model."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from byrote.distance.tokens import levenshtein
from byrote.report.analysis.risk import document_risks, spread_out, works_of
from byrote.report.view import ViewedDocument, load_view
from byrote.report.words import percent
from byrote.scan.options import RunConfig
from byrote.stats.risk import expected_characters, leak_probability, stretches
from byrote.types import Window
from tests.oracle import textbook_policy
from tests.report.synthetic_run import Book, prose, write_run
from tests.scan.scans import Command, TinyLab, make_command, scan_arguments
from tests.scan.streams import POLICY, PREFIX, SUFFIX, VOCABULARY, knowing_model, make_window, passed
from tests.table import TableModel

CONFIG = RunConfig(
    prefix_tokens=PREFIX, suffix_tokens=SUFFIX, top_k=4, edit_budget=1, beam_width=3, screen="off", stop_rule="off"
)
QUERIES, ATTACKS = 6, 1500


def overlapping_windows() -> list[Window]:
    """A text of one character a token, a window starting at every second one."""
    ids = torch.randint(0, VOCABULARY, (24,), generator=torch.Generator().manual_seed(3)).tolist()
    size = PREFIX + SUFFIX
    return [make_window(start, ids[start : start + size]) for start in range(0, len(ids) - size + 1, 2)]


class Attacker:
    """Asks about random windows and keeps the characters of what came out within one edit."""

    def __init__(self, model: TableModel, windows: list[Window]) -> None:
        self._model, self._windows = model, windows
        self._generator = np.random.default_rng(0)
        self._rows: dict[tuple[int, ...], tuple[list[int], list[float]]] = {}

    def attack(self, edits: int) -> set[int]:
        recovered: set[int] = set()
        for _ in range(QUERIES):
            window = self._windows[self._generator.integers(len(self._windows))]
            if levenshtein(self._answer(window.prefix_ids), window.suffix_ids) <= edits:
                recovered |= set(range(window.suffix_char_start, window.char_end))
        return recovered

    def _answer(self, prefix: tuple[int, ...]) -> list[int]:
        history = list(prefix)
        while len(history) < len(prefix) + SUFFIX:
            key = tuple(history)
            if key not in self._rows:
                kept = textbook_policy(self._model.next_logits([history])[0].tolist(), POLICY)
                self._rows[key] = list(kept), list(kept.values())
            tokens, weights = self._rows[key]
            history.append(int(self._generator.choice(tokens, p=np.array(weights) / sum(weights))))
        return history[len(prefix) :]


@pytest.mark.parametrize("edits", [0, 1])
def test_risk_from_stored_bounds_encloses_what_random_queries_recover(edits: int) -> None:
    """1,500 attacks of 6 queries: 4.5 standard errors beyond an end happen with probability < 1e-5 each."""
    windows = overlapping_windows()
    model = knowing_model(windows[::3], seed=1)
    items = {item.window.window_id: item for item in passed(model, windows, CONFIG)}
    bounds = [items[window.window_id].near.bounds for window in windows]  # type: ignore[union-attr]
    low, high = (np.array([getattr(one, end)[edits] for one in bounds]) for end in ("lower", "upper"))
    starts = np.array([window.suffix_char_start for window in windows])
    ends = np.array([window.char_end for window in windows])
    attacker = Attacker(model, windows)
    found = [len(attacker.attack(edits)) for _ in range(ATTACKS)]
    leaked = np.mean([count > 0 for count in found])
    error = 4.5 * np.sqrt(leaked * (1 - leaked) / ATTACKS)
    assert (
        leak_probability(float(low.mean()), QUERIES) - error
        <= leaked
        <= leak_probability(float(high.mean()), QUERIES) + error
    )
    assert leak_probability(float(high.mean()), QUERIES) < 0.999, "or the upper end would say nothing"
    error = 4.5 * np.std(found) / np.sqrt(ATTACKS)
    mean = float(np.mean(found))
    assert expected_characters(stretches(starts, ends, low), QUERIES) - error <= mean
    assert mean <= expected_characters(stretches(starts, ends, high), QUERIES) + error
    if edits == 0:
        assert mean == pytest.approx(expected_characters(stretches(starts, ends, low), QUERIES), abs=error)


def test_a_figure_of_many_documents_spans_those_that_leak_most_and_least() -> None:
    def work(number: int, split: str) -> ViewedDocument:
        return ViewedDocument(f"{split}-{number}", split, None, None, None, 0, None, False, 0, 2)

    works = [work(number, "target") for number in range(20)] + [work(number, "control") for number in range(9)]
    names = [one.name for one in spread_out(works)]
    assert names == ["target-0", "target-6", "target-13", "target-19", "control-0", "control-8"]
    assert spread_out(works[:3]) == works[:3]
    assert [one.name for one in spread_out(works[:8])] == [f"target-{number}" for number in (0, 1, 3, 4, 6, 7)]
    assert len(spread_out(works[20:])) == 6


def test_the_command_shows_lower_and_upper_ends_for_every_document(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    arguments = scan_arguments(lab, tmp_path / "run", measures="verbatim,near", limit=24, screen="off")
    assert byrote(*arguments).code == 0
    shown = byrote("risk", tmp_path / "run", "--queries", 1, "--queries", 1000)
    assert shown.code == 0
    view = load_view(tmp_path / "run")
    for document in view.documents:
        assert f"{document.name} (target)" in shown.out
        for risk in document_risks(view, document, (1.0, 1000.0)):
            assert 0 <= risk.leak_at_least <= risk.leak_limit_95 <= risk.leak_at_most <= 1
            characters = (risk.characters_at_least, risk.characters_limit_95, risk.characters_at_most)
            assert 0 <= characters[0] <= characters[1] <= characters[2] <= risk.characters_covered
            line = [f"{risk.queries:,.0f}", "exact" if risk.edits == 0 else f"ε ≤ {risk.edits}"]
            shares = [
                percent(share).replace(" %", "%") for share in (risk.share_low, risk.share_high, risk.share_limit)
            ]
            ends = shares[:1] if shares[0] == shares[1] else [f"{shares[0]} to {shares[1]}"]
            assert re.search(r"\s+".join(["^" + line[0], line[1], r".*", *ends, shares[2] + "$"]), shown.out, re.M)
    assert "ε ≤ 2" in shown.out
    other = byrote("risk", tmp_path / "run", "--document", "nothing")
    assert other.code == 2
    assert "document is nothing, but the run has" in " ".join(other.err.split())


def test_records_have_a_line_each_those_that_leak_most_first(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    arguments = scan_arguments(lab, tmp_path / "run", measures="verbatim", whole_documents=True)
    assert byrote(*arguments, "--control", lab.files.controls).code == 0
    shown = byrote("risk", tmp_path / "run", "--queries", 1000).out
    assert "with the record's own prefix" in " ".join(shown.split())
    rows = pl.read_parquet(tmp_path / "run" / "results.parquet").sort("p_verbatim", descending=True)
    lines = [line for line in shown.splitlines() if ".txt" in line]
    assert [line.split()[0].rstrip(",") for line in lines if "control" not in line] == [
        row["document"] for row in rows.iter_rows(named=True) if row["split"] == "target"
    ]
    assert "risk.csv" not in shown, "the report's table is about documents of several windows"
    strongest = 1 - (1 - rows["p_verbatim"][0]) ** 1000
    assert lines[0].endswith("> 0.999" if strongest > 0.999 else f"{strongest:.3g}")


def test_records_stand_beside_documents_of_several_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A few texts of two windows among notes of one: the notes that leak are what the reader looks for."""
    notes = [Book(f"note-{number}.txt", prose(number, 430), strength=float(number < 2)) for number in range(9)]
    run = write_run(tmp_path / "run", [*notes, Book("long.txt", prose(20, 1000), strength=0.0)], stride=100)
    lines = make_command(capsys)("risk", run, "--queries", 1000).out.splitlines()
    (head,) = (place for place, line in enumerate(lines) if line.startswith("document "))
    table = lines[head + 1 : lines.index("", head)]
    assert sorted(line.split()[0] for line in table) == sorted(note.name for note in notes)
    assert {line.split()[0] for line in table[:2]} == {"note-0.txt", "note-1.txt"}
    assert any(line.startswith("long.txt (target)") for line in lines[head:])
    assert works_of(load_view(run)) == [], "a page about notes has no table of works"
