"""Which windows or pairs a run measures: all of them, the first of every document, or a seeded sample.

Every start of a document has a rank between 0 and 1: its place in the text (`limit`) or in the order of its hash
(`sample`), by the number of starts. Splits have equal shares, and of each split the smallest ranks are taken: so
documents are represented in proportion to their starts, and a larger choice holds every smaller one.
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from operator import itemgetter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from byrote.corpus import windows as cutting
from byrote.corpus.pairs import Pair
from byrote.corpus.read import Document, require_unique_names
from byrote.corpus.text_windows import TextWindowOptions, cut_text_starts
from byrote.errors import ConfigError, WindowError
from byrote.random_order import sample_key
from byrote.types import Split, Window

Starts = NDArray[np.int64]
Hashes = NDArray[np.uint64]
DocumentStarts = tuple[Document, Starts]
CutOptions = cutting.WindowOptions | TextWindowOptions
Group = tuple[Split, str, range]
"""Split and name of a document, and where its windows may begin, or the numbers of its pairs."""


MOST_BATCHES_PER_BLOCK = 32
"""So many windows are held at most, in batches of SLICES_PER_BATCH."""


def selection_of(counts: dict[Split, int], *, limit: int | None, sample: int | None, seed: int) -> cutting.Selection:
    """What the options ask for, given so many starts by split. With limit and sample, the smaller sample."""
    kind: cutting.ChoiceName = "sample" if sample is not None else "limit" if limit is not None else "all"
    size = min((value for value in (limit, sample) if value is not None), default=None)
    selection = cutting.Selection(kind, size, seed, counts)
    if selection.size is not None:
        share_out(selection.size, counts)
    return selection


def share_out(size: int, counts: Mapping[Split, int]) -> dict[Split, int]:
    """`size` in equal shares, none larger than its count and none empty; what one cannot take goes to the other."""
    if size < len(counts):
        raise ConfigError(f"{size} cannot hold both targets and controls; ask for at least {len(counts)}.")
    shares, total = dict[Split, int](), sum(counts.values())
    for place, (split, count) in enumerate(counts.items()):
        # The odd one goes to the targets, which come first.
        equal = size // len(counts) + (place < size % len(counts))
        shares[split] = min(count, max(equal, size - (total - count)))
    return shares


def first_ranked(
    groups: Sequence[Group], sizes: Mapping[Split, int], selection: cutting.Selection
) -> dict[Split, list[tuple[int, int]]]:
    """Of each split, the `sizes` starts of smallest rank in order, each behind the number of its group."""

    def ranked(split: Split) -> Iterator[tuple[float, int, int]]:
        own = [number for number, group in enumerate(groups) if group[0] is split]
        for place, number in enumerate(own):
            _, name, starts = groups[number]
            is_sample, positions = selection.kind == "sample", np.array(starts)
            ranks = sample_ranks(name, positions, selection.seed) if is_sample else limit_ranks(place, positions)
            yield from zip(ranks.tolist(), repeat(number), starts)

    return {
        split: [(number, start) for _, number, start in heapq.nsmallest(size, ranked(split))]
        for split, size in sizes.items()
    }


def limit_ranks(place: int, starts: Starts) -> NDArray[np.float64]:
    """Ranks of a document's starts in text order; `place` is the document's number in its split."""
    return (np.arange(starts.size) + place / (place + 1)) / starts.size


def sample_ranks(name: str, starts: Starts, seed: int) -> NDArray[np.float64]:
    """Ranks of a document's starts in the order of their hashes."""
    keys = _sample_keys(name, starts, seed)
    order = np.empty(starts.size)
    order[np.argsort(keys, kind="stable")] = np.arange(starts.size)
    return (order + float(_sample_keys(name, np.array([-1]), seed)[0]) / 2**64) / starts.size


