"""How prior runs are shown: counts, thresholds and masked examples in a terminal and on a page, models compared."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from rote.errors import RunError
from rote.prior.masking import mask_place
from rote.prior.sentences import basis_sentences, joined_sentence, real, threshold_notes
from rote.report.content import Asked, Cells, Content, Section
from rote.report.view import model_name
from rote.report.words import integer, listed, number_from_log, percent, policy_words, probability
from rote.store.read import read_run
from rote.types import Interval, Split

if TYPE_CHECKING:  # a terminal does not wait for drawing
    from rote.prior.figures import PriorShare, ScoredSuffixes, ShownThreshold
    from rote.report.drawing import Drawing

COUNTED = ("suffixes", "extractable", "memorized", "merely_likely", "unsettled")
COUNT_HEADS = ("suffixes", "P(s|p) > m", "memorized", "merely likely", "unsettled", "median ratio")
NOTHING_FURTHER = Asked()
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


def read(paths: Sequence[Path], asked: Asked = NOTHING_FURTHER) -> Content:
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
    note = "Memorized, merely likely and unsettled add up to the suffixes with P(s|p) > m; rote export lists them all."
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
    note = "" if reveal else "Identifiers are masked; rote show --reveal prints them."
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
    from rote.prior.figures import prior_scatter, prior_shares, ratios_by_length
    from rote.report.drawing import Drawing

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
    from rote.prior.figures import ScoredSuffixes

    return ScoredSuffixes(
        log_conditional=rows["log_p_conditional"].to_numpy(),
        log_prior=rows["log_p_prior"].to_numpy(),
        log_ratio=rows["log_ratio"].to_numpy(),
        verdicts=rows["prior_verdict"].to_list(),
        is_control=np.array(rows["split"].to_list()) == str(Split.CONTROL),
        tokens=rows["suffix_ids"].list.len().to_numpy().astype(np.int64),
    )


def _shown(view: PriorView) -> dict[int, "ShownThreshold"]:
    from rote.prior.figures import ShownThreshold

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
    from rote.prior.figures import PriorShare

    counts = view.totals["by_prefix_tokens"][prefix_tokens] if prefix_tokens else _target(view)
    suffixes = view.totals["windows"] if prefix_tokens else counts["suffixes"]
    return PriorShare(label, suffixes, counts["extractable"], counts["memorized"], counts["unsettled"])


SECTION = Section("prior", read, read_as_asked=read)
