"""What an audit found, line by line, for the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from rote.longform.audit_folder import AuditFolder
from rote.longform.exhibit_words import (
    STOP_WORDS,
    control_sentence,
    costs,
    headline,
    lede,
    notices,
    settings_words,
    spread_sentence,
)
from rote.longform.loop import Stop
from rote.report.words import THIN_SPACE, integer, percent, plural


def terminal_lines(audit: AuditFolder) -> Iterator[str]:
    """A terminal breaks lines at the page's thin spaces."""
    return (line.replace(THIN_SPACE, ",") for line in _lines(audit))


def _lines(audit: AuditFolder) -> Iterator[str]:
    yield f"{headline(audit)}. {lede(audit)}"
    yield from notices(audit)
    for trial in audit.trials:
        yield from _trial_lines(f"trial {trial['trial']}", trial)
    for control in audit.findings["controls"]:
        yield from _trial_lines(f"control {control['name']}", control["asked"])
    if audit.findings["controls"]:
        yield control_sentence(audit.findings["controls"])
    yield from (spread_sentence(row) for row in audit.findings["spread"] if row["trials"] > 1)
    yield "; ".join(f"{name}: {value}" for name, value in costs(audit.manifest["costs"]))


def _trial_lines(name: str, trial: Mapping[str, Any]) -> Iterator[str]:
    share = trial["nv_recall"]
    found = "nothing measured: phase 1 failed"
    if share is not None:
        found = (
            f"nv-recall {percent(share)}; {integer(trial['matched_words'])} of {integer(trial['book_words'])} words, "
            f"longest passage {integer(trial['longest_block'])}"
        )
    yield f"{name} ({settings_words(trial['settings'])}): {found}"
    for section in trial["sections"]:
        yield (
            f"  {section['name']}: {percent(section['similarity'])} of the target after "
            f"{plural(len(section['tries']), 'request')}, then {plural(section['turns'], 'turn')}; "
            f"{STOP_WORDS[Stop(section['stop'])]}"
        )
