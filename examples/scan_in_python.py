"""Scan texts from Python: `python examples/scan_in_python.py MODEL TEXT… [--out RUN]`.

Prints the windows the model reproduces most easily, and what it would say instead of the expected text.
"""

import argparse

import polars as pl

import byrote


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder or hub id")
    parser.add_argument("text", nargs="+", help="texts to scan")
    parser.add_argument("--stride-chars", type=int, default=200)
    parser.add_argument("--out", help="save the results as a run folder")
    chosen = parser.parse_args()

    config = byrote.RunConfig(stride_chars=chosen.stride_chars)
    model = byrote.load_model(chosen.model)
    windows = byrote.read_windows(model, chosen.text, config=config)
    results = byrote.scan(model, windows, config)

    frame = results.to_polars().with_columns(mass=pl.col("mass_lower").list.last())
    best = {row["window_id"]: row for row in results.continuations() if row["rank"] == 1}
    for row in frame.sort("mass", descending=True).head(3).iter_rows(named=True):
        print(f"{row['window_id']}: verbatim {row['p_verbatim']:.3g}, within 5 edits at least {row['mass']:.3g}")
        if row["window_id"] in best:
            found = best[row["window_id"]]
            print(f"  {found['distance']} edits: {found['text']!r}")
    print(f"{(frame['verdict'] == 'extractable').mean():.0%} of {len(results)} windows are extractable")
    if chosen.out:
        print(f"saved: {results.save(chosen.out)}")


if __name__ == "__main__":
    main()
