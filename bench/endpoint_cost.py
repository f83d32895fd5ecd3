"""Requests and tokens per window of a server: as `byrote plan --endpoint` predicts and as a loopback server counts.

    python bench/endpoint_cost.py

Twice for each kind of server: with an edit budget that every continuation is within, so that all beams stay alive and
the prediction, which says at most, should be met; and with a budget of 5 on text that the model does not know, where
searches end early. Windows are searched without the screen, greedy answers decoded in full, nothing sampled. `share` is
measured over predicted.
"""

import os
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import environment

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.loopback.logprobs import Habits
from tests.models.served import DIALECTS, KEY, serving, word_folder
from tests.table import TableModel

from byrote.cli.main import main as byrote
from byrote.models.served.client import CHAINS_PER_REQUEST, PROMPTS_PER_REQUEST
from byrote.stats.planning import costs_of

NAME = "endpoint_cost"
WINDOWS = 64
PREFIX, SUFFIX, BEAMS, VOCABULARY = 20, 12, 8, 64
BUDGETS = {"every continuation viable": SUFFIX, "unknown text": 5}


def main() -> None:
    os.environ["OPENAI_API_KEY"] = KEY
    rows = [measured(dialect, case) for dialect in DIALECTS for case in BUDGETS]
    settings = {"windows": WINDOWS, "prefix_tokens": PREFIX, "suffix_tokens": SUFFIX, "beam_width": BEAMS}
    path = environment.save(NAME, {"settings": settings, "rows": rows})
    for row in rows:
        print(row["dialect"], row["case"], row["share"])
    print(path)


def measured(dialect: str, case: str) -> dict[str, Any]:
    table = TableModel.random(1, vocab_size=VOCABULARY)
    with tempfile.TemporaryDirectory() as folder, serving(table, Habits(dialect=dialect)) as server:
        scan(server.url, Path(folder), edit_budget=BUDGETS[case])
        # Probes are shorter than any window's prompt.
        key = "input_ids" if dialect == "sglang" else "prompt"
        asked = [body[key] for body in server.seen.bodies if len(body[key][0]) >= PREFIX]
    found = {
        "requests": len(asked) / WINDOWS,
        "prompts": sum(map(len, asked)) / WINDOWS,
        "tokens": sum(len(prompt) + 1 for prompts in asked for prompt in prompts) / WINDOWS,
    }
    predicted = prediction(dialect)
    share = {name: value / predicted[name] for name, value in found.items()}
    return {"dialect": dialect, "case": case, "measured": found, "predicted": predicted, "share": share}


def prediction(dialect: str) -> Mapping[str, float]:
    costs = costs_of(
        PREFIX,
        SUFFIX,
        beam_width=BEAMS,
        dialect=dialect,
        per_request=PROMPTS_PER_REQUEST,
        chains_per_request=CHAINS_PER_REQUEST,
    )
    *_, total = costs.values()
    return {"requests": total.requests, "prompts": total.prompts, "tokens": total.tokens}


def scan(url: str, folder: Path, *, edit_budget: int) -> None:
    text = folder / "book.txt"
    draw = random.Random(0)
    text.write_text(" ".join(f"w{draw.randrange(1, VOCABULARY)}" for _ in range(4000)), encoding="utf-8")
    arguments = {
        "model": f"endpoint:{url}",
        "tokenizer": word_folder(folder, VOCABULARY),
        "text": text,
        "out": folder / "run",
        "prefix-tokens": PREFIX,
        "suffix-tokens": SUFFIX,
        "beam-width": BEAMS,
        "edit-budget": edit_budget,
        "top-k": 20,
        "limit": WINDOWS,
        "stride-chars": 40,
        "screen": "off",
        "stop-rule": "off",
        "negligible": 0,
        "greedy": "full",
        "answers": 0,
        "ask-twice": 0,
    }
    try:
        byrote(["scan", *(str(part) for name, value in arguments.items() for part in ("--set", f"{name}={value}"))])
    except SystemExit as ended:
        if ended.code not in (0, None):
            raise


if __name__ == "__main__":
    main()
