"""`byrote recall` as a run folder: both texts, a row for every block, and the numbers.

RUN/texts.parquet      the book, then the text that may contain it
RUN/results.parquet    one row a block: where it stands in both, and how many words it has
RUN/manifest.json      written last: the numbers, with versions and hashes
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from byrote.corpus.documents import Document
from byrote.errors import RunError
from byrote.longform.matching import MergePass
from byrote.longform.recall import RecallBlock, RecallResult, nv_recall
from byrote.store.columns import Column, Schema
from byrote.store.read import read_run
from byrote.store.session import RunSession

BLOCK_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    *(
        Column(field.name, "text" if field.name == "placement" else "int64", is_required=True)
        for field in fields(RecallBlock)
    ),
)


@dataclass(frozen=True)
class RecallRun:
    """A finished measurement, with its texts."""

    path: Path
    run_id: str
    manifest: dict[str, Any]
    book: str
    generation: str
    book_name: str
    generation_name: str
    result: RecallResult


def recall_to_folder(
    book: Document,
    generation: Document,
    out: Path,
    *,
    passes: Sequence[MergePass],
    repeated_passes: int,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> RecallResult:
    """Measure, and keep everything the number rests on; a finished run is read, not measured again."""
    config = {"passes": [asdict(each) for each in passes], "repeated_passes": repeated_passes}
    texts = {"book": book.content_hash, "generation": generation.content_hash}
    with RunSession.open(
        out, kind="recall", identity={"config": config, "texts": texts}, schema=BLOCK_COLUMNS, fresh=fresh
    ) as session:
        if session.is_complete:
            return read_recall(out).result
        result = nv_recall(book.text, generation.text, passes=passes, repeated_passes=repeated_passes)
        session.write_texts([book, generation])
        session.complete_with(_rows(result), _manifest(config, book, generation, result, command_line))
        return result


def read_recall(path: Path) -> RecallRun:
    """The measurement at `path`; a RunError when it is another kind of run, unfinished, or not as it was written."""
    run = read_run(path)
    if run.kind != "recall" or run.manifest is None or run.texts is None:
        state = "unfinished" if run.manifest is None else "complete"
        raise RunError(f"{path} holds a {run.kind} run ({state}), not a finished recall; run its command again.")
    book, generation = run.texts.to_dicts()
    result = RecallResult.from_record(run.manifest["recall"])
    return RecallRun(
        path, run.run_id, run.manifest, book["text"], generation["text"], book["name"], generation["name"], result
    )


def _rows(result: RecallResult) -> list[dict[str, Any]]:
    return [
        {"window_id": f"block-{number:06d}", **asdict(block), "placement": str(block.placement)}
        for number, block in enumerate((*result.blocks, *result.out_of_order))
    ]


def _manifest(
    config: dict[str, Any], book: Document, generation: Document, result: RecallResult, command_line: Sequence[str]
) -> dict[str, Any]:
    return {
        "config": config,
        "texts": {
            name: {"content_hash": text.content_hash, "characters": text.characters}
            for name, text in ((book.name, book), (f"generation:{generation.name}", generation))
        },
        "command_line": command_line,
        "totals": {
            "nv_recall": result.nv_recall,
            "matched_words": result.matched_words,
            "book_words": result.book_words,
        },
        "recall": result.record(),
    }
