"""Choosing windows: all of them, the first N, or a seeded random N that survives the addition of other texts."""

import hashlib
import heapq
from collections.abc import Iterator, Sequence

from rote.corpus.documents import Document, require_unique_names
from rote.corpus.windows import (
    ShortWindow,
    Tokenizer,
    WindowOptions,
    WindowSet,
    WindowStart,
    collect,
    cut_starts,
    cut_windows,
    window_starts,
)
from rote.errors import ConfigError, WindowError
from rote.types import Window


def select_windows(
    documents: Sequence[Document],
    tokenizer: Tokenizer,
    options: WindowOptions,
    *,
    bos_id: int | None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> WindowSet:
    """The windows a run measures, in document order; at least one, else a WindowError that says why there is none.

    `limit` keeps the first N of all. `sample` keeps the N with the smallest key (`sample_key`) of all; with both,
    the first `limit` of the sample. Only what is needed is tokenised, and short windows are counted among that.
    """
    for name, value in (("limit", limit), ("sample", sample)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1.")
    require_unique_names(documents)
    if sample is not None:
        chosen = _sample(documents, tokenizer, options, bos_id=bos_id, size=sample, seed=seed)
        chosen = WindowSet(chosen.windows[:limit], chosen.short_by_document, chosen.longest_short)
    elif limit is not None:
        cuts = cut_starts(window_starts(documents, options), tokenizer, options, bos_id=bos_id)
        chosen = collect(_first(cuts, limit))
    else:
        chosen = cut_windows(documents, tokenizer, options, bos_id=bos_id)
    require_windows(chosen, options)
    return chosen


def sample_key(window_id: str, seed: int) -> bytes:
    """A random-looking key that depends on the id and the seed alone.

    The windows with the smallest keys are a uniform sample without replacement; because nothing else enters, a
    window of a larger corpus that is in the sample is in the sample of every smaller one that holds it.
    """
    return hashlib.blake2b(window_id.encode(), digest_size=16, key=str(seed).encode()).digest()


def require_windows(chosen: WindowSet, options: WindowOptions) -> None:
    """Raise a WindowError with the numbers unless there is at least one window."""
    if chosen.windows:
        return
    need = f"prefix + suffix need {options.prefix_tokens} + {options.suffix_tokens} = {options.tokens}"
    short = chosen.longest_short
    if short is None:
        raise WindowError(f"There is no document to cut windows from; {need} tokens of text.")
    where = short.document if short.char_start == 0 else f"{short.document} from character {short.char_start} on"
    others = len(chosen.short_by_document) - 1
    rest = f" and {others} other document{'s' * (others > 1)} no more" if others else ""
    raise WindowError(
        f"{where} has {short.tokens} tokens{rest}; {need}. "
        "Shorten --prefix-tokens or --suffix-tokens, or give more text."
    )


def _first(cuts: Iterator[Window | ShortWindow], limit: int) -> Iterator[Window | ShortWindow]:
    windows = 0
    for cut in cuts:
        yield cut
        windows += isinstance(cut, Window)
        if windows == limit:
            return


def _sample(
    documents: Sequence[Document],
    tokenizer: Tokenizer,
    options: WindowOptions,
    *,
    bos_id: int | None,
    size: int,
    seed: int,
) -> WindowSet:
    """The `size` windows of smallest key. Keys need only ids, so all other windows are never tokenised."""
    asked = size
    while True:
        candidates = _smallest(documents, options, count=asked, seed=seed)
        cuts = list(cut_starts(iter(start for _, _, start in candidates), tokenizer, options, bos_id=bos_id))
        long_enough = sum(isinstance(cut, Window) for cut in cuts)
        if long_enough >= size or len(candidates) < asked:
            break
        # Some came out short: look further down the same order.
        asked = 2 * asked
    examined = list(_first(iter(cuts), size))
    position_of = {start.window_id: position for _, position, start in candidates}
    examined.sort(key=lambda cut: position_of[f"{cut.document}@{cut.char_start}"])
    return collect(examined)


def _smallest(
    documents: Sequence[Document], options: WindowOptions, *, count: int, seed: int
) -> list[tuple[bytes, int, WindowStart]]:
    keyed = (
        (sample_key(start.window_id, seed), position, start)
        for position, start in enumerate(window_starts(documents, options))
    )
    return heapq.nsmallest(count, keyed)
