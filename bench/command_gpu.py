"""The whole command on one GPU, return key to manifest, beside a plain script and the paper-style search in one run.

    PYTHONPATH=src:bench python bench/command_gpu.py --folder FOLDER --baseline PATH/paper_style.py [--windows 15000]

A Llama shape with random weights is saved to FOLDER, with a tokenizer of its own and a text of random words, so that
`byrote scan` runs as for a user: ordinary text, default options. The plain script imports the libraries, loads the same
folder, compiles the layers and teacher-forces the same windows. The paper-style search gets a few of them.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import environment

WORDS, PREFIX, SUFFIX = 20_000, 50, 50
SETTINGS = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}

PLAIN = """
import json, sys, time
began = time.perf_counter()
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
imported = time.perf_counter()
folder, text, count, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").to("cuda").eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
for layer in model.model.layers:
    layer.compile()
loaded = time.perf_counter()
words = open(text).read()
windows = []
with torch.inference_mode():
    start, sums = 0, []
    while len(windows) < count:
        ids = tokenizer(words[start : start + 800], add_special_tokens=False)["input_ids"][:100]
        windows.append(ids)
        start += 20
    for first in range(0, count, batch):
        ids = torch.tensor(windows[first : first + batch], device="cuda")
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=51).logits[:, :-1].float()
        log_probs = logits.log_softmax(-1).gather(-1, ids[:, -50:, None])[..., 0]
        sums += log_probs.sum(-1).tolist()
ended = time.perf_counter()
parts = {"import": imported - began, "load": loaded - imported, "score": ended - loaded}
print(json.dumps(parts | {"windows": len(sums)}))
"""


def make_model(folder: Path, layers: int | None) -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({f"w{number}": number for number in range(32_000)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    settings = SETTINGS | ({} if layers is None else {"num_hidden_layers": layers})
    config = LlamaConfig(vocab_size=32_000, max_position_embeddings=4096, eos_token_id=2, bos_token_id=1, **settings)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder, max_shard_size="5GB")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="w2", bos_token="w1").save_pretrained(folder)


def make_text(path: Path, windows: int) -> None:
    """Words of six characters with their blank, so that a window of 100 tokens begins every 20 characters."""
    draw = random.Random(0)
    count = (windows * 20 + 800) // 6 + 10
    path.write_text(" ".join(f"w{draw.randrange(1000, 9999)}" for _ in range(count)), encoding="utf-8")


def timed(arguments: list[str], **environ: str) -> tuple[float, str, str]:
    began = time.perf_counter()
    done = subprocess.run(arguments, capture_output=True, text=True, env=os.environ | environ)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])
    return seconds, done.stdout, done.stderr


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--windows", type=int, default=15_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--paper-windows", type=int, default=256)
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    chosen = parser.parse_args()
    model, text, run = chosen.folder / "model", chosen.folder / "text.txt", chosen.folder / "run"
    if not model.exists():
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
             f"import command_gpu, pathlib; command_gpu.make_model(pathlib.Path({str(model)!r}), {chosen.layers})"],
            check=True,
        )  # fmt: skip
    make_text(text, chosen.windows)
    results: dict[str, Any] = {"windows": chosen.windows, "rounds": []}
    for _ in range(chosen.rounds):
        plain, said, _ = timed([sys.executable, "-c", PLAIN, str(model), str(text), str(chosen.windows), "256"])
        shutil.rmtree(run, ignore_errors=True)
        command, _, printed = timed(
            [sys.executable, "-m", "byrote", "scan", "--model", str(model), "--text", str(text), "--out", str(run),
             "--limit", str(chosen.windows), "--set", "bos=never"]
        )  # fmt: skip
        manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
        results["rounds"].append(
            {
                "plain_seconds": plain,
                "plain_parts": json.loads(said.strip().splitlines()[-1]),
                "command_seconds": command,
                "command_windows": manifest["totals"]["windows"],
                "timings": manifest["timings"],
                "share_of_plain": plain / command,
                "printed": printed[-3000:],
            }
        )
        print(json.dumps(results["rounds"][-1]), flush=True)
        environment.save("command_gpu", results, chosen.out)
    if chosen.baseline is not None:
        results["paper_style_windows_per_second"] = paper_style(chosen.baseline, model, text, chosen.paper_windows)
        results["paper_style_seconds_for_all"] = chosen.windows / results["paper_style_windows_per_second"]
    print(environment.save("command_gpu", results, chosen.out).read_text())


def paper_style(baseline: Path, model: Path, text: Path, count: int) -> float:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from paper_style_cpu import search_of

    search, words = search_of(baseline), text.read_text(encoding="utf-8")
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype="auto").to("cuda").eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    starts = range(0, 20 * count, 20)
    ids = torch.tensor([tokenizer(words[at : at + 800], add_special_tokens=False)["input_ids"][:100] for at in starts])
    with torch.inference_mode():
        search(loaded, ids[:32].cuda(), PREFIX, eos_id=2)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for part in ids.cuda().split(64):
            search(loaded, part, PREFIX, eos_id=2)
        torch.cuda.synchronize()
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
