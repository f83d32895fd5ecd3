"""Shards into one run: the rows, the audited sample and the manifest of a scan that was never divided.

What a shard searches depends on each window, its screen score and the options alone, so its rows are those of the run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from byrote.corpus.read import Document
from byrote.errors import RunError
from byrote.options import build
from byrote.progress import Progress
from byrote.scan.options import RunConfig, Shard, parse_shard
from byrote.scan.run import open_session, require_true_bounds, totals_of
from byrote.store.manifest import differences
from byrote.store.parts import ByPlace, Order
from byrote.store.read import StoredRun, read_finished, read_run
from byrote.store.tables import open_parquet, stored_ids
from byrote.types import Split

Row = dict[str, Any]
SHARD_FACTS = ("run_id", "written_at", "command_line", "device", "versions", "timings", "workers", "served")
"""Of a shard's manifest: where and how it was measured."""


class StoredShard(NamedTuple):
    """A finished shard."""

    shard: Shard
    run: StoredRun
    manifest: Mapping[str, Any]

    @property
    def whole(self) -> dict[str, Any]:
        """What the whole run is known by."""
        return {name: value for name, value in self.run.identity.items() if name != "shard"}


def merge_shards(out: Path, folders: Sequence[Path], *, progress: Progress, command_line: Sequence[str] = ()) -> Path:
    """Write the run that the shards in `folders` make up; started again, it resumes."""
    with progress.phase("checking shards"):
        shards = require_one_run([read_shard(folder) for folder in folders])
    first = shards[0]
    config: RunConfig = build(RunConfig, {**first.manifest["config"], "shard": None, "out": str(out)}, place=str(out))
    with open_session(config, first.whole) as session:
        if session.is_complete:
            require_true_bounds((read_run(session.path).manifest or {})["totals"], session.path)
            return session.path
        session.write_texts(
            Document.from_text(row["name"], row["text"], split=Split(row["split"]), content_hash=row["content_hash"])
            for row in _rows(() if first.run.texts_file is None else (first.run.texts_file,))
        )
        finished = session.finished
        progress.start(sum(shard.manifest["totals"]["windows"] for shard in shards), len(finished))
        for shard in shards:
            for row, continuations in _rows_with_continuations(shard.run):
                if row["window_id"] not in finished:
                    session.add(row, continuations)
                    progress.advance(1)
        session.flush()
        with progress.phase("writing results"):
            totals = totals_of(session.path, config)
            session.complete(_manifest(shards, config, totals, command_line), order=_order(shards, config))
            require_true_bounds(totals, session.path)
    return out


def read_shard(folder: Path) -> StoredShard:
    """A finished shard of a scan; anything else is refused by its name."""
    run, manifest = read_finished(folder, "scan")
    if "shard" not in run.identity:
        raise RunError(f"{folder} is no shard but a scan of its own; give folders of byrote scan --shard 0/3 ….")
    return StoredShard(parse_shard(run.identity["shard"]), run, manifest)


def require_one_run(shards: Sequence[StoredShard]) -> list[StoredShard]:
    """The shards in their order, each there once and all of one run; else a RunError names what is wrong."""
    first = shards[0]
    for other in shards[1:]:
        places = (f"in {first.run.path}", f"in {other.run.path}")
        here = {"shards": first.shard.count, **first.whole}
        found = list(differences(here, {"shards": other.shard.count, **other.whole}, places=places))
        if found:
            raise RunError(
                f"{first.run.path} and {other.run.path} are shards of different runs: {'; '.join(found[:4])}."
            )
    by_index: dict[int, StoredShard] = {}
    for one in shards:
        twin = by_index.setdefault(one.shard.index, one)
        if twin is not one:
            raise RunError(f"shard {one.shard} is given twice, as {twin.run.path} and {one.run.path}; take one away.")
    missing = [str(Shard(index, first.shard.count)) for index in range(first.shard.count) if index not in by_index]
    if missing:
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise RunError(f"shard {', '.join(missing[:8])}{more} is missing; give the folders of all shards.")
    return [by_index[index] for index in sorted(by_index)]


def _rows_with_continuations(run: StoredRun) -> Iterator[tuple[Row, list[Row]]]:
    """Both tables are in window order, so one walk through each is enough."""
    further = _rows(run.continuation_files or ())
    ahead = next(further, None)
    for row in _rows(run.result_files):
        continuations: list[Row] = []
        while ahead is not None and ahead["window_id"] == row["window_id"]:
            continuations.append(ahead)
            ahead = next(further, None)
        yield row, continuations


def _rows(files: Sequence[Path]) -> Iterator[Row]:
    for path in files:
        with open_parquet(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                yield from batch.to_pylist()


def _order(shards: Sequence[StoredShard], config: RunConfig) -> Order:
    """Texts: by document and place. Pairs were dealt out in turn, and are taken back in turn."""
    if not config.pairs:
        windows = sum(shard.manifest["totals"]["windows"] for shard in shards)
        return ByPlace(list(shards[0].manifest["texts"]), windows)
    dealt = zip_longest(*(stored_ids(shard.run.result_files[0]).to_pylist() for shard in shards))
    return [window_id for window_id in chain.from_iterable(dealt) if window_id is not None]


def _manifest(
    shards: Sequence[StoredShard], config: RunConfig, totals: Mapping[str, Any], command_line: Sequence[str]
) -> dict[str, Any]:
    first = shards[0].manifest
    seconds = [shard.manifest["timings"].get("measuring_seconds", 0.0) for shard in shards]
    return {
        "config": config.as_dict(),
        "texts": {name: _text(name, shards) for name in first["texts"]},
        "model": first["model"],
        "device": first["device"],
        "prompt": first["prompt"],
        "seed": config.seed,
        "command_line": command_line,
        "timings": {"measuring_seconds": sum(seconds), "longest_shard_seconds": max(seconds)},
        "totals": {**first["totals"], **totals},
        "shards": [
            {"shard": str(one.shard), **{name: one.manifest[name] for name in SHARD_FACTS if name in one.manifest}}
            for one in shards
        ],
    }


def _text(name: str, shards: Sequence[StoredShard]) -> dict[str, Any]:
    """What is known of a document: counts of all shards, and its copies where all that have windows of it agree."""
    entries = [shard.manifest["texts"][name] for shard in shards]
    counted = Counter[str]()
    for entry in entries:
        counted.update({count: entry[count] for count in ("windows", "short_windows")})
    known = {key: value for key, value in entries[0].items() if key != "copies"}
    copies = {entry.get("copies") for entry in entries if entry["windows"]}
    agreed = copies.pop() if len(copies) == 1 else None
    return known | counted | ({} if agreed is None else {"copies": agreed})
