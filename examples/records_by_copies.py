"""Rates by copies and kind: `python examples/records_by_copies.py MODEL passages.jsonl --out RUN [--records 1000]`.

The catalogue is what `byrote demo` leaves beside its texts: passages with copies in training and kind. Every
passage is cut into several records of a prefix and the twelve words that follow. Prints the rate of each number of
copies and of each kind with its interval; the run folder can be shown, reported and exported like any other.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import byrote
from byrote.report.analysis.groups import copies_rates, group_rates
from byrote.report.analysis.rates import Criterion
from byrote.report.view import load_view

SUFFIX_WORDS = 12
FIRST_CUT, BETWEEN_CUTS = 20, 7


def records(catalogue: Path) -> Iterator[dict[str, object]]:
    """First one record of every passage, then a second one of every passage, and so on. Other editions are left out:
    their copies in training had other words."""
    passages = [json.loads(line) for line in catalogue.read_text(encoding="utf-8").splitlines()]
    for at in itertools.count(FIRST_CUT, BETWEEN_CUTS):
        fitting = [passage for passage in passages if len(passage["text"].split(" ")) >= at + SUFFIX_WORDS]
        if not fitting:
            return
        for passage in fitting:
            words = passage["text"].split(" ")
            if passage["kind"] != "edition":
                yield {
                    "id": f"{passage['name']}/{at}",
                    "document": passage["name"],
                    "prefix": " ".join(words[:at]),
                    "suffix": " " + " ".join(words[at : at + SUFFIX_WORDS]),
                    "copies": passage["copies"],
                    "kind": passage["kind"],
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder or hub id")
    parser.add_argument("catalogue", type=Path, help="passages.jsonl")
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()

    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    file = chosen.out.with_suffix(".records.jsonl")
    lines = [json.dumps(record) for record in itertools.islice(records(chosen.catalogue), chosen.records)]
    file.write_text("\n".join(lines), encoding="utf-8")
    model = byrote.load_model(chosen.model)
    windows = byrote.read_windows(model, pairs=file)
    byrote.scan(model, windows).save(chosen.out)

    view = load_view(chosen.out)
    by_copies = [(f"{rate.copies:3d} copies", rate.criterion, rate.rate) for rate in copies_rates(view)]
    by_kind = [(f"{rate.group}, {rate.split}", rate.criterion, rate.rate) for rate in group_rates(view)]
    for name, criterion, rate in (*by_copies, *by_kind):
        if criterion is Criterion.NEAR:
            low, high = rate.interval.low, rate.interval.high
            print(f"{name:16s} {rate.value:6.1%} of {rate.n:4d} records ({low:.1%} to {high:.1%})")


if __name__ == "__main__":
    main()
