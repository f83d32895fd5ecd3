"""`byrote prior` from its options to a finished run folder: what is scored, prefixes, n, priors, rows."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from byrote.corpus.read import Document, read_documents
from byrote.models.base import LanguageModel, require_positions
from byrote.models.load import open_model
from byrote.models.shared_prefix import CONTEXT_ADVICE
from byrote.prior.calibration import read_generic
from byrote.prior.columns import LengthScores, least_probability, prior_schema, rows_of, summarise
from byrote.prior.draws import DrawnPrefixes, draw_prefixes
from byrote.prior.estimate import Measurement
from byrote.prior.items import PriorItems, read_items
from byrote.prior.options import PriorConfig
from byrote.prior.pool import PooledBalls, ScannedBall
from byrote.prior.verdicts import forecast, forecast_sentences
from byrote.progress import Progress
from byrote.store.resume import RunSession
from byrote.types import Split

Say = Callable[[str], None]
AFFORDABLE_MINUTES = 10
"""A run that takes longer says how many prefixes take so long."""


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
        measurement = Measurement(config, model, items.windows, generic, drawn, session, progress.advance)
        scores, balls = _measure(measurement, pool, progress, say)
        rows = rows_of(items.windows, scores, config, decode=model.decode, balls=balls)
        totals = summarise(rows, scores, drawn, decode=model.decode, balls=balls) | {
            "token_evals": measurement.token_evals,
            "available": items.available,
            "in_reference": _in_reference(items, reference, drawn),
            **items.left_out,
        }
        manifest = {
            "config": asdict(config),
            "texts": _texts(items.documents) | _texts(reference, prefix="prior:"),
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


def _measure(
    measurement: Measurement, pool: tuple[ScannedBall, DrawnPrefixes] | None, progress: Progress, say: Say
) -> tuple[list[LengthScores], PooledBalls | None]:
    """Everything at every prefix length, and the `pool` for the balls of a scan; what the run cannot settle is printed
    before the long pass."""
    config, windows, drawn = measurement.config, measurement.windows, measurement.drawn
    lengths = config.all_prefix_lengths
    passes = len(lengths) * (1 if config.least_ratio is not None else 2)
    started = time.monotonic()
    conditionals = {length: measurement.conditionals(length) for length in lengths}
    say(_cost(measurement, time.monotonic() - started, members=config.pool_members if pool else 0))
    progress.start(passes * len(drawn.prefixes) + (config.pool_members if pool else 0), 0)
    progress.remark("n of generic texts")
    thresholds = {length: measurement.thresholds(length) for length in lengths}
    main, suffix_tokens = lengths[0], [len(window.suffix_ids) for window in windows]
    suffixes = [
        (log_p, least_probability(config, tokens), thresholds[main][tokens].interval)
        for log_p, tokens in zip(conditionals[main], suffix_tokens, strict=True)
    ]
    for sentence in forecast_sentences(forecast(suffixes, drawn), drawn):
        say(sentence)
    balls = None
    if pool is not None:
        progress.remark("the pool of continuations")
        balls = measurement.balls(*pool, thresholds[main])
    progress.remark("P(s) of what is scored")
    scores = []
    for length in lengths:
        priors = measurement.priors("scored", windows, length)
        scores.append(
            LengthScores(length, conditionals[length], priors.estimates, thresholds[length], priors.distinct_prefixes)
        )
    return scores, balls


def _cost(measurement: Measurement, seconds: float, *, members: int) -> str:
    """What all passes will take, from the speed of the conditionals, which took `seconds`."""
    lengths = measurement.config.all_prefix_lengths
    scored = sum(len(window.suffix_ids) - 1 for window in measurement.windows)
    longest = max(len(window.suffix_ids) for window in measurement.windows)
    evals = members * (measurement.config.prefix_tokens + longest - 1)
    for length in lengths:
        generic = measurement.generic_windows(length) if measurement.config.least_ratio is None else {}
        inner = scored + sum(len(window.suffix_ids) - 1 for some in generic.values() for window in some)
        evals += len(measurement.drawn.prefixes) * (inner + length * (2 if generic else 1))
    minutes = evals / measurement.token_evals * seconds / 60
    time_words = (
        "under a minute"
        if minutes < 1
        else f"about {minutes:,.0f} min"
        if minutes < 90
        else (f"about {minutes / 60:,.0f} h")
    )
    return (
        f"{len(measurement.drawn.prefixes):,} prefixes × {len(measurement.windows):,} suffixes and the generic texts"
        f"{f', and a pool of {members:,} continuations' if members else ''}: "
        f"at most {evals:,} tokens to evaluate, {time_words} at the speed of the first pass. "
        f"{cheaper_words(minutes, measurement.drawn.prefixes, measurement.config)}"
    )


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


def _texts(documents: Sequence[Document], *, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}{document.name}": {
            "split": str(document.split),
            "content_hash": document.content_hash,
            "characters": document.characters,
        }
        for document in documents
    }
