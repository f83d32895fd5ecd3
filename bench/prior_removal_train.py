"""The models of prior_removal.py, trained and scored on a machine that has torch and transformers alone.

    PYTHONPATH=src:bench python bench/prior_removal_train.py --text FILE … [--models 100] [--seconds 240] [--out FOLDER]

Models are trained in groups, on a GPU with products in TF32 and scored in float32; the scores of all groups so far are
written after each, and no group is begun that would not end in time. `prior_removal.py --scores FILE` finishes.
"""

import argparse
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

import environment
from byrote.corpus.read import read_documents
from byrote.lab.removal import PLANS, Scores, read_passages, removals, scores_of, train_together
from byrote.types import Split

STEPS_PER_LINE = 200


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--preset", choices=sorted(PLANS), default="full")
    parser.add_argument("--models", type=int)
    parser.add_argument("--reference-rows", type=int)
    parser.add_argument("--together", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    began, plan = time.perf_counter(), PLANS[chosen.preset]
    plan = replace(
        plan,
        models=chosen.models or plan.models,
        reference_rows=plan.reference_rows if chosen.reference_rows is None else chosen.reference_rows,
    )
    documents = [document.held() for document in read_documents(chosen.text, split=Split.TARGET)]
    passages, is_removed = read_passages(plan, documents), removals(plan)
    counts = np.ones((plan.models, len(passages.rows)), dtype=np.bool_)
    counts[:, [pair.row for pair in passages.pairs]] = ~is_removed
    results: dict[str, Any] = {
        "preset": chosen.preset,
        "plan": asdict(plan),
        "texts": [path.name for path in chosen.text],
        "training_rows": len(passages.rows),
        "pairs": passages.pairs,
        "is_removed": is_removed.tolist(),
    }
    print(f"{len(passages.rows)} rows, {len(passages.pairs)} pairs: {time.perf_counter() - began:.0f} s", flush=True)
    scores: list[Scores] = []
    longest = 0.0
    for first in range(0, plan.models, chosen.together):
        started = time.perf_counter()
        if started - began + longest > chosen.seconds:
            break

        def show(step: int, steps: int, started: float = started) -> None:
            if step % STEPS_PER_LINE == 0 or step in (1, 10, steps):
                print(f"step {step} of {steps}: {time.perf_counter() - started:.1f} s", flush=True)

        own = counts[first : first + chosen.together]
        training = replace(plan.training, seed=plan.training.seed + first)
        torch.set_float32_matmul_precision("high" if chosen.device == "cuda" else "highest")
        models = list(
            train_together(
                replace(plan, training=training), passages, own, device=torch.device(chosen.device), on_step=show
            )
        )
        torch.set_float32_matmul_precision("highest")
        for model in models:
            scores.append(scores_of(model, passages))
            results |= {"models": len(scores), "seconds": time.perf_counter() - began}
            results |= {name: [getattr(each, name) for each in scores] for name in Scores._fields}
        environment.save("prior_removal_scores", results, chosen.out)
        longest = max(longest, time.perf_counter() - started)
        held, left_out = (
            fmean(np.array([each.log_p for each in scores])[is_removed[: len(scores)] == removed]) for removed in (0, 1)
        )
        print(
            f"{len(scores)} models in {results['seconds']:.0f} s: log P(s|p) {held:.2f} with the passage, "
            f"{left_out:.2f} without",
            flush=True,
        )


if __name__ == "__main__":
    main()
