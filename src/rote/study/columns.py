"""The rows of a study: one a cell, with the run that measured it. `window_id` is the cell's name."""

from rote.store.columns import Column, Schema

CELL_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    Column("settings", "text", is_required=True),
    Column("run_id", "text", is_required=True),
    Column("weights_hash", "text"),
    Column("windows", "int64", is_required=True),
    Column("token_evals", "int64", is_required=True),
    Column("manifest_sha256", "text", is_required=True),
)
SAMPLED_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    Column("p_verbatim", "float64"),
    Column("mass_lower", "float64", is_required=True),
    Column("mass_upper", "float64", is_required=True),
    Column("hits", "list[int32]", is_required=True),
    Column("samples", "list[int32]", is_required=True),
    Column("evaluations", "list[float64]", is_required=True),
)
"""A window sampled by Monte Carlo: hits of the first samples, of more, of all, beside its certified bounds."""
