"""What a user waits for on a CPU: `rote scan`, start to manifest, beside the paper-style search in the same run.

    python bench/scan_cpu.py --library PATH --baseline PATH/paper_style.py [--model library_24m] [--rounds 3]

Three sets of windows (text that is not memorized, memorized text, a 95 % / 5 % mix), given to both sides as the same
token ids (`--pairs`). The paper-style search runs at every batch size once, then at its best; all take turns, because a
shared machine is faster in some minutes than in others. A ratio is the median over the rounds.

A command also starts Python, loads and hashes the model: that is measured once with a single window and reported. Rates
are of whole commands, start included, and once more without the time of a single window. The reference and the sides
compared with it take the first `--few` windows of each set; the others take all.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import environment
from engine_cpu import run_paper, window_sets
from rote.models.hf import load
from rote.types import Window

SIDES: dict[str, list[str]] = {
    "default": [],
    "default_without_estimate": ["--estimate", "none"],
    "verbatim": ["--measures", "verbatim"],
    "near": ["--measures", "near", "--estimate", "none"],
    "near_screen_off": ["--measures", "near", "--screen", "off", "--estimate", "none"],
}


def write_pairs(windows: list[Window], path: Path) -> None:
    rows = [{"prefix_ids": list(window.prefix_ids), "suffix_ids": list(window.suffix_ids)} for window in windows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def command(model: Path, pairs: Path, flags: list[str], threads: int) -> float:
    """Seconds from the start of the process to its end, which is after the manifest."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["scan", "--model", str(model), "--pairs", str(pairs), "--out", f"{folder}/run", *flags]
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "rote", *words],
            check=True,
            capture_output=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )
        seconds = time.perf_counter() - start
        assert (Path(folder) / "run" / "manifest.json").exists()
    return seconds


def paper_style(path: Path) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("paper_style", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.search  # type: ignore[no-any-return]


def compare(
    chosen: argparse.Namespace, search: Any, model: Any, windows: list[Window], pairs: Path, *, start: float
) -> dict[str, Any]:
    folder, few = chosen.library / chosen.model, windows[: chosen.few]
    batches = {batch: run_paper(search, model, few[: 2 * batch], batch) for batch in chosen.batches}
    best = max(batches, key=batches.__getitem__)
    rounds, without_start = [], []
    for _ in range(chosen.rounds):
        rates, bare = {}, {}
        for name in chosen.sides:
            given = few if name.startswith("near") else windows
            write_pairs(given, pairs)
            seconds = command(folder, pairs, SIDES[name], chosen.threads)
            rates[name], bare[name] = len(given) / seconds, len(given) / max(seconds - start, 1e-9)
        rates["paper_style"] = run_paper(search, model, few, best)
        rounds.append(rates)
        without_start.append({name: rate / rates["paper_style"] for name, rate in bare.items()} | {"rates": bare})
        print(rates, bare, flush=True)
    names = [name for name in rounds[0] if name != "paper_style"]
    return {
        "windows": len(windows),
        "windows_of_the_reference": len(few),
        "without_start_windows_per_second": {
            name: statistics.median(one["rates"][name] for one in without_start) for name in names
        },
        "without_start_ratio_to_paper_style": {
            name: statistics.median(one[name] for one in without_start) for name in names
        },
        "paper_style_windows_per_second_by_batch": batches,
        "paper_style_best_batch": best,
        "windows_per_second": {name: statistics.median(one[name] for one in rounds) for name in rounds[0]},
        "ratio_to_paper_style": {
            name: statistics.median(one[name] / one["paper_style"] for one in rounds) for name in names
        },
        "default_share_of_verbatim": {
            name: statistics.median(one[name] / one["verbatim"] for one in rounds)
            for name in names
            if name.startswith("default") and "verbatim" in names
        },
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--baseline", type=Path, required=True)
    parser.add_argument("--model", default="library_24m")
    parser.add_argument("--size", type=int, default=1000, help="windows of ordinary text")
    parser.add_argument("--few", type=int, default=120, help="windows of the reference")
    parser.add_argument("--batches", type=int, nargs="+", default=[2, 4, 8, 20])
    parser.add_argument("--sets", nargs="+", default=["not_memorized", "memorized", "mix_95_5"])
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    search = paper_style(chosen.baseline)
    model = load(str(chosen.library / chosen.model), dtype="float32", device="cpu")
    results: dict[str, Any] = {"model": chosen.model, "rounds": chosen.rounds}
    sets = window_sets(model, chosen.library, chosen.size)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        pairs = Path(folder) / "pairs.jsonl"
        write_pairs(sets["not_memorized"][:1], pairs)
        results["seconds_of_a_single_window"] = command(chosen.library / chosen.model, pairs, [], chosen.threads)
        for name in chosen.sets:
            start = results["seconds_of_a_single_window"]
            results[name] = compare(chosen, search, model, sets[name], pairs, start=start)
            environment.save("scan_cpu", results, chosen.out)


if __name__ == "__main__":
    main()
