"""The figure of the risk of whole documents."""

from collections.abc import Sequence

import numpy as np

from rote.report.drawing import Drawing
from rote.report.figures.risk_curves import MOST_DOCUMENTS, risk_by_queries
from rote.report.risk import document_risks, works_of
from rote.report.view import Document, RunView
from rote.stats.curves import query_grid
from rote.types import Split

MOST_QUERIES = 1e6


def spread_out(works: Sequence[Document]) -> list[Document]:
    """As many as a figure holds: from the target that leaks most to the one that leaks least, then controls."""
    if len(works) <= MOST_DOCUMENTS:
        return list(works)
    controls = [work for work in works if work.split == Split.CONTROL]
    targets = [work for work in works if work.split == Split.TARGET]
    room = MOST_DOCUMENTS - min(2, len(controls)) if targets else 0
    return [*_evenly(targets, room), *_evenly(controls, MOST_DOCUMENTS - min(room, len(targets)))]


def _evenly(works: Sequence[Document], count: int) -> list[Document]:
    places = np.unique(np.linspace(0, len(works) - 1, min(count, len(works))).round().astype(int))
    return [works[place] for place in places]


def risk_drawings(views: Sequence[RunView]) -> list[Drawing]:
    """One figure for every run with documents of several windows; within the whole budget where it was measured."""
    drawings = []
    for index, view in enumerate(views):
        works = [document_risks(view, document, query_grid(MOST_QUERIES)) for document in spread_out(works_of(view))]
        widest = [[risk for risk in risks if risk.edits == risks[-1].edits] for risks in works]
        if widest:
            caption = (
                "Somebody asks n times about windows taken at random: the chance that some passage comes out, and the "
                "share of the characters in suffixes recovered on average. Of many documents, some from the one that "
                "leaks most to the one that leaks least."
            )
            suffix, title = (f"-run{index + 1}", view.label) if len(views) > 1 else ("", "")
            drawings.append(
                Drawing(f"risk{suffix}", caption, risk_by_queries(widest, title=title), "risk", is_wide=True)
            )
    return drawings
