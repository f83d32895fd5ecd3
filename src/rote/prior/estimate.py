"""v̂ for many suffixes at once, block of prefixes by block, each block safely on the disk before the next one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rote.models.base import TreeModel
from rote.models.shared_prefix import SharedPrefixScorer
from rote.policy import Policy
from rote.prior.draws import DrawnPrefixes
from rote.stats.prior_mean import PriorEstimate, PriorSums
from rote.store.columns import Column, Schema
from rote.store.session import RunSession

BLOCK_TOKENS = 2_000_000
"""Token evaluations per block: what a kill can cost."""
BLOCK_PREFIXES = 256


class PriorResult(NamedTuple):
    """One estimate per suffix, what it cost, and what evaluating every pair by itself would have cost."""

    estimates: list[PriorEstimate]
    distinct_prefixes: int
    token_evals: int
    naive_token_evals: int


def estimate_priors(
    model: TreeModel,
    suffixes: Sequence[Sequence[int]],
    drawn: DrawnPrefixes,
    policy: Policy,
    *,
    blocks: "KeptBlocks | None" = None,
    advance: Callable[[int], None] = lambda _: None,
) -> PriorResult:
    """Estimates of P(s) for every suffix. With `blocks`, finished blocks are kept there and not repeated.

    Sums are added in the order of the blocks, read back or not, so an interrupted run ends in the same numbers.
    """
    scorer = SharedPrefixScorer(model, suffixes, policy)
    trials = drawn.counts.shape[1]
    total = PriorSums.empty(trials, len(suffixes))
    size = block_size(scorer, drawn)
    for first in range(0, len(drawn.prefixes), size):
        rows = slice(first, first + size)
        sums = None if blocks is None else blocks.read(rows)
        if sums is None:
            log_p = scorer.score(drawn.prefixes[rows]).numpy()
            sums = PriorSums.of(log_p, drawn.counts[rows])
            if blocks is not None:
                blocks.write(rows, sums)
        total = total.add(sums)
        advance(len(drawn.prefixes[rows]))
    naive = sum(len(prefix) * len(suffixes) + sum(map(len, suffixes)) for prefix in drawn.prefixes)
    estimates = total.estimates(is_exact=drawn.is_exhaustive)
    return PriorResult(estimates, len(drawn.prefixes), scorer.token_evals(drawn.prefixes), naive)


def block_size(scorer: SharedPrefixScorer, drawn: DrawnPrefixes) -> int:
    per_prefix = scorer.evals_per_prefix + len(drawn.prefixes[0])
    return max(1, min(BLOCK_PREFIXES, BLOCK_TOKENS // per_prefix))


BLOCK_COLUMNS: Schema = (
    Column("draws", "int64"),
    Column("log_sums", "list[float64]"),
    Column("log_squares", "list[float64]"),
    Column("log_largest", "list[float64]"),
)
"""One row a trial; what is summed over all trials stands in the first row."""


@dataclass(frozen=True, slots=True)
class KeptBlocks:
    """The finished blocks of a run at one prefix length, on the disk until the run is complete."""

    session: RunSession
    name: str

    def write(self, prefixes: slice, sums: PriorSums) -> None:
        rows = [
            {"draws": int(draws), "log_sums": log_sums.tolist(), "log_squares": None, "log_largest": None}
            for draws, log_sums in zip(sums.draws, sums.log_sums, strict=True)
        ]
        rows[0] |= {"log_squares": sums.log_squares.tolist(), "log_largest": sums.log_largest.tolist()}
        self.session.write_block(self._name(prefixes), rows, BLOCK_COLUMNS)

    def read(self, prefixes: slice) -> PriorSums | None:
        """The sums of a finished block; None when it is not there or not whole."""
        rows = self.session.read_block(self._name(prefixes))
        if rows is None:
            return None
        return PriorSums(
            log_sums=np.array([row["log_sums"] for row in rows]),
            log_squares=np.array(rows[0]["log_squares"]),
            log_largest=np.array(rows[0]["log_largest"]),
            draws=np.array([row["draws"] for row in rows]),
        )

    def _name(self, prefixes: slice) -> str:
        return f"{self.name}-from-{prefixes.start:06d}-to-{prefixes.stop:06d}"
