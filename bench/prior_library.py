"""Memorized or merely likely, on a model whose training data is known: people records of the library.

    python bench/prior_library.py --library FOLDER [--records 20] [--draws 120] [--short-draws 600]

FOLDER holds library_24m, people.json (records with their number of copies in training) and texts/control. Scored:
telephone and account numbers of records with at least 32 copies and of records with none, boilerplate words of the
same records, twelve tokens from the middle of the records, and generic sentences. Prefixes to estimate P(s) are drawn
half from books, half from records with at most one copy.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import environment
from byrote.corpus.read import Document, read_documents
from byrote.corpus.spans import TextSpan, cut_spans
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.shared_prefix import PLAIN
from byrote.prior.calibration import generic_windows, read_generic
from byrote.prior.draws import DrawnPrefixes, draw_prefixes
from byrote.prior.run import conditional_log_p, estimate_priors
from byrote.prior.verdicts import default_least_conditional, point_verdict
from byrote.report.figures.style import INK, SERIES, house_style, new_figure, save_bytes
from byrote.stats.prior_mean import PriorEstimate, log_mean, log_ratio
from byrote.types import Split, Window
from byrote.verdict import PriorVerdict

PREFIX_TOKENS = 24
SUFFIX_TOKENS = 12
MANY_COPIES = 32
GENERIC, GENERIC_SHORT = "generic sentences", "generic sentences, 3 tokens"
BOILERPLATE = (" was born on", " and lives at", " Account number", " Next of kin")


@dataclass(frozen=True)
class Scored:
    group: str
    window: Window


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--records", type=int, default=20)
    parser.add_argument("--draws", type=int, default=120, help="prefixes for suffixes of about twelve tokens")
    parser.add_argument("--short-draws", type=int, default=600, help="prefixes for suffixes of about three tokens")
    arguments = parser.parse_args()
    started = time.process_time()
    model = load(str(arguments.library / "library_24m"), dtype="float32", device="cpu")
    people = json.loads((arguments.library / "people.json").read_text(encoding="utf-8"))
    items = collect(model, people, arguments.records)
    # Short suffixes are cheap, and boilerplate is likely only where a prefix happens to end before it: draw more.
    rows, token_evals, naive_token_evals = [], 0, 0
    for short, draws in ((False, arguments.draws), (True, arguments.short_draws)):
        chosen = [item for item in items if is_short(item.group) is short]
        drawn = draw(model, arguments.library, people, draws)
        conditionals = conditional_log_p(model, [item.window for item in chosen], PLAIN, batch_windows=32)
        result = estimate_priors(model, [item.window.suffix_ids for item in chosen], drawn, PLAIN)
        rows += rows_of(chosen, conditionals, result.estimates)
        token_evals += result.token_evals
        suffix_tokens = sum(len(item.window.suffix_ids) for item in chosen)
        naive_token_evals += sum(len(prefix) * len(chosen) + suffix_tokens for prefix in drawn.prefixes)
    rows.sort(key=lambda row: (is_short(row["group"]), "generic" in row["group"], "0 copies" in row["group"]))
    groups = summarise(rows)
    for row in groups:
        print(row["group"].ljust(46), {name: value for name, value in row.items() if name != "group"})
    separation = separations(rows)
    print(separation)
    facts = {
        "records": arguments.records,
        "draws": arguments.draws,
        "short_draws": arguments.short_draws,
        "token_evals": token_evals,
        "pair_by_pair_token_evals": naive_token_evals,
        "cpu_seconds": time.process_time() - started,
    }
    print(environment.save("prior_library", {**facts, "groups": groups, "separation": separation}))
    save_figure(rows, Path(__file__).parent.parent / "docs" / "img")


def collect(model: HuggingFaceModel, people: Sequence[dict[str, Any]], count: int) -> list[Scored]:
    many = [person for person in people if person["repetitions"] >= MANY_COPIES][:count]
    none = [person for person in people if person["repetitions"] == 0][:count]
    items: list[Scored] = []
    for label, chosen in ((f"≥ {MANY_COPIES} copies", many), ("0 copies", none)):
        for person in chosen:
            items += of_record(model, person["text"], label, str(person["id"]))
    # Twelve tokens before twelve tokens: the beginning of every text, split in half.
    texts = [entry.ids[: 2 * SUFFIX_TOKENS] for entry in model.encode_batch(read_generic(None))]
    for pair in generic_windows(texts, prefix_tokens=SUFFIX_TOKENS, suffix_tokens=SUFFIX_TOKENS, bos_id=None):
        items.append(Scored(GENERIC, plain_window(pair.prefix_ids, pair.suffix_ids)))
        items.append(Scored(GENERIC_SHORT, plain_window(pair.prefix_ids, pair.suffix_ids[:3])))
    return items


def of_record(model: HuggingFaceModel, text: str, label: str, name: str) -> list[Scored]:
    document = Document.from_text(name, text, split=Split.TARGET)
    spans = [
        span_of(document, "telephone", " Telephone ", "."),
        span_of(document, "account number", " Account number ", "."),
        *(
            TextSpan(name, text.index(words), text.index(words) + len(words), "boilerplate words")
            for words in BOILERPLATE
        ),
    ]
    found: list[Scored] = []
    for entry in cut_spans([document], spans, model, prefix_tokens=PREFIX_TOKENS).windows:
        found.append(Scored(f"{entry.span.kind}, {label}", entry.window))
        if entry.span.kind in ("telephone", "account number"):
            start = plain_window(entry.window.prefix_ids, entry.window.suffix_ids[:3])
            found.append(Scored(f"identifier, 3 tokens, {label}", start))
    ids = model.encode_batch([text])[0].ids
    middle = plain_window(ids[:PREFIX_TOKENS], ids[PREFIX_TOKENS : PREFIX_TOKENS + SUFFIX_TOKENS])
    return [*found, Scored(f"record, 12 tokens, {label}", middle)]


def span_of(document: Document, kind: str, before: str, until: str) -> TextSpan:
    start = document.text.index(before) + len(before)
    return TextSpan(document.name, start, document.text.index(until, start), kind)


def plain_window(prefix: Sequence[int], suffix: Sequence[int]) -> Window:
    return Window("", "", Split.TARGET, 0, 0, 0, tuple(prefix), tuple(suffix))


def draw(model: HuggingFaceModel, library: Path, people: Sequence[dict[str, Any]], draws: int) -> DrawnPrefixes:
    """Half from books, half from records with at most one copy, as one sample."""
    books = read_documents([library / "texts" / "control"], split=Split.CONTROL)
    records = [
        Document.from_text(str(person["id"]), person["text"], split=Split.CONTROL)
        for person in people
        if person["repetitions"] <= 1
    ]
    halves = [
        draw_prefixes(
            documents,
            model,
            prefix_tokens=PREFIX_TOKENS,
            stride_chars=1,
            bos_id=None,
            draws=draws // 2,
            trials=1,
            seed=0,
        )
        for documents in (books, records)
    ]
    prefixes = tuple(prefix for half in halves for prefix in half.prefixes)
    return DrawnPrefixes(prefixes, np.concatenate([half.counts for half in halves]))


def rows_of(
    items: Sequence[Scored], conditionals: Sequence[float], estimates: Sequence[PriorEstimate]
) -> list[dict[str, Any]]:
    return [
        {
            "group": item.group,
            "tokens": len(item.window.suffix_ids),
            "log_conditional": own,
            "log_prior": estimate.log_mean,
            "log_ratio": log_ratio(own, estimate.log_mean),
            "effective_prefixes": estimate.effective_prefixes,
        }
        for item, own, estimate in zip(items, conditionals, estimates, strict=True)
    ]


def summarise(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    summary = []
    for group in dict.fromkeys(row["group"] for row in rows):
        here = [row for row in rows if row["group"] == group]
        log_n = threshold(rows, GENERIC_SHORT if is_short(group) else GENERIC)
        decades = np.array([row["log_ratio"] for row in here]) / math.log(10)
        low, middle, high = np.quantile(decades, [0.25, 0.5, 0.75])
        summary.append(
            {
                "group": group,
                "suffixes": len(here),
                "median_tokens": float(np.median([row["tokens"] for row in here])),
                "median_p": float(np.exp(np.median([row["log_conditional"] for row in here]))),
                "log10_ratio_quartiles": [float(low), float(middle), float(high)],
                "log10_n": log_n / math.log(10),
                "share_above_n": float(np.mean([row["log_ratio"] > log_n for row in here])),
                "share_memorized": float(np.mean([is_memorized(row, log_n) for row in here])),
                "median_effective_prefixes": float(np.median([row["effective_prefixes"] for row in here])),
            }
        )
    return summary


def is_short(group: str) -> bool:
    return "boilerplate" in group or "3 tokens" in group


def is_memorized(row: dict[str, Any], log_n: float) -> bool:
    found = point_verdict(
        row["log_conditional"],
        row["log_ratio"],
        least_conditional=default_least_conditional(row["tokens"]),
        log_least_ratio=log_n,
    )
    return found is PriorVerdict.MEMORIZED


def threshold(rows: Sequence[dict[str, Any]], group: str) -> float:
    """log n: the mean ratio over a group of generic suffixes."""
    return log_mean([row["log_ratio"] for row in rows if row["group"] == group])


def separations(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The chance that a suffix of the first group has a higher ratio than one of the second."""

    def ratios(*groups: str) -> np.ndarray:
        return np.array([row["log_ratio"] for row in rows if row["group"] in groups])

    many, none = f"≥ {MANY_COPIES} copies", "0 copies"
    identifiers = ratios(f"telephone, {many}", f"account number, {many}")
    comparisons = {
        "records ≥ 32 copies over generic sentences (12 tokens)": (
            ratios(f"record, 12 tokens, {many}"),
            ratios(GENERIC),
        ),
        "identifiers over boilerplate words of the same records": (identifiers, ratios(f"boilerplate words, {many}")),
        "identifiers over boilerplate words, 3 tokens each": (
            ratios(f"identifier, 3 tokens, {many}"),
            ratios(f"boilerplate words, {many}"),
        ),
        "identifiers ≥ 32 copies over identifiers of unseen records": (
            identifiers,
            ratios(f"telephone, {none}", f"account number, {none}"),
        ),
    }
    return {name: float((a[:, None] > b[None]).mean()) for name, (a, b) in comparisons.items()}


