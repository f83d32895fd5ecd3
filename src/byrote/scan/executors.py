"""Executors: who measures the windows that a run lacks. The run hands them over and gets rows back, in any order."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from byrote.models.base import LanguageModel
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Facts, MeasuredWindow, Pipeline
from byrote.types import Window

LONG_SCAN = 1e17
"""Operations that keep a large GPU busy for about four minutes."""
NO_SECTIONS: Mapping[str, Any] = MappingProxyType({})


class Executor(Protocol):
    """Measures every window once."""

    @property
    def facts(self) -> Facts: ...

    @property
    def sections(self) -> Mapping[str, Any]:
        """Sections of the manifest that only this executor can write."""
        ...

    def run(self, windows: Iterable[Window]) -> Iterator[MeasuredWindow]: ...


class LocalExecutor:
    """This process measures all windows."""

    facts, sections = Facts(), NO_SECTIONS

    def __init__(self, model: LanguageModel, config: RunConfig) -> None:
        self._model, self._config = model, config

    def run(self, windows: Iterable[Window]) -> Iterator[MeasuredWindow]:
        pipeline = Pipeline(self._model, self._config, decode=self._model.decode)
        yield from pipeline.run(windows)
        self.facts = pipeline.facts


def executor_of(
    model: LanguageModel, config: RunConfig, *, windows: int, tell: Callable[[str], None] = lambda words: None
) -> Executor:
    """The executor that the options ask for, for so many windows; `tell` is given words to show beside the progress."""
    if config.executor == "ray":
        from byrote.scan.ray import RayExecutor

        return RayExecutor(model, config, windows=windows, tell=tell)
    return LocalExecutor(model, config)


def compile_where_it_pays(model: LanguageModel, config: RunConfig, *, windows: int) -> None:
    """Compile layers as asked for, or where the first forwards of the windows alone take a GPU long enough, since
    compiling takes a minute and saves a quarter. After the weights were hashed: compiling renames them."""
    if compiles(model, config, windows):
        model.compile_layers()


def compiles(model: LanguageModel, config: RunConfig, windows: int) -> bool:
    if config.compile != "auto":
        return config.compile == "on"
    operations = 2.0 * (model.identity.parameters or 0) * windows * sum(config.limits)
    return model.device.type == "cuda" and operations > LONG_SCAN
