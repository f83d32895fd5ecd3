"""Random windows of characters through the pipeline of a scan, against enumeration: bounds, ledgers, greedy and sampled
answers, policies.

    python bench/fuzz_text.py [--cases 50]

A case is a random table model with a random set of options and 400 windows (tests/scan/texts.py), told apart by its
number alone.
"""

import argparse
import sys
from pathlib import Path

import environment

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.scan.fuzz import TOLERANCE, Tally
from tests.scan.texts import check_texts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--results", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    tally = Tally()
    for number in range(chosen.cases):
        check_texts(number, tally)
        print(f"{tally.windows:,} windows, {len(tally.violations)} violations", flush=True)
    names = ("cases", "windows", "comparisons", "policy_bounds", "answers", "worst")
    results = {name: getattr(tally, name) for name in names} | {"tolerance": TOLERANCE}
    found = {"violation_count": len(tally.violations), "violations": tally.violations[:100]}
    environment.save("fuzz_text", results | found, chosen.results)
    if tally.violations:
        sys.exit("\n".join(tally.violations[:20]))


if __name__ == "__main__":
    main()
