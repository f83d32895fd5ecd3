"""Hooks of mkdocs: the README is the first page of the site, and what is not on the site is linked on GitHub."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

README = Path(__file__).parent.parent / "README.md"


def on_files(files: Files, config: Any) -> Files:
    repository = config.repo_url.rstrip("/")
    text = README.read_text(encoding="utf-8").replace(f"{repository}/blob/main/docs/", "")
    raw = repository.replace("github.com", "raw.githubusercontent.com")
    files.append(File.generated(config, "index.md", content=text.replace(f"{raw}/main/docs/", "")))
    return files


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    return markdown.replace("](../", f"]({config.repo_url.rstrip('/')}/blob/main/")
