"""What a user waits for on a CPU: `byrote scan`, start to manifest, beside the paper-style search in the same run.

    python bench/scan_cpu.py --library PATH --baseline PATH/paper_style.py [--model library_24m] [--quick]

Three sets of windows (text that is not memorized, memorized text, a 95 % / 5 % mix), given to all as the same token
ids. Every side is a program: it starts Python, loads the model and ends. So is the paper-style search, at its best
batch. They take turns, because a shared machine is faster in some minutes than in others; a number is the median over
the rounds.

How many windows. A scan pays once for its start and for its audit: about a hundred windows below the screen's floor are
searched and sampled, whether there are 200 of them or 20,000. At 200 windows these two would be the result. So the
default options and `verbatim` alone get `--size` windows of ordinary text (a book has thousands), and `near` half of
them; the first two take one turn, being long. What is slow takes part of the windows: near without the screen `--few`,
and the reference `--fewest`, from which its time for as many windows as the other side had is taken: its start, and so
many times what a window took. Memorized text and the mix go through all sides whole.

Two rates of everything: of whole programs, start included on both sides, and without the start. The start is that of a
scan of a single window, and for the reference what it took beside searching.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

import environment
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.types import Window
from engine_cpu import mixed, read

SIDES: dict[str, list[str]] = {
    "verbatim": ["--measures", "verbatim"],
    "default": [],
    "default_without_answers": ["--answers", "0"],
    "near": ["--measures", "near", "--answers", "0"],
    "screen_off": ["--screen", "off"],
    "near_screen_off": ["--measures", "near", "--screen", "off", "--answers", "0"],
}
USUAL_SIDES = ["verbatim", "default", "screen_off", "near", "near_screen_off"]
LONG_SIDES = {"verbatim", "default", "default_without_answers"}
LONGER_THAN_START = 1.2
"""What a program must take, as a multiple of its start, for the rest of its time to be told."""
CONTROLS = ("wizard_of_oz", "heart_of_darkness", "call_of_the_wild", "pride_and_prejudice")
KNOWN = ("alice", "peter_pan")


class Took(NamedTuple):
    """One program: seconds from its start to its end, those of its start, and its windows."""

    seconds: float
    start: float
    windows: int

    @property
    def each(self) -> float:
        """Seconds a window, the start left out; unknown where there is little beside it."""
        is_known = self.seconds > LONGER_THAN_START * self.start
        return (self.seconds - self.start) / self.windows if is_known else math.nan

    def seconds_for(self, windows: int) -> float:
        return self.start + windows * self.each


def window_sets(model: HuggingFaceModel, library: Path, size: int, known: int) -> dict[str, list[Window]]:
    texts = library / "texts"
    each = -(-size // len(CONTROLS))
    fresh = [
        window for name in CONTROLS for window in read(model, texts / f"control/{name}.txt", 58_000 // each)[:each]
    ][:size]
    own = -(-known // len(KNOWN))
    memorized = [window for name in KNOWN for window in read(model, texts / f"target/{name}.txt", 58_000 // own)[:own]]
    ordinary = fresh[:: max(1, len(fresh) // (5 * known))][: 5 * known]
    return {"not_memorized": fresh, "memorized": memorized, "mix_95_5": mixed(ordinary, memorized)}


def write_pairs(windows: list[Window], path: Path) -> None:
    rows = [{"prefix_ids": list(window.prefix_ids), "suffix_ids": list(window.suffix_ids)} for window in windows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def spread(windows: list[Window], count: int) -> list[Window]:
    """So many of the windows, from all of the text."""
    return windows[:: max(1, len(windows) // count)][:count]


class Programs:
    """Runs `byrote scan` and the reference on windows, each as a process of its own."""

    def __init__(self, chosen: argparse.Namespace, folder: Path) -> None:
        self._chosen, self._pairs = chosen, folder / "pairs.jsonl"
        self._model = chosen.library / chosen.model

    def scan(self, windows: list[Window], flags: list[str], *, start: float = 0.0) -> Took:
        write_pairs(windows, self._pairs)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            words = ["--model", str(self._model), "--pairs", str(self._pairs), "--out", str(out), *flags]
            seconds, _ = self._timed(["-m", "byrote", "scan", *words])
            assert (out / "manifest.json").exists()
        return Took(seconds, start, len(windows))

    def reference(self, windows: list[Window], batch: int) -> Took:
        write_pairs(windows, self._pairs)
        program = Path(__file__).with_name("paper_style_cpu.py")
        words = ["--baseline", self._chosen.baseline, "--model", self._model, "--pairs", self._pairs, "--batch", batch]
        seconds, printed = self._timed([str(program), *map(str, words)])
        return Took(seconds, seconds - json.loads(printed)["seconds_searching"], len(windows))

    def _timed(self, words: list[str]) -> tuple[float, str]:
        threads = {"OMP_NUM_THREADS": str(self._chosen.threads)}
        start = time.perf_counter()
        done = subprocess.run([sys.executable, *words], check=True, capture_output=True, env=os.environ | threads)
        return time.perf_counter() - start, done.stdout.decode()


def compare(chosen: argparse.Namespace, programs: Programs, windows: list[Window], *, start: float) -> dict[str, Any]:
    """All sides on one set of windows. Sets that are not larger than `--few` go through all sides whole."""
    is_long = len(windows) > chosen.few
    parts = dict.fromkeys(SIDES, windows)
    if is_long:
        parts |= {"near": spread(windows, len(windows) // 2)}
        parts |= dict.fromkeys(("screen_off", "near_screen_off"), spread(windows, chosen.few))
    part = spread(windows, chosen.fewest)
    batches = {batch: 1 / programs.reference(spread(part, max(2 * batch, 8)), batch).each for batch in chosen.batches}
    best = max(batches, key=batches.__getitem__)
    taken: dict[str, list[Took]] = {name: [] for name in [*chosen.sides, "paper_style"]}
    for turn in range(chosen.rounds):
        for name in chosen.sides:
            if turn == 0 or not (is_long and name in LONG_SIDES):
                taken[name].append(programs.scan(parts[name], SIDES[name], start=start))
        taken["paper_style"].append(programs.reference(part, best))
        print({name: took[-1] for name, took in taken.items()}, flush=True)
    return {
        "paper_style_windows_per_second_by_batch": batches,
        "paper_style_best_batch": best,
        **summary(taken),
        "rounds": {name: [took._asdict() for took in several] for name, several in taken.items()},
    }


def summary(taken: dict[str, list[Took]]) -> dict[str, Any]:
    """Rates and ratios; a side is compared with the reference of the same round at the side's number of windows."""
    reference = taken["paper_style"]
    sides = [name for name in taken if name != "paper_style"]
    pairs = {name: list(zip(taken[name], reference, strict=False)) for name in sides}
    rates = {name: statistics.median(one.windows / one.seconds for one in took) for name, took in taken.items()}
    without = {name: statistics.median(1 / one.each for one in took) for name, took in taken.items()}
    defaults = [name for name in sides if name.startswith("default") and "verbatim" in sides]
    told = {
        "windows": {name: took[0].windows for name, took in taken.items()},
        "seconds_of_the_start": {name: took[0].start for name, took in taken.items()},
        "windows_per_second": rates,
        "without_start_windows_per_second": without,
        "ratio_to_paper_style": {
            name: statistics.median(other.seconds_for(one.windows) / one.seconds for one, other in pairs[name])
            for name in sides
        },
        "without_start_ratio_to_paper_style": {
            name: statistics.median(other.each / one.each for one, other in pairs[name]) for name in sides
        },
        "default_share_of_verbatim": {name: rates[name] / rates["verbatim"] for name in defaults},
        "without_start_default_share_of_verbatim": {name: without[name] / without["verbatim"] for name in defaults},
    }
    return {key: {name: value for name, value in row.items() if not math.isnan(value)} for key, row in told.items()}


