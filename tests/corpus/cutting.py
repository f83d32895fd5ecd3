"""All windows of documents, one start after the other: what every way of choosing windows is judged by."""

from collections.abc import Sequence

from byrote.corpus.read import Document, require_unique_names
from byrote.corpus.windows import (
    Selection,
    Tally,
    Tokenizer,
    WindowOptions,
    WindowSet,
    WindowStart,
    count_by_split,
    cut_starts,
    starts_of,
)
from byrote.types import Window


def cut_windows(
    documents: Sequence[Document], tokenizer: Tokenizer, options: WindowOptions, *, bos_id: int | None
) -> WindowSet:
    require_unique_names(documents)
    starts = (
        WindowStart(document, place) for document in documents for place in starts_of(document, options.stride_chars)
    )
    tally, windows = Tally(), []
    for cut in cut_starts(starts, tokenizer, options, bos_id=bos_id):
        tally.add(cut)
        if isinstance(cut, Window):
            windows.append(cut)
    return WindowSet(windows, tally, Selection("all", None, 0, count_by_split(documents, options.stride_chars)))
