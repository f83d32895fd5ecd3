"""Where the time of a scan goes at several model sizes on one GPU: in the layers, by tokens per forward, and elsewhere.

    PYTHONPATH=src:bench python bench/scaling_gpu.py [--shapes 7b 13b 34b 70b] [--out FOLDER]

Random weights in bf16, scripted logits (bench/scripted.py), default options, the pipeline that `rote scan` runs. The
70B shape has a quarter of its layers, so that it fits one GPU. Takes about five minutes; every shape is saved when it
is done, and shapes already in the file stay. `rote plan --model-size` is to rest on these numbers. `--tiny` runs small
shapes wherever it is started, to try the script.
"""

import argparse
import gc
import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

import environment
import scan_gpu
import scripted
from rote.models.hf_compile import compile_layers
from rote.scan.options import RunConfig
from rote.scan.pipeline import Pipeline

NAME = "scaling_gpu"
MEASURED_LAYERS = {"7b": 32, "13b": 40, "34b": 48, "70b": 20}
RUNS = {"not_memorized": 0.0, "mix": 0.05, "memorized": 1.0}
WINDOWS = {"7b": 1536, "13b": 1024, "34b": 512, "70b": 768}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}


class Clock:
    """Moments on the device, queued like other work; on a CPU, moments of the host."""

    def __init__(self, device: torch.device) -> None:
        self.is_cuda = device.type == "cuda"

    def now(self) -> Any:
        if not self.is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        return start.elapsed_time(end) / 1e3 if self.is_cuda else end - start

    def wait(self) -> float:
        if self.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()


class Watch:
    """Tokens and layer seconds of every forward, by stage of the pipeline. Layers begin behind the embedding and end
    before the last norm, both of which stay outside the compiled parts."""

    def __init__(self, inner: Any, clock: Clock) -> None:
        self.clock, self.stage = clock, "search"
        self.forwards: list[tuple[str, int, Any, Any]] = []
        self.stage_seconds: dict[str, float] = defaultdict(float)
        self._started: tuple[int, Any] | None = None
        body = inner.get_decoder()
        self.handles = [
            body.embed_tokens.register_forward_hook(self._begin),
            body.norm.register_forward_pre_hook(self._end),
        ]

    def _begin(self, module: Any, arguments: Any, output: torch.Tensor) -> None:
        if self.clock.is_cuda and torch.cuda.is_current_stream_capturing():
            self._started = None  # a greedy step that is recorded; when it is replayed, nobody comes by here
            return
        self._started = (output.shape[0] * output.shape[1], self.clock.now())

    def _end(self, module: Any, arguments: Any) -> None:
        if self._started is None:
            return
        tokens, start = self._started
        self.forwards.append((self.stage, tokens, start, self.clock.now()))

    def follow(self, owner: Any, method: str, stage: str) -> None:
        inner = getattr(owner, method)

        def followed(*arguments: Any) -> Any:
            self.stage, start = stage, self.clock.wait()
            result = inner(*arguments)
            self.stage_seconds[stage] += self.clock.wait() - start
            self.stage = "search"
            return result

        setattr(owner, method, followed)

    def stages(self) -> dict[str, dict[str, float]]:
        """By stage: forwards, tokens and seconds in the layers; stages that wait for the device, their seconds too."""
        self.clock.wait()
        found: dict[str, dict[str, float]] = defaultdict(lambda: {"forwards": 0, "tokens": 0, "layer_seconds": 0.0})
        for stage, tokens, start, end in self.forwards:
            own = found[stage]
            own["forwards"] += 1
            own["tokens"] += tokens
            own["layer_seconds"] += self.clock.seconds(start, end)
        for stage, seconds in self.stage_seconds.items():
            found[stage]["seconds"] = seconds
        return found

    def by_tokens(self, layers: int) -> list[dict[str, float]]:
        """Mean seconds of one layer, for forwards of similar size: within a factor of √2."""
        bins: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for _, tokens, start, end in self.forwards:
            bins[round(2 * math.log2(tokens))].append((tokens, self.clock.seconds(start, end) / layers))
        return [
            {
                "forwards": len(rows),
                "tokens": sum(tokens for tokens, _ in rows) / len(rows),
                "seconds_per_layer": sum(seconds for _, seconds in rows) / len(rows),
            }
            for _, rows in sorted(bins.items())
        ]


