"""The summary of a finished prior run in a terminal. Personal data in examples is masked unless asked for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rote.report.words import number_from_log, percent, probability
from rote.types import Split

LENGTHS_SHOWN = 8
FEW_PREFIXES = 1000
Totals = Mapping[str, Any]


def prior_summary(totals: Totals, *, reveal: bool = False) -> RenderableType:
    """Counts, what they rest on, n by suffix length, a sweep's counts, examples, the joined view."""
    parts: list[RenderableType] = [counts_table(totals), Text(), *map(Text, basis_sentences(totals))]
    for entry in totals["thresholds"]:
        parts += [Text(), threshold_table(entry)]
    parts += [Text(sentence, style="dim") for sentence in threshold_notes(totals["thresholds"])]
    if "by_prefix_tokens" in totals:
        parts += [Text(), sweep_table(totals["by_prefix_tokens"])]
    for name, rows in totals["examples"].items():
        if rows:
            parts += [Text(), Text(f"{name.replace('_', ' ')}:"), *example_lines(rows, reveal=reveal)]
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
        if reference["draws"] < FEW_PREFIXES:
            yield "So few prefixes say little about what other text would give; a larger --prior-text says more."
    else:
        yield f"P(s) is estimated from {reference['draws']:,} prefixes drawn from the reference corpus."
    if totals["windows"] < totals["available"]:
        yield f"{totals['windows']:,} of {totals['available']:,} suffixes were chosen by --limit or --sample."
    if shared := totals["in_reference"]:
        yield (
            f"{shared:,} suffixes come from texts that are in the reference corpus too: P(s) holds their own prefixes, "
            "and their ratios are too low."
        )
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
    return table


def threshold_notes(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What n is; why it is missing, has no upper end, or is that of shorter suffixes, at the first such length."""
    lengths = [(int(tokens), one) for entry in entries for tokens, one in entry["by_suffix_tokens"].items()]
    distinct = {tokens for tokens, _ in lengths}
    if any(one["generic_texts"] for _, one in lengths):
        yield "n is the mean ratio of generic texts; the interval is where it would lie with as many other texts."
        leaps = " That is why n leaps from length to length, and its interval does not." if len(distinct) > 1 else ""
        yield f"The last column is the share of n that comes from a single text.{leaps}"
    if len(distinct) > LENGTHS_SHOWN:
        yield f"Not all of the {len(distinct)} suffix lengths are shown; manifest.json has them."
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


def sweep_table(by_prefix_tokens: Mapping[str, Mapping[str, int]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", title="By prefix length", title_justify="left")
    table.title_style = ""
    for name in ("prefix tokens", "P(s|p) > m", "memorized", "merely likely", "unsettled"):
        table.add_column(name, justify="right")
    for tokens, counts in sorted(by_prefix_tokens.items(), key=lambda entry: int(entry[0])):
        names = ("extractable", "memorized", "merely_likely", "unsettled")
        table.add_row(tokens, *(f"{counts[name]:,}" for name in names))
    return table


def example_lines(rows: Sequence[Mapping[str, Any]], *, reveal: bool) -> Iterator[Text]:
    """One line an example: ratio and verdict whole, the text cut at the terminal's width."""
    cells = [
        (
            number_from_log(real(row["log_ratio"])),
            row["prior_verdict"].replace("_", " ") + (", control" if row["split"] == Split.CONTROL else ""),
            repr(row["suffix_text"] if reveal else row["masked_text"]),
        )
        for row in rows
    ]
    widest = [max(len(cell[place]) for cell in cells) for place in (0, 1)]
    for ratio, verdict, text in cells:
        yield Text(f"{ratio:>{widest[0]}}  {verdict:<{widest[1]}}  {text}", no_wrap=True, overflow="ellipsis")


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
