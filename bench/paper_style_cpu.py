"""The paper-style search as a program of its own: starts, loads the model, searches pairs of token ids, ends.

    python bench/paper_style_cpu.py --baseline PATH/paper_style.py --model PATH --pairs FILE --batch 4

Prints the seconds of the search alone, as JSON; whoever started it knows how long the whole took.
"""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def search_of(path: Path) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("paper_style", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.search  # type: ignore[no-any-return]


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--baseline", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    chosen = parser.parse_args()
    search = search_of(chosen.baseline)
    model = AutoModelForCausalLM.from_pretrained(chosen.model, dtype=torch.float32).eval()
    rows = [json.loads(line) for line in chosen.pairs.read_text(encoding="utf-8").splitlines()]
    (prefix_tokens,) = {len(row["prefix_ids"]) for row in rows}
    ids = torch.tensor([row["prefix_ids"] + row["suffix_ids"] for row in rows])
    start = time.perf_counter()
    for part in ids.split(chosen.batch):
        search(model, part, prefix_tokens, eos_id=0)
    print(json.dumps({"seconds_searching": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
