"""Datasets that the library `datasets` saved to a folder (save_to_disk): one document a row."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rote.errors import TextError
from rote.files import parse_json, read_bytes

ROWS_AT_ONCE = 1000
ONE, SPLITS = "state.json", "dataset_dict.json"


def dataset_folders(folder: Path) -> list[Path]:
    """The datasets saved at `folder`: itself, or one a split; none where it is an ordinary folder."""
    if (folder / ONE).is_file() and (folder / "dataset_info.json").is_file():
        return [folder]
    if not (folder / SPLITS).is_file():
        return []
    try:
        return [folder / str(split) for split in parse_json(read_bytes(folder / SPLITS))["splits"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TextError(f"{folder / SPLITS} is not what save_to_disk writes; save the dataset again.") from error


def dataset_rows(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and fields of every row; only `text` and, where it is there, `id` are read."""
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise TextError(f"{folder} is a saved dataset; to read it: pip install 'rote[datasets]'.") from error
    try:
        rows = load_from_disk(str(folder))
    except Exception as error:  # whatever libraries make of a damaged folder
        raise TextError(f"{folder} cannot be read as a dataset: {' '.join(str(error).split())}.") from error
    if "text" not in rows.column_names:
        names = ", ".join(rows.column_names)
        raise TextError(f"{folder} has no column 'text' (it has {names}); rename the text column.")
    kept = rows.select_columns([name for name in ("id", "text") if name in rows.column_names])
    for start in range(0, len(kept), ROWS_AT_ONCE):
        for offset, fields in enumerate(kept.select(range(start, min(start + ROWS_AT_ONCE, len(kept)))).to_list()):
            yield f"{folder}, row {start + offset + 1}", fields
