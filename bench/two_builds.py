"""Two builds of byrote in turns: the same command on the same texts, start to manifest, on a CPU.

    python bench/two_builds.py --before CHECKOUT --library PATH [--model library_24m] [--rounds 2] [--only mix_95_5 …]

For "no slower than before". Both run with default options. The older build knows no sampled estimates, so the newer one
also runs without them: that is the same work.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import environment

BUILDS: dict[str, list[str]] = {"before": [], "now": [], "now_without_estimate": ["--answers", "0"]}
SIZES = {"not_memorized": (480, 0), "memorized": (0, 96), "mix_95_5": (456, 24)}
"""Windows of ordinary and of memorized text."""
ORDINARY, MEMORIZED = "control/wizard_of_oz.txt", "target/alice.txt"
STRIDE = 100


def write_part(text: Path, windows: int, folder: Path) -> list[str]:
    """As much of a text as has about so many windows, in a file of its own; nothing where there are none."""
    if not windows:
        return []
    part = folder / text.name
    part.write_text(text.read_text(encoding="utf-8")[: (windows + 4) * STRIDE], encoding="utf-8")
    return [str(part)]


def scan(source: Path, words: list[str]) -> tuple[float, int]:
    """Seconds of one command and the windows of its run."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "byrote", "scan", *words, "--stride-chars", str(STRIDE), "--out", str(out)]
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(source)})
        seconds = time.perf_counter() - start
        import pyarrow.dataset as dataset

        assert (out / "manifest.json").exists()
        files = [str(path) for path in out.rglob("*.parquet") if "continuations" not in str(path)]
        return seconds, dataset.dataset(files).count_rows()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the older build")
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--model", default="library_24m")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=sorted(SIZES), default=list(SIZES))
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    sources = {name: Path(__file__).parents[1] / "src" for name in BUILDS} | {"before": chosen.before / "src"}
    commit = subprocess.run(["git", "-C", chosen.before, "rev-parse", "--short", "HEAD"], capture_output=True)
    results: dict[str, Any] = {"model": chosen.model, "before": commit.stdout.decode().strip(), "stride_chars": STRIDE}
    for name in chosen.only:
        taken: dict[str, list[tuple[float, int]]] = {build: [] for build in BUILDS}
        with tempfile.TemporaryDirectory() as folder:
            texts = chosen.library / "texts"
            ordinary, memorized = SIZES[name]
            parts = write_part(texts / ORDINARY, ordinary, Path(folder))
            parts += write_part(texts / MEMORIZED, memorized, Path(folder))
            words = ["--model", str(chosen.library / chosen.model)]
            words += [word for part in parts for word in ("--text", part)]
            for _ in range(chosen.rounds):
                for build, flags in BUILDS.items():
                    taken[build].append(scan(sources[build], [*words, *flags]))
                print(name, {build: took[-1] for build, took in taken.items()}, flush=True)
        results[name] = {
            "windows": {build: took[0][1] for build, took in taken.items()},
            "seconds": {build: [seconds for seconds, _ in took] for build, took in taken.items()},
            "times_as_fast_as_before": {
                build: statistics.median(
                    old / new for (old, _), (new, _) in zip(taken["before"], taken[build], strict=True)
                )
                for build in BUILDS
                if build != "before"
            },
        }
        environment.save("two_builds_cpu", results, chosen.out)
    print(results)


if __name__ == "__main__":
    main()
