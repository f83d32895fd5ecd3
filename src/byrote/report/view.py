"""A run as the report reads it: typed columns, texts by document, and the few settings a reader needs named."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from byrote.errors import ConfigError, RunError
from byrote.random_order import sample_key
from byrote.report.analysis.rates import Criterion, CriterionRate, rate_for, rates_by_criterion, split_rows, units_of
from byrote.report.words import integer, percent, plural, probability
from byrote.stats.intervals import undefined
from byrote.stats.population import Flags, Population, population_of
from byrote.stats.roc import threshold_from_controls
from byrote.store.read import StoredRun, read_run, shown_name
from byrote.types import Split

OTHER_EDITION = "edition"
"""The manifest's kind of a document whose training copies had another wording."""

DECISIVE = (
    "temperature", "top_k", "top_p", "distance", "edit_budget", "threshold", "unit", "prefix_tokens", "suffix_tokens",
    "prefix_chars", "suffix_chars",
)  # fmt: skip
"""Options that define what a rate is about: runs that differ in one are not measured alike."""

LISTED_DOCUMENTS = 50
STEP = re.compile(r"(?:checkpoint|global_step|step)[-_]?([0-9]{1,12})$", re.IGNORECASE)
"""How names of checkpoints end in their step."""

Texts = Mapping[tuple[str, str], str]
"""(split, document name) → text."""


@dataclass(frozen=True)
class ViewedDocument:
    """One scanned document. `text` is None when the run did not keep its texts."""

    name: str
    split: str
    text: str | None
    content_hash: str | None
    characters: int | None
    short_windows: int
    copies: int | None
    """How often it stood in the training data; 0 for a control, None when unknown."""
    is_other_edition: bool
    """The training data held the copies in another wording than the one that was scanned."""
    first_row: int
    """Its windows are the rows first_row … first_row + windows − 1 of the run."""
    windows: int


class ChosenThreshold(NamedTuple):
    """A τ other than the run's own, and in a sentence where it comes from."""

    value: float
    words: str


class SoFar(NamedTuple):
    """Of a run that is not over: the windows that it shows, how many it will have, and whether those shown are the
    beginning of its random order without a gap, and so a random sample."""

    measured: int
    windows: int | None
    is_sample: bool

    def __str__(self) -> str:
        of = "" if self.windows is None else f" of {integer(self.windows)}"
        return f"{integer(self.measured)}{of} windows, {'a random sample' if self.is_sample else 'not representative'}"


