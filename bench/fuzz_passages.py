"""Random long passages through the pipeline of a scan, against enumeration: R by length, expected length, answers.

    python bench/fuzz_passages.py [--cases 50]

A case is a random table model with a random set of options and 400 windows, told apart by its number alone. There are
as many cases of tokens (tests/scan/passages.py) as of text (tests/scan/text_passages.py).
"""

import argparse
import sys
from pathlib import Path

import environment

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.scan.fuzz import TOLERANCE, Tally
from tests.scan.passages import check_passages
from tests.scan.text_passages import check_text_passages


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--results", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    results, violations = {}, []
    for unit, check in (("tokens", check_passages), ("text", check_text_passages)):
        tally = Tally()
        for number in range(chosen.cases):
            check(number, tally)
            print(f"{unit}: {tally.windows:,} windows, {len(tally.violations)} violations", flush=True)
        names = ("cases", "windows", "comparisons", "worst")
        results[unit] = {name: getattr(tally, name) for name in names} | {"violation_count": len(tally.violations)}
        violations += tally.violations
    found = {"tolerance": TOLERANCE, "violations": violations[:100]}
    environment.save("fuzz_passages", results | found, chosen.results)
    if violations:
        sys.exit("\n".join(violations[:20]))


if __name__ == "__main__":
    main()
