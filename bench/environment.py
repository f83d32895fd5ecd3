"""Where and with what a number was measured; every result file carries it."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def environment() -> dict[str, Any]:
    import transformers

    return {
        "commit": _commit(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def save(name: str, results: dict[str, Any], folder: Path | None = None) -> Path:
    target = (folder or RESULTS) / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"environment": environment(), **results}, indent=2) + "\n", encoding="utf-8")
    return target


def _commit() -> str:
    """BENCH_COMMIT says it where the code lies without its repository, as on a bare GPU machine."""
    if commit := os.environ.get("BENCH_COMMIT"):
        return commit
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
