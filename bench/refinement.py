"""Refinement against a wider beam at the same token evaluations: lower bound, upper bound, verdicts decided.

    python bench/refinement.py --library FOLDER [--model library_5m] [--factors 2,5,20] [--every 5]

The default search is run to its end (no threshold stop); a beam of 2, 5, 20 times its width sets the number of token
evaluations; refinement continues the default search, whose states it takes over, until it has spent as many in all.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from byrote.explore.base import ExploreTask
from byrote.explore.explorer import Explorer
from byrote.explore.refinement import TURNS, OrderName, Refined, RefineOptions, refine
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.scoring import VerbatimScore
from byrote.scan.options import RunConfig
from byrote.search.base import SearchOptions, SearchOutcome
from byrote.verdict import Bounds, Verdict
from environment import save
from residual_efficiency import Searched, library_windows, search_all

QUERIES_AT_ONCE = 160
THRESHOLDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9)


def refined(
    model: HuggingFaceModel, config: RunConfig, windows: list[Searched], wide: list[SearchOutcome], order: OrderName
) -> dict[int, Refined]:
    def task(key: int) -> ExploreTask[Refined]:
        searched = windows[key]
        options = RefineOptions(
            token_evals=wide[key].token_evals - searched.outcome.token_evals, threshold=None, order=order
        )
        pool = searched.pool(model.eos_ids, config.edits)
        exploration = refine(pool, options, target_probs=searched.score.target_probs, is_in_memory=True)
        return ExploreTask(key, searched.score.window.prefix_ids, exploration, searched.outcome.states)

    most = config.prefix_tokens + max(outcome.beams for outcome in wide)
    explorer = Explorer(model, config.policy, slots=4, limits=config.limits, entries=2 * most)
    return dict(explorer.run(task(key) for key in range(len(windows))))


def compare(
    windows: list[Searched], wide: list[SearchOutcome], results: dict[int, Refined], threshold: float
) -> list[dict[str, Any]]:
    rows = []
    for key, searched in enumerate(windows):
        bounds = {
            "default": searched.outcome.bounds,
            "wide": wide[key].bounds,
            "refined": results[key].bounds,
        }
        rows.append(
            {"document": searched.score.window.document, "char_start": searched.score.window.char_start}
            | {f"lower_{name}": value.lower[-1] for name, value in bounds.items()}
            | {f"upper_{name}": value.upper[-1] for name, value in bounds.items()}
            | {f"verdict_{name}": str(value.verdict(threshold)) for name, value in bounds.items()}
            | {"evals": wide[key].token_evals, "evals_refined": searched.outcome.token_evals + results[key].token_evals}
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    open_rows = [row for row in rows if row["verdict_default"] == Verdict.NOT_SHOWN]
    return {
        "windows": len(rows),
        "lower_no_worse": float(np.mean([row["lower_refined"] >= row["lower_wide"] * (1 - 1e-9) for row in rows])),
        "upper_no_worse": float(np.mean([row["upper_refined"] <= row["upper_wide"] * (1 + 1e-9) for row in rows])),
        "largest_shortfall_of_lower": max(row["lower_wide"] - row["lower_refined"] for row in rows),
        "largest_excess_of_upper": max(row["upper_refined"] - row["upper_wide"] for row in rows),
        "median_lower_gain_wide": _gain(rows, "lower_wide"),
        "median_lower_gain_refined": _gain(rows, "lower_refined"),
        "mean_upper_default": float(np.mean([row["upper_default"] for row in rows])),
        "mean_upper_wide": float(np.mean([row["upper_wide"] for row in rows])),
        "mean_upper_refined": float(np.mean([row["upper_refined"] for row in rows])),
        "decided_at": {str(threshold): decided_at(rows, threshold) for threshold in THRESHOLDS},
        "undecided_by_default": len(open_rows),
        "decided_by_wide": sum(row["verdict_wide"] != Verdict.NOT_SHOWN for row in open_rows),
        "decided_by_refinement": sum(row["verdict_refined"] != Verdict.NOT_SHOWN for row in open_rows),
        "rows": rows,
    }


def again(
    model: HuggingFaceModel,
    config: RunConfig,
    options: SearchOptions,
    scores: list[VerbatimScore],
    before: dict[str, Any],
    between: tuple[float, float],
) -> None:
    """Refine some windows of an earlier result again; the wider beam's numbers and the other windows stay."""

    def place(row: dict[str, Any]) -> tuple[str, int]:
        return row["document"], row["char_start"]

    names = [name for name in before if name.endswith(" both")]
    chosen = {place(row) for row in before[names[0]]["rows"] if between[0] <= _share(row) < between[1]}
    scores = [score for score in scores if (score.window.document, score.window.char_start) in chosen]
    windows = [
        Searched(*pair) for pair in zip(scores, search_all(model, config, options, scores, slots=8), strict=True)
    ]
    for name in names:
        rows = {place(row): row for row in before[name]["rows"]}
        own = [rows[searched.score.window.document, searched.score.window.char_start] for searched in windows]
        wide = [
            replace(
                searched.outcome, bounds=Bounds((row["lower_wide"],), (row["upper_wide"],)), token_evals=row["evals"]
            )
            for searched, row in zip(windows, own, strict=True)
        ]
        for row in compare(windows, wide, refined(model, config, windows, wide, "both"), config.threshold):
            rows[place(row)] = row
        before[name] = summary(list(rows.values()))
        print(name, {key: value for key, value in before[name].items() if key != "rows"}, flush=True)
    kept = before.pop("environment")
    save(f"refinement_{config.model.rsplit('/', 1)[-1]}", before | {"wider_beams_and_other_windows": kept})


