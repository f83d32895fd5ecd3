"""The page of views, without figures."""

from pathlib import Path

from byrote.report.page import PagePart, page_html
from byrote.report.view import RunView
from byrote.scan.report import scan_content


def page_of(*views: RunView) -> str:
    content = scan_content(views)
    return page_html([PagePart(content, content.reader() if content.reader else None, (), "")])


def render_to(path: Path, *views: RunView) -> Path:
    path.write_text(page_of(*views), encoding="utf-8")
    return path
