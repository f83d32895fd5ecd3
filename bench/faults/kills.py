"""A campaign of kills: scans, priors and audits that die at any step, and are run again until they are finished.

    python bench/faults/kills.py [--each-step 1] [--random 220] [--seed 0] [--share 0/1] [--state kills.jsonl]

Two kinds of cases. In the first the process gets SIGKILL at one step of putting files on the disk (every step of an
undisturbed run, or every n-th), and is run again. In the second it is killed several times at moments drawn with a
seed, in the middle of forwards and requests too. After every kill: what was finished is still there and verifies, and
nothing finished was done again. At the end: the rows or findings of a run that was left alone, every file verified, and
nothing littered.

Cases that are noted in the state file are not done again, so a campaign may be interrupted or shared: `--share 1/3`
does the second third. Everything else is written below a temporary folder.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent.parent)]

import environment  # noqa: E402, I001
import polars as pl  # noqa: E402
from polars.testing import assert_frame_equal  # noqa: E402
from rote.errors import RunError  # noqa: E402
from rote.lab.pocket import tiny_model  # noqa: E402
from rote.longform.journal import read_journal  # noqa: E402
from rote.longform.run import JOURNAL  # noqa: E402
from rote.store.read import read_run  # noqa: E402
from rote.store.verify import verify_run  # noqa: E402
from tests.faults.dying import Counted, DyingProcess, Session, Stage, finished, said  # noqa: E402
from tests.longform.audits import invented_book  # noqa: E402
from tests.scan.scans import TinyLab, scan_arguments  # noqa: E402

BOOK = invented_book(260)
MOST_KILLS = 4


class Target(NamedTuple):
    """A kind of run: its command, what it has finished, and whether it is the run it should be."""

    name: str
    arguments: Callable[[Path], list[str]]
    finished: Callable[[Path], set[str]]
    is_same: Callable[[Path, Path], bool]


@dataclass
class Case:
    """What was done to one run, and what was found wrong."""

    target: str
    mode: str
    number: int
    kills: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.target, self.mode, self.number


def targets(lab: TinyLab) -> list[Target]:
    def prior(out: Path) -> list[str]:
        small = {
            "prefix-tokens": 8,
            "suffix-tokens": 4,
            "prior-prefixes": 24,
            "trials": 2,
            "limit": 4,
            "least-ratio": 2,
        }
        options = [word for name, value in small.items() for word in (f"--{name}", str(value))]
        texts = ["--text", str(lab.files.targets), "--prior-text", str(lab.files.controls)]
        return ["prior", "--model", str(lab.model.path), "--out", str(out), "--device", "cpu", *texts, *options]

    def scan(out: Path) -> list[str]:
        return scan_arguments(lab, out, limit=9, part_windows=2, slots=3, batch_windows=2)

    return [
        Target("scan", scan, _windows, _same_rows),
        Target("prior", prior, _blocks, _same_rows),
        Target("audit", lambda out: ["in-process-audit", BOOK, str(out)], _answers, _same_findings),
    ]


def _windows(run: Path) -> set[str]:
    return set(read_run(run).results["window_id"])


def _blocks(run: Path) -> set[str]:
    """A prior works block by block; its rows are written at once, at the end."""
    return {path.stem for path in (run / "blocks").glob("*.parquet")}


def _answers(run: Path) -> set[str]:
    return {record["place"] for record in read_journal(run / JOURNAL) if record["kind"] == "answer"}


def _same_rows(run: Path, expected: Path) -> bool:
    """Windows that share a forward move each other's numbers by rounding, and by nothing else."""
    with suppress(AssertionError):
        for table in ("results.parquet", "continuations.parquet"):
            if (expected / table).exists():
                rows, wanted = pl.read_parquet(run / table), pl.read_parquet(expected / table)
                assert_frame_equal(rows, wanted, rel_tol=1e-5, abs_tol=1e-12)
        return True
    return False


def _same_findings(run: Path, expected: Path) -> bool:
    return (run / "findings.json").read_bytes() == (expected / "findings.json").read_bytes()


