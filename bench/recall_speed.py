"""Time of the matching blocks of nv-recall against cydifflib, on invented novels or on given texts.

    python bench/recall_speed.py [--words 120000] [--seed 0] [--book FILE… --other FILE…] [--out FILE.json]

Every line compares the blocks too: a faster answer that differs would be no answer. The invented novels have a
Zipf vocabulary and words that follow each other often, so that short runs repeat by chance as they do in prose.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cydifflib
import numpy as np

from byrote.corpus.normalise import normalised_words
from byrote.longform.matching import matching_blocks


def invented_novel(words: int, *, seed: int, language_seed: int = 0) -> list[str]:
    """Two seeds share one language (vocabulary, frequencies, favourite successors) and nothing else."""
    language = np.random.default_rng(language_seed)
    vocabulary = 14_000
    frequencies = 1 / (np.arange(vocabulary) + 2.7)
    cumulative = np.cumsum(frequencies / frequencies.sum())
    favourites = np.searchsorted(cumulative, language.random((vocabulary, 12)))
    rng = np.random.default_rng([language_seed, seed])
    free = np.minimum(np.searchsorted(cumulative, rng.random(words)), vocabulary - 1).tolist()
    choice = np.minimum(rng.geometric(0.25, size=words) - 1, 11).tolist()
    follows = (rng.random(words) < 0.35).tolist()
    text = [free[0]]
    for n in range(1, words):
        text.append(int(favourites[text[-1], choice[n]]) if follows[n] else free[n])
    return [f"w{word}" for word in text]


def damaged(words: Sequence[str], *, share: float, seed: int) -> list[str]:
    """A copy in which `share` of the words are replaced, dropped or preceded by a stray word, a third each."""
    rng = random.Random(seed)
    copy: list[str] = []
    for word in words:
        draw = rng.random() / share
        if draw >= 1:
            copy.append(word)
        elif draw < 2 / 3:
            copy.append(rng.choice(words))
            if draw < 1 / 3:
                copy.append(word)
    return copy


def timed(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(name: str, first: Sequence[str], second: Sequence[str]) -> dict[str, object]:
    seconds, blocks = timed(lambda: matching_blocks(first, second))
    matcher = cydifflib.SequenceMatcher(None, first, second, autojunk=False)
    reference_seconds, reference = timed(lambda: [tuple(block) for block in matcher.get_matching_blocks()][:-1])
    return {
        "pair": name,
        "words": [len(first), len(second)],
        "blocks": len(reference),
        "identical": blocks == reference,
        "byrote_seconds": round(seconds, 3),
        "cydifflib_seconds": round(reference_seconds, 3),
        "times_faster": round(reference_seconds / seconds, 1),
    }


def words_of(paths: Sequence[Path]) -> list[str]:
    return [word for path in paths for word in normalised_words(path.read_text(encoding="utf-8")).words]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--book", type=Path, nargs="+")
    parser.add_argument("--other", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    book = words_of(options.book) if options.book else invented_novel(options.words, seed=2 * options.seed)
    other = words_of(options.other) if options.other else invented_novel(options.words, seed=2 * options.seed + 1)
    copy = damaged(book, share=0.02, seed=options.seed)
    third = len(copy) // 3
    pairs = {
        "2 % damaged copy": copy,
        "unrelated": other,
        "damaged copy, thirds swapped, then unrelated": copy[third:] + copy[:third] + other[:third],
    }
    rows = []
    for name, text in pairs.items():
        rows.append(compare(name, book, text))
        print(rows[-1], flush=True)
    if options.out:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        record = {"commit": commit, "machine": machine, "python": platform.python_version(), "rows": rows}
        options.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
