"""Whether a .gguf file gives the numbers of its model folder: `python bench/gguf_agreement.py FOLDER TEXT…`.

The folder is converted (bench/gguf_convert.py) and the same windows are scanned by both back ends in process. With
--endpoint a server of that file (`python -m llama_cpp.server --model FILE`) is scanned as well. The result is
bench/results/gguf_agreement.json: the largest difference of log p_z in nats and the verdicts that differ. Within 0.05
nat and no verdict is what is asked for.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import environment
import rote
from gguf_convert import convert
from rote.scan.run import scan_to_folder
from rote.store.progress import SilentProgress

ALLOWED_NATS = 0.05


def scanned(name: str, chosen: argparse.Namespace, folder: Path, **options: Any) -> list[dict[str, Any]]:
    """Rows of a scan by the command's own path."""
    config = rote.RunConfig(
        model=name,
        text=chosen.text,
        out=str(folder),
        sample=chosen.windows,
        dtype="float32",
        device="cpu",
        screen=chosen.screen,
        **options,
    )
    result = scan_to_folder(config, progress=SilentProgress())
    run = rote.read_run(result.path)
    assert isinstance(run, rote.SavedRun)
    return run.to_polars().to_dicts()


def compared(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> dict[str, Any]:
    assert [row["window_id"] for row in first] == [row["window_id"] for row in second]
    assert [row["suffix_ids"] for row in first] == [row["suffix_ids"] for row in second]
    shifts, supports = [], 0
    for one, other in zip(first, second, strict=True):
        pair = one["log_p_verbatim"], other["log_p_verbatim"]
        if all(map(math.isfinite, pair)):
            shifts.append(abs(pair[0] - pair[1]))
        else:
            supports += pair[0] != pair[1]
    verdicts = sum(one["verdict"] != other["verdict"] for one, other in zip(first, second, strict=True))
    bounds = max(
        abs(a - b)
        for one, other in zip(first, second, strict=True)
        for a, b in zip(one["mass_lower"], other["mass_lower"], strict=True)
    )
    return {
        "windows": len(first),
        "windows_with_finite_log_p": len(shifts),
        "largest_shift_nats": max(shifts),
        "possible_in_one_only": supports,
        "verdicts_that_differ": verdicts,
        "largest_shift_of_lower_bounds": bounds,
        "holds": max(shifts) <= ALLOWED_NATS and verdicts == 0 and supports == 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="model folder, Llama architecture")
    parser.add_argument("text", nargs="+", help="texts to scan")
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument("--screen", default="auto", help="off searches every window")
    parser.add_argument("--endpoint", help="URL of a server of the converted file")
    parser.add_argument("--gguf", type=Path, help="keep the converted file here")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        file = chosen.gguf or place / "model.gguf"
        if not file.exists():
            convert(chosen.folder, file)
        backends: dict[str, dict[str, Any]] = {
            "huggingface": {"model": str(chosen.folder)},
            "gguf": {"model": str(file)},
        }
        if chosen.endpoint:
            backends["served"] = {"model": f"endpoint:{chosen.endpoint}", "tokenizer": str(chosen.folder)}
        rows, seconds = {}, {}
        for name, options in backends.items():
            started = time.monotonic()
            rows[name] = scanned(options.pop("model"), chosen, place / name, **options)
            seconds[name] = time.monotonic() - started
        verdicts = {name: sum(row["verdict"] == "extractable" for row in found) for name, found in rows.items()}
        record = {
            "model": chosen.folder.name,
            "texts": [Path(text).name for text in chosen.text],
            "extractable": verdicts,
            "seconds": seconds,
            "against_huggingface": {
                name: compared(rows["huggingface"], rows[name]) for name in rows if name != "huggingface"
            },
        }
    environment.save("gguf_agreement", record)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
