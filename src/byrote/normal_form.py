"""The normal form of a text in which answer and target are compared as characters.

It is made code point by code point, so that the form of a text in pieces is that of the whole: the canonical
decomposition of each (a composed and a decomposed text become equal; marks count as characters), one kind of single and
double quotes, '-' for every dash, '...' for the ellipsis, ' ' for all white space, nothing for soft hyphens and
characters of no width. Then a run of blanks is one blank and a run of '-' is one; blanks at the beginning are dropped.
"""

import re
import unicodedata

LONGEST_FORM = 4
"""Characters in the normal form of one code point, at most."""
_SHAPES = (
    dict.fromkeys("‘’‚‛ʼ′‹›`´", "'")
    | dict.fromkeys("“”„‟«»″〝〞〟", '"')
    | dict.fromkeys("‐‑‒–—―−⸺⸻﹘", "-")
    | dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", "")
    | {"…": "..."}
)
_RUNS = re.compile(" {2,}|-{2,}")


class Forms(dict[int, str]):
    """The normal form of every code point, made when it is first needed."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        parts = " " if character.isspace() else unicodedata.normalize("NFD", character)
        self[code] = form = "".join(_SHAPES.get(part, part) for part in parts)
        return form


FORMS = Forms()


def normalised(text: str) -> str:
    """The normal form of a text."""
    return normalised_piece(text).lstrip(" ")


def normalised_piece(text: str) -> str:
    """The normal form of a piece of a text; a blank at its beginning is kept."""
    return _RUNS.sub(lambda run: run.group()[0], text.translate(FORMS))
