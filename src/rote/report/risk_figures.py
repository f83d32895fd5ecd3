"""The figure of the risk of whole documents."""

from collections.abc import Sequence

from rote.report.drawing import Drawing
from rote.report.figures.risk_curves import MOST_DOCUMENTS, risk_by_queries
from rote.report.risk import document_risks, works_of
from rote.report.view import RunView


def risk_drawings(views: Sequence[RunView]) -> list[Drawing]:
    """One figure for every run with documents of several windows; within the whole budget where it was measured."""
    drawings = []
    for index, view in enumerate(views):
        works = [document_risks(view, document) for document in works_of(view)[:MOST_DOCUMENTS]]
        widest = [[risk for risk in risks if risk.edits == risks[-1].edits] for risks in works]
        if widest:
            caption = (
                "Somebody asks n times about windows taken at random: the chance that some passage comes out, and the "
                "share of the characters in suffixes recovered on average. Lines: at least; shaded up to: at most."
            )
            suffix, title = (f"-run{index + 1}", view.label) if len(views) > 1 else ("", "")
            drawings.append(
                Drawing(f"risk{suffix}", caption, risk_by_queries(widest, title=title), "risk", is_wide=True)
            )
    return drawings
