"""`byrote prior` from its options to a finished run folder: what is scored, prefixes, n, priors, rows.

P(s) is summed over blocks of prefixes, which the run folder keeps until the run is complete.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.corpus.read import Document, read_documents
from byrote.models.base import LanguageModel, TreeModel, require_positions
from byrote.models.load import open_model
from byrote.models.scoring import score_verbatim
from byrote.models.shared_prefix import CONTEXT_ADVICE, SharedPrefixScorer
from byrote.policy import Policy
from byrote.prior import calibration
from byrote.prior.calibration import GenericScore, RatioThreshold, read_generic
from byrote.prior.columns import LengthScores, least_probability, prior_schema, rows_of, summarise
from byrote.prior.draws import DrawnPrefixes, draw_prefixes, shorten
from byrote.prior.items import PriorItems, read_items
from byrote.prior.options import PriorConfig
from byrote.prior.pool import PooledBalls, ScannedBall, hits_of, sample_pool
from byrote.prior.verdicts import LEVEL, forecast, forecast_sentences
from byrote.progress import Progress, duration
from byrote.stats.intervals import undefined
from byrote.stats.prior_mean import PriorEstimate, PriorSums
from byrote.store.columns import Column, Schema
from byrote.store.resume import RunSession
from byrote.types import Split, Window

Say = Callable[[str], None]
BLOCK_TOKENS = 2_000_000
"""Token evaluations per block: what a kill can cost."""
BLOCK_PREFIXES = 256
AFFORDABLE_MINUTES = 10
"""A run that takes longer says how many prefixes take so long."""
BLOCK_COLUMNS: Schema = (Column("values", "list[float64]", is_required=True),)
"""A row each for draws, squares and largest contributions, then one for the sums of every trial."""


def prior_to_folder(
    config: PriorConfig,
    *,
    progress: Progress,
    say: Say = lambda _: None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
    model: LanguageModel | None = None,
) -> bool:
    """Run or resume what `config` describes; whether it was complete already.

    `say` gets sentences for the user before the long part; `model` is the one that `config` names, where it is loaded
    already.
    """
    reference = [document.held() for document in read_documents(config.prior_text, split=Split.CONTROL)]
    if model is None:
        with progress.phase(f"loading {config.model}"):
            model = open_model(config.model, **config.loading)
    with progress.phase("reading what to score"):
        items = read_items(config, model)
        longest = max(len(window.suffix_ids) for window in items.windows)
        require_positions(model, config.longest_prefix + longest, advice=CONTEXT_ADVICE)
        generic = [encoding.ids for encoding in model.encode_batch(read_generic(config.generic))]
    with progress.phase("drawing prefixes"):
        draw = partial(
            draw_prefixes,
            reference,
            model,
            stride_chars=None if config.whole_documents else config.stride_chars,
            bos_id=model.bos_id(config.bos),
            seed=config.seed,
        )
        drawn = draw(prefix_tokens=config.longest_prefix, draws=config.prior_prefixes, trials=config.trials)
        pool = None
        if items.ball is not None:
            pool = items.ball, draw(prefix_tokens=config.prefix_tokens, draws=config.pool_members, trials=1)
    # Two runs are the same when the model, what is scored, what was drawn and the thresholds are.
    identity = {
        "config": config.identity(),
        "model": model.described.fingerprint,
        "items": _hash([list(asdict(window).values()) for window in items.windows]),
        "drawn": _hash([drawn.prefixes, drawn.counts.tolist(), drawn.is_exhaustive]),
        "generic": _hash(generic),
    }
    schema = prior_schema(
        is_sweep=len(config.all_prefix_lengths) > 1, is_joined=config.run is not None, has_balls=items.ball is not None
    )
    with RunSession.open(config.out, kind="prior", identity=identity, schema=schema, fresh=fresh) as session:
        if session.is_complete:
            return True
        started = time.monotonic()
        measurement = Measurement(config, model, items.windows, generic, drawn, session, progress)
        scores, balls = measurement.everything(pool, say)
        rows = rows_of(items.windows, scores, config, decode=model.decode, balls=balls)
        totals = summarise(rows, scores, drawn, decode=model.decode, balls=balls) | {
            "token_evals": measurement.token_evals,
            "available": items.available,
            "in_reference": _in_reference(items, reference, drawn),
            **items.left_out,
        }
        manifest = {
            "config": asdict(config),
            "texts": {one.name: one.facts for one in items.documents}
            | {f"prior:{one.name}": one.facts for one in reference},
            "model": asdict(model.identity) | {"bos_id": measurement.bos_id},
            "device": {"name": str(model.device)},
            "seed": config.seed,
            "command_line": command_line,
            "timings": {"measuring_seconds": time.monotonic() - started},
            "totals": totals,
        }
        session.complete_with(rows, manifest)
    return False


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def cheaper_words(minutes: float, prefixes: Sequence[tuple[int, ...]], config: PriorConfig) -> str:
    """Prefixes that take at most AFFORDABLE_MINUTES, each trial's share of them; a pool of a given size is no fewer."""
    fewer = int(AFFORDABLE_MINUTES / minutes * len(prefixes) / config.trials)
    if minutes <= AFFORDABLE_MINUTES or not fewer or config.pool:
        return "--sample and --prior-prefixes lower it."
    return (
        f"--prior-prefixes {fewer} --fresh takes at most about {AFFORDABLE_MINUTES} min and settles less; --sample "
        "lowers it too."
    )


