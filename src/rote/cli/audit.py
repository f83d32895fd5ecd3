"""`rote audit`: how much of a book a chat endpoint or a local model reproduces at length."""

import sys

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.cli.progress import make_status
from rote.longform.command import AuditCommand, perform_audit
from rote.longform.options import PROFILES, AuditOptions


@command(AuditCommand, AuditOptions, profiles=PROFILES)
def audit(command: AuditCommand, options: AuditOptions) -> None:
    """Measure how much of a book a model reproduces when it is asked to go on and on."""
    from rote.longform.audit_folder import read_audit
    from rote.longform.exhibit_lines import terminal_lines
    from rote.longform.section import write_exhibit
    from rote.report.words import plural

    with make_status("asking …") as say:
        result = perform_audit(
            command,
            options,
            command_line=tuple(sys.argv),
            on_answer=lambda place, answered: say(f"{answered:,} answers, now after {place}"),
        )
    console = make_console()
    folder = read_audit(command.out)
    for line in (*terminal_lines(folder), f"{plural(result.sent, 'request')} sent by this process"):
        console.print(line)
    if command.endpoint is None and command.context_tokens is None:
        tokens = folder.manifest["model"]["context_tokens"]
        console.print(
            f"context: {'without limit' if tokens is None else f'{tokens:,} tokens, all that the model takes'}; "
            "where it was trained on shorter sequences, a smaller --context-tokens can recover more",
            soft_wrap=True,
        )
    paths = write_exhibit(command.out)
    for path in (paths.page, paths.bundle):
        console.print(str(path), soft_wrap=True)
