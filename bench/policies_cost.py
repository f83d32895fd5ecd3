"""What bounds under six further policies add to a search: the engine with and without them, in turns, on a CPU.

    python bench/policies_cost.py --library PATH [--model library_24m] [--windows 16] [--rounds 5]

Memorized windows, searched to their end: the most beams and the most children a step, so the most to carry. Time is
that of the process, which a shared machine disturbs least; the ratio is the median over the rounds.
"""

import argparse
import statistics
import time
from pathlib import Path

import environment
from byrote.corpus.read import read_documents
from byrote.corpus.select import select_windows
from byrote.corpus.windows import WindowOptions
from byrote.models.hf.model import load
from byrote.scan.options import RunConfig
from byrote.search.base import SearchTask
from byrote.search.engine import Engine
from byrote.search.sizing import choose_slots
from byrote.types import Split

POLICIES = ("k=1", "k=10", "t=0.7+k=40", "t=1.3+k=40", "k=40+p=0.9", "k=20+p=0.8+t=0.8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--model", default="library_24m")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    model = load(str(chosen.library / chosen.model), dtype="float32", device="cpu")
    documents = read_documents([chosen.library / "texts" / "target" / "alice.txt"], split=Split.TARGET)
    cut = WindowOptions(prefix_tokens=50, suffix_tokens=50, stride_chars=2400)
    windows = select_windows(documents, model, cut, bos_id=None).windows[: chosen.windows]
    tasks = [SearchTask(number, window.prefix_ids, window.suffix_ids) for number, window in enumerate(windows)]
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(chosen.rounds + 1):
        for name, policies in (("without", ()), ("with", POLICIES)):
            config = RunConfig(keep=0, stop_rule="off", policies=policies)
            options = config.search_options()
            engine = Engine(model, options, slots=choose_slots(model, options, config.limits), limits=config.limits)
            start = time.process_time()
            assert len(list(engine.run(tasks))) == len(tasks)
            if number:  # the first round warms up
                seconds[name].append(time.process_time() - start)
    ratios = [bounded / plain for plain, bounded in zip(seconds["without"], seconds["with"], strict=True)]
    results = {"model": chosen.model, "windows": len(tasks), "policies": POLICIES, "cpu_seconds": seconds}
    print(environment.save("policies_cost", results | {"ratios": ratios, "ratio": statistics.median(ratios)}))
    print(f"{statistics.median(ratios):.3f} of the time without further policies")


if __name__ == "__main__":
    main()
