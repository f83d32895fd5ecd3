"""What a prior run says in sentences: what its verdicts rest on, what its thresholds are, what a scan has of them."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from byrote.errors import RunError
from byrote.prior.items import mask_place
from byrote.prior.verdicts import PriorVerdict
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Section
from byrote.report.figures.style import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    SOFT,
    VERMILLION,
    house_style,
    legend_above,
    new_figure,
    percent_axis,
)
from byrote.report.view import model_name
from byrote.report.words import integer, listed, number_from_log, percent, policy_words, probability
from byrote.stats.population import Floats
from byrote.store.read import read_run
from byrote.types import Interval, Split

if TYPE_CHECKING:
    from byrote.report.content import Drawing


FEW_PREFIXES = 1000
Totals = Mapping[str, Any]


def basis_sentences(totals: Totals) -> Iterator[str]:
    """What v̂ rests on, how sure a verdict is, and what the published rule would have said."""
    reference = totals["reference"]
    if reference["is_exhaustive"]:
        yield f"P(s) is the mean over all {reference['draws']:,} prefixes of the reference corpus, exactly."
        if reference["draws"] < FEW_PREFIXES:
            yield "So few prefixes say little about what other text would give; a larger --prior-text says more."
    else:
        yield f"P(s) is estimated from {reference['draws']:,} prefixes drawn from the reference corpus."
    short = totals.get("short_windows", 0)
    if totals["windows"] + short < totals["available"]:
        yield f"{totals['windows']:,} of {totals['available']:,} suffixes were chosen by --limit or --sample."
    if short:
        yield f"{short:,} windows at the end of a text came out too short and were left out."
    if shared := totals["in_reference"]:
        yield (
            f"{shared:,} suffixes come from texts that are in the reference corpus too, or follow a prefix that stands "
            "there: P(s) holds P(s|p) itself, and their ratios are too low."
        )
    if merged := totals.get("boundaries_merged"):
        yield f"In {merged:,} suffixes the first token begins inside the prefix; it counts as suffix whole."
    if reference["is_exhaustive"]:
        yield "Verdicts are about this reference corpus and this n; for this corpus the ratio is exact."
    else:
        yield (
            "Verdicts are about this reference corpus and this n: that the draws make one memorized or merely likely "
            "wrongly has a chance of at most 5 % for each suffix."
        )
    if any(part["all"]["unsettled"] for part in totals["by_split"].values()):
        yield "Unsettled: the interval of the ratio meets that of n. More generic texts (--generic) narrow n's" + (
            "." if reference["is_exhaustive"] else ", more draws (--prior-prefixes) the ratio's."
        )
    for split, part in totals["by_split"].items():
        point = part["all"]["by_point_estimates"]
        if part["all"]["extractable"]:
            counts = f"{point['memorized']:,} memorized, {point['merely_likely']:,} merely likely"
            yield f"By point estimates alone, as published, {split}: {counts}."


def threshold_notes(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What n is; why it is missing, has no upper end, or is that of shorter suffixes, at the first such length."""
    lengths = [(int(tokens), one) for entry in entries for tokens, one in entry["by_suffix_tokens"].items()]
    distinct = {tokens for tokens, _ in lengths}
    if any(one["generic_texts"] for _, one in lengths):
        yield (
            "n is the mean ratio of generic texts. Its interval has room for the n of as many other texts if the "
            "ratios' logarithms are normal; with heavier tails it would lie outside more often than 1 time in 20."
        )
        leaps = " That is why n leaps from length to length, and its interval does not." if len(distinct) > 1 else ""
        yield f"Top text is the share of n that comes from a single one.{leaps}"
    for tokens, one in lengths:
        if one["reason"]:
            yield f"No n at {tokens} tokens: {one['reason']}."
            break
    for tokens, one in lengths:
        if one["generic_texts_unseen"] and not one["reason"]:
            yield (
                f"At {tokens} tokens {one['generic_texts_unseen']} generic suffixes follow none of the reference "
                "prefixes: they are left out, and n has no upper end."
            )
            break
    for tokens, one in lengths:
        used = one["generic_suffix_tokens"]
        if used is not None and used < tokens:
            yield f"From {tokens} tokens on n is that of {used}: the generic texts are no longer."
            break


