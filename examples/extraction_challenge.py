"""The extraction challenge: `python examples/extraction_challenge.py MODEL val_prefix.npy --out guesses.csv`.

The challenge (google-research/lm-extraction-benchmark) gives arrays of token ids, 50 of prefix and 50 of suffix, and
takes a CSV file of guessed suffixes, the surest ones first. A guess must not know the answer, so it is the model's
greedy answer; guesses are ordered by their probability. The score is the share of 1,000 examples solved before the
100th wrong guess. The challenge numbers the last 1,000 rows of its arrays from 0.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import byrote

EXAMPLES, ERRORS = 1000, 100


def recall_at_errors(are_right: Sequence[bool], *, errors: int = ERRORS, examples: int = EXAMPLES) -> float:
    """The share of the examples that were solved before so many wrong guesses, surest guess first."""
    solved = wrong = 0
    for is_right in are_right:
        solved += is_right and wrong < errors
        wrong += not is_right
    return solved / examples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder or hub id")
    parser.add_argument("prefixes", type=Path, help="NAME_prefix.npy; NAME_suffix.npy lies beside it")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()

    model = byrote.load_model(chosen.model)
    windows = byrote.read_windows(model, pairs=chosen.prefixes)
    rows = list(byrote.scan(model, windows, measures=("greedy",), greedy="full").to_polars().iter_rows(named=True))
    first = max(0, len(rows) - EXAMPLES)
    guesses = [
        (row["greedy_log_p"], example, row["greedy_ids"], row["greedy_ids"] == row["suffix_ids"])
        for example, row in enumerate(rows[first:])
        if len(row["greedy_ids"]) == len(row["suffix_ids"])  # otherwise the model ends too soon
    ]
    guesses.sort(key=lambda guess: (-guess[0], guess[1]))
    with chosen.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["Example ID", "Suffix Guess"])
        writer.writerows([example, str(ids).replace(" ", "")] for _, example, ids, _ in guesses)
    recall = recall_at_errors([is_right for *_, is_right in guesses])
    print(f"{len(guesses)} guesses for {len(rows) - first} examples: {chosen.out}")
    print(f"{recall:.1%} of {EXAMPLES} examples solved before the {ERRORS}th error")


if __name__ == "__main__":
    main()
