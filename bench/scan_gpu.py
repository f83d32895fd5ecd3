"""A scan on one GPU, through the pipeline of `byrote scan`, beside bare teacher forcing in the same run.

    PYTHONPATH=src:bench python bench/scan_gpu.py [--shape 7b] [--layers N] [--windows N] [--out FOLDER]

Random weights of a Llama shape in bf16, scripted logits (bench/scripted.py), so that every window has a known fate:
text that is not memorized dies after 9 ± 2 steps, memorized text is searched to full depth. Default options.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import environment
import scripted
from byrote.models.hf.graphs import compile_layers
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.scan.stages.screen import with_audit
from byrote.types import Split, Window

SHAPES = {
    "7b": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
    "13b": {"hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40},
    "34b": {
        "hidden_size": 8192,
        "intermediate_size": 22016,
        "num_hidden_layers": 48,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
    },
    "70b": {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
    },
}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def matmul_rate() -> float:
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    timed(lambda: [left @ right for _ in range(3)])
    seconds, _ = timed(lambda: [left @ right for _ in range(20)])
    return 20 * 2 * 8192**3 / seconds


def build(settings: dict[str, int], device: torch.device) -> LlamaForCausalLM:
    config = LlamaConfig(vocab_size=32000, max_position_embeddings=4096, **settings)
    torch.manual_seed(0)
    with device:
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    return model


def teacher_forcing(model: Any, batch: int, rounds: int = 4) -> float:
    """Windows per second of the plain forward with the head at the suffix, in float32 as byrote reads it."""
    ids = torch.randint(100, 2000, (batch, 100), device="cuda")

    def work() -> None:
        for _ in range(rounds):
            model(input_ids=ids, use_cache=False, logits_to_keep=51).logits[:, :-1].float()

    work()
    return rounds * batch / timed(work)[0]


def windows(count: int, living_share: float) -> list[Window]:
    return [
        Window(f"scripted@{key}", "scripted", Split.TARGET, key, 0, 0, prefix, suffix)
        for key, (prefix, suffix) in enumerate(scripted.windows(count, living_share))
    ]


class Stages:
    """Seconds spent in each stage, the device waited for at its end; a run of its own, since waiting costs."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.seconds: dict[str, float] = {}
        for stage, method in (("score", "score"), ("decoding", "decode"), ("screen", "divide")):
            self._watch(getattr(pipeline, stage), method, stage)

    def _watch(self, owner: Any, method: str, name: str) -> None:
        inner = getattr(owner, method)

        def watched(*arguments: Any, **named: Any) -> Any:
            seconds, result = timed(lambda: inner(*arguments, **named))
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            return result

        setattr(owner, method, watched)


def consume(rows: Iterable[Any]) -> tuple[int, int]:
    count = evals = 0
    for measured in rows:
        count, evals = count + 1, evals + measured.row["token_evals"]
    return count, evals


def run(model: Any, config: RunConfig, count: int, living_share: float) -> dict[str, Any]:
    given = windows(count, living_share)
    gc.collect()
    torch.cuda.empty_cache()
    pipeline: Pipeline | None = Pipeline(model, config, decode=str)
    assert pipeline is not None
    torch.cuda.reset_peak_memory_stats()
    seconds, (rows, evals) = timed(lambda: consume(pipeline.run(given)))
    facts = pipeline.facts
    pipeline = None  # its memory is needed
    gc.collect()
    split = Pipeline(model, config, decode=str)
    stages = Stages(split)
    total, _ = timed(lambda: consume(split.run(given[: max(min(count // 4, 2048), split.score.chunk_windows)])))
    return {
        "windows": rows,
        "seconds": seconds,
        "windows_per_second": rows / seconds,
        "token_evals": evals,
        "token_evals_per_second": evals / seconds,
        "facts": facts._asdict(),
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30,
        "stage_seconds_in_a_watched_run": stages.seconds | {"all": total},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=sorted(SHAPES), default="7b")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--windows", type=int, default=8192)
    parser.add_argument("--deep", type=int, default=605, help="windows searched to full depth")
    parser.add_argument("--plain", action="store_true", help="without compiled layers")
    parser.add_argument("--answers", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=["teacher_forcing", "not_memorized", "mix", "memorized"])
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    peak = matmul_rate()
    layers = {} if chosen.layers is None else {"num_hidden_layers": chosen.layers}
    inner = build(SHAPES[chosen.shape] | layers, torch.device("cuda"))
    per_token = 2 * (sum(p.numel() for p in inner.parameters()) - inner.get_input_embeddings().weight.numel())
    results: dict[str, Any] = {"shape": chosen.shape, "layers": inner.config.num_hidden_layers}
    results["matmul_tflops"] = peak / 1e12
    if "teacher_forcing" in chosen.only:
        results["teacher_forcing_plain"] = {batch: teacher_forcing(inner, batch) for batch in (64, 128, 256)}
    if not chosen.plain:
        compile_layers(inner)
        if "teacher_forcing" in chosen.only:
            results["teacher_forcing_compiled"] = {batch: teacher_forcing(inner, batch) for batch in (64, 128, 256)}
    model = scripted.ScriptedModel(inner)
    results["tree"] = model.searches_trees
    print(json.dumps(results), flush=True)
    config = RunConfig(keep=3, answers=chosen.answers)
    for name, count, share in (
        ("not_memorized", chosen.windows, 0.0),
        ("mix", chosen.windows, 0.05),
        ("memorized", chosen.deep, 1.0),
    ):
        if name not in chosen.only:
            continue
        consume(Pipeline(model, config, decode=str).run(windows(600, share)))  # kernels are compiled once per process
        results[name] = run(model, with_audit(config, count), count, share)
        results[name]["share_of_matmul"] = results[name]["token_evals_per_second"] * per_token / peak
        print(json.dumps({name: results[name]}), flush=True)
        torch.cuda.empty_cache()
        environment.save(f"scan_gpu_{chosen.shape}", results, chosen.out)
    if "teacher_forcing" in chosen.only and "not_memorized" in results:
        bare = max(results.get("teacher_forcing_compiled", results["teacher_forcing_plain"]).values())
        results["not_memorized_share_of_teacher_forcing"] = results["not_memorized"]["windows_per_second"] / bare
    print(environment.save(f"scan_gpu_{chosen.shape}", results, chosen.out).read_text())


if __name__ == "__main__":
    with torch.inference_mode():
        main()
