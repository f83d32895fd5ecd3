"""What a panel of 200 windows costs beside training: CPU seconds of a measurement against those of a step.

python bench/training_panel.py [--steps 80] [--windows 200]

A Llama of 6 M parameters is trained on 25 passages with the Trainer's default batch of 8 rows, 512 tokens each; the
panel has windows of 50 + 50 tokens of them, measured as by default, near-verbatim search included. The share is that of
a measurement every 500 steps, which is how often the Trainer saves by default.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

import byrote
import environment
from byrote.integrations.transformers import MemorizationCallback
from byrote.lab.texts import write_passages
from byrote.lab.train import encode_all, pack, train_tokenizer

PASSAGES, CONTEXT, ROWS, MEASUREMENTS = 25, 512, 8, 3
DEFAULT_INTERVAL = TrainingArguments(output_dir="unused").save_steps


class Clock(TrainerCallback):
    """CPU seconds: `steps` from the beginning of every step to its end, `panels` of what is called between the `last`
    clock and this one."""

    def __init__(self, last: "Clock | None" = None) -> None:
        self.steps: list[float] = []
        self.panels: list[float] = []
        self.at = 0.0
        self.last = last

    def on_step_begin(self, *given: Any, **kwargs: Any) -> None:
        self.began = time.process_time()

    def on_optimizer_step(self, *given: Any, **kwargs: Any) -> None:
        self.steps.append(time.process_time() - self.began)

    def on_train_begin(self, *given: Any, **kwargs: Any) -> None:
        self.at = time.process_time()
        if self.last is not None:
            self.panels.append(self.at - self.last.at)

    on_step_end = on_train_begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--windows", type=int, default=200)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    passages = write_passages(0, PASSAGES, least_words=160)
    tokenizer = train_tokenizer(passages, vocabulary_size=1536)
    rows = pack(encode_all(tokenizer, passages), end_of_text=0, context=CONTEXT).input_ids
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=256, intermediate_size=768, num_hidden_layers=6,
            num_attention_heads=4, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "passages.txt")
        text.write_text("\n".join(passages), encoding="utf-8")
        windows = byrote.read_windows(byrote.load_model(model, tokenizer=tokenizer), text, sample=chosen.windows)
        arguments = TrainingArguments(
            output_dir=folder, max_steps=chosen.steps, per_device_train_batch_size=ROWS, learning_rate=1e-3,
            adam_beta2=0.95, save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        data = [{"input_ids": row, "labels": row} for row in rows]
        trainer = Trainer(model, arguments, train_dataset=data, processing_class=tokenizer)
        before, every = Clock(), chosen.steps // (MEASUREMENTS - 1)
        after = Clock(last=before)
        panel = MemorizationCallback(trainer, windows, out=Path(folder, "runs"), every=every)
        for callback in (before, panel, after):
            trainer.callback_handler.callbacks.append(callback)
        trainer.train()
    step_seconds = sorted(before.steps)[len(before.steps) // 2]
    measured = [after.panels[step] for step in range(0, chosen.steps + 1, every)]
    found = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokens_per_step": ROWS * CONTEXT,
        "windows": len(windows),
        "step_cpu_seconds_median": round(step_seconds, 3),
        "panel_cpu_seconds": [round(seconds, 2) for seconds in measured],
        "panel_near": [one["memorization/near"] for one in trainer.state.log_history if "memorization/near" in one],
        "interval_steps": DEFAULT_INTERVAL,
        "share_at_most": round(max(measured) / (DEFAULT_INTERVAL * step_seconds), 5),
    }
    print(found)
    environment.save("training_panel", found)


if __name__ == "__main__":
    main()
