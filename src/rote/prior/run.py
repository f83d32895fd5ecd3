"""`rote prior` from configuration to a run folder: read, draw, estimate, calibrate, judge, store."""

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from rote.corpus.documents import Document, read_documents
from rote.errors import TextError
from rote.models.hf import HuggingFaceModel, load
from rote.models.teacher_forcing import score_verbatim
from rote.policy import Policy
from rote.prior.calibration import GenericPair, RatioThreshold, calibrate, calibration_length, generic_pairs
from rote.prior.columns import LengthScores, prior_schema, rows_of
from rote.prior.draws import DrawnPrefixes, draw_prefixes, shorten
from rote.prior.estimate import KeptBlocks, estimate_priors
from rote.prior.items import PriorItem, PriorItems, read_items
from rote.prior.options import PriorConfig
from rote.prior.section import summarise, write_figures
from rote.stats.prior_mean import PriorEstimate, log_ratio
from rote.store.manifest import build_manifest
from rote.store.progress import Progress
from rote.store.session import RunSession
from rote.types import Split, Window


@dataclass(frozen=True, slots=True)
class PriorRun:
    """A finished prior run."""

    path: Path
    was_complete: bool


def prior_to_folder(
    config: PriorConfig, *, progress: Progress, command_line: Sequence[str] = (), fresh: bool = False
) -> PriorRun:
    """Run or resume what `config` describes."""
    reference = read_documents(config.prior_text, split=Split.CONTROL)
    with progress.phase(f"loading {config.model}"):
        model = load(config.model, revision=config.revision, dtype=config.dtype, device=config.device)
    with progress.phase("reading what to score"):
        items = read_items(config, model)
        generic = [encoding.ids for encoding in model.encode_batch(read_generic(config.generic))]
    with progress.phase("drawing prefixes"):
        drawn = draw_prefixes(
            reference,
            model,
            prefix_tokens=config.longest_prefix,
            stride_chars=None if config.whole_documents else config.stride_chars,
            bos_id=model.bos_id(config.bos),
            draws=config.prior_prefixes,
            trials=config.trials,
            seed=config.seed,
        )
    identity = prior_identity(config, model, items.items, drawn, generic)
    schema = prior_schema(is_sweep=len(config.all_prefix_lengths) > 1, is_joined=config.run is not None)
    with RunSession.open(config.out, kind="prior", identity=identity, schema=schema, fresh=fresh) as session:
        if session.is_complete:
            return PriorRun(session.path, was_complete=True)
        _Prior(config, model, items, generic, drawn, session, progress).run(command_line, reference)
    return PriorRun(Path(config.out), was_complete=False)


