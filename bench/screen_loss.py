"""Does the screen lose windows? Every library window at a stride, searched in full, against its rating.

python bench/screen_loss.py --library PATH [--models library_5m library_24m] [--stride 200]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import environment
from byrote.corpus.read import read_documents
from byrote.corpus.select import select_windows
from byrote.corpus.windows import WindowOptions
from byrote.models.hf.model import load
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.types import Split

CONFIG = RunConfig(keep=0, measures=("near",), screen="off")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["library_5m", "library_24m"])
    parser.add_argument("--stride", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows: dict[str, Any] = {}
    for name in chosen.models:
        model = load(str(chosen.library / name), dtype="float32", device="cpu")
        for path in sorted((chosen.library / "texts").glob("*/*.txt")):
            cut = WindowOptions(prefix_tokens=50, suffix_tokens=50, stride_chars=chosen.stride)
            windows = select_windows(read_documents([path], split=Split.TARGET), model, cut, bos_id=None).windows
            begin = time.monotonic()
            results = [measured.row for measured in Pipeline(model, CONFIG, decode=model.decode).run(windows)]
            extractable = [row for row in results if row["mass_lower"][-1] >= CONFIG.threshold]
            below = [row for row in results if row["screen_score"] < CONFIG.screen_floor]
            rows[f"{name}/{path.stem}"] = {
                "windows": len(results),
                "extractable": len(extractable),
                "lowest_rating_of_extractable": min((row["screen_score"] for row in extractable), default=None),
                "rated_below_floor": len(below),
                "lost": sum(row["mass_lower"][-1] >= CONFIG.threshold for row in below),
                "seconds": time.monotonic() - begin,
            }
            print(f"{name}/{path.stem}", json.dumps(rows[f"{name}/{path.stem}"]), flush=True)
    summary = {
        key: sum(row[key] for row in rows.values()) for key in ("windows", "extractable", "rated_below_floor", "lost")
    }
    print(summary)
    environment.save("screen_loss", {"stride_chars": chosen.stride, "summary": summary, "texts": rows})


if __name__ == "__main__":
    main()
