"""`rote verify-run`: is every file of a run the one that was written?"""

from dataclasses import dataclass
from pathlib import Path

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.options import Settled, required


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(Settled):
    run: Path = required("A run folder of any kind, finished or not.", group="output", positional=True)


@command(VerifyOptions)
def verify_run(options: VerifyOptions) -> None:
    """Check every file of a run against the hashes it was written with; the first that does not fit is named."""
    from rote.longform.replay import check_audit
    from rote.store import verify
    from rote.study.study_folder import check_cells

    verified = verify.verify_run(options.run)
    lines = list(verified.checked)
    if verified.identity.kind == "audit":
        lines += check_audit(verified)
    if verified.identity.kind == "study":
        lines += check_cells(verified)
    console = make_console()
    for line in lines:
        console.print(line, soft_wrap=True)
    state = "unfinished" if verified.manifest is None else "complete"
    kind, run_id = verified.identity.kind, verified.identity.run_id
    console.print(f"{kind} run {run_id}, {state}: every file is as it was written.", soft_wrap=True)