def measure(model: scripted.ScriptedModel, clock: Clock, count: int, share: float) -> dict[str, Any]:
    """One run of the pipeline over `count` windows, `share` of them memorized."""
    given = scan_gpu.windows(count, share)
    release(clock)
    pipeline = Pipeline(model, RunConfig(keep=3), decode=str)
    watch = Watch(model.model, clock)
    watch.follow(pipeline.score, "score", "score")
    watch.follow(pipeline.greedy, "decode", "greedy")
    try:
        start = clock.wait()
        rows, evals = scan_gpu.consume(pipeline.run(given))
        seconds = clock.wait() - start
    finally:
        for handle in watch.handles:
            handle.remove()
    stages = watch.stages()
    if "search" in stages:
        stages["search"]["seconds"] = seconds - sum(watch.stage_seconds.values())
    return {
        "windows": rows,
        "memorized_share": share,
        "seconds": seconds,
        "windows_per_second": rows / seconds,
        "token_evals": evals,
        "facts": pipeline.facts._asdict(),
        "stages": stages,
        "layer_times": watch.by_tokens(model.model.config.num_hidden_layers),
    }


def release(clock: Clock) -> None:
    gc.collect()
    if clock.is_cuda:
        torch.cuda.empty_cache()


def slots_of(model: scripted.ScriptedModel) -> int:
    """Windows that a search holds at once here: so many memorized ones fill it once, to the last step."""
    from rote.search.sizing import choose_slots

    config = RunConfig()
    return choose_slots(model, config.search_options(), config.limits)


def measure_shape(shape: str, *, is_tiny: bool, is_plain: bool, device: torch.device) -> dict[str, Any]:
    clock, began = Clock(device), time.perf_counter()
    settings = TINY if is_tiny else scan_gpu.SHAPES[shape]
    layers = 2 if is_tiny else MEASURED_LAYERS[shape]
    inner = scan_gpu.build(settings | {"num_hidden_layers": layers}, device)
    if clock.is_cuda and not is_plain:
        compile_layers(inner)
    model = scripted.ScriptedModel(inner)
    searches_trees = model.searches_trees
    ready = time.perf_counter()
    scan_gpu.consume(Pipeline(model, RunConfig(keep=3), decode=str).run(scan_gpu.windows(128, 0.5)))
    release(clock)
    warm = time.perf_counter()
    config = inner.config
    described = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
    if clock.is_cuda:
        torch.cuda.reset_peak_memory_stats()
    runs = {}
    for name, share in RUNS.items():
        count = 32 if is_tiny else slots_of(model) if share == 1.0 else WINDOWS[shape]
        runs[name] = measure(model, clock, count, share)
        print(shape, name, json.dumps(runs[name]), flush=True)
    return {
        "layers": layers,
        "config": {name: getattr(config, name) for name in described},
        "weights_bytes": sum(p.numel() * p.element_size() for p in inner.parameters()),
        "bytes_per_entry": model.tree_bytes_per_entry(),
        "tree": searches_trees,
        "is_compiled": clock.is_cuda and not is_plain,
        "seconds_to_build": ready - began,
        "seconds_to_warm_up": warm - ready,
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30 if clock.is_cuda else None,
        "runs": runs,
    }


def earlier(path: Path) -> dict[str, Any]:
    """Shapes that the file already holds."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return dict(stored.get("shapes", {}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", nargs="*", choices=sorted(MEASURED_LAYERS), default=list(MEASURED_LAYERS))
    parser.add_argument("--tiny", action="store_true", help="small shapes on any machine, to try the script")
    parser.add_argument("--plain", action="store_true", help="without compiled layers")
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if chosen.tiny and chosen.out == environment.RESULTS:
        parser.error("tiny shapes are no result; give --out")
    shapes = earlier(chosen.out / f"{NAME}.json")
    peak = scan_gpu.matmul_rate() / 1e12 if device.type == "cuda" else None
    for shape in chosen.shapes:
        shapes[shape] = measure_shape(shape, is_tiny=chosen.tiny, is_plain=chosen.plain, device=device)
        environment.save(NAME, {"matmul_tflops": peak, "shapes": shapes}, chosen.out)
        release(Clock(device))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
