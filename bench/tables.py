"""The tables of docs/performance.md, filled from the result files they name.

    python bench/tables.py

A table names its file and keys in a comment above it; its last column names the row's place in the file:

    <!-- results: engine_gpu.json; columns: windows_per_second, tflops -->

`.` as a column is the place itself. A number keeps the digits it is shown with; a cell that says "not measured yet" is
filled as soon as the file has its value. `tests/test_docs.py` uses the same reading to compare.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
DOCUMENTS = ("docs/performance.md",)
TABLE = re.compile(r"<!-- results: (?P<source>\S+); columns: (?P<columns>.+?) -->\n(?P<rows>(?:\|.*\n)+)")
NOT_MEASURED = "not measured yet"


def looked_up(values: Any, key: str) -> Any:
    """The value at a dotted key, numbers being places in lists; None when it is not there."""
    for part in [] if key == "." else key.split("."):
        if isinstance(values, list):
            values = values[int(part)] if int(part) < len(values) else None
        else:
            values = values.get(part) if isinstance(values, dict) else None
    return values


def shown(value: float, like: str) -> str:
    """`value` with the digits, the thousands commas and the percent sign of the cell it replaces."""
    number, is_share = like.removesuffix("%").strip(), like.endswith("%")
    if not re.fullmatch(r"-?[\d,]+(\.\d+)?", number):
        return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100 else f"{value:.2f}"
    decimals = len(number.partition(".")[2])
    return f"{value * (100 if is_share else 1):,.{decimals}f}" + (" %" if is_share else "")


def filled_cell(value: float | None, cell: str) -> str:
    if value is None:
        return NOT_MEASURED if cell == NOT_MEASURED else ""
    return shown(value, cell)


def filled_row(line: str, measured: Any, columns: list[str]) -> str:
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if len(cells) != len(columns) + 2:
        raise ValueError(f"{line.strip()!r} does not fit the columns {columns}")
    place = looked_up(measured, cells[-1].strip("`"))
    values = [looked_up(place, column) for column in columns]
    if place is None:
        return line
    new = [filled_cell(value, cell) for value, cell in zip(values, cells[1:-1], strict=True)]
    return "|" + "|".join(f" {cell} " if cell else " " for cell in [cells[0], *new, cells[-1]]) + "|"


def filled(text: str) -> str:
    """`text` with every number of every table as its file has it. Tables whose file is missing stay as they are."""

    def fill(found: re.Match[str]) -> str:
        path = RESULTS / found["source"]
        if not path.exists():
            return found[0]
        measured = json.loads(path.read_text(encoding="utf-8"))
        head, rule, *rows = found["rows"].splitlines()
        columns = found["columns"].split(", ")
        lines = [head, rule, *(filled_row(row, measured, columns) for row in rows)]
        return found[0].replace(found["rows"], "\n".join(lines) + "\n")

    return TABLE.sub(fill, text)


def main() -> None:
    for document in DOCUMENTS:
        path = ROOT / document
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
