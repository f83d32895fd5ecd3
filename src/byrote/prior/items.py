"""What `byrote prior` scores: windows of texts, spans inside them, (prefix, suffix) pairs, or the windows of a scan."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from byrote.corpus.pairs import pair_windows, read_pairs
from byrote.corpus.read import Document, read_corpus
from byrote.corpus.select import choose_pairs, select_windows
from byrote.corpus.spans import PATTERNS, SpanKind, cut_spans, find_spans, read_spans
from byrote.corpus.windows import WindowOptions
from byrote.errors import ConfigError, RunError, WindowError
from byrote.models.base import LanguageModel
from byrote.policy import Policy
from byrote.prior.draws import shorten
from byrote.prior.options import AUTO_SPANS, PriorConfig
from byrote.prior.pool import ScannedBall
from byrote.report.words import listed
from byrote.store.columns import window_of
from byrote.store.read import read_run
from byrote.types import Window
from byrote.verdict import Verdict

WINDOW_KIND = "window"
PAIR_KIND = "pair"
BOUNDARIES_MERGED = "boundaries_merged"
"""Counts items whose first suffix token also holds characters that stand before the boundary the user drew."""


class PriorItems(NamedTuple):
    """What is scored, in order, the texts it comes from, and what was left out or is to be known about it, counted."""

    windows: list[Window]
    """With their kind, and what a scan had found where they come from one, as further columns."""
    available: int
    """How many there were before --sample and --limit; window starts, for windows."""
    documents: list[Document]
    left_out: dict[str, int]
    ball: ScannedBall | None = None
    """Given with windows of a near-verbatim scan."""


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
    windows = [replace(window, further={"kind": WINDOW_KIND}) for window in chosen.windows]
    counted = {"short_windows": chosen.tally.short.total()}
    return PriorItems(windows, sum(chosen.selection.starts.values()), documents, counted)


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
    windows = [
        replace(entry.window, further={"kind": entry.span.kind})
        for entry in cut.windows
        if not config.span_tokens or len(entry.window.suffix_ids) in config.span_tokens
    ]
    if not windows:
        lengths = list(map(str, sorted({len(entry.window.suffix_ids) for entry in cut.windows})))
        raise WindowError(
            f"no span has {listed(list(map(str, config.span_tokens)))} tokens; they have {listed(lengths)}."
        )
    counted = {
        "spans_without_prefix": cut.without_prefix,
        "spans_of_other_lengths": len(cut.windows) - len(windows),
        BOUNDARIES_MERGED: cut.over_boundary,
    }
    return PriorItems(_chosen(windows, config), len(windows), documents, counted)


def _pairs(path: str, model: LanguageModel, config: PriorConfig) -> PriorItems:
    """Pairs as a scan reads them, each with the last tokens of its prefix."""
    bos_id, longest = model.bos_id(config.bos), config.longest_prefix
    pairs = read_pairs([path], prefix_tokens=longest, suffix_tokens=config.suffix_tokens)
    chosen, _ = choose_pairs(pairs, limit=config.limit, sample=config.sample, seed=config.seed)
    cut = pair_windows(chosen, model, bos_id=bos_id, marked_prefix_tokens=longest)
    windows = [
        replace(
            window,
            prefix_ids=shorten(window.prefix_ids, longest, bos_id),
            further={"kind": pair.kind or PAIR_KIND},
        )
        for pair, window in zip(chosen, cut.windows, strict=True)
    ]
    return PriorItems(windows, len(pairs), [], {BOUNDARIES_MERGED: cut.merged})


def _scanned(path: str, model: LanguageModel, config: PriorConfig) -> PriorItems:
    """The windows of a scan, with what it found; by default only the extractable ones."""
    run = read_run(path)
    made_with, now = run.identity.get("model", {}), model.described.fingerprint
    if any(name in made_with and made_with[name] != now.get(name) for name in ("weights_hash", "weights_fingerprint")):
        raise RunError(f"{path} was scanned with another model than {config.model}; give the same --model.")
    threshold = float(run.identity.get("config", {}).get("threshold", 0.001))
    if not config.every_window and not {"verdict", "p_verbatim"} & set(run.results.columns):
        raise RunError(
            "the scan measured neither verbatim nor near-verbatim extraction; scan again with --measures near."
        )
    # No pool for a mass inside a prompt, since drawn prefixes stand alone, or for one within edits of characters.
    is_of_tokens = "prompt" not in run.identity and run.identity.get("config", {}).get("unit") != "text"
    has_masses = "mass_lower" in run.results.columns and is_of_tokens and config.pool_members > 0
    windows = []
    for row in run.results.iter_rows(named=True):
        # The near-verbatim verdict where the scan has one, else by the verbatim probability.
        p_verbatim, verdict = row.get("p_verbatim"), row.get("verdict")
        if verdict is None:
            verdict = str(Verdict.EXTRACTABLE if (p_verbatim or 0.0) >= threshold else Verdict.NOT_SHOWN)
        if config.every_window or verdict == Verdict.EXTRACTABLE:
            found = {"kind": row.get("kind") or WINDOW_KIND, "scan_verdict": verdict, "scan_p_verbatim": p_verbatim}
            if has_masses:
                found |= {"ball_mass_lower": row["mass_lower"][-1], "ball_mass_upper": row["mass_upper"][-1]}
            windows.append(replace(window_of(row), further=found))
    if not windows:
        raise RunError(f"{path} has no extractable window at τ = {threshold:g}; use --every-window for all of them.")
    longest = max(len(window.prefix_ids) for window in windows)
    if config.prefix_tokens != longest:
        # Else P(s|p) would be of another prefix than the scan's, and P(s) of prefixes of another length.
        raise ConfigError(
            f"prefix-tokens is {config.prefix_tokens}, but windows of {path} have prefixes of {longest} tokens; give "
            f"--prefix-tokens {longest}, and further lengths with --prefix-lengths."
        )
    ball = None
    if has_masses:
        made, edits = run.identity["config"], len(run.results["mass_lower"][0]) - 1
        policy = Policy(made["temperature"], made["top_k"], made["top_p"])
        ball = ScannedBall(made["distance"], edits, policy, threshold)
    return PriorItems(_chosen(windows, config), len(windows), [], {}, ball)


def _chosen(windows: Sequence[Window], config: PriorConfig) -> list[Window]:
    return choose_pairs(windows, limit=config.limit, sample=config.sample, seed=config.seed)[0]


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
