"""A real model on a GPU through the pipeline that `byrote scan` runs: windows a second on text it does not know.

    PYTHONPATH=src:bench python bench/scan_library_gpu.py --model FOLDER --text FILE … [--stride 100] [--dtype bfloat16]

Default measures beside `verbatim` alone, both on the same windows, and the verdicts, so that a fast wrong run shows.
"""

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

import environment
from byrote.corpus.read import read_documents
from byrote.corpus.select import select_windows
from byrote.corpus.windows import WindowOptions
from byrote.models.hf.graphs import compile_layers
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.scan.stages.screen import with_audit
from byrote.types import Split, Window


def run(model: HuggingFaceModel, windows: list[Window], config: RunConfig) -> dict[str, Any]:
    pipeline = Pipeline(model, config, decode=model.decode)
    start = time.perf_counter()
    verdicts = Counter(str(measured.row.get("verdict")) for measured in pipeline.run(windows))
    seconds = time.perf_counter() - start
    return {
        "windows": len(windows),
        "seconds": seconds,
        "windows_per_second": len(windows) / seconds,
        "verdicts": dict(verdicts),
        "facts": pipeline.facts._asdict(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--stride", type=int, default=100)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    model = load(chosen.model, dtype=chosen.dtype, device=chosen.device)
    if chosen.compile:
        compile_layers(model.model)
    options = WindowOptions(prefix_tokens=50, suffix_tokens=50, stride_chars=chosen.stride)
    windows = select_windows(read_documents(chosen.text, split=Split.CONTROL), model, options, bos_id=None).windows
    name = Path(chosen.model).name
    results: dict[str, Any] = {"model": name, "dtype": chosen.dtype, "texts": [path.name for path in chosen.text]}
    configs = {
        "default": with_audit(RunConfig(keep=3), len(windows)),
        "verbatim": RunConfig(keep=3, measures=("verbatim",)),
    }
    for label, config in configs.items():
        run(model, windows[:2000], config)  # kernels are compiled once per process
        rounds = [run(model, windows, config) for _ in range(chosen.rounds)]
        results[label] = sorted(rounds, key=lambda one: one["windows_per_second"])[len(rounds) // 2]
        print(label, results[label], flush=True)
    print(environment.save(f"scan_gpu_{name}", results, chosen.out).read_text())


if __name__ == "__main__":
    main()
