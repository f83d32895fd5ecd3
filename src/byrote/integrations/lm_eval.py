"""The windows of a run as a task of lm-evaluation-harness: `lm_eval --include_path FOLDER --tasks NAME`.

The harness scores suffixes after their prefixes, so `acc` is the share of windows whose greedy answer is the suffix,
token by token: byrote's greedy rate, where the harness's tokenizer cuts the same tokens.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from byrote.errors import RunError
from byrote.report.view import RunView
from byrote.store.files import atomic_file, make_folder, note_written

KINDS = {"target": "Passages that the model may have been trained on", "control": "Passages that it cannot have seen"}


def write_task(view: RunView, out: Path) -> list[Path]:
    """A task for the target windows and one for the controls in the folder `out`, each with its data."""
    name = "byrote_" + re.sub(r"[^a-z0-9]+", "_", view.path.resolve().name.lower()).strip("_")
    written: list[Path] = []
    make_folder(out, inside=out.parent)
    for split in KINDS:
        rows = list(_rows(view, split))
        if rows:
            task, data = out / f"{name}_{split}.yaml", out / f"{name}_{split}.jsonl"
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            settings = yaml.safe_dump(_task(task.stem, data.resolve(), split), sort_keys=False, allow_unicode=True)
            for path, content in ((data, lines), (task, settings)):
                with atomic_file(path) as file:
                    file.write(content.encode("utf-8", "backslashreplace"))
                written.append(path)
    note_written(out, written)
    return written


def _rows(view: RunView, split: str) -> Any:
    texts = {document.name: document.text for document in view.documents if document.split == split}
    columns = ("window_id", "document", "suffix_char_start", "char_end")
    for start, row in zip(view.prefix_starts.tolist(), view.results.iter_rows(named=True), strict=True):
        if row["split"] != split:
            continue
        text = texts[row["document"]]
        if text is None:
            raise RunError(f"{view.path} has no texts (texts.parquet); scan again to export their windows.")
        window_id, document, middle, end = (row[name] for name in columns)
        yield {"window_id": window_id, "document": document, "prefix": text[start:middle], "suffix": text[middle:end]}


def _task(name: str, data: Path, split: str) -> dict[str, Any]:
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "loglikelihood",
        "doc_to_text": "prefix",
        "doc_to_target": "suffix",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": False}],
        "metadata": {
            "version": 1.0,
            "description": f"{KINDS[split]}: greedy answers that are the suffix, word for word",
        },
    }
