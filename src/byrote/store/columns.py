"""Column declarations: products declare the tables that the store writes. No heavy import: computing files use it.

Also the columns that every product's rows begin with: those of the window, and the way from a window to a row and back.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from byrote.types import Split, Window

Kind = Literal["text", "bool", "int32", "int64", "float64", "list[int32]", "list[float64]", "list[text]"]


class Column(NamedTuple):
    """A required column has a value in every row; the others may be absent (null)."""

    name: str
    kind: Kind
    is_required: bool = False


Schema = tuple[Column, ...]

WINDOW_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    Column("document", "text", is_required=True),
    Column("split", "text", is_required=True),
    Column("char_start", "int64", is_required=True),
    Column("suffix_char_start", "int64", is_required=True),
    Column("char_end", "int64", is_required=True),
    Column("prefix_ids", "list[int32]", is_required=True),
    Column("suffix_ids", "list[int32]", is_required=True),
)
PROMPT_COLUMNS: Schema = (Column("given_ids", "list[int32]", is_required=True),)
"""What the model was given, of a window with a prompt around its prefix."""
COST_COLUMNS: Schema = (Column("token_evals", "int64", is_required=True),)


def sweep_column(policy: str) -> str:
    """The column with the verbatim log-probability under a further policy."""
    return f"log_p[{policy}]"


def policy_columns(policy: str) -> tuple[str, str]:
    """The columns with lower and upper bounds under a further policy."""
    return f"mass_lower[{policy}]", f"mass_upper[{policy}]"


def window_row(window: Window) -> dict[str, Any]:
    """The WINDOW_COLUMNS of a window, and the further columns it carries."""
    return {
        "window_id": window.window_id,
        "document": window.document,
        "split": str(window.split),
        "char_start": window.char_start,
        "suffix_char_start": window.suffix_char_start,
        "char_end": window.char_end,
        "prefix_ids": list(window.prefix_ids),
        "suffix_ids": list(window.suffix_ids),
        **({} if window.given_ids is None else {"given_ids": list(window.given_ids)}),
        **window.further,
    }


def window_of(row: Mapping[str, Any]) -> Window:
    """The window that a stored row is about."""
    return Window(
        window_id=row["window_id"],
        document=row["document"],
        split=Split(row["split"]),
        char_start=row["char_start"],
        suffix_char_start=row["suffix_char_start"],
        char_end=row["char_end"],
        prefix_ids=tuple(row["prefix_ids"]),
        suffix_ids=tuple(row["suffix_ids"]),
        given_ids=None if row.get("given_ids") is None else tuple(row["given_ids"]),
    )