@house_style()
def save_figure(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    groups = list(dict.fromkeys(row["group"] for row in rows))
    figure, axes = new_figure(7.0, 4.2)
    generator = np.random.default_rng(0)
    for place, group in enumerate(groups):
        values = np.array([row["log_ratio"] for row in rows if row["group"] == group]) / math.log(10)
        colour = SERIES[1] if "≥" in group else SERIES[0] if "0 copies" in group else INK
        heights = place + generator.uniform(-0.22, 0.22, len(values))
        axes.scatter(values, heights, s=11, color=colour, alpha=0.6, linewidths=0)
        axes.plot([np.median(values)] * 2, [place - 0.34, place + 0.34], color=colour, linewidth=2)
        log_n = threshold(rows, GENERIC_SHORT if is_short(group) else GENERIC) / math.log(10)
        axes.plot([log_n] * 2, [place - 0.45, place + 0.45], color=INK, linestyle=":", linewidth=1.2)
    axes.set_yticks(range(len(groups)), groups)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("log₁₀ of P(s|p) / v̂")
    axes.set_title("library_24m: bars are medians, dotted lines the threshold n of that suffix length")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prior_library.png").write_bytes(save_bytes(figure, "png"))
    (folder / "prior_library.svg").write_bytes(save_bytes(figure, "svg"))


if __name__ == "__main__":
    main()
