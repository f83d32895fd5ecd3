"""`rote.prior` and `rote.audit`: what the commands of these names do, from Python."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rote.interface.saved import SavedRun
from rote.longform.audit_folder import AuditFolder, read_audit
from rote.longform.command import AuditCommand, perform_audit
from rote.longform.options import AuditOptions
from rote.options import build, flags_of
from rote.options.convert import require_known
from rote.prior.options import PriorConfig
from rote.scan.api import Paths, load_model
from rote.store.progress import SilentProgress
from rote.store.read import read_run as read_stored


def prior(
    model: Any,
    text: Paths = (),
    *,
    prior_text: Paths,
    out: str | Path,
    fresh: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    **options: Any,
) -> SavedRun:
    """Tell memorized suffixes of `text` from merely likely ones, with prefixes drawn from `prior_text`; a run in `out`.

    `model` is what `load_model` takes or gives. `options` are those of `rote prior`. `say` is given what the run cannot
    settle, before the long part.
    """
    from rote.prior.run import prior_to_folder

    is_name = isinstance(model, str | Path)
    named = str(model) if is_name else load_model(model).name
    given = options | {"text": text, "prior_text": prior_text, "out": str(out)}
    config = build(PriorConfig, given | {"model": named}, place="rote.prior")
    with _progress(progress, "prefixes") as shown:
        done = prior_to_folder(
            config,
            progress=shown,
            say=say,
            command_line=["rote.prior"],
            fresh=fresh,
            model=None if is_name else load_model(model),
        )
    return SavedRun(read_stored(done.path))


def audit(
    model: str,
    book: str | Path,
    *,
    out: str | Path,
    on_answer: Callable[[str, int], None] = lambda place, answered: None,
    **options: Any,
) -> AuditFolder:
    """Ask a model to go on with a book and measure what comes back; a run with its exhibit in `out`.

    `model` is a name at `endpoint=` (a URL), or a folder or hub id. `options` are those of `rote audit`. `on_answer` is
    told the place and the number of answers so far.
    """
    from rote.cli.flags import gather
    from rote.longform.section import write_exhibit

    homes = (AuditCommand, AuditOptions)
    require_known(options, [flag.name for home in homes for flag in flags_of(home)], place="rote.audit")
    command, asked = gather(homes, options | {"model": model, "book": book, "out": out}, None)
    perform_audit(command, asked, command_line=("rote.audit",), on_answer=on_answer)
    write_exhibit(command.out)
    return read_audit(command.out)


def _progress(is_drawn: bool, unit: str) -> AbstractContextManager[Any]:
    if not is_drawn:
        return nullcontext(SilentProgress())
    from rote.cli.progress import make_progress

    return make_progress(unit)
