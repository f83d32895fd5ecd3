"""Every name of the product that the golden cases use, in one place: follow a rename by editing a table here.

The left side of each table is the name in the committed files and in `cases.py`; it never changes. The right side is
the name today.
"""

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import byrote as package
from byrote.cli.main import main

__all__ = [
    "ADDED", "COLUMNS", "Outcome", "command", "flags", "golden_name", "golden_word", "name_today", "options", "package",
]  # fmt: skip

OPTIONS = {
    "answers": "answers",
    "baseline": "baseline",
    "batch_windows": "batch_windows",
    "beam_width": "beam_width",
    "bleu_threshold": "bleu_threshold",
    "book": "book",
    "closure": "closure",
    "confidence": "confidence",
    "control": "control",
    "device": "device",
    "distance": "distance",
    "edit_budget": "edit_budget",
    "estimate": "estimate",
    "first_max_tokens": "first_max_tokens",
    "format": "format",
    "generation": "generation",
    "generic": "generic",
    "greedy": "greedy",
    "json": "json",
    "keep": "keep",
    "least_probability": "least_probability",
    "least_ratio": "least_ratio",
    "limit": "limit",
    "max_children": "max_children",
    "max_evals": "max_evals",
    "max_increase": "max_increase",
    "max_rate": "max_rate",
    "max_tokens": "max_tokens",
    "max_turns": "max_turns",
    "measures": "measures",
    "min_k": "min_k",
    "model": "model",
    "negligible": "negligible",
    "out": "out",
    "pairs": "pairs",
    "part_windows": "windows_per_part",
    "pin": "pin",
    "posthoc": "posthoc",
    "prefix_room": "cut_prefix_tokens",
    "prefix_tokens": "prefix_tokens",
    "prefix_words": "prefix_words",
    "prior_prefixes": "prior_prefixes",
    "prior_text": "prior_text",
    "probability": "probability",
    "queries": "queries",
    "rank": "rank",
    "reference_model": "reference_model",
    "refine": "refine",
    "repeated_passes": "repeated_passes",
    "replicates": "replicates",
    "residual": "residual",
    "residual_error": "residual_error",
    "run": "run",
    "sample": "sample",
    "samples": "samples",
    "screen": "screen",
    "screen_floor": "screen_floor",
    "screen_least": "screen_min_windows",
    "screen_share": "screen_share",
    "seed": "seed",
    "shard": "shard",
    "slots": "slots",
    "spans": "spans",
    "stop_rule": "stop_rule",
    "stride_chars": "stride_chars",
    "style": "style",
    "suffix_room": "cut_suffix_tokens",
    "suffix_tokens": "suffix_tokens",
    "sweep": "sweep",
    "table": "table",
    "target_words": "target_words",
    "temperature": "temperature",
    "text": "text",
    "threshold": "threshold",
    "top_k": "top_k",
    "top_p": "top_p",
    "trials": "trials",
    "verify": "verify",
    "viability": "viability",
    "whole_documents": "whole_documents",
}
"""Options: Python keywords, YAML keys, and flags (`top_k` is `--top-k`)."""

SET = frozenset({
    "bleu_threshold", "closure", "cut_prefix_tokens", "cut_suffix_tokens", "greedy", "max_children", "max_evals",
    "min_k", "negligible", "pin", "rank", "refine", "residual", "residual_error", "screen_floor", "screen_min_windows",
    "screen_share", "slots", "stop_rule", "viability", "windows_per_part",
})  # fmt: skip
"""Options that have no flag today: on the command line they are `--set NAME=VALUE`."""

COMMANDS: dict[str, str] = {}
"""Commands that have another name today. Those not listed are unchanged."""

COLUMNS: dict[str, str | None] = {"screen_rating": "screen_score"}
"""Columns, and keys of JSON, that have another name today; None: removed on purpose. Those not listed are unchanged."""

METRICS = ("text", "levenshtein", "hamming", "bleu", "characters", "words")
ADDED = frozenset(
    ["wall clock", "empty_answers", "cost_with_assumed_cache", *(f"posthoc_{metric}_found" for metric in METRICS)]
)
"""Columns and keys that came later and are in no committed file."""

WORDS: dict[str, str] = {"rating": "screen_score"}
"""Words that options take and tables hold (`levenshtein`, `ruled_out`, `near`) and that are another word today."""

_GOLDEN_COLUMNS = {today: golden for golden, today in COLUMNS.items() if today is not None}
_GOLDEN_WORDS = {today: golden for golden, today in WORDS.items()}


def golden_name(name: str) -> str:
    """The name in the committed files of a column or key of today."""
    return _GOLDEN_COLUMNS.get(name, name)


def name_today(name: str) -> str:
    """The name today of a column in the committed files."""
    return COLUMNS.get(name) or name


def golden_word(word: str) -> str:
    return _GOLDEN_WORDS.get(word, word)


def options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names today."""
    return {OPTIONS[name]: _words_today(value) for name, value in given.items()}


def flags(given: Mapping[str, Any]) -> list[str]:
    """Options as flags: lists repeat theirs, True and False become switches, None is left out."""
    arguments: list[str] = []
    for name, value in options(given).items():
        flag = name.replace("_", "-")
        if name in SET:
            arguments += [] if value is None else ["--set", f"{name}={value}"]
        elif isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            arguments += [part for one in values for part in (f"--{flag}", str(one))]
    return arguments


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def command(name: str, *arguments: object) -> Outcome:
    """A command of the product in this process, through the entry point of the console script."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([COMMANDS.get(name, name), *map(str, arguments)])
        except SystemExit as ended:
            code = ended.code or 0
    return Outcome(code, out.getvalue(), err.getvalue())


def _words_today(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return WORDS.get(value, value)
    if isinstance(value, Sequence):
        return type(value)(map(_words_today, value))  # type: ignore[call-arg]
    return value
