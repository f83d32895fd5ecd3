"""What is made from something else: `python docs/generate.py` writes docs/api.md and docs/columns.md from the code, and
the package's copy of docs/glossary.md.

A test asserts that they are up to date.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

import byrote
from byrote.options import OPTIONS_HEAD
from byrote.prior.columns import JOINED_COLUMNS, PRIOR_COLUMNS, SWEEP_COLUMNS
from byrote.scan import row as scan_columns
from byrote.scan.api import Paths
from byrote.scan.mc import COLUMNS as MC_COLUMNS
from byrote.scan.options import RunConfig
from byrote.store.columns import COST_COLUMNS, PROMPT_COLUMNS, WINDOW_COLUMNS, Schema
from byrote.store.tables import TEXT_COLUMNS

FOLDER = Path(__file__).parent
SOURCE = FOLDER.parent / "src" / "byrote"
GROUPS = {
    "Models and windows": ("load_model", "read_windows", "Windows", "Window"),
    "Scans": ("scan", "scan_rows", "Results", "RunConfig", "Policy"),
    "Run folders": ("read_run", "SavedRun", "AuditFolder"),
    "Other measurements": ("prior", "audit", "nv_recall", "study", "mc", "change", "gate", "risk"),
    "Errors": ("ByroteError", "errors"),
    "Your own tests": ("testing",),
}
"""Every public name once, in the order in which a reader needs them."""
AS_RESULTS = ("compare", "rates", "to_arrow", "to_pandas", "to_polars")
"""What a saved run has as results in memory have it."""
EVERYTHING = RunConfig(sweep="k=10", policies="k=10", posthoc="bleu")  # type: ignore[arg-type]
"""A scan with every column there can be; the metric and the policy stand for any."""
API_HEAD = """# Python interface

Everything public is in `byrote`. Mistakes raise a `byrote.ByroteError` with the message of the command line. Made from
the docstrings by `docs/generate.py`. `Paths` are one file, folder or glob, or several; a `SavedRun` also has the
tables of `Results`.
"""
COLUMNS_HEAD = """# Columns

