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
from rote.corpus.documents import read_documents
from rote.corpus.windows import WindowOptions, cut_windows
from rote.models.hf import load
from rote.models.teacher_forcing import score_verbatim
from rote.scan.near import NearResult, measure_near
from rote.scan.options import RunConfig
from rote.search.sizing import choose_slots
from rote.types import Split

CONFIG = RunConfig(keep=0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["library_5m", "library_24m"])
    parser.add_argument("--stride", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    options = CONFIG.search_options()
    rows: dict[str, Any] = {}
    for name in chosen.models:
        model = load(str(chosen.library / name), dtype="float32", device="cpu")
        for path in sorted((chosen.library / "texts").glob("*/*.txt")):
            cut = WindowOptions(prefix_tokens=50, suffix_tokens=50, stride_chars=chosen.stride)
            windows = cut_windows(read_documents([path], split=Split.TARGET), model, cut, bos_id=None).windows
            results: list[NearResult] = []
            begin = time.monotonic()
            measure_near(
                model,
                score_verbatim(model, windows, [CONFIG.policy], batch_windows=CONFIG.batch_windows),
                options,
                threshold=CONFIG.threshold,
                screen=None,
                slots=choose_slots(model, options, CONFIG.limits),
                limits=CONFIG.limits,
                emit=results.append,
            )
            extractable = [result for result in results if result.bounds.lower[-1] >= CONFIG.threshold]
            below = [result for result in results if result.rating < CONFIG.screen_floor]
            rows[f"{name}/{path.stem}"] = {
                "windows": len(results),
                "extractable": len(extractable),
                "lowest_rating_of_extractable": min((result.rating for result in extractable), default=None),
                "rated_below_floor": len(below),
                "lost": sum(result.bounds.lower[-1] >= CONFIG.threshold for result in below),
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
