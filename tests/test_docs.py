"""The documents say what is true: links, commands, options, defaults, file maps and measured numbers are checked."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

import rote
from rote.cli.main import app
from rote.run.config import RunConfig

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "rote"
RESULTS = ROOT / "bench" / "results"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NOT_MEASURED = "not measured yet"

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_of(text: str) -> list[str]:
    """Lines of fenced and indented blocks, and code spans; Python blocks are left out."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for language, block in fenced if language != "python" for line in block.splitlines()]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return lines + re.findall(r"^ {4}(\S.*)$", rest, re.MULTILINE) + re.findall(r"`([^`\n]+)`", rest)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def rows_of(table: str) -> list[list[str]]:
    """Cells of the rows under the rule of a Markdown table."""
    lines = [line for line in table.strip().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[2:]]


def commands() -> dict[str, Any]:
    """The commands of `rote --help`, by name."""
    return dict(get_command(app).commands)  # type: ignore[attr-defined]


def flags_of(command: Any) -> set[str]:
    own = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    below = getattr(command, "commands", {}).values()
    return own.union({"--help"}, *(flags_of(each) for each in below))


@each_document
def test_links_and_anchors_resolve(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", path.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), f"{path.name} links to {target}, which is not there"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), (
                f"{path.name} links to {target}#{anchor}; no heading gives that anchor"
            )


@each_document
def test_every_command_exists_with_the_options_it_is_shown_with(path: Path) -> None:
    known = commands()
    for code in code_of(path.read_text(encoding="utf-8")):
        for name, arguments in re.findall(r"(?:^|\s|/)rote ([a-z]+)\b([^#]*)", code):
            assert name in known, f"{path.name} shows `rote {name}`; commands are {sorted(known)}"
            unknown = set(re.findall(r"--[a-z][a-z-]*", arguments)) - flags_of(known[name])
            assert not unknown, f"{path.name} gives `rote {name}` the unknown options {sorted(unknown)}"


@each_document
def test_every_option_named_is_an_option_of_some_command(path: Path) -> None:
    known = set[str]().union(*map(flags_of, commands().values()))
    named = {flag for code in code_of(path.read_text(encoding="utf-8")) for flag in re.findall(r"--[a-z][a-z-]*", code)}
    assert named <= known, f"{path.name} names {sorted(named - known)}, which no command takes"


def test_the_readme_shows_every_command() -> None:
    shown = {name for code in code_of(text_of("README.md")) for name in re.findall(r"(?:^|/)rote ([a-z]+)", code)}
    assert shown == set(commands())


def test_the_readme_names_only_what_the_python_interface_has() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", text_of("README.md"), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"\brote\.(\w+)", block)) <= set(rote.__all__)
    compile(block, "README.md", "exec")


def is_default(cell: str, default: Any) -> bool:
    if default is None:
        return cell in ("none", "all")
    if isinstance(default, bool):
        return cell == ("on" if default else "off")
    return cell == (",".join(default) if isinstance(default, tuple) else str(default))


@pytest.mark.parametrize(("document", "column"), [("README.md", 0), ("docs/method.md", 1)])
def test_defaults_in_tables_are_those_of_a_run(document: str, column: int) -> None:
    defaults = {item.name: item.default for item in fields(RunConfig)}
    checked = 0
    for table in re.findall(r"(?:^\|.*\n)+", text_of(document), re.MULTILINE):
        heads = [cell.strip() for cell in table.splitlines()[0].strip("|").split("|")]
        if heads[column : column + 2] != ["option", "default"]:
            continue
        for row in rows_of(table):
            names = [name.strip("`- ").replace("-", "_") for name in row[column].split(", ")]
            cells = row[column + 1].split(", ")
            assert len(names) == len(cells), f"{row} needs one default for each option"
            for name, cell in zip(names, cells, strict=True):
                assert is_default(cell, defaults[name]), (
                    f"{document}: {name} is {cell}, the default is {defaults[name]}"
                )
                checked += 1
    assert checked >= 8


