"""Can the counts of `byrote change` tell a model that unlearned by gradient ascent from one trained without the texts?

    python bench/unlearning.py [--cache FOLDER]

The pocket model is trained with all its passages, and again without half of those that it had often (to be forgotten;
the other half is to be kept and stands on the side of the controls). Gradient ascent on the passages to be forgotten
ends at the first step after which none of them is a greedy answer any more, which is where exact match and extraction
strength stop. Every model's weights are then rounded to 8 and 4 bits a number, with one scale a row, and all are
scanned alike, with every window searched.
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import byrote
from byrote.lab.pocket import POCKET, PlannedPassage, cached_folder, make_model, plan_key, plan_stream
from byrote.lab.train import train
from byrote.types import Split
from environment import save

OFTEN = 64
OPTIONS: dict[str, Any] = {
    "prefix_tokens": 50, "suffix_tokens": 20, "whole_documents": True, "edit_budget": 1, "screen": "off",
    "measures": ("greedy", "verbatim", "near", "unlearning"),
}  # fmt: skip
LEARNING_RATE, MOST_STEPS = 3e-5, 200
ANSWERS, BITS, THRESHOLD = 500, (8, 4), 0.001


def certified(results: byrote.Results, split: Split) -> int:
    frame = results.to_polars().filter(split=split.value)
    return int((frame["mass_lower"].list.last() >= THRESHOLD).sum())


def rounded(network: Any, bits: int) -> Any:
    """Every matrix rounded to the nearest of 2^bits − 1 multiples of its row's scale."""
    made, largest = copy.deepcopy(network), 2 ** (bits - 1) - 1
    with torch.no_grad():
        for weights in made.parameters():
            if weights.dim() == 2:
                scale = weights.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / largest
                weights.copy_((weights / scale).round() * scale)
    return made


def ascended(network: Any, ids: torch.Tensor) -> tuple[Any, int]:
    """After ascent on `ids` [passages, 70], and after how many steps: until no suffix is a greedy answer."""
    made = copy.deepcopy(network).train()
    optimizer = torch.optim.AdamW(made.parameters(), lr=LEARNING_RATE)
    for step in range(MOST_STEPS):
        logits = made(ids).logits[:, :-1]
        is_greedy = (logits.argmax(-1) == ids[:, 1:])[:, 49:].all(-1)
        if not is_greedy.any():
            return made.eval(), step
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        (-loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    raise SystemExit(f"after {MOST_STEPS} steps {int(is_greedy.sum())} passages are greedy answers still")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=Path)
    chosen = parser.parse_args()
    stream = plan_stream(POCKET)
    often = [one for one in stream.targets if one.copies >= OFTEN and one.trained_text is None]
    forget, keep = often[0::2], often[1::2]
    less = stream._replace(targets=tuple(one for one in stream.targets if one not in forget))
    whole = make_model(POCKET, "pocket", chosen.cache).path

    def retrain(folder: Path) -> None:
        train(POCKET.training, less.documents(POCKET.seed), less.tokenizer, folder=folder)

    without = cached_folder(chosen.cache, f"without-{plan_key(POCKET, less)}", make=retrain)
    tokenizer = AutoTokenizer.from_pretrained(whole)
    before, retrained = (AutoModelForCausalLM.from_pretrained(path).eval() for path in (whole, without))
    ids = torch.tensor([tokenizer(one.text, add_special_tokens=False)["input_ids"][:70] for one in forget])
    unlearned, steps = ascended(before, ids)

    def texts(passages: list[PlannedPassage]) -> list[dict[str, str]]:
        return [{"id": one.name, "text": one.text} for one in passages]

    def scan(network: Any, *, answers: int | None = None) -> byrote.Results:
        model = byrote.load_model(network, tokenizer=tokenizer)
        windows = byrote.read_windows(model, texts=texts(forget), control_texts=texts(keep), **OPTIONS)
        return byrote.scan(model, windows, answers=answers)

    first = scan(before)
    found: dict[str, Any] = {"ascent_steps": steps, "forget": len(forget), "keep": len(keep)}
    for name, network in {"gradient_ascent": unlearned, "retrained": retrained}.items():
        second, later = scan(network, answers=ANSWERS), [scan(rounded(network, bits)) for bits in BITS]
        change = byrote.change(first, second, later=later)
        frame = second.to_polars().filter(split="target")
        found[name] = {
            "forget": change.counts[Split.TARGET]._asdict(),
            "keep": change.counts[Split.CONTROL]._asdict(),
            "of_bits": {
                bits: {
                    "revived": revival.revived,
                    "forget_certified": certified(scanned, Split.TARGET),
                    "keep_certified": certified(scanned, Split.CONTROL),
                }
                for bits, scanned, revival in zip(BITS, later, change.revivals(Split.TARGET), strict=True)
            },
            "exact_match": float(frame["exact_match"].mean()),
            "extraction_strength": float(frame["extraction_strength"].mean()),
        }
        print(name, found[name], flush=True)
    print(save("unlearning", found))


if __name__ == "__main__":
    main()
