"""How a prior run is shown: verdicts and thresholds in tables, what they rest on in sentences, examples masked."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from byrote.corpus.spans import mask_place
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Section, of_manifests
from byrote.report.view import distinct_labels, model_name
from byrote.report.words import integer, listed, number_from_log, percent, plural, policy_words, probability
from byrote.store.read import read_finished
from byrote.types import Interval, Split

FEW_PREFIXES = 1000
COUNTED = ("suffixes", "extractable", "memorized", "merely_likely", "unsettled")
COUNT_HEADS = ("scored", "above m", "memorized", "merely likely", "unsettled", "published", "median ratio")
EXAMPLE_CHARACTERS = 120
EXAMPLE_HEADS = ("suffix", "where", "ratio", "verdict", "published")
THRESHOLD_HEADS = ("tokens", "prefix tokens", "suffixes", "m", "n", "n from", "n to", "geom. mean", "top text")


class PriorView(NamedTuple):
    """A finished prior run."""

    label: str
    path: Path
    manifest: Mapping[str, Any]
    totals: Mapping[str, Any]
    results: pl.DataFrame


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    """Of one run everything; of several the counts of all, model beside model."""
    found = [read_finished(path, "prior") for path in paths]
    labels = distinct_labels([model_name(manifest) for _, manifest in found], paths)
    views = [
        PriorView(label, path, manifest, manifest["totals"], run.results)
        for label, path, (run, manifest) in zip(labels, paths, found, strict=True)
    ]
    tables, sentences = [_counts(views)], []
    if len(views) == 1:
        totals = views[0].totals
        tables += [*_balls(totals), _thresholds(totals), *_sweep(totals), *_examples(totals, reveal=asked.reveal)]
        sentences = [*basis_sentences(totals), *ball_sentences(totals), *threshold_notes(totals["thresholds"])]
    return Content(
        kind="prior",
        label=listed([view.label for view in views]),
        headline=_headline(views),
        **of_manifests([(view.path.name, _short_manifest(view)) for view in views]),
        facts=_facts(views),
        tables=tuple(tables),
        sentences=tuple(sentences),
        draw=lambda: _drawings(views),
    )


def _short_manifest(view: PriorView) -> dict[str, Any]:
    """Without the examples, whose texts are not masked there, and without what the tables hold."""
    totals = {name: view.totals[name] for name in view.totals if name not in ("examples", "thresholds")}
    return {**view.manifest, "totals": totals}


def _headline(views: Sequence[PriorView]) -> str:
    """Memorized rather than likely anywhere: of all suffixes that were scored, the controls' beside the targets'; what
    is settled, and what the published rule says of the same numbers."""
    found = []
    for view in views:
        for place, (split, part) in enumerate(view.totals["by_split"].items()):
            counts = part["all"]
            words = f"{integer(counts['memorized'])} of {integer(counts['suffixes'])} {split} suffixes"
            words += "" if place else f" from {view.label}"
            unsettled = f"{integer(counts['unsettled'])} unsettled; " if counts["unsettled"] else ""
            words += f" ({unsettled}published rule: {integer(counts['by_point_estimates']['memorized'])})"
            if (balls := view.totals.get("balls")) and balls["no_threshold"] is None:
                ball = balls["by_split"][split]["all"]
                published = integer(ball["by_point_estimates"]["memorized"])
                words += f", within {balls['edits']} edits {integer(ball['memorized'])} (published rule: {published})"
            found.append(words)
    return f"Memorized, not just likely after any prefix: {listed(found, most=len(found))}."


def _facts(views: Sequence[PriorView]) -> tuple[tuple[str, str], ...]:
    reference = views[0].totals["reference"]
    drawn = "all of them" if reference["is_exhaustive"] else f"{integer(reference['draws'])} draws"
    return (
        ("Model", listed([view.label for view in views])),
        ("Suffixes", integer(views[0].totals["windows"])),
        ("Prefixes that P(s) rests on", f"{integer(reference['distinct_prefixes'])} different ones, {drawn}"),
        ("Independent of each other", integer(reference["independent_prefixes"])),
        ("Answers sampled with", policy_words(views[0].manifest["config"])),
    )


def basis_sentences(totals: Mapping[str, Any]) -> Iterator[str]:
    """What v̂ rests on, how sure a verdict is, and what the published rule would have said."""
    if "joined" in totals:
        yield joined_sentence(totals["joined"])
    reference = totals["reference"]
    if reference["is_exhaustive"]:
        yield f"P(s) is the mean over all {reference['draws']:,} prefixes of the reference text."
    else:
        yield f"P(s) is estimated from {reference['draws']:,} prefixes drawn from the reference text."
    independent = reference["independent_prefixes"]
    if independent < reference["draws"]:
        yield (
            f"Limits count {independent:,} of them as independent: so many stretches of a prefix's length stand side "
            "by side in the reference text, and it is a sample of what people write."
        )
    if independent < FEW_PREFIXES:
        yield "So few prefixes say little about what other text would give; a larger --prior-text says more."
    short = totals.get("short_windows", 0)
    if totals["windows"] + short < totals["available"]:
        yield f"{totals['windows']:,} of {totals['available']:,} suffixes were chosen by --limit or --sample."
    if short:
        were = "was" if short == 1 else "were"
        yield f"{plural(short, 'window')} at the end of a text came out too short and {were} left out."
    if shared := totals["in_reference"]:
        yield (
            f"{shared:,} suffixes come from texts that are in the reference corpus too, or follow a prefix that stands "
            "there: P(s) holds P(s|p) itself, and their ratios are too low."
        )
    if merged := totals.get("boundaries_merged"):
        yield f"In {merged:,} suffixes the first token begins inside the prefix; it counts as suffix whole."
    yield (
        "Verdicts are about text of the reference text's kind and this n: that chance in the prefixes makes one "
        "memorized or merely likely wrongly has a probability of at most 5 % for each suffix, if stretches of the "
        "reference text are independent samples of that kind."
    )
    if any(part["all"]["unsettled"] for part in totals["by_split"].values()):
        is_short_of_text = reference["is_exhaustive"] or independent < reference["draws"]
        advice = "more reference text (--prior-text)" if is_short_of_text else "more draws (--prior-prefixes)"
        yield (
            "Unsettled: the interval of the ratio meets that of n. More generic texts (--generic) narrow n's, "
            f"{advice} the ratio's."
        )
    for split, part in totals["by_split"].items():
        point = part["all"]["by_point_estimates"]
        if part["all"]["extractable"]:
            counts = f"{point['memorized']:,} memorized, {point['merely_likely']:,} merely likely"
            yield f"By the published rule, which takes estimates as exact, {split}: {counts}."


def ball_sentences(totals: Mapping[str, Any]) -> Iterator[str]:
    """What the pool is, what it can show at all, and why there is no verdict."""
    if (balls := totals.get("balls")) is None:
        return
    most = f"{balls['largest_shown_ratio']:,.0f}"
    yield (
        f"The pool has {balls['members']:,} continuations, sampled with {balls['policy']} after random prefixes; "
        f"limits count {balls['independent_members']:,.0f} of them. Where none of them is within "
        f"{balls['edits']} edits of a window, this comes out nearly after a random prefix with probability at most "
        f"1/{most} (95 %), and its ratio is at least {most} times its certified mass."
    )
    if balls["no_threshold"] is not None:
        yield f"No verdict about near-verbatim masses: {balls['no_threshold']}."
    elif any(part["all"]["unsettled"] for part in balls["by_split"].values()):
        yield "Unsettled within the edits: a larger --pool, or n from --least-ratio, settles more of them."


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
    unknown = next(((tokens, one) for tokens, one in lengths if one["reason"]), None)
    if unknown is not None:
        yield f"No n at {unknown[0]} tokens: {unknown[1]['reason']}."
    unbounded = next(((t, one) for t, one in lengths if one["generic_texts_unseen"] and not one["reason"]), None)
    if unbounded is not None:
        yield (
            f"At {unbounded[0]} tokens {unbounded[1]['generic_texts_unseen']} generic suffixes follow none of the "
            "reference prefixes: they are left out, and n has no upper end."
        )
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
    by_ball = ", judged by their near-verbatim mass," if join["is_by_ball"] else ""
    return (
        f"Of {join['scan_extractable']:,} windows that the scan found extractable{by_ball} "
        f"{join['merely_likely']:,} are merely likely ({percent(real(share['value']))}{interval}), "
        f"{join['specific_to_their_prefix']:,} are specific to their prefix, {join['unsettled']:,} are unsettled; by "
        f"the published rule {join['published_memorized']:,} are memorized and {join['published_merely_likely']:,} "
        "merely likely."
    )


def real(value: float | str) -> float:
    """A number of a manifest, where infinities and NaN are words."""
    return float(value.replace("Infinity", "inf")) if isinstance(value, str) else float(value)


def _counts(views: Sequence[PriorView]) -> Cells:
    rows = []
    for view in views:
        for split, part in view.totals["by_split"].items():
            named = {split: part["all"]}
            if len(part["by_kind"]) > 1:
                named |= {f"{split}: {kind}": each for kind, each in part["by_kind"].items()}
            for name, counts in named.items():
                shown = name if len(views) == 1 else f"{view.label}, {name}"
                rows.append((shown, *_count_words(counts), number_from_log(real(counts["median_log_ratio"]))))
    note = (
        "Above m: P(s|p) > m; memorized, merely likely and unsettled add up to them. Published: memorized if "
        "estimates are taken as exact. byrote export lists them all."
    )
    return Cells("counts", "Verdicts", ("texts", *COUNT_HEADS), tuple(rows), note)


def _count_words(counts: Mapping[str, Any]) -> list[str]:
    """Under COUNT_HEADS but the last."""
    numbers = (*(counts[column] for column in COUNTED), counts["by_point_estimates"]["memorized"])
    return list(map(integer, numbers))


def _balls(totals: Mapping[str, Any]) -> Iterator[Cells]:
    if balls := totals.get("balls"):
        rows = []
        for split, parts in balls["by_split"].items():
            for name, counts in parts.items():
                words = (*_count_words(counts), integer(counts["without_hit"]))
                ratio = number_from_log(real(counts["median_log_ratio_at_least"]))
                rows.append((split if name == "all" else f"{split}: {name}", *words, ratio))
        heads = ("windows", *COUNT_HEADS[:-1], "not in pool", "ratio at least")
        note = "Not in pool: no sampled continuation comes near. Ratio at least: median of the 95 % lower limits."
        yield Cells("balls", f"Verdicts within {balls['edits']} edits", heads, tuple(rows), note)


def _thresholds(totals: Mapping[str, Any]) -> Cells:
    rows = []
    for entry in totals["thresholds"]:
        for tokens, one in entry["by_suffix_tokens"].items():
            ratios = [one[f"log_least_ratio{end}"] for end in ("", "_low", "_high")]
            words = [number_from_log(real(value)) for value in (*ratios, one["log_geometric_mean"])]
            least, share = probability(one["least_probability"]), percent(real(one["largest_share"]))
            rows.append((tokens, str(entry["prefix_tokens"]), integer(one["suffixes"]), least, *words, share))
    return Cells("thresholds", "Thresholds by suffix length", THRESHOLD_HEADS, tuple(rows))


def _sweep(totals: Mapping[str, Any]) -> Iterator[Cells]:
    if swept := totals.get("by_prefix_tokens"):
        rows = tuple(
            (tokens, *(integer(swept[tokens][name]) for name in (*COUNTED[1:], "published_memorized")))
            for tokens in sorted(swept, key=int)
        )
        yield Cells("by_prefix_length", "By prefix length", ("prefix tokens", *COUNT_HEADS[1:-1]), rows)


def _examples(totals: Mapping[str, Any], *, reveal: bool) -> Iterator[Cells]:
    """The beginnings of a few suffixes, masked by default: a page is passed on more easily than a terminal."""
    note = "" if reveal else "Identifiers are masked; byrote show --reveal prints them."
    for name, rows in totals["examples"].items():
        cells = tuple(
            (
                shortened(repr(row["suffix_text" if reveal else "masked_text"])),
                row["window_id"] if reveal else mask_place(row["window_id"]),
                number_from_log(real(row["log_ratio"])),
                row["prior_verdict"].replace("_", " ") + (", control" if row["split"] == Split.CONTROL else ""),
                row["point_verdict"].replace("_", " "),
            )
            for row in rows
        )
        if cells:
            yield Cells(name, name.replace("_", " ").capitalize(), EXAMPLE_HEADS, cells, note)


def shortened(text: str) -> str:
    return text if len(text) <= EXAMPLE_CHARACTERS else f"{text[:EXAMPLE_CHARACTERS]}…"


def _drawings(views: Sequence[PriorView]) -> Iterator[Drawing]:
    """Of one run its suffixes; of several the shares, model beside model."""
    # Needs matplotlib, which the terminal does not.
    from byrote.report.figures.prior import ShownThreshold, prior_scatter, prior_shares, ratios_by_length

    if len(views) > 1:
        by_split = {view.label: view.totals["by_split"] for view in views}
        # A run that has only controls is drawn by these.
        found = {label: (parts.get(Split.TARGET) or parts[Split.CONTROL])["all"] for label, parts in by_split.items()}
        shares = {
            label: counts | {"published_memorized": counts["by_point_estimates"]["memorized"]}
            for label, counts in found.items()
        }
        yield prior_shares(shares, is_by_prefix_length=False)
        return
    rows, totals = views[0].results, views[0].totals
    shown = {}
    for tokens, one in totals["thresholds"][0]["by_suffix_tokens"].items():
        log_n, low, high = (real(one[f"log_least_ratio{end}"]) for end in ("", "_low", "_high"))
        ratios, interval = tuple(map(real, one["generic_log_ratios"])), Interval(low, high, 0.95, one["reason"])
        shown[int(tokens)] = ShownThreshold(int(tokens), one["least_probability"], log_n, interval, ratios)
    (commonest, _), *_ = Counter(rows["suffix_ids"].list.len()).most_common(1)
    title = f"All {len(rows):,} suffixes" + ("" if len(shown) == 1 else f", {len(shown)} lengths")
    yield prior_scatter(rows, shown[commonest], title=title)
    yield ratios_by_length(rows, list(shown.values()), title=title)
    if swept := totals.get("by_prefix_tokens"):
        counts = {f"{tokens} tokens": swept[tokens] | {"suffixes": len(rows)} for tokens in sorted(swept, key=int)}
        yield prior_shares(counts, is_by_prefix_length=True)


SECTION = Section(read)