@dataclass(frozen=True)
class RunView:
    """One run, ready to be drawn. `label` names it in tables and legends."""

    label: str
    path: Path
    manifest: Mapping[str, Any]
    results: pl.DataFrame
    continuations: pl.DataFrame | None
    documents: tuple[ViewedDocument, ...]
    population: Population
    is_complete: bool
    chosen_threshold: ChosenThreshold | None = None
    so_far: SoFar | None = None
    """None when all windows were measured that the run is about."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The options that decide the numbers, as the run's identity has them; empty where there is no run folder."""
    unmasked: "RunView | None" = None
    """The same view before identifiers were masked, for comparing records with each other; never shown."""

    @property
    def config(self) -> Mapping[str, Any]:
        config: Mapping[str, Any] = self.manifest["config"]
        return config

    @property
    def threshold(self) -> float:
        """τ of the run, or the one chosen since."""
        return self.run_threshold if self.chosen_threshold is None else self.chosen_threshold.value

    @property
    def run_threshold(self) -> float:
        """τ that the run was measured with."""
        return float(self.config["threshold"])

    @property
    def model(self) -> str:
        return model_name(self.manifest) or self.path.name

    @property
    def training_step(self) -> int | None:
        """The step of training that it measured; None where nothing says so."""
        recorded = (self.manifest.get("training") or {}).get("step")
        if recorded is not None:
            return int(recorded)
        model = self.manifest["model"]
        found = [STEP.search(str(model[name]).rstrip("/")) for name in ("revision", "name") if model.get(name)]
        return next((int(match[1]) for match in found if match is not None), None)

    @property
    def is_records(self) -> bool:
        """Whether the windows are pairs of prefix and suffix, as records are, and not passages cut from texts."""
        return "tags" in self.results.columns

    @property
    def noun(self) -> str:
        return "record" if self.is_records else "passage"

    @property
    def is_representative(self) -> bool:
        """Whether the windows shown stand for those that were not measured yet."""
        return self.so_far is None or self.so_far.is_sample

    @property
    def awaits_controls(self) -> bool:
        """Whether controls were given to a run that goes on; its identity names texts with their side."""
        return not self.is_complete and any(name.startswith(f"{Split.CONTROL}:") for name in self.manifest["texts"])

    @property
    def prompt(self) -> str:
        """The name of the prompt around every prefix."""
        return str(self.manifest.get("prompt", {}).get("name", "plain"))

    @cached_property
    def rates(self) -> list[CriterionRate]:
        """Every measured criterion at every ε, of every split; without intervals where windows stand for no others."""
        found = rates_by_criterion(self.population, self.threshold)
        if self.is_representative:
            return found
        none = undefined("not representative")
        return [replace(entry, rate=replace(entry.rate, interval=none)) for entry in found]

    def rate(self, criterion: Criterion, split: Split) -> CriterionRate | None:
        """The headline rate of a criterion: greedy answers exact, near-verbatim at the whole edit budget."""
        edits = {Criterion.GREEDY: 0, Criterion.VERBATIM: None}.get(criterion, self.population.edit_budget)
        return rate_for(self.rates, criterion, split=split, edits=edits)

    @property
    def headline_rates(self) -> list[CriterionRate]:
        """Those that were measured, targets before controls."""
        criteria = [criterion for criterion in Criterion if criterion is not Criterion.NOT_RULED_OUT]
        every = (self.rate(criterion, split) for split in Split for criterion in criteria)
        return [entry for entry in every if entry is not None]

    @property
    def is_text(self) -> bool:
        """Whether windows and edits are counted in characters."""
        return self.config.get("unit") == "text"

    @property
    def unit(self) -> str:
        """What windows and edits are counted in, in the singular."""
        return "character" if self.is_text else "token"

    def edits_words(self, edits: int) -> str:
        """`5 token edits`."""
        return plural(edits, f"{self.unit} edit")

    @property
    def window_words(self) -> tuple[str, str]:
        """Tokens (or characters) of a prefix and of a target, in words: `50`, or `up to 120` where windows differ."""
        if self.is_text and not self.is_records:
            return f"up to {self.config['prefix_chars']}", f"up to {self.config['suffix_chars']}"
        lengths = self.results.select(pl.col("prefix_ids", "suffix_ids").list.len())
        if self.is_text:
            cut = pl.col("suffix_char_start")
            lengths = self.results.select(cut - pl.col("char_start"), pl.col("char_end") - cut)
        spans = zip(lengths.min().row(0), lengths.max().row(0), strict=True)
        prefix, suffix = (str(high) if low == high else f"up to {high}" for low, high in spans)
        return prefix, suffix

    @property
    def prefix_starts(self) -> NDArray[np.int64]:
        """Where each window's prefix begins: where it was cut, or later if a longer prefix was reserved."""
        is_later = "prefix_char_start" in self.results.columns
        return self.results["prefix_char_start" if is_later else "char_start"].to_numpy().astype(np.int64)

    def rows_of(self, document: ViewedDocument) -> Flags:
        """Which windows were cut from `document`."""
        rows = np.zeros(len(self.population), dtype=np.bool_)
        rows[document.first_row : document.first_row + document.windows] = True
        return rows


