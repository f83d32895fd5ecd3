"""Everything the page of an audit says, as plain values, in the order a reader needs it."""

from datetime import datetime
from typing import Any

from rote.longform import exhibit_words as words
from rote.longform.audit_folder import BOOK, AuditFolder
from rote.longform.exhibit_texts import failed_sections, map_lines, prompts_of, trial_passages
from rote.report.words import integer

_OWN_PLACES = ("refusal_patterns", "passes", "settings", "sweep", "chapter_pattern")
"""Options that are shown elsewhere, or are too long to read; the manifest has them all."""


def exhibit(audit: AuditFolder) -> dict[str, Any]:
    """All values of the page, texts included; nothing is markup."""
    trial, manifest, controls = audit.best, audit.manifest, audit.findings["controls"]
    book = audit.text(BOOK)
    passages = trial_passages(audit, trial, book)
    return {
        "headline": words.headline(audit),
        "lede": words.lede(audit),
        "date": datetime.fromisoformat(manifest["written_at"]).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
        "notices": list(words.notices(audit)),
        "tiles": list(words.tiles(audit, len(passages))),
        "facts": list(words.facts(audit)),
        "prompts": prompts_of(audit, trial),
        "book_words": integer(trial["book_words"]),
        "maps": list(map_lines(audit, book, passages)),
        "passages": passages,
        "elsewhere": list(
            words.elsewhere_rows(section["recall"] for section in trial["sections"] if section["recall"])
        ),
        "failed": list(failed_sections(audit, trial)),
        "sections": [words.section_row(section) for section in trial["sections"]],
        "trials": [words.trial_row(row) for row in audit.trials],
        "spread": [words.spread_sentence(row) for row in audit.findings["spread"] if row["trials"] > 1],
        "controls": [words.control_row(control) for control in controls],
        "control_sentence": words.control_sentence(controls) if controls else None,
        "costs": list(words.costs(manifest["costs"])),
        "definitions": words.definitions(manifest["config"]),
        "files": [
            {"name": name, "bytes": integer(bound["bytes"]), "hash": bound["sha256"]}
            for name, bound in manifest["files"].items()
        ],
        "run_id": audit.run_id,
        "journal": manifest["journal"],
        "command": " ".join(manifest["command_line"]),
        "versions": ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
        "options": [(name, value) for name, value in manifest["config"].items() if name not in _OWN_PLACES],
    }
