"""A whole scan of millions of windows: how soon it starts, whether memory and open files stay flat, whether it resumes.

    python bench/stream_scan.py [--windows 10000000] [--measures verbatim] [--folder FOLDER] [--out FOLDER]

Synthetic texts of one megabyte each, a window every twenty characters, a table model: so what is measured is the scan's
own machinery. The scan is stopped at half of its windows and started again. Resident memory and open file descriptors
are sampled at every 2 % of the windows; `start_seconds` runs from the start of each opening, texts read and hashed, to
its first row.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from environment import environment, save
from rote.models.base import ModelIdentity
from rote.models.table import TableModel
from rote.scan.options import RunConfig
from rote.scan.run import scan_to_folder
from rote.store.read import read_run
from rote.types import Encoding

ALPHABET = "abcdefghijklmno "
STRIDE = 20
CHARACTERS = 1_000_000


class Letters(TableModel):
    """A table model whose tokens are letters."""

    name = "letters"
    searches_trees = True

    @property
    def in_float32(self) -> "Letters":
        return self

    @property
    def identity(self) -> ModelIdentity:
        return ModelIdentity("letters", None, "0" * 64, "0" * 64, 0, "float32", "cpu")

    def score_bytes_per_token(self) -> int:
        return 8

    def bos_id(self, rule: str) -> int | None:
        return None

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        place = {letter: number for number, letter in enumerate(ALPHABET)}
        return [
            Encoding([place[letter] for letter in text], [(at, at + 1) for at in range(len(text))]) for text in texts
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(ALPHABET[number] for number in ids)


class Halfway(Exception):
    """The scan was stopped on purpose."""


class Sampling:
    """Progress that notes memory and descriptors, and may stop the scan."""

    def __init__(self, windows: int, *, stop_at: int | None = None) -> None:
        self.every, self.stop_at = max(1, windows // 50), stop_at
        self.began, self.start_seconds = time.perf_counter(), None
        self.done, self.samples = 0, list[dict[str, float]]()

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        yield

    def start(self, total: int, done: int) -> None:
        self.done = done

    def remark(self, words: str) -> None: ...

    def advance(self, windows: int) -> None:
        if self.start_seconds is None:
            self.start_seconds = time.perf_counter() - self.began
        self.done += windows
        if self.done % self.every == 0:
            self.samples.append(sample(self.done))
            print(self.samples[-1], f"{time.perf_counter() - self.began:.0f} s", flush=True)
        if self.stop_at is not None and self.done >= self.stop_at:
            raise Halfway


def sample(done: int) -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    descriptors = len(os.listdir("/proc/self/fd"))
    return {"windows": done, "resident_mib": pages * resource.getpagesize() / 2**20, "descriptors": descriptors}


def write_texts(folder: Path, windows: int) -> None:
    """As many characters as give so many starts; the last few of every text come out short."""
    folder.mkdir(parents=True, exist_ok=True)
    generator, letters = np.random.default_rng(0), np.frombuffer(ALPHABET.encode(), np.uint8)
    for number, start in enumerate(range(0, windows * STRIDE, CHARACTERS)):
        size = min(CHARACTERS, windows * STRIDE - start)
        text = letters[generator.integers(0, len(letters), size)].tobytes()
        (folder / f"{number:05d}.txt").write_bytes(text)


def run(windows: int, folder: Path, measures: str) -> dict[str, Any]:
    write_texts(folder / "texts", windows)
    config = RunConfig(
        model="letters",
        text=(str(folder / "texts"),),
        out=str(folder / "run"),
        prefix_tokens=4,
        suffix_tokens=6,
        stride_chars=STRIDE,
        top_k=4,
        beam_width=3,
        edit_budget=2,
        measures=tuple(measures.split(",")),  # type: ignore[arg-type]
        part_windows=4096,
        compile="off",
    )
    model = Letters.random(0, vocab_size=len(ALPHABET))
    first, kept = Sampling(windows, stop_at=windows // 2), 0
    try:
        scan_to_folder(config, progress=first, model=model)
    except Halfway:
        kept = read_run(folder / "run").scan_results().select("window_id").collect().height
    second = Sampling(windows)
    scan_to_folder(config, progress=second, model=model)
    stored = read_run(folder / "run")
    assert stored.manifest is not None
    return {
        "windows": stored.manifest["totals"]["windows"],
        "kept_when_stopped": kept,
        "resumed": stored.manifest["timings"]["windows_resumed"],
        "start_seconds": [first.start_seconds, second.start_seconds],
        "seconds_after_resuming": time.perf_counter() - second.began,
        "samples": first.samples + second.samples,
        "at_the_end": sample(windows),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=10_000_000)
    parser.add_argument("--measures", default="verbatim")
    parser.add_argument("--folder", type=Path, help="for texts and run (default: a temporary one)")
    parser.add_argument("--out", type=Path, help="folder for stream_scan.json (default bench/results)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    at_start = environment()
    with tempfile.TemporaryDirectory() as temporary:
        result = run(options.windows, options.folder or Path(temporary), options.measures)
    print(save("stream_scan", {"environment": at_start, **result}, options.out))


if __name__ == "__main__":
    main()
