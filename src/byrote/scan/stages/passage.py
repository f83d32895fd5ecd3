"""Long passages: how far one answer follows the target, block by block.

The target is a chain of blocks of T tokens, or of up to as many characters as a target. R(m) is the probability that
the answer stays within ε edits of the target in each of its first m blocks. R(1) is the mass that was searched.
Continuations accepted in a block are the roots of the next: block m + 1 of a root is a search whose prefix is the
prefix and the tokens accepted so far. Over the heaviest roots r, with p(r) their probability and LB(r), UB(r) the
bounds of their searches,

    LB_R(m+1) = Σ p(r) · LB(r)        UB_R(m+1) = UB_R(m) − Σ p(r) · (1 − UB(r))

What no root stands for stays open, and so does a root that leaves a block no room in the model's positions. A root that
ends the text has no token of a further block, and no character: its bounds are 0, or 1 where ε edits are a whole block
of text. The last token of a root may have characters behind the end of its block; the answer to the next block begins
with them.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import NamedTuple

from byrote.distance.text import TextDistance
from byrote.errors import WindowError
from byrote.models.base import TreeModel
from byrote.normal_form import normalised
from byrote.scan.measures.base import Decode, Measured
from byrote.scan.options import RunConfig
from byrote.search.base import Limits, SearchOutcome, SearchTask, target_chars
from byrote.search.engine import Engine
from byrote.search.sizing import choose_slots
from byrote.types import PassageBlock, Window

WINDOWS_TOGETHER = 32
"""Windows whose blocks share forwards."""


class Run(NamedTuple):
    """An answer that stayed within the edit budget in every block so far."""

    token_ids: tuple[int, ...]
    log_p: float
    blocks: int


@dataclass(frozen=True, slots=True)
class PassageResult:
    """Bounds of R(1), R(2) … R(blocks)."""

    lengths: tuple[int, ...]
    """Tokens of each block, or characters in normal form."""
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    longest: Run | None
    """The heaviest answer found that stayed near the target for the most blocks; None where nothing was found."""
    text: str | None
    target: str | None
    """Its text, compared as text only up to the end of its last block, and the target's over as many blocks."""
    token_evals: int

    @property
    def expected(self) -> tuple[float, float]:
        """Σ length of block m · R(m): bounds on the expected length of the run in whole blocks, cut off at the last."""
        lower, upper = (
            math.fsum(length * chance for length, chance in zip(self.lengths, side, strict=True))
            for side in (self.lower, self.upper)
        )
        return lower, upper


def characters_of(blocks: Sequence[PassageBlock]) -> list[tuple[int, ...]]:
    """The code points of each block of a text: those of the whole in normal form, cut where the blocks end."""
    texts = [block.text or "" for block in blocks]
    whole = target_chars("".join(texts)) or ()
    ends = [len(normalised("".join(texts[:number]))) for number in range(len(texts) + 1)]
    return [whole[start:end] for start, end in pairwise(ends)]


@dataclass(slots=True)
class _Passage:
    """A window on its way through the blocks."""

    item: Measured
    blocks: tuple[PassageBlock, ...]
    characters: list[tuple[int, ...]]
    """Of each block, where characters are compared; otherwise there is no entry."""
    lower: list[float]
    upper: list[float]
    roots: list[Run]
    longest: Run | None
    token_evals: int = 0

    @property
    def window(self) -> Window:
        return self.item.window

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(map(len, self.characters or [block.token_ids for block in self.blocks]))


