"""The consoles that commands print on: nothing that is printed acts on the terminal, and brackets are just brackets."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from rote.printable import printable


class SafeConsole(Console):
    """Styles come from styled text alone; control characters inside of it are shown, not sent."""

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_ours = segment.control is not None
            yield segment if is_ours else segment._replace(text=printable(segment.text, keep="\n"))


def make_console(*, stderr: bool = False) -> Console:
    return SafeConsole(stderr=stderr, markup=False, highlight=False, emoji=False)
