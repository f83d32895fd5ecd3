"""What the text measure costs: searches over characters against searches over tokens, of the same characters.

    python bench/text_cost.py MODEL TEXT [--windows 24] [--repeats 3]

Windows are stretches of 200 + 200 characters; both sides search their own tokens, ⌊T / 10⌋ token edits or 20
character edits, with the options of a scan and without the screen. Each side runs in a process of its own, the second
after the first; windows per second are the best of the repeats.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import environment
from byrote.models.load import open_model
from byrote.scan.api import read_windows
from byrote.scan.options import RunConfig
from byrote.scan.source import fitted
from byrote.search.base import SearchTask, target_chars
from byrote.search.engine import Engine
from byrote.search.sizing import choose_slots


def measure(model_name: str, text: str, windows: int, repeats: int, unit: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    model = open_model(model_name, dtype="float32", device="cpu")
    cut = list(read_windows(model, text, unit="text", sample=windows))
    config = fitted(RunConfig(unit="text"), cut)
    if unit == "tokens":
        longest = max(len(window.suffix_ids) for window in cut)
        edits = longest // 10
        config = replace(config, unit="tokens", suffix_tokens=longest, edit_budget=edits)
    options = replace(config.search_options(), threshold=None)
    tasks = [
        SearchTask(
            key,
            window.prefix_ids,
            window.suffix_ids,
            target_chars=target_chars(window.suffix_text) if unit == "text" else None,
        )
        for key, window in enumerate(cut)
    ]
    slots = min(len(tasks), choose_slots(model, options, config.limits))
    _ = model.token_texts
    best, evals, lower = float("inf"), 0, 0.0
    for _ in range(repeats):
        started = time.perf_counter()
        outcomes = list(Engine(model, options, slots=slots, limits=config.limits).run(tasks))
        best = min(best, time.perf_counter() - started)
        evals = sum(outcome.token_evals for outcome in outcomes)
        lower = sum(outcome.bounds.lower[-1] for outcome in outcomes)
    return {
        "windows_per_second": len(tasks) / best,
        "token_evals": evals,
        "evals_per_second": evals / best,
        "mean_lower": lower / len(tasks),
        "slots": slots,
        "windows": len(tasks),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=("tokens", "text"))
    parser.add_argument("--results", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    if chosen.side:
        print(json.dumps(measure(chosen.model, chosen.text, chosen.windows, chosen.repeats, chosen.side)))
        return
    sides = {}
    for side in ("tokens", "text"):
        done = subprocess.run([sys.executable, *sys.argv, "--side", side], check=True, capture_output=True, text=True)
        sides[side] = json.loads(done.stdout.splitlines()[-1])
    ratio = sides["tokens"]["windows_per_second"] / sides["text"]["windows_per_second"]
    sides["time_ratio"] = ratio
    sides["model"] = Path(chosen.model).name
    sides["text"]["of"] = sides["tokens"]["of"] = Path(chosen.text).name
    environment.save("text_cost", sides, chosen.results)
    print(f"text takes {ratio:.2f} × the time of tokens")


if __name__ == "__main__":
    main()
