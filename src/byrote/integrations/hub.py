"""The rates of a run as evaluation results of the Hugging Face hub, the YAML list that a model's repository holds in
`.eval_results/`: `byrote export RUN --format hub --dataset ORG/NAME`.

Results belong to a benchmark dataset of the hub. Its tasks are named by criterion, as `near` and `control_near`; a
value is the share of windows, and the note says what it counts. No text of the run is in it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from byrote.report.analysis.limits import limit_of
from byrote.report.summary import citation
from byrote.report.view import RunView
from byrote.report.words import percent, policy_words, share_words
from byrote.store.files import atomic_file, make_folder
from byrote.types import Split


def eval_results(view: RunView, dataset: str) -> list[dict[str, Any]]:
    """An entry for every criterion and split that was measured; `dataset` may name a revision, as ORG/NAME@REVISION."""
    name, _, revision = dataset.partition("@")
    written = view.manifest.get("written_at")
    return [
        {
            "dataset": {"id": name, "task_id": task, **({"revision": revision} if revision else {})},
            "value": value,
            **({"date": written} if isinstance(written, str) else {}),
            "notes": notes,
        }
        for task, value, notes in _entries(view)
    ]


def _entries(view: RunView) -> Iterator[tuple[str, float, str]]:
    for entry in view.headline_rates:
        limit = limit_of(view, split=entry.split) if entry.criterion == "near" else None
        words = [
            f"{share_words(entry.rate)} of {entry.rate.n} {entry.split} windows, 95 % interval in brackets",
            *([] if limit is None else [f"a certified lower bound; at most {percent(limit.high)}"]),
            f"tau {view.threshold:g}, at most {view.edits_words(entry.edits or 0)}",
            policy_words(view.config),
            citation(view),
        ]
        task = "control_" * (entry.split is Split.CONTROL) + entry.criterion
        yield task, float(entry.rate.value), "; ".join(words)


def write_eval_results(view: RunView, out: Path, *, dataset: str) -> int:
    """Write them to the file `out`; how many there are."""
    entries = eval_results(view, dataset)
    make_folder(out.parent, inside=out.parent)
    with atomic_file(out) as file:
        file.write(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True).encode("utf-8", "backslashreplace"))
    return len(entries)
