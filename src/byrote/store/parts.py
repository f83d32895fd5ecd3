"""A set of window ids that weighs what its gaps weigh: a scan that has finished ten million windows of texts, in about
the order of the texts, holds a few numbers a document.

What is kept of an id is a key of 126 bits. The key of `<document>@<start>` is the hash of the document's name, plus the
start: the keys of a whole document are a sum of arrays, and windows that lie a stride apart become one interval. That
two of 10^8 windows share a key has a chance below 10^-20.
"""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from byrote.errors import DamageError, RunError
from byrote.store.columns import Schema
from byrote.store.files import make_folder, read_sealed_json, write_sealed_json
from byrote.store.folder import Part, RunFolder
from byrote.store.merge import MergePlan, Order, merge_parts
from byrote.store.tables import arrow_schema, open_parquet, open_table, write_batches, write_table

RECENT = 1 << 16
"""Keys that are held one by one before they join the intervals."""
PLACE_BITS = 63
"""Places are below 2^63: a hash of 62 bits, plus a start."""
_PLACE = re.compile(r"(.*[@#])(0|[1-9][0-9]{0,17})", re.DOTALL | re.ASCII)

Numbers = NDArray[np.uint64]
Keys = Numbers
"""[2, ids]: hashes of documents, and places."""
Place = TypeVar("Place", int, Numbers)


