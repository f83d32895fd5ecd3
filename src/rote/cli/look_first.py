"""What can be seen to be missing, before libraries that take seconds are imported."""

from collections.abc import Sequence


def look_first(*, model: str, texts: Sequence[str] = ()) -> None:
    """Refuse texts and model folders that are not there or are no plain files. Reads no text and no weights."""
    from rote.corpus.sources import find_files
    from rote.models.model_folder import local_folder

    find_files(texts)
    local_folder(model)
