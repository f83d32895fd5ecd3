"""The counterfactual study of a preset: correlation, level means, and the figure of docs/method.md.

    python bench/prior_counterfactual.py --out FOLDER [--preset quick] [--processes 2]

Models and scores that are already there are used again; `models_measured_now` says how many were not.
"""

import argparse
import resource
import shutil
import time
from dataclasses import asdict
from pathlib import Path

import environment
from byrote.lab.counterfactual import PRESETS, level_means, models_of, read, run_counterfactual
from byrote.report.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="quick")
    parser.add_argument("--processes", type=int)
    arguments = parser.parse_args()
    plan = PRESETS[arguments.preset]
    before = len(list(arguments.out.glob("blocks/*")))
    started = time.perf_counter()
    result = run_counterfactual(plan, arguments.out, processes=arguments.processes)
    results = {
        "preset": arguments.preset,
        "plan": asdict(plan),
        "models": len(models_of(plan)),
        "models_measured_now": len(models_of(plan)) - before,
        "seconds_now": time.perf_counter() - started,
        "cpu_seconds_now": sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        ),
        "agreement": asdict(result.agreement),
        "prior_against_baseline": asdict(result.prior_against_baseline),
        "level_correlation": result.level_correlation,
        "levels": level_means(result.cells),
    }
    name = "prior_counterfactual" + ("" if arguments.preset == "quick" else f"_{arguments.preset}")
    images = Path(__file__).parent.parent / "docs" / "img"
    images.mkdir(parents=True, exist_ok=True)
    write_page([read([arguments.out])], arguments.out / "report")
    for kind in ("svg", "png"):
        shutil.copyfile(arguments.out / "report" / "figures" / f"counterfactual.{kind}", images / f"{name}.{kind}")
    print(result.agreement, result.prior_against_baseline, sep="\n")
    print(environment.save(name, results))


if __name__ == "__main__":
    main()
