"""What a prior run adds up to: counts by split and kind, thresholds, examples, the joined view."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byrote.corpus.documents import Document, read_documents
from byrote.models.base import LanguageModel, require_positions
from byrote.models.load import open_model
from byrote.models.shared_prefix import CONTEXT_ADVICE
from byrote.prior.calibration import read_generic
from byrote.prior.columns import LengthScores, prior_schema, rows_of
from byrote.prior.draws import DrawnPrefixes, draw_prefixes
from byrote.prior.estimate import Measurement, forecast_sentences
from byrote.prior.items import PAIR_KIND, WINDOW_KIND, PriorItem, PriorItems, mask_identifiers, mask_whole, read_items
from byrote.prior.options import PriorConfig
from byrote.prior.verdicts import PriorVerdict
from byrote.progress import Progress
from byrote.stats.clusters import rate_with_clusters
from byrote.stats.intervals import Rate
from byrote.store.manifest import build_manifest
from byrote.store.session import RunSession
from byrote.types import Split, Verdict

Row = Mapping[str, Any]
Decode = Callable[[Sequence[int]], str]
EXAMPLES = 5
WORDS = {
    PriorVerdict.MEMORIZED: "memorized",
    PriorVerdict.MERELY_LIKELY: "merely_likely",
    PriorVerdict.UNSETTLED: "unsettled",
}


def summarise(
    rows: Sequence[Row], scores: Sequence[LengthScores], drawn: DrawnPrefixes, *, decode: Decode
) -> dict[str, Any]:
    """Totals for the manifest; logarithms stay logarithms."""
    totals: dict[str, Any] = {
        "windows": len(rows),
        "reference": {
            "distinct_prefixes": len(drawn.prefixes),
            "draws": drawn.draws,
            "is_exhaustive": drawn.is_exhaustive,
        },
        "by_split": {split: counts_by_kind(part) for split in Split if (part := _of(rows, "split", split))},
        "thresholds": [threshold_entries(each, rows) for each in scores],
        "examples": examples(rows, decode=decode),
    }
    if len(scores) > 1:
        totals["by_prefix_tokens"] = {
            str(each.prefix_tokens): sweep_counts(rows, place) for place, each in enumerate(scores)
        }
    if "scan_verdict" in rows[0]:
        totals["joined"] = joined(rows)
    return totals


def counts_by_kind(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts of all, and of every kind where there is more than one."""
    kinds = dict.fromkeys(row["kind"] for row in rows)
    return {"all": counts_of(rows), "by_kind": {kind: counts_of(_of(rows, "kind", kind)) for kind in kinds}}


