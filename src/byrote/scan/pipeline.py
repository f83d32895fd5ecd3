"""One window from text to row, as one visible loop:

    cut ► score ► decode ► screen ► search ► close · refine · estimate ► follow ► verify · judge ► row

Windows come in chunks. The first forward of a window evaluates prefix and target once, as a chain; decoding and the
search continue from its keys and values. Answers that outlive their chunk go on beside those of later ones. Rows are
emitted in the order in which windows are settled. Memory is bounded by a chunk, the slots of the search and the spare
slots of answers, whatever the number of windows.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from byrote.models.base import TreeModel
from byrote.scan.measures.base import Decode, Measured
from byrote.scan.options import RunConfig
from byrote.scan.row import continuation_rows, measures_of, row_of
from byrote.scan.stages.decode import DecodeStage
from byrote.scan.stages.estimate import AfterSearch
from byrote.scan.stages.passage import PassageStage
from byrote.scan.stages.posthoc import judge_found
from byrote.scan.stages.score import ScoreStage
from byrote.scan.stages.screen import ScreenStage
from byrote.scan.stages.search import SearchStage
from byrote.scan.stages.verify import verify_found
from byrote.types import Window


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """A finished window: its row of results.parquet and its rows of continuations.parquet."""

    row: dict[str, Any]
    continuations: list[dict[str, Any]]


class Facts(NamedTuple):
    """Sizes that a pipeline chose and counted; Nones where nothing was searched."""

    chunk_windows: int | None = None
    slots: int | None = None
    peak_entries: int | None = None
    forwards: int | None = None


class Pipeline:
    """Every measure that `config` asks for. `remark` gets the word for what is being done."""

    def __init__(
        self,
        model: TreeModel,
        config: RunConfig,
        *,
        decode: Decode,
        remark: Callable[[str], None] = lambda words: None,
    ) -> None:
        config.require_baseline()
        self._remark = remark
        self.model, self.config, self.decode = model, config, decode
        self.measures = measures_of(config)
        self.score = ScoreStage(model, config)
        self.further = [measure.begin(config, model, decode) for measure in self.measures if measure.begin is not None]
        self.decoding = DecodeStage(model, config, self.score.spare_slots)
        self.screen = ScreenStage(config)
        self.search = SearchStage(model, config)
        self.after_search = AfterSearch(model, config)
        self.passages = PassageStage(model, config, decode) if config.passage else None

    def run(self, windows: Iterable[Window]) -> Iterator[MeasuredWindow]:
        """Every window once, as it is settled. The next chunk is begun before what the host alone does for this one."""
        for chunk, following in self.score.chunks(windows):
            self._remark("scoring")
            scored = self.score.score(chunk)
            self._remark("decoding")
            self.decoding.decode(scored)
            for measure in self.further:
                measure(scored)
            settled: Iterable[Measured] = scored
            if "near" in self.config.measures:
                self._remark("searching")
                passed, screened = self.screen.divide(scored)
                yield from self.rows(self.followed(self.after_search.take(self.search.search(passed))))
                settled = self.followed(self.search.settle_unsearched(screened))
            self.score.begin(following)
            yield from self.rows(chain(self.decoding.released(), settled))
        yield from self.rows(self.followed(self.after_search.take(self.search.drain())))
        self.decoding.finish()
        yield from self.rows(chain(self.decoding.released(), self.followed(self.after_search.flush())))
        if self.passages is not None:
            yield from self.rows(self.passages.flush())

    @property
    def facts(self) -> Facts:
        if not self.search.is_open:
            return Facts(self.score.chunk_windows)
        engine = self.search.engine
        return Facts(self.score.chunk_windows, engine.slots, engine.counters.peak_entries, engine.counters.forwards)

    def followed(self, settled: Iterable[Measured]) -> Iterator[Measured]:
        """The same windows, certified ones held back until their passages are measured."""
        return iter(settled) if self.passages is None else self.passages.take(settled)

    def rows(self, settled: Iterable[Measured]) -> Iterator[MeasuredWindow]:
        """What is stored of windows that are settled."""
        for item in self.decoding.ready(settled):
            if self.config.verify:
                verify_found(item, self.model, self.config.policy)
            if self.config.posthoc:
                judge_found(item, self.config, self.decode)
            yield MeasuredWindow(row_of(item, self.measures), continuation_rows(item, self.decode, self.config.keep))
