"""How much of a book stands in what a model wrote: `python examples/recall_of_a_generation.py BOOK GENERATION`."""

import argparse
from pathlib import Path

import byrote


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("book", type=Path, help="the reference text")
    parser.add_argument("generation", type=Path, help="what the model wrote")
    chosen = parser.parse_args()

    recall = byrote.nv_recall(chosen.book.read_text(encoding="utf-8"), chosen.generation.read_text(encoding="utf-8"))
    print(f"near-verbatim recall: {recall.nv_recall:.1%}")


if __name__ == "__main__":
    main()