class Campaign:
    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage, self.folder = stage, folder

    def undisturbed(self, target: Target, *, counted: Counted) -> int:
        """How many moments a run has that is left alone."""
        run = self.folder / f"{target.name}-undisturbed"
        shutil.rmtree(run, ignore_errors=True)
        ended = self.stage(Session(target.arguments(run), self._log(target), counted=counted))
        assert ended.status == 0, said(Path(self._log(target)))
        return ended.moments

    def play(self, target: Target, case: Case, moments: Iterator[int], *, counted: Counted) -> Case:
        """Kill at every one of `moments`, then let the run finish, and look."""
        run = self.folder / f"{target.name}-{case.mode}-{case.number}"
        for moment in moments:
            if not self._kill(target, case, run, moment, counted=counted):
                break
        before = self._finished(target, case, run)
        log = self._log(target)
        ended = self.stage(Session(target.arguments(run), log))
        if ended.status != 0:
            case.faults.append(f"could not be finished: {said(Path(log))}")
        else:
            self._judge_end(target, case, run, before & set(finished(Path(log))))
        shutil.rmtree(run, ignore_errors=True)
        return case

    def _kill(self, target: Target, case: Case, run: Path, moment: int, *, counted: Counted) -> bool:
        """Whether the process was killed; it may have been finished before that."""
        before, log = self._finished(target, case, run), self._log(target)
        ended = self.stage(Session(target.arguments(run), log, moment, counted=counted))
        if ended.status != -signal.SIGKILL:
            if ended.status != 0:
                case.faults.append(f"ended with {ended.status}: {said(Path(log))}")
            return False
        case.kills += 1
        if (run / "manifest.json").exists():
            return False
        if before - self._finished(target, case, run):
            case.faults.append(f"lost after a kill at {moment}")
        if before & set(finished(Path(log))):
            case.faults.append(f"repeated after a kill at {moment}")
        return True

    def _finished(self, target: Target, case: Case, run: Path) -> set[str]:
        if not (run / "identity.json").exists():
            return set()
        try:
            verify_run(run)
            return target.finished(run)
        except RunError as error:
            # Killed before its first part, or before its first line.
            if "holds no results" not in str(error) and (run / JOURNAL).exists() == (target.name == "audit"):
                case.faults.append(f"cannot be read: {error}")
            return set()

    def _judge_end(self, target: Target, case: Case, run: Path, repeated: set[str]) -> None:
        if repeated:
            case.faults.append(f"repeated at the end: {sorted(repeated)}")
        if verify_run(run).manifest is None:
            case.faults.append("has no manifest")
        if not target.is_same(run, self.folder / f"{target.name}-undisturbed"):
            case.faults.append("differs from a run that was left alone")
        litter = [
            path.name for path in run.rglob("*") if path.name.endswith("rote-tmp") or path.name in ("parts", "blocks")
        ]
        if litter:
            case.faults.append(f"littered: {litter}")

    def _log(self, target: Target) -> str:
        """A new log, so that every session has its own."""
        return str(Path(tempfile.mkdtemp(dir=self.folder)) / target.name)


def cases(campaign: Campaign, chosen: list[Target], *, each_step: int, random_cases: int, seed: int) -> Iterator[Any]:
    """(target, case, moments, what they count), in a fixed order."""
    for target in chosen:
        steps = campaign.undisturbed(target, counted="files")
        for step in range(1, steps + 1, each_step):
            yield target, Case(target.name, "step", step), [step], "files"
    for target in chosen:
        moments = campaign.undisturbed(target, counted="all")
        for number in range(random_cases // len(chosen)):
            drawn = random.Random(f"{seed} {target.name} {number}")
            kills = [drawn.randint(1, max(2, moments // 2)) for _ in range(drawn.randint(2, MOST_KILLS))]
            yield target, Case(target.name, f"random-{seed}", number), kills, "all"


def run_campaign(
    stage: Stage,
    lab: TinyLab,
    folder: Path,
    *,
    each_step: int = 1,
    random_cases: int = 220,
    seed: int = 0,
    share: tuple[int, int] = (0, 1),
    state: Path | None = None,
) -> list[Case]:
    """Every case of this share, those of the state file among them."""
    known = {case.key: case for case in read_state(state)}
    campaign = Campaign(stage, folder)
    played = []
    listed = cases(campaign, targets(lab), each_step=each_step, random_cases=random_cases, seed=seed)
    for place, (target, case, moments, counted) in enumerate(listed):
        if place % share[1] != share[0]:
            continue
        if case.key not in known:
            known[case.key] = campaign.play(target, case, iter(moments), counted=counted)
            note(state, case)
        played.append(known[case.key])
    return played


def read_state(state: Path | None) -> list[Case]:
    if state is None or not state.exists():
        return []
    return [Case(**json.loads(line)) for line in state.read_text(encoding="utf-8").splitlines()]


def note(state: Path | None, case: Case) -> None:
    if state is not None:
        with state.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(case)) + "\n")


def summary(played: list[Case], seed: int) -> dict[str, Any]:
    counted: dict[str, Counter[str]] = {}
    for case in played:
        counts = counted.setdefault(f"{case.target}, {case.mode.partition('-')[0]}", Counter())
        counts.update(cases=1, kills=case.kills, faults=len(case.faults))
    return {
        "seed": seed,
        "cases": len(played),
        "kills": sum(case.kills for case in played),
        "by_kind": {name: dict(counts) for name, counts in counted.items()},
        "faults": [f"{case.key}: {fault}" for case in played for fault in case.faults],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each-step", type=int, default=1)
    parser.add_argument("--random", type=int, default=220)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--state", type=Path)
    arguments = parser.parse_args()
    first, all_of = map(int, arguments.share.split("/"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny_model(folder / "cache")
        lab = TinyLab(model, model.write_texts(folder / "texts"))
        stage = DyingProcess(model.path)
        try:
            played = run_campaign(
                stage,
                lab,
                folder,
                each_step=arguments.each_step,
                random_cases=arguments.random,
                seed=arguments.seed,
                share=(first, all_of),
                state=arguments.state,
            )
        finally:
            stage.close()
    found = summary(played, arguments.seed)
    print(json.dumps(found, indent=2))
    if all_of == 1:
        print(environment.save("faults_kills", found))


if __name__ == "__main__":
    main()
