"""What is made from something else: `python docs/generate.py` writes docs/api.md and docs/columns.md from the code,
docs/replication.md from the recipes and docs/replication.yaml, and the package's copy of docs/glossary.md.

A test asserts that they are up to date.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

import byrote
from byrote.options import OPTIONS_HEAD
from byrote.prior.columns import BALL_COLUMNS, JOINED_COLUMNS, PRIOR_COLUMNS, SWEEP_COLUMNS
from byrote.scan import row as scan_columns
from byrote.scan.mc import COLUMNS as MC_COLUMNS
from byrote.scan.options import RunConfig
from byrote.store.columns import COST_COLUMNS, PROMPT_COLUMNS, WINDOW_COLUMNS, Schema
from byrote.store.tables import TEXT_COLUMNS
from byrote.study.plan import config_and_axes, read_study_file, recipe_files
from byrote.study.published import Published

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
EVERYTHING = RunConfig(sweep="k=10", policies="k=10", passage="50", posthoc="bleu")  # type: ignore[arg-type]
"""A scan with every column there can be; the metric and the policy stand for any."""
API_HEAD = """# Python interface

Everything public is in `byrote`; `help` shows the types. Mistakes raise a `byrote.ByroteError` with the message of the
command line. Names of texts and pairs are one file, folder or glob, or several. A `SavedRun` also has the tables of
`Results`. Made from the docstrings by `docs/generate.py`.
"""
COLUMNS_HEAD = """# Columns

Columns of `results.parquet` and of the other tables of a run; a run has those of the measures that it made. A type with
`?` is null where the value is undefined or was not computed (no search, no samples). Log-probabilities are natural
logarithms, −inf for what cannot come. A list by ε has an entry for 0 edits, 1 edit and so on up to the edit budget.
Made from the code by `docs/generate.py`.
"""
REPLICATION_HEAD = """# Replication

Every table and figure of four papers with the recipe that measures it again, or why there is none, and below every
published number. Made from the recipes and `docs/replication.yaml` by `docs/generate.py`.

    byrote recipes
    byrote study pythia-enron --smoke --out runs/smoke
    byrote study pythia-enron --out runs/pythia-enron
    byrote study pythia-enron --model models/1b,models/2.8b --text mails.jsonl --set slots=8 --out runs/own

A recipe expects its texts in the current folder, under its own names; byrote ships neither texts nor weights.
`--model`, `--text` and `--control` replace those of the recipe, in order; `--set` replaces its machine settings. The
page of the study shows your numbers beside the published ones and names every other change, because numbers measured
under other settings may be other quantities. `--smoke` runs a recipe on two tiny models: its numbers mean nothing. The
same command resumes a killed study.

Recipes select the search of the papers ([method.md](method.md#bounds)) and count what the papers count: the
near-verbatim paper prints what its search alone found (`search_lower`, without p_z) and counts controls that share text
with a target (`keep_shared`). byrote breaks ties by the lower token id and sums in float64, so single windows at τ may
differ. A cell in which the screen left windows out is not compared.
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
    if each.default is each.empty:
        return f"{prefix}{each.name}"
    default = "…" if callable(each.default) or len(repr(each.default)) > 60 else repr(each.default)
    return f"{prefix}{each.name}={default}"


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
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
        ("Priors of a near-verbatim scan", BALL_COLUMNS, prior["results"]),
        ("`texts.parquet`", TEXT_COLUMNS, store["texts"]),
    ]
    parts = [COLUMNS_HEAD]
    for heading, schema, meanings in tables:
        parts.append(f"## {heading}\n\n| column | type | |\n| --- | --- | --- |")
        for each in schema:
            kind = each.kind if each.is_required else f"{each.kind}?"
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


def replication() -> str:
    known = yaml.safe_load((FOLDER / "replication.yaml").read_text(encoding="utf-8"))
    studies = {
        name: config_and_axes(read_study_file(path), place=name)[0].published for name, path in recipe_files().items()
    }
    meanings = shared_quantities(studies.values())
    parts = [REPLICATION_HEAD]
    for paper, about in known["papers"].items():
        lines = [line.split(" | ") for line in about["rows"].splitlines()]
        rows = [(where, what, f"`{how}`" if how in studies else how) for where, what, how in lines]
        parts.append(f"## {paper[0].upper()}{paper[1:]}\n\n*{about['title']}*\n")
        parts.append(table(("table or figure", "what", "recipe, or why none"), rows))
    parts.append("## Quantities\n\nQuantities of several recipes; the others are explained where they stand.\n")
    parts.append(table(("quantity", "compared with"), list(meanings.items())))
    parts.append("## Recipes\n")
    for name, published in studies.items():
        lines = recipe_files()[name].read_text(encoding="utf-8").splitlines()
        about = " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))
        body = recipe_table(published, meanings) if published else "Curves only.\n"
        parts.append(f"### `{name}`\n\n{about}\n\n{body}")
    return "\n".join(parts)


def shared_quantities(studies: Iterable[Sequence[Published]]) -> dict[str, str]:
    """quantity → measure, of quantities that several recipes have and that mean the same in all of them."""
    measures: dict[str, list[set[str]]] = {}
    for published in studies:
        for quantity in dict.fromkeys(one.quantity for one in published):
            own = {one.measure_words for one in published if one.quantity == quantity}
            measures.setdefault(quantity, []).append(own)
    return {
        quantity: next(iter(own[0])) for quantity, own in measures.items() if len(own) > 1 and len(set.union(*own)) == 1
    }


def recipe_table(published: Sequence[Published], meanings: Mapping[str, str]) -> str:
    """A row for each quantity, measure and source, a column for each cell of the study whose numbers differ."""
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    (paper,) = {one.source.partition(", ")[0] for one in published}
    for one in published:
        side = " (control)" if one.split == "control" else ""
        meaning = "" if one.quantity in meanings else f": {one.measure_words}"
        row = rows.setdefault((one.quantity + side + meaning, one.source.partition(", ")[2]), {})
        cell = ", ".join(value.rpartition("/")[2] for value in one.settings.values())
        row.setdefault(cell, []).append(one.words(one.value))
    differing = [row for row in rows.values() if len(row) <= 3 or len({*map(tuple, row.values())}) > 1]
    cells = list(dict.fromkeys(cell for row in differing for cell in row))
    lines = []
    for (quantity, source), row in rows.items():
        everywhere = f" (each of {len(row)} cells)" if len(row) > len(cells) else ""
        lines.append((quantity + everywhere, *("; ".join(row.get(cell, [])) for cell in cells), source))
    return table(("quantity", *(cell or "published" for cell in cells), paper), lines)


def table(heads: tuple[str, ...], rows: list[Any]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def glossary() -> str:
    return (FOLDER / "glossary.md").read_text(encoding="utf-8")


DOCUMENTS: dict[Path, Callable[[], str]] = {
    FOLDER / "api.md": api,
    FOLDER / "columns.md": columns,
    FOLDER / "replication.md": replication,
    SOURCE / "report" / "html" / "glossary.md": glossary,
}


def main() -> None:
    for path, make in DOCUMENTS.items():
        path.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