def load_view(path: Path) -> RunView:
    """The run in `path`, with whatever of manifest, texts and continuations it has."""
    stored = read_run(path)
    if stored.kind != "scan":
        raise RunError(f"{path} is a {stored.kind} run, not a scan; byrote show and byrote report show every kind.")
    if stored.results.is_empty():
        raise RunError(f"{path} holds no windows yet, so there is nothing to report. Let `byrote scan` finish first.")
    # An unfinished run has no manifest yet; its identity already has model, texts and options.
    manifest = stored.manifest or stored.identity
    results, so_far = stored.results, None
    if stored.manifest is None:
        if "model" in stored.about:
            manifest = {**manifest, "model": {**manifest["model"], "name": stored.about["model"]}}
        results, is_sample = _without_gaps(stored)
        so_far = SoFar(len(results), stored.about.get("windows"), is_sample)
    elif (stopped := stored.manifest.get("stopped")) is not None:
        so_far = SoFar(len(results), len(results) + stopped["windows_left"], is_sample=True)
    kept = () if stored.texts is None else stored.texts.select("split", "name", "text").iter_rows()
    texts = {(split, name): text for split, name, text in kept}
    view = view_of(results, manifest, path=path, texts=texts, is_complete=stored.is_complete)
    settings = stored.identity["config"]
    return replace(view, continuations=stored.continuations, so_far=so_far, settings=settings)


def _without_gaps(stored: StoredRun) -> tuple[pl.DataFrame, bool]:
    """Of an unfinished run the windows up to the first one of its random order that is missing, and True: a window
    that is measured quickly is finished sooner, so that all finished ones would be too many cheap ones. All windows,
    and False, where that is not known or there is none."""
    names, seed = stored.results["window_id"], int(stored.identity["config"].get("seed", 0))
    if stored.mark is not None:
        kept = stored.results.filter([sample_key(name, seed).hex() <= stored.mark for name in names])
        if len(kept):
            return kept, True
    return stored.results, False


def view_of(
    results: pl.DataFrame, manifest: Mapping[str, Any], *, path: Path, texts: Texts, is_complete: bool
) -> RunView:
    """Rows as the report reads them, with what `manifest` has of model, options and texts."""
    config = manifest["config"]
    ordered = in_reading_order(results, manifest)
    return RunView(
        label=model_name(manifest) or path.name,
        path=path,
        manifest=manifest,
        results=ordered,
        continuations=None,
        documents=documents_of(ordered, manifest, texts),
        population=_population(ordered, config),
        is_complete=is_complete,
    )


LISTS_BY_EDITS = ("mass_lower", "mass_upper", "search_lower", "answer_hits")
"""Columns with an entry for every ε from 0 to the edit budget."""


OF_THE_BUDGET = ("screen", "answers")
"""Totals of a manifest that are about the whole edit budget."""


def at_epsilon(view: RunView, epsilon: int | None) -> RunView:
    """The view as of a scan that had searched with the smaller edit budget `epsilon`: bounds and answers for it are
    there. What the manifest has about the whole budget, its audit and its check, is left out."""
    budget = view.population.edit_budget
    if epsilon is None or epsilon == budget:
        return view
    if view.population.mass_lower is None or epsilon > budget:
        raise ConfigError(f"epsilon is {epsilon}, but {view.path} was searched up to {budget} edits; give no more.")
    names = [name for name in LISTS_BY_EDITS if name in view.results.columns]
    results = view.results.with_columns(pl.col(name).list.head(epsilon + 1) for name in names)
    totals = {name: value for name, value in view.manifest.get("totals", {}).items() if name not in OF_THE_BUDGET}
    manifest = {**view.manifest, "totals": totals, "config": {**view.config, "edit_budget": epsilon}}
    return replace(view, manifest=manifest, results=results, population=_population(results, view.config))


def _population(results: pl.DataFrame, config: Mapping[str, Any]) -> Population:
    is_text, counts_shared = config.get("unit") == "text", bool(config["keep_shared"])
    return population_of(results, str(config["distance"]), is_text=is_text, counts_shared=counts_shared)


