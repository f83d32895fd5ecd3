"""The page of views, without figures."""

from pathlib import Path

from byrote.report.page import page_text
from byrote.report.view import RunView
from byrote.scan.report import scan_content


def page_of(*views: RunView) -> str:
    return page_text([scan_content(views)])


def render_to(path: Path, *views: RunView) -> Path:
    path.write_text(page_of(*views), encoding="utf-8")
    return path
