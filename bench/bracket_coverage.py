"""How often brackets of rates hold: populations of windows with known truth, screen misses planted.

    PYTHONPATH=src:bench:. python bench/bracket_coverage.py [--populations 2000] [--cases 150]

Two kinds. `drawn`: masses, searches and tickets are drawn by the rules of a scan (`tests/stats/populations.py`), with
extractable windows exactly at the threshold, where they are hardest to notice. `pipeline`: windows of random table
models through the pipeline that a scan uses, with random options and a screen that leaves out extractable ones; the
truth by enumeration (`tests/scan/fuzz.py`).
"""

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tests.scan.fuzz import random_case, true_masses
from tests.scan.test_bracket import bracket_of_rows
from tests.stats.populations import KINDS, THRESHOLD, drawn_population

import environment
from byrote.scan.pipeline import Pipeline
from byrote.stats.limits import Bracket, bracket

THRESHOLDS = (0.02, 0.1, 0.3)


def summary(name: str, found: list[tuple[int, Bracket]]) -> dict[str, Any]:
    return {
        "group": name,
        "populations": len(found),
        "bracket_holds": float(np.mean([one.certified <= truth <= one.at_most for truth, one in found])),
        "mean_certified": float(np.mean([one.low for _, one in found])),
        "mean_true_rate": float(np.mean([truth / one.windows for truth, one in found])),
        "mean_at_most": float(np.mean([one.high for _, one in found])),
        "lowered_by_samples": float(np.mean([one.is_sampled for _, one in found])),
    }


def drawn(populations: int) -> list[dict[str, Any]]:
    rows = []
    for number, kind in enumerate(KINDS):
        generator = np.random.default_rng([number, 3])
        found = []
        for _ in range(populations):
            evidence, extractable = drawn_population(kind, generator)
            found.append((extractable, bracket(evidence, THRESHOLD, promised=kind.audited_tickets)))
        rows.append(summary(kind.name, found))
    return rows


def through_the_pipeline(cases: int) -> list[dict[str, Any]]:
    found: dict[float, list[tuple[int, Bracket]]] = {threshold: [] for threshold in THRESHOLDS}
    for number in range(cases):
        case = random_case(1000 + number, windows_of_a_group=20)
        threshold = THRESHOLDS[number % len(THRESHOLDS)]
        config = replace(
            case.config, estimate="auto", residual=None, threshold=threshold, screen="auto", screen_floor=0.999,
            screen_share=0.3, screen_min_windows=10, screen_samples=200, measures=("verbatim", "near"), verify=False,
            closure=0, refine=0,
        )  # fmt: skip
        rows = [measured.row for measured in Pipeline(case.model, config, decode=str).run(case.windows)]
        truths = true_masses(case)
        extractable = sum(bool(truths[row["window_id"]][-1] >= threshold) for row in rows)
        found[threshold].append((extractable, bracket_of_rows(rows, config)))
    return [summary(f"pipeline, threshold {threshold:g}", one) for threshold, one in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--populations", type=int, default=2000, help="of each drawn kind")
    parser.add_argument("--cases", type=int, default=150, help="populations of table models")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [*drawn(arguments.populations), *through_the_pipeline(arguments.cases)]
    for row in rows:
        print(row)
    print(environment.save("bracket_coverage", {"level": 0.95, "rows": rows}))


if __name__ == "__main__":
    main()
