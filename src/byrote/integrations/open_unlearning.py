"""byrote's numbers as metrics of OpenUnlearning. In its `evals/metrics/__init__.py`:

from byrote.integrations.open_unlearning import METRICS
for name, metric in METRICS.items():
    _register_metric(unlearning_metric(name=name)(metric))

and in a metric's YAML file `handler: byrote_extraction_strength`. Options of `byrote.scan` may stand there as
`scan_args`. Extraction strength is 0 where the last token of an answer is missed; the benchmark's own is 1/T there.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from byrote.errors import ConfigError
from byrote.models.base import LanguageModel
from byrote.scan.api import load_model, scan
from byrote.types import Split, Window

IGNORED = -100
"""The label of a token that is given and not scored."""
COLUMNS = {
    "exact_match": "unlearning",
    "extraction_strength": "unlearning",
    "rouge_l": "unlearning",
    "longest_common_run": "unlearning",
    "p_verbatim": "verbatim",
    "mass_lower": "near",
}
"""A column of a scan, and the measure that it needs. `mass_lower` is that within the whole edit budget."""


def make_metric(column: str) -> Callable[..., dict[str, Any]]:
    """The handler of a column: what it gives for every item of `data` by its index, and their mean."""

    def metric(model: Any, *, data: Iterable[Mapping[str, Any]], tokenizer: Any, **further: Any) -> dict[str, Any]:
        opened = load_model(model, tokenizer=tokenizer)
        windows = [_window(item, opened) for item in data]
        options: dict[str, Any] = {
            "prefix_tokens": max((len(window.prefix_ids) for window in windows), default=1),
            "suffix_tokens": max((len(window.suffix_ids) for window in windows), default=1),
            "measures": (COLUMNS[column],),
        }
        rows = scan(
            opened, [one for one in windows if one.suffix_ids], **options | dict(further.get("scan_args") or {})
        )
        found = {row["window_id"]: row[column][-1] if column == "mass_lower" else row[column] for row in rows}
        # An item without a token to score has no number.
        scores = {int(window.window_id): {"score": found.get(window.window_id)} for window in windows}
        known = [one["score"] for one in scores.values() if one["score"] is not None]
        return {"agg_value": float(np.mean(known)) if known else float("nan"), "value_by_index": scores}

    return metric


def _window(item: Mapping[str, Any], model: LanguageModel) -> Window:
    """An item's labelled tokens after those before them, without the end-of-text token that closes an answer."""
    if "labels" not in item:
        raise ConfigError("an item has several answers and no labels of its own; give a dataset of single answers.")
    ids, labels = (np.asarray(item[name]).tolist() for name in ("input_ids", "labels"))
    suffix = [label for label in labels if label != IGNORED]
    first = next((place for place, label in enumerate(labels) if label != IGNORED), len(labels))
    if suffix and suffix[-1] in model.eos_ids:
        suffix.pop()
    name = str(int(item["index"]))
    return Window(name, name, Split.TARGET, 0, 0, 0, tuple(ids[:first]), tuple(suffix))


METRICS = {f"byrote_{column}": make_metric(column) for column in COLUMNS}
