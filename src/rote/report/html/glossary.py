"""The definitions that every number of the page links to: the first part of docs/glossary.md."""

import re
from dataclasses import dataclass
from importlib.resources import files

PARTS = ("## What a reader meets\n", "## What pages of other runs say\n")
ENTRY = re.compile(
    r"### (?P<term>[^\n]+)\n<a id=\"(?P<anchor>[\w-]+)\"></a>\n(?P<text>.+?)\n\n(?:    (?P<formula>[^\n]+)\n)?", re.S
)


@dataclass(frozen=True)
class Definition:
    """One term: what it means in plain words, and the formula where there is one."""

    anchor: str
    term: str
    text: str
    formula: str | None = None

    @property
    def short(self) -> str:
        return self.text.split(". ")[0].rstrip(".") + "."


def read_glossary(document: str, heading: str = PARTS[0]) -> tuple[Definition, ...]:
    """The entries of one part."""
    part = document.split(heading)[1].split("\n## ")[0]
    return tuple(
        Definition(found["anchor"], found["term"], found["text"].replace("\n", " "), found["formula"])
        for found in ENTRY.finditer(part + "\n")
    )


_DOCUMENT = files("rote.report.html").joinpath("glossary.md").read_text(encoding="utf-8")
GLOSSARY, FURTHER = (read_glossary(_DOCUMENT, heading) for heading in PARTS)
"""What the page of a scan defines, and what pages of other runs define beside it."""
