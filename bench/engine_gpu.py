"""The engine at 7B shape on one GPU, against the matmul rate, teacher forcing, generate and paper-style search.

    PYTHONPATH=src:bench python bench/engine_gpu.py --baseline PATH/paper_style.py --out FOLDER

Random weights, bf16, scripted logits (bench/scripted.py), so that every search has the same known shape.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import environment
import scripted
from byrote.models.hf.graphs import compile_layers
from byrote.models.hf.model import HuggingFaceModel
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.search.base import Limits, SearchOptions, SearchTask
from byrote.search.engine import Engine
from byrote.search.sizing import bytes_per_slot
from byrote.types import Split, Window

LIMITS = Limits(scripted.PREFIX, scripted.LENGTH)
CONFIG = RunConfig(
    prefix_tokens=LIMITS.prefix_tokens,
    suffix_tokens=LIMITS.suffix_tokens,
    measures=("near",),
    pin=False,
    negligible=0.0,
    stop_rule="published",
    screen_min_windows=0,
    keep=0,
    batch_windows=160,
)
OPTIONS = CONFIG.search_options()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def matmul_rate() -> float:
    left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        left @ right
    seconds, _ = timed(lambda: [left @ right for _ in range(20)])
    return 20 * 2 * 8192**3 / seconds


def build(layers: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=32,
        vocab_size=32000,
        max_position_embeddings=4096,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    return model


def tasks(pairs: list[Any]) -> list[SearchTask]:
    return [SearchTask(key, prefix, suffix) for key, (prefix, suffix) in enumerate(pairs)]


def run_engine(model: HuggingFaceModel, pairs: list[Any], slots: int, chosen: SearchOptions) -> dict[str, Any]:
    engine = Engine(model, chosen, slots=slots, limits=LIMITS)
    torch.cuda.reset_peak_memory_stats()
    seconds, outcomes = timed(lambda: list(engine.run(tasks(pairs))))
    evals = sum(sum(LIMITS) - 1 + outcome.token_evals for outcome in outcomes)
    return {
        "slots": slots,
        "windows": len(pairs),
        "seconds": seconds,
        "windows_per_second": len(pairs) / seconds,
        "token_evals": evals,
        "mean_stop_step": sum(outcome.stop_step for outcome in outcomes) / len(outcomes),
        "forwards": engine.counters.forwards,
        "peak_entries": engine.counters.peak_entries,
        "session_entries": engine.counters.session_entries,
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def run_screened(model: HuggingFaceModel, pairs: list[Any], slots: int) -> dict[str, Any]:
    found = [
        Window(str(key), "scripted", Split.TARGET, 0, 0, 0, prefix, suffix)
        for key, (prefix, suffix) in enumerate(pairs)
    ]
    pipeline = Pipeline(model, replace(CONFIG, slots=slots), decode=str)
    seconds, measured = timed(lambda: list(pipeline.run(found)))
    return {
        "windows": len(pairs),
        "windows_per_second": len(pairs) / seconds,
        "searched": sum(item.row["stop_reason"] != "screened" for item in measured),
    }


def run_paper(search: Any, model: Any, pairs: list[Any], batch: int) -> dict[str, Any]:
    ids = torch.tensor([[*prefix, *suffix] for prefix, suffix in pairs], device="cuda")

    def work() -> list[Any]:
        return [search(model, part, scripted.PREFIX, threshold=1e-3) for part in ids.split(batch)]

    torch.cuda.empty_cache()
    try:
        seconds, parts = timed(work)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return {"batch": batch, "windows_per_second": 0.0, "out_of_memory": True}
    stops = torch.cat([part[3] for part in parts]).float()
    return {
        "batch": batch,
        "windows_per_second": len(pairs) / seconds,
        "mean_stop_step": float(stops.mean()),
        "token_evals": int(sum(part[2].sum() for part in parts)),
    }


def run_generate(model: Any, batch: int) -> float:
    ids = torch.randint(100, 2000, (batch, scripted.PREFIX), device="cuda")
    arguments = dict(max_new_tokens=scripted.LENGTH, min_new_tokens=scripted.LENGTH, num_beams=20, do_sample=False)
    model.generate(ids, attention_mask=torch.ones_like(ids), **arguments)
    seconds, _ = timed(lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **arguments))
    return batch / seconds


def bookkeeping_share(model: HuggingFaceModel, pairs: list[Any], slots: int) -> float:
    """1 − (time in the model's forward) / (time of the whole run), by device events around each forward."""
    from byrote.models.hf.tree import TreeSessionHF

    events: list[tuple[Any, Any]] = []
    original = TreeSessionHF.forward

    def marked(self: Any, batch: Any) -> Any:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        result = original(self, batch)
        end.record()
        events.append((start, end))
        return result

    TreeSessionHF.forward = marked  # type: ignore[method-assign]
    try:
        engine = Engine(model, OPTIONS, slots=slots, limits=LIMITS)
        seconds, _ = timed(lambda: list(engine.run(tasks(pairs))))
    finally:
        TreeSessionHF.forward = original  # type: ignore[method-assign]
    inside = sum(start.elapsed_time(end) for start, end in events) / 1000
    return 1 - inside / seconds


def profile(model: HuggingFaceModel, slots: int) -> str:
    engine = Engine(model, OPTIONS, slots=slots, limits=LIMITS)
    work = tasks(scripted.windows(slots, 1.0))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        list(engine.run(work))
    return profiler.key_averages().table(sort_by="cuda_time_total", row_limit=30, max_name_column_width=80)


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """Windows per second of the engine over those of the paper-style search at its best batch size."""

    def best(rows: list[dict[str, Any]]) -> float:
        return max(row["windows_per_second"] for row in rows)

    paper_mixed = best(results["paper_mixed"])
    return {
        "full_depth": best(results["engine_full_depth"]) / best(results["paper_full_depth"]),
        "mixed": results["engine_mixed"]["windows_per_second"] / paper_mixed,
        "mixed_mass_rule": results["engine_mixed_mass_rule"]["windows_per_second"] / paper_mixed,
        "mixed_screened": results["engine_mixed_screened"]["windows_per_second"] / paper_mixed,
        "share_of_matmul": max(row["share_of_matmul"] for row in results["engine_full_depth"]),
    }


def run_published(chosen: argparse.Namespace) -> dict[str, Any]:
    """The published way in a process of its own: plain layers, as its users run them, and all of the memory."""
    command = [sys.executable, __file__, "--baseline", str(chosen.baseline), "--layers", str(chosen.layers)]
    done = subprocess.run([*command, "--published"], stdout=subprocess.PIPE, text=True, check=True)
    rows: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return rows


def published(search: Any, layers: int) -> dict[str, Any]:
    inner = build(layers)
    plain = scripted.Scripted(inner)
    run_paper(search, plain, scripted.windows(10, 1.0), 10)  # warm-up
    return {
        "paper_full_depth": [run_paper(search, plain, scripted.windows(80, 1.0), batch) for batch in (10, 40, 80)],
        "paper_mixed": [run_paper(search, plain, scripted.windows(240, 0.05), batch) for batch in (10, 40, 80)],
        "generate_20_beams": {"batch": 10, "windows_per_second": run_generate(inner, 10)},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--baseline", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--slots", type=int, nargs="+", default=[102, 128, 154])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--published", action="store_true", help="only the published way, as JSON on the last line")
    chosen = parser.parse_args()
    spec = importlib.util.spec_from_file_location("paper_style", chosen.baseline)
    assert spec is not None
    assert spec.loader is not None
    paper_style = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(paper_style)

    if chosen.published:
        print(json.dumps(published(paper_style.search, chosen.layers)))
        return
    # First, and ended before this process touches the device: the two sides must not share its memory.
    rows = {} if chosen.quick else run_published(chosen)
    print(json.dumps(rows), flush=True)
    peak = matmul_rate()
    inner = build(chosen.layers)
    if chosen.compile:
        compile_layers(inner)
    model = HuggingFaceModel(scripted.Scripted(inner), None, name="7B shape")
    per_token = 2 * (sum(p.numel() for p in inner.parameters()) - inner.get_input_embeddings().weight.numel())
    results: dict[str, Any] = {
        "matmul_tflops": peak / 1e12,
        "layers": chosen.layers,
        "compiled": chosen.compile,
        "tree": model.searches_trees,
    } | rows

    ids = torch.randint(100, 2000, (200, 100), device="cuda")
    with torch.inference_mode():
        inner(input_ids=ids, use_cache=False, logits_to_keep=1)
        seconds, _ = timed(lambda: inner(input_ids=ids, use_cache=False, logits_to_keep=50))
    results["teacher_forcing"] = {
        "windows_per_second": 200 / seconds,
        "tflops": 200 * 100 * per_token / seconds / 1e12,
    }
    warm_up, _ = timed(lambda: run_engine(model, scripted.windows(48, 0.5), 16, OPTIONS))
    results["warm_up_seconds"] = warm_up
    full = []
    for slots in chosen.slots:
        torch.cuda.empty_cache()
        # One generation untimed: attention kernels are planned per shape, once per process.
        run_engine(model, scripted.windows(slots, 1.0), slots, OPTIONS)
        row = run_engine(model, scripted.windows(slots * (1 if chosen.quick else 4), 1.0), slots, OPTIONS)
        row["tflops"] = row["token_evals"] * per_token / row["seconds"] / 1e12
        row["share_of_matmul"] = row["tflops"] * 1e12 / peak
        row["predicted_bytes_per_slot"] = bytes_per_slot(model, OPTIONS, LIMITS, entries=row["session_entries"])
        full.append(row)
        print(json.dumps(row), flush=True)
    results["engine_full_depth"] = full
    slots = max(full, key=lambda row: row["windows_per_second"])["slots"]
    torch.cuda.empty_cache()
    results["bookkeeping_share"] = bookkeeping_share(model, scripted.windows(slots, 1.0), slots)
    environment.save("engine_gpu", results, chosen.out)
    mixed = scripted.windows(2000 if not chosen.quick else 800, 0.05)
    run_engine(model, mixed[:300], slots, OPTIONS)
    results["engine_mixed"] = run_engine(model, mixed, slots, OPTIONS)
    print(json.dumps(results["engine_mixed"]), flush=True)
    results["engine_mixed_mass_rule"] = run_engine(model, mixed, slots, replace(OPTIONS, stop_rule="mass"))
    results["engine_mixed_screened"] = run_screened(model, mixed, slots)
    environment.save("engine_gpu", results, chosen.out)
    (chosen.out / "engine_gpu_profile.txt").write_text(profile(model, slots), encoding="utf-8")
    print(json.dumps(results))
    if not chosen.quick:
        results["ratios"] = ratios(results)
    path = environment.save("engine_gpu", results, chosen.out)
    print(path.read_text())


if __name__ == "__main__":
    with torch.inference_mode():
        main()