TABLE = (
    ("windows/s", "windows_per_second"),
    ("over paper-style", "ratio_to_paper_style"),
    ("share of verbatim alone", "default_share_of_verbatim"),
    ("without start: windows/s", "without_start_windows_per_second"),
    ("without start: over paper-style", "without_start_ratio_to_paper_style"),
    ("without start: share of verbatim alone", "without_start_default_share_of_verbatim"),
)


def table(results: dict[str, Any], sets: list[str]) -> str:
    """The rows of docs/performance.md that are about these results."""
    return "\n".join(
        f"| {text}, {side}: {words} | {value:.2f} | `{text}.{key}.{side}` |"
        for text in sets
        for words, key in TABLE
        for side, value in results[text][key].items()
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--baseline", type=Path, required=True)
    parser.add_argument("--model", default="library_24m")
    parser.add_argument("--size", type=int, default=2000, help="windows of ordinary text")
    parser.add_argument("--few", type=int, default=240, help="of these for near without the screen")
    parser.add_argument("--fewest", type=int, default=60, help="windows of the reference")
    parser.add_argument("--known", type=int, default=40, help="windows of memorized text")
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 8, 20])
    parser.add_argument("--sets", nargs="+", default=["not_memorized", "memorized", "mix_95_5"])
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=USUAL_SIDES)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one round on about half of the windows")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    if "--quick" in sys.argv:
        parser.set_defaults(size=1000, few=160, fewest=40, known=24, batches=[4, 8], rounds=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    model = load(str(chosen.library / chosen.model), dtype="float32", device="cpu")
    results: dict[str, Any] = {"model": chosen.model, "most_rounds": chosen.rounds}
    sets = window_sets(model, chosen.library, chosen.size, chosen.known)
    del model
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(chosen, Path(folder))
        single = [programs.scan(sets["not_memorized"][:1], []) for _ in range(2)]
        results["seconds_of_a_single_window"] = start = min(one.seconds for one in single)
        for name in chosen.sets:
            results[name] = compare(chosen, programs, sets[name], start=start)
            environment.save("scan_cpu", results, chosen.out)
    print(table(results, chosen.sets))


if __name__ == "__main__":
    main()
