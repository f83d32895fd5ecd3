"""The figure of membership scores, where a run has them."""

from collections.abc import Sequence

from rote.report.drawing import Drawing
from rote.report.figures.roc_curves import roc_curves
from rote.report.separation import few_controls_words, separations
from rote.report.view import RunView


def membership_drawings(views: Sequence[RunView]) -> list[Drawing]:
    """One figure for every run that has membership scores and both sides."""
    drawings = []
    for index, view in enumerate(views):
        entries = separations(view)
        if entries:
            caption = (
                "How well each score tells target windows from controls: the share of targets above a threshold "
                "against the share of controls above it, which is 0 at the left edge. Straight rises, bent by the "
                f"logarithmic axis, are ties. {few_controls_words(entries[0].controls)}; intervals are in the table."
            )
            suffix, title = (f"-run{index + 1}", view.label) if len(views) > 1 else ("", "")
            drawings.append(Drawing(f"membership{suffix}", caption, roc_curves(entries, title=title), "membership"))
    return drawings
