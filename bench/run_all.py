"""`make bench`: every bench this machine can run, one after the other; results land in bench/results.

make bench                                    what needs nothing but this repository
make bench LIBRARY=PATH BASELINE=FILE         also what needs models with known training data and the reference
"""

import argparse
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent
ALONE = (
    ["recall_speed.py"],
    ["report_browser.py"],
    ["stream_million.py"],
    ["residual_coverage.py"],
    ["help_time.py"],
    ["prior_coverage.py"],
    ["prior_settled.py"],
    ["interval_coverage.py"],
    ["endpoint_cost.py"],
    ["training_panel.py"],
    ["unlearning.py"],
)
WITH_LIBRARY = (
    "teacher_forcing.py",
    "library_agreement.py",
    "screen_loss.py",
    "residual_efficiency.py",
    "refinement.py",
    "prior_library.py",
    "prior_pool.py",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, help="folder with models, texts and reference.json")
    parser.add_argument("--baseline", type=Path, help="the fixed reference search (paper_style.py)")
    chosen = parser.parse_args()
    commands = [list(command) for command in ALONE]
    if chosen.library is not None:
        commands += [[name, "--library", str(chosen.library)] for name in WITH_LIBRARY]
    if chosen.library is not None and chosen.baseline is not None:
        commands.append(["engine_cpu.py", "--library", str(chosen.library), "--baseline", str(chosen.baseline)])
    failed = []
    for name, *arguments in commands:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, str(BENCH / name), *arguments], check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
