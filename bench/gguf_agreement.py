"""Whether a .gguf file gives the numbers of its model folder: `python bench/gguf_agreement.py FOLDER TEXT…`.

The folder is converted (bench/gguf_convert.py) and the same windows are scanned by both back ends in process. With
--endpoint it is a server of that file that is compared with the folder instead:

    python bench/gguf_convert.py FOLDER MODEL.gguf
    llama-server -m MODEL.gguf -ctk f32 -ctv f32
    python bench/gguf_agreement.py FOLDER TEXT… --endpoint http://127.0.0.1:8080

The result is bench/results/gguf_agreement.json, or served_agreement.json for a server: the largest difference of log
p_z in nats and the verdicts that differ. Within 0.05 nat and no verdict is what is asked for. With --runs the scans are
kept there, and an interrupted bench goes on with them.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import environment
import rote
from gguf_convert import convert
from rote.scan.run import scan_to_folder
from rote.store.progress import SilentProgress

ALLOWED_NATS = 0.05


def scanned(chosen: argparse.Namespace, folder: Path, **options: Any) -> rote.SavedRun:
    """A scan by the command's own path."""
    config = rote.RunConfig(
        text=chosen.text,
        out=str(folder),
        sample=chosen.windows,
        dtype="float32",
        device="cpu",
        screen=chosen.screen,
        estimate="none",
        beam_width=chosen.beam_width,
        **options,
    )
    result = scan_to_folder(config, progress=SilentProgress())
    run = rote.read_run(result.path)
    assert isinstance(run, rote.SavedRun)
    return run


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
    parser.add_argument("--beam-width", type=int, default=20)
    parser.add_argument("--screen", default="auto", help="off searches every window")
    parser.add_argument("--endpoint", help="URL of a server of the converted file")
    parser.add_argument("--gguf", type=Path, help="keep the converted file here")
    parser.add_argument("--runs", type=Path, help="keep the scans here and resume them")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = agreement(chosen, Path(folder), chosen.runs or Path(folder))
    environment.save("served_agreement" if chosen.endpoint else "gguf_agreement", record)
    print(json.dumps(record, indent=2))


def agreement(chosen: argparse.Namespace, place: Path, runs: Path) -> dict[str, Any]:
    backends: dict[str, dict[str, Any]] = {"huggingface": {"model": str(chosen.folder)}}
    if chosen.endpoint:
        backends["served"] = {"model": f"endpoint:{chosen.endpoint}", "tokenizer": str(chosen.folder)}
    else:
        file = chosen.gguf or place / "model.gguf"
        if not file.exists():
            convert(chosen.folder, file)
        backends["gguf"] = {"model": str(file)}
    found = {name: scanned(chosen, runs / name, **options) for name, options in backends.items()}
    rows = {name: run.to_polars().to_dicts() for name, run in found.items()}
    record = {
        "model": chosen.folder.name,
        "texts": [Path(text).name for text in chosen.text],
        "beam_width": chosen.beam_width,
        "extractable": {name: sum(row["verdict"] == "extractable" for row in rows[name]) for name in rows},
        "seconds": {name: (run.manifest or {})["timings"]["measuring_seconds"] for name, run in found.items()},
        "against_huggingface": {
            name: compared(rows["huggingface"], rows[name]) for name in rows if name != "huggingface"
        },
    }
    if "served" in found:
        manifest = found["served"].manifest or {}
        record["served"] = {name: manifest["model"][name] for name in ("dialect", "values", "listed_tokens")}
        record["served"] |= {name: manifest["served"][name] for name in ("requests", "prompt_tokens", "asked_twice")}
    return record


if __name__ == "__main__":
    main()
