"""Teacher-forced scoring against the bare forward at the same batch, for 1 and for 50 policies, in one run.

python bench/teacher_forcing.py --library PATH [--model library_24m] [--windows 1000]
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

import environment
from byrote.models.hf.model import load
from byrote.policy import Policy

ONE = [Policy(1.0, 40)]
FIFTY = (
    [Policy(1.0, k) for k in (1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 50, 64, 80, 100, 128, 160, 200)]
    + [Policy(beta, k) for beta in (0.5, 0.7, 0.8, 0.9, 1.1, 1.2) for k in (10, 40, 100)]
    + [Policy(1.0, None, q) for q in (0.5, 0.7, 0.8, 0.9, 0.95)]
    + [Policy(1.0, 40, q) for q in (0.5, 0.8, 0.9, 0.95)]
    + [Policy(beta, None) for beta in (0.5, 0.7, 0.8, 1.0, 1.2, 1.5)]
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--model", default="library_24m")
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    assert len(FIFTY) == 50
    model = load(str(chosen.library / chosen.model), dtype="float32", device="cpu")
    text = (chosen.library / "texts" / "target" / "alice.txt").read_text(encoding="utf-8")
    starts = [place * (len(text) - 900) // chosen.windows for place in range(chosen.windows)]
    windows = [encoding.ids[:100] for encoding in model.encode_batch([text[s : s + 800] for s in starts])]
    batches = [windows[place : place + chosen.batch] for place in range(0, len(windows), chosen.batch)]
    seconds = {"bare": 0.0, "one_policy": 0.0, "fifty_policies": 0.0}
    with torch.inference_mode():
        for batch in batches[:2]:
            model.score(batch, 50, FIFTY)
            model.model(input_ids=torch.tensor(batch), use_cache=False)
        # Interleaved, so that whatever else the machine does hits all three alike.
        for batch in batches:
            start = time.perf_counter()
            model.model(input_ids=torch.tensor(batch), use_cache=False)
            bare = time.perf_counter()
            model.score(batch, 50, ONE)
            one = time.perf_counter()
            model.score(batch, 50, FIFTY)
            end = time.perf_counter()
            seconds["bare"] += bare - start
            seconds["one_policy"] += one - bare
            seconds["fifty_policies"] += end - one
    results: dict[str, Any] = {
        "model": chosen.model,
        "windows": len(windows),
        "batch": chosen.batch,
        "windows_per_second": {name: len(windows) / value for name, value in seconds.items()},
        "share_of_bare_one_policy": seconds["bare"] / seconds["one_policy"],
        "share_of_bare_fifty_policies": seconds["bare"] / seconds["fifty_policies"],
    }
    print(results)
    environment.save("teacher_forcing", results)


if __name__ == "__main__":
    main()
