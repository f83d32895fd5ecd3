"""How often the gate passes a model that is beyond the limit, at a stated confidence of 95 %.

    PYTHONPATH=src:bench:. python bench/gate_false_pass.py [--cases 150] [--draws 10]

Table-model populations of 100 windows with known masses through the pipeline of a scan (`tests/report/known_runs.py`),
the screen so strict that it leaves out extractable windows. The limit is one window below the true rate, which is the
hardest one: of all windows, and of random halves that are to speak about all. Of the mean mass of a query it is a
millionth below the truth.
"""

import argparse
from typing import Any

import numpy as np
import torch
from tests.report.known_runs import known_run

import environment
from byrote.report.gate import Outcome, judge, parse_rule

THRESHOLDS = (0.02, 0.1, 0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = np.random.default_rng(1)
    groups = ("all windows", "half of them drawn", "half, verbatim", "all windows, mass", "half, mass")
    found: dict[str, list[Outcome]] = {name: [] for name in groups}
    for number in range(arguments.cases):
        run = known_run(2000 + number, threshold=THRESHOLDS[number % len(THRESHOLDS)])
        size, verbatim = len(run.rows), sum(row["p_verbatim"] >= run.config.threshold for row in run.rows)
        if not run.true_count:
            continue
        rule = parse_rule(f"near={(run.true_count - 1) / size}")
        mass = parse_rule(f"mass={run.mean_mass * (1 - 1e-6)}")
        found["all windows"].append(judge(run.view(), [rule]).outcome)
        found["all windows, mass"].append(judge(run.view(), [mass]).outcome)
        for _ in range(arguments.draws):
            drawn = run.sample(size // 2, generator)
            found["half of them drawn"].append(judge(drawn, [rule]).outcome)
            found["half, mass"].append(judge(drawn, [mass]).outcome)
            if verbatim:
                exact = parse_rule(f"verbatim={(verbatim - 1) / size}")
                found["half, verbatim"].append(judge(drawn, [exact]).outcome)
    rows: list[dict[str, Any]] = [
        {"group": name, "judged": len(outcomes)}
        | {outcome.value: float(np.mean([one is outcome for one in outcomes])) for outcome in Outcome}
        for name, outcomes in found.items()
    ]
    for row in rows:
        print(row)
    print(environment.save("gate_false_pass", {"confidence": 0.95, "rows": rows}))


if __name__ == "__main__":
    main()
