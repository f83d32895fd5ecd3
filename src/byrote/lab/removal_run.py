"""The study of names in real texts, end to end: train all models, score every pair, correlate, store."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from byrote.corpus.read import read_documents
from byrote.errors import ConfigError
from byrote.lab.counterfactual import SCORES, CounterfactualResult, compared, read_counterfactual
from byrote.lab.removal import NamePair, RemovalPlan, Scores, read_passages, removals, scores_of, train_together
from byrote.progress import Progress, SilentProgress
from byrote.store.columns import Column, Schema
from byrote.store.resume import RunSession
from byrote.store.tables import Row
from byrote.types import Split

PAIR_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    Column("target", "int32", is_required=True),
    Column("suffix_text", "text", is_required=True),
    Column("occurrences", "int32", is_required=True),
    Column("occurrences_from", "int32", is_required=True),
    *SCORES,
)


def run_removal(
    plan: RemovalPlan,
    texts: Sequence[str],
    out: Path,
    *,
    device: str = "cpu",
    progress: Progress | None = None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> CounterfactualResult:
    """Train all models, score every pair, correlate; afterwards `out` is a finished run folder."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no usable GPU here; give --device cpu.")
    documents = [document.held() for document in read_documents(texts, split=Split.TARGET)]
    identity = {"plan": asdict(plan), "texts": [document.content_hash for document in documents]}
    with RunSession.open(out, kind="counterfactual", identity=identity, schema=PAIR_COLUMNS, fresh=fresh) as session:
        if session.is_complete:
            return read_counterfactual(out)
        passages, is_removed = read_passages(plan, documents), removals(plan)
        counts = np.ones((plan.models, len(passages.rows)), dtype=np.bool_)
        counts[:, [pair.row for pair in passages.pairs]] = ~is_removed
        report = progress or SilentProgress()

        def advance(step: int, steps: int) -> None:
            if step == 1:
                report.start(steps, 0)
            report.advance(1)

        models = train_together(plan, passages, counts, device=torch.device(device), on_step=advance)
        scores = [scores_of(model, passages) for model in models]
        result = CounterfactualResult.of(rows_of(passages.pairs, is_removed, scores), seed=plan.seed)
        session.complete_with(result.cells, result.sections(asdict(plan), plan.models, device, plan.seed, command_line))
        return result


def rows_of(pairs: Sequence[NamePair], is_removed: NDArray[np.bool_], scores: Sequence[Scores]) -> list[Row]:
    """A row for each pair. `is_removed` is [models, pairs]."""
    rows: list[Row] = []
    for place, pair in enumerate(pairs):
        with_pair = [each for each, removed in zip(scores, is_removed[:, place], strict=True) if not removed]
        without = [each for each, removed in zip(scores, is_removed[:, place], strict=True) if removed]
        facts = {
            "window_id": f"pair-{place:04d}",
            "target": place,
            "suffix_text": pair.text,
            "occurrences": pair.occurrences,
            "occurrences_from": pair.occurrences_from,
        }
        rows.append(
            facts
            | compared(
                [each.log_p[place] for each in with_pair],
                [each.log_p[place] for each in without],
                [each.log_priors[place] for each in with_pair],
            )
        )
    return rows
