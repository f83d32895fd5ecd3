"""Run folders made of seeded prose and plausible masses, for tests, screenshots and the bench.

The production code writes them, columns and manifest included. Nothing touches a model: memorized islands are drawn
along each text, so that overlapping windows agree the way they do in a real scan.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from byrote.corpus.read import Document
from byrote.corpus.windows import Selection
from byrote.scan.options import MEASURES, RunConfig
from byrote.scan.row import continuations_schema, facts_of, measures_of, results_schema
from byrote.scan.run import open_session, texts_section
from byrote.scan.source import Source
from byrote.store.columns import window_of
from byrote.types import Split

PROSE_WORDS = (
    "the a of and to in that was it his with as for had her not but she at on by which they from all were when so "
    "there would one into said out no more if like up then been who now little before some very could door window "
    "lamp river stone garden letter morning evening silence captain sister stranger candle mountain harbour voice "
    "shadow winter summer music table glass road village forest mirror clock silver dark bright slowly suddenly "
    "remembered forgotten whispered answered walked waited believed turned followed opened carried listened"
)
WORDS = PROSE_WORDS.split(" ")
EDIT_BUDGET = 5
MODEL = {"weights_hash": "0f" * 32, "tokenizer_hash": "1e" * 32, "dtype": "float32"}


@dataclass(frozen=True)
class Book:
    """One document of a synthetic run: its name, text, split and how strongly it is memorized (0 = not at all)."""

    name: str
    text: str
    split: str = "target"
    strength: float = 1.0
    copies: int | None = None
    kind: str | None = None


def prose(seed: int, characters: int) -> str:
    """Paragraphs of sentences, exactly `characters` long."""
    generator = np.random.default_rng(seed)
    paragraphs: list[str] = []
    total = 0
    while total < characters:
        sentences = []
        for _ in range(int(generator.integers(3, 8))):
            chosen = [WORDS[index] for index in generator.integers(0, len(WORDS), int(generator.integers(5, 19)))]
            comma = int(generator.integers(2, len(chosen)))
            sentence = " ".join(chosen[:comma]) + ", " + " ".join(chosen[comma:])
            sentences.append(
                sentence[0].upper() + sentence[1:].rstrip(", ") + str(generator.choice([".", ".", "?", "!"]))
            )
        paragraphs.append(" ".join(sentences))
        total += len(paragraphs[-1]) + 2
    return "\n\n".join(paragraphs)[:characters]


def books(characters: int = 12_000) -> list[Book]:
    """Three targets of rising memorization and one control."""
    return [
        Book("the_lamp.txt", prose(1, characters), strength=1.0, copies=64),
        Book("river_letters.txt", prose(2, characters), strength=0.45, copies=16),
        Book("seen_once.txt", prose(3, characters), strength=0.0, copies=1),
        Book("held_out.txt", prose(4, characters), split="control", strength=0.0, copies=0),
    ]


def smooth_noise(generator: np.random.Generator, count: int, memory: float = 0.94) -> np.ndarray:
    """A stationary, correlated standard-normal series: neighbours overlap, so neighbours agree."""
    steps = generator.standard_normal(count)
    series = np.empty(count)
    level = steps[0] if count else 0.0
    for index, step in enumerate(steps):
        level = memory * level + np.sqrt(1 - memory**2) * step
        series[index] = level
    return series


def book_rows(book: Book, *, seed: int, stride: int, prefix: int = 210, suffix: int = 215) -> list[dict[str, Any]]:
    """Result rows of one book, windows starting every `stride` characters."""
    generator = np.random.default_rng(seed)
    starts = range(0, max(len(book.text) - prefix - suffix, 0) + 1, stride)
    level = smooth_noise(generator, len(starts))
    rows: list[dict[str, Any]] = []
    for index, start in enumerate(starts):
        log_mass = -1.2 - 9 * (1.15 - book.strength) + 3.2 * level[index] if book.strength else -60.0
        mass = float(min(10.0**log_mass, 0.97)) if log_mass > -9 else 0.0
        verbatim_share = float(generator.beta(2, 1.2)) * (generator.random() > 0.18)
        shares = np.concatenate([[verbatim_share], (1 - verbatim_share) * generator.dirichlet([4, 3, 2, 1, 1])])
        lower = np.cumsum(mass * shares)
        screened = mass == 0.0 and generator.random() < 0.8
        left_open = generator.random() * 0.02 if mass else 2e-4
        # Half of what is open can still end within one edit, the rest needs all of them.
        slack = left_open * np.array([0.0, 0.5, 0.5, 0.5, 0.5, 1.0])
        upper = np.array([lower[0], *[1.0] * 5]) if screened else np.minimum(1.0, lower + slack)
        verdict = "extractable" if lower[-1] >= 1e-3 else "ruled_out" if upper[-1] < 1e-3 else "not_shown"
        distance = (
            0 if lower[0] > 0.3 else int(generator.integers(1, 6)) if mass > 0.05 else int(generator.integers(20, 50))
        )
        rows.append(
            {
                "window_id": f"{book.name}@{start}",
                "document": book.name,
                "split": book.split,
                "char_start": start,
                "suffix_char_start": start + prefix,
                "char_end": start + prefix + suffix,
                # The first token tells books apart: equal tokens would be copies of one text.
                "prefix_ids": [sum(book.name.encode()), *((start + step) % 8192 for step in range(1, 50))],
                "suffix_ids": [(start + 50 + step) % 8192 for step in range(50)],
                # No probability at all, or one too small for a float.
                "log_p_verbatim": float(np.log(lower[0])) if lower[0] > 0 else -800.0 if index % 2 else -np.inf,
                "p_verbatim": float(lower[0]),
                "greedy_hamming": min(50, distance * 2),
                "greedy_levenshtein": distance,
                "greedy_is_beyond_budget": False,
                "suffix_ranks": [int(rank) for rank in generator.geometric(0.9 if mass > 1e-4 else 0.12, 50)],
                "mass_lower": [float(value) for value in lower],
                "mass_upper": [float(value) for value in upper],
                "search_lower": None if screened else [float(value) for value in lower],
                "open_mass": None if screened else left_open,
                "eos_mass": None if screened else 0.0,
                "refuted_mass": None if screened else 1 - left_open - float(lower[-1]),
                "verdict": verdict,
                "stop_reason": "screened" if screened else "finished" if mass else "beam_empty",
                "stop_step": 0 if screened else 50 if mass else 9,
                "screen_score": 0.0 if screened else 0.5,
                "was_screened": screened,
                "screen_density": 1.0 if screened else None,
                "token_evals": 100 if screened else 1030 if mass else 260,
            }
        )
    return rows


def continuation_rows(book: Book, rows: Sequence[dict[str, Any]], *, keep: int, seed: int) -> list[dict[str, Any]]:
    """The best continuations of the windows that have mass: the target with a few words exchanged."""
    generator = np.random.default_rng(seed)
    kept: list[dict[str, Any]] = []
    for row in rows:
        lower = row["mass_lower"]
        assert isinstance(lower, list)
        if lower[-1] == 0:
            continue
        target = book.text[int(str(row["suffix_char_start"])) : int(str(row["char_end"]))]
        shells = np.diff(lower, prepend=0.0)
        order = [edits for edits in np.argsort(-shells) if shells[edits] > 0][:keep]
        for edits in order:
            words = target.split(" ")
            for position in generator.choice(len(words), min(int(edits), len(words)), replace=False):
                words[position] = str(generator.choice(WORDS))
            kept.append(
                {
                    "window_id": row["window_id"],
                    "rank": len([1 for old in kept if old["window_id"] == row["window_id"]])
                    if keep < 2
                    else order.index(edits),
                    "token_ids": list(range(50)),
                    "text": " ".join(words),
                    "log_p": float(np.log(shells[edits] * 0.8)),
                    "distance": int(edits),
                }
            )
    return kept


def write_run(
    folder: Path,
    documents: Sequence[Book] | None = None,
    *,
    seed: int = 0,
    stride: int = 20,
    keep: int = 3,
    model: str = "library/demo-24m",
    threshold: float = 0.001,
    with_texts: bool = True,
    measures: tuple[str, ...] = MEASURES,
    estimate: dict[str, float] | None = None,
    is_complete: bool = True,
    shared_every: int | None = None,
    selection: Selection | None = None,
) -> Path:
    """A run folder; returns its path. `estimate` is what was sampled of every window.

    Every `shared_every`-th control window shares its passage with the first document.
    """
    books_given = books() if documents is None else list(documents)
    config = RunConfig(
        model=model, out=str(folder), threshold=threshold, keep=keep, edit_budget=EDIT_BUDGET, measures=measures
    )
    config = replace(config, estimate="off" if estimate is None else "all")
    config = replace(config, control=() if shared_every is None else ("controls",))
    columns = [column.name for column in results_schema(measures_of(config), facts_of(config))]
    keeps_continuations = continuations_schema(config) is not None
    texts = [Document.from_text(book.name, book.text, split=Split(book.split)) for book in books_given]
    rows_of = [book_rows(book, seed=seed * 1000 + index, stride=stride) for index, book in enumerate(books_given)]
    identity = {"config": config.identity(), "model": MODEL, "texts": {text.name: text.content_hash for text in texts}}
    with open_session(config, identity) as session:
        if with_texts:
            session.write_texts(texts)
        for index, (book, rows) in enumerate(zip(books_given, rows_of, strict=True)):
            kept: dict[str, list[dict[str, Any]]] = {}
            for continuation in continuation_rows(book, rows, keep=keep, seed=seed * 1000 + index):
                kept.setdefault(continuation["window_id"], []).append(continuation)
            for place, row in enumerate(rows):
                is_shared = book.split == "control" and place % (shared_every or 1) == 0
                leak = {"shared_share": float(is_shared), "shared_with": books_given[0].name if is_shared else None}
                measured = row | leak | sampled_answers(row) | (estimate or {})
                further = kept.get(row["window_id"], ()) if keeps_continuations else ()
                session.add({name: measured[name] for name in columns}, further)
        if not is_complete:
            return folder
        windows = [window_of(row) for rows in rows_of for row in rows]
        counts = Counter(window.document for window in windows)
        starts: Counter[Split] = Counter()
        for book in books_given:
            starts[Split(book.split)] += counts[book.name] + 3
        chosen = selection or Selection("all", None, config.seed, dict(starts))
        source = Source(texts, chosen, lambda tally, is_finished: iter(()))
        facts = {book.name: known_facts(book) for book in books_given}
        manifest = {
            "config": config.as_dict(),
            "texts": texts_section(source, counts, {book.name: 3 for book in books_given}, facts),
            "model": MODEL | {"name": model, "revision": "main"},
            "device": {"name": "cpu"},
            "seed": config.seed,
            "command_line": ["byrote", "scan", "--model", model],
            "timings": {"measuring_seconds": 61.5},
            "totals": {"windows": len(windows), "token_evals": 1_234_567, "selection": asdict(chosen)},
        }
        session.complete(manifest)
    return folder


def sampled_answers(row: dict[str, Any]) -> dict[str, Any]:
    """Two answers, each a hit with the window's lower bound."""
    draw = random.Random(row["window_id"])
    points = [draw.random(), draw.random()]
    return {"answers": 2, "answer_hits": [sum(point < mass for point in points) for mass in row["mass_lower"]]}


def known_facts(book: Book) -> dict[str, Any]:
    facts = {"copies": book.copies, "kind": book.kind}
    return {name: value for name, value in facts.items() if value is not None}
