"""The numbers of a prior run at one prefix length: P(s|p), then n, then P(s), which takes longest and comes last."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rote.models.base import LanguageModel
from rote.models.teacher_forcing import score_verbatim
from rote.policy import Policy
from rote.prior.calibration import GenericScore, RatioThreshold, calibrate, generic_length, generic_pairs
from rote.prior.columns import LengthScores, least_probability
from rote.prior.draws import DrawnPrefixes, shorten
from rote.prior.estimate import KeptBlocks, PriorResult, estimate_priors
from rote.prior.forecast import Forecast, Scored, forecast
from rote.prior.options import PriorConfig
from rote.store.session import RunSession
from rote.types import Split, Window

Advance = Callable[[int], None]


class Prepared(NamedTuple):
    """What is known before the prior of what is scored: conditionals in item order, and n by suffix length."""

    prefix_tokens: int
    log_conditionals: list[float]
    thresholds: dict[int, RatioThreshold]


@dataclass(slots=True)
class Measurement:
    """Measures `windows` and, for n, the `generic` texts; counts what that costs."""

    config: PriorConfig
    model: LanguageModel
    windows: Sequence[Window]
    generic: Sequence[Sequence[int]]
    drawn: DrawnPrefixes
    session: RunSession
    """Keeps the sums of finished blocks of prefixes."""
    token_evals: int = 0
    naive_token_evals: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def bos_id(self) -> int | None:
        return self.model.bos_id(self.config.bos)

    def prepare(self, prefix_tokens: int, *, advance: Advance) -> Prepared:
        """P(s|p) of everything that is scored, and n for every suffix length among it."""
        shorter = [replace(one, prefix_ids=self._shorten(one.prefix_ids, prefix_tokens)) for one in self.windows]
        return Prepared(prefix_tokens, self._conditionals(shorter), self._thresholds(prefix_tokens, advance))

    def forecast(self, prepared: Prepared) -> Forecast:
        """What the prior still to be measured can settle."""
        tokens = [len(window.suffix_ids) for window in self.windows]
        scored = [
            Scored(log_p, least_probability(self.config, length), prepared.thresholds[length])
            for log_p, length in zip(prepared.log_conditionals, tokens, strict=True)
        ]
        return forecast(scored, self.drawn)

    def finish(self, prepared: Prepared, *, advance: Advance) -> LengthScores:
        """P(s) of everything that is scored."""
        tokens, conditionals, thresholds = prepared
        result = self._priors("scored", [window.suffix_ids for window in self.windows], tokens, advance)
        return LengthScores(tokens, conditionals, result.estimates, thresholds, result.distinct_prefixes)

    def _thresholds(self, prefix_tokens: int, advance: Advance) -> dict[int, RatioThreshold]:
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
        result = self._priors("generic", [pair.suffix_ids for pair in every], prefix_tokens, advance)
        scores = map(GenericScore, self._conditionals(windows), result.estimates)
        measured = {length: [next(scores) for _ in some] for length, some in pairs.items()}
        return {length: calibrate(length, used[length], measured[used[length]]) for length in lengths}

    def _priors(
        self, name: str, suffixes: Sequence[Sequence[int]], prefix_tokens: int, advance: Advance
    ) -> PriorResult:
        drawn = self.drawn.shortened(prefix_tokens, self.bos_id)
        blocks = KeptBlocks(self.session, f"{name}-{prefix_tokens:05d}")
        result = estimate_priors(self.model, suffixes, drawn, self.config.policy, blocks=blocks, advance=advance)
        self.token_evals += result.token_evals
        self.naive_token_evals += result.naive_token_evals
        return result

    def _conditionals(self, windows: Sequence[Window]) -> list[float]:
        self.token_evals += sum(len(window.ids) for window in windows)
        return conditional_log_p(self.model, windows, self.config.policy, batch_windows=self.config.batch_windows)

    def _shorten(self, prefix: Sequence[int], tokens: int) -> tuple[int, ...]:
        return shorten(prefix, tokens, self.bos_id)


def conditional_log_p(
    model: LanguageModel, windows: Sequence[Window], policy: Policy, *, batch_windows: int
) -> list[float]:
    """log P(s|p) of every window by teacher forcing, windows of one shape together."""
    order = sorted(range(len(windows)), key=lambda place: (len(windows[place].prefix_ids), len(windows[place].ids)))
    scores = score_verbatim(model, [windows[place] for place in order], [policy], batch_windows=batch_windows)
    found = dict(zip(order, (score.log_p[0] for score in scores), strict=True))
    return [found[place] for place in range(len(windows))]
