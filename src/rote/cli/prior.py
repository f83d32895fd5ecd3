"""`rote prior`: memorized, or merely likely?"""

import sys
from dataclasses import dataclass
from pathlib import Path

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.cli.look_first import look_first
from rote.cli.progress import make_progress
from rote.cli.scan import Session
from rote.errors import RunError
from rote.options import option, settle
from rote.prior.options import PriorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the terminal shows."""

    reveal: bool = option(
        False, "Print names, numbers and addresses in examples instead of masking them.", group="output"
    )

    def __post_init__(self) -> None:
        settle(self)


@command(PriorConfig, Session, Shown)
def prior(config: PriorConfig, session: Session, shown: Shown) -> None:
    """Tell memorized suffixes from merely likely ones: P(s|p) against the probability after other prefixes."""
    look_first(model=config.model, texts=(*config.text, *config.control, *config.prior_text))
    from rote.prior.run import prior_to_folder

    with make_progress("prefixes") as progress:
        done = prior_to_folder(config, progress=progress, say=_say, command_line=sys.argv, fresh=session.fresh)
    show_prior(done.path, reveal=shown.reveal)
    if done.was_complete:
        make_console(stderr=True).print(f"{done.path} was complete already; --fresh starts over.", soft_wrap=True)


def show_prior(path: Path, *, reveal: bool = False) -> None:
    """The summary of a finished prior run in the terminal."""
    from rote.prior.terminal import prior_summary
    from rote.store.read import read_run

    manifest = read_run(path).manifest
    if manifest is None:
        raise RunError(f"{path} is not finished, and a prior run has no rows before it is; run the same command again.")
    console = make_console()
    console.print(prior_summary(manifest["totals"], reveal=reveal))
    console.print(f"\nResults and figures: {path}", soft_wrap=True)


def _say(sentence: str) -> None:
    make_console(stderr=True).print(sentence)
