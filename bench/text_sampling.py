"""Are the bounds of texts true? Plain sampling with the library's own `generate`, decoded, normalised in plain Python
and compared, beside the bounds of a search.

    python bench/text_sampling.py MODEL TEXT [TEXT …] [--windows 30] [--answers 400]

An answer that is not complete after half as many tokens again as the target has is counted apart: it may be a hit.
Chances are those of so many hits or fewer (more) at the lower (upper) bounds, all windows of a budget together.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein

import environment
from byrote.models.hf.model import load
from byrote.scan.api import read_windows, scan
from byrote.stats.answers import log_tail
from byrote.types import Window


def hits_of(model: Any, window: Window, answers: int, budget: int) -> tuple[np.ndarray, int]:
    """Hits by edits, and answers that are not decided."""
    from tests.distance.plain_text import plain_normal_form

    target = plain_normal_form(window.suffix_text or "")
    prompt = torch.tensor([window.prefix_ids])
    found = model.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        top_k=40,
        top_p=1.0,
        temperature=1.0,
        max_new_tokens=len(window.suffix_ids) * 3 // 2,
        num_return_sequences=answers,
        pad_token_id=min(model.eos_ids),
    )[:, prompt.shape[1] :].tolist()
    hits, undecided = np.zeros(budget + 1, dtype=np.int64), 0
    for ids in found:
        ends = [place for place, token in enumerate(ids) if token in model.eos_ids]
        text = plain_normal_form(model.decode(ids[: ends[0]] if ends else ids))[: len(target)]
        distance = Levenshtein.distance(text, target)
        if ends or len(text) == len(target):
            hits[min(distance, budget + 1) :] += 1
        else:
            undecided += 1
    return hits, undecided


class Measured(NamedTuple):
    row: dict[str, Any]
    hits: np.ndarray  # [budget + 1]
    undecided: int


def summary(measured: list[Measured], answers: int, budget: int) -> dict[str, Any]:
    counts = np.full(len(measured), answers)
    undecided = sum(one.undecided for one in measured)
    by_edits = []
    for edits in range(0, budget + 1, 5):
        bounds = [[one.row[name][edits] for one in measured] for name in ("mass_lower", "mass_upper")]
        lower, upper = np.clip(bounds, 0.0, 1.0)
        hits = sum(int(one.hits[edits]) for one in measured)
        by_edits.append(
            {
                "edits": edits,
                "hits": hits,
                "expected_at_least": float(counts @ lower),
                "expected_at_most": float(counts @ upper),
                "chance_of_so_few": float(np.exp(log_tail(hits + undecided, counts, lower))),
                "chance_of_so_many": float(np.exp(log_tail(int(counts.sum()) - hits, counts, 1 - upper))),
            }
        )
    return {
        "windows": len(measured),
        "answers_per_window": answers,
        "undecided": undecided,
        "by_edits": by_edits,
    }


def main() -> None:
    import sys

    sys.path.insert(0, str(Path(__file__).parent.parent))
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--windows", type=int, default=30)
    parser.add_argument("--answers", type=int, default=400)
    parser.add_argument("--results", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = load(chosen.model, dtype="float32", device="cpu")
    windows = read_windows(model, chosen.texts, unit="text", sample=chosen.windows, screen="off")
    rows = list(scan(model, windows, stop_rule="off"))
    by_id = {window.window_id: window for window in windows}
    budget = len(rows[0]["mass_lower"]) - 1
    measured: list[Measured] = []
    for row in rows:
        measured.append(Measured(row, *hits_of(model, by_id[row["window_id"]], chosen.answers, budget)))
        facts = {"model": Path(chosen.model).name, "texts": [Path(text).name for text in chosen.texts]}
        # After every window, so that a run that is stopped leaves what it has.
        results = facts | summary(measured, chosen.answers, budget)
        environment.save("text_sampling", results, chosen.results)
        print(len(measured), results["by_edits"][-1], flush=True)


if __name__ == "__main__":
    main()
