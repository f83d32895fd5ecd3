"""What a prior run says in sentences: what its verdicts rest on, what its thresholds are, what a scan has of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rote.report.words import percent

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
