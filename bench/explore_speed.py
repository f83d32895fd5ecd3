"""Token evaluations a second after the search: residual estimates and refinement of many windows at once.

    PYTHONPATH=src:bench python bench/explore_speed.py [--device cuda] [--windows 64] [--residual 500] [--refine 1000]

Three models: the table (costs nothing, so what is measured is the host), a tiny Llama, and, on a GPU, Llama-2-7B's
shape in bf16 with compiled layers, as a long scan has them; the last two with random weights and scripted logits
(bench/scripted.py), so that windows behave like memorized text. Needs numpy, torch, transformers.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import environment
import scripted
from byrote.explore.ball import Ball
from byrote.explore.base import Exploration, ExploreTask
from byrote.explore.explorer import Explorer, choose_capacity
from byrote.explore.open_mass import OpenMass
from byrote.explore.refinement import RefineOptions, refine
from byrote.explore.residual import ResidualOptions, estimate_open
from byrote.models.base import TreeModel
from byrote.models.hf.graphs import compile_layers
from byrote.policy import Policy
from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from byrote.search.sizing import choose_slots

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.table import TableModel

BUDGET = 5
LIMITS = Limits(scripted.PREFIX, scripted.LENGTH)


def options(policy: Policy) -> SearchOptions:
    return SearchOptions(
        policy=policy, beam_width=20, edit_budget=BUDGET, distance="levenshtein", viability="exact", pin_verbatim=True,
        negligible=1e-10, threshold=None, stop_rule="mass", rank_by="mass", keep=3, max_children=None,
        record_frontier=True, keep_states=True,
    )  # fmt: skip


def measure(model: TreeModel, policy: Policy, pairs: list[Any], evals: dict[str, int]) -> dict[str, Any]:
    tasks = [SearchTask(key, prefix, suffix) for key, (prefix, suffix) in enumerate(pairs)]
    chosen = options(policy)
    seconds, searched = search(model, chosen, tasks)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # here all windows are searched before the first is explored
    spent = sum(outcome.token_evals for outcome in searched)
    results: dict[str, Any] = {
        "search": {"evals_per_second": spent / seconds},
        "frontier_nodes": float(np.mean([len(outcome.frontier or ()) for outcome in searched])),
    }

    for name, budget in evals.items():
        capacity = choose_capacity(model, LIMITS, evaluations=1200 + budget)
        explorer = Explorer(
            model, policy, slots=min(capacity.slots, len(pairs)), limits=LIMITS, entries=capacity.entries
        )

        def jobs(name: str = name, budget: int = budget) -> Iterator[ExploreTask[Any]]:
            return (
                ExploreTask(task.key, task.prefix_ids, explore(name, task, outcome, budget), outcome.states)
                for task, outcome in zip(tasks, searched, strict=True)
            )

        # A scan explores many batches with one explorer, whose forwards are recorded by then.
        timed(model, partial(run, explorer, jobs()))
        before = explorer.forwards
        seconds, found = timed(model, partial(run, explorer, jobs()))
        spent = sum(result.token_evals for _, result in found)
        results[name] = {
            "windows_at_once": explorer.slots,
            "token_evals": spent,
            "evals_per_second": spent / seconds,
            "forwards": explorer.forwards - before,
            "evals_per_forward": spent / (explorer.forwards - before),
        }
        del explorer
    return results


def search(model: TreeModel, chosen: SearchOptions, tasks: list[SearchTask]) -> tuple[float, list[SearchOutcome]]:
    engine = Engine(model, chosen, slots=min(len(tasks), choose_slots(model, chosen, LIMITS)), limits=LIMITS)
    return timed(model, lambda: sorted(engine.run(tasks), key=lambda outcome: outcome.key))


def run(explorer: Explorer, jobs: Iterator[ExploreTask[Any]]) -> list[Any]:
    return list(explorer.run(jobs))


def explore(name: str, task: SearchTask, outcome: SearchOutcome, budget: int) -> Exploration[Any]:
    ball = Ball(task.suffix_ids, distance="levenshtein", budget=BUDGET, eos_ids=frozenset())
    assert outcome.frontier is not None
    pool = OpenMass(ball, outcome.frontier, accepted=outcome.bounds.lower, unlisted=outcome.unlisted)
    if name == "residual":
        wanted = ResidualOptions(token_evals=budget, relative_error=None)
        return estimate_open(pool, np.random.default_rng(task.key), wanted, log_scores=None)
    both = RefineOptions(token_evals=budget, threshold=None, order="both")
    return refine(pool, both, is_in_memory=True)


def timed(model: TreeModel, work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def table_windows(count: int) -> tuple[TableModel, list[Any]]:
    """Targets the table itself says: its likeliest tokens, with a slip here and there."""
    model = TableModel.random(3, vocab_size=200, spread=3.0)
    generator = np.random.default_rng(0)
    pairs = []
    for _ in range(count):
        ids = generator.integers(0, 200, LIMITS.prefix_tokens).tolist()
        for _ in range(LIMITS.suffix_tokens):
            ids.append(int(model.next_logits([ids])[0].argmax()))
        pairs.append((tuple(ids[: LIMITS.prefix_tokens]), tuple(ids[LIMITS.prefix_tokens :])))
    return model, pairs


def llama(device: str, **shape: int) -> scripted.ScriptedModel:
    config = LlamaConfig(vocab_size=32000, max_position_embeddings=4096, **shape)
    torch.manual_seed(0)
    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
        model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    if device == "cuda":
        compile_layers(model)
    return scripted.ScriptedModel(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--windows", type=int, default=64)
    parser.add_argument("--residual", type=int, default=500)
    parser.add_argument("--refine", type=int, default=1000)
    parser.add_argument("--models", default="table,tiny,7b", help="which, by commas; 7b needs a GPU")
    parser.add_argument("--out", type=Path, help="folder for the result (default bench/results)")
    arguments = parser.parse_args()
    policy, evals = Policy(1.0, 40), {"residual": arguments.residual, "refinement": arguments.refine}
    results: dict[str, Any] = {}
    for name in arguments.models.split(","):
        if name == "7b" and arguments.device != "cuda":
            continue
        if name == "table":
            model, pairs = table_windows(arguments.windows)
        else:
            shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
            if name == "7b":
                shape = {
                    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32
                }  # fmt: skip
            model = llama(arguments.device, **shape)
            pairs = scripted.windows(arguments.windows, 1.0)
        results[name] = measure(model, policy, pairs, evals)
        print(name, results[name], flush=True)
    print(environment.save(f"explore_speed_{arguments.device}", results, arguments.out))


if __name__ == "__main__":
    main()
