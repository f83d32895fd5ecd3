"""A campaign against the files of runs: one bit changed, a file cut or gone, a file of another run in its place.

    python bench/faults/flips.py [--flips 600] [--seed 0]

Runs of every kind are made by the commands, finished and not, each twice, so that a file of one can be put into the
other. Every fault is made, every reader that there is for that kind of run is asked, and the file is restored. A reader
has to refuse the run by the name of the file; anything else is counted as what it is. The bundle of an exhibit is
unpacked instead: it is refused, or every file comes out as it was. All files are below a temporary folder.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent), str(HERE.parent.parent.parent)]

import environment  # noqa: E402, I001
from flip_runs import KINDS, Reader, cut_after, unpacked  # noqa: E402
from byrote.errors import ByroteError, RunError  # noqa: E402
from byrote.lab.pocket import tiny_model  # noqa: E402
from byrote.longform.report import write_exhibit  # noqa: E402
from tests.scan.scans import TinyLab  # noqa: E402

GROWING = ("journal.jsonl", "answers.jsonl")
"""Of an unfinished run these grow line by line: one that is shorter is what it was before."""


class Run(NamedTuple):
    """A run, its twin of the same identity, and who reads such runs."""

    name: str
    path: Path
    twin: Path
    readers: dict[str, Reader]

    @property
    def is_complete(self) -> bool:
        return not self.name.startswith("unfinished")

    def files(self) -> list[Path]:
        """Every file that the run is made of. The lock holds nothing, the count of requests is read by openings alone,
        and reports are made again at will."""
        found = sorted(path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
        return [path for path in found if path.name not in (".lock", ".requests") and path.parts[0] != "report"]


class Fault(NamedTuple):
    kind: str
    file: Path
    content: bytes | None


class Outcome(NamedTuple):
    what: str
    words: str


BY_NAME = "refused by name"


def make_runs(folder: Path, lab: TinyLab, kinds: Sequence[str]) -> Iterator[Run]:
    for name in kinds:
        kind, paths = KINDS[name], []
        for twin in ("run", "twin"):
            place = folder / name / twin
            place.mkdir(parents=True)
            with cut_after(kind.steps):
                kind.make(lab, place / "run")
            paths.append(place / "run")
        yield Run(name, paths[0], paths[1], kind.readers)


def faults(run: Run, flips: int, rng: random.Random) -> Iterator[Fault]:
    files = run.files()
    for _ in range(flips):
        file = rng.choice(files)
        content = bytearray((run.path / file).read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        yield Fault("bit flipped", file, bytes(content))
    fixed = [file for file in files if run.is_complete or file.name not in GROWING]
    for _ in range(flips // 4):
        file = rng.choice(fixed)
        content = bytearray((run.path / file).read_bytes())
        yield Fault("file cut", file, bytes(content[: rng.randrange(len(content))]))
    for file in fixed:
        yield Fault("file emptied", file, b"")
        if (run.twin / file).exists() and (run.twin / file).read_bytes() != (run.path / file).read_bytes():
            yield Fault("file of another run", file, (run.twin / file).read_bytes())
        if _is_missed(run, file):
            yield Fault("file removed", file, None)


def _is_missed(run: Run, file: Path) -> bool:
    """Not missed: what an unfinished run had not written yet, and the manifest of a run without rows, which is
    unfinished without it."""
    if file == Path("manifest.json"):
        return (run.path / "results.parquet").exists()
    return run.is_complete or file.parts[0] in ("parts", "parts.json")


def outcomes(run: Run, fault: Fault) -> Iterator[Outcome]:
    """What every reader says to the fault."""
    victim = run.path / fault.file
    before = victim.read_bytes()
    victim.unlink() if fault.content is None else victim.write_bytes(fault.content)
    try:
        for name, read in run.readers.items():
            try:
                read(run.path)
            except ByroteError as error:
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


def exhibits(lab: TinyLab, folder: Path, flips: int, rng: random.Random) -> Iterator[Outcome]:
    """One bit at a time of a bundle, unpacked as its README says."""
    (folder / "exhibit").mkdir()
    KINDS["audit"].make(lab, folder / "exhibit" / "run")
    bundle = write_exhibit(folder / "exhibit" / "run").others[0]
    whole, files = bundle.read_bytes(), unpacked(bundle)
    for _ in range(flips):
        content = bytearray(whole)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        bundle.write_bytes(content)
        try:
            is_same = unpacked(bundle) == files
        except RunError:
            yield Outcome(BY_NAME, "")
        except Exception as error:
            yield Outcome("crashed", repr(error))
        else:
            yield Outcome("the same files" if is_same else "silent", "")


def campaign(
    folder: Path, lab: TinyLab, *, flips: int, seed: int, kinds: Sequence[str] = tuple(KINDS)
) -> dict[str, Any]:
    """Counts of what was done and of what became of it, and every outcome that is not as it should be."""
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    files: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    by_kind: dict[str, int] = {}
    wrong: list[str] = []
    each = -(-flips // len(kinds))
    for run in make_runs(folder, lab, kinds):
        for fault in faults(run, each, rng):
            done[fault.kind] += 1
            files[fault.file.name] += 1
            by_kind[run.name] = by_kind.get(run.name, 0) + 1
            for outcome in outcomes(run, fault):
                ended[outcome.what] += 1
                if outcome.what != BY_NAME:
                    wrong.append(f"{run.name}, {fault.file}, {fault.kind}: {outcome.what} ({outcome.words})")
        for name, read in run.readers.items():
            read(run.path)
            ended[f"read again after all faults by {name}"] += 1
    bundles = Counter(outcome.what for outcome in exhibits(lab, folder, each, rng))
    wrong += [f"exhibit.zip: {what}" for what in bundles if what not in (BY_NAME, "the same files")]
    return {
        "seed": seed,
        "faults": dict(done),
        "by_kind": by_kind,
        "files": dict(files),
        "readings": dict(ended),
        "exhibit.zip": dict(bundles),
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny_model(folder / "cache")
        lab = TinyLab(model, model.write_texts(folder / "texts"))
        found = campaign(folder, lab, flips=arguments.flips, seed=arguments.seed)
    print(found["faults"], found["readings"], *found["wrong"][:20], sep="\n")
    print(environment.save("faults_flips", found))


if __name__ == "__main__":
    main()