class _Intervals(NamedTuple):
    """Disjoint and sorted, by document and `low`; `high` is the first place behind one. Places are turned."""

    documents: Numbers
    low: Numbers
    high: Numbers

    def select(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> "_Intervals":
        return _Intervals(*(column[which] for column in self))


class IdSet:
    """Ids as intervals of keys, and the newest ones as they come. What it holds does not depend on `stride`; what it
    weighs does."""

    def __init__(self, ids: Iterable[str] = (), *, stride: int = 1) -> None:
        self._stride, self._span = stride, (1 << PLACE_BITS) // stride + 1
        self._recent: defaultdict[int, set[int]] = defaultdict(set)
        self._recent_keys = 0
        self._intervals = _Intervals(*np.empty((3, 0), np.uint64))
        self.update(ids)

    def update(self, ids: Iterable[str]) -> None:
        for window_id in ids:
            document, place = _key(window_id)
            self._recent_keys += place not in self._recent[document]
            self._recent[document].add(place)
            if self._recent_keys >= RECENT:
                self._join(_keys((document, place) for document, places in self._recent.items() for place in places))
                self._recent, self._recent_keys = defaultdict(set), 0

    def add_keys(self, pieces: Iterable[Keys]) -> None:
        """Many at once; sorted some pieces at a time, so that neither time nor memory grows with all of them."""
        waiting: list[Keys] = []
        for keys in pieces:
            waiting.append(keys)
            if sum(one.shape[1] for one in waiting) >= RECENT:
                self._join(np.concatenate(waiting, axis=1))
                waiting = []
        if waiting:
            self._join(np.concatenate(waiting, axis=1))

    @property
    def pieces(self) -> int:
        """What memory grows with: intervals, and the newest keys."""
        return self._intervals.low.size + self._recent_keys

    def __len__(self) -> int:
        return int((self._intervals.high - self._intervals.low).sum()) + self._recent_keys

    def __contains__(self, window_id: str) -> bool:
        document, place = _key(window_id)
        if place in self._recent.get(document, ()):
            return True
        documents, low, high = self._intervals
        first, behind = bisect_left(documents, document), bisect_right(documents, document)
        turned = self._turned(place)
        before = bisect_right(low, turned, first, behind) - 1
        return before >= first and turned < int(high[before])

    def holds_places(self, document: str, char_starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which windows `<document>@<start>` are in the set."""
        hashed, zero = _document_key(f"{document}@")
        documents, low, high = self._intervals
        own = slice(bisect_left(documents, hashed), bisect_right(documents, hashed))
        places = char_starts.astype(np.uint64) + np.uint64(zero)
        held = np.isin(places, np.array([*self._recent.get(hashed, ())], np.uint64))
        if own.start < own.stop:
            turned = self._turned(places)
            before = np.searchsorted(low[own], turned, "right")
            held |= (before > 0) & (turned < high[own][before - 1])
        return held

    def _join(self, keys: Keys) -> None:
        """Intervals of all that is held and the keys, which may be held already."""
        turned = self._turned(keys[1])
        single, held = _Intervals(keys[0], turned, turned + np.uint64(1)), self._intervals.low.size
        both = _Intervals(*map(np.concatenate, zip(self._intervals, single, strict=True)))
        order = np.lexsort((both.low, both.documents))  # stable: an interval comes before keys that begin where it does
        both, is_interval = both.select(order), order < held
        both = both.select(is_interval | ~_are_repeated(both, is_interval))
        if both.low.size:
            begins = (both.documents[1:] != both.documents[:-1]) | (both.low[1:] != both.high[:-1])
            firsts = np.append(0, np.flatnonzero(begins) + 1)
            lasts = np.append(firsts[1:], both.low.size) - 1
            both = _Intervals(both.documents[firsts], both.low[firsts], both.high[lasts])
        self._intervals = both

    def _turned(self, place: Place) -> Place:
        """Places a stride apart as numbers that follow each other; no two places become one number."""
        return place % self._stride * self._span + place // self._stride


def _are_repeated(both: _Intervals, is_interval: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of some sorted intervals and keys lie in the interval before them, or are equal to the key before them."""
    documents, low, high = both
    interval_before = np.maximum.accumulate(np.where(is_interval, np.arange(low.size), -1))
    is_inside = (interval_before >= 0) & (documents[interval_before] == documents) & (low < high[interval_before])
    is_inside[1:] |= (documents[1:] == documents[:-1]) & (low[1:] == low[:-1])
    return np.asarray(is_inside)


def keys_of_file(file: pq.ParquetFile, *, are_places: bool) -> Iterator[Keys]:
    """The keys of all windows of a table, some at a time. Windows that are places, `<document>@<char_start>`, are known
    without their names, which take longest to read."""
    columns = ["document", "char_start"] if are_places else ["window_id"]
    for rows in file.iter_batches(batch_size=RECENT, columns=columns):
        yield _keys_of_places(rows) if are_places else _keys(map(_key, rows.column("window_id").to_pylist()))


def _keys_of_places(rows: pa.RecordBatch) -> Keys:
    document, start = rows.column("document"), rows.column("char_start")
    codes = document.dictionary_encode()
    zeros = _keys(_document_key(f"{name}@") for name in codes.dictionary.to_pylist())
    keys = zeros[:, codes.indices.to_numpy()]
    keys[1] += start.to_numpy().astype(np.uint64)
    return keys


def _keys(keys: Iterable[tuple[int, int]]) -> Keys:
    return np.array(list(keys), np.uint64).reshape(-1, 2).T


def _key(window_id: str) -> tuple[int, int]:
    """Of a place in a document (`book.txt@120`, `rows.npy#7`), or of any other name."""
    place = _PLACE.fullmatch(window_id)
    if place is None:
        return _hashed(window_id, b"byrote id")
    document, zero = _document_key(place[1])
    return document, zero + int(place[2])


@lru_cache(maxsize=1024)
def _document_key(name: str) -> tuple[int, int]:
    """The key of the place 0 of a document; the name ends with what stands before the number."""
    return _hashed(name, b"byrote document")


def _hashed(name: str, kind: bytes) -> tuple[int, int]:
    digest = hashlib.blake2b(name.encode(), digest_size=16, person=kind).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big") >> 2


Row = Mapping[str, Any]
PARTS_OF_LEAST = 256
"""So many parts have the least length, then they grow."""
MOST_TIMES_LEAST = 16


class Parts:
    """The parts of one run, of which this process is the only writer."""

    def __init__(
        self, folder: RunFolder, run_id: str, schema: Schema, continuations: Schema | None, *, stride: int | None
    ) -> None:
        """`stride`: see `RunSession.open`."""
        self._folder, self._run_id = folder, run_id
        self._schema, self._continuations = schema, continuations
        self._next_number = 1
        self._are_places = stride is not None
        self.finished = IdSet(stride=stride or 1)
        """Ids of the windows whose rows are safely on the disk."""
        self.dropped: list[str] = []
        """Parts found cut, damaged or missing; their windows count as not finished."""

    def take_over(self) -> None:
        """Learn what an earlier process finished; drop what is not whole, merged tables without a manifest too."""
        for path in (self._folder.results, self._folder.continuations):
            path.unlink(missing_ok=True)
        make_folder(self._folder.parts, inside=self._folder.path)
        listed = self._listed()
        parts = map(self._folder.part, sorted({*self._folder.part_numbers(), *listed}))
        self.finished.add_keys(
            keys for part in parts for keys in self._take_over_part(part, is_listed=part[0] in listed)
        )
        if 0 not in self._folder.part_numbers():
            self._write_files(0, [], [])
        if listed != set(self._folder.part_numbers()):
            self._write_list()

    def write(self, results: Sequence[Row], continuations: Sequence[Row]) -> None:
        """Afterwards these windows are finished, whatever happens next. All of them or none: a part is one unit."""
        ids = [row["window_id"] for row in results]
        assert {row["window_id"] for row in continuations} <= set(ids), "a continuation of a window of another part"
        self._write_files(self._next_number, results, continuations)
        self._write_list()
        self.finished.update(ids)
        self._next_number += 1

    def keys_of(self, table: pq.ParquetFile) -> Iterator[Keys]:
        return keys_of_file(table, are_places=self._are_places)

    def is_due(self, rows: int, *, least: int) -> bool:
        """Whether so many rows should be a part. Long runs write longer ones: all of them are read to resume, so ten
        million windows should be some thousand files."""
        return rows >= least and rows >= min(MOST_TIMES_LEAST * least, len(self.finished) // PARTS_OF_LEAST)

    def restore(self) -> None:
        """The rows of the finished tables are a part again, so that the run can go on from them."""
        make_folder(self._folder.parts, inside=self._folder.path)
        self._write_files(0, [], [])
        part = self._folder.part(1)
        if self._continuations is not None:
            rows = _rows(self._folder.continuations)
            write_batches(part.continuations, rows, self._continuations, run_id=self._run_id)
        write_batches(part.results, _rows(self._folder.results), self._schema, run_id=self._run_id)
        self._write_list()
        self._next_number = 2

    def merge(self, order: Order | None) -> list[Path]:
        """Write the finished tables, windows in the given order (None: as written), and tell where they are.

        Raises a RunError, and changes nothing, unless the finished windows are exactly those of `order`.
        """
        parts = [self._folder.part(number) for number in self._folder.part_numbers()]
        result_files = [part.results for part in parts]
        plan = MergePlan(result_files, order)
        merge_parts(plan, result_files, self._folder.results, schema=arrow_schema(self._schema))
        if self._continuations is not None:
            files = [part.continuations for part in parts]
            merge_parts(plan, files, self._folder.continuations, schema=arrow_schema(self._continuations))
            return [self._folder.results, self._folder.continuations]
        return [self._folder.results]

    def _take_over_part(self, part: Part, *, is_listed: bool) -> Iterable[Keys]:
        """The windows of a part; none, and no file, where it is not whole."""
        results = self._whole(part.results)
        continuations = None if self._continuations is None else self._whole(part.continuations)
        if results is None or (continuations is None and self._continuations is not None):
            # A continuations file alone is a write that was interrupted half-way, unless the part was whole before.
            if is_listed or part.results.exists():
                self.dropped.append(part.results.name)
            self._folder.remove_part(part.number)
            return ()
        _require_columns(self._folder.path, results.schema_arrow, self._schema)
        if continuations is not None and self._continuations is not None:
            _require_columns(self._folder.path, continuations.schema_arrow, self._continuations)
        self._next_number = part.number + 1
        return self.keys_of(results)

    def _listed(self) -> frozenset[int]:
        try:
            listed = read_part_list(self._folder.part_list, run_id=self._run_id)
        except DamageError:
            # It is written anew; only a part that is missing as well is not noticed.
            return frozenset()
        return frozenset() if listed is None else frozenset(listed.numbers)

    def _write_list(self) -> None:
        numbers = self._folder.part_numbers()
        content = {"run_id": self._run_id, "keeps_continuations": self._continuations is not None, "parts": numbers}
        write_sealed_json(self._folder.part_list, content)

    def _whole(self, path: Path) -> pq.ParquetFile | None:
        try:
            return open_table(path, run_id=self._run_id)
        except (DamageError, FileNotFoundError):
            return None

    def _write_files(self, number: int, results: Sequence[Row], continuations: Sequence[Row]) -> None:
        part = self._folder.part(number)
        if self._continuations is not None:
            write_table(part.continuations, continuations, self._continuations, run_id=self._run_id)
        else:
            assert not continuations, "this run keeps no continuations"
        write_table(part.results, results, self._schema, run_id=self._run_id)


class PartList(NamedTuple):
    """What parts.json says."""

    numbers: list[int]
    keeps_continuations: bool


def read_part_list(path: Path, *, run_id: str) -> PartList | None:
    """None when there is none; a RunError when it is of another run, a DamageError when it was changed."""
    content = read_sealed_json(path)
    if content is None:
        return None
    if content["run_id"] != run_id:
        raise RunError(
            f"{path} is not of this run: it says run {content['run_id'][:8]}, but identity.json says run {run_id[:8]}. "
            "Take away the one that comes from elsewhere, and run the same command again."
        )
    return PartList(content["parts"], content["keeps_continuations"])


def _rows(path: Path) -> Iterator[list[Row]]:
    with open_parquet(path) as file:
        for batch in file.iter_batches():
            yield batch.to_pylist()


def _require_columns(folder: Path, stored: pa.Schema, schema: Schema) -> None:
    now = arrow_schema(schema)
    if stored.equals(now):
        return
    changed = sorted({field.name for field in set(stored) ^ set(now)}) or ["their order"]
    raise RunError(
        f"{folder} holds a run with other columns ({', '.join(changed)}); "
        "choose another folder with --out, or start over with --fresh."
    )
