"""A campaign against bad input: readers, options, configuration files and model folders, drawn to break them.

    python bench/faults/inputs.py [--cases 2400] [--seed 0] [--areas readers,model_folders,…] [--name faults_inputs]

Each case runs in this process, through the command's own entry point where a command can be run without a model.
Counted are cases that ended in an exception that is no sentence of ours, or with exit code 70 (traceback); that took
more than two seconds (hang); that were accepted with another value than an independent reading gives (silent); or that
printed what acts on a terminal (acting). Everything is written below a temporary folder; device nodes are only named,
never opened.
"""

import argparse
import contextlib
import faulthandler
import io
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent), str(HERE.parent.parent.parent)]

import environment  # noqa: E402, I001
import input_arrays  # noqa: E402
import input_files  # noqa: E402
import input_models  # noqa: E402
import input_options  # noqa: E402
import input_products  # noqa: E402
from byrote.cli.main import main as byrote  # noqa: E402
from byrote.errors import ByroteError  # noqa: E402
from byrote.printable import printable  # noqa: E402

HANG_SECONDS = 2.0
KILL_SECONDS = 60
AREAS: dict[str, Callable[["Case"], None]] = {
    "readers": input_files.read_texts,
    "json_lines": input_files.read_lines,
    "names": input_files.read_names,
    "options": input_options.give_options,
    "commands": input_options.run_commands,
    "configurations": input_options.read_configurations,
    "model_folders": input_models.load_folder,
    "pairs": input_arrays.read_pair_files,
    "token_ids": input_arrays.read_token_ids,
    "datasets": input_arrays.read_datasets,
    "studies": input_products.read_studies,
    "gates": input_products.judge_gates,
    "risks": input_products.show_risks,
    "merges": input_products.merge_folders,
    "plans": input_products.plan_sizes,
    "endpoints": input_products.name_endpoints,
    "adapters": input_products.load_adapters,
}

EXTRAS = {"datasets": "datasets", "adapters": "peft"}
"""Areas that need a package which is not always there."""
INSTALLED = tuple(area for area in AREAS if area not in EXTRAS or find_spec(EXTRAS[area]) is not None)


@dataclass
class Case:
    """One input: what it was, and what was seen."""

    area: str
    seed: int
    folder: Path
    what: str = ""
    findings: list[str] = field(default_factory=list)
    is_refused: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.area} {self.seed}")

    def refuses(self, act: Callable[[], Any]) -> Any:
        """What `act` gives, or None when it was refused with one of our sentences."""
        try:
            return act()
        except ByroteError as error:
            self.is_refused = True
            self.check_sentence(str(error))
        return None

    def judged(self, *arguments: str) -> None:
        """Run `byrote gate …`, which also tells by 1 and 3 that a limit is passed, or that this cannot be told."""
        self.command(*arguments, judges=True)

    def command(self, *arguments: str, judges: bool = False) -> int:
        """Run `byrote …`; its exit code. What it printed must be harmless, and one sentence when it refuses."""
        printed, said = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
                byrote(list(arguments))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        for text in (printed.getvalue(), said.getvalue()):
            if printable(text, keep="\n") != text:
                self.findings.append("acting")
        if code == 70:
            self.findings.append(f"traceback: {said.getvalue().strip()}")
        elif judges and code in (1, 3) and not said.getvalue():
            self.expect(printed.getvalue().startswith(("fail", "cannot tell")), "a judgement without its finding")
        elif code == 2:
            # Lines before it are phases.
            if not (said.getvalue().splitlines() or [""])[-1].startswith("error: "):
                self.findings.append(f"no sentence: {said.getvalue()!r}")
        elif code != 0:
            self.findings.append(f"exit code {code}")
        return code

    def check_sentence(self, sentence: str) -> None:
        if len(sentence) > 2000 or not sentence.strip():
            self.findings.append(f"no sentence: {sentence[:200]!r}")

    def expect(self, is_true: bool, words: str) -> None:
        if not is_true:
            self.findings.append(f"silent: {words}")


def queued_seconds() -> float:
    """How long this process was ready to run while others had the machine; that is not the input's fault."""
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


def run_case(area: str, seed: int, folder: Path) -> Case:
    case = Case(area, seed, folder)
    started, queued = time.perf_counter(), queued_seconds()
    faulthandler.dump_traceback_later(KILL_SECONDS, exit=True)  # a case that waits forever ends the campaign, loudly
    try:
        AREAS[area](case)
    except BaseException as error:  # what no user may ever see
        if isinstance(error, KeyboardInterrupt):
            raise
        case.findings.append(f"traceback: {type(error).__name__}: {error}"[:300])
    faulthandler.cancel_dump_traceback_later()
    seconds = time.perf_counter() - started - (queued_seconds() - queued)
    if seconds > HANG_SECONDS:
        case.findings.append(f"hang: {seconds:.1f} s")
    return case


def campaign(cases: int, seed: int, areas: Sequence[str] = INSTALLED) -> dict[str, Any]:
    """Counts over the areas; every finding with what reproduces it."""
    counts: Counter[str] = Counter()
    by_area: dict[str, Counter[str]] = {area: Counter() for area in areas}
    findings: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="byrote-inputs-") as root:
        input_models.warm_up(Path(root))
        for number in range(cases):
            area = areas[number % len(areas)]
            folder = Path(root) / f"{number:06d}"
            folder.mkdir()
            case = run_case(area, seed * 1_000_000 + number, folder)
            by_area[area]["cases"] += 1
            by_area[area]["refused" if case.is_refused else "accepted"] += 1
            for finding in case.findings:
                counts[finding.split(":")[0]] += 1
                findings.append({"area": area, "seed": case.seed, "what": case.what[:300], "finding": finding[:500]})
    kinds = ("traceback", "hang", "silent", "acting", "no sentence")
    return {
        "cases": cases,
        "seed": seed,
        "counts": {kind: counts.get(kind, 0) for kind in kinds},
        "by_area": {area: dict(counter) for area, counter in by_area.items()},
        "findings": findings,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--areas", default=",".join(INSTALLED))
    parser.add_argument("--name", default="faults_inputs", help="of the result file")
    chosen = parser.parse_args()
    started = time.perf_counter()
    results = campaign(chosen.cases, chosen.seed, chosen.areas.split(","))
    for finding in results["findings"][:40]:
        print(finding)
    print(results["counts"], results["by_area"], f"{time.perf_counter() - started:.0f} s")
    if not results["findings"]:
        environment.save(chosen.name, results)
    sys.exit(1 if results["findings"] else 0)


if __name__ == "__main__":
    main()
