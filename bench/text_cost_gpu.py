"""What the text measure and further policies cost on one GPU: scans of the same windows by tokens, by characters, and
by tokens with bounds under six further policies, in turns in one process.

    PYTHONPATH=src:bench python bench/text_cost_gpu.py [--shape 7b] [--deep 242] [--windows 1024] [--out FOLDER]

The model and the windows are those of scan_gpu.py: random weights, scripted logits (scripted.py), default options.
Every token is written as a blank and letters, 2 to 16 characters: a target of 50 tokens has some 240 characters, and
its budget is 5 tokens or 20 characters. A search of characters goes on for up to twice the tokens of its target.
"""

import argparse
import gc
import random
import statistics
import time
from collections import Counter
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import environment
import scripted
from byrote.distance.text import TokenTexts
from byrote.models.hf.graphs import compile_layers
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.scan.stages.screen import with_audit
from byrote.types import Window
from policies_cost import POLICIES
from scan_gpu import SHAPES, build, matmul_rate, windows
from text_sampling import sized

TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
"""To try the script on a CPU."""
LONGEST_PIECE = 16
MEAN_LETTERS = 3.0


class WrittenModel(scripted.ScriptedModel):
    """Tokens have texts."""

    @cached_property
    def token_texts(self) -> TokenTexts:
        draw = random.Random(0)
        lengths = [1 + min(LONGEST_PIECE - 2, int(draw.expovariate(1 / MEAN_LETTERS))) for _ in range(self.vocab_size)]
        letters = ("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=length)) for length in lengths)
        return TokenTexts.of([f" {word}".encode() for word in letters]).on(self.device)


def run(model: WrittenModel, config: RunConfig, given: list[Window]) -> dict[str, Any]:
    gc.collect()
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    pipeline = Pipeline(model, with_audit(config, len(given)), decode=str)
    began = time.perf_counter()
    rows = [measured.row for measured in pipeline.run(given)]  # the host reads every row: nothing is left to wait for
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "windows_per_second": len(rows) / seconds,
        "token_evals": sum(row["token_evals"] for row in rows),
        "mean_lower": statistics.mean(row["mass_lower"][-1] for row in rows),
        "verdicts": dict(Counter(row["verdict"] for row in rows)),
        "facts": pipeline.facts._asdict(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=[*SHAPES, "tiny"], default="7b")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--deep", type=int, default=242, help="memorized windows")
    parser.add_argument("--windows", type=int, default=1024, help="windows of the mix, one in twenty memorized")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    device = torch.device("cpu" if chosen.shape == "tiny" else "cuda")
    shape = (SHAPES | {"tiny": TINY})[chosen.shape]
    inner = build(shape | ({} if chosen.layers is None else {"num_hidden_layers": chosen.layers}), device)
    results: dict[str, Any] = {"shape": chosen.shape, "layers": inner.config.num_hidden_layers, "policies": POLICIES}
    if device.type == "cuda":
        results["matmul_tflops"] = matmul_rate() / 1e12
        compile_layers(inner)
    model = WrittenModel(inner.float() if device.type == "cpu" else inner)
    tokens = RunConfig(keep=3)
    configs = {"tokens": tokens, "text": replace(tokens, unit="text"), "policies": replace(tokens, policies=POLICIES)}
    for kind, count, share in (("memorized", chosen.deep, 1.0), ("mix", chosen.windows, 0.05)):
        given = windows(count, share)
        written = [replace(one, suffix_text=model.token_texts.text(one.suffix_ids)) for one in given]
        sides = {name: (config, given) for name, config in configs.items()}
        sides["text"] = sized(configs["text"], written), written
        if kind == "mix":
            del sides["policies"]
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
        for number in range(chosen.rounds + 1):
            for name, (config, own) in sides.items():
                # The first round is short: it compiles kernels, and the layers once for the process.
                measured = run(model, config, own if number else own[: len(own) // 2])
                print(f"{kind}, {name}, round {number}: {measured}", flush=True)
                if number:
                    rounds[name].append(measured)
            ratios = {
                f"{name}_time_ratio": statistics.median(
                    theirs["seconds"] / ours["seconds"]
                    for theirs, ours in zip(rounds[name], rounds["tokens"], strict=True)
                )
                for name in sides
                if number and name != "tokens"
            }
            results[kind] = {"windows": count, "target_chars": len(written[0].suffix_text or ""), **ratios, **rounds}
            environment.save(f"text_cost_gpu_{chosen.shape}", results, chosen.out)
    print(
        {
            kind: {name: value for name, value in results[kind].items() if "ratio" in name}
            for kind in ("memorized", "mix")
        }
    )


if __name__ == "__main__":
    with torch.inference_mode():
        main()
