"""`rote risk`: what random queries would bring out of a whole document, from a run's stored rows."""

from dataclasses import dataclass
from pathlib import Path

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.errors import ConfigError
from rote.options import Settled, option, required


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskOptions(Settled):
    run: Path = required("A run folder, finished or not.", group="output", positional=True)
    queries: tuple[float, ...] = option(
        (1.0, 100.0, 10_000.0, 1_000_000.0), "How many queries; may be repeated.", group="output", at_least=1
    )
    document: str | None = option(None, "Only this document.", group="output")


@command(RiskOptions)
def risk(options: RiskOptions) -> None:
    """Show the risk of whole documents: the chance that n random queries bring out a passage, and how much of them."""
    from rote.report.risk import show_risk, works_of
    from rote.report.view import load_view

    view = load_view(options.run)
    documents = works_of(view) or view.documents
    if options.document is not None:
        documents = [document for document in view.documents if document.name == options.document]
    if not documents:
        names = ", ".join(document.name for document in view.documents[:5])
        raise ConfigError(f"document is {options.document}, but the run has {names}; name one of its documents.")
    make_console().print(show_risk(view, documents, sorted(options.queries)))
