"""Every kind of run there is, and the section that shows it. A new kind is one line here."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from byrote.errors import ConfigError, RunError
from byrote.report.content import Asked, Link, Section, Written
from byrote.store.files import make_folder
from byrote.store.folder import RunFolder
from byrote.store.identity import read_identity

NOTHING_FURTHER = Asked()
SECTIONS = {
    "scan": "byrote.scan.report",
    "mc": "byrote.scan.mc_report",
    "prior": "byrote.prior.report",
    "audit": "byrote.longform.report",
    "recall": "byrote.longform.recall_report",
    "counterfactual": "byrote.lab.report",
    "study": "byrote.study.report",
    "study_montecarlo": "byrote.study.monte_carlo_report",
}
"""Kind → the module whose `SECTION` shows it; imported when such a run is shown."""


def kind_of(path: Path) -> str:
    """The kind of the run in a folder; a RunError when it holds none."""
    if not path.is_dir():
        raise RunError(f"{path} is not a folder; give the folder that was --out of a run.")
    identity = read_identity(RunFolder(path).identity)
    if identity is None:
        inside = f", or byrote runs {path} for those inside" if any(path.glob("*/identity.json")) else ""
        raise RunError(
            f"{path} holds no byrote run (no identity.json of one); give the folder that was --out of a run{inside}."
        )
    return identity.kind


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


def write_report(runs: tuple[Path, ...], out: Path, asked: Asked = NOTHING_FURTHER) -> Written:
    """The kind's own page when all runs are of one kind; otherwise one page that holds and links them all."""
    from byrote.report.page import write_page  # waits for matplotlib

    if not runs:
        raise ConfigError("No run was given; name at least one folder that was --out of a run.")
    groups = by_kind(runs)
    sections = {kind: section_of(kind) for kind in groups}
    if len(groups) == 1:
        ((kind, paths),) = groups.items()
        section = sections[kind]
        return write_page([section.read(paths)], out) if section.write is None else section.write(paths, out, asked)
    if asked.threshold is not None:
        raise ConfigError(f"threshold is {asked.threshold}, but runs of several kinds were given; give scans alone.")
    contents, others = [], []
    for kind, paths in groups.items():
        content, write = sections[kind].read(paths), sections[kind].write
        if write is not None:
            make_folder(out / kind, inside=out)
            own = write(paths, out / kind, asked)
            link = Link("The whole report, with its texts", own.page.relative_to(out).as_posix())
            content = replace(content, links=(*content.links, link))
            others += [own.page, *own.others]
        contents.append(content)
    page = write_page(contents, out)
    return Written(page.page, (*page.others, *others))
