"""(n, p) by copies in training: every line against its definition over the windows with so many copies."""

from pathlib import Path

import numpy as np
import pytest

from byrote.report.analysis.groups import copies_drawings
from byrote.report.view import load_view
from tests.report.synthetic_run import books, write_run

COPIES = {"the_lamp.txt": 64, "river_letters.txt": 16, "seen_once.txt": 1}


def test_a_line_has_the_share_of_the_windows_with_its_copies(tmp_path: Path) -> None:
    view = load_view(write_run(tmp_path / "run", books(3000), stride=100))
    (drawing,) = [one for one in copies_drawings([view]) if one.name == "copies-queries"]
    rows = [row for row in view.results.iter_rows(named=True) if row["split"] == "target"]
    axes = drawing.figure.axes[0]
    lines = {str(line.get_label()): line for line in axes.get_lines() if not str(line.get_label()).startswith("_")}
    assert list(lines) == ["copies: 64", "copies: 16", "copies: 1"]
    for document, copies in COPIES.items():
        p_z = np.array([row["p_verbatim"] for row in rows if row["document"] == document])
        line = lines[f"copies: {copies}"]
        for n, share in list(zip(line.get_xdata(), line.get_ydata(), strict=True))[::10]:
            assert share == pytest.approx(np.mean(1 - (1 - p_z) ** n >= 0.5)), (document, n)
    assert np.max(lines["copies: 64"].get_ydata()) > 0
