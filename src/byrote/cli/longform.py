"""`byrote audit` and `byrote recall`."""

import sys

from byrote.cli.commands import RecallOptions, Session
from byrote.cli.console import make_console, make_status
from byrote.corpus.read import read_only
from byrote.longform.options import AuditCommand, AuditOptions
from byrote.longform.recall import nv_recall
from byrote.longform.recall_run import recall_page, recall_to_folder, summary, write
from byrote.longform.report import read, write_exhibit
from byrote.longform.run import perform_audit, read_audit
from byrote.report.terminal import print_content
from byrote.report.words import plural
from byrote.store.files import atomic_file, write_json
from byrote.types import Split


def audit(command: AuditCommand, options: AuditOptions) -> None:
    with make_status("asking …") as say:
        result = perform_audit(
            command,
            options,
            command_line=tuple(sys.argv),
            on_answer=lambda place, answered: say(f"{answered:,} answers, now after {place}"),
        )
    console = make_console()
    print_content(read([command.out]), console)
    console.print(f"{plural(result.sent, 'request')} sent by this process")
    if command.endpoint is None and command.context_tokens is None:
        tokens = read_audit(command.out).manifest["model"]["context_tokens"]
        console.print(
            f"context: {'without limit' if tokens is None else f'{tokens:,} tokens, all that the model takes'}; "
            "where it was trained on shorter sequences, a smaller --context-tokens can recover more",
            soft_wrap=True,
        )
    paths = write_exhibit(command.out)
    for path in (paths.page, paths.others[0]):
        console.print(str(path), soft_wrap=True)


def recall(options: RecallOptions, session: Session) -> None:
    book, generation = (read_only(path, split=Split.TARGET) for path in (options.book, options.generation))
    passes, repeated = options.passes, options.repeated_passes
    if options.out is None:
        result = nv_recall(book.text, generation.text, passes=passes, repeated_passes=repeated)
    else:
        result = recall_to_folder(
            book, generation, options.out, passes=passes, repeated_passes=repeated, command_line=sys.argv,
            fresh=session.fresh,
        )  # fmt: skip
    console = make_console()
    print_content(summary(result, book=book.name, generation=generation.name), console)
    if options.out is not None:
        page = write([options.out], options.out / "report").page
        console.print(str(page), soft_wrap=True)
    if options.html is not None:
        title = f"{generation.name} against {book.name}"
        with atomic_file(options.html) as file:
            file.write(recall_page(book.text, generation.text, result, title=title).encode())
        console.print(str(options.html), soft_wrap=True)
    if options.json is not None:
        write_json(options.json, result.record())
