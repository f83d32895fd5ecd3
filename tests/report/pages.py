"""A page of one view, without figures."""

from pathlib import Path

from byrote.report.scan_page import render_page
from byrote.report.view import RunView


def render_to(path: Path, view: RunView) -> Path:
    path.write_text(render_page([view], [], None), encoding="utf-8")
    return path
