"""The engine on a CPU against the paper-style search and the library's `generate`, each at its best batch, in one run.

    python bench/engine_cpu.py --library PATH --baseline PATH/paper_style.py [--model library_24m]

Three sets of windows: text that is not memorized, memorized text, and a 95 % / 5 % mix. The engine and the paper-style
search stop early at τ. `generate` with as many beams cannot: a window costs it the same whatever its text, so it gets
only some of the windows. Both of the others run at every batch size once; then all take turns, each at its best,
because a shared machine is faster in some minutes than in others. A ratio is the median over the rounds.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import environment
from byrote.corpus.read import read_documents
from byrote.corpus.select import select_windows
from byrote.corpus.windows import WindowOptions
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.hf.tree import TreeSessionHF
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.search.base import SearchTask
from byrote.search.engine import Engine
from byrote.search.sizing import choose_slots
from byrote.types import Split, Window

CONFIG = RunConfig(keep=0, measures=("near",), screen_min_windows=0)
LIMITS = CONFIG.limits


def read(model: HuggingFaceModel, path: Path, stride: int) -> list[Window]:
    options = WindowOptions(prefix_tokens=50, suffix_tokens=50, stride_chars=stride)
    return select_windows(read_documents([path], split=Split.TARGET), model, options, bos_id=None).windows


def window_sets(model: HuggingFaceModel, library: Path, size: int) -> dict[str, list[Window]]:
    texts = library / "texts"
    fresh = [
        window
        for name in (
            "control/wizard_of_oz",
            "control/heart_of_darkness",
            "target/frankenstein",
            "control/call_of_the_wild",
        )
        for window in read(model, texts / f"{name}.txt", 1000)[: size // 2]
    ]
    known = [
        window
        for name in ("target/alice", "target/peter_pan")
        for window in read(model, texts / f"{name}.txt", 2400)[: max(1, size // 5)]
    ]
    return {
        "not_memorized": fresh[:: max(1, len(fresh) // size)][:size],
        "memorized": known,
        "mix_95_5": mixed(fresh, known),
    }


def mixed(fresh: list[Window], known: list[Window]) -> list[Window]:
    """Ordinary windows with a memorized one in every twenty, spread evenly."""
    rare = len(fresh) // 20
    mix = fresh[: len(fresh) - rare]
    for place in range(rare):
        mix.insert(place * 20, known[place * len(known) // rare])
    return mix


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def run_paper(search: Any, model: HuggingFaceModel, windows: list[Window], batch: int) -> float:
    ids = torch.tensor([window.ids for window in windows])
    seconds, _ = timed(lambda: [search(model.model, part, 50, eos_id=0) for part in ids.split(batch)])
    return len(windows) / seconds


def run_generate(model: HuggingFaceModel, windows: list[Window], batch: int) -> float:
    """Beam search of the library: as many beams and new tokens, every window to its full length."""
    prefixes = torch.tensor([window.prefix_ids for window in windows])
    arguments = dict(
        num_beams=CONFIG.beam_width,
        do_sample=False,
        early_stopping=False,
        use_cache=True,
        min_new_tokens=CONFIG.suffix_tokens,
        max_new_tokens=CONFIG.suffix_tokens,
    )

    def work() -> list[Any]:
        parts = prefixes.split(batch)
        return [model.model.generate(part, attention_mask=torch.ones_like(part), **arguments) for part in parts]

    seconds, found = timed(work)
    assert all(part.shape[1] == sum(LIMITS) for part in found), "a beam ended early"
    return len(windows) / seconds


def run_engine(model: HuggingFaceModel, windows: list[Window], stop_rule: Any) -> dict[str, Any]:
    options = RunConfig(keep=0, stop_rule=stop_rule).search_options()
    engine = Engine(model, options, slots=choose_slots(model, options, LIMITS), limits=LIMITS)
    inside = 0.0
    original = TreeSessionHF.forward

    def watched(self: Any, batch: Any) -> Any:
        nonlocal inside
        seconds, result = timed(lambda: original(self, batch))
        inside += seconds
        return result

    TreeSessionHF.forward = watched  # type: ignore[method-assign]
    try:
        tasks = [SearchTask(key, window.prefix_ids, window.suffix_ids) for key, window in enumerate(windows)]
        seconds, outcomes = timed(lambda: list(engine.run(tasks)))
    finally:
        TreeSessionHF.forward = original  # type: ignore[method-assign]
    return {
        "windows_per_second": len(windows) / seconds,
        "token_evals": sum(sum(LIMITS) - 1 + outcome.token_evals for outcome in outcomes),
        "bookkeeping_share": 1 - inside / seconds,
        "peak_entries": engine.counters.peak_entries,
        "slots": engine.slots,
    }


def run_screened(model: HuggingFaceModel, windows: list[Window]) -> dict[str, Any]:
    """As a scan does it: score everything, search what is rated above the floor and a share of the rest."""
    pipeline = Pipeline(model, CONFIG, decode=model.decode)
    seconds, measured = timed(lambda: list(pipeline.run(windows)))
    return {
        "windows_per_second": len(windows) / seconds,
        "searched": sum(item.row["stop_reason"] != "screened" for item in measured),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--baseline", type=Path, required=True)
    parser.add_argument("--model", default="library_24m")
    parser.add_argument("--size", type=int, default=80, help="windows of ordinary text")
    parser.add_argument("--batches", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--generate-windows", type=int, default=16, help="windows of each set, at most, for generate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    spec = importlib.util.spec_from_file_location("paper_style", chosen.baseline)
    assert spec is not None
    assert spec.loader is not None
    paper_style = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(paper_style)
    model = load(str(chosen.library / chosen.model), dtype="float32", device="cpu")
    results: dict[str, Any] = {"model": chosen.model, "rounds": chosen.rounds}
    with torch.inference_mode():
        for name, windows in window_sets(model, chosen.library, chosen.size).items():
            results[name] = compare(paper_style.search, model, windows, chosen)
            print(name, results[name], flush=True)
            environment.save("engine_cpu", results, chosen.out)


def compare(search: Any, model: HuggingFaceModel, windows: list[Window], chosen: argparse.Namespace) -> dict[str, Any]:
    """All sides on one set of windows: batch sizes first, then rounds in which they take turns."""
    run_engine(model, windows[:8], "mass")  # warm-up
    some = windows[:: -(-len(windows) // chosen.generate_windows)]
    paper = {batch: run_paper(search, model, windows, batch) for batch in chosen.batches}
    generate = {batch: run_generate(model, some, batch) for batch in chosen.batches}
    best = Best(max(paper, key=paper.__getitem__), max(generate, key=generate.__getitem__))
    rounds = [run_round(search, model, windows, some, best) for _ in range(chosen.rounds)]
    return {
        "windows": len(windows),
        "engine": run_engine(model, windows, "mass"),
        "paper_style_windows_per_second": paper,
        "paper_style_best_batch": best.paper_style,
        "generate_20_beams_windows": len(some),
        "generate_20_beams_windows_per_second": generate,
        "generate_20_beams_best_batch": best.generate,
        "windows_per_second": rounds,
        "ratio": median_ratio(rounds, "engine"),
        "ratio_published_stop_rule": median_ratio(rounds, "engine_published_stop_rule"),
        "ratio_screened": median_ratio(rounds, "engine_screened"),
        "ratio_to_generate": median_ratio(rounds, "engine", to="generate_20_beams"),
    }


class Best(NamedTuple):
    """Batch sizes at which the others were fastest."""

    paper_style: int
    generate: int


def run_round(
    search: Any, model: HuggingFaceModel, windows: list[Window], some: list[Window], best: Best
) -> dict[str, float]:
    """Windows per second of all sides, one after the other."""
    return {
        "engine": run_engine(model, windows, "mass")["windows_per_second"],
        "paper_style": run_paper(search, model, windows, best.paper_style),
        "generate_20_beams": run_generate(model, some, best.generate),
        "engine_screened": run_screened(model, windows)["windows_per_second"],
        "engine_published_stop_rule": run_engine(model, windows, "published")["windows_per_second"],
    }


def median_ratio(rounds: list[dict[str, float]], name: str, *, to: str = "paper_style") -> float:
    return statistics.median(row[name] / row[to] for row in rounds)


if __name__ == "__main__":
    main()
