"""Every kind of run, and the section that shows it; reports of runs of any kinds. A new kind is one line here."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from byrote.errors import ConfigError, RunError
from byrote.report.content import DEFAULTS, Asked, Link, Section, Written
from byrote.store.files import make_folder
from byrote.store.folder import RunFolder

SECTIONS = {
    "scan": "byrote.scan.report",
    "mc": "byrote.scan.mc_report",
    "prior": "byrote.prior.report",
    "audit": "byrote.longform.report",
    "recall": "byrote.longform.recall_run",
    "counterfactual": "byrote.lab.counterfactual",
    "study": "byrote.study.report",
}
"""Kind → the module whose `SECTION` shows it, imported when needed."""


def kind_of(path: Path) -> str:
    """The kind in the folder's identity; a RunError when it holds no run."""
    return RunFolder(path).require_identity().kind


def section_of(kind: str) -> Section:
    if kind not in SECTIONS:
        raise RunError(f"This byrote cannot show runs of kind {kind!r}; its kinds are {', '.join(SECTIONS)}.")
    section: Section = import_module(SECTIONS[kind]).SECTION
    return section


def by_kind(runs: Sequence[Path]) -> dict[str, list[Path]]:
    """Runs grouped by kind, in the order in which kinds were first named."""
    groups: dict[str, list[Path]] = {}
    for run in runs:
        groups.setdefault(kind_of(run), []).append(run)
    return groups


def write_report(runs: Sequence[Path], out: Path, asked: Asked = DEFAULTS) -> Written:
    """The kind's own page when all runs are of one kind; otherwise one page that holds and links them all."""
    from byrote.report.page import write_page

    if not runs:
        raise ConfigError("No run was given; name at least one folder that was --out of a run.")
    groups = by_kind(runs)
    if asked.threshold is not None and len(groups) > 1:
        raise ConfigError(f"threshold is {asked.threshold}, but runs of several kinds were given; give scans alone.")
    contents, others = [], []
    for kind, paths in groups.items():
        section = section_of(kind)
        if section.write is not None and len(groups) == 1:
            return section.write(paths, out)
        if not section.is_compared:
            contents += [section.read([path], asked) for path in paths]
            continue
        content = section.read(paths, asked)
        if section.write is not None:
            make_folder(out / kind, inside=out)
            own = section.write(paths, out / kind)
            link = Link("The whole report, with its texts", own.page.relative_to(out).as_posix())
            content = replace(content, links=(*content.links, link))
            others += [own.page, *own.others]
        contents.append(content)
    page = write_page(contents, out)
    return Written(page.page, (*page.others, *others))
