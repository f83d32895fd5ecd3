"""The pool of `byrote prior`: coverage against enumeration, cost by number of windows, records by copies in training.

    python bench/prior_pool.py --library FOLDER [--members 1500] [--records 8]

Coverage needs nothing but this repository. Cost and records need FOLDER with library_24m, people.json (records with
their number of copies in training) and texts/control.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import torch
from tests.oracle import true_mass
from tests.table import TableModel

import environment
from byrote.corpus.read import read_documents
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.policy import Policy
from byrote.prior.draws import DrawnPrefixes, draw_prefixes
from byrote.prior.options import PriorConfig
from byrote.prior.pool import Pool, PooledBalls, ScannedBall, hits_of, sample_pool
from byrote.prior.run import prior_to_folder
from byrote.progress import SilentProgress
from byrote.scan.options import RunConfig
from byrote.scan.run import scan_to_folder
from byrote.store.read import read_run
from byrote.types import Split

POOLS = 2000
PREFIX_TOKENS = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--members", type=int, default=1500)
    parser.add_argument("--records", type=int, default=8, help="of each number of copies")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"coverage": coverage()}
    if arguments.library is not None:
        model = load(str(arguments.library / "library_24m"), dtype="float32", device="cpu")
        results["cost"] = cost(model, arguments.library, arguments.members)
        print(json.dumps(results, indent=1), flush=True)
        results["records"] = records(model, arguments.library, arguments.members, arguments.records)
    print(json.dumps(results.get("records"), indent=1))
    print(environment.save("prior_pool", results))


def coverage() -> list[dict[str, float]]:
    """Of many pools, how often the interval and either one-sided limit of E_q P(ball | q) cover the value."""
    policy, model = Policy(0.8, 4), TableModel.random(3, vocab_size=5, spread=1.0)
    prefixes = ((1, 2, 3), (3, 2, 1), (2, 2, 2), (4, 1, 4), (1, 1, 4))
    targets = ((1, 2, 3, 4), (2, 2, 2, 2), (4, 3, 4, 3))
    exact = [
        fmean(true_mass(model, prefix, one, policy, budget=1, distance="levenshtein") for prefix in prefixes)
        for one in targets
    ]
    rows = []
    for members in (30, 100, 300):
        counts = np.random.default_rng(members).multinomial(POOLS * members, [0.2] * 5)[:, None]
        drawn = DrawnPrefixes(prefixes, counts)
        every = sample_pool(model, drawn, policy, members=POOLS * members, tokens=4, seed=members)
        parts = [Pool(part, members) for part in np.split(every.token_ids, POOLS)]
        hits = np.array([hits_of(part, targets, distance="levenshtein", edits=1) for part in parts])
        balls = PooledBalls(ScannedBall("levenshtein", 1, policy, 0.001), [], members, members, {})
        for place, value in enumerate(exact):
            found = [balls.prior(one) for one in hits[:, place].tolist()]
            one_sided = [balls.prior(one, level=0.9) for one in hits[:, place].tolist()]
            rows.append(
                {
                    "members": members,
                    "exact": value,
                    "interval": fmean(each.low <= value <= each.high for each in found),
                    "lower_limit": fmean(each.low <= value for each in one_sided),
                    "upper_limit": fmean(value <= each.high for each in one_sided),
                }
            )
    return rows


def cost(model: HuggingFaceModel, library: Path, members: int) -> dict[str, Any]:
    """Seconds and token evaluations of the pool, and seconds of the edit distances of more and more targets."""
    documents = list(read_documents([library / "texts" / "control"], split=Split.CONTROL))
    drawn = draw_prefixes(
        documents, model, prefix_tokens=50, stride_chars=1, bos_id=None, draws=members, trials=1, seed=0
    )
    started = time.perf_counter()
    pool = sample_pool(model, drawn, Policy(1.0, 40), members=members, tokens=50, seed=0)
    seconds = time.perf_counter() - started
    (text,) = model.encode_batch([documents[0].text])
    rows = []
    for targets in (1, 10, 100, 1000):
        chosen = [text.ids[11 * number : 11 * number + 50] for number in range(targets)]
        started = time.perf_counter()
        hits_of(pool, chosen, distance="levenshtein", edits=5)
        rows.append(
            {
                "targets": targets,
                "pool_token_evals": members * 99,
                "pool_seconds": seconds,
                "distance_seconds": time.perf_counter() - started,
                "exact_suffix_token_evals": members * (50 + 49 * targets),
            }
        )
    return {"members": members, "threads": torch.get_num_threads(), "rows": rows}


def records(model: HuggingFaceModel, library: Path, members: int, count: int) -> dict[str, Any]:
    """Windows inside records by number of copies; prefixes from books and from records with at most one copy."""
    people = json.loads((library / "people.json").read_text(encoding="utf-8"))
    by_copies: dict[int, list[str]] = {}
    for person in people:
        by_copies.setdefault(person["repetitions"], []).append(person["text"])
    others = [text for copies in (0, 1) for text in by_copies[copies][count:]]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "records.txt").write_text("\n\n".join(others), encoding="utf-8")
        lines = []
        for copies, texts in sorted(by_copies.items()):
            for encoding in model.encode_batch(texts[:count]):
                prefix, suffix = encoding.ids[:PREFIX_TOKENS], encoding.ids[PREFIX_TOKENS : 2 * PREFIX_TOKENS]
                pair = {"prefix": model.decode(prefix), "suffix": model.decode(suffix), "kind": str(copies)}
                lines.append(json.dumps(pair))
        (folder / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
        scan = RunConfig(
            model=str(library / "library_24m"),
            pairs=(str(folder / "pairs.jsonl"),),
            out=str(folder / "scan"),
            edit_budget=2,
            device="cpu",
        )
        scan_to_folder(scan, progress=SilentProgress(), model=model)
        prefixes = read_run(folder / "scan").results["prefix_ids"].list.len().max()
        prior = PriorConfig(
            model=str(library / "library_24m"),
            run=str(folder / "scan"),
            every_window=True,
            prior_text=(str(library / "texts" / "control"), str(folder / "records.txt")),
            out=str(folder / "prior"),
            prefix_tokens=int(prefixes),  # type: ignore[arg-type]
            prior_prefixes=20,
            trials=1,
            stride_chars=1,
            pool=members,
            least_ratio=100.0,
            device="cpu",
        )
        prior_to_folder(prior, progress=SilentProgress(), model=model)
        run = read_run(folder / "prior")
        rows = run.results
    groups = rows.group_by(pl.col("kind").cast(pl.Int64).alias("copies")).agg(
        pl.len().alias("records"),
        pl.col("ball_mass_lower").median().alias("median_mass_lower"),
        (pl.col("scan_p_verbatim") >= 0.001).sum().alias("extractable_verbatim"),
        (pl.col("ball_mass_lower") >= 0.001).sum().alias("extractable_nearly"),
        pl.col("pool_hits").sum().alias("hits"),
        pl.col("log_ball_ratio_at_least").median().exp().alias("median_ratio_at_least"),
        (pl.col("ball_verdict") == "memorized").sum().alias("memorized"),
        (pl.col("ball_point_verdict") == "memorized").sum().alias("published_memorized"),
        (pl.col("prior_verdict") == "memorized").sum().alias("memorized_by_exact_suffix"),
    )
    pool = run.manifest["totals"]["balls"] if run.manifest else {}
    return {
        "edits": 2,
        "members": members,
        "independent_members": pool["independent_members"],
        "least_ratio": 100.0,
        "by_copies": groups.sort("copies").to_dicts(),
    }


if __name__ == "__main__":
    main()