def prior_identity(
    config: PriorConfig,
    model: HuggingFaceModel,
    items: Sequence[PriorItem],
    drawn: DrawnPrefixes,
    generic: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """Two runs are the same when the model, what is scored, what was drawn and the thresholds are."""
    known = asdict(model.identity)
    return {
        "config": config.identity(),
        "model": {name: known[name] for name in ("weights_hash", "tokenizer_hash", "dtype")},
        "items": _hash([[item.window.window_id, item.window.prefix_ids, item.window.suffix_ids] for item in items]),
        "drawn": _hash([drawn.prefixes, drawn.counts.tolist()]),
        "generic": _hash(generic),
    }


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def read_generic(path: str | None) -> list[str]:
    """Generic texts, one a line: the user's, or rote's own."""
    if path is None:
        content = resources.files("rote.lab").joinpath("generic_sentences.txt").read_text(encoding="utf-8")
    else:
        try:
            content = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TextError(f"the generic texts {path} cannot be read: {error}.") from error
    return [line.strip() for line in content.splitlines() if line.strip()]


class Calibration(NamedTuple):
    """Generic pairs whose second halves are scored along with everything else."""

    pairs: dict[int, list[GenericPair]]
    """By calibration length."""
    suffix_lengths: dict[int, int]
    """Suffix length → calibration length."""


class _Prior:
    """One opening of a prior run."""

    def __init__(
        self,
        config: PriorConfig,
        model: HuggingFaceModel,
        items: PriorItems,
        generic: Sequence[Sequence[int]],
        drawn: DrawnPrefixes,
        session: RunSession,
        progress: Progress,
    ) -> None:
        self.config, self.model, self.items, self.drawn = config, model, items, drawn
        self.session, self.progress = session, progress
        self.bos_id = model.bos_id(config.bos)
        self.calibration = plan_calibration(config, items.items, generic, context=model.max_positions)
        self.token_evals = 0
        self.naive_token_evals = 0

    def run(self, command_line: Sequence[str], reference: Sequence[Document]) -> None:
        started = time.monotonic()
        lengths = self.config.all_prefix_lengths
        self.progress.start(len(lengths) * len(self.drawn.prefixes), 0)
        scores = [self._at_length(length) for length in lengths]
        rows = rows_of(self.items.items, scores, self.config, decode=self.model.decode)
        finished = self.session.finished_ids()
        for row in rows:
            if row["window_id"] not in finished:
                self.session.add(row)
        totals = summarise(rows, scores, self.config) | {
            "token_evals": self.token_evals,
            "naive_token_evals": self.naive_token_evals,
            "distinct_prefixes": len(self.drawn.prefixes),
            **self.items.left_out,
        }
        write_figures(self.session.path, rows, scores, self.config)
        manifest = build_manifest(
            config=self.config.as_dict(),
            texts=_texts(self.items.documents) | _texts(reference),
            model=asdict(self.model.identity) | {"bos_id": self.bos_id},
            device={"name": str(self.model.device)},
            seed=self.config.seed,
            command_line=command_line,
            timings={"measuring_seconds": time.monotonic() - started},
            totals=totals,
        )
        self.session.complete(manifest, order=[row["window_id"] for row in rows])

    def _at_length(self, length: int) -> LengthScores:
        """Everything at one prefix length: conditional, prior and threshold n."""
        drawn = self.drawn.shortened(length, self.bos_id)
        windows = [_shortened(item.window, length, self.bos_id) for item in self.items.items]
        generic = [pair for pairs in self.calibration.pairs.values() for pair in pairs]
        result = estimate_priors(
            self.model,
            [*(window.suffix_ids for window in windows), *(pair.suffix_ids for pair in generic)],
            drawn,
            self.config.policy,
            blocks=KeptBlocks(self.session, f"prefix-{length:05d}"),
            advance=self.progress.advance,
        )
        conditionals = self._conditionals(windows)
        self.token_evals += result.token_evals
        self.naive_token_evals += result.naive_token_evals
        thresholds = self._thresholds(result.estimates[len(windows) :])
        return LengthScores(length, conditionals, result.estimates[: len(windows)], thresholds, len(drawn.prefixes))

    def _conditionals(self, windows: Sequence[Window]) -> list[float]:
        self.token_evals += sum(len(window.ids) for window in windows)
        return conditional_log_p(self.model, windows, self.config.policy, batch_windows=self.config.batch_windows)

    def _thresholds(self, estimates: Sequence[PriorEstimate]) -> dict[int, RatioThreshold]:
        """n by suffix length."""
        if self.config.least_ratio is not None:
            lengths = {len(item.window.suffix_ids) for item in self.items.items}
            return {length: RatioThreshold(length, log_of(self.config.least_ratio)) for length in lengths}
        by_length: dict[int, RatioThreshold] = {}
        rest = list(estimates)
        for length, pairs in self.calibration.pairs.items():
            mine, rest = rest[: len(pairs)], rest[len(pairs) :]
            conditionals = self._conditionals([_generic_window(pair, self.bos_id) for pair in pairs])
            ratios = [log_ratio(own, prior.log_mean) for own, prior in zip(conditionals, mine, strict=True)]
            by_length[length] = calibrate(length, pairs, ratios)
        return {suffix: by_length[length] for suffix, length in self.calibration.suffix_lengths.items()}


def plan_calibration(
    config: PriorConfig, items: Sequence[PriorItem], generic: Sequence[Sequence[int]], *, context: int | None
) -> Calibration:
    """Which generic pairs are scored for which suffix lengths; none when the user set n."""
    if config.least_ratio is not None:
        return Calibration({}, {})
    lengths = {len(item.window.suffix_ids) for item in items}
    # Both halves and a BOS must fit the model's context.
    longest = max(lengths) if context is None else max(1, (context - 1) // 2)
    chosen = {length: min(calibration_length(length, lengths), longest) for length in lengths}
    return Calibration({length: generic_pairs(generic, length) for length in sorted(set(chosen.values()))}, chosen)


def conditional_log_p(
    model: HuggingFaceModel, windows: Sequence[Window], policy: Policy, *, batch_windows: int
) -> list[float]:
    """log P(s|p) of every window by teacher forcing, windows of one shape together."""
    order = sorted(range(len(windows)), key=lambda place: (len(windows[place].prefix_ids), len(windows[place].ids)))
    scores = score_verbatim(model, [windows[place] for place in order], [policy], batch_windows=batch_windows)
    found = dict(zip(order, (score.log_p[0] for score in scores), strict=True))
    return [found[place] for place in range(len(windows))]


def log_of(value: float) -> float:
    return math.log(value) if value else -math.inf


def _shortened(window: Window, tokens: int, bos_id: int | None) -> Window:
    return replace(window, prefix_ids=shorten(window.prefix_ids, tokens, bos_id))


def _generic_window(pair: GenericPair, bos_id: int | None) -> Window:
    bos = () if bos_id is None else (bos_id,)
    return Window("generic", "generic", Split.CONTROL, 0, 0, 0, bos + pair.prefix_ids, pair.suffix_ids)


def _texts(documents: Sequence[Document]) -> dict[str, Any]:
    return {
        f"{'prior:' * (document.split is Split.CONTROL)}{document.name}": {
            "content_hash": document.content_hash,
            "characters": len(document.text),
        }
        for document in documents
    }
