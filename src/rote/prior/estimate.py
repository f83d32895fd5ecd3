"""v̂ for many suffixes at once, block of prefixes by block, each block safely on the disk before the next one."""

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from rote.models.base import TreeModel
from rote.models.shared_prefix import SharedPrefixScorer
from rote.policy import Policy
from rote.prior.draws import DrawnPrefixes
from rote.stats.prior_mean import PriorEstimate, PriorSums
from rote.store.atomic import atomic_file

BLOCK_TOKENS = 2_000_000
"""Token evaluations per block: what a kill can cost."""
BLOCK_PREFIXES = 256


class PriorResult(NamedTuple):
    """One estimate per suffix, what it cost, and what evaluating every pair by itself would have cost."""

    estimates: list[PriorEstimate]
    token_evals: int
    naive_token_evals: int


def estimate_priors(
    model: TreeModel,
    suffixes: Sequence[Sequence[int]],
    drawn: DrawnPrefixes,
    policy: Policy,
    *,
    blocks: Path | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> PriorResult:
    """Estimates of P(s) for every suffix. With a folder `blocks`, finished blocks are kept there and not repeated.

    Sums are added in the order of the blocks, read back or not, so an interrupted run ends in the same numbers.
    """
    scorer = SharedPrefixScorer(model, suffixes, policy)
    trials = drawn.counts.shape[1]
    total = PriorSums.empty(trials, len(suffixes))
    for number, first in enumerate(range(0, len(drawn.prefixes), block_size(scorer, drawn))):
        rows = slice(first, first + block_size(scorer, drawn))
        file = None if blocks is None else blocks / f"block-{number:06d}.npz"
        sums = None if file is None else read_block(file, trials, len(suffixes))
        if sums is None:
            log_p = scorer.score(drawn.prefixes[rows]).numpy()
            sums = PriorSums.of(log_p, drawn.counts[rows])
            if file is not None:
                write_block(file, sums)
        total = total.add(sums)
        advance(len(drawn.prefixes[rows]))
    naive = sum(len(prefix) * len(suffixes) + sum(map(len, suffixes)) for prefix in drawn.prefixes)
    return PriorResult(total.estimates(), scorer.token_evals(drawn.prefixes), naive)


def block_size(scorer: SharedPrefixScorer, drawn: DrawnPrefixes) -> int:
    per_prefix = scorer.evals_per_prefix + len(drawn.prefixes[0])
    return max(1, min(BLOCK_PREFIXES, BLOCK_TOKENS // per_prefix))


def write_block(file: Path, sums: PriorSums) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as handle:
        np.savez(
            handle,
            log_sums=sums.log_sums,
            log_squares=sums.log_squares,
            log_largest=sums.log_largest,
            draws=sums.draws,
        )


def read_block(file: Path, trials: int, suffixes: int) -> PriorSums | None:
    """The sums of a finished block; None when it is not there or cannot be of this run."""
    try:
        # Through memory: numpy leaves the file open when it is damaged.
        with np.load(BytesIO(file.read_bytes())) as stored:
            sums = PriorSums(stored["log_sums"], stored["log_squares"], stored["log_largest"], stored["draws"])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return sums if sums.log_sums.shape == (trials, suffixes) else None
