"""P(s|p) and P(s) of everything that is scored, and the thresholds n.

P(s) is summed over blocks of prefixes, which the run folder keeps until the run is complete.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from byrote.models.base import LanguageModel, TreeModel
from byrote.models.shared_prefix import SharedPrefixScorer
from byrote.models.teacher_forcing import score_verbatim
from byrote.policy import Policy
from byrote.prior.calibration import GenericScore, RatioThreshold, calibrate, generic_length, generic_pairs
from byrote.prior.draws import DrawnPrefixes, shorten
from byrote.prior.options import PriorConfig
from byrote.stats.prior_mean import PriorEstimate, PriorSums
from byrote.store.columns import Column, Schema
from byrote.store.session import RunSession
from byrote.types import Split, Window

BLOCK_TOKENS = 2_000_000
"""Token evaluations per block: what a kill can cost."""
BLOCK_PREFIXES = 256
BLOCK_COLUMNS: Schema = (
    Column("draws", "int64"),
    Column("log_sums", "list[float64]"),
    Column("log_squares", "list[float64]"),
    Column("log_largest", "list[float64]"),
)
"""One row a trial; what is summed over all trials stands in the first row."""


class PriorResult(NamedTuple):
    """One estimate per suffix, what it cost, and what evaluating every pair by itself would have cost."""

    estimates: list[PriorEstimate]
    distinct_prefixes: int
    token_evals: int
    naive_token_evals: int


@dataclass(slots=True)
class Measurement:
    """Measures `windows` and, for n, the `generic` texts at any prefix length; adds up what that costs."""

    config: PriorConfig
    model: LanguageModel
    windows: Sequence[Window]
    generic: Sequence[Sequence[int]]
    drawn: DrawnPrefixes
    session: RunSession
    """Keeps the sums of finished blocks of prefixes."""
    advance: Callable[[int], None]
    """Called with the number of prefixes evaluated."""
    token_evals: int = 0
    naive_token_evals: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def bos_id(self) -> int | None:
        return self.model.bos_id(self.config.bos)

    def conditionals(self, prefix_tokens: int) -> list[float]:
        """log P(s|p) of every window after the last tokens of its prefix."""
        return self._conditionals(
            [replace(one, prefix_ids=shorten(one.prefix_ids, prefix_tokens, self.bos_id)) for one in self.windows]
        )

    def thresholds(self, prefix_tokens: int) -> dict[int, RatioThreshold]:
        """n for every suffix length among the windows."""
        lengths = sorted({len(window.suffix_ids) for window in self.windows})
        if self.config.least_ratio is not None:
            return {length: RatioThreshold.given(length, self.config.least_ratio) for length in lengths}
        used = {length: generic_length(self.generic, length) for length in lengths}
        pairs = {
            length: generic_pairs(self.generic, prefix_tokens=prefix_tokens, suffix_tokens=length, bos_id=self.bos_id)
            for length in sorted(set(used.values()))
        }
        every = [pair for some in pairs.values() for pair in some]
        windows = [Window("", "", Split.CONTROL, 0, 0, 0, pair.prefix_ids, pair.suffix_ids) for pair in every]
        estimates = self._priors("generic", [pair.suffix_ids for pair in every], prefix_tokens).estimates
        scores = map(GenericScore, self._conditionals(windows), estimates)
        measured = {length: [next(scores) for _ in some] for length, some in pairs.items()}
        return {length: calibrate(length, used[length], measured[used[length]]) for length in lengths}

    def priors(self, prefix_tokens: int) -> PriorResult:
        """P(s) of every window's suffix."""
        return self._priors("scored", [window.suffix_ids for window in self.windows], prefix_tokens)

    def _priors(self, name: str, suffixes: Sequence[Sequence[int]], prefix_tokens: int) -> PriorResult:
        drawn = self.drawn.shortened(prefix_tokens, self.bos_id)
        blocks = KeptBlocks(self.session, f"{name}-{prefix_tokens:05d}")
        result = estimate_priors(self.model, suffixes, drawn, self.config.policy, blocks=blocks, advance=self.advance)
        self.token_evals += result.token_evals
        self.naive_token_evals += result.naive_token_evals
        return result

    def _conditionals(self, windows: Sequence[Window]) -> list[float]:
        self.token_evals += sum(len(window.ids) for window in windows)
        return conditional_log_p(self.model, windows, self.config.policy, batch_windows=self.config.batch_windows)


def conditional_log_p(
    model: LanguageModel, windows: Sequence[Window], policy: Policy, *, batch_windows: int
) -> list[float]:
    """log P(s|p) of every window by teacher forcing, windows of one shape together."""
    order = sorted(range(len(windows)), key=lambda place: (len(windows[place].prefix_ids), len(windows[place].ids)))
    scores = score_verbatim(model, [windows[place] for place in order], [policy], batch_windows=batch_windows)
    found = dict(zip(order, (score.log_p[0] for score in scores), strict=True))
    return [found[place] for place in range(len(windows))]


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
    total = PriorSums.empty(drawn.counts.shape[1], len(suffixes))
    per_prefix = scorer.evals_per_prefix + len(drawn.prefixes[0])
    size = max(1, min(BLOCK_PREFIXES, BLOCK_TOKENS // per_prefix))
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
