"""Random cases through the pipeline of a scan, against enumeration: bounds, p_z, ledger, greedy distances.

    python bench/fuzz_pipeline.py [--first 0] [--cases 210] [--minutes 60]

A case is a random table model with a random set of options and 500 windows of mixed lengths (tests/scan/fuzz.py). Cases
are told apart by their number alone: what earlier calls have checked is read from the result file and left out, so a
campaign can be stopped and resumed, and another range of numbers added.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import environment

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.scan.fuzz import TOLERANCE, Tally, check_case, random_case

NAME = "fuzz_pipeline"
SAVE_EVERY = 5


def read_tally(folder: Path) -> tuple[Tally, set[int]]:
    """What earlier calls have seen."""
    path = folder / f"{NAME}.json"
    tally = Tally()
    if not path.exists():
        return tally, set()
    stored = json.loads(path.read_text(encoding="utf-8"))
    for name in (
        "cases",
        "windows",
        "comparisons",
        "violations",
        "worst",
        "intervals",
        "intervals_that_cover",
        "policy_bounds",
        "answers",
        "hits",
        "expected_hits",
        "variance_of_hits",
    ):
        setattr(tally, name, stored.get(name, 0))
    tally.groups.update({name: row["sums"] for name, row in stored["tightness"].items()})
    return tally, {number for first, last in stored["numbers"] for number in range(first, last + 1)}


def ranges(numbers: set[int]) -> list[list[int]]:
    """The numbers as ranges, first and last."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def results_of(tally: Tally, numbers: set[int]) -> dict[str, Any]:
    return {
        "numbers": ranges(numbers),
        "cases": tally.cases,
        "windows": tally.windows,
        "comparisons": tally.comparisons,
        "violation_count": len(tally.violations),
        "violations": tally.violations[:100],
        "tolerance": TOLERANCE,
        "worst": tally.worst,
        "intervals": tally.intervals,
        "intervals_that_cover": tally.intervals_that_cover,
        "policy_bounds": tally.policy_bounds,
        "answers": tally.answers,
        "hits": tally.hits,
        "expected_hits": tally.expected_hits,
        "hits_off_by_standard_deviations": (tally.hits - tally.expected_hits)
        / max(tally.variance_of_hits, 1e-9) ** 0.5,
        "tightness": {name: _tightness(sums) for name, sums in sorted(tally.groups.items())},
    }


def _tightness(sums: list[float]) -> dict[str, Any]:
    windows, width, missing = sums
    return {
        "windows": int(windows),
        "mean_upper_minus_lower": width / windows,
        "mean_truth_minus_lower": missing / windows,
        "sums": [int(windows), float(width), float(missing)],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=210)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--results", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    tally, numbers = read_tally(chosen.results)
    ends = time.monotonic() + 60 * chosen.minutes
    wanted = [number for number in range(chosen.first, chosen.first + chosen.cases) if number not in numbers]
    for count, number in enumerate(wanted, start=1):
        check_case(random_case(number), tally)
        numbers.add(number)
        is_last = count == len(wanted) or time.monotonic() >= ends
        if is_last or count % SAVE_EVERY == 0:
            environment.save(NAME, results_of(tally, numbers), chosen.results)
            print(f"{tally.windows:,} windows, {len(tally.violations)} violations", flush=True)
        if is_last:
            break
    if tally.violations:
        sys.exit("\n".join(tally.violations[:20]))


if __name__ == "__main__":
    main()
