"""Where an audit begins: the seed of a book, or of each of its chapters."""

import re
from dataclasses import dataclass

from rote.errors import TextError
from rote.longform.options import AuditOptions


@dataclass(frozen=True, slots=True)
class Section:
    """One place to start from. `prefix` and `target` stand in the book one after the other, from `char_start` on."""

    name: str
    char_start: int
    prefix: str
    target: str


def cut_sections(book: str, options: AuditOptions) -> list[Section]:
    """One section for the whole book, or one per chapter whose text is long enough for a seed."""
    if not book.strip():
        raise TextError("The book is empty; give a text with at least the words of the seed.")
    if not options.chapters:
        return [_section("book", book, options.seed_start, len(book), options)]
    headings = list(re.finditer(options.chapter_pattern, book))
    if not headings:
        raise TextError(
            f"No chapter heading matches {options.chapter_pattern!r}; set chapter_pattern, or audit the book as one."
        )
    ends = [heading.start() for heading in headings[1:]] + [len(book)]
    sections = []
    for heading, end in zip(headings, ends, strict=True):
        if len(book[heading.end() : end].split()) >= options.prefix_words + options.target_words:
            sections.append(_section(heading.group().strip(), book, heading.end(), end, options))
    if not sections:
        raise TextError(
            f"None of {len(headings)} chapters has the {options.prefix_words + options.target_words} words of a seed; "
            "shorten prefix_words and target_words."
        )
    return sections


def _section(name: str, book: str, start: int, end: int, options: AuditOptions) -> Section:
    words = list(re.finditer(r"\S+", book[start:end]))
    needed = options.prefix_words + options.target_words
    if len(words) < needed:
        raise TextError(
            f"The book has {len(words)} words from character {start} on; the seed needs {needed} "
            f"({options.prefix_words} + {options.target_words}). Shorten prefix_words and target_words."
        )
    prefix = slice(start + words[0].start(), start + words[options.prefix_words - 1].end())
    target = slice(start + words[options.prefix_words].start(), start + words[needed - 1].end())
    return Section(name, prefix.start, book[prefix], book[target])
