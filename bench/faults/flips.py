"""A campaign against the files of runs: one bit changed, a file cut, a file of another run put in the place of its own.

    python bench/faults/flips.py [--flips 600] [--seed 0]

Runs of every kind are made by the production code, finished and not, each twice, so that a file of one can be put into
the other. Every fault is made, every reader that there is for that kind of run is asked, and the file is restored. A
reader has to refuse the run by the name of the file; anything else is counted as what it is. All files are below a
temporary folder.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent.parent)]

import environment  # noqa: E402, I001
from rote.errors import RoteError  # noqa: E402
from rote.longform.journal import read_journal  # noqa: E402
from rote.longform.run import JOURNAL  # noqa: E402
from rote.prior import estimate, run as prior_run  # noqa: E402
from rote.prior.options import PriorConfig  # noqa: E402
from rote.report.view import load_view  # noqa: E402
from rote.store.export import export_run  # noqa: E402
from rote.store.read import read_run  # noqa: E402
from rote.store.verify import verify_run  # noqa: E402
from tests.longform.audits import InProcess, invented_book, make_run  # noqa: E402
from tests.longform.test_audit_resume import Killed, kill_at_line, run_in_process  # noqa: E402
from tests.loopback.brains import KnowsByHeart  # noqa: E402
from tests.models.tiny import tiny_model, tiny_tokenizer  # noqa: E402
from tests.report.synthetic_run import books, write_run  # noqa: E402

Reader = Callable[[Path], object]
BOOK = invented_book(260)
TEXT = "Ada Byron lives at 12 Mill Lane. The kettle sings and the cat sleeps by the door. " * 3


class Run(NamedTuple):
    """A run, its twin of the same identity, and who reads such runs."""

    name: str
    path: Path
    twin: Path
    readers: dict[str, Reader]

    def files(self) -> list[Path]:
        """Every file that the run is made of. The lock holds nothing, and reports are made again at will."""
        found = sorted(path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
        return [path for path in found if path.name != ".lock" and path.parts[0] != "report"]


class Fault(NamedTuple):
    kind: str
    file: Path
    content: bytes


class Outcome(NamedTuple):
    what: str
    words: str


BY_NAME = "refused by name"


class Stopped(Exception):
    """Ends a run before it is finished."""


class StopsAfter:
    """Progress that ends a run after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        yield

    def start(self, total: int, done: int) -> None: ...

    def remark(self, words: str) -> None: ...

    def advance(self, windows: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise Stopped


def make_runs(folder: Path) -> list[Run]:
    rows: dict[str, Reader] = {"verify-run": verify_run, "Python": lambda path: read_run(path).results}
    scans = rows | {
        "show and report": load_view,
        "export": lambda path: export_run(path, format="jsonl", out=folder / "export.jsonl"),
    }
    makers: dict[str, tuple[Callable[[Path, int], None], dict[str, Reader]]] = {
        "scan": (lambda path, seed: _scan(path, seed, is_complete=True), scans),
        "unfinished scan": (lambda path, seed: _scan(path, seed, is_complete=False), scans),
        "prior": (lambda path, seed: _prior(folder, path, 10**9), rows),
        "unfinished prior": (lambda path, seed: _prior(folder, path, 3), rows),
        "audit": (lambda path, seed: _audit(path, None), {"verify-run": _verify_audit}),
        "unfinished audit": (lambda path, seed: _audit(path, 7), {"verify-run": _verify_audit}),
    }
    runs = []
    for name, (make, readers) in makers.items():
        path, twin = folder / name / "run", folder / name / "twin"
        make(path, 1)
        make(twin, 2)
        runs.append(Run(name, path, twin, readers))
    return runs


def _scan(path: Path, seed: int, *, is_complete: bool) -> None:
    write_run(path, books(2500)[:2], seed=seed, stride=60, is_complete=is_complete)


def _prior(folder: Path, out: Path, steps: int) -> None:
    place = folder / "place"
    if not place.exists():
        place.mkdir()
        tiny_model("llama", vocab_size=258).save_pretrained(place / "model")
        tiny_tokenizer().save_pretrained(place / "model")
        (place / "text.txt").write_text(TEXT, encoding="utf-8")
    text, estimate.BLOCK_PREFIXES = (str(place / "text.txt"),), 4
    config = PriorConfig(
        model=str(place / "model"), prior_text=text, text=text, out=str(out),
        prefix_tokens=6, suffix_tokens=3, prior_prefixes=20, trials=2, limit=4, least_ratio=2.0,
    )  # fmt: skip
    with suppress(Stopped):
        prior_run.prior_to_folder(config, progress=StopsAfter(steps))


def _audit(path: Path, line: int | None) -> None:
    import pytest

    path.parent.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        if line is not None:
            kill_at_line(patch, line, "after")
        run_in_process(make_run(BOOK, path), InProcess(KnowsByHeart(BOOK)))


def _verify_audit(path: Path) -> None:
    """As `rote verify-run` does: the files, then the journal's own chain."""
    read_journal(path / JOURNAL, verify_run(path).identity.run_id)


def faults(run: Run, flips: int, rng: random.Random) -> Iterator[Fault]:
    files = run.files()
    for _ in range(flips):
        file = rng.choice(files)
        content = bytearray((run.path / file).read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        yield Fault("bit flipped", file, bytes(content))
    # The journal of an unfinished audit grows line by line: one that is shorter is what it was before.
    fixed = [file for file in files if run.name != "unfinished audit" or file.name != JOURNAL]
    for _ in range(flips // 4):
        file = rng.choice(fixed)
        content = bytearray((run.path / file).read_bytes())
        yield Fault("file cut", file, bytes(content[: rng.randrange(len(content))]))
    for file in fixed:
        yield Fault("file emptied", file, b"")
        if (run.twin / file).exists() and (run.twin / file).read_bytes() != (run.path / file).read_bytes():
            yield Fault("file of another run", file, (run.twin / file).read_bytes())


def outcomes(run: Run, fault: Fault) -> Iterator[Outcome]:
    """What every reader says to the fault."""
    victim = run.path / fault.file
    before = victim.read_bytes()
    victim.write_bytes(fault.content)
    try:
        for name, read in run.readers.items():
            try:
                read(run.path)
            except RoteError as error:
                yield Outcome(
                    BY_NAME if _is_named(fault, str(error)) else "refused by another name", f"{name}: {error}"
                )
            except Exception as error:
                yield Outcome("crashed", f"{name}: {error!r}")
            else:
                yield Outcome("silent", name)
    finally:
        victim.write_bytes(before)


def _is_named(fault: Fault, sentence: str) -> bool:
    """An identity of another run does not fit the other files: the sentence may name one of those instead."""
    is_identity = fault.kind == "file of another run" and fault.file.name == "identity.json"
    return fault.file.name in sentence or (is_identity and "another run" in sentence)


def campaign(folder: Path, *, flips: int, seed: int) -> dict[str, Any]:
    """Counts of what was done and of what became of it, and every outcome that is not as it should be."""
    rng = random.Random(seed)
    runs = make_runs(folder)
    done: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    wrong: list[str] = []
    for run in runs:
        for fault in faults(run, flips // len(runs), rng):
            done[fault.kind] += 1
            for outcome in outcomes(run, fault):
                ended[outcome.what] += 1
                if outcome.what != BY_NAME:
                    wrong.append(f"{run.name}, {fault.file}, {fault.kind}: {outcome.what} ({outcome.words})")
        for name, read in run.readers.items():
            read(run.path)
            ended[f"read again after all faults by {name}"] += 1
    return {"seed": seed, "faults": dict(done), "readings": dict(ended), "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = campaign(Path(folder), flips=arguments.flips, seed=arguments.seed)
    print(found["faults"], found["readings"], *found["wrong"][:20], sep="\n")
    print(environment.save("faults_flips", found))


if __name__ == "__main__":
    main()
