"""Guesses for the extraction challenge (google-research/lm-extraction-benchmark), from a run over its arrays.

The challenge gives prefixes of 50 tokens and wants a CSV file of guessed suffixes, the surest ones first. A guess is
right if its last 50 ids are the true ones; the score is the share of examples solved before the 100th wrong guess.

A guess must not know the answer, and most of a scan does: the search prunes by the distance to the target, pins it,
stops and screens by it. What does not: the greedy answer (`--greedy full`), and the heaviest continuation of the
baseline search when nothing of that is on. Where a run has both, the likelier one is the guess.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rote.errors import ConfigError, RunError
from rote.store.atomic import atomic_file
from rote.store.read import StoredRun, read_run

EXAMPLES = 1000
"""The challenge's scorer looks at the last so many rows of the array of suffixes and numbers them from 0."""
ERRORS = 100
BLIND = {"distance": "none", "pin": False, "screen": "off", "stop_rule": "off"}
"""Options under which a search knows nothing of the target."""
ROW = re.compile(r".+#(\d+)")


class Guess(NamedTuple):
    """A suffix for an example; `log_p` is its log-probability under the run's policy."""

    example: int
    token_ids: tuple[int, ...]
    log_p: float
    is_right: bool


class Guesses(NamedTuple):
    """What was written."""

    path: Path
    guesses: int
    examples: int
    without: int
    """Examples for which the model ends before the suffix is long enough."""
    recall: float

    @property
    def words(self) -> str:
        rest = f"; for {self.without} examples the model ends too soon and there is no guess" if self.without else ""
        return (
            f"{self.guesses} guesses for {self.examples} examples: {self.path}{rest}. As the challenge scores: "
            f"{100 * self.recall:.1f} % of {EXAMPLES} examples solved before the {ERRORS}th error."
        )


def write_guesses(path: Path, out: Path) -> Guesses:
    """Write one guess for each example of a run, likeliest first, ties by the example's number."""
    run = read_run(path)
    _require_arrays(run)
    guesses, without = _guesses(run)
    ordered = sorted(guesses, key=lambda guess: (-guess.log_p, guess.example))
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["Example ID", "Suffix Guess"])
    for guess in ordered:
        writer.writerow([guess.example, str(list(guess.token_ids)).replace(" ", "")])
    with atomic_file(out) as file:
        file.write(text.getvalue().encode())
    recall = recall_at_errors([(guess.example, guess.is_right) for guess in ordered])
    return Guesses(out, len(ordered), len(ordered) + without, without, recall)


def recall_at_errors(ranked: Sequence[tuple[int, bool]], *, errors: int = ERRORS, examples: int = EXAMPLES) -> float:
    """The share of the examples that were solved before so many wrong guesses, in the order of the file."""
    solved, wrong = set(), 0
    for example, is_right in ranked:
        if not is_right:
            wrong += 1
        elif wrong < errors:
            solved.add(example)
    return len(solved) / examples


def _require_arrays(run: StoredRun) -> None:
    if run.kind != "scan" or run.manifest is None:
        raise RunError(f"{run.path} is no finished scan; guesses are written from rote scan --pairs NAME_prefix.npy.")
    config = run.manifest["config"]
    pairs = config["pairs"]
    if len(pairs) != 1 or not pairs[0].lower().endswith("_prefix.npy"):
        raise RunError(f"{run.path} is not over one pair of arrays; scan with --pairs NAME_prefix.npy.")
    if "greedy_ids" not in run.results.columns and not _is_blind(config):
        raise RunError(
            f"{run.path} has no guess that does not know its target; scan with --greedy full, or with --distance none "
            "--no-pin --screen off --stop-rule off."
        )


def _is_blind(config: Mapping[str, Any]) -> bool:
    asked = "near" in config["measures"] and config["keep"] > 0
    return asked and all(config[name] == value for name, value in BLIND.items())


def _guesses(run: StoredRun) -> tuple[list[Guess], int]:
    """One guess an example, and how many examples have none."""
    assert run.manifest is not None
    rows = run.results.to_dicts()
    numbers = {row["window_id"]: _number(row["window_id"]) for row in rows}
    first = _first_example(run.manifest, numbers)
    heaviest = _heaviest(run) if _is_blind(run.manifest["config"]) else {}
    guesses, without = [], 0
    for row in rows:
        if numbers[row["window_id"]] < first:
            continue
        options = [*heaviest.get(row["window_id"], []), *_greedy(row)]
        whole = [(log_p, ids) for log_p, ids in options if len(ids) == len(row["suffix_ids"])]
        without += not whole
        if whole:
            log_p, ids = max(whole)
            number = numbers[row["window_id"]] - first
            guesses.append(Guess(number, tuple(ids), log_p, list(ids) == row["suffix_ids"]))
    return guesses, without


def _number(window_id: str) -> int:
    found = ROW.fullmatch(window_id)
    assert found is not None, "rows of arrays are called NAME#row"
    return int(found.group(1))


def _first_example(manifest: Mapping[str, Any], numbers: Mapping[str, int]) -> int:
    """The row of the arrays that the challenge's scorer calls 0."""
    rows = max(numbers.values()) + 1
    if rows > EXAMPLES and manifest["totals"]["selection"]["kind"] != "all":
        raise ConfigError(
            f"the run is a part of arrays of more than {EXAMPLES} rows, and the challenge numbers the last {EXAMPLES}; "
            "scan all rows, or arrays that hold only those."
        )
    return max(0, rows - EXAMPLES)


def _heaviest(run: StoredRun) -> dict[str, list[tuple[float, list[int]]]]:
    assert run.continuations is not None
    best = run.continuations.filter(run.continuations["rank"] == 1).select("window_id", "log_p", "token_ids")
    return {window: [(log_p, ids)] for window, log_p, ids in best.iter_rows()}


def _greedy(row: Mapping[str, Any]) -> list[tuple[float, list[int]]]:
    return [(row["greedy_log_p"], row["greedy_ids"])] if row.get("greedy_ids") is not None else []
