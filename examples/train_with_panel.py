"""Memorization while a model trains: `python examples/train_with_panel.py --out RUNS [--every 40]`.

Trains a small model from scratch with the Transformers Trainer, on invented passages that stand in its training data
1, 16 or 64 times (it reads them twice), and measures a fixed panel of them and of passages it never saw. Prints what
the Trainer logged at every measured step, and when passages became extractable by their copies. Afterwards:

    byrote report RUNS/step-* --out RUNS/report
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import byrote
from byrote.integrations.transformers import MemorizationCallback
from byrote.lab.pocket import TINY, PocketStream, plan_stream
from byrote.lab.train import pack
from byrote.report.analysis.comparison import compare_runs
from byrote.report.analysis.series import by_steps, series_of, window_rows
from byrote.report.view import load_view

CUTS = (30, 45, 60)
SUFFIX_WORDS = 10


def panel(stream: PocketStream, file: Path) -> Path:
    """Records of the passages: the words before a cut, and those after it."""
    with file.open("w", encoding="utf-8") as lines:
        for passage in (*stream.targets, *stream.controls):
            words = passage.text_in_stream.split(" ")
            for at in CUTS:
                record = {
                    "id": f"{passage.name}/{at}",
                    "document": passage.name,
                    "prefix": " ".join(words[:at]),
                    "suffix": " " + " ".join(words[at : at + SUFFIX_WORDS]),
                    "copies": passage.copies,
                }
                lines.write(json.dumps(record) + "\n")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every", type=int, default=40, help="steps between two measurements")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(0)
    plan, stream = TINY.training, plan_stream(TINY)
    rows = pack(stream.documents(0), end_of_text=stream.tokenizer.eos_token_id, context=plan.context).input_ids
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(stream.tokenizer),
            hidden_size=plan.width,
            intermediate_size=plan.feed_forward_width,
            num_hidden_layers=plan.layers,
            num_attention_heads=plan.heads,
            max_position_embeddings=2 * plan.context,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    windows = byrote.read_windows(
        byrote.load_model(model, tokenizer=stream.tokenizer), pairs=panel(stream, chosen.out / "panel.jsonl")
    )
    arguments = TrainingArguments(
        output_dir=str(chosen.out / "checkpoints"),
        per_device_train_batch_size=plan.rows_per_step,
        learning_rate=plan.learning_rate,
        adam_beta2=0.95,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        num_train_epochs=2,
        logging_steps=chosen.every,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    data = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model, arguments, train_dataset=data, processing_class=stream.tokenizer)
    trainer.add_callback(MemorizationCallback(trainer, windows, out=chosen.out, every=chosen.every))
    trainer.train()

    print("\nstep   near  verbatim  control  newly  forgotten")
    for logged in trainer.state.log_history:
        if "memorization/near" in logged:
            near, verbatim, control, newly, forgotten = (
                logged.get(f"memorization/{name}", 0)
                for name in ("near", "verbatim", "control/near", "newly_extractable", "forgotten")
            )
            print(f"{logged['step']:4d} {near:6.1%} {verbatim:9.1%} {control:8.1%} {newly:6d} {forgotten:10d}")
    views = by_steps([load_view(path) for path in sorted(chosen.out.glob("step-*"))])
    series = series_of(views, compare_runs(views))
    assert series is not None
    first = {row["window_id"]: row["first_extractable_step"] for row in window_rows(series)}
    for copies in sorted({passage.copies for passage in stream.targets}):
        names = [passage.name for passage in stream.targets if passage.copies == copies]
        steps = [step for window_id, step in first.items() if window_id.split("/")[0] in names]
        known = sorted(step for step in steps if step is not None)
        middle = f"half of them by step {known[len(steps) // 2]}" if len(known) > len(steps) // 2 else "half never"
        known_as = "copy" if copies == 1 else "copies"
        print(f"{copies:3d} {known_as}: {len(known)} of {len(steps)} windows became extractable, {middle}")


if __name__ == "__main__":
    main()