Columns of `results.parquet` and of the other tables of a run. Columns of a measure that was not made are absent.
Log-probabilities are natural logarithms, −inf for what cannot come. A list by ε has an entry for 0 edits, 1 edit and
so on up to the edit budget. Made from the code by `docs/generate.py`.
"""


def api() -> str:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(byrote.__all__), set(listed) ^ set(byrote.__all__)
    parts = [API_HEAD]
    for heading, names in GROUPS.items():
        parts.append(f"## {heading}\n")
        parts += [entry(f"byrote.{name}", getattr(byrote, name)) for name in names]
    return "\n".join(parts)


def entry(name: str, value: Any) -> str:
    if isinstance(value, types.ModuleType):
        public = getattr(value, "__all__", None)
        inner = [entry(f"{name}.{each}", getattr(value, each)) for each in public] if public else []
        body = words(value) if inner else f"```\n{inspect.getdoc(value)}\n```\n"
        return "\n".join([f"### `{name}`\n", body, *inner])
    if value is RunConfig:
        # Its fields are what `byrote scan --help` prints; a second list would only grow old.
        return f"### `{name}`\n\n{words(value)}\n`help(byrote.scan)` explains every one of them.\n"
    if inspect.isclass(value):
        return "\n".join([f"### `{name}`\n", words(value), *members(name, value)])
    return f"### `{name}`\n\n```python\n{signature(name, value)}\n```\n\n{words(value)}"


def words(value: Any) -> str:
    """The docstring without its list of options, which `help` and `--help` show; examples as code."""
    text = (inspect.getdoc(value) or "").split(f"\n\n{OPTIONS_HEAD}")[0]
    return f"{text}\n"


def signature(name: str, function: Callable[..., Any]) -> str:
    """One parameter a line where one line would be long."""
    found = inspect.signature(function)
    parameters = [each for each in found.parameters.values() if each.name != "self"]
    shown = [_parameter(each) for each in parameters]
    first_named = next((i for i, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY), None)
    if first_named is not None:
        shown.insert(first_named, "*")
    returned = "" if found.return_annotation is found.empty else f" -> {_type(found.return_annotation)}"
    line = f"{name}({', '.join(shown)}){returned}"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {each},\n" for each in shown)
    return f"{name}(\n{inner}){returned}"


def _parameter(each: inspect.Parameter) -> str:
    prefix = "**" if each.kind is each.VAR_KEYWORD else ""
    kind = "" if each.annotation is each.empty else f": {_type(each.annotation)}"
    if each.default is each.empty:
        return f"{prefix}{each.name}{kind}"
    default = "…" if callable(each.default) or len(repr(each.default)) > 60 else repr(each.default)
    return f"{prefix}{each.name}{kind} = {default}"


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = text.replace(inspect.formatannotation(Paths), "Paths")
    return re.sub(
        r"\b(?:byrote|collections|typing|pathlib|os|polars|pyarrow|pl|pa|pd)(?:\.\w+)*\.(\w+)", r"\1", text
    ).replace("'", "")


def members(name: str, home: type) -> Iterator[str]:
    """Fields, properties and methods that are documented, those of base classes of ours among them."""
    if is_dataclass(home):
        shown = ", ".join(f"`{each.name}`" for each in fields(home) if not each.name.startswith("_"))
        yield f"Fields: {shown}.\n"
    for member, value in inspect.getmembers_static(home):
        if member.startswith("_") or not _is_ours(home, member) or (home is byrote.SavedRun and member in AS_RESULTS):
            continue
        if isinstance(value, property) and inspect.getdoc(value):
            yield f"- `{member}`: {one_line(value)}"
        elif inspect.isfunction(value) and inspect.getdoc(value):
            yield f"- `{signature(member, value)}`: {one_line(value)}"
    yield ""


def _is_ours(home: type, member: str) -> bool:
    owner = next(base for base in home.__mro__ if member in vars(base))
    return owner.__module__.startswith("byrote.")


def one_line(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split())


def columns() -> str:
    measures = scan_columns.every_measure(EVERYTHING)
    scan, prior, store = (words_of(room) for room in ("scan", "prior", "store"))
    tables: list[tuple[str, Schema, Mapping[str, str]]] = [
        ("Every row: the window", WINDOW_COLUMNS, store["results"]),
        ("Every row: the cost", COST_COLUMNS, store["results"]),
        ("Scans of pairs", scan_columns.RECORD_COLUMNS, scan["results"]),
        ("Scans with `--set cut_prefix_tokens=N`", scan_columns.PREFIX_COLUMNS, scan["results"]),
        ("Scans with `--prompt`", PROMPT_COLUMNS, store["results"]),
        ("Scans with controls", scan_columns.SHARED_COLUMNS, scan["results"]),
        *((f"Scan: {measure.name}", measure.columns, scan["results"]) for measure in measures),
        ("`continuations.parquet` of a scan", scan_columns.CONTINUATIONS_SCHEMA, scan["continuations"]),
        ("Samples of `byrote mc`", MC_COLUMNS[len(WINDOW_COLUMNS) : -len(COST_COLUMNS)], scan["samples"]),
        ("Priors", PRIOR_COLUMNS, prior["results"]),
        ("Priors at several prefix lengths", SWEEP_COLUMNS, prior["results"]),
        ("Priors of a scan", JOINED_COLUMNS, prior["results"]),
        ("`texts.parquet`", TEXT_COLUMNS, store["texts"]),
    ]
    parts = [COLUMNS_HEAD]
    for heading, schema, meanings in tables:
        parts.append(f"## {heading}\n\n| column | type | |\n| --- | --- | --- |")
        for each in schema:
            kind = each.kind if each.is_required else f"{each.kind}, or null"
            parts.append(f"| `{each.name}` | {kind} | {meaning(each.name, meanings)} |")
        parts.append("")
    return "\n".join(parts)


def words_of(room: str) -> dict[str, dict[str, str]]:
    """table → column → what it holds, as the room's column_help.yaml says it."""
    found: dict[str, dict[str, str]] = yaml.safe_load((SOURCE / room / "column_help.yaml").read_text(encoding="utf-8"))
    return found


def meaning(name: str, meanings: Mapping[str, str]) -> str:
    found = [words for pattern, words in meanings.items() if name == pattern or fnmatchcase(name, pattern)]
    assert found, f"say in column_help.yaml what the column {name} holds"
    return found[0]


def glossary() -> str:
    return (FOLDER / "glossary.md").read_text(encoding="utf-8")


DOCUMENTS: dict[Path, Callable[[], str]] = {
    FOLDER / "api.md": api,
    FOLDER / "columns.md": columns,
    SOURCE / "report" / "html" / "glossary.md": glossary,
}


def main() -> None:
    for path, make in DOCUMENTS.items():
        path.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
