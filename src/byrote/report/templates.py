"""Templates of pages, Markdown and XML: what all of them share."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from byrote import __version__
from byrote.report.words import THIN_SPACE, count_of, integer, interval_words, percent, plural, probability

FOLDER = Path(__file__).parent / "html"
KIND_WORDS = {"mc": "Samples"}
COUNT = re.compile(r"(?<=\d) of (?=\d)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def rendered(template: str, *, styles: Sequence[Path] = (), folder: Path = FOLDER, **values: Any) -> str:
    """What `template` (of `folder`) makes of the values; pages are in the style of all pages and their own `styles`.

    Values are escaped, except in Markdown, where `markdown_safe` marks names.
    """
    environment = Environment(
        loader=FileSystemLoader([folder, FOLDER]),
        autoescape=not template.endswith(".md"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (tied, markdown_safe, percent, integer, interval_words, count_of, probability, plural)
    environment.filters |= {one.__name__: one for one in filters}
    environment.filters["kind_words"] = lambda kind: KIND_WORDS.get(kind, kind.capitalize())
    style = "".join(path.read_text(encoding="utf-8") for path in (FOLDER / "page.css", *styles))
    return environment.get_template(template).render(**values, style=Markup(style), version=__version__)


def tied(text: str) -> Markup:
    """No line break inside a number, between it and its percent sign, in `3 of 4`, or inside the name of an option."""
    words = text.replace(" %", "\u00a0%").replace(" × ", "\u00a0×\u00a0").replace(THIN_SPACE, "\u202f")
    words = COUNT.sub("\u00a0of\u00a0", words)
    return Markup(OPTION.sub(r'<span class="option">\g<0></span>', str(escape(words))))


def markdown_safe(name: str) -> str:
    """A name that cannot leave its code span or its table cell."""
    return name.replace("`", "'").replace("|", "¦").replace("\n", " ")
