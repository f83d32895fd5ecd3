"""Rows to store, and a way to die: a file system that stops working at a chosen call, as if the process were killed."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from byrote.scan.row import CONTINUATIONS_SCHEMA, NEAR, VERBATIM
from byrote.store.columns import COST_COLUMNS, WINDOW_COLUMNS, Schema
from byrote.store.resume import RunSession

SCHEMA: Schema = (
    *WINDOW_COLUMNS,
    *VERBATIM.columns,
    *(column for column in NEAR.columns if column.name != "screen_density"),
    *COST_COLUMNS,
)
CONTINUATIONS = CONTINUATIONS_SCHEMA
IDENTITY = {"config": {"top_k": 40, "measures": ["verbatim", "near"]}, "texts": {"a.txt": "12ab"}}
MANIFEST = {"totals": {"windows": 3}, "seed": 0}


def window_id(index: int) -> str:
    return f"bücher/a [1].txt@{index * 20}"


def result_row(index: int) -> dict[str, Any]:
    return {
        "window_id": window_id(index),
        "document": "bücher/a [1].txt",
        "split": "target",
        "char_start": index * 20,
        "suffix_char_start": index * 20 + 9,
        "char_end": index * 20 + 18,
        "prefix_ids": [index, 2, 3],
        "suffix_ids": [4, 5, index],
        "log_p_verbatim": -math.inf if index % 3 == 0 else -1.0 / (index + 1),
        "p_verbatim": 0.0 if index % 3 == 0 else math.exp(-1.0 / (index + 1)),
        "suffix_ranks": [0, 1, index],
        "mass_lower": [0.0, 0.1 * index, 0.1 * index + 1e-17],
        "mass_upper": [0.0, 1.0, 1.0],
        "search_lower": None if index % 5 == 0 else [0.0, 0.1 * index, 0.1 * index + 1e-17],
        "open_mass": None if index % 5 == 0 else 0.25,
        "eos_mass": None if index % 5 == 0 else 0.0,
        "refuted_mass": None if index % 5 == 0 else 0.5,
        "verdict": None if index % 4 == 0 else "extractable",
        "stop_reason": "finished",
        "stop_step": 3,
        "screen_score": 0.5,
        "was_screened": False,
        "token_evals": 100 + index,
    }


def continuation_rows(index: int) -> list[dict[str, Any]]:
    return [
        {
            "window_id": window_id(index),
            "rank": rank,
            "token_ids": [4, 5, rank],
            "text": f"“text” {rank}\r\n",
            "log_p": -1.0 - rank,
            "distance": rank,
        }
        for rank in range(index % 3)
    ]


def continuations_of(indices: Sequence[int]) -> list[dict[str, Any]]:
    return [row for index in indices for row in continuation_rows(index)]


def open_session(
    path: Path, *, fresh: bool = False, identity: dict[str, Any] | None = None, **options: Any
) -> RunSession:
    return RunSession.open(
        path,
        kind="scan",
        identity=identity or IDENTITY,
        schema=SCHEMA,
        continuations=CONTINUATIONS,
        fresh=fresh,
        **options,
    )


def add(session: RunSession, *indices: int) -> None:
    for index in indices:
        session.add(result_row(index), continuation_rows(index))


def write_part(session: RunSession, *indices: int) -> None:
    """These windows as one part."""
    add(session, *indices)
    session.flush()


def scan(path: Path, indices: Sequence[int], *, part_size: int = 2, fresh: bool = False) -> list[int]:
    """What a scan does: measure what is not finished, part by part, then complete. Returns what it measured."""
    measured: list[int] = []
    with open_session(path, fresh=fresh, part_rows=part_size) as session:
        if session.is_complete:
            return measured
        finished = session.finished_ids()
        # Windows finish in another order than the corpus has them.
        for index in reversed(indices):
            if window_id(index) not in finished:
                measured.append(index)
                add(session, index)
        session.complete(MANIFEST, order=[window_id(index) for index in indices])
    return measured


class Killed(BaseException):
    """Stands for SIGKILL: not an Exception, so nothing may handle it and go on."""


@contextmanager
def killed_at(call: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """From the given file-system call on every call fails, the clean-up's too: nothing happens after death.

    Yields the log of the calls that were let through.
    """
    log: list[str] = []

    def mortal(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            if len(log) >= call:
                raise Killed(name)
            log.append(name)
            return original(*arguments, **options)

        return wrapper

    with monkeypatch.context() as patch:
        for name in ("fsync", "replace", "unlink", "mkdir", "rmdir"):
            patch.setattr(os, name, mortal(name, getattr(os, name)))
        yield log