def _sample_keys(name: str, starts: Starts, seed: int) -> Hashes:
    """A 64-bit number for each start that depends on the document's name, the position and the seed alone."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=str(seed).encode()).digest()
    base = np.uint64(int.from_bytes(digest, "big"))
    # The generator splitmix64: a counter in odd steps, mixed.
    return mixed(base + (starts.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))


def mixed(values: Hashes) -> Hashes:
    """A bijection of 64-bit numbers in which every bit depends on every bit (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


PairOrWindow = TypeVar("PairOrWindow", Pair, Window)


def choose_pairs(
    pairs: Sequence[PairOrWindow], *, limit: int | None = None, sample: int | None = None, seed: int = 0
) -> tuple[list[PairOrWindow], cutting.Selection]:
    """All pairs or windows, or those that the options ask for, in their order."""
    numbers: dict[tuple[Split, str], list[int]] = {}
    for number, pair in enumerate(pairs):
        numbers.setdefault((pair.split, pair.document), []).append(number)
    counts = Counter(pair.split for pair in pairs)
    selection = selection_of(
        {split: counts[split] for split in Split if split in counts}, limit=limit, sample=sample, seed=seed
    )
    if selection.size is None:
        return list(pairs), selection
    groups = [(split, name, range(len(own))) for (split, name), own in numbers.items()]
    own_numbers = list(numbers.values())
    chosen = first_ranked(groups, share_out(selection.size, selection.starts), selection)
    kept = [own_numbers[group][place] for found in chosen.values() for group, place in found]
    return [pairs[number] for number in sorted(kept)], selection


@dataclass(frozen=True)
class WindowPlan:
    """The windows that a run measures, cut on demand; `documents` can be iterated again and again.

    Memory: one document, one block of windows, and a few numbers per window.
    """

    documents: Iterable[Document]
    options: CutOptions
    selection: cutting.Selection

    def cut(
        self,
        tokenizer: cutting.Tokenizer,
        *,
        bos_id: int | None,
        tally: cutting.Tally | None = None,
        finished: cutting.Finished | None = None,
        is_wanted: Callable[[str], bool] = lambda window_id: True,
    ) -> Iterator[Window]:
        """The windows in the random order of their names, but for finished ones, which are not tokenised nor tallied.

        Where a run stops, the windows until there are a random sample. The order takes 24 bytes a window, and
        windows are cut in blocks of it, each in the order of the texts. Windows that replace short ones come last.

        What is not wanted is of another shard: it counts towards a limit or a sample, and that is all.
        """
        tally = cutting.Tally() if tally is None else tally
        taken: Counter[Split] = Counter()
        found: Counter[Split] = Counter()
        while (chosen := self._next_starts(taken, found)) is not None:
            documents, numbers, starts = _missing(chosen, finished, found)
            ids = (f"{documents[number].name}@{start}" for number, start in zip(numbers, starts, strict=True))
            keys = np.fromiter((int.from_bytes(sample_key(one, self.selection.seed)[:8]) for one in ids), np.uint64)
            order = np.argsort(keys, kind="stable")
            del keys
            if self.selection.size is None:
                held = (is_wanted(f"{documents[numbers[one]].name}@{starts[one]}") for one in order)
                order = order[np.fromiter(held, np.bool_, len(order))]
            # Every block reads each of its texts once: the larger the texts, the longer the blocks.
            texts = -(-sum(document.characters for document in documents) // cutting.CHARACTERS_PER_BATCH)
            block = cutting.SLICES_PER_BATCH * min(max(1, texts), MOST_BATCHES_PER_BLOCK)
            for first in range(0, len(order), block):
                own = order[first : first + block]
                by_place = np.lexsort((starts[own], numbers[own]))
                places = _held_starts(documents, numbers[own[by_place]], starts[own[by_place]])
                if isinstance(self.options, TextWindowOptions):
                    cuts = list(cut_text_starts(places, tokenizer, self.options, bos_id=bos_id))
                else:
                    cuts = list(cutting.cut_starts(places, tokenizer, self.options, bos_id=bos_id))
                for place in np.argsort(by_place):
                    cut = cuts[place]
                    if isinstance(cut, Window):
                        found[cut.split] += 1
                    if is_wanted(cut.window_id):
                        tally.add(cut)
                        if isinstance(cut, Window):
                            yield cut

    def _next_starts(self, taken: Counter[Split], found: Counter[Split]) -> Iterator[DocumentStarts] | None:
        """As many further starts of each split as it lacks windows; None when nothing is lacking or left."""
        stride = self.options.stride_chars
        left = {split: count - taken[split] for split, count in self.selection.starts.items()}
        if self.selection.size is None:
            taken.update(left)
            every = ((document, np.array(cutting.starts_of(document, stride))) for document in self.documents)
            return every if any(left.values()) else None
        wanted = share_out(self.selection.size, {split: found[split] + count for split, count in left.items()})
        lacking = {split: wanted[split] - found[split] for split in wanted if wanted[split] > found[split]}
        if not lacking:
            return None
        sizes = {split: taken[split] + count for split, count in lacking.items()}
        chosen: dict[int, list[int]] = {}
        groups = [(one.split, one.name, cutting.starts_of(one, stride)) for one in self.documents]
        for split, found_starts in first_ranked(groups, sizes, self.selection).items():
            for number, start in found_starts[taken[split] :]:
                chosen.setdefault(number, []).append(start)
        taken.update(lacking)
        return (
            (document, np.sort(chosen[number])) for number, document in enumerate(self.documents) if number in chosen
        )


def plan_windows(
    documents: Iterable[Document],
    options: CutOptions,
    *,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> WindowPlan:
    """Count the starts and settle what is taken. Nothing is tokenised."""
    selection = selection_of(
        cutting.count_by_split(documents, options.stride_chars), limit=limit, sample=sample, seed=seed
    )
    return WindowPlan(documents, options, selection)


def select_windows(
    documents: Iterable[Document],
    tokenizer: cutting.Tokenizer,
    options: CutOptions,
    *,
    bos_id: int | None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> cutting.WindowSet:
    """The windows of a plan as a list in document order; at least one, else a WindowError says why there is none."""
    documents = list(documents)
    require_unique_names(documents)
    plan, tally = plan_windows(documents, options, limit=limit, sample=sample, seed=seed), cutting.Tally()
    windows = list(plan.cut(tokenizer, bos_id=bos_id, tally=tally))
    require_windows(tally, options)
    place_of = {document.name: place for place, document in enumerate(documents)}
    windows.sort(key=lambda window: (place_of[window.document], window.char_start))
    return cutting.WindowSet(windows, tally, plan.selection)


def require_windows(tally: cutting.Tally, options: CutOptions) -> None:
    """Raise a WindowError with the numbers unless there is at least one window."""
    if tally.windows:
        return
    short, is_text = tally.longest_short, isinstance(options, TextWindowOptions)
    if short is None:
        raise WindowError(f"No document was given to cut windows from; {options.needed} of text.")
    where = short.document if short.char_start == 0 else f"{short.document} from character {short.char_start} on"
    others = len(tally.short) - 1
    rest = f" and {others} other document{'s' * (others > 1)} no more" if others else ""
    lower = "Lower prefix_chars or suffix_chars" if is_text else "Shorten --prefix-tokens or --suffix-tokens"
    raise WindowError(
        f"{where} has {short.length} {'characters' if is_text else 'tokens'}{rest}; {options.needed}. {lower}, or give "
        "more text."
    )


def _missing(
    chosen: Iterable[DocumentStarts], finished: cutting.Finished | None, found: Counter[Split]
) -> tuple[list[Document], Starts, Starts]:
    """Documents, and for every start that is not finished the number of its document and where it is; finished ones
    are `found`."""
    documents, numbers, places = list[Document](), list[Starts](), list[Starts]()
    for document, starts in chosen:
        if finished is not None:
            is_finished = finished.holds_places(document.name, starts)
            found[document.split] += int(is_finished.sum())
            starts = starts[~is_finished]
        numbers.append(np.full(starts.size, len(documents)))
        places.append(starts)
        documents.append(document)
    none = np.empty(0, np.int64)
    return documents, np.concatenate([none, *numbers]), np.concatenate([none, *places])


def _held_starts(documents: Sequence[Document], numbers: Starts, starts: Starts) -> Iterator[cutting.WindowStart]:
    """Starts in the order of the texts: each text is read once, and forgotten with its last window."""
    for number, own in groupby(zip(numbers.tolist(), starts.tolist(), strict=True), key=itemgetter(0)):
        held = documents[number].held()
        yield from (cutting.WindowStart(held, start) for _, start in own)
