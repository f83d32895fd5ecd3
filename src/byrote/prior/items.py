"""What `byrote prior` scores: windows of texts, spans inside them, (prefix, suffix) pairs, or the windows of a scan."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from byrote.corpus.documents import Document, read_corpus
from byrote.corpus.pairs import pair_windows, read_pairs
from byrote.corpus.select import choose_pairs, sample_key, select_windows, share_out
from byrote.corpus.spans import PATTERNS, SpanKind, cut_spans, find_spans, read_spans
from byrote.corpus.windows import WindowOptions
from byrote.errors import ConfigError, RunError, WindowError
from byrote.models.base import LanguageModel
from byrote.prior.draws import shorten
from byrote.prior.options import AUTO_SPANS, PriorConfig
from byrote.store.columns import window_of
from byrote.store.read import read_run
from byrote.types import Window
from byrote.verdict import Verdict

WINDOW_KIND = "window"
PAIR_KIND = "pair"
BOUNDARIES_MERGED = "boundaries_merged"
"""Counts items whose first suffix token also holds characters that stand before the boundary the user drew."""


@dataclass(frozen=True, slots=True)
class PriorItem:
    """One prefix and suffix to judge. `scan` holds what a scan had found about the same window, if it came from one."""

    window: Window
    kind: str
    scan_verdict: str | None = None
    scan_p_verbatim: float | None = None


@dataclass(frozen=True, slots=True)
class PriorItems:
    """Items in order, the texts they come from, and what was left out or is to be known about them, counted."""

    items: list[PriorItem]
    available: int
    """How many there were before --sample and --limit; window starts, for windows."""
    documents: list[Document] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)


def read_items(config: PriorConfig, model: LanguageModel) -> PriorItems:
    if config.pairs is not None:
        return _pairs(config.pairs, model, config)
    if config.run is not None:
        return _scanned(config.run, model, config)
    documents = [document.held() for document in read_corpus(config.text, config.control)]
    return _windows(documents, model, config) if config.spans is None else _spans(documents, model, config)


def _windows(documents: list[Document], model: LanguageModel, config: PriorConfig) -> PriorItems:
    options = WindowOptions(
        prefix_tokens=config.longest_prefix,
        suffix_tokens=config.suffix_tokens,
        stride_chars=None if config.whole_documents else config.stride_chars,
    )
    chosen = select_windows(
        documents,
        model,
        options,
        bos_id=model.bos_id(config.bos),
        limit=config.limit,
        sample=config.sample,
        seed=config.seed,
    )
    items = [PriorItem(window, WINDOW_KIND) for window in chosen.windows]
    counted = {"short_windows": chosen.tally.short.total()}
    return PriorItems(items, sum(chosen.selection.starts.values()), documents, counted)


def _spans(documents: list[Document], model: LanguageModel, config: PriorConfig) -> PriorItems:
    if config.spans == AUTO_SPANS:
        spans = [span for document in documents for span in find_spans(document, config.span_kinds)]
    else:
        spans = read_spans(Path(str(config.spans)), documents)
    cut = cut_spans(documents, spans, model, prefix_tokens=config.longest_prefix, bos_id=model.bos_id(config.bos))
    if not cut.windows:
        raise WindowError(
            f"no span of the texts can be scored ({len(spans)} found, {cut.without_prefix} with nothing before them); "
            "name spans with --spans FILE or give other texts."
        )
    items = [PriorItem(entry.window, entry.span.kind) for entry in cut.windows]
    counted = {"spans_without_prefix": cut.without_prefix, BOUNDARIES_MERGED: cut.over_boundary}
    return PriorItems(select_items(items, config), len(items), documents, counted)


def _pairs(path: str, model: LanguageModel, config: PriorConfig) -> PriorItems:
    """Pairs as a scan reads them, each with the last tokens of its prefix."""
    bos_id, longest = model.bos_id(config.bos), config.longest_prefix
    pairs = read_pairs([path], prefix_tokens=longest, suffix_tokens=config.suffix_tokens)
    chosen, _ = choose_pairs(pairs, limit=config.limit, sample=config.sample, seed=config.seed)
    cut = pair_windows(chosen, model, bos_id=bos_id, marked_prefix_tokens=longest)
    items = [
        PriorItem(
            replace(window, prefix_ids=shorten(window.prefix_ids, longest, bos_id), further={}), pair.kind or PAIR_KIND
        )
        for pair, window in zip(chosen, cut.windows, strict=True)
    ]
    return PriorItems(items, len(pairs), left_out={BOUNDARIES_MERGED: cut.merged})


def _scanned(path: str, model: LanguageModel, config: PriorConfig) -> PriorItems:
    """The windows of a scan, with what it found; by default only the extractable ones."""
    run = read_run(path)
    made_with = run.identity.get("model", {}).get("weights_hash")
    if made_with is not None and made_with != model.identity.weights_hash:
        raise RunError(f"{path} was scanned with another model than {config.model}; give the same --model.")
    threshold = float(run.identity.get("config", {}).get("threshold", 0.001))
    rows = run.results
    if not config.every_window:
        rows = rows.filter(_is_extractable(rows, threshold))
    if rows.is_empty():
        raise RunError(f"{path} has no extractable window at τ = {threshold:g}; use --every-window for all of them.")
    items = []
    for row in rows.iter_rows(named=True):
        verdict = row.get("verdict")
        if verdict is None:
            is_found = (row.get("p_verbatim") or 0.0) >= threshold
            verdict = str(Verdict.EXTRACTABLE if is_found else Verdict.NOT_SHOWN)
        items.append(PriorItem(window_of(row), row.get("kind") or WINDOW_KIND, verdict, row.get("p_verbatim")))
    longest = max(len(item.window.prefix_ids) for item in items)
    if config.prefix_tokens != longest:
        # Else P(s|p) would be of another prefix than the scan's, and P(s) of prefixes of another length.
        raise ConfigError(
            f"prefix-tokens is {config.prefix_tokens}, but windows of {path} have prefixes of {longest} tokens; give "
            f"--prefix-tokens {longest}, and further lengths with --prefix-lengths."
        )
    return PriorItems(select_items(items, config), len(items))


def _is_extractable(rows: pl.DataFrame, threshold: float) -> pl.Series:
    """By the near-verbatim verdict where the scan has one, else by the verbatim probability."""
    if "verdict" in rows.columns:
        return rows["verdict"] == str(Verdict.EXTRACTABLE)
    if "p_verbatim" in rows.columns:
        return rows["p_verbatim"] >= threshold
    raise RunError("the scan measured neither verbatim nor near-verbatim extraction; scan again with --measures near.")


def select_items(items: Sequence[PriorItem], config: PriorConfig) -> list[PriorItem]:
    """What --sample and --limit leave of them, in order: a seeded sample, the first N. Every split keeps its share."""
    kept = list(items)
    if config.sample is not None:
        by_chance = sorted(kept, key=lambda item: sample_key(item.window.window_id, config.seed))
        drawn = {item.window.window_id for item in _first(by_chance, config.sample)}
        kept = [item for item in kept if item.window.window_id in drawn]
    return kept if config.limit is None else _first(kept, config.limit)


def _first(items: Sequence[PriorItem], size: int) -> list[PriorItem]:
    left = share_out(size, Counter(item.window.split for item in items))
    kept = []
    for item in items:
        if left[item.window.split]:
            left[item.window.split] -= 1
            kept.append(item)
    return kept


MASK = "•"
_DIGIT = re.compile(r"\d")
_INNER = re.compile(r"(?<=[^\W\d_])[^\W\d_]")
# A window may begin or end inside an address, where the whole pattern no longer fits.
_PIECE_OF_ADDRESS = re.compile(r"[\w.+-]*@[\w.-]*|\w+(?:\.\w+)+\S*$")


def mask_whole(text: str) -> str:
    """First letters, punctuation and lengths stay: `F•••••• H•••`, `•••-•••-••••`."""
    return _INNER.sub(MASK, _DIGIT.sub(MASK, text))


def mask_identifiers(text: str, *, before: str = "") -> str:
    """Every digit, and what the patterns for identifiers find in `before` + `text`; other words stay readable."""
    whole = before + text
    masked = list(whole)
    patterns = [PATTERNS[kind] for kind in SpanKind]
    for pattern in (*patterns, _PIECE_OF_ADDRESS):
        for match in pattern.finditer(whole):
            masked[match.start() : match.end()] = mask_whole(match.group())
    return _DIGIT.sub(MASK, "".join(masked[len(before) :]))


def mask_place(place: str) -> str:
    """The name of a document or record, in which people are sometimes named too; numbers tell documents apart."""
    for kind in (SpanKind.EMAIL, SpanKind.PHONE, SpanKind.NAME):
        place = PATTERNS[kind].sub(lambda match: mask_whole(match.group()), place)
    return place
