"""Long passages: how far one answer follows the target, block by block.

The target is a chain of blocks of T tokens. R(m) is the probability that the answer stays within ε edits of the target
in each of its first m blocks. R(1) is the mass that was searched. Continuations accepted in a block are the roots of
the next: block m + 1 of a root is a search whose prefix is the prefix and the tokens accepted so far. Over the heaviest
roots r, with p(r) their probability and LB(r), UB(r) the bounds of their searches,

    LB_R(m+1) = Σ p(r) · LB(r)        UB_R(m+1) = UB_R(m) − Σ p(r) · (1 − UB(r))

What no root stands for stays open. A root that ends the text cannot go on: its bounds are 0.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from byrote.errors import WindowError
from byrote.models.base import TreeModel
from byrote.scan.measures.base import Decode, Measured
from byrote.scan.options import RunConfig
from byrote.search.base import Limits, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from byrote.search.sizing import choose_slots

WINDOWS_TOGETHER = 32
"""Windows whose blocks share forwards."""


class Run(NamedTuple):
    """An answer that stayed within the edit budget in every block so far."""

    token_ids: tuple[int, ...]
    log_p: float


@dataclass(frozen=True, slots=True)
class PassageResult:
    """Bounds of R(1), R(2) … R(blocks)."""

    block_tokens: int
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    longest: Run | None
    """The heaviest answer found that stayed near the target for the most blocks; None where nothing was found."""
    text: str | None
    target: str | None
    """Its text, and the target's over as many tokens."""
    token_evals: int

    def at(self, lengths: Sequence[int]) -> tuple[list[float], list[float]]:
        """Lower and upper bounds at these lengths in tokens."""
        blocks = [length // self.block_tokens - 1 for length in lengths]
        return [self.lower[block] for block in blocks], [self.upper[block] for block in blocks]

    @property
    def tokens(self) -> tuple[float, float]:
        """Σ T · R(m): bounds on the expected length of the run in whole blocks, cut off at the last one."""
        return self.block_tokens * math.fsum(self.lower), self.block_tokens * math.fsum(self.upper)


@dataclass(slots=True)
class _Passage:
    """A window on its way through the blocks."""

    item: Measured
    lower: list[float]
    upper: list[float]
    roots: list[Run]
    longest: Run | None
    token_evals: int = 0


class PassageStage:
    """Follows windows that the first block certifies: LB_R(m) never exceeds their lower bound, so no other window can
    be certified for a longer passage. They are followed while their roots weigh τ or more together."""

    def __init__(self, model: TreeModel, config: RunConfig, decode: Decode) -> None:
        self._model, self._config, self._decode = model, config, decode
        self._blocks = config.passage_tokens // config.suffix_tokens
        self._options = replace(
            config.search_options(), threshold=None, rank_by="mass", keep=config.passage_roots, record_frontier=False,
            keep_states=False, policies=(),
        )  # fmt: skip
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
        window, missing = item.window, self._blocks * self._config.suffix_tokens
        if len(window.suffix_ids) + len(window.passage_ids) < missing:
            raise WindowError(
                f"window {window.window_id} has {len(window.suffix_ids) + len(window.passage_ids)} tokens after its "
                f"prefix, and --passage needs {missing}; cut windows with the same --passage."
            )
        found = () if item.near.outcome is None else item.near.outcome.continuations
        roots = [Run(one.token_ids, one.log_p) for one in found[: self._config.passage_roots]]
        bounds = item.near.bounds
        return _Passage(item, [bounds.lower[-1]], [bounds.upper[-1]], roots, next(iter(roots), None))

    def _follow(self, passages: Sequence[_Passage], block: int) -> None:
        """Search this block (counted from 0) after every root."""
        first = (block - 1) * self._config.suffix_tokens
        owners: dict[int, tuple[_Passage, Run]] = {}
        tasks: list[SearchTask] = []
        for passage in passages:
            window = passage.item.window
            target = window.passage_ids[first : first + self._config.suffix_tokens]
            mass = math.fsum(math.exp(root.log_p) for root in passage.roots)
            is_followed = mass >= self._config.threshold
            for root in passage.roots if is_followed else ():
                if root.token_ids[-1] not in self._model.eos_ids:
                    key = next(self._keys)
                    owners[key] = passage, root
                    tasks.append(SearchTask(key, window.context_ids + root.token_ids, target, name=window.window_id))
            passage.upper.append(max(0.0, passage.upper[-1] - mass) if is_followed else passage.upper[-1])
            passage.lower.append(0.0)
            passage.roots = [] if is_followed else passage.roots
        for outcome in self._search(tasks):
            passage, root = owners[outcome.key]
            window, p = passage.item.window, math.exp(root.log_p)
            passage.lower[-1] += p * outcome.bounds.lower[-1]
            passage.upper[-1] = min(1.0, passage.upper[-1] + p * outcome.bounds.upper[-1])
            passage.token_evals += len(window.context_ids) + len(root.token_ids) + self._config.suffix_tokens - 1
            passage.token_evals += outcome.token_evals
            passage.roots += [
                Run(root.token_ids + one.token_ids, root.log_p + one.log_p) for one in outcome.continuations
            ]
        for passage in passages:
            # By tokens where equally heavy, so that the order in which searches ended decides nothing.
            passage.roots.sort(key=lambda root: (-root.log_p, root.token_ids))
            passage.roots = passage.roots[: self._config.passage_roots]
            passage.longest = next(iter(passage.roots), passage.longest)

    def _search(self, tasks: Sequence[SearchTask]) -> Iterator[SearchOutcome]:
        if self._engine is None and tasks:
            tokens = self._config.suffix_tokens
            limits = Limits(self._config.prefix_tokens + (self._blocks - 1) * tokens, tokens)
            slots = self._config.slots or choose_slots(self._model, self._options, limits)
            self._engine = Engine(self._model, self._options, slots=slots, limits=limits)
        if self._engine is not None:
            yield from self._engine.run(tasks)

    def _result(self, passage: _Passage) -> PassageResult:
        missing = self._blocks - len(passage.lower)
        longest, window = passage.longest, passage.item.window
        every = window.suffix_ids + window.passage_ids
        return PassageResult(
            self._config.suffix_tokens,
            (*passage.lower, *[0.0] * missing),
            (*passage.upper, *passage.upper[-1:] * missing),
            longest,
            None if longest is None else self._decode(longest.token_ids),
            None if longest is None else self._decode(every[: len(longest.token_ids)]),
            passage.token_evals,
        )
