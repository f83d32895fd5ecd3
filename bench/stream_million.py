"""A million table-model windows through one engine: does memory stay flat?

    python bench/stream_million.py [--windows 1000000] [--slots 512] [--out FOLDER]

Windows come from a generator and outcomes are dropped once counted, so what grows would be the engine's own. Prints
the resident memory now and at its peak at 10 %, 50 % and 100 %.
"""

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from byrote.scan.options import RunConfig
from byrote.search.base import SearchTask
from byrote.search.engine import Engine
from environment import environment, save

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.table import TableModel

PREFIX, SUFFIX, VOCABULARY = 4, 6, 16
CONFIG = RunConfig(
    prefix_tokens=PREFIX,
    suffix_tokens=SUFFIX,
    top_k=4,
    beam_width=3,
    edit_budget=2,
    negligible=0.0,
    threshold=0.01,
    keep=1,
)


def windows(count: int, *, seed: int) -> Iterator[SearchTask]:
    """Random windows of random lengths, drawn in blocks and never all at once."""
    generator = np.random.default_rng(seed)
    for start in range(0, count, 10_000):
        block = generator.integers(0, VOCABULARY, (min(10_000, count - start), PREFIX + SUFFIX)).tolist()
        lengths = generator.integers(1, SUFFIX + 1, len(block)).tolist()
        for offset, (row, length) in enumerate(zip(block, lengths, strict=True)):
            yield SearchTask(start + offset, tuple(row[:PREFIX]), tuple(row[PREFIX : PREFIX + length]))


def resident_mebibytes() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def peak_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def stream(count: int, *, slots: int, seed: int) -> dict[str, object]:
    model = TableModel.random(seed, vocab_size=VOCABULARY)
    engine = Engine(model, CONFIG.search_options(), slots=slots, limits=CONFIG.limits)
    marks = {count // 10: "10 %", count // 2: "50 %", count: "100 %"}
    rows, reasons, key_sum = [], dict[str, int](), 0
    start = time.perf_counter()
    for done, outcome in enumerate(engine.run(windows(count, seed=seed)), start=1):
        reasons[outcome.stop_reason] = reasons.get(outcome.stop_reason, 0) + 1
        key_sum += outcome.key
        if done in marks:
            rows.append({"done": marks[done], "resident_mib": resident_mebibytes(), "peak_mib": peak_mebibytes()})
            print(rows[-1], f"{done / (time.perf_counter() - start):.0f} windows/s", flush=True)
    assert key_sum == count * (count - 1) // 2, "a window was lost or came twice"
    return {"windows": count, "slots": slots, "seconds": time.perf_counter() - start, "stops": reasons, "memory": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=1_000_000)
    parser.add_argument("--slots", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for stream_million.json (default bench/results)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    at_start = environment()  # the code that runs is the code of now, whatever is committed meanwhile
    result = stream(options.windows, slots=options.slots, seed=options.seed)
    print(save("stream_million", {"environment": at_start, **result}, options.out))


if __name__ == "__main__":
    main()
