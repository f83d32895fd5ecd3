"""A campaign of kills: runs of every kind that die at any step, and are run again until they are finished.

    python bench/faults/kills.py [--targets scan,prior,…] [--each-step 1] [--random 220] [--seed 0] [--share 0/1]
                                 [--state kills.jsonl] [--name faults_kills]

Two kinds of cases. In the first the process gets SIGKILL at one step of putting files on the disk (every step of an
undisturbed run, or every n-th), and is run again. In the second it is killed several times at moments drawn with a
seed, in the middle of forwards and requests too. After every kill: what was finished is still there and verifies, and
nothing finished was done again. At the end: the rows or findings of a run that was left alone, every file verified, and
nothing littered. Of a scan of an endpoint, what is finished are the server's answers too; of a study, the windows of
its cells.

Cases that are noted in the state file are not done again, so a campaign may be interrupted or shared: `--share 1/3`
does the second third. Everything else is written below a temporary folder. The server is on the loopback interface; a
Ray cluster is started for the target `ray` alone.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent), str(HERE.parent.parent.parent)]

import environment  # noqa: E402, I001
from kill_targets import JOURNAL, Places, Target, targets, verify_all  # noqa: E402
from byrote.errors import RunError  # noqa: E402
from byrote.lab.pocket import tiny_model  # noqa: E402
from byrote.models.hf.model import load  # noqa: E402
from tests.faults.dying import Counted, DyingProcess, Session, Stage, finished, said  # noqa: E402
from tests.loopback.logprobs import LogprobServer  # noqa: E402
from tests.scan.scans import TinyLab  # noqa: E402

MOST_KILLS = 4


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
            verify_all(run)
            return target.finished(run)
        except RunError as error:
            # Killed before its first part, or before its first line.
            if "holds no results" not in str(error) and (run / JOURNAL).exists() == (target.name == "audit"):
                case.faults.append(f"cannot be read: {error}")
            return set()

    def _judge_end(self, target: Target, case: Case, run: Path, repeated: set[str]) -> None:
        if repeated:
            case.faults.append(f"repeated at the end: {sorted(repeated)}")
        if verify_all(run).manifest is None:
            case.faults.append("has no manifest")
        if not target.is_same(run, self.folder / f"{target.name}-undisturbed"):
            case.faults.append("differs from a run that was left alone")
        litter = [
            path.name for path in run.rglob("*") if path.name.endswith("byrote-tmp") or path.name in ("parts", "blocks")
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
        stride = max(each_step, -(-steps // (target.most_steps or steps)))
        for step in range(1, steps + 1, stride):
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
    names: Collection[str] = (),
    places: Places | None = None,
) -> list[Case]:
    """Every case of this share and of the targets named (none: all), those of the state file among them."""
    known = {case.key: case for case in read_state(state)}
    campaign = Campaign(stage, folder)
    played = []
    chosen = [one for one in targets(lab, places or Places(folder)) if not names or one.name in names]
    listed = cases(campaign, chosen, each_step=each_step, random_cases=random_cases, seed=seed)
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


@contextmanager
def stage_of(lab: TinyLab, folder: Path, names: Collection[str]) -> Iterator[tuple[Stage, Places]]:
    """The process that dies, beside a server that lives on and, if it is asked for, a Ray cluster that does too."""
    model = load(str(lab.model.path), device="cpu")
    with LogprobServer(model, lambda text: model.encode_batch([text])[0].ids) as server, ExitStack() as stack:
        cluster = stack.enter_context(ray_cluster()) if "ray" in names else None
        stage = DyingProcess(lab.model.path)
        stack.callback(stage.close)
        yield stage, Places(folder, server.url, cluster)


@contextmanager
def ray_cluster() -> Iterator[str]:
    from byrote.scan import executors as ray_executor
    from byrote.scan.options import RunConfig

    with ray_executor._cluster(RunConfig(executor="ray", workers=1, gpus_per_worker=0)) as ray:
        yield ray.get_runtime_context().gcs_address


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="", help="comma-separated; none: all but ray")
    parser.add_argument("--each-step", type=int, default=1)
    parser.add_argument("--random", type=int, default=220)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--name", default="faults_kills", help="of the result file")
    arguments = parser.parse_args()
    first, all_of = map(int, arguments.share.split("/"))
    names = [name for name in arguments.targets.split(",") if name]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny_model(folder / "cache")
        lab = TinyLab(model, model.write_texts(folder / "texts"))
        with stage_of(lab, folder, names) as (stage, places):
            played = run_campaign(
                stage,
                lab,
                folder,
                each_step=arguments.each_step,
                random_cases=arguments.random,
                seed=arguments.seed,
                share=(first, all_of),
                state=arguments.state,
                names=names,
                places=places,
            )
    found = summary(played, arguments.seed)
    print(json.dumps(found, indent=2))
    if all_of == 1:
        print(environment.save(arguments.name, found))


if __name__ == "__main__":
    main()
