"""From the return key to the first window scored: `byrote scan` beside a plain script, in turns, in one run.

    python bench/start_time.py --model FOLDER --text FILE [--rounds 5]

The plain script imports torch and transformers, loads the same folder and scores one window. Each side is a process of
its own; wall clock and CPU seconds are those until its first window was scored, and what byrote has done by then is
told by part. The first round fills the page cache and is left out.
"""

import argparse
import compileall
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import byrote
import environment

PLAIN = """
import json, os, sys, time
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
parts = {"imported": time.time()}
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
parts["loaded"] = time.time()
ids = tokenizer(open(sys.argv[2]).read()[:2000], return_tensors="pt", add_special_tokens=False)["input_ids"][:, :100]
with torch.inference_mode():
    log_probs = model(input_ids=ids).logits[:, :-1].float().log_softmax(-1).gather(-1, ids[:, 1:, None])
    log_probs[0, -50:, 0].sum().item()
parts["scored"] = time.time()
print(json.dumps(parts | {"cpu": sum(os.times()[:2])}), file=sys.stderr)
"""
BYROTE = """
import importlib, json, os, sys, time
from byrote.cli.entry import main
run, parts = sys.argv[3], {}
def watch(owner, name, part):
    original = getattr(owner, name)
    def watched(*given, **named):
        found = original(*given, **named)
        parts.setdefault(part, time.time())
        if part == "scored":
            print(json.dumps(parts | {"cpu": sum(os.times()[:2])}), file=sys.stderr, flush=True)
            os._exit(0)
        return found
    setattr(owner, name, watched)
def imported(name, package=None):
    module = original_import(name, package)
    if name == "byrote.cli.scan":
        parts["imported"] = time.time()
        watch(sys.modules["byrote.scan.run"], "open_model", "loaded")
        watch(sys.modules["byrote.scan.run"], "open_session", "opened")
        watch(sys.modules["byrote.scan.stages.score"].ScoreStage, "score", "scored")
    return module
original_import = importlib.import_module
import byrote.cli.from_options
byrote.cli.from_options.import_module = imported
sys.argv[:] = ["byrote", "scan", "--model", sys.argv[1], "--text", sys.argv[2], "--out", run, "--sample", "1", "-q"]
main()
"""


def started(script: str, *arguments: str) -> dict[str, float]:
    """Seconds from the start of a process to each of its parts, and its CPU seconds."""
    began = time.time()
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True)
    try:
        told = json.loads(done.stderr.strip().splitlines()[-1])
    except (IndexError, ValueError):
        sys.exit(done.stderr[-4000:])
    return {name: value if name == "cpu" else value - began for name, value in told.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--machine", default="quiet", help="what else it did: quiet, or shared")
    given = parser.parse_args()
    # As an installation does it; the libraries of both sides are compiled already.
    compileall.compile_dir(Path(byrote.__file__).parent, quiet=1)
    rounds: dict[str, list[dict[str, float]]] = {"plain": [], "byrote": []}
    for number in range(given.rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            pair = {
                "plain": started(PLAIN, given.model, given.text),
                "byrote": started(BYROTE, given.model, given.text, str(Path(folder) / "run")),
            }
        print({side: {name: round(value, 2) for name, value in parts.items()} for side, parts in pair.items()})
        for side in rounds if number else ():
            rounds[side].append(pair[side])
    median: dict[str, Any] = {
        side: {name: round(statistics.median(one[name] for one in found), 2) for name in found[0]}
        for side, found in rounds.items()
    }
    ratios = {name: round(median["byrote"][name] / median["plain"][name], 2) for name in ("scored", "cpu")}
    results = {"model": Path(given.model).name, "rounds": given.rounds, "machine": given.machine, "ratios": ratios}
    print(environment.save("start_time", results | {"median_seconds": median}).read_text())


if __name__ == "__main__":
    main()
