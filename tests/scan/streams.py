"""Windows and models for tests of the measures: a table model that knows some of its windows by heart."""

from collections.abc import Iterable, Iterator, Sequence

import torch

from byrote.policy import Policy
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.types import Split, Window
from tests.table import TableModel

PREFIX, SUFFIX, VOCABULARY = 3, 5, 6
POLICY = Policy(1.0, 4)
CONFIG = RunConfig(
    prefix_tokens=PREFIX, suffix_tokens=SUFFIX, top_k=4, edit_budget=1, beam_width=3, keep=2, screen="off", slots=4
)


def make_window(number: int, ids: Sequence[int], *, prefix: int = PREFIX) -> Window:
    return Window(
        window_id=f"book.txt@{number}",
        document="book.txt",
        split=Split.TARGET,
        char_start=number,
        suffix_char_start=number + prefix,
        char_end=number + len(ids),
        prefix_ids=tuple(ids[:prefix]),
        suffix_ids=tuple(ids[prefix:]),
    )


def random_windows(count: int, *, seed: int = 0, low: int = 0) -> list[Window]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(low, VOCABULARY, (count, PREFIX + SUFFIX), generator=generator).tolist()
    return [make_window(number, row) for number, row in enumerate(ids)]


def knowing_model(known: Sequence[Window], *, seed: int = 0, eos_ids: frozenset[int] = frozenset()) -> TableModel:
    """Random logits everywhere, except that the next token of every known window has logit 8."""
    explicit: dict[tuple[int, ...], list[float]] = {}
    for window in known:
        for place in range(PREFIX, PREFIX + SUFFIX):
            row = [0.0] * VOCABULARY
            row[window.ids[place]] = 8.0
            explicit[window.ids[:place]] = row
    generator = torch.Generator().manual_seed(seed)
    return TableModel(torch.randn(512, VOCABULARY, generator=generator) * 3, explicit=explicit, eos_ids=eos_ids)


def passed(model: TableModel, windows: Iterable[Window], config: RunConfig) -> Iterator[Measured]:
    """Windows through the pipeline as they are settled, with all that the stages learned."""
    pipeline = Pipeline(model, config, decode=str)
    settled: list[Measured] = []
    ready = pipeline.decoding.ready

    def noted(items: Iterable[Measured]) -> Iterator[Measured]:
        for item in ready(items):
            settled.append(item)
            yield item

    pipeline.decoding.ready = noted  # type: ignore[method-assign]
    for _ in pipeline.run(windows):
        yield settled[-1]