def joined_sentence(join: Mapping[str, Any]) -> str:
    share = join["merely_likely_share"]
    interval = (
        "" if isinstance(share["low"], str) else f", 95 % interval {percent(share['low'])} to {percent(share['high'])}"
    )
    return (
        f"Of {join['scan_extractable']:,} windows that the scan found extractable {join['merely_likely']:,} are merely "
        f"likely ({percent(real(share['value']))}{interval}), {join['specific_to_their_prefix']:,} are specific to "
        f"their prefix, {join['unsettled']:,} are unsettled."
    )


def real(value: float | str) -> float:
    """A number of a manifest, where infinities and NaN are words."""
    return float(value.replace("Infinity", "inf")) if isinstance(value, str) else float(value)


LOG_TEN = float(np.log(10.0))
LOOKS = {
    PriorVerdict.NOT_EXTRACTABLE: (SOFT, "o", "P(s|p) ≤ m"),
    PriorVerdict.MERELY_LIKELY: (BLUE, "^", "merely likely"),
    PriorVerdict.UNSETTLED: (ORANGE, "s", "unsettled"),
    PriorVerdict.MEMORIZED: (VERMILLION, "D", "memorized"),
}
"""Colour, marker and name of every verdict."""


@dataclass(frozen=True)
class ScoredSuffixes:
    """One entry a suffix, natural logarithms."""

    log_conditional: Floats
    log_prior: Floats
    log_ratio: Floats
    verdicts: Sequence[str]
    is_control: NDArray[np.bool_]
    tokens: NDArray[np.int64]


class ShownThreshold(NamedTuple):
    """m and n at one suffix length, n with its interval and the ratios of the generic texts."""

    tokens: int
    least_conditional: float
    log_n: float
    interval: Interval
    log_ratios: tuple[float, ...]


def prior_scatter(suffixes: ScoredSuffixes, threshold: ShownThreshold, *, title: str = "") -> Figure:
    """log₁₀ P(s|p) against log₁₀ v̂ of every suffix, with m and n of one length; what has no logarithm at the edge."""
    figure, axes = new_figure(5.4, 4.6)
    with house_style():
        x, y = suffixes.log_prior / LOG_TEN, suffixes.log_conditional / LOG_TEN
        left, low = _edge(x), _edge(y)
        _draw_points(axes, np.maximum(x, left), np.maximum(y, low), suffixes)
        span = np.array([left - 0.02 * abs(left), max(float(x.max()), left) + 0.5])
        _draw_threshold(axes, span, threshold)
        axes.set_xlim(*span)
        axes.set_ylim(low - 0.5, 0.5)
        axes.grid(visible=True, axis="both")
        axes.set_xlabel("log₁₀ v̂, the probability after other prefixes")
        axes.set_ylabel("log₁₀ P(s|p), the probability after its own prefix")
        axes.set_title(title, pad=60)
        legend_above(axes, columns=2)
        _note_edges(axes, np.isneginf(x) | np.isneginf(y))
    return figure


