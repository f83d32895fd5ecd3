"""A figure on its way into the report."""

from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A finished figure with its file name, caption and the definition its caption links to."""

    name: str
    caption: str
    figure: Figure
    anchor: str | None = None
    is_wide: bool = False
