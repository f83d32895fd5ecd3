"""Token evaluations and time of scoring 200 suffixes after 1,000 prefixes, against the ideal and against pair by pair.

    python bench/prior_throughput.py [--prefixes 1000] [--suffixes 200]

Query positions are counted where the model receives them. The ideal is every prefix once and every suffix token once
per prefix. The suffixes are drawn at random, so that sharing of their beginnings helps little.
"""

import argparse
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import environment
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.shared_prefix import PLAIN, SharedPrefixScorer

PREFIX_TOKENS = 50
VOCABULARY = 2048
SUFFIX_TOKENS = (4, 50)
PAIR_BY_PAIR_PREFIXES = 4
"""Prefixes on which the pair-by-pair way is timed; its cost is the same for each."""


def build() -> HuggingFaceModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
    )
    return HuggingFaceModel(LlamaForCausalLM(config), tokenizer=None)


class Counter:
    """Counts the query positions a model's sessions are given."""

    def __init__(self, model: HuggingFaceModel) -> None:
        self.queries = 0
        original = model.open_tree

        def counted_tree(slots: int, entries: int, **more: Any) -> Any:
            session = original(slots, entries, **more)
            forward = session.forward

            def counted(batch: Any) -> torch.Tensor:
                self.queries += len(batch.token_ids)
                return forward(batch)

            session.forward = counted  # type: ignore[method-assign]
            return session

        model.open_tree = counted_tree  # type: ignore[method-assign]


def measure(prefixes: int, suffixes: int, suffix_tokens: int) -> dict[str, Any]:
    model = build()
    counter = Counter(model)
    generator = torch.Generator().manual_seed(1)
    befores = torch.randint(4, VOCABULARY, (prefixes, PREFIX_TOKENS), generator=generator).tolist()
    afters = torch.randint(4, VOCABULARY, (suffixes, suffix_tokens), generator=generator).tolist()
    scorer = SharedPrefixScorer(model, afters)
    started, cpu = time.perf_counter(), time.process_time()
    shared = scorer.score(befores)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    cpu = time.process_time()
    worst = 0.0
    for row, prefix in enumerate(befores[:PAIR_BY_PAIR_PREFIXES]):
        forced = model.score([[*prefix, *suffix] for suffix in afters], suffix_tokens, [PLAIN]).log_probs[0].sum(-1)
        worst = max(worst, float((shared[row] - forced).abs().max()))
    pair_cpu = (time.process_time() - cpu) / PAIR_BY_PAIR_PREFIXES * prefixes
    ideal = prefixes * (PREFIX_TOKENS + suffixes * suffix_tokens)
    return {
        "prefixes": prefixes,
        "prefix_tokens": PREFIX_TOKENS,
        "suffixes": suffixes,
        "suffix_tokens": suffix_tokens,
        "token_evals": counter.queries,
        "ideal_token_evals": ideal,
        "share_of_ideal": counter.queries / ideal,
        "pair_by_pair_token_evals": prefixes * suffixes * (PREFIX_TOKENS + suffix_tokens),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "pair_by_pair_cpu_seconds_extrapolated": pair_cpu,
        "largest_difference_in_log_p": worst,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefixes", type=int, default=1000)
    parser.add_argument("--suffixes", type=int, default=200)
    arguments = parser.parse_args()
    rows = []
    for suffix_tokens in SUFFIX_TOKENS:
        # Fifty-token suffixes cost twelve times as much per prefix; a tenth of the prefixes shows the same share.
        prefixes = arguments.prefixes if suffix_tokens <= 4 else max(1, arguments.prefixes // 10)
        rows.append(measure(prefixes, arguments.suffixes, suffix_tokens))
        row = rows[-1]
        print(
            f"{row['suffixes']} suffixes of {suffix_tokens} tokens after {row['prefixes']} prefixes: "
            f"{row['token_evals']:,} token evaluations, {row['share_of_ideal']:.3f} of the ideal, "
            f"{row['cpu_seconds']:.1f} CPU s (pair by pair {row['pair_by_pair_cpu_seconds_extrapolated']:.1f})"
        )
    print(environment.save("prior_throughput", {"rows": rows}))


if __name__ == "__main__":
    main()
