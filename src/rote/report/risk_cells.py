"""The risk of whole documents as a table of the page."""

from collections.abc import Sequence

from rote.report.content import Cells
from rote.report.risk import DOCUMENTS_SHOWN, chances, document_risks, works_of
from rote.report.view import Document, RunView
from rote.report.words import percent
from rote.types import Split

QUERIES = (1.0, 100.0, 10_000.0)
NOTE = (
    "Somebody asks n times, each time a window of the document at random: the chance that some answer is the passage "
    "or within the edit budget of it, from what is certified to the limit at 95 % confidence. A window that was "
    "neither searched nor sampled counts as certain in the limit."
)


def risk_cells(views: Sequence[RunView]) -> tuple[Cells, ...]:
    """The works that leak most, within the widest edit budget measured; nothing without a work."""
    works = [(view, document) for view in views for document in works_of(view)]
    if not works:
        return ()
    rows = [_row(view, document, is_alone=len(views) == 1) for view, document in works[:DOCUMENTS_SHOWN]]
    more = len(works) - DOCUMENTS_SHOWN
    note = f"{NOTE} {more} more rows are in tables/risk.csv." if more > 0 else NOTE
    title = "Risk of whole documents: the chance that n random queries bring out a passage"
    heads = ("document", *(f"n = {queries:,.0f}" for queries in QUERIES), f"of its text, n = {QUERIES[-1]:,.0f}")
    return (Cells("risk", title, heads, tuple(rows), note),)


def _row(view: RunView, document: Document, *, is_alone: bool) -> tuple[str, ...]:
    risks = document_risks(view, document, QUERIES)[-len(QUERIES) :]
    name = document.name if is_alone else f"{view.label}: {document.name}"
    side = "" if document.split == Split.TARGET else ", control"
    shares = percent(risks[-1].share_low), percent(risks[-1].share_limit)
    return f"{name}{side}", *map(chances, risks), shares[0] if shares[0] == shares[1] else " to ".join(shares)
