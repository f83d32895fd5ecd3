"""Counterfactual memorization of names in real texts: correlation with the cheap ratio, and its figure.

    python bench/prior_removal.py --text FILE … --out FOLDER [--preset quick] [--models 16] [--device cpu]

On a GPU 100 models are trained together: `--preset full --models 100 --device cuda`; ten short novels have enough rows
with names for 250 `--reference-rows`.
"""

import argparse
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path

import environment
from byrote.lab.counterfactual import level_means, read
from byrote.lab.removal import PLANS, run_removal
from byrote.report.page import write_page
from byrote.store.read import read_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", choices=sorted(PLANS), default="quick")
    parser.add_argument("--models", type=int)
    parser.add_argument("--reference-rows", type=int)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    plan = PLANS[arguments.preset]
    plan = replace(
        plan,
        models=arguments.models or plan.models,
        reference_rows=arguments.reference_rows or plan.reference_rows,
    )
    started, cpu = time.perf_counter(), time.process_time()
    result = run_removal(plan, list(map(str, arguments.text)), arguments.out, device=arguments.device, fresh=True)
    rows = read_run(arguments.out).results
    results = {
        "preset": arguments.preset,
        "plan": asdict(plan),
        "texts": [path.name for path in arguments.text],
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu,
        "mean_log_p_with": rows["log_p_with"].list.mean().mean(),
        "mean_log_p_without": rows["log_p_without"].list.mean().mean(),
        "agreement": asdict(result.agreement),
        "prior_against_baseline": asdict(result.prior_against_baseline),
        "level_correlation": result.level_correlation,
        "levels": level_means(result.cells),
        "pairs": rows.select("suffix_text", "occurrences", "counterfactual", "log_ratio").to_dicts(),
    }
    name = "prior_removal" + ("" if arguments.preset == "quick" else f"_{arguments.preset}")
    write_page([read([arguments.out])], arguments.out / "report")
    for kind in ("svg", "png"):
        figure = arguments.out / "report" / "figures" / f"counterfactual.{kind}"
        shutil.copyfile(figure, Path(__file__).parent.parent / "docs" / "img" / f"{name}.{kind}")
    print(result.agreement, result.prior_against_baseline, sep="\n")
    print(environment.save(name, results))


if __name__ == "__main__":
    main()
