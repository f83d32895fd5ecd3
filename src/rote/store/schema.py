"""The columns of results.parquet and continuations.parquet, each declared once.

A new measure adds its columns to `MEASURE_COLUMNS`; a one-off passes its fields as `extra`.
"""

from collections.abc import Collection, Sequence

import pyarrow as pa

from rote.errors import ConfigError

_IDS = pa.list_(pa.int32())
_MASSES = pa.list_(pa.float64())

WINDOW_COLUMNS: tuple[pa.Field, ...] = (
    pa.field("window_id", pa.string(), nullable=False),
    pa.field("document", pa.string(), nullable=False),
    pa.field("split", pa.string(), nullable=False),
    pa.field("char_start", pa.int64(), nullable=False),
    pa.field("suffix_char_start", pa.int64(), nullable=False),
    pa.field("char_end", pa.int64(), nullable=False),
    pa.field("prefix_ids", _IDS, nullable=False),
    pa.field("suffix_ids", _IDS, nullable=False),
)
MEASURE_COLUMNS: tuple[tuple[str, pa.Field], ...] = (
    ("verbatim", pa.field("log_p_verbatim", pa.float64())),
    ("verbatim", pa.field("p_verbatim", pa.float64())),
    ("greedy", pa.field("greedy_hamming", pa.int32())),
    ("greedy", pa.field("greedy_levenshtein", pa.int32())),
    ("verbatim", pa.field("suffix_ranks", _IDS)),
    ("sweep", pa.field("sweep_log_p", _MASSES)),
    ("near", pa.field("mass_lower", _MASSES)),
    ("near", pa.field("mass_upper", pa.float64())),
    ("near", pa.field("verdict", pa.string())),
    ("near", pa.field("stop_reason", pa.string())),
    ("near", pa.field("stop_step", pa.int32())),
    ("near", pa.field("screen_rating", pa.float64())),
    ("near", pa.field("was_screened", pa.bool_())),
    ("verify", pa.field("verified_mass", pa.float64())),
    ("verify", pa.field("verified_share", pa.float64())),
    ("verify", pa.field("verified_shift", pa.float64())),
    ("estimate", pa.field("mass_estimate", pa.float64())),
    ("estimate", pa.field("mass_standard_error", pa.float64())),
    ("estimate", pa.field("mass_low", pa.float64())),
    ("estimate", pa.field("mass_high", pa.float64())),
)
"""Which measure fills which column, in the order of the contract."""
COST_COLUMNS: tuple[pa.Field, ...] = (pa.field("token_evals", pa.int64(), nullable=False),)

CONTINUATIONS_SCHEMA = pa.schema(
    [
        pa.field("window_id", pa.string(), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("token_ids", _IDS, nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("log_p", pa.float64(), nullable=False),
        pa.field("distance", pa.int32()),
    ]
)


def results_schema(measures: Collection[str], *, extra: Sequence[pa.Field] = ()) -> pa.Schema:
    """Columns of a run with these measures: the window, what was measured, `extra`, the cost.

    Columns of a measure that was not asked for are absent.
    """
    known = dict.fromkeys(measure for measure, _ in MEASURE_COLUMNS)
    unknown = sorted(set(measures) - set(known))
    if unknown:
        raise ConfigError(f"Unknown measure {', '.join(unknown)}; choose among {', '.join(known)}.")
    measured = [field for measure, field in MEASURE_COLUMNS if measure in measures]
    return pa.schema([*WINDOW_COLUMNS, *measured, *extra, *COST_COLUMNS])
