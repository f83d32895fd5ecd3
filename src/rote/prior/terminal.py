"""The summary of a finished prior run in a terminal. Personal data in examples is masked unless asked for."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rote.report.words import number_from_log, percent, probability
from rote.types import Split

LENGTHS_SHOWN = 8
Totals = Mapping[str, Any]


def prior_summary(totals: Totals, *, reveal: bool = False) -> RenderableType:
    """Counts, n by suffix length, what the verdicts mean, examples, the joined view."""
    parts: list[RenderableType] = [counts_table(totals), Text(), *map(Text, basis_sentences(totals)), Text()]
    parts += map(threshold_table, totals["thresholds"])
    for name, rows in totals["examples"].items():
        if rows:
            parts += [Text(), Text(f"{name.replace('_', ' ')}:"), example_table(rows, reveal=reveal)]
    if not reveal and any(totals["examples"].values()):
        parts.append(Text("Identifiers in examples are masked; --reveal shows them.", style="dim"))
    if "joined" in totals:
        parts += [Text(), Text(joined_sentence(totals["joined"]))]
    return Group(*parts)


def counts_table(totals: Totals) -> Table:
    """One row per split and kind. Memorized, merely likely and unsettled add up to the suffixes with P(s|p) > m."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("suffixes", "P(s|p) > m", "memorized", "merely likely", "unsettled", "median ratio"):
        table.add_column(name, justify="right")
    for split, part in totals["by_split"].items():
        table.add_row(split, *_counts(part["all"]), style="bold")
        if len(part["by_kind"]) > 1:
            for kind, counts in part["by_kind"].items():
                table.add_row(Text(f"  {kind}"), *_counts(counts))
    return table


def _counts(counts: Mapping[str, Any]) -> list[str]:
    names = ("suffixes", "extractable", "memorized", "merely_likely", "unsettled")
    return [*(f"{counts[name]:,}" for name in names), number_from_log(real(counts["median_log_ratio"]))]


def basis_sentences(totals: Totals) -> Iterator[str]:
    """What v̂ rests on, how sure a verdict is, and what the published rule would have said."""
    reference = totals["reference"]
    if reference["is_exhaustive"]:
        yield f"P(s) is the mean over all {reference['draws']:,} prefixes of the reference corpus, exactly."
    else:
        yield f"P(s) is estimated from {reference['draws']:,} prefixes drawn from the reference corpus."
    if totals["windows"] < totals["available"]:
        yield f"{totals['windows']:,} of {totals['available']:,} suffixes were chosen by --limit or --sample."
    if merged := totals.get("boundaries_merged"):
        yield f"In {merged:,} a token reaches over the boundary of prefix and suffix; it counts as suffix whole."
    yield "A verdict memorized or merely likely is wrong with a chance of at most 5 %, by the draws and by n together."
    for split, part in totals["by_split"].items():
        point = part["all"]["by_point_estimates"]
        if part["all"]["extractable"]:
            counts = f"{point['memorized']:,} memorized, {point['merely_likely']:,} merely likely"
            yield f"By point estimates alone, as published, {split}: {counts}."


def threshold_table(entry: Mapping[str, Any]) -> Table:
    """m, and n with its interval, at some of the suffix lengths."""
    lengths = list(entry["by_suffix_tokens"].items())
    step = -(-len(lengths) // LENGTHS_SHOWN)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("tokens", "suffixes", "m", "n", "95 % interval", "geo. mean", "top text"):
        table.add_column(name, justify="right", no_wrap=True)
    for tokens, one in lengths[::step]:
        table.add_row(
            tokens,
            f"{one['suffixes']:,}",
            probability(one["least_probability"]),
            number_from_log(real(one["log_least_ratio"])),
            _interval(one),
            number_from_log(real(one["log_geometric_mean"])),
            percent(real(one["largest_share"])),
        )
    table.title = f"Thresholds by suffix length, after {entry['prefix_tokens']} prefix tokens"
    table.title_justify, table.title_style = "left", ""
    table.caption = "\n".join(_notes(lengths, shown=table.row_count))
    table.caption_justify = "left"
    return table


def _notes(lengths: list[tuple[str, Mapping[str, Any]]], *, shown: int) -> Iterator[str]:
    """What n is; why it is missing, has no upper end, or is that of shorter suffixes, at the first such length."""
    if any(one["generic_texts"] for _, one in lengths):
        yield (
            "n is the mean ratio of generic texts; the interval is where it would lie with as many others. A single "
            "text carries the last column's share of it: that is why n leaps from length to length, and the "
            "interval does not."
        )
    if shown < len(lengths):
        yield f"{shown} of {len(lengths)} lengths are shown; manifest.json has all."
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
        if used is not None and used < int(tokens):
            yield f"From {tokens} tokens on n is that of {used}: the generic texts are no longer."
            break


def example_table(rows: list[Mapping[str, Any]], *, reveal: bool) -> Table:
    """One line an example, cut at the terminal's width."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right")
    table.add_column()
    table.add_column(no_wrap=True, overflow="ellipsis")
    for row in rows:
        verdict = row["prior_verdict"].replace("_", " ")
        side = f"{verdict}, {row['split']}" if row["split"] == Split.CONTROL else verdict
        text = row["suffix_text"] if reveal else row["masked_text"]
        table.add_row(number_from_log(real(row["log_ratio"])), side, Text(repr(text)))
    return table


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


def _interval(one: Mapping[str, Any]) -> str:
    low, high = real(one["log_least_ratio_low"]), real(one["log_least_ratio_high"])
    if low == high:
        return "set by the user"
    return "–" if low != low else f"{number_from_log(low)} to {number_from_log(high)}"
