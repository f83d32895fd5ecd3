"""vLLM against the same weights in this process: inside the engine, and behind its server, which is killed once.

    .venv-vllm/bin/python bench/vllm_agreement.py --model FOLDER --text FILE... [--stride-chars 2300] [--work FOLDER]

All scans have the default options over the same windows. `inside` is `--model vllm:FOLDER`, `served` the server with
`--max-logprobs 40`, which is killed (SIGKILL) on the way and started again, and `short` a server with its default of 20
log-probabilities, which has to enclose the others. A run that is there is kept.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import environment
from byrote.store.read import read_run

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.models.test_vllm_engine import free_port, serving

SLACK = 1e-4
"""Of a bound, relative: float32 forwards of other batches."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--stride-chars", type=int, default=2300)
    parser.add_argument("--work", type=Path, default=Path("runs/vllm-agreement"))
    parser.add_argument("--out", type=Path, default=environment.RESULTS)
    given = parser.parse_args()
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    texts = [argument for text in given.text for argument in ("--text", text)]
    seconds: dict[str, float] = {}

    def scan(name: str, model: str, *further: str) -> list[str]:
        command = [sys.executable, "-m", "byrote", "scan", "--model", model, *texts, "--out", str(given.work / name)]
        return [*command, "--stride-chars", str(given.stride_chars), *further]

    def run(name: str, *arguments: str) -> None:
        started = time.monotonic()
        subprocess.run(scan(name, *arguments), check=True)
        seconds[name] = round(time.monotonic() - started, 1)

    run("here", given.model)
    run("inside", f"vllm:{given.model}")
    tokenizer = ("--tokenizer", given.model)
    with serving(given.model) as url:
        run("short", f"endpoint:{url}", *tokenizer)
    kills = kill_and_resume(
        given.model, given.work / "served", lambda url: scan("served", f"endpoint:{url}", *tokenizer)
    )
    rows = {name: rows_of(given.work / name) for name in ("here", "inside", "served", "short")}
    found = {name: compared(rows["here"], rows[name]) for name in ("inside", "served")}
    found["short"] = enclosed(rows["here"], rows["short"])
    results = {
        "model": Path(given.model).name,
        "texts": [Path(text).name for text in given.text],
        "windows": len(rows["here"]),
        "vllm": version(),
        "seconds": seconds,
        "token_evals": sum(row["token_evals"] for row in rows["here"]),
        "measuring_seconds": {name: measuring_seconds(given.work / name) for name in ("here", "inside")},
        "against_this_process": found,
        "answers_inside": manifest_of(given.work / "inside")["totals"]["answers"],
        "server_was_killed": kills,
    }
    print(json.dumps(results, indent=2))
    environment.save("vllm_agreement", results, given.out)
    sys.exit(0 if all(each["holds"] for each in found.values()) else 1)


def kill_and_resume(model: str, out: Path, command: Any) -> dict[str, Any]:
    """The scan of a server that is killed as soon as a hundred answers are stored, and started again."""
    port, answers = free_port(), out / "answers.jsonl"
    if (out / "manifest.json").exists():
        return {"answers_before": None}
    with serving(model, "--max-logprobs", "40", port=port) as url:
        scan = subprocess.Popen([*command(url), "--set", "attempts=2"], stderr=subprocess.PIPE, text=True)
        while scan.poll() is None and lines_of(answers) < 100:
            time.sleep(0.2)
    said = scan.communicate()[1].strip().splitlines()[-1:]
    before = lines_of(answers)
    with serving(model, "--max-logprobs", "40", port=port) as url:
        subprocess.run([*command(url), "--set", "attempts=2"], check=True)
    return {
        "exit_code": scan.returncode,
        "said": said,
        "answers_before": before,
        "answers_at_the_end": lines_of(answers),
    }


def lines_of(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def rows_of(run: Path) -> list[dict[str, Any]]:
    return read_run(run).results.sort("window_id").to_dicts()


def manifest_of(run: Path) -> dict[str, Any]:
    return dict(read_run(run).manifest or {})


def measuring_seconds(run: Path) -> float:
    return float(manifest_of(run)["timings"]["measuring_seconds"])


def compared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    """How far `theirs` are from `ours`, in nat and in shares of a mass."""
    assert [row["window_id"] for row in ours] == [row["window_id"] for row in theirs]
    pairs = list(zip(ours, theirs, strict=True))
    log_ps = [(one["log_p_verbatim"], other["log_p_verbatim"]) for one, other in pairs]
    finite = [abs(one - other) for one, other in log_ps if math.isfinite(one) and math.isfinite(other)]
    bounds = [
        abs(a - b)
        for one, other in pairs
        for name in ("mass_lower", "mass_upper")
        for a, b in zip(one[name] or (), other[name] or (), strict=True)
    ]
    found = {
        "windows_with_finite_log_p": len(finite),
        "largest_shift_nats": max(finite, default=0.0),
        "possible_in_one_only": sum(math.isfinite(one) != math.isfinite(other) for one, other in log_ps),
        "verdicts_that_differ": sum(one["verdict"] != other["verdict"] for one, other in pairs),
        "screened_in_one_only": sum(one["was_screened"] != other["was_screened"] for one, other in pairs),
        "largest_shift_of_bounds": max(bounds, default=0.0),
    }
    exact = ("possible_in_one_only", "verdicts_that_differ", "screened_in_one_only")
    return found | {
        "holds": found["largest_shift_nats"] <= 1e-4
        and found["largest_shift_of_bounds"] <= SLACK
        and not any(found[name] for name in exact)
    }


def enclosed(ours: list[dict[str, Any]], capped: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether bounds from short lists enclose those from whole ones, at every ε, and p_z."""
    outside, widths = 0, []
    for one, other in zip(ours, capped, strict=True):
        p = math.exp(one["log_p_verbatim"])
        outside += not other["p_verbatim"] * (1 - SLACK) <= p <= other["p_verbatim_upper"] * (1 + SLACK) + 1e-12
        if one["mass_lower"] is None or other["mass_lower"] is None:
            continue
        for edits in range(len(one["mass_lower"])):
            outside += other["mass_lower"][edits] > one["mass_upper"][edits] * (1 + SLACK)
            outside += one["mass_lower"][edits] > other["mass_upper"][edits] * (1 + SLACK)
        widths.append(other["mass_upper"][-1] - other["mass_lower"][-1])
    return {
        "windows": len(ours),
        "intervals_that_miss": outside,
        "mean_width": sum(widths) / len(widths),
        "holds": not outside,
    }


def version() -> str:
    import vllm

    return str(vllm.__version__)


if __name__ == "__main__":
    main()
