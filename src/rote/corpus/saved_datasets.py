"""Datasets that the library `datasets` saved to a folder (save_to_disk): one document a row."""

from collections.abc import Iterator
from contextlib import contextmanager
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
        splits = parse_json(read_bytes(folder / SPLITS))["splits"]
        if isinstance(splits, list) and all(split and split == Path(split).name for split in set(splits)):
            return [folder / split for split in dict.fromkeys(splits)]
        raise ValueError("a split is no folder beside it")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TextError(f"{folder / SPLITS} is not what save_to_disk writes; save the dataset again.") from error


def dataset_rows(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and fields of every row; only `text` and, where it is there, `id` are read."""
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise TextError(f"{folder} is a saved dataset; to read it: pip install 'rote[datasets]'.") from error
    with _translated(folder):
        rows = load_from_disk(str(folder))
    if "text" not in rows.column_names:
        names = ", ".join(rows.column_names)
        raise TextError(f"{folder} has no column 'text' (it has {names}); rename the text column.")
    kept = rows.select_columns([name for name in ("id", "text") if name in rows.column_names])
    for start in range(0, len(kept), ROWS_AT_ONCE):
        with _translated(folder):
            batch = kept.select(range(start, min(start + ROWS_AT_ONCE, len(kept)))).to_list()
        for offset, fields in enumerate(batch):
            yield f"{folder}, row {start + offset + 1}", fields


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """Whatever libraries make of a damaged folder, in one sentence."""
    try:
        yield
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise TextError(f"{folder} cannot be read as a dataset: {words.rstrip('.')}.") from error
