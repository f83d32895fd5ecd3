"""What a scan says about its cost before and while it measures."""

from byrote.scan.options import RunConfig
from byrote.scan.run import CostNotes


def test_the_cost_of_all_windows_and_of_a_sample_is_told_once() -> None:
    now = 0.0
    notes = CostNotes(RunConfig(), 6_000, clock=lambda: now)
    assert notes.is_wanted
    assert "All 6,000 windows are measured. --sample 300" in notes.before
    assert "about 0.05 of the time" in notes.before
    assert [notes.is_due for _ in range(9)] == [False] * 9
    now = 25.0
    assert notes.is_due
    assert notes.words() == "At the speed so far, all 6,000 windows take about 4.2 h, a sample of 300 12.5 min."
    assert not notes.is_due


def test_who_chose_windows_or_has_few_is_told_nothing() -> None:
    for config, windows in (
        (RunConfig(sample=2_000), 2_000),
        (RunConfig(limit=2_000), 2_000),
        (RunConfig(max_seconds=60.0), 6_000),
        (RunConfig(), 300),
    ):
        assert not CostNotes(config, windows).is_wanted
