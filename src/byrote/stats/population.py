"""What a set of windows says together, as pure functions over the columns of a results table.

Every mass here is a certified lower bound unless its name says `upper`. A measure that was not asked for is None.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from byrote.errors import RunError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


class Category(IntEnum):
    """How a window becomes extractable, from the most to the least surprising reading of the text."""

    NOT_EXTRACTABLE = 0
    """The near-verbatim mass does not reach τ."""
    VERBATIM = 1
    """p_z ≥ τ: word for word."""
    UNLOCKED = 2
    """0 < p_z < τ, and the near-verbatim mass reaches τ."""
    UNLOCKED_FROM_ZERO = 3
    """p_z = 0: the policy can never emit the exact words, and the near-verbatim mass reaches τ. A p_z too small for a
    float is not 0: its logarithm distinguishes them."""


@dataclass(frozen=True)
class Population:
    """The windows of one run as columns, in the order of the results table."""

    window_id: NDArray[np.object_]
    document: NDArray[np.object_]
    is_control: Flags
    is_rated: Flags
    """False for control windows that share their suffix with a target: they are shown and enter no rate."""
    place_document: NDArray[np.object_]
    place_start: Integers
    """Document and first character of the first window with the same tokens: copies of a text are one unit."""
    char_start: Integers
    suffix_char_start: Integers
    char_end: Integers
    p_verbatim: Floats | None
    p_verbatim_upper: Floats | None
    """Where a server's cap leaves p_z open: then `p_verbatim` is its lower bound. None where it is exact."""
    log_p_verbatim: Floats | None
    mass_lower: Floats | None
    """[windows, edit budget + 1], cumulative over ε."""
    mass_upper: Floats | None
    """[windows, edit budget + 1], as `mass_lower`."""
    search_lower: Floats | None
    """[windows, edit budget + 1]: what the search by itself found, p_z not taken in; NaN where a window was not
    searched."""
    is_cut_short: Flags | None
    """Whether the search stopped at τ or was not run, so that nothing but p_z is in the lower bounds."""
    is_searched: Flags | None
    answers: Integers | None
    """Sampled answers of each window."""
    answer_hits: Integers | None
    """[windows, edit budget + 1]: of these, within 0, 1 … ε edits of the target."""
    greedy_distance: Floats | None
    """+inf where the answer was seen to be beyond the edit budget before it was complete."""

    def __len__(self) -> int:
        return len(self.document)

    @property
    def has_masses(self) -> bool:
        """Whether the probability of any passage was measured, exact or near."""
        return self.mass_lower is not None or self.p_verbatim is not None

    @property
    def search_verbatim(self) -> Floats | None:
        """What the search by itself found of p_z; NaN where a window was not searched."""
        return None if self.search_lower is None else self.search_lower[:, 0]

    @property
    def edit_budget(self) -> int:
        """The largest ε the run can speak about; 0 when only verbatim extraction was measured."""
        return 0 if self.mass_lower is None else self.mass_lower.shape[1] - 1

    def mass(self, edits: int) -> Floats:
        """The lower bound on the mass within `edits` edits, for each window."""
        if not 0 <= edits <= self.edit_budget:
            raise RunError(f"The run holds masses for 0 to {self.edit_budget} edits, not {edits}; scan again for more.")
        if self.mass_lower is not None:
            return self.mass_lower[:, edits]
        if self.p_verbatim is None:
            raise RunError(
                "The run holds neither verbatim nor near-verbatim masses; scan with --measures verbatim,near."
            )
        return self.p_verbatim

    def verbatim(self) -> Floats:
        """p_z of each window; where teacher forcing was not asked for, the mass the search found within 0 edits."""
        return self.mass(0) if self.p_verbatim is None else self.p_verbatim

    def verbatim_upper(self) -> Floats:
        """The upper end of p_z: p_z itself, unless a server listed too few tokens."""
        return self.verbatim() if self.p_verbatim_upper is None else self.p_verbatim_upper

    def upper(self) -> Floats:
        """The upper bound on the mass within the whole edit budget; on p_z where no more was measured."""
        return self.verbatim_upper() if self.mass_upper is None else self.mass_upper[:, -1]

    def is_certified(self, threshold: float) -> Flags:
        """Whether the mass within the whole edit budget is at least `threshold` for certain."""
        return self.mass(self.edit_budget) >= threshold

    def is_ruled_out(self, threshold: float) -> Flags:
        """Whether it is below for certain."""
        return self.upper() < threshold

    def log_verbatim(self) -> Floats:
        """log p_z of each window, finite also where p_z is too small for a float; from p_z itself where no logarithm
        was stored (a run without teacher forcing)."""
        if self.log_p_verbatim is not None:
            return self.log_p_verbatim
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.verbatim()))

    def log_mass(self, edits: int) -> Floats:
        """The logarithm of `mass`. It includes p_z, so it is log p_z where all of it is too small for a float."""
        mass = self.mass(edits)
        with np.errstate(divide="ignore"):
            return np.where(mass > 0, np.minimum(np.log(mass), 0.0), self.log_verbatim())

    def is_unlocked(self, edits: int, threshold: float) -> Flags:
        """Extractable within `edits` edits and not exactly."""
        return np.asarray((self.mass(edits) >= threshold) & (self.verbatim() < threshold))

    def is_impossible(self) -> Flags:
        """Whether the policy can never emit the exact words: p_z is 0, not merely small."""
        return np.isneginf(self.log_verbatim())

    def select(self, rows: Flags) -> "Population":
        """The same columns, only the windows where `rows` is true."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: column[rows] for name, column in columns.items() if column is not None})


def population_of(
    results: pl.DataFrame, distance: str = "levenshtein", *, is_text: bool = False, counts_shared: bool = False
) -> Population:
    """The typed columns of a results table; `distance` chooses which greedy distance is compared with ε.

    Of texts, the exact probability is that of the words by all their tokens, as far as the search found it.
    Control windows that share text with a target enter rates only where `counts_shared`.
    """

    def numbers(name: str) -> Floats | None:
        """A column, or the first number of a list by ε; NaN where there is none. None where it was not measured."""
        if name not in results.columns:
            return None
        values = results[name].list.first() if isinstance(results[name].dtype, pl.List) else results[name]
        return cast("Floats", values.cast(pl.Float64).fill_null(np.nan).to_numpy())

    mass_lower = by_edits(results, "mass_lower")
    is_searched = is_cut_short = None
    if "stop_reason" in results.columns:
        reasons = results["stop_reason"].cast(pl.String)
        is_searched = (reasons != "screened").to_numpy()
        if mass_lower is not None:
            ended_early = reasons.is_in(["screened", "below_threshold"]).to_numpy()
            # Refinement may have gone on where the search had stopped.
            is_cut_short = ended_early & (mass_lower[:, -1] == mass_lower[:, 0])
    document = np.asarray(results["document"].to_list(), dtype=object)
    char_start = results["char_start"].to_numpy().astype(np.int64)
    first = first_of_same(results)
    is_shared = np.zeros(len(results), dtype=np.bool_)
    if "shared_with" in results.columns and not counts_shared:
        is_shared = results["shared_with"].is_not_null().to_numpy()
    verbatim = [numbers(name) for name in ("p_verbatim", "p_verbatim_upper", "log_p_verbatim")]
    if is_text and mass_lower is not None:
        with np.errstate(divide="ignore"):
            own = np.log(mass_lower[:, 0])
        log_p = own if verbatim[2] is None else np.maximum(own, verbatim[2])
        verbatim = [mass_lower[:, 0], numbers("mass_upper"), log_p]
    greedy = numbers("greedy_hamming" if distance == "hamming" else "greedy_levenshtein")
    return Population(
        window_id=np.asarray(results["window_id"].to_list(), dtype=object),
        document=document,
        is_control=(results["split"].cast(pl.String) == "control").to_numpy(),
        is_rated=~is_shared,
        place_document=document[first],
        place_start=char_start[first],
        char_start=char_start,
        suffix_char_start=results["suffix_char_start"].to_numpy().astype(np.int64),
        char_end=results["char_end"].to_numpy().astype(np.int64),
        p_verbatim=verbatim[0],
        p_verbatim_upper=verbatim[1],
        log_p_verbatim=verbatim[2],
        mass_lower=mass_lower,
        mass_upper=by_edits(results, "mass_upper"),
        search_lower=by_edits(results, "search_lower"),
        is_cut_short=is_cut_short,
        is_searched=is_searched,
        answers=None if (counts := numbers("answers")) is None else counts.astype(np.int64),
        answer_hits=None if (hits := by_edits(results, "answer_hits")) is None else hits.astype(np.int64),
        greedy_distance=None if greedy is None else np.nan_to_num(greedy, nan=np.inf),
    )


def by_edits(results: pl.DataFrame, name: str) -> Floats | None:
    """[windows, edit budget + 1] of a column that holds a list by ε; NaN where it is null, None where all of it is."""
    if name not in results.columns or not len(results):
        return None
    if not isinstance(results[name].dtype, pl.List):
        raise RunError(f"{name} is not a list by ε: the run was made by an older version. Scan it again.")
    measured = results[name].is_not_null().to_numpy()
    widths = results[name].list.len().drop_nulls().unique()
    if len(widths) > 1:
        raise RunError(f"The rows of {name} differ in length: the results mix edit budgets. Scan the run again.")
    if not len(widths):
        return None
    masses = np.full((len(results), widths[0]), np.nan)
    masses[measured] = results[name].drop_nulls().explode(empty_as_null=False).to_numpy().reshape(-1, widths[0])
    return masses


def first_of_same(results: pl.DataFrame) -> Integers:
    """For every window the first row that has the same tokens: its own, or that of the window it repeats."""
    numbered = results.select("prefix_ids", "suffix_ids").with_row_index("row")
    first = numbered.select(pl.col("row").first().over("prefix_ids", "suffix_ids"))
    return first["row"].to_numpy().astype(np.int64)


def categories(p_verbatim: Floats, mass: Floats, threshold: float, *, is_impossible: Flags) -> NDArray[np.uint8]:
    """The `Category` of each window at τ = `threshold`."""
    category = np.full(len(mass), Category.NOT_EXTRACTABLE, dtype=np.uint8)
    category[mass >= threshold] = Category.UNLOCKED
    category[(mass >= threshold) & is_impossible] = Category.UNLOCKED_FROM_ZERO
    category[p_verbatim >= threshold] = Category.VERBATIM
    return category


def mass_gain(p_verbatim: Floats, mass: Floats) -> Floats:
    """Δ = near-verbatim mass − p_z; never negative, because the verbatim continuation is in the ball."""
    return np.maximum(mass - p_verbatim, 0.0)


def tail_curve(values: Floats) -> tuple[Floats, Floats]:
    """The distinct values, ascending, and for each x of them the share of values that are at least x."""
    distinct, first = np.unique(np.sort(values), return_index=True)
    return distinct, (len(values) - first) / max(len(values), 1)


def shell_shares(mass_lower: Floats) -> Floats:
    """[windows, budget + 1]: the part of the whole mass at exactly ε edits; ε = 0 is the verbatim share.

    Rows add up to 1. A window with no mass has no shares: its row is NaN.
    """
    shells = np.diff(mass_lower, axis=1, prepend=0.0)
    total = mass_lower[:, -1:]
    return np.divide(shells, total, out=np.full_like(shells, np.nan), where=total > 0)


def extractable_by_all(masses: Sequence[Floats], threshold: float) -> Flags:
    """The fixed set: windows, aligned across models, that every model has at or above τ."""
    reached = np.stack(masses) >= threshold
    return np.asarray(reached.all(axis=0), dtype=np.bool_)


FOUND = 0.5
"""A target that was found has a ratio of 1 up to rounding, one that was lost has 0; this parts the two."""


class Recovery(NamedTuple):
    """Of the searched windows with p_z ≥ τ: in how many the search found the target, and how its mass compares."""

    windows: int
    found: int
    median: float
    """Median of found / p_z; NaN without windows."""
    largest_difference: float
    """Largest |found / p_z − 1| over the windows in which the target was found: rounding. NaN when there are none."""

    @property
    def share(self) -> float:
        return self.found / self.windows if self.windows else float("nan")


def recovery(search_verbatim: Floats, p_verbatim: Floats, threshold: float) -> Recovery:
    """`search_verbatim` is NaN where a window was not searched."""
    rows = ~np.isnan(search_verbatim) & (p_verbatim >= threshold)
    ratios = search_verbatim[rows] / p_verbatim[rows]
    found = ratios[ratios > FOUND]
    return Recovery(
        windows=len(ratios),
        found=len(found),
        median=float(np.median(ratios)) if len(ratios) else float("nan"),
        largest_difference=float(np.abs(found - 1).max()) if len(found) else float("nan"),
    )


def character_maxima(starts: Integers, ends: Integers, values: Floats, *, length: int) -> Floats:
    """For each character of a text the largest value over the spans that cover it; NaN where none does."""
    heat = np.full(length, np.nan)
    # Painting in ascending order leaves the maximum on top.
    for row in np.argsort(values, kind="stable"):
        heat[starts[row] : ends[row]] = values[row]
    return heat


def stretch_maxima(heat: Floats, stretches: int) -> Floats:
    """The maximum of each of `stretches` equal stretches of a text, at most one per character; NaN where none has a
    value."""
    edges = np.linspace(0, len(heat), min(stretches, len(heat)) + 1).astype(int)
    parts = [heat[start:end] for start, end in pairwise(edges)]
    return np.array([np.nan if np.isnan(part).all() else np.nanmax(part) for part in parts], dtype=np.float64)


def covered_share(heat: Floats, threshold: float) -> float:
    """The share of a text's characters inside at least one suffix whose value reaches τ; NaN for an empty text."""
    return float(np.mean(heat >= threshold)) if len(heat) else float("nan")
