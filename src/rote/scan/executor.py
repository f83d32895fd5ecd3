"""Executors: who measures the windows that a run lacks. The run hands them over and gets rows back, in any order.

An executor that sees a part of the run only, or measures in many places, cannot know the smallest keys of the screen's
audit (`rote.scan.screen`). It settles screened windows at once, and those that may belong to the audit's minimum wait
here as rows; when no other will come, they are measured again, with a search.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from rote.models.base import LanguageModel
from rote.models.hf import HuggingFaceModel
from rote.models.hf_compile import compile_layers
from rote.scan.columns import facts_of
from rote.scan.options import RunConfig
from rote.scan.pipeline import Facts, MeasuredWindow, Pipeline
from rote.scan.screen import Minimum, screen_of
from rote.store.columns import window_of
from rote.types import StopReason, Window

LONG_SCAN = 1e17
"""Operations that keep a large GPU busy for about four minutes."""
NO_SECTIONS: Mapping[str, Any] = MappingProxyType({})


class Executor(Protocol):
    """Measures every window once. `audited`: screened windows that earlier openings of the run have searched."""

    @property
    def facts(self) -> Facts: ...

    @property
    def sections(self) -> Mapping[str, Any]:
        """Sections of the manifest that only this executor can write."""
        ...

    def run(self, windows: Iterable[Window], *, audited: int = 0) -> Iterator[MeasuredWindow]: ...


class Measuring(Protocol):
    """Rows of windows, with a search of those that the screen lets pass, or of all."""

    def __call__(self, windows: Iterable[Window], *, search_all: bool = False) -> Iterator[MeasuredWindow]: ...


class LocalExecutor:
    """This process measures all windows of the run."""

    facts, sections = Facts(), NO_SECTIONS

    def __init__(self, model: LanguageModel, config: RunConfig) -> None:
        self._model, self._config = model, config

    def run(self, windows: Iterable[Window], *, audited: int = 0) -> Iterator[MeasuredWindow]:
        pipeline = Pipeline(self._model, self._config, decode=self._model.decode, audited=audited)
        yield from pipeline.run(windows)
        self.facts = pipeline.facts


class ShardExecutor:
    """This process measures one shard of the run, its own smallest keys searched: those of the run are among them."""

    facts, sections = Facts(), NO_SECTIONS

    def __init__(self, model: LanguageModel, config: RunConfig) -> None:
        self._model, self._config = model, config

    def run(self, windows: Iterable[Window], *, audited: int = 0) -> Iterator[MeasuredWindow]:
        pipeline = Pipeline(self._model, without_minimum(self._config), decode=self._model.decode)
        yield from with_minimum(pipeline.run, windows, self._config, audited=audited)
        self.facts = pipeline.facts


def executor_of(
    model: LanguageModel, config: RunConfig, *, windows: int, tell: Callable[[str], None] = lambda words: None
) -> Executor:
    """The executor that the options ask for, for so many windows; `tell` is given words to show beside the progress."""
    if config.executor == "ray":
        from rote.scan.ray_executor import RayExecutor

        return RayExecutor(model, config, windows=windows, tell=tell)
    return LocalExecutor(model, config) if config.shard is None else ShardExecutor(model, config)


def compile_where_it_pays(model: LanguageModel, config: RunConfig, *, windows: int) -> None:
    """Compile layers as asked for, or where the first forwards of the windows alone take a GPU long enough, since
    compiling takes a minute and saves a quarter. After the weights were hashed: compiling renames them."""
    if isinstance(model, HuggingFaceModel) and compiles(model, config, windows):
        compile_layers(model.model)


def compiles(model: HuggingFaceModel, config: RunConfig, windows: int) -> bool:
    if config.compile != "auto":
        return config.compile == "on"
    operations = 2.0 * (model.identity.parameters or 0) * windows * sum(config.limits)
    return model.device.type == "cuda" and operations > LONG_SCAN


def without_minimum(config: RunConfig) -> RunConfig:
    """For whoever cannot know the smallest keys of the run."""
    return replace(config, screen_least=0)


def with_minimum(
    measure: Measuring, windows: Iterable[Window], config: RunConfig, *, audited: int
) -> Iterator[MeasuredWindow]:
    """The rows of `measure`, which works `without_minimum`, and the audit's minimum among all of them."""
    screen = screen_of(config) if "near" in config.measures else None
    minimum = Minimum[MeasuredWindow](0 if screen is None else screen.audit_least - audited)
    for measured in measure(windows):
        row = measured.row
        if screen is None or row["stop_reason"] != StopReason.SCREENED:
            minimum.draw(bool(screen and row["was_screened"]))
            yield measured
        else:
            minimum.wait(screen.key(row["window_id"], row["screen_rating"]), row["window_id"], measured)
        yield from minimum.given_up()
    held = {measured.row["window_id"]: measured.row for measured in minimum.rest()}
    names = [column.name for column in facts_of(config)]
    again = [replace(window_of(row), further={name: row[name] for name in names}) for row in held.values()]
    for measured in measure(again, search_all=True) if again else ():
        yield replace(measured, unsearched=held[measured.row["window_id"]])