def counts_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Suffixes with P(s|p) > m are memorized, merely likely or unsettled: the three add up to `extractable`."""
    found = Counter(row["prior_verdict"] for row in rows)
    point = Counter(row["point_verdict"] for row in rows)
    extractable = [row for row in rows if row["prior_verdict"] != PriorVerdict.NOT_EXTRACTABLE]
    memorized = share_of(extractable, [row["prior_verdict"] == PriorVerdict.MEMORIZED for row in extractable])
    ratios = [row["log_ratio"] for row in rows if math.isfinite(row["log_ratio"])]
    effective = [row["prior_effective_prefixes"] for row in rows if row["prior_effective_prefixes"] is not None]
    return {
        "suffixes": len(rows),
        "extractable": len(extractable),
        **{name: found[verdict] for verdict, name in WORDS.items()},
        "memorized_share": _rate(memorized),
        "by_point_estimates": {name: point[verdict] for verdict, name in WORDS.items()},
        "median_log_ratio": float(np.median(ratios)) if ratios else math.nan,
        "median_effective_prefixes": float(np.median(effective)) if effective else math.nan,
    }


def joined(rows: Sequence[Row]) -> dict[str, Any]:
    """Of the windows a scan calls extractable: how many are as likely after any prefix as after their own."""
    extractable = [row for row in rows if row["scan_verdict"] == Verdict.EXTRACTABLE]
    found = Counter(row["ratio_verdict"] for row in extractable)
    is_likely = [row["ratio_verdict"] == PriorVerdict.MERELY_LIKELY for row in extractable]
    return {
        "scan_extractable": len(extractable),
        "merely_likely": found[PriorVerdict.MERELY_LIKELY],
        "specific_to_their_prefix": found[PriorVerdict.MEMORIZED],
        "unsettled": found[PriorVerdict.UNSETTLED],
        "verbatim_probability_at_most_m": sum(
            row["prior_verdict"] == PriorVerdict.NOT_EXTRACTABLE for row in extractable
        ),
        "merely_likely_share": _rate(share_of(extractable, is_likely)),
    }


def share_of(rows: Sequence[Row], hits: Sequence[bool]) -> Rate:
    """The share of hits with an interval that counts documents or blocks, not overlapping windows."""
    spans = [row["char_end"] - row["char_start"] for row in rows]
    return rate_with_clusters(
        np.array(hits, dtype=float),
        [row["document"] for row in rows],
        [row["char_start"] for row in rows],
        window_chars=max(1, int(np.median(spans))) if spans else 1,
    )


def examples(rows: Sequence[Row], *, decode: Decode) -> dict[str, list[dict[str, Any]]]:
    """Suffixes with P(s|p) > m and the lowest and the highest ratio, none of them twice."""
    kept = [row for row in rows if row["prior_verdict"] != PriorVerdict.NOT_EXTRACTABLE]
    ordered = sorted(kept, key=lambda row: row["log_ratio"])
    wanted = ("window_id", "kind", "split", "suffix_text", "log_p_conditional", "log_p_prior", "log_ratio")
    pick = [
        {name: row[name] for name in (*wanted, "prior_verdict")} | {"masked_text": masked(row, decode=decode)}
        for row in ordered
    ]
    each = min(EXAMPLES, (len(pick) + 1) // 2)
    return {"lowest_ratio": pick[:each], "highest_ratio": pick[each:][::-1][:EXAMPLES]}


def masked(row: Row, *, decode: Decode) -> str:
    """The suffix as a terminal may show it. Spans were named because they are personal: they are masked whole."""
    if row["kind"] in (WINDOW_KIND, PAIR_KIND):
        return mask_identifiers(row["suffix_text"], before=decode(row["prefix_ids"]))
    return mask_whole(row["suffix_text"])


def sweep_counts(rows: Sequence[Row], place: int) -> dict[str, int]:
    found = Counter(row["sweep_prior_verdict"][place] for row in rows)
    counts = {name: found[verdict] for verdict, name in WORDS.items()}
    return {"extractable": sum(counts.values()), **counts}


def threshold_entries(scores: LengthScores, rows: Sequence[Row]) -> dict[str, Any]:
    """n by suffix length with all that tells how far it can be trusted."""
    scored = Counter(len(row["suffix_ids"]) for row in rows)
    least = {len(row["suffix_ids"]): row["least_probability"] for row in rows}
    return {
        "prefix_tokens": scores.prefix_tokens,
        "by_suffix_tokens": {
            str(length): {
                "suffixes": scored[length],
                "least_probability": least[length],
                "log_least_ratio": threshold.log_least_ratio,
                "log_least_ratio_low": threshold.interval.low,
                "log_least_ratio_high": threshold.interval.high,
                "reason": threshold.interval.reason,
                "log_geometric_mean": threshold.log_geometric_mean,
                "log_median": threshold.log_median,
                "largest_share": threshold.largest_share,
                "generic_texts": len(threshold.log_ratios),
                "generic_log_ratios": list(threshold.log_ratios),
                "generic_texts_impossible": threshold.impossible,
                "generic_texts_unseen": threshold.unseen,
                "generic_suffix_tokens": threshold.calibrated_at_tokens,
            }
            for length, threshold in sorted(scores.thresholds.items())
        },
    }


def _of(rows: Sequence[Row], column: str, value: str) -> list[Row]:
    return [row for row in rows if row[column] == value]


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "value": rate.value,
        "low": rate.interval.low,
        "high": rate.interval.high,
        "reason": rate.interval.reason,
        "units": rate.units,
        "method": str(rate.method),
    }


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PriorRun:
    """A finished prior run."""

    path: Path
    was_complete: bool


def prior_to_folder(
    config: PriorConfig,
    *,
    progress: Progress,
    say: Say = lambda _: None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
    model: LanguageModel | None = None,
) -> PriorRun:
    """Run or resume what `config` describes. `say` is given sentences for the user before the long part. `model` stands
    for the one that `config` names, where it is in memory already."""
    reference = [document.held() for document in read_documents(config.prior_text, split=Split.CONTROL)]
    with progress.phase(f"loading {config.model}"):
        model = model or open_model(config.model, revision=config.revision, dtype=config.dtype, device=config.device)
    with progress.phase("reading what to score"):
        items = read_items(config, model)
        longest = max(len(item.window.suffix_ids) for item in items.items)
        require_positions(model, config.longest_prefix + longest, advice=CONTEXT_ADVICE)
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
        windows = [item.window for item in items.items]
        measurement = Measurement(config, model, windows, generic, drawn, session)
        scores = measure(measurement, progress, say)
        complete(session, measurement, items, scores, command_line=command_line, reference=reference)
    return PriorRun(Path(config.out), was_complete=False)


def prior_identity(
    config: PriorConfig,
    model: LanguageModel,
    items: Sequence[PriorItem],
    drawn: DrawnPrefixes,
    generic: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """Two runs are the same when the model, what is scored, what was drawn and the thresholds are."""
    return {
        "config": config.identity(),
        "model": model.identity.told_apart_by,
        "items": _hash([[item.kind, *asdict(item.window).values()] for item in items]),
        "drawn": _hash([drawn.prefixes, drawn.counts.tolist(), drawn.is_exhaustive]),
        "generic": _hash(generic),
    }


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def measure(measurement: Measurement, progress: Progress, say: Say) -> list[LengthScores]:
    """Everything at every prefix length; what cannot be settled is said before the long pass."""
    config = measurement.config
    lengths = config.all_prefix_lengths
    passes = len(lengths) * (1 if config.least_ratio is not None else 2)
    progress.start(passes * len(measurement.drawn.prefixes), 0)
    progress.remark("n of generic texts")
    prepared = [measurement.prepare(length, advance=progress.advance) for length in lengths]
    for sentence in forecast_sentences(measurement.forecast(prepared[0]), measurement.drawn):
        say(sentence)
    progress.remark("P(s) of what is scored")
    return [measurement.finish(each, advance=progress.advance) for each in prepared]


def complete(
    session: RunSession,
    measurement: Measurement,
    items: PriorItems,
    scores: Sequence[LengthScores],
    *,
    command_line: Sequence[str],
    reference: Sequence[Document],
) -> None:
    """Rows, and the manifest last."""
    config, model = measurement.config, measurement.model
    rows = rows_of(items.items, scores, config, decode=model.decode)
    totals = summarise(rows, scores, measurement.drawn, decode=model.decode) | {
        "token_evals": measurement.token_evals,
        "naive_token_evals": measurement.naive_token_evals,
        "available": items.available,
        "in_reference": in_reference(items, reference, measurement.drawn),
        **items.left_out,
    }
    manifest = build_manifest(
        config=config.as_dict(),
        texts=_texts(items.documents) | _texts(reference, prefix="prior:"),
        model=asdict(model.identity) | {"bos_id": measurement.bos_id},
        device={"name": str(model.device)},
        seed=config.seed,
        command_line=command_line,
        timings={"measuring_seconds": measurement.seconds},
        totals=totals,
    )
    session.complete_with(rows, manifest)


def in_reference(items: PriorItems, reference: Sequence[Document], drawn: DrawnPrefixes) -> int:
    """Items whose text, or whose own prefix, is also in the reference corpus: P(s) then holds P(s|p) itself."""
    known = {document.content_hash for document in reference}
    shared = {document.name for document in items.documents if document.content_hash in known}
    prefixes = set(drawn.prefixes)
    return sum(item.window.document in shared or item.window.prefix_ids in prefixes for item in items.items)


def _texts(documents: Sequence[Document], *, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}{document.name}": {
            "split": str(document.split),
            "content_hash": document.content_hash,
            "characters": document.characters,
        }
        for document in documents
    }
