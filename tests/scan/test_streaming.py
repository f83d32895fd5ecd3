"""Windows are cut while others are measured: their number decides neither when a scan starts nor what it holds."""

from typing import Any

import pytest

from byrote.corpus import windows as cutting
from byrote.scan.stages import score
from byrote.store.resume import RunSession
from tests.scan.scans import Command, TinyLab, scan_arguments


@pytest.mark.parametrize("choice", [{}, {"sample": 60}, {"limit": 60}], ids=str)
def test_rows_are_written_while_most_windows_are_not_cut(
    choice: dict[str, Any], lab: TinyLab, byrote: Command, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score, "CPU_CHUNK", 4)
    monkeypatch.setattr(cutting, "SLICES_PER_BATCH", 8)
    cut, cut_at_rows = 0, list[int]()
    make, add = cutting._window, RunSession.add

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal cut
        cut += 1
        return make(*arguments, **options)

    def noted(session: RunSession, row: Any, continuations: Any = ()) -> None:
        cut_at_rows.append(cut)
        add(session, row, continuations)

    monkeypatch.setattr(cutting, "_window", counted)
    monkeypatch.setattr(RunSession, "add", noted)
    options = {"stride_chars": 40, "measures": "verbatim"} | choice
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", **options))
    assert outcome.code == 0, outcome.err
    # The look whether there is any window at all, a chunk to measure, and a batch from which it was taken.
    assert cut_at_rows[0] <= 8 + 4 + 8
    ahead = [cut_then - done for done, cut_then in enumerate(cut_at_rows)]
    assert len(cut_at_rows) > 50
    assert max(ahead) <= 8 + 4 + 8 + cut - len(cut_at_rows)
