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

    verified = verify.verify_run(options.run)
    lines = list(verified.checked)
    if verified.identity.kind == "audit":
        lines += check_audit(verified)
    for name in (verified.manifest or {"files": {}})["files"]:
        # A study binds the manifests of its cells, and those bind their own files.
        if name.endswith("/manifest.json"):
            inner = verified.folder.path / Path(name).parent
            lines += [f"{Path(name).parent.as_posix()}/{line}" for line in verify.verify_run(inner).checked]
    console = make_console()
    for line in lines:
        console.print(line, soft_wrap=True)
    state = "unfinished" if verified.manifest is None else "complete"
    kind, run_id = verified.identity.kind, verified.identity.run_id
    console.print(f"{kind} run {run_id}, {state}: every file is as it was written.", soft_wrap=True)
