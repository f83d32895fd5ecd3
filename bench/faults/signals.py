"""A campaign of signals: every command that works for long is asked to stop at any moment.

    python bench/faults/signals.py [--moments 4] [--seed 0]

Each case sends one signal at a moment drawn with a seed: a step of putting files on the disk, a forward, a request. The
command has to end with 130, 143 or 129 and one sentence; everything finished before is there and verifies, nothing is
littered, and the same command then ends like one that was left alone. The server of the audit is on the loopback
interface. Everything is written below a temporary folder.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent), str(HERE.parent.parent.parent)]

import environment  # noqa: E402, I001
from kill_targets import BOOK, Target, Places, _once, answers, same_findings, targets, verify_all  # noqa: E402
from byrote.cli.entry import SENTENCE, SIGNALS  # noqa: E402
from byrote.errors import RunError  # noqa: E402
from byrote.lab.pocket import tiny_model  # noqa: E402
from tests.faults.dying import DyingProcess, Session, Stage, finished, said  # noqa: E402
from tests.loopback.brains import KnowsByHeart  # noqa: E402
from tests.loopback.server import LoopbackServer  # noqa: E402
from tests.scan.scans import TinyLab, scan_arguments  # noqa: E402

NAMES = ("scan", "prior", "merge", "study", "mc", "recall", "audit", "report")


def stopped_targets(lab: TinyLab, folder: Path, url: str) -> Iterator[Target]:
    """The kinds of runs that are killed too; the audit by its command, and a report of a scan."""
    yield from (one for one in targets(lab, Places(folder)) if one.name != "audit")
    yield Target("audit", lambda out: _audit(folder, url, out), answers, same_findings)
    yield Target("report", lambda out: _report(lab, folder, out), lambda out: set(), _same_pages)


def _audit(folder: Path, url: str, out: Path) -> list[str]:
    small, book = folder / "audit.yaml", folder / "audited.txt"
    sizes = {"prefix_words": 20, "target_words": 20, "first_max_tokens": 50, "settings": {"max_tokens": 60}}
    small.write_text(json.dumps(sizes), encoding="utf-8")
    book.write_text(BOOK, encoding="utf-8")
    asked = ["--endpoint", url, "--model", "loopback", "--book", str(book), "--config", str(small)]
    return ["audit", *asked, "--out", str(out)]


def _report(lab: TinyLab, folder: Path, out: Path) -> list[str]:
    scan = folder / "reported"
    _once(scan, scan_arguments(lab, scan, limit=12))
    return ["report", str(scan), "--out", str(out)]


def _same_pages(out: Path, expected: Path) -> bool:
    def names(folder: Path) -> set[str]:
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

    return names(out) == names(expected)


class Signals:
    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage, self.folder = stage, folder

    def moments(self, target: Target) -> int:
        """How many moments an undisturbed run has; it stays, to be compared with."""
        ended = self.stage(Session(target.arguments(self._place(target)), self._log()))
        assert ended.status == 0, target.name
        return ended.moments

    def play(self, target: Target, number: int, moment: int) -> list[str]:
        """What was found wrong."""
        out, log = self.folder / f"{target.name}-{int(number)}-{moment}", self._log()
        ended = self.stage(Session(target.arguments(out), log, moment, int(number)))
        wrong = [] if ended.status == 128 + number else [f"ended with {ended.status}: {said(Path(log))!r}"]
        if ended.status != 0 and said(Path(log)).splitlines()[-1:] != [SENTENCE]:
            wrong.append(f"said {said(Path(log))!r}")
        kept = self._kept(target, out, wrong)
        second = self._log()
        again = self.stage(Session(target.arguments(out), second))
        if again.status != 0:
            wrong.append(f"could not be finished: {said(Path(second))!r}")
        elif not target.is_same(out, self._place(target)):
            wrong.append("differs from one that was left alone")
        if target.name not in ("prior", "audit") and kept & set(finished(Path(second))):
            wrong.append("did something again")
        shutil.rmtree(out, ignore_errors=True)
        return wrong

    def _kept(self, target: Target, out: Path, wrong: list[str]) -> set[str]:
        if litter := [path.name for path in out.rglob("*") if path.name.endswith("byrote-tmp")]:
            wrong.append(f"littered: {litter}")
        if not (out / "identity.json").exists():
            return set()
        try:
            verify_all(out)
            return target.finished(out)
        except RunError as error:
            if "holds no results" not in str(error) and target.name != "audit":
                wrong.append(f"cannot be read: {error}")
            return set()

    def _place(self, target: Target) -> Path:
        return self.folder / f"{target.name}-undisturbed"

    def _log(self) -> str:
        return str(Path(tempfile.mkdtemp(dir=self.folder)) / "log")


@contextmanager
def stage_of(lab: TinyLab, folder: Path) -> Iterator[tuple[Signals, list[Target]]]:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        stage = DyingProcess(lab.model.path)
        try:
            yield Signals(stage, folder), list(stopped_targets(lab, folder, server.url))
        finally:
            stage.close()


def campaign(
    lab: TinyLab,
    folder: Path,
    *,
    moments: int,
    seed: int,
    names: Collection[str] = NAMES,
    numbers: Sequence[signal.Signals] = SIGNALS,
) -> dict[str, Any]:
    cases: Counter[str] = Counter()
    wrong: list[str] = []
    with stage_of(lab, folder) as (signals, all_targets):
        for target in all_targets:
            if target.name not in names:
                continue
            drawn, most = random.Random(f"{seed} {target.name}"), signals.moments(target)
            for number in numbers:
                for _ in range(moments):
                    moment = drawn.randint(1, max(1, most - 1))
                    cases[target.name] += 1
                    found = signals.play(target, number, moment)
                    wrong += [f"{target.name}, {number.name} at {moment} of {most}: {one}" for one in found]
    return {"seed": seed, "cases": sum(cases.values()), "by_command": dict(cases), "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", default=",".join(NAMES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny_model(folder / "cache")
        lab = TinyLab(model, model.write_texts(folder / "texts"))
        found = campaign(
            lab, folder, moments=arguments.moments, seed=arguments.seed, names=arguments.commands.split(",")
        )
    print(json.dumps(found, indent=2))
    print(environment.save("faults_signals", found))


if __name__ == "__main__":
    main()