def with_distinct_labels(views: Sequence[RunView]) -> list[RunView]:
    labels = distinct_labels([view.label for view in views], [view.path for view in views])
    return [replace(view, label=label) for view, label in zip(views, labels, strict=True)]


def distinct_labels(names: Sequence[str | None], paths: Sequence[Path]) -> list[str]:
    """The model's name where that is unique, else with the run folder's name, else numbered."""
    known = [name or path.name for name, path in zip(names, paths, strict=True)]
    labels = [
        f"{name} ({path.name})" if known.count(name) > 1 else name for name, path in zip(known, paths, strict=True)
    ]
    if len(set(labels)) < len(labels):
        labels = [f"{label} #{index + 1}" for index, label in enumerate(labels)]
    return labels


def in_reading_order(results: pl.DataFrame, manifest: Mapping[str, Any]) -> pl.DataFrame:
    """The one order of everything downstream: targets before controls, most copies in training first, then by name;
    windows of a document together, from its beginning to its end."""

    def rank(pair: tuple[str, str]) -> tuple[bool, bool, int, str]:
        split, name = pair
        entry = _recorded(manifest, name)
        return split == Split.CONTROL, entry.get("kind") == OTHER_EDITION, -(entry.get("copies") or 0), name

    named = results.with_columns(pl.col("split").cast(pl.String))
    pairs = named.select("split", "document").rows()
    places = {pair: place for place, pair in enumerate(sorted(set(pairs), key=rank))}
    placed = named.with_columns(document_place=pl.Series([places[pair] for pair in pairs], dtype=pl.Int64))
    return placed.sort("document_place", "suffix_char_start", "char_end", maintain_order=True).drop("document_place")


def model_name(manifest: Mapping[str, Any]) -> str | None:
    """The model's name for readers: the last folder of a path, long digests cut, a hub id unchanged.

    None for an unfinished run, which has only the hash of its model.
    """
    name = manifest["model"].get("name")
    return None if name is None else shown_name(name)


def documents_of(results: pl.DataFrame, manifest: Mapping[str, Any], texts: Texts) -> tuple[ViewedDocument, ...]:
    """Every document that has windows, in the order of `results`, each with what the manifest has about it."""
    documents, first_row = [], 0
    for split, name, windows in results.group_by("split", "document", maintain_order=True).len().iter_rows():
        entry, text = _recorded(manifest, name), texts.get((split, name))
        documents.append(
            ViewedDocument(
                name=name,
                split=split,
                text=text,
                content_hash=entry.get("content_hash"),
                characters=entry.get("characters") or (None if text is None else len(text)),
                short_windows=int(entry.get("short_windows") or 0),
                copies=entry.get("copies", 0 if split == Split.CONTROL else None),
                is_other_edition=entry.get("kind") == OTHER_EDITION,
                first_row=first_row,
                windows=windows,
            )
        )
        first_row += windows
    return tuple(documents)


