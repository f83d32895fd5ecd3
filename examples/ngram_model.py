"""Measure a model of your own: `python examples/ngram_model.py TEXT… [--control OTHER…] [--order 4]`.

An n-gram model of words is trained on the texts and scanned like any language model. All that byrote needs of it is
`vocab_size` and `next_log_probs`; `encode_batch` and `decode` let it cut windows from texts.
"""

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import byrote
import byrote.testing

UNKNOWN = "<unknown>"
WORD = re.compile(r"\w+|[^\w\s]")


class NGramModel:
    """Interpolated n-grams: every order leaves a twentieth of its mass to the shorter ones, the last to all words."""

    def __init__(self, texts: Sequence[str], *, order: int) -> None:
        words = [WORD.findall(text) for text in texts]
        self.name = f"{order}-gram"
        self.vocabulary = [UNKNOWN, *sorted({word for text in words for word in text})]
        self.vocab_size = len(self.vocabulary)
        self._ids = {word: number for number, word in enumerate(self.vocabulary)}
        self._order = order
        self._after: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for text in words:
            self._count([self._ids[word] for word in text])

    def _count(self, tokens: Sequence[int]) -> None:
        for place, token in enumerate(tokens):
            for length in range(min(self._order, place + 1)):
                self._after[tuple(tokens[place - length : place])][token] += 1

    def next_log_probs(self, histories: Sequence[Sequence[int]]) -> np.ndarray:
        return np.log([self._next(tuple(history)) for history in histories])

    def _next(self, history: tuple[int, ...]) -> np.ndarray:
        probabilities = np.full(self.vocab_size, 1 / self.vocab_size)
        for length in range(min(self._order, len(history) + 1)):
            seen = self._after.get(history[len(history) - length :])
            if seen is None:
                break
            shares = np.zeros(self.vocab_size)
            shares[list(seen)] = np.array(list(seen.values())) / seen.total()
            probabilities = 0.05 * probabilities + 0.95 * shares
        return probabilities

    def encode_batch(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        found = [list(WORD.finditer(text)) for text in texts]
        return [([self._ids.get(word[0], 0) for word in words], [word.span() for word in words]) for words in found]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.vocabulary[token] for token in ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="+", type=Path, help="texts to train on and to scan")
    parser.add_argument("--control", nargs="*", type=Path, default=[], help="texts that are scanned only")
    parser.add_argument("--order", type=int, default=4)
    chosen = parser.parse_args()

    model = NGramModel([path.read_text(encoding="utf-8") for path in chosen.text], order=chosen.order)
    byrote.testing.check_model(model)
    windows = byrote.read_windows(
        model, chosen.text, control=chosen.control, prefix_tokens=8, suffix_tokens=12, edit_budget=2, top_k=10
    )
    frame = byrote.scan(model, windows).to_polars()
    for split in frame["split"].unique(maintain_order=True):
        part = frame.filter(frame["split"] == split)
        extractable = (part["verdict"] == "extractable").mean()
        print(f"{split}: {extractable:.0%} of {len(part)} windows extractable within 2 edits")


if __name__ == "__main__":
    main()
