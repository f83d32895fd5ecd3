"""Counterfactual memorization of names in real texts: correlation with the cheap ratio, and its figure.

    python bench/prior_removal.py --text FILE … --out FOLDER [--preset quick] [--models 16] [--device cpu]

On a GPU 100 models are trained together: `--preset full --models 100 --device cuda`. On a machine that lacks most of
what byrote needs, prior_removal_train.py trains and scores them, and here `--scores FILE --out FOLDER` does the rest.
"""

import argparse
import json
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import environment
from byrote.lab.counterfactual import CounterfactualResult, level_means
from byrote.lab.removal import PLANS, NamePair, Scores
from byrote.lab.removal_run import PAIR_COLUMNS, rows_of, run_removal
from byrote.lab.report import read
from byrote.report.page import write_page
from byrote.store.read import read_run
from byrote.store.resume import RunSession


def finished(trained: dict[str, Any], out: Path) -> CounterfactualResult:
    """The run folder of models that were trained and scored elsewhere."""
    scores = [Scores(*each) for each in zip(trained["log_p"], trained["log_priors"], strict=True)]
    is_removed = np.array(trained["is_removed"][: len(scores)], dtype=np.bool_)
    rows = rows_of([NamePair(*pair) for pair in trained["pairs"]], is_removed, scores)
    plan, seed, device = trained["plan"], trained["plan"]["seed"], trained["environment"]["device"]
    with RunSession.open(out, kind="counterfactual", identity=plan, schema=PAIR_COLUMNS, fresh=True) as session:
        result = CounterfactualResult.of(rows, seed=seed)
        session.complete_with(result.cells, result.sections(plan, len(scores), device, seed, ()))
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, nargs="+", default=[])
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", choices=sorted(PLANS), default="quick")
    parser.add_argument("--models", type=int)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if arguments.scores:
        trained = json.loads(arguments.scores.read_text(encoding="utf-8"))
        result = finished(trained, arguments.out)
        names = ("preset", "plan", "texts", "models", "seconds", "training_rows")
        facts = {"trained_on": trained["environment"], **{name: trained[name] for name in names}}
    else:
        plan = PLANS[arguments.preset]
        plan = replace(plan, models=arguments.models or plan.models)
        started, cpu = time.perf_counter(), time.process_time()
        result = run_removal(plan, list(map(str, arguments.text)), arguments.out, device=arguments.device, fresh=True)
        facts = {
            "preset": arguments.preset,
            "plan": asdict(plan),
            "texts": [path.name for path in arguments.text],
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - cpu,
        }
    rows = read_run(arguments.out).results
    results = facts | {
        "mean_log_p_with": rows["log_p_with"].list.mean().mean(),
        "mean_log_p_without": rows["log_p_without"].list.mean().mean(),
        "agreement": asdict(result.agreement),
        "prior_against_baseline": asdict(result.prior_against_baseline),
        "level_correlation": result.level_correlation,
        "levels": level_means(result.cells),
        "pairs": rows.select("suffix_text", "occurrences", "counterfactual", "log_ratio").to_dicts(),
    }
    name = "prior_removal" + ("" if facts["preset"] == "quick" else f"_{facts['preset']}")
    write_page([read([arguments.out])], arguments.out / "report")
    for kind in ("svg", "png"):
        figure = arguments.out / "report" / "figures" / f"counterfactual.{kind}"
        shutil.copyfile(figure, Path(__file__).parent.parent / "docs" / "img" / f"{name}.{kind}")
    print(result.agreement, result.prior_against_baseline, sep="\n")
    print(environment.save(name, results))


if __name__ == "__main__":
    main()