def _recorded(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What the manifest has of a document; nothing for an unfinished run, which has only its hash."""
    entry = manifest["texts"].get(name)
    return entry if isinstance(entry, Mapping) else {}


def manifest_text(view: RunView) -> str:
    """The manifest as indented JSON; where it has many documents they are a count, and the file has them all."""
    manifest, documents = dict(view.manifest), view.manifest["texts"]
    if len(documents) > LISTED_DOCUMENTS:
        manifest["texts"] = f"{len(documents)} documents, listed in manifest.json"
    return json.dumps(manifest, indent=2, ensure_ascii=False)


def selection_of(view: RunView) -> Mapping[str, Any] | None:
    """What the manifest has of how windows were selected; None when all of them were measured."""
    chosen: Mapping[str, Any] | None = view.manifest.get("totals", {}).get("selection")
    return None if chosen is None or chosen["kind"] == "all" else chosen


def selection_words(view: RunView) -> str:
    """`911 windows`, or `60 of 911 windows, sampled, seed 0 (30 of 700 target, 30 of 211 control)`.

    Windows are counted by the places where one may begin, so the few that come out short are among the 911.
    """
    measured, chosen = len(view.population), selection_of(view)
    if view.so_far is not None and not view.is_complete:
        return f"{view.so_far}, so far"
    if chosen is None:
        return plural(measured, "window")
    starts: Mapping[str, int] = chosen["starts"]
    manner = f"sampled, seed {chosen['seed']}" if chosen["kind"] == "sample" else "the first of every document"
    words = f"{integer(measured)} of {plural(sum(starts.values()), 'window')}, {manner}"
    if len(starts) < 2:
        return words
    controls = int(view.population.is_control.sum())
    taken = {"target": measured - controls, "control": controls}
    parts = ", ".join(f"{integer(taken[split])} of {integer(count)} {split}" for split, count in starts.items())
    return f"{words} ({parts})"


FROM_CONTROL = "from-control="


def with_threshold(view: RunView, text: str | None) -> RunView:
    """The run read at another τ: `0.01`, or `from-control=0.001` for a rate of false positives."""
    if text is None:
        return view
    is_rate = text.startswith(FROM_CONTROL)
    try:
        value = float(text.removeprefix(FROM_CONTROL))
    except ValueError as error:
        raise ConfigError(f"threshold is {text!r}; write a number such as 0.01, or from-control=0.001.") from error
    if is_rate and not 0 < value < 1:
        raise ConfigError(f"threshold is {text}; the rate of false positives must be above 0 and below 1.")
    if not 0 < value <= 1:
        raise ConfigError(f"threshold is {text}; it must be above 0 and at most 1.")
    cut_short = view.population.is_cut_short
    least = view.run_threshold if cut_short is not None and cut_short.any() else 0.0
    if is_rate:
        return replace(view, chosen_threshold=_from_controls(view, value, least))
    if value < least:
        raise ConfigError(
            f"threshold is {value:g}, but searches of this run stopped at {least:g}; choose a larger one, or scan with "
            "a smaller --threshold."
        )
    words = f"τ was chosen as {probability(value)} after the scan."
    return replace(view, chosen_threshold=ChosenThreshold(value, words))


def at_one_threshold(views: Sequence[RunView]) -> list[RunView]:
    """Runs that stand side by side are read at the largest of their τ: below its own, a run may have stopped early."""
    largest = max(view.threshold for view in views)
    chosen = ChosenThreshold(largest, f"τ is {probability(largest)} for all runs, the largest that one has.")
    return [view if view.threshold == largest else replace(view, chosen_threshold=chosen) for view in views]


def _from_controls(view: RunView, rate: float, least: float) -> ChosenThreshold:
    """From the near-verbatim mass at the whole budget, or p_z where no more was measured: what is compared with τ."""
    controls = view.population.select(split_rows(view.population, Split.CONTROL))
    if not len(controls):
        raise ConfigError("threshold from-control needs control windows, and this run has none; scan with --control.")
    found = threshold_from_controls(controls.mass(controls.edit_budget), rate)
    if found.value is None:
        raise ConfigError(f"threshold: {found.reason}. Scan more control text, or state a larger rate.")
    value, whose = max(found.value, least), ", the run's own," if found.value < least else ""
    reached = int(np.sum(controls.mass(controls.edit_budget) >= value))
    words = (
        f"A further control window reaches τ = {probability(value)}{whose} with probability {percent(rate)} at most; "
        f"{integer(reached)} of {plural(len(controls), 'control window')} did."
    )
    units = units_of(controls).drawn
    if units < len(controls):
        words += f" That takes windows as independent; they overlap and stand for {integer(units)} stretches of text."
    return ChosenThreshold(value, words)
