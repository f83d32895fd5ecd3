"""Our numbers against the library's reference.json, and the exact rule with the pin against the published rule.

    python bench/library_agreement.py --library PATH [--models library_5m library_24m] [--reference-windows 10]

For every text and window: p_verbatim to 1e-4 relative (1e-12 absolute), greedy_lev exactly, engine lb and bank to
1e-4 relative, evals equal; the slow reference search on some windows per text; then the exact rule with the pin.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import environment
from byrote.corpus.read import read_documents
from byrote.corpus.select import select_windows
from byrote.corpus.windows import WindowOptions
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.stages.decode import DecodeStage
from byrote.scan.stages.score import ScoreStage
from byrote.search.base import SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from byrote.types import Split, Window

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.search.reference import search

LIMITS = RunConfig().limits
ROUNDING = 1e-5
"""Relative difference that float32 forwards of different batch shapes make."""
CONFIG = RunConfig(viability="published", pin=False, negligible=0.0, stop_rule="off", keep=0, greedy="full")
PUBLISHED = CONFIG.search_options()
EXACT = RunConfig(stop_rule="off", keep=0).search_options()


def far(ours: float, theirs: float, relative: float = 1e-4, absolute: float = 1e-12) -> bool:
    return abs(ours - theirs) > max(relative * abs(theirs), absolute)


def run_engine(model: HuggingFaceModel, windows: list[Window], options: SearchOptions) -> list[SearchOutcome]:
    tasks = [SearchTask(key, window.prefix_ids, window.suffix_ids) for key, window in enumerate(windows)]
    outcomes = {outcome.key: outcome for outcome in Engine(model, options, slots=16, limits=LIMITS).run(tasks)}
    return [outcomes[key] for key in range(len(windows))]


def first_pass(model: HuggingFaceModel, windows: list[Window]) -> list[Measured]:
    """Verbatim scores and whole greedy answers, as a scan gets them."""
    score = ScoreStage(model, CONFIG)
    greedy = DecodeStage(model, CONFIG, score.spare_slots)
    passed: list[Measured] = []
    for chunk, _ in score.chunks(windows):
        scored = score.score(chunk)
        greedy.decode(scored)
        passed += scored
    greedy.finish()
    return passed


def published_evals(outcome: SearchOutcome) -> int:
    """Query positions as papers count them: the prefix, and every beam of every step."""
    return LIMITS.prefix_tokens + outcome.beams


def disagreements(outcomes: list[SearchOutcome], expected: dict[str, Any]) -> dict[str, int]:
    """Windows whose lb, bank or evals differ from the reference."""
    pairs = list(enumerate(outcomes))
    return {
        "lb": sum(any(far(a, b) for a, b in zip(o.bounds.lower, expected["lb"][i], strict=True)) for i, o in pairs),
        "bank": sum(far(sum(o.bank), expected["bank"][i]) for i, o in pairs),
        "evals": sum(published_evals(o) != expected["evals"][i] for i, o in pairs),
    }


def compare_text(
    model: HuggingFaceModel, path: Path, expected: dict[str, Any], reference_windows: int
) -> dict[str, Any]:
    documents = read_documents([path], split=Split.TARGET)
    options = WindowOptions(prefix_tokens=50, suffix_tokens=50, stride_chars=2400)
    windows = select_windows(documents, model, options, bos_id=None).windows
    assert [window.char_start for window in windows] == expected["char_start"], "the windows differ"
    passed = first_pass(model, windows)
    greedy = [item.greedy.levenshtein for item in passed if item.greedy is not None]
    published = run_engine(model, windows, PUBLISHED)
    improved = run_engine(model, windows, EXACT)
    slow = [
        search(model, SearchTask(key, window.prefix_ids, window.suffix_ids), PUBLISHED)
        for key, window in enumerate(windows[:reference_windows])
    ]
    verbatim = [item.score.p for item in passed]
    return {
        "windows": len(windows),
        "verbatim_differs": sum(far(a, b) for a, b in zip(verbatim, expected["p_verbatim"], strict=True)),
        "greedy_differs": sum(a != b for a, b in zip(greedy, expected["greedy_lev"], strict=True)),
        "engine_differs": disagreements(published, expected),
        "reference_windows": len(slow),
        "reference_differs": disagreements(slow, expected),
        "exact": compare_rules(published, improved, verbatim),
    }


def compare_rules(
    published: list[SearchOutcome], improved: list[SearchOutcome], verbatim: list[float]
) -> dict[str, Any]:
    """Exact rule and pin against the published rule; `verbatim` is the teacher-forced probability.

    Cached and teacher-forced numbers differ by rounding, so the search's own verbatim path (its mass at 0 edits) must
    be the teacher-forced one to 1e-4, and the lower bound must not fall below it by more than that rounding.
    """
    pairs = list(zip(published, improved, strict=True))
    return {
        "verbatim_path_differs": sum(far(new.bounds.lower[0], p) for new, p in zip(improved, verbatim, strict=True)),
        "lb_below_verbatim": sum(
            new.bounds.lower[-1] < p * (1 - 1e-4) - 1e-12 for new, p in zip(improved, verbatim, strict=True)
        ),
        "published_lb_below_verbatim": sum(
            old.bounds.lower[-1] < p * (1 - 1e-4) - 1e-12 for old, p in zip(published, verbatim, strict=True)
        ),
        "lb_lower_than_published": sum(
            new.bounds.lower[-1] < old.bounds.lower[-1] * (1 - ROUNDING) for old, new in pairs
        ),
        "mean_ub_published": sum(old.bounds.upper[-1] for old in published) / len(pairs),
        "mean_ub_exact": sum(new.bounds.upper[-1] for new in improved) / len(pairs),
        "evals_published": sum(map(published_evals, published)),
        "evals_exact": sum(map(published_evals, improved)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["library_5m", "library_24m"])
    parser.add_argument("--reference-windows", type=int, default=10)
    chosen = parser.parse_args()
    expected = json.loads((chosen.library / "reference.json").read_text())
    started = environment.environment()
    results: dict[str, Any] = {}
    for name in chosen.models:
        model = load(str(chosen.library / name), dtype="float32", device="cpu")
        for path in sorted((chosen.library / "texts").glob("*/*.txt")):
            begin = time.monotonic()
            count = chosen.reference_windows if name == "library_5m" else 0
            row = compare_text(model, path, expected[name][path.stem], count)
            results[f"{name}/{path.stem}"] = row
            print(f"{name}/{path.stem} {time.monotonic() - begin:.0f}s {json.dumps(row)}", flush=True)
    summary = summarise(results)
    print(json.dumps(summary, indent=2))
    environment.save("library_agreement", {"started": started, "summary": summary, "texts": results})


def summarise(results: dict[str, Any]) -> dict[str, Any]:
    rows = list(results.values())
    windows = sum(row["windows"] for row in rows)
    rules = [row["exact"] for row in rows]
    return {
        "windows": windows,
        "verbatim_differs": sum(row["verbatim_differs"] for row in rows),
        "greedy_differs": sum(row["greedy_differs"] for row in rows),
        "engine_differs": {k: sum(row["engine_differs"][k] for row in rows) for k in ("lb", "bank", "evals")},
        "reference_windows": sum(row["reference_windows"] for row in rows),
        "reference_differs": {k: sum(row["reference_differs"][k] for row in rows) for k in ("lb", "bank", "evals")},
        "exact_lb_not_lower_share": 1 - sum(rule["lb_lower_than_published"] for rule in rules) / windows,
        "exact_lb_below_verbatim": sum(rule["lb_below_verbatim"] for rule in rules),
        "exact_verbatim_path_differs": sum(rule["verbatim_path_differs"] for rule in rules),
        "published_lb_below_verbatim": sum(rule["published_lb_below_verbatim"] for rule in rules),
        "mean_ub_published": sum(r["exact"]["mean_ub_published"] * r["windows"] for r in rows) / windows,
        "mean_ub_exact": sum(r["exact"]["mean_ub_exact"] * r["windows"] for r in rows) / windows,
        "evals_published": sum(rule["evals_published"] for rule in rules),
        "evals_exact": sum(rule["evals_exact"] for rule in rules),
    }


if __name__ == "__main__":
    main()
