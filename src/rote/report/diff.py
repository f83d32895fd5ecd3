"""A page that shows two texts as one: shared words plain, left-out words struck through, added words marked.

Self-contained (no script, no outside file) and escaped: the texts come from strangers and from models.
"""

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; --missing: #b3261e; --added: #1a56b0; --elsewhere: #7a5b00; --rule: #8884 }
@media (prefers-color-scheme: dark) { :root { --missing: #ff8a80; --added: #8ab4ff; --elsewhere: #e3c46b } }
body { font: 17px/1.6 Georgia, serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem }
table { border-collapse: collapse; font: 14px/1.4 system-ui, sans-serif }
td, th { border-bottom: 1px solid var(--rule); padding: .2rem .8rem .2rem 0; text-align: left; font-weight: normal }
td { font-variant-numeric: tabular-nums }
main { white-space: pre-wrap; overflow-wrap: anywhere; margin-top: 1.5rem }
del { color: var(--missing) }
ins { color: var(--added); text-decoration: none; font-weight: 600 }
mark { color: var(--elsewhere); background: none; text-decoration: underline dotted }
.legend { font: 14px/1.4 system-ui, sans-serif }
"""
_LEGEND = (
    '<p class="legend">Counted as reproduced · <del>book, not reproduced</del> · '
    "<ins>generation, not from the book</ins> · <mark>generation, from elsewhere in the book</mark><br>"
    "Matches too short to count are shown as different.</p>"
)
_TAGS = {"same": "span", "missing": "del", "added": "ins", "elsewhere": "mark"}


def diff_page(segments: Iterable[Sequence[object]], *, title: str, facts: Iterable[tuple[str, str]] = ()) -> str:
    """One HTML page. A segment starts with its kind (`same`, `missing`, `added` or `elsewhere`) and its text."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    body = "".join(_piece(str(kind), str(text)) for kind, text, *_ in segments)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<h1>{escape(title)}</h1>\n<table>{rows}</table>\n{_LEGEND}\n<main>{body}</main>\n</body>\n</html>\n"
    )


def _piece(kind: str, text: str) -> str:
    """The text in its tag, followed by white space; a line end stays outside, where it separates what follows."""
    words = text.rstrip()
    return f"<{_TAGS[kind]}>{escape(words)}</{_TAGS[kind]}>{text[len(words) :] or ' '}"
