"""Every kind of run there is, and the section that shows it. A new kind is one line here."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rote.errors import RunError
from rote.report.content import Section

SECTIONS = {
    "scan": "rote.scan.section",
    "mc": "rote.scan.mc_section",
    "prior": "rote.prior.section",
    "audit": "rote.longform.section",
    "recall": "rote.longform.recall_section",
    "counterfactual": "rote.lab.section",
    "study": "rote.study.section",
    "study_montecarlo": "rote.study.montecarlo_section",
}
"""Kind → the module whose `SECTION` shows it; imported when such a run is looked at."""


def kind_of(path: Path) -> str:
    """What a folder says it holds; a RunError when it holds no run."""
    from rote.store.folder import RunFolder
    from rote.store.identity import read_identity

    if not path.is_dir():
        raise RunError(f"{path} is not a folder; give the folder that was --out of a run.")
    identity = read_identity(RunFolder(path).identity)
    if identity is None:
        inside = f", or rote runs {path} for those inside" if any(path.glob("*/identity.json")) else ""
        raise RunError(
            f"{path} holds no rote run (no identity.json of one); give the folder that was --out of a run{inside}."
        )
    return identity.kind


def section_of(kind: str) -> Section:
    if kind not in SECTIONS:
        raise RunError(f"This rote cannot show runs of kind {kind!r}; it knows {', '.join(SECTIONS)}.")
    section: Section = import_module(SECTIONS[kind]).SECTION
    return section


def by_kind(runs: Sequence[Path]) -> dict[str, list[Path]]:
    """Runs grouped by kind, in the order in which kinds were first named."""
    groups: dict[str, list[Path]] = {}
    for run in runs:
        groups.setdefault(kind_of(run), []).append(run)
    return groups