def ratios_by_length(suffixes: ScoredSuffixes, thresholds: Sequence[ShownThreshold], *, title: str = "") -> Figure:
    """Every ratio at its suffix length, beside those of the generic texts, their mean n with its interval."""
    figure, axes = new_figure(5.4, 4.2)
    with house_style():
        shown = sorted(thresholds)
        tokens = np.array([each.tokens for each in shown], dtype=float)
        ratios = suffixes.log_ratio / LOG_TEN
        generic = np.array([value for each in shown for value in each.log_ratios]) / LOG_TEN
        bottom, top = _limits(np.concatenate([ratios, generic, [each.log_n / LOG_TEN for each in shown]]))
        _draw_generic(axes, shown, tokens, (bottom, top))
        spread = np.linspace(-0.3, 0.3, 7)[np.arange(len(ratios)) % 7]
        _draw_points(axes, suffixes.tokens + spread, np.clip(ratios, bottom, top), suffixes)
        axes.set_ylim(bottom - 0.4, top + 0.4)
        axes.set_xlim(tokens.min() - 1, tokens.max() + 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("tokens of the suffix")
        axes.set_ylabel("log₁₀ ratio P(s|p) / v̂")
        axes.set_title(title, pad=46)
        legend_above(axes, columns=3)
        _note_edges(axes, np.isinf(ratios))
    return figure


def _draw_points(axes: Axes, x: Floats, y: Floats, suffixes: ScoredSuffixes) -> None:
    """One marker a suffix, by verdict; controls are hollow."""
    verdicts = np.array(suffixes.verdicts)
    for verdict, (colour, marker, name) in LOOKS.items():
        chosen = verdicts == str(verdict)
        if not chosen.any():
            continue
        axes.scatter([], [], s=16, color=colour, marker=marker, label=f"{name} ({int(chosen.sum()):,})")
        for rows, face in ((chosen & ~suffixes.is_control, colour), (chosen & suffixes.is_control, "none")):
            axes.scatter(
                x[rows],
                y[rows],
                s=16,
                facecolors=face,
                edgecolors=colour,
                marker=marker,
                alpha=0.7,
                linewidths=0.7,
                rasterized=len(x) > 2_000,
            )
    if suffixes.is_control.any():
        axes.scatter([], [], s=16, facecolors="none", edgecolors=INK, linewidths=0.7, label="hollow: control")


def _draw_threshold(axes: Axes, span: Floats, threshold: ShownThreshold) -> None:
    where = f"for {threshold.tokens} tokens"
    log_m = np.log10(threshold.least_conditional) if threshold.least_conditional > 0 else -np.inf
    if np.isfinite(log_m):
        words = f"m = {probability(threshold.least_conditional)} {where}"
        axes.axhline(log_m, color=INK, linewidth=0.9, linestyle=":", label=words)
    if not np.isfinite(threshold.log_n):
        return
    log_n = threshold.log_n / LOG_TEN
    words = f"n = {number_from_log(threshold.log_n)} {where}"
    axes.plot(span, span + log_n, color=INK, linewidth=0.9, linestyle="--", label=words)
    if threshold.interval.is_defined and threshold.interval.low < threshold.interval.high:
        low, high = (np.clip(end / LOG_TEN, -400, 400) for end in (threshold.interval.low, threshold.interval.high))
        axes.fill_between(
            span, span + low, span + high, color=FAINT, alpha=0.45, linewidth=0, label="95 % of n", zorder=0
        )


def _draw_generic(axes: Axes, shown: Sequence[ShownThreshold], tokens: Floats, ends: tuple[float, float]) -> None:
    """Generic ratios as dashes, n as a line over its band; without generic texts n is the line alone."""
    log_n = np.array([each.log_n for each in shown]) / LOG_TEN
    low = np.clip([each.interval.low / LOG_TEN for each in shown], *ends)
    high = np.clip([each.interval.high / LOG_TEN for each in shown], *ends)
    # A single length has no extent of its own: give the line and the band the width of its column.
    if len(shown) == 1:
        tokens, log_n, low, high = tokens[0] + np.array([-0.7, 0.7]), log_n.repeat(2), low.repeat(2), high.repeat(2)
    for each in shown:
        values = np.array(each.log_ratios) / LOG_TEN
        axes.plot(np.full(len(values), each.tokens), values, "_", color=SOFT, markersize=7, markeredgewidth=0.7)
    if any(each.log_ratios for each in shown):
        axes.plot([], [], "_", color=SOFT, markersize=7, markeredgewidth=0.7, label="one generic text")
        axes.fill_between(tokens, low, high, color=FAINT, alpha=0.45, linewidth=0, label="95 % of n", zorder=0)
    axes.plot(tokens, log_n, color=INK, linewidth=1.1, linestyle="--", label="n, their mean")


def _edge(values: Floats) -> float:
    """Where values without a logarithm are drawn: one decade below the lowest that has one."""
    finite = values[np.isfinite(values)]
    return float(finite.min()) - 1.0 if finite.size else -1.0


def _limits(values: Floats) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (-1.0, 1.0)


def _note_edges(axes: Axes, is_at_edge: NDArray[np.bool_]) -> None:
    """Says how many points stand at an edge because one of their probabilities is 0."""
    if is_at_edge.any():
        words = f"{int(is_at_edge.sum()):,} with a probability of 0 stand at the edge"
        axes.text(0.99, 0.01, words, transform=axes.transAxes, ha="right", va="bottom", fontsize=7, color=SOFT)


@dataclass(frozen=True)
class PriorShare:
    """One model or prefix length: counts of verdicts among `suffixes`."""

    label: str
    suffixes: int
    extractable: int
    memorized: int
    unsettled: int


def prior_shares(shares: Sequence[PriorShare], *, title: str = "") -> Figure:
    """Bars of the share with P(s|p) > m; memorized filled, unsettled hatched above it."""
    figure, axes = new_figure(max(4.8, 1.1 * len(shares) + 1.4), 3.4)
    with house_style():
        places = np.arange(len(shares))
        totals = np.array([share.suffixes or np.nan for share in shares], dtype=float)
        extractable, memorized, unsettled = (
            np.array([getattr(share, name) for share in shares]) / totals
            for name in ("extractable", "memorized", "unsettled")
        )
        axes.bar(places, extractable, width=0.6, color="white", edgecolor=BLUE, linewidth=1.2, label="P(s|p) > m")
        axes.bar(places, memorized, width=0.6, color=VERMILLION, label="memorized")
        axes.bar(
            places, unsettled, bottom=memorized, width=0.6, color="white", edgecolor=ORANGE, hatch="///", linewidth=0,
            label="unsettled",
        )  # fmt: skip
        for place, share, top in zip(places, shares, extractable, strict=True):
            if share.extractable:
                words = f"{share.memorized} of {share.extractable}"
                axes.annotate(words, (place, top), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7.5)
        axes.set_xticks(places, [share.label for share in shares])
        axes.set_ylabel("suffixes")
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        percent_axis(axes)
        axes.set_title(title, pad=24)
        legend_above(axes, columns=3)
    return figure


COUNTED = ("suffixes", "extractable", "memorized", "merely_likely", "unsettled")
COUNT_HEADS = ("suffixes", "P(s|p) > m", "memorized", "merely likely", "unsettled", "median ratio")
EXAMPLE_CHARACTERS = 120
EXAMPLE_HEADS = ("suffix", "where", "ratio", "verdict")
THRESHOLD_HEADS = ("tokens", "prefix tokens", "suffixes", "m", "n", "n from", "n to", "geometric mean", "top text")


class PriorView(NamedTuple):
    """A finished prior run."""

    label: str
    path: Path
    manifest: Mapping[str, Any]
    results: pl.DataFrame

    @property
    def totals(self) -> Mapping[str, Any]:
        totals: Mapping[str, Any] = self.manifest["totals"]
        return totals


def load(path: Path) -> PriorView:
    run = read_run(path)
    if run.manifest is None:
        raise RunError(f"{path} is not finished, and a prior run has no rows before it is; run the same command again.")
    return PriorView(model_name(run.manifest) or path.name, path, run.manifest, run.results)


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    """Of one run everything; of several the counts of all, model beside model."""
    views = [load(path) for path in paths]
    if len({view.label for view in views}) < len(views):
        views = [view._replace(label=f"{view.label} ({view.path.name})") for view in views]
    tables = [_counts(views)]
    if len(views) == 1:
        tables += [_thresholds(views[0]), *_sweep(views[0]), *_examples(views[0], reveal=asked.reveal)]
    return Content(
        kind="prior",
        label=listed([view.label for view in views]),
        headline=_headline(views),
        date=str(views[0].manifest["written_at"])[:10],
        facts=_facts(views),
        tables=tuple(tables),
        sentences=_sentences(views[0]) if len(views) == 1 else (),
        draw=lambda: _drawings(views),
        manifests=tuple((view.path.name, _manifest(view)) for view in views),
    )


def _manifest(view: PriorView) -> str:
    """Without the examples, whose texts are not masked there, and without what the tables say."""
    totals = {name: view.totals[name] for name in view.totals if name not in ("examples", "thresholds")}
    return json.dumps({**view.manifest, "totals": totals}, indent=2, ensure_ascii=False)


def _headline(views: Sequence[PriorView]) -> str:
    """Memorized rather than likely anywhere: of all suffixes that were scored, the controls' beside the targets'."""
    found = [
        f"{integer(counts['memorized'])} of {integer(counts['suffixes'])} {split} suffixes"
        f"{'' if place else f' from {view.label}'}{_unsettled(counts)}"
        for view in views
        for place, (split, counts) in enumerate((s, part["all"]) for s, part in view.totals["by_split"].items())
    ]
    return f"Memorized, not just likely after any prefix: {listed(found, most=len(found))}."


def _unsettled(counts: Mapping[str, Any]) -> str:
    return f" ({integer(counts['unsettled'])} more are unsettled)" if counts["unsettled"] else ""


def _target(view: PriorView) -> Mapping[str, Any]:
    """Counts of the targets; of a run that has only controls, theirs."""
    by_split = view.totals["by_split"]
    found: Mapping[str, Any] = (by_split.get(Split.TARGET) or by_split[Split.CONTROL])["all"]
    return found


def _facts(views: Sequence[PriorView]) -> tuple[tuple[str, str], ...]:
    reference = views[0].totals["reference"]
    drawn = "all of them" if reference["is_exhaustive"] else f"{integer(reference['draws'])} draws"
    return (
        ("Model", listed([view.label for view in views])),
        ("Suffixes", integer(views[0].totals["windows"])),
        ("Prefixes that P(s) rests on", f"{integer(reference['distinct_prefixes'])} different ones, {drawn}"),
        ("Answers sampled with", policy_words(views[0].manifest["config"])),
    )


def _sentences(view: PriorView) -> tuple[str, ...]:
    joined = [joined_sentence(view.totals["joined"])] if "joined" in view.totals else []
    return (*joined, *basis_sentences(view.totals), *threshold_notes(view.totals["thresholds"]))


def _counts(views: Sequence[PriorView]) -> Cells:
    rows = []
    for view in views:
        for split, part in view.totals["by_split"].items():
            kinds = part["by_kind"] if len(part["by_kind"]) > 1 else {}
            for name, counts in {
                split: part["all"],
                **{f"{split}: {kind}": each for kind, each in kinds.items()},
            }.items():
                words = [integer(counts[column]) for column in COUNTED]
                rows.append((f"{view.label}, {name}", *words, number_from_log(real(counts["median_log_ratio"]))))
    note = (
        "Memorized, merely likely and unsettled add up to the suffixes with P(s|p) > m; byrote export lists them all."
    )
    return Cells("counts", "Verdicts", ("run", *COUNT_HEADS), tuple(rows), note)


def _thresholds(view: PriorView) -> Cells:
    rows = []
    for entry in view.totals["thresholds"]:
        for tokens, one in entry["by_suffix_tokens"].items():
            ratios = [one[f"log_least_ratio{end}"] for end in ("", "_low", "_high")]
            words = [number_from_log(real(value)) for value in (*ratios, one["log_geometric_mean"])]
            least, share = probability(one["least_probability"]), percent(real(one["largest_share"]))
            rows.append((tokens, str(entry["prefix_tokens"]), integer(one["suffixes"]), least, *words, share))
    return Cells("thresholds", "Thresholds by suffix length", THRESHOLD_HEADS, tuple(rows))


def _sweep(view: PriorView) -> Iterable[Cells]:
    swept = view.totals.get("by_prefix_tokens")
    if swept:
        names = COUNTED[1:]
        ordered = sorted(swept.items(), key=lambda entry: int(entry[0]))
        rows = tuple((tokens, *(integer(counts[name]) for name in names)) for tokens, counts in ordered)
        yield Cells("by_prefix_length", "By prefix length", ("prefix tokens", *COUNT_HEADS[1:-1]), rows)


def _examples(view: PriorView, *, reveal: bool) -> Iterable[Cells]:
    """The beginnings of a few suffixes. Masked unless asked for: a page is passed on more easily than a terminal."""
    note = "" if reveal else "Identifiers are masked; byrote show --reveal prints them."
    for name, rows in view.totals["examples"].items():
        cells = tuple(
            (
                shortened(repr(row["suffix_text" if reveal else "masked_text"])),
                row["window_id"] if reveal else mask_place(row["window_id"]),
                number_from_log(real(row["log_ratio"])),
                row["prior_verdict"].replace("_", " ") + (", control" if row["split"] == Split.CONTROL else ""),
            )
            for row in rows
        )
        if cells:
            yield Cells(name, name.replace("_", " ").capitalize(), EXAMPLE_HEADS, cells, note)


def shortened(text: str) -> str:
    return text if len(text) <= EXAMPLE_CHARACTERS else f"{text[:EXAMPLE_CHARACTERS]}…"


def _drawings(views: Sequence[PriorView]) -> Iterable["Drawing"]:
    """Of one run its suffixes; of several the shares, model beside model."""
    from byrote.report.content import Drawing

    if len(views) > 1:
        caption = "Share of suffixes with P(s|p) > m, and of those memorized, model by model."
        yield Drawing("prior_by_model", caption, prior_shares([_share(view.label, view) for view in views]))
        return
    view = views[0]
    suffixes, shown = _suffixes(view.results), _shown(view)
    (commonest, _), *_ = Counter(suffixes.tokens.tolist()).most_common(1)
    title = f"All {len(view.results):,} suffixes" + ("" if len(shown) == 1 else f", {len(shown)} lengths")
    caption = "Each suffix by its probability after its own prefix and after others; above the line it is memorized."
    yield Drawing("prior_scatter", caption, prior_scatter(suffixes, shown[commonest], title=title))
    caption = "The ratio of the two probabilities beside the length of the suffix, and what generic texts have."
    yield Drawing("prior_ratios", caption, ratios_by_length(suffixes, list(shown.values()), title=title))
    if "by_prefix_tokens" in view.totals:
        swept = sorted(view.totals["by_prefix_tokens"], key=int)
        shares = [_share(f"{tokens} tokens", view, tokens) for tokens in swept]
        caption = "Share of suffixes with P(s|p) > m, and of those memorized, by length of the prefix."
        yield Drawing("prior_by_prefix_length", caption, prior_shares(shares, title="By prefix length"))


def _suffixes(rows: pl.DataFrame) -> "ScoredSuffixes":

    return ScoredSuffixes(
        log_conditional=rows["log_p_conditional"].to_numpy(),
        log_prior=rows["log_p_prior"].to_numpy(),
        log_ratio=rows["log_ratio"].to_numpy(),
        verdicts=rows["prior_verdict"].to_list(),
        is_control=np.array(rows["split"].to_list()) == str(Split.CONTROL),
        tokens=rows["suffix_ids"].list.len().to_numpy().astype(np.int64),
    )


def _shown(view: PriorView) -> dict[int, "ShownThreshold"]:

    shown = {}
    for tokens, one in view.totals["thresholds"][0]["by_suffix_tokens"].items():
        low, high = (real(one[f"log_least_ratio_{end}"]) for end in ("low", "high"))
        shown[int(tokens)] = ShownThreshold(
            int(tokens),
            one["least_probability"],
            real(one["log_least_ratio"]),
            Interval(low, high, 0.95, one["reason"]),
            tuple(map(real, one["generic_log_ratios"])),
        )
    return shown


def _share(label: str, view: PriorView, prefix_tokens: str | None = None) -> "PriorShare":

    counts = view.totals["by_prefix_tokens"][prefix_tokens] if prefix_tokens else _target(view)
    suffixes = view.totals["windows"] if prefix_tokens else counts["suffixes"]
    return PriorShare(label, suffixes, counts["extractable"], counts["memorized"], counts["unsettled"])


SECTION = Section(read)
