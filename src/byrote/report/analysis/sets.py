"""Sets of target windows at every ε, as numbers: extractable, unlocked, shared by all models, exact at the next one.

All masses are byrote's lower bounds, p_z included. A window is unlocked at ε if its mass within ε edits reaches τ and
its exact text does not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from byrote.report.analysis.comparison import common_budget, rated_rows
from byrote.report.view import RunView
from byrote.stats.population import Floats, Population, extractable_by_all


def set_rows(views: Sequence[RunView], aligned: Sequence[Population] | None) -> list[dict[str, Any]]:
    """sets.csv: a row a run and ε. `aligned` has the runs' windows in one order, where they are the same; without it
    there are no columns across runs."""
    if any(view.population.mass_lower is None for view in views):
        return []
    groups = [aligned] if aligned else [[view.population] for view in views]
    parts = [part.select(rated_rows(group)) for group in groups for part in group]
    threshold, rows = views[0].threshold, []
    for place, (view, part) in enumerate(zip(views, parts, strict=True)):
        for edits in range((common_budget(parts) if aligned else part.edit_budget) + 1):
            row = {"run": view.label, "edits": edits, "windows": len(part), **_own(part, edits, threshold)}
            if aligned:
                fixed = extractable_by_all([each.mass(edits) for each in parts], threshold)
                row |= _named("fixed", part.mass(edits)[fixed])
            if aligned and place + 1 < len(parts):
                exact_there = parts[place + 1].verbatim() >= threshold
                row["exact_at_next"] = int((part.is_unlocked(edits, threshold) & exact_there).sum())
            rows.append(row)
    return rows


def _own(part: Population, edits: int, threshold: float) -> dict[str, Any]:
    mass = part.mass(edits)
    extractable, unlocked = mass >= threshold, part.is_unlocked(edits, threshold)
    shares = part.verbatim()[extractable] / mass[extractable]
    return {
        **_named("extractable", mass[extractable]),
        "median_verbatim_share": float(np.median(shares)) if len(shares) else None,
        **_named("unlocked", mass[unlocked]),
        "unlocked_from_zero": int((unlocked & part.is_impossible()).sum()),
    }


def _named(name: str, mass: Floats) -> dict[str, Any]:
    """How many windows a set has, and their masses."""
    return {
        name: len(mass),
        f"{name}_mean_mass": float(mass.mean()) if len(mass) else None,
        f"{name}_median_mass": float(np.median(mass)) if len(mass) else None,
        f"{name}_largest_mass": float(mass.max()) if len(mass) else None,
    }