def _share(row: dict[str, Any]) -> float:
    return float(row["lower_default"] / row["upper_default"])


def decided_at(rows: list[dict[str, Any]], threshold: float) -> dict[str, int]:
    """Windows that the default search leaves undecided at another threshold, and how many either way decides."""

    def is_open(row: dict[str, Any], name: str) -> bool:
        return bool(row[f"lower_{name}"] < threshold <= row[f"upper_{name}"])

    left = [row for row in rows if is_open(row, "default")]
    return {"open": len(left)} | {name: sum(not is_open(row, name) for row in left) for name in ("wide", "refined")}


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One result of several; where and with what they were measured must be the same."""
    first = parts[0]
    commits = {part["environment"]["commit"].removesuffix("-dirty") for part in parts}
    assert len(commits) == 1, "results of different commits"
    result = {name: value for name, value in first.items() if not name.endswith(tuple(TURNS))}
    for name in first.keys() - result.keys():
        result[name] = summary([row for part in parts for row in part[name]["rows"]])
    return result


def _gain(rows: list[dict[str, Any]], name: str) -> float:
    return float(np.median([row[name] / row["lower_default"] - 1 for row in rows if row["lower_default"] > 0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--model", default="library_5m")
    parser.add_argument("--stride", type=int, default=4800)
    parser.add_argument("--every", type=int, default=5, help="use every n-th window")
    parser.add_argument("--first", type=int, default=0, help="start at this window")
    parser.add_argument("--factors", default="2,5,20")
    parser.add_argument("--orders", default="both,mass,tail,width")
    parser.add_argument("--join", type=Path, nargs="+", help="only join results of the same code on different windows")
    parser.add_argument("--again", type=Path, help="take the wider beam's numbers from this result; refine again only")
    parser.add_argument("--between", type=float, nargs=2, help="with --again: windows with lower / upper in this range")
    parser.add_argument("--out", type=Path, help="folder for the result (default bench/results)")
    arguments = parser.parse_args()
    if arguments.join:
        save(f"refinement_{arguments.model}", joined([json.loads(path.read_text()) for path in arguments.join]))
        return
    torch.set_num_threads(1)
    model, config, scores = library_windows(arguments.library, arguments.model, arguments.stride)
    scores = scores[arguments.first :: arguments.every]
    options = replace(config.search_options(), threshold=None, keep=0)
    if arguments.again:
        again(model, config, options, scores, json.loads(arguments.again.read_text()), arguments.between)
        return
    outcomes = search_all(model, config, options, scores, slots=QUERIES_AT_ONCE // options.beam_width)
    windows = [Searched(score, outcome) for score, outcome in zip(scores, outcomes, strict=True)]
    results: dict[str, Any] = {"model": arguments.model, "threshold": config.threshold}
    for factor in map(int, arguments.factors.split(",")):
        width = factor * options.beam_width
        wider = replace(options, beam_width=width, record_frontier=False, keep_states=False)
        wide = search_all(model, config, wider, scores, slots=max(1, QUERIES_AT_ONCE // width))
        for order in arguments.orders.split(","):
            name = f"{factor}x {order}"
            rows = compare(windows, wide, refined(model, config, windows, wide, order), config.threshold)
            results[name] = found = summary(rows)
            print(factor, order, {name: value for name, value in found.items() if name != "rows"}, flush=True)
            save(f"refinement_{arguments.model}", results, arguments.out)


if __name__ == "__main__":
    main()
