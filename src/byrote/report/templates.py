"""Templates of every page: one frame, and whatever comes from texts, names or manifests is escaped, never markup."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from byrote import __version__
from byrote.report.words import THIN_SPACE

FOLDER = Path(__file__).parent / "html"
COUNT = re.compile(r"(?<=\d) of (?=\d)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
KIND_WORDS = {"mc": "Samples", "study_montecarlo": "Samples of a study"}


def rendered(
    template: str, *, styles: Sequence[Path] = (), folder: Path = FOLDER, trims: bool = True, **values: Any
) -> str:
    """The page that `template` (of `folder`) makes of the values, in the style of all pages and its own `styles`."""
    environment = Environment(
        loader=FileSystemLoader([folder, FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=trims,
        lstrip_blocks=trims,
    )
    environment.filters["tied"] = tied
    environment.filters["kind_words"] = lambda kind: KIND_WORDS.get(kind, kind.capitalize())
    style = "".join(path.read_text(encoding="utf-8") for path in (FOLDER / "page.css", *styles))
    return environment.get_template(template).render(**values, style=Markup(style), version=__version__)


def tied(text: str) -> Markup:
    """No line break inside a number, between it and its percent sign, in `3 of 4`, or inside the name of an option."""
    words = text.replace(" %", "\u00a0%").replace(" × ", "\u00a0×\u00a0").replace(THIN_SPACE, "\u202f")
    words = COUNT.sub("\u00a0of\u00a0", words)
    return Markup(OPTION.sub(r'<span class="option">\g<0></span>', str(escape(words))))


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


_DOCUMENT = files("byrote.report.html").joinpath("glossary.md").read_text(encoding="utf-8")
GLOSSARY, FURTHER = (read_glossary(_DOCUMENT, heading) for heading in PARTS)
"""What the page of a scan defines, and what pages of other runs define beside it."""