def _in_reference(items: PriorItems, reference: Sequence[Document], drawn: DrawnPrefixes) -> int:
    """Windows whose text, or whose own prefix, is also in the reference corpus: P(s) then holds P(s|p) itself."""
    known = {document.content_hash for document in reference}
    shared = {document.name for document in items.documents if document.content_hash in known}
    prefixes = set(drawn.prefixes)
    return sum(window.document in shared or window.prefix_ids in prefixes for window in items.windows)


class PriorResult(NamedTuple):
    """One estimate per suffix, and what they cost."""

    estimates: list[PriorEstimate]
    distinct_prefixes: int
    token_evals: int


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
    progress: Progress
    """Counts prefixes and members of the pool."""
    token_evals: int = 0

    @property
    def bos_id(self) -> int | None:
        return self.model.bos_id(self.config.bos)

    def everything(
        self, pool: tuple[ScannedBall, DrawnPrefixes] | None, say: Say
    ) -> tuple[list[LengthScores], PooledBalls | None]:
        """All at every prefix length, and the `pool` for the balls of a scan; what the run cannot settle is said before
        the long pass."""
        config, windows, drawn = self.config, self.windows, self.drawn
        lengths, members = config.all_prefix_lengths, config.pool_members if pool else 0
        passes = len(lengths) * (1 if config.least_ratio is not None else 2)
        started = time.monotonic()
        conditionals = {length: self.conditionals(length) for length in lengths}
        say(self.cost_words(time.monotonic() - started, members=members))
        self.progress.start(passes * len(drawn.prefixes) + members, 0)
        self.progress.remark("n of generic texts")
        thresholds = {length: self.thresholds(length) for length in lengths}
        main, suffix_tokens = lengths[0], [len(window.suffix_ids) for window in windows]
        suffixes = [
            (log_p, least_probability(config, tokens), thresholds[main][tokens].interval)
            for log_p, tokens in zip(conditionals[main], suffix_tokens, strict=True)
        ]
        for sentence in forecast_sentences(forecast(suffixes, drawn), drawn):
            say(sentence)
        balls = None
        if pool is not None:
            self.progress.remark("the pool of continuations")
            balls = self.balls(*pool, thresholds[main])
        self.progress.remark("P(s) of what is scored")
        scores = []
        for length in lengths:
            found = self.priors("scored", windows, length)
            scores.append(
                LengthScores(length, conditionals[length], found.estimates, thresholds[length], found.distinct_prefixes)
            )
        return scores, balls

    def cost_words(self, seconds: float, *, members: int) -> str:
        """What all passes will take, from the speed of the conditionals, which took `seconds`."""
        scored = sum(len(window.suffix_ids) - 1 for window in self.windows)
        longest = max(len(window.suffix_ids) for window in self.windows)
        evals = members * (self.config.prefix_tokens + longest - 1)
        for length in self.config.all_prefix_lengths:
            generic = self.generic_windows(length) if self.config.least_ratio is None else {}
            inner = scored + sum(len(window.suffix_ids) - 1 for some in generic.values() for window in some)
            evals += len(self.drawn.prefixes) * (inner + length * (2 if generic else 1))
        needed = evals / self.token_evals * seconds
        words = "under a minute" if needed < 60 else f"about {duration(needed)}"
        return (
            f"{len(self.drawn.prefixes):,} prefixes × {len(self.windows):,} suffixes and the generic texts"
            f"{f', and a pool of {members:,} continuations' if members else ''}: at most {evals:,} tokens to evaluate, "
            f"{words} at the speed of the first pass. {cheaper_words(needed / 60, self.drawn.prefixes, self.config)}"
        )

    def conditionals(self, prefix_tokens: int) -> list[float]:
        """log P(s|p) of every window after the last tokens of its prefix."""
        return self._conditionals(
            [replace(one, prefix_ids=shorten(one.prefix_ids, prefix_tokens, self.bos_id)) for one in self.windows]
        )

    def thresholds(self, prefix_tokens: int) -> dict[int, RatioThreshold]:
        """n for every suffix length among the windows."""
        lengths = sorted({len(window.suffix_ids) for window in self.windows})
        if self.config.least_ratio is not None:
            return {length: RatioThreshold.given(self.config.least_ratio) for length in lengths}
        windows = self.generic_windows(prefix_tokens)
        every = [window for some in windows.values() for window in some]
        estimates = self.priors("generic", every, prefix_tokens).estimates
        scores = map(GenericScore, self._conditionals(every), estimates)
        return {
            length: calibration.calibrate(len(some[0].suffix_ids), [next(scores) for _ in some])
            for length, some in windows.items()
        }

    def generic_windows(self, prefix_tokens: int) -> dict[int, list[Window]]:
        """The generic suffixes for every suffix length among the windows."""
        found = {}
        for length in sorted({len(window.suffix_ids) for window in self.windows}):
            texts = calibration.generic_kind(self.generic, length)
            tokens = calibration.generic_length(texts, length)
            found[length] = calibration.generic_windows(
                texts, prefix_tokens=prefix_tokens, suffix_tokens=tokens, bos_id=self.bos_id
            )
        return found

    def priors(self, name: str, windows: Sequence[Window], prefix_tokens: int) -> PriorResult:
        """P(s) of every window's suffix; `name` is that of the blocks."""
        result = estimate_priors(
            self.model,
            [window.suffix_ids for window in windows],
            self.drawn.shortened(prefix_tokens, self.bos_id),
            self.config.policy,
            keep=lambda block, compute: self._kept_sums(f"{name}-{prefix_tokens:05d}-{block}", compute),
            advance=self.progress.advance,
        )
        self.token_evals += result.token_evals
        return result

    def balls(self, ball: ScannedBall, drawn: DrawnPrefixes, thresholds: Mapping[int, RatioThreshold]) -> PooledBalls:
        """Every window's ball against one pool, which is sampled under the policy of the balls' masses; `thresholds`
        are those of exact suffixes, under the run's own policy."""
        suffixes = [window.suffix_ids for window in self.windows]
        tokens, members = max(map(len, suffixes)), self.config.pool_members

        pool = sample_pool(
            self.model,
            drawn,
            ball.policy,
            members=members,
            tokens=tokens,
            seed=self.config.seed,
            keep_block=lambda name, compute: np.array(self._kept(name, compute)).astype(np.int64),
            advance=self.progress.advance,
        )
        self.token_evals += members * (self.config.prefix_tokens + tokens - 1)
        if self.config.least_ratio is None and ball.policy != self.config.policy:
            reason = (
                f"n is of {self.config.policy.describe()}, the scan's masses are of {ball.policy.describe()}; give "
                "byrote prior the same policy, or set n with --least-ratio"
            )
            thresholds = dict.fromkeys(thresholds, RatioThreshold(math.nan, undefined(reason, level=LEVEL)))
        hits = hits_of(pool, suffixes, distance=ball.distance, edits=ball.edits)
        return PooledBalls(ball, hits, members, pool.independent, thresholds)

    def _kept(self, name: str, compute: Callable[[], Iterable[NDArray[Any]]]) -> list[list[float]]:
        """The rows of numbers of a block: as the run folder has them, otherwise computed and kept there."""
        rows = self.session.read_block(name)
        if rows is None:
            rows = [{"values": values.tolist()} for values in compute()]
            self.session.write_block(name, rows, BLOCK_COLUMNS)
        return [row["values"] for row in rows]

    def _kept_sums(self, name: str, compute: Callable[[], PriorSums]) -> PriorSums:
        def flat() -> Iterable[NDArray[Any]]:
            sums = compute()
            return (sums.draws, sums.log_squares, sums.log_largest, *sums.log_sums)

        draws, log_squares, log_largest, *log_sums = map(np.array, self._kept(name, flat))
        return PriorSums(np.stack(log_sums), log_squares, log_largest, draws.astype(np.int64))

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
    keep: Callable[[str, Callable[[], PriorSums]], PriorSums] = lambda block, compute: compute(),
    advance: Callable[[int], None] = lambda _: None,
) -> PriorResult:
    """Estimates of P(s) for every suffix. `keep` gets the name of every block of prefixes and what computes its sums.

    Sums are added in the order of the blocks, read back or not, so an interrupted run ends in the same numbers.
    """
    scorer = SharedPrefixScorer(model, suffixes, policy)
    total = PriorSums.empty(drawn.counts.shape[1], len(suffixes))
    per_prefix = scorer.evals_per_prefix + len(drawn.prefixes[0])
    size = max(1, min(BLOCK_PREFIXES, BLOCK_TOKENS // per_prefix))

    def sums_of(rows: slice) -> PriorSums:
        return PriorSums.of(scorer.score(drawn.prefixes[rows]).numpy(), drawn.counts[rows])

    for first in range(0, len(drawn.prefixes), size):
        rows = slice(first, first + size)
        total = total.add(keep(f"from-{rows.start:06d}-to-{rows.stop:06d}", partial(sums_of, rows)))
        advance(len(drawn.prefixes[rows]))
    estimates = total.estimates(independent=drawn.independent)
    return PriorResult(estimates, len(drawn.prefixes), scorer.token_evals(drawn.prefixes))
