"""A scan of millions of windows: how soon it starts, whether memory and open files stay flat, how soon it resumes.

    PYTHONPATH=src:bench:. python bench/stream_scan.py [--windows 10000000] [--left 100000] [--seconds 60] [--out F]

Synthetic texts of one megabyte each, a window every twenty characters, a table model: so what is measured is the scan's
own machinery. The scan is opened, measures for some seconds and is stopped. Then rows are put into its folder, by the
session that a scan writes with, until so many windows are left, and the scan is opened again and completes the run.
Every opening is a process of its own. `start_seconds` runs from the start of an opening, texts read and hashed, to its
first row, and `start_cpu_seconds` is what the process worked for that; imports are counted in neither. Resident memory
and open file descriptors are sampled while windows are measured; `peak_mib` is that of the opening, merging included.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import Process, Queue
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.scan.letters import Letters

from byrote.scan.options import RunConfig
from byrote.scan.run import open_session, run_identity, scan_to_folder
from byrote.scan.source import cut_source, read_given
from byrote.scan.stages.screen import with_audit
from byrote.store.read import read_run
from environment import environment, save

STRIDE = 20
CHARACTERS = 1_000_000


class MoreLetters(Letters):
    alphabet = "abcdefghijklmno "


def more_letters() -> MoreLetters:
    model = MoreLetters.random(0, vocab_size=len(MoreLetters.alphabet))
    assert isinstance(model, MoreLetters)
    return model


class Enough(Exception):
    """The scan was stopped on purpose."""


class Sampling:
    """Progress that notes memory and descriptors every second, and stops the scan if it is to be stopped."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self.began, self.worked = seconds, time.perf_counter(), time.process_time()
        self.start_cpu_seconds = 0.0
        self.done, self.first, self.samples = 0, 0.0, list[dict[str, float]]()

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        yield

    def start(self, total: int, done: int) -> None:
        self.done = done

    def remark(self, words: str) -> None: ...

    def advance(self, windows: int) -> None:
        now = time.perf_counter()
        if not self.samples:
            self.first, self.start_cpu_seconds = now, time.process_time() - self.worked
        self.done += windows
        if now - self.first >= len(self.samples):
            self.samples.append(sample(self.done) | {"seconds": now - self.began})
        if self.seconds is not None and now - self.first >= self.seconds:
            raise Enough


def sample(done: int) -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    descriptors = len(os.listdir("/proc/self/fd"))
    return {"windows": done, "resident_mib": pages * resource.getpagesize() / 2**20, "descriptors": descriptors}


def write_texts(folder: Path, windows: int) -> None:
    """As many characters as give so many starts; the last few of every text come out short."""
    folder.mkdir(parents=True, exist_ok=True)
    generator, letters = np.random.default_rng(0), np.frombuffer(MoreLetters.alphabet.encode(), np.uint8)
    for number, start in enumerate(range(0, windows * STRIDE, CHARACTERS)):
        size = min(CHARACTERS, windows * STRIDE - start)
        text = letters[generator.integers(0, len(letters), size)].tobytes()
        (folder / f"{number:05d}.txt").write_bytes(text)


def config_of(folder: Path) -> RunConfig:
    return RunConfig(
        model="letters",
        text=(str(folder / "texts"),),
        out=str(folder / "run"),
        prefix_tokens=4,
        suffix_tokens=6,
        stride_chars=STRIDE,
        top_k=4,
        beam_width=3,
        edit_budget=2,
        measures=("verbatim",),
        windows_per_part=4096,
        compile="off",
    )


def opened(folder: Path, seconds: float | None, results: "Queue[dict[str, Any]]") -> None:
    """Open the scan and measure for some seconds, or until it is complete."""
    torch.set_num_threads(1)
    before, progress = sample(0), Sampling(seconds)
    with suppress(Enough):
        scan_to_folder(config_of(folder), progress=progress, model=more_letters())
    results.put(
        {
            "resident_mib_before": before["resident_mib"],
            "is_complete": (folder / "run" / "manifest.json").exists(),
            "seconds": time.perf_counter() - progress.began,
            "start_seconds": progress.first - progress.began,
            "start_cpu_seconds": progress.start_cpu_seconds,
            "windows_before": progress.samples[0]["windows"] - 1,
            "windows_after": progress.done,
            "samples": [progress.samples[0], *progress.samples[9::10]],
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        }
    )


def fill(folder: Path, finished: int) -> None:
    """Rows like a measured one for the windows of the first texts, until so many are finished."""
    config, model = config_of(folder), more_letters()
    source = cut_source(read_given(config), model, config)
    config = with_audit(config, source.selection.most)
    (row,) = read_run(folder / "run").scan_results().head(1).collect().to_dicts()
    with open_session(config, run_identity(model, source, config)) as session:
        left = finished - len(session.finished)
        for document in source.documents:
            starts = np.arange(0, document.characters - STRIDE, STRIDE)
            for start in starts[~session.finished.holds_places(document.name, starts)][: max(0, left)].tolist():
                place = {"window_id": f"{document.name}@{start}", "document": document.name, "char_start": start}
                session.add({**row, **place, "suffix_char_start": start + 4, "char_end": start + 10})
                left -= 1


def run(windows: int, left: int, seconds: float, folder: Path) -> dict[str, Any]:
    write_texts(folder / "texts", windows)
    results: Queue[dict[str, Any]] = Queue()
    steps = partial(opened, folder, seconds, results), partial(fill, folder, windows - left)
    for step in (*steps, partial(opened, folder, None, results)):
        process = Process(target=step)
        process.start()
        process.join()
    return {"windows": windows, "openings": [results.get(), results.get()]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=10_000_000)
    parser.add_argument("--left", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--folder", type=Path, help="for texts and run (default: a temporary one)")
    parser.add_argument("--out", type=Path, help="folder for stream_scan.json (default bench/results)")
    options = parser.parse_args()
    at_start = environment()
    with tempfile.TemporaryDirectory() as temporary:
        result = run(options.windows, options.left, options.seconds, options.folder or Path(temporary))
    print(save("stream_scan", {"environment": at_start, **result}, options.out))


if __name__ == "__main__":
    main()