def test_the_file_map_of_the_readme_matches_the_tree() -> None:
    (block,) = (
        block for block in re.findall(r"^```\n(.*?)^```", text_of("README.md"), re.M | re.S) if "src/rote/" in block
    )
    outer, inner = block.split("src/rote/\n")
    for line in outer.splitlines():
        assert (ROOT / line.split()[0]).exists(), f"the file map names {line.split()[0]}"
    for line in inner.splitlines():
        assert (SOURCE / line.split()[0]).exists(), f"the file map names src/rote/{line.split()[0]}"
    assert {line.split()[0].rstrip("/") for line in inner.splitlines()} >= rooms()


def rooms() -> set[str]:
    """Packages and modules of rote itself."""
    entries = [entry for entry in SOURCE.iterdir() if not entry.name.startswith("__")]
    return {entry.name for entry in entries if entry.suffix == ".py" or (entry / "__init__.py").exists()}


def test_the_room_table_of_the_architecture_matches_the_tree() -> None:
    table = text_of("docs/architecture.md").split("| room | holds | rule |")[1].split("\n\n")[0]
    named = {name.strip("`/ ") for row in rows_of("||\n" + table) for name in row[0].split(", ")}
    assert named == rooms()


@each_document
def test_every_path_named_exists(path: Path) -> None:
    for code in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")):
        if re.fullmatch(r"[\w.-]+/[\w./-]*", code) and not code.startswith(("runs/", "report/index", "generations/")):
            places = (ROOT / code, SOURCE / code, path.parent / code)
            assert any(place.exists() for place in places), f"{path.name} names `{code}`, which is not there"


class MeasuredTable(NamedTuple):
    """A table of docs/performance.md and where its numbers come from. `.` as column means the key itself."""

    source: str
    columns: list[str]
    rows: list[list[str]]


def measured_tables() -> list[MeasuredTable]:
    pattern = r"<!-- results: (\S+); columns: (.+?) -->\n((?:\|.*\n)+)"
    found = re.findall(pattern, text_of("docs/performance.md"))
    return [MeasuredTable(source, columns.split(", "), rows_of(table)) for source, columns, table in found]


def looked_up(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values[int(part)] if isinstance(values, list) else values[part]
    return values


def says(cell: str, value: float) -> bool:
    """Whether `cell` is `value`, rounded to the digits it shows; `%` multiplies by a hundred."""
    number = cell.removesuffix("%").strip().replace(",", "")
    decimals = len(number.partition(".")[2])
    return f"{value * (100 if cell.endswith('%') else 1):.{decimals}f}" == number


@pytest.mark.parametrize("table", measured_tables(), ids=lambda table: f"{table.source}:{table.rows[0][-1]}")
def test_every_measured_number_is_the_one_in_its_file(table: MeasuredTable) -> None:
    measured = json.loads((RESULTS / table.source).read_text(encoding="utf-8"))
    for row in table.rows:
        place = looked_up(measured, row[-1].strip("`"))
        assert len(row) == len(table.columns) + 2, f"{row} does not fit the columns {table.columns}"
        for cell, column in zip(row[1:-1], table.columns, strict=True):
            has_value = column == "." or column in place
            assert bool(cell) == has_value, (
                f"{row[0]}: {column} is {'missing here' if has_value else 'not in the file'}"
            )
            if has_value:
                value = place if column == "." else place[column]
                assert says(cell, value), f"{row[0]}: {column} is {cell} here and {value} in {table.source}"


def test_a_table_of_performance_names_its_file_or_says_that_nothing_was_measured() -> None:
    text = text_of("docs/performance.md")
    for table in re.findall(r"(?<!-->\n)(?<!\|\n)((?:^\|.*\n)+)", text, re.MULTILINE):
        for row in rows_of(table):
            assert set(row[1:]) == {NOT_MEASURED}, f"{row} holds numbers but its table names no result file"


@pytest.mark.parametrize(
    ("cell", "value", "is_same"),
    [
        ("32.2", 32.19, True),
        ("32.2", 32.28, False),
        ("2,319", 2319, True),
        ("7.8 %", 0.0783, True),
        ("8 %", 0.088, False),
        ("0.00", 0.004, True),
    ],
)
def test_a_cell_is_compared_at_the_digits_it_shows(cell: str, value: float, is_same: bool) -> None:
    assert says(cell, value) is is_same
