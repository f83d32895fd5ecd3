"""Windows of fixed numbers of characters: the same stretches of text for every tokenizer.

A window begins at the first word at or behind its start. Its prefix is the text from there to the last end of a word
within `prefix_chars`, its target goes on to the last end of a word within `suffix_chars` more. Where no word begins or
ends in half of that stretch, as in scripts without blanks, the cut is made at the character, never before a mark.

Prefix and target are tokenised together where a token begins at the cut, before or behind the white space; otherwise
each by itself. A long passage goes on with blocks that are cut like the target, each tokenised with the one before.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from byrote.corpus.windows import ShortWindow, Tokenizer, WindowStart, start_batches
from byrote.normal_form import normalised
from byrote.types import Encoding, PassageBlock, Window

_WORD_START = re.compile(r"(?<!\S)\S")
_WORD_END = re.compile(r"\S(?!\S)")


@dataclass(frozen=True, slots=True)
class TextWindowOptions:
    """How windows are cut by characters. `stride_chars` None means one window at the start of each document."""

    prefix_chars: int
    suffix_chars: int
    stride_chars: int | None
    blocks: int = 1
    """Of a long passage, which begins with the target."""

    @property
    def needed(self) -> str:
        """What a text must have from a start on, in words."""
        return f"prefix + suffix need {self.prefix_chars} + {self.blocks * self.suffix_chars} characters"


def places_at(text: str, start: int, options: TextWindowOptions) -> tuple[int, ...] | None:
    """Where the window of a start begins, its prefix ends, and its target and every further block; None where the text
    ends too soon, or a block of the target is nearly all blanks. A blank at a cut belongs to what follows it."""
    first = first_word(text, start, options.prefix_chars)
    if first + options.prefix_chars + options.blocks * options.suffix_chars > len(text):
        return None
    places = [first, _last_end(text, first, options.prefix_chars)]
    for _ in range(options.blocks):
        end = _last_end(text, places[-1], options.suffix_chars)
        if len(normalised(text[places[-1] : end])) < options.suffix_chars // 2:
            return None
        places.append(end)
    return tuple(places)


def first_word(text: str, start: int, most: int) -> int:
    """The beginning of the first word in the first half of so many characters; else their beginning."""
    found = _WORD_START.search(text, start, start + most // 2)
    return found.start() if found else _no_mark(text, start)


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
        cuts = [places_at(start.document.text, start.char_start, options) for start in batch]
        parts = [
            [start.document.text[first:end] for first, end in pairwise(places or ())]
            for start, places in zip(batch, cuts, strict=True)
        ]
        tokens = iter(tokenised([pair for texts in parts for pair in pairwise(texts)], tokenizer))
        for start, places, texts in zip(batch, cuts, parts, strict=True):
            if places is None:
                left = start.document.characters - start.char_start
                yield ShortWindow(start.document.name, start.char_start, left)
                continue
            (prefix_ids, suffix_ids), *further = islice(tokens, options.blocks)
            _, suffix_text, *further_texts = texts
            yield Window(
                window_id=start.window_id,
                document=start.document.name,
                split=start.document.split,
                char_start=start.char_start,
                suffix_char_start=places[1],
                char_end=places[2],
                prefix_ids=(() if bos_id is None else (bos_id,)) + prefix_ids,
                suffix_ids=suffix_ids,
                suffix_text=suffix_text,
                blocks=tuple(PassageBlock(ids, text) for (_, ids), text in zip(further, further_texts, strict=True)),
            )


def tokenised(
    pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Tokens of both texts of each pair."""
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