class PassageStage:
    """Follows windows that the first block certifies: LB_R(m) never exceeds their lower bound, so no other window can
    be certified for a longer passage. They are followed while their roots weigh τ or more together."""

    def __init__(self, model: TreeModel, config: RunConfig, decode: Decode) -> None:
        self._model, self._config, self._decode = model, config, decode
        self._blocks = max(config.passage_blocks)
        self._options = replace(
            config.search_options(), threshold=None, rank_by="mass", keep=config.passage_roots, record_frontier=False,
            keep_states=False, policies=(),
        )  # fmt: skip
        viability = self._options.make_viability(model)
        self._text = viability if isinstance(viability, TextDistance) else None
        tokens = config.suffix_tokens
        room = config.prefix_tokens + (self._blocks - 1) * tokens
        if model.max_positions is not None:
            room = min(room, model.max_positions - tokens)
        self._limits = Limits(room, tokens)
        self._engine: Engine | None = None
        self._queue: list[Measured] = []
        self._keys = count()

    def take(self, settled: Iterable[Measured]) -> Iterator[Measured]:
        """Every window that is ready; those to be followed are held back until there are enough of them."""
        for item in settled:
            assert item.near is not None
            if item.near.bounds.lower[-1] >= self._config.threshold:
                self._queue.append(item)
            else:
                item.passage = self._result(self._begin(item))
                yield item
            if len(self._queue) >= WINDOWS_TOGETHER:
                yield from self.flush()

    def flush(self) -> Iterator[Measured]:
        """Follow the windows held back; to be called once more at the end."""
        passages, self._queue = [self._begin(item) for item in self._queue], []
        for block in range(1, self._blocks):
            self._follow(passages, block)
        for passage in passages:
            passage.item.passage = self._result(passage)
            yield passage.item

    def _begin(self, item: Measured) -> _Passage:
        assert item.near is not None
        window, bounds = item.window, item.near.bounds
        blocks = (PassageBlock(window.suffix_ids, window.suffix_text), *window.blocks)
        if len(blocks) < self._blocks:
            raise WindowError(
                f"window {window.window_id} has {len(blocks)} blocks after its prefix, and --passage needs "
                f"{self._blocks}; cut windows with the same --passage."
            )
        blocks = blocks[: self._blocks]
        found = () if item.near.outcome is None else item.near.outcome.continuations
        roots = [Run(one.token_ids, one.log_p, 1) for one in found[: self._config.passage_roots]]
        characters = [] if self._text is None else characters_of(blocks)
        return _Passage(
            item, blocks, characters, [bounds.lower[-1]], [bounds.upper[-1]], roots, next(iter(roots), None)
        )

    def _follow(self, passages: Sequence[_Passage], block: int) -> None:
        """Search this block (counted from 0) after every root."""
        owners: dict[int, tuple[_Passage, Run]] = {}
        tasks: list[SearchTask] = []
        for passage in passages:
            room = self._limits.prefix_tokens - len(passage.window.context_ids)
            passage.roots = [root for root in passage.roots if len(root.token_ids) <= room]
            mass = math.fsum(math.exp(root.log_p) for root in passage.roots)
            is_followed = mass >= self._config.threshold
            passage.upper.append(max(0.0, passage.upper[-1] - mass) if is_followed else passage.upper[-1])
            passage.lower.append(0.0)
            roots, passage.roots = passage.roots, [] if is_followed else passage.roots
            for root, task in self._tasks(passage, roots if is_followed else (), block):
                if task is None:
                    _add(passage, root, 1.0, 1.0, [root._replace(blocks=block + 1)])
                else:
                    owners[task.key] = passage, root
                    tasks.append(task)
        for outcome in self._search(tasks):
            passage, root = owners[outcome.key]
            further = (
                Run(root.token_ids + one.token_ids, root.log_p + one.log_p, block + 1) for one in outcome.continuations
            )
            _add(passage, root, outcome.bounds.lower[-1], outcome.bounds.upper[-1], further)
            chain = len(passage.window.context_ids) + len(root.token_ids) + len(passage.blocks[block].token_ids) - 1
            passage.token_evals += chain + outcome.token_evals
        for passage in passages:
            # By tokens where equally heavy, so that the order in which searches ended decides nothing.
            passage.roots.sort(key=lambda root: (-root.log_p, root.token_ids))
            passage.roots = passage.roots[: self._config.passage_roots]
            passage.longest = next(iter(passage.roots), passage.longest)

    def _tasks(self, passage: _Passage, roots: Sequence[Run], block: int) -> Iterator[tuple[Run, SearchTask | None]]:
        """The search of this block after each root that can go on; None where the root has answered the block."""
        window, ids, covered = passage.window, passage.blocks[block].token_ids, sum(passage.lengths[:block])
        for root in roots:
            has_ended, begun, characters = root.token_ids[-1] in self._model.eos_ids, None, None
            if self._text is not None:
                characters = passage.characters[block]
                begun = self._text.behind(covered, root.token_ids, characters)
                if begun.least > self._options.edit_budget:
                    continue
                if begun.is_complete or has_ended:
                    if begun.if_ended <= self._options.edit_budget:
                        yield root, None
                    continue
            elif has_ended:
                continue
            yield (
                root,
                SearchTask(
                    next(self._keys),
                    window.context_ids + root.token_ids,
                    ids,
                    name=window.window_id,
                    target_chars=characters,
                    begun=None if begun is None else begun.state,
                ),
            )

    def _search(self, tasks: Sequence[SearchTask]) -> Iterator[SearchOutcome]:
        if self._engine is None and tasks:
            slots = self._config.slots or choose_slots(self._model, self._options, self._limits)
            self._engine = Engine(self._model, self._options, slots=slots, limits=self._limits)
        if self._engine is not None:
            yield from self._engine.run(tasks)

    def _result(self, passage: _Passage) -> PassageResult:
        missing, longest = self._blocks - len(passage.lower), passage.longest
        text, target = None, None
        if longest is not None:
            followed = passage.blocks[: longest.blocks]
            text = self._decode(longest.token_ids)
            target = "".join(block.text or self._decode(block.token_ids) for block in followed)
            if self._text is not None:
                text = text[: _covering(text, sum(passage.lengths[: longest.blocks]))]
        return PassageResult(
            passage.lengths,
            (*passage.lower, *[0.0] * missing),
            (*passage.upper, *passage.upper[-1:] * missing),
            longest,
            text,
            target,
            passage.token_evals,
        )


def _covering(text: str, characters: int) -> int:
    """The fewest characters of a text that have so many in normal form; all of them where it has fewer."""
    places = range(len(text))
    return bisect_left(places, characters, key=lambda place: len(normalised(text[:place])))


def _add(passage: _Passage, root: Run, lower: float, upper: float, further: Iterable[Run]) -> None:
    """A root with these bounds in a block, and the runs that were found in it."""
    p = math.exp(root.log_p)
    passage.lower[-1] += p * lower
    passage.upper[-1] = min(1.0, passage.upper[-1] + p * upper)
    passage.roots += further
