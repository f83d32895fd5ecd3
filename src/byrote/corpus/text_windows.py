"""Windows of fixed numbers of characters: the same stretches of text for every tokenizer.

A window begins at the first word at or behind its start. Its prefix is the text from there to the last end of a word
within `prefix_chars`, its target goes on to the last end of a word within `suffix_chars` more. Where no word begins or
ends in half of that stretch, as in scripts without blanks, the cut is made at the character, never before a mark.

Prefix and target are tokenised together where a token begins at the cut, before or behind the white space; otherwise
each by itself.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from byrote.corpus.windows import ShortWindow, Tokenizer, WindowStart, start_batches
from byrote.normal_form import normalised
from byrote.types import Encoding, Window

_WORD_START = re.compile(r"(?<!\S)\S")
_WORD_END = re.compile(r"\S(?!\S)")


@dataclass(frozen=True, slots=True)
class TextWindowOptions:
    """How windows are cut by characters. `stride_chars` None means one window at the start of each document."""

    prefix_chars: int
    suffix_chars: int
    stride_chars: int | None

    @property
    def needed(self) -> str:
        """What a text must have from a start on, in words."""
        return f"prefix + suffix need {self.prefix_chars} + {self.suffix_chars} characters"


class CutSpan(NamedTuple):
    """Where prefix and target of a window lie: `text[start:cut]` and `text[cut:end]`, a blank between them in the
    target."""

    start: int
    cut: int
    end: int


def span_at(text: str, start: int, options: TextWindowOptions) -> CutSpan | None:
    """The window of a start; None where the text ends too soon, or the target is nearly all blanks."""
    search_end = start + options.prefix_chars // 2
    found = _WORD_START.search(text, start, search_end)
    first = found.start() if found else _no_mark(text, start)
    cut = _last_end(text, first, options.prefix_chars)
    end = _last_end(text, cut, options.suffix_chars)
    is_whole = first + options.prefix_chars + options.suffix_chars <= len(text)
    if not is_whole or len(normalised(text[cut:end])) < options.suffix_chars // 2:
        return None
    return CutSpan(first, cut, end)


def _last_end(text: str, start: int, most: int) -> int:
    """The end of the last word in the second half of so many characters; else their end."""
    ends = (found.end() for found in _WORD_END.finditer(text, start + most // 2, start + most))
    # The stretch may end within a word.
    *_, last = (None, *(end for end in ends if end == len(text) or text[end].isspace()))
    return _no_mark(text, start + most) if last is None else last


def _no_mark(text: str, place: int) -> int:
    """This place, or the next before it that is not before a mark."""
    while 0 < place < len(text) and unicodedata.category(text[place]).startswith("M"):
        place -= 1
    return place


def cut_text_starts(
    starts: Iterable[WindowStart], tokenizer: Tokenizer, options: TextWindowOptions, *, bos_id: int | None
) -> Iterator[Window | ShortWindow]:
    """A window or a ShortWindow for each start, in the same order; tokenised in batches."""
    for batch in start_batches(starts):
        spans = [span_at(start.document.text, start.char_start, options) for start in batch]
        pairs = [
            (start.document.text[span.start : span.cut], start.document.text[span.cut : span.end])
            for start, span in zip(batch, spans, strict=True)
            if span is not None
        ]
        tokens = iter(_tokenised(pairs, tokenizer))
        for start, span in zip(batch, spans, strict=True):
            document, char_start = start
            if span is None:
                yield ShortWindow(document.name, char_start, document.characters - char_start)
                continue
            prefix_ids, suffix_ids = next(tokens)
            yield Window(
                window_id=start.window_id,
                document=document.name,
                split=document.split,
                char_start=char_start,
                suffix_char_start=span.cut,
                char_end=span.end,
                prefix_ids=(() if bos_id is None else (bos_id,)) + prefix_ids,
                suffix_ids=suffix_ids,
                suffix_text=document.text[span.cut : span.end],
            )


def _tokenised(pairs: list[tuple[str, str]], tokenizer: Tokenizer) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Tokens of prefix and target."""
    together = tokenizer.encode_batch([prefix + target for prefix, target in pairs])
    places = [_boundary(one, *pair) for one, pair in zip(together, pairs, strict=True)]
    apart = [part for pair, place in zip(pairs, places, strict=True) if place is None for part in pair]
    alone = iter(tokenizer.encode_batch(apart))
    for encoding, place in zip(together, places, strict=True):
        if place is not None:
            yield tuple(encoding.ids[:place]), tuple(encoding.ids[place:])
        else:
            yield tuple(next(alone).ids), tuple(next(alone).ids)


def _boundary(encoding: Encoding, prefix: str, target: str) -> int | None:
    """How many tokens are the prefix, where one begins at the cut: before the white space there, or behind it."""
    cut, word = len(prefix), len(prefix) + len(target) - len(target.lstrip())
    for place, (start, _) in enumerate(encoding.spans):
        if start >= cut:
            is_clean = place > 0 and start <= word and encoding.spans[place - 1][1] <= word
            return place if is_clean else None
    return None
