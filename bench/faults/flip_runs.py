"""Small runs of every kind for the campaign against files, finished and stopped on the way, made by the commands."""

import contextlib
import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli import every_kind
from tests.longform.audits import KEY, InProcess, invented_book, make_run
from tests.longform.test_audit_resume import Killed, kill_at_line, run_in_process
from tests.loopback.brains import KnowsByHeart
from tests.loopback.logprobs import LogprobServer
from tests.scan.scans import TinyLab, scan_arguments

from byrote.cli.main import main as byrote
from byrote.errors import RunError
from byrote.models.hf.model import load
from byrote.prior import run as prior_run
from byrote.report.view import load_view
from byrote.store.export import export_run
from byrote.store.read import read_run
from byrote.store.resume import RunSession

BOOK = invented_book(260)
SHARDED: dict[str, object] = {"stride_chars": 90, "screen_min_windows": 12, "screen_share": 0.05, "screen_floor": 0.2}

Reader = Callable[[Path], object]
Maker = Callable[[TinyLab, Path], object]


class Kind(NamedTuple):
    """How a run is made, after how many rows or blocks it is stopped (None: never), and what reads it."""

    make: Maker
    steps: int | None
    readers: dict[str, Reader]


class Cut(BaseException):
    """Ends a run on its way; no error, so that nobody makes a sentence of it."""


@contextlib.contextmanager
def cut_after(steps: int | None) -> Iterator[None]:
    """Inside, whatever is measured ends with the `steps`-th row or block that a run takes, small blocks among them."""
    left = steps

    def counted(original: Callable[..., None]) -> Callable[..., None]:
        def step(*given: Any, **named: Any) -> None:
            nonlocal left
            original(*given, **named)
            left = None if left is None else left - 1
            if left == 0:
                raise Cut

        return step

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Cut):
        patch.setattr(prior_run, "BLOCK_PREFIXES", 4)
        for name in ("add", "write_block"):
            patch.setattr(RunSession, name, counted(getattr(RunSession, name)))
        yield


def command(*arguments: object) -> None:
    """`byrote …`; what it refuses is a RunError with what was said."""
    said, ended = io.StringIO(), 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            byrote([str(argument) for argument in arguments])
        except SystemExit as end:
            ended = int(end.code or 0)
    if ended == 2:
        raise RunError(said.getvalue())
    assert ended == 0, said.getvalue()


def verify(path: Path) -> None:
    command("verify", path)


def show(path: Path) -> None:
    command("show", path)


def _shard(lab: TinyLab, out: Path) -> None:
    command(*scan_arguments(lab, out, control=lab.files.controls, shard="1/2", **SHARDED))


def _merged(lab: TinyLab, out: Path) -> None:
    shards = [out.parent / f"{out.name}-shard{index}" for index in (0, 1)]
    for index, shard in enumerate(shards):
        command(*scan_arguments(lab, shard, limit=10, shard=f"{index}/2"))
    command("merge", out, *shards)


def _served(lab: TinyLab, out: Path) -> None:
    model = load(str(lab.model.path), device="cpu")
    given: dict[str, Any] = {"tokenizer": lab.model.path, "limit": 3, "screen": "off", "ask-twice": 0}
    with (
        pytest.MonkeyPatch.context() as patch,
        LogprobServer(model, lambda text: model.encode_batch([text])[0].ids) as server,
    ):
        patch.setenv("OPENAI_API_KEY", KEY)
        command(*scan_arguments(lab, out, model=f"endpoint:{server.url}", **given))


def _audit(line: int | None) -> Maker:
    def make(lab: TinyLab, out: Path) -> None:
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
            if line is not None:
                kill_at_line(patch, line, "after")
            run_in_process(make_run(BOOK, out), InProcess(KnowsByHeart(BOOK)))

    return make


def _python(path: Path) -> object:
    return read_run(path).results


def _export(path: Path) -> None:
    export_run(path, format="jsonl", out=path.parent / "export.jsonl")


def unpacked(path: Path) -> dict[str, bytes]:
    """What an exhibit holds, every file against its checksum."""
    try:
        with zipfile.ZipFile(path) as bundle:
            files = {name: bundle.read(name) for name in bundle.namelist()}
        sums = dict(reversed(line.split("  ", 1)) for line in files.pop("exhibit/SHA256SUMS").decode().splitlines())
        found = {name.removeprefix("exhibit/"): hashlib.sha256(content).hexdigest() for name, content in files.items()}
    except (
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        OSError,
        EOFError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise RunError(f"{path.name}: {error}") from error
    if found != sums:
        raise RunError(f"{path.name} does not hold what its checksums say")
    return files


ROWS: dict[str, Reader] = {"verify": verify, "Python": _python}
SHOWN = ROWS | {"show": show}
SCANS = ROWS | {"views": load_view, "export": _export}
WITHOUT_ROWS: dict[str, Reader] = {"verify": verify}
KINDS = {
    "scan": Kind(every_kind.make_scan, None, SCANS | {"show": show}),
    "unfinished scan": Kind(every_kind.make_scan, 9, SCANS),
    "shard": Kind(_shard, None, SCANS),
    "unfinished shard": Kind(_shard, 60, SCANS),
    "merged run": Kind(_merged, None, SCANS),
    "served scan": Kind(_served, None, SCANS),
    "unfinished served scan": Kind(_served, 2, SCANS),
    "mc": Kind(every_kind.make_mc, None, SHOWN),
    "unfinished mc": Kind(every_kind.make_mc, 25, ROWS),
    "prior": Kind(every_kind.make_prior, None, SHOWN),
    "unfinished prior": Kind(every_kind.make_prior, 3, ROWS),
    "audit": Kind(_audit(None), None, WITHOUT_ROWS | {"show": show}),
    "unfinished audit": Kind(_audit(7), None, WITHOUT_ROWS),
    "recall": Kind(every_kind.make_recall, None, SHOWN),
    "counterfactual": Kind(every_kind.make_counterfactual, None, SHOWN),
    "unfinished counterfactual": Kind(every_kind.make_counterfactual, 3, ROWS),
    "study": Kind(every_kind.make_study, None, WITHOUT_ROWS | {"show": show}),
    "unfinished study": Kind(every_kind.make_study, 12, WITHOUT_ROWS),
}
"""Every kind of run that there is. A kind that is added to `run_kinds.py` adds its line here."""
