"""Write the committed values anew: `python -m tests.golden.generate [CASE …]`.

With `--jitter 1e-6` nothing is written: every model is moved by that much, and the cases must still give the committed
values. That is the margin which another processor's rounding needs.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.golden.cases import CASES, Bench
from tests.golden.compare import differences, plain

VALUES = Path(__file__).parent / "values"


def committed(case: str) -> Any:
    return json.loads((VALUES / f"{case}.json").read_text(encoding="utf-8"))


def computed(case: str, bench: Bench) -> Any:
    return plain(CASES[case].values(bench))


def written(value: Any) -> str:
    """JSON with a line for every entry of the first three levels."""
    return _lines(value, 0) + "\n"


def _lines(value: Any, depth: int) -> str:
    if not isinstance(value, dict) or depth == 3:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    entries = [f"{json.dumps(name, ensure_ascii=False)}: {_lines(one, depth + 1)}" for name, one in value.items()]
    return "{\n" + ",\n".join(entries) + "\n}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="cases to compute; all when none is named")
    parser.add_argument("--jitter", type=float, help="compare with models that are moved by this much")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    apart = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), jitter=given.jitter or 0.0)
        for case in given.cases or CASES:
            found = computed(case, bench)
            if given.jitter is None:
                (VALUES / f"{case}.json").write_text(written(found), encoding="utf-8")
                print(f"{case}: {(VALUES / f'{case}.json').stat().st_size:,} bytes")
                continue
            for words in differences(found, committed(case), CASES[case].tolerance):
                apart += 1
                print(f"{case}{words}")
    return 1 if apart else 0


if __name__ == "__main__":
    raise SystemExit(main())
