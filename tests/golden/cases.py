"""Small deterministic cases over every measure and product, through public interfaces alone.

A case is a function of a `Bench` that gives values: numbers, words and tables of them. `generate.py` writes them into
`values/CASE.json`, `test_golden.py` computes them again. What a case calls an option or a column stays as it is here;
today's names are in `names.py`.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml

from tests.golden.compare import NETWORK, TABLE, Tolerance, differences, plain, table
from tests.golden.models import (
    HALF_KNOWN,
    HALF_LEARNED,
    KNOWN,
    LEARNED,
    OTHER,
    UNKNOWN,
    WORDS,
    Chain,
    LetterModel,
    letters,
    random_network,
    shuffled,
    uniform,
    write_word_model,
)
from tests.golden.names import Outcome, command, flags, name_today, options, package

Values = dict[str, Any]

LETTERS: dict[str, Any] = {
    "prefix_tokens": 6, "suffix_tokens": 6, "stride_chars": 24, "top_k": 7, "beam_width": 8, "edit_budget": 2,
    "threshold": 0.01, "slots": 4, "batch_windows": 4, "screen": "off", "estimate": "off",
    "answers": 0,
}  # fmt: skip
"""Options of a scan of the letter model: nothing is sampled, every window is searched."""
SCREENED: dict[str, Any] = {
    "screen": "auto", "screen_floor": 0.3, "stride_chars": 7, "threshold": 0.02, "beam_width": 4, "screen_least": 3,
    "screen_share": 0.1,
}  # fmt: skip
COMMAND: dict[str, Any] = {
    "prefix_tokens": 4, "suffix_tokens": 6, "stride_chars": 64, "top_k": 10, "beam_width": 6, "edit_budget": 2,
    "threshold": 0.3, "slots": 4, "batch_windows": 4, "screen_least": 2, "screen_floor": 1e-7, "estimate": "off",
    "device": "cpu", "limit": 16, "answers": 0,
}  # fmt: skip
"""Options of a scan of the word model by a command."""
PLACES = ("document", "split", "char_start", "suffix_char_start", "char_end", "prefix_ids", "suffix_ids")
"""Columns of a window; two cases have their values, the others their names."""


class Bench:
    """A folder with the texts and models of the cases, each made when it is first asked for."""

    def __init__(self, folder: Path, *, jitter: float = 0.0) -> None:
        self.folder = folder
        self.jitter = jitter
        self.letters = LetterModel(jitter=jitter)

    def path(self, name: str) -> Path:
        """A place for a run or a file of one case."""
        place = self.folder / "runs" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def text(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return path

    @cached_property
    def letter_texts(self) -> dict[str, Any]:
        known, half = self.text("letters/known.txt", KNOWN), self.text("letters/half.txt", HALF_KNOWN)
        return {"text": [str(known), str(half)], "control": [str(self.text("letters/unknown.txt", UNKNOWN))]}

    @cached_property
    def word_texts(self) -> dict[str, Any]:
        known, half = self.text("words/learned.txt", LEARNED.text), self.text("words/half.txt", HALF_LEARNED.text)
        return {"text": [known, half], "control": [self.text("words/other.txt", OTHER.text)]}

    @cached_property
    def word_model(self) -> Path:
        return write_word_model(self.folder / "word-model", LEARNED, HALF_LEARNED, jitter=self.jitter)

    @cached_property
    def plain_word_model(self) -> Path:
        """The same tokens, and less learned."""
        learned = Chain(LEARNED.words, 4.5)
        return write_word_model(self.folder / "plain-word-model", learned, seed="plain", jitter=self.jitter)

    @cached_property
    def run(self) -> Path:
        """A scan of the word model by the command, which several cases read."""
        return self.scan_by_command("run", verify=True, sweep="k=3,t=0.7")

    @cached_property
    def records(self) -> Any:
        """Results of pairs from every kind of file."""
        places = ("prefix_tokens", "suffix_tokens", "stride_chars")
        given = {name: value for name, value in LETTERS.items() if name not in places}
        return self.scan_in_memory(self.letters, {"pairs": list(map(str, record_files(self)))}, given)

    @cached_property
    def records_run(self) -> Path:
        return Path(self.records.save(self.path("records")))

    @cached_property
    def screened(self) -> Any:
        """Results of which some windows were screened out."""
        return self.scan_letters(**SCREENED)

    @cached_property
    def screened_run(self) -> Path:
        return Path(self.screened.save(self.path("screened")))

    def scan_letters(self, **changes: Any) -> Any:
        return self.scan_in_memory(self.letters, self.letter_texts, LETTERS | changes)

    def scan_in_memory(self, model: Any, texts: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        chosen = options(given)
        sources = options(texts)
        return package.scan(model, package.read_windows(model, **sources, **chosen))

    def scan_by_command(self, name: str, **changes: Any) -> Path:
        given = {"model": self.word_model, **self.word_texts, **COMMAND} | changes
        succeeded("scan", *flags(given | {"out": self.path(name)}))
        return self.path(name)


def succeeded(name: str, *arguments: object) -> Outcome:
    outcome = command(name, *arguments)
    assert outcome.code == 0, f"{name} {arguments} ended with {outcome.code}: {outcome.err}"
    return outcome


def shown(run: Path, **asked: Any) -> Any:
    """The numbers of `show --json`; what they are filed under may be the name of a model's folder."""
    (content,) = json.loads(succeeded("show", run, *flags({"json": True} | asked)).out)
    return {"kind": content["kind"], "numbers": list(content["numbers"].values())}


def rows_of(results: Any, *, names_only: tuple[str, ...] = (), sampled: str | None = None) -> Values:
    """A table of results, of the windows' places the names alone."""
    return table(results.to_polars().to_dicts(), names_only=(*PLACES, *names_only), sampled=sampled)


def require_same(found: Values, expected: Values, tolerance: Tolerance) -> Values:
    """`found`, after a check that it is equal to `expected`."""
    apart = list(differences(plain(found), plain(expected), tolerance))
    assert not apart, apart
    return found


def csv_table(path: Path, *, names_only: tuple[str, ...] = ()) -> Values:
    """A CSV file with numbers read as such."""
    with path.open(newline="", encoding="utf-8") as lines:
        rows = [{name: _cell(value) for name, value in row.items()} for row in csv.DictReader(lines)]
    return table(rows, names_only=names_only)


def _cell(text: str) -> Any:
    for number in (int, float, json.loads):
        try:
            return number(text)
        except ValueError:
            continue
    return text or None


def pruned(value: Any, *names: str) -> Any:
    """Without the entries of these names, at any depth."""
    if isinstance(value, dict):
        return {name: pruned(one, *names) for name, one in value.items() if name not in names}
    return [pruned(one, *names) for one in value] if isinstance(value, list) else value


class Case(NamedTuple):
    values: Callable[[Bench], Values]
    tolerance: Tolerance


CASES: dict[str, Case] = {}


def case(tolerance: Tolerance = TABLE) -> Callable[[Callable[[Bench], Values]], Callable[[Bench], Values]]:
    def register(values: Callable[[Bench], Values]) -> Callable[[Bench], Values]:
        CASES[values.__name__] = Case(values, tolerance)
        return values

    return register


# Windows.


@case()
def windows_of_documents(bench: Bench) -> Values:
    """Where windows are cut: strides, limits, samples, whole documents, room for longer prefixes and suffixes."""
    variants: dict[str, dict[str, Any]] = {
        "stride": {},
        "limit": {"limit": 5, "stride_chars": 7},
        "sample": {"sample": 6, "seed": 3, "stride_chars": 7},
        "whole": {"whole_documents": True},
        "room": {"prefix_room": 10, "suffix_room": 9},
    }
    found = {}
    for name, changes in variants.items():
        given = options(LETTERS | changes) | options(bench.letter_texts)
        windows = package.read_windows(bench.letters, **given)
        fields = ("window_id", *PLACES)
        found[name] = table(
            [{field: _plain_field(getattr(window, name_today(field))) for field in fields} for window in windows]
        )
    return found


def _plain_field(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, str) else value


def record_files(bench: Bench) -> list[Path]:
    """Pairs in every kind of file, with what they say about themselves."""
    texts = {"known": KNOWN, "half": HALF_KNOWN, "unknown": UNKNOWN}
    copies = {"known": 8, "half": 2, "unknown": 0}
    records = [
        {
            "id": f"{name}-{start}", "prefix": text[start : start + 6], "suffix": text[start + 6 :][: 5 + start % 3],
            "copies": copies[name], "kind": ("phone", "name")[start % 2], "tags": ["all", f"from-{name}"],
        }
        for name, text in texts.items()
        for start in (3, 14, 40, 61)
    ]  # fmt: skip
    lines = bench.text("pairs/records.jsonl", "\n".join(map(json.dumps, records)))
    cells = bench.text("pairs/cells.csv", f"id,prefix,suffix,copies\nfirst,{KNOWN[20:28]},{KNOWN[28:33]},4\n")
    marked = bench.text("pairs/marked.txt", f"{KNOWN[:50]}[[{KNOWN[50:56]}]]{KNOWN[56:70]}[[{KNOWN[70:75]}]]")
    ids = np.array([bench.letters.encode_batch([KNOWN[start : start + 12]])[0][0] for start in (0, 33)])
    for part, columns in (("prefix", ids[:, :6]), ("suffix", ids[:, 6:])):
        np.save(bench.folder / f"pairs/ids_{part}.npy", columns.astype(np.uint16))
    return [lines, cells, marked, bench.folder / "pairs/ids_prefix.npy"]


@case()
def pairs_and_records(bench: Bench) -> Values:
    """Pairs from four kinds of files: windows, measures, rates by copies, kinds and tags."""
    return {
        "rows": table(bench.records.to_polars().to_dicts()),
        "rates": table(bench.records.rates().to_dicts()),
        "shown": shown(bench.records_run),
    }


# Measures and searches of the letter model.


@case()
def every_default_measure(bench: Bench) -> Values:
    """Greedy, verbatim and near with Levenshtein, its continuations and rates."""
    results = bench.scan_letters(stride_chars=14)
    return {
        "rows": table(results.to_polars().to_dicts()),
        "continuations": table(list(results.continuations())),
        "rates": table(results.rates().to_dicts()),
    }


@case()
def near_by_distance_and_viability(bench: Bench) -> Values:
    return {
        f"{distance}, {viability}": rows_of(
            bench.scan_letters(measures="near", distance=distance, viability=viability, edit_budget=3)
        )
        for distance in ("hamming", "levenshtein")
        for viability in ("exact", "published")
    }


@case()
def near_without_pruning(bench: Bench) -> Values:
    """Beams wide enough to follow everything that can matter: bounds meet at the mass."""
    return {
        distance: rows_of(
            bench.scan_letters(
                measures="near", distance=distance, beam_width=300, top_k=4, suffix_tokens=4, negligible=0.0,
                stop_rule="off",
            )
        )
        for distance in ("hamming", "levenshtein")
    }  # fmt: skip


@case()
def baseline_and_posthoc(bench: Bench) -> Values:
    """The search without a distance, its continuations judged by every metric."""
    results = bench.scan_letters(
        distance="none", posthoc=("levenshtein", "hamming", "bleu", "characters", "words"), bleu_threshold=0.5,
        beam_width=12,
    )  # fmt: skip
    return {"rows": rows_of(results), "continuations": table(list(results.continuations()))}


@case()
def greedy_in_full(bench: Bench) -> Values:
    return {
        rule: rows_of(bench.scan_letters(measures="greedy", greedy=rule, stride_chars=14))
        for rule in ("decided", "full")
    }


@case()
def policies(bench: Bench) -> Values:
    """Top-k, nucleus, temperature, all of them, none, and greedy."""
    chosen: dict[str, dict[str, Any]] = {
        "top-k": {"top_k": 4},
        "nucleus": {"top_k": None, "top_p": 0.83},
        "temperature": {"top_k": None, "temperature": 0.61},
        "all": {"top_k": 6, "top_p": 0.9, "temperature": 1.3},
        "none": {"top_k": None},
        "greedy": {"top_k": 1},
    }
    return {name: rows_of(bench.scan_letters(limit=6, **policy)) for name, policy in chosen.items()}


@case()
def sweep_of_policies(bench: Bench) -> Values:
    swept = ("k=1", "k=3", "p=0.7", "t=0.5", "t=0.7+k=5")
    return {"rows": rows_of(bench.scan_letters(measures="verbatim", sweep=swept))}


@case()
def stop_rules(bench: Bench) -> Values:
    """When a search ends, at a low and a high threshold; rates change with it."""
    found = {}
    for rule in ("mass", "published", "off"):
        for threshold in (0.002, 0.2):
            results = bench.scan_letters(measures="near", stop_rule=rule, threshold=threshold, beam_width=5)
            found[f"{rule}, {threshold}"] = rows_of(results)
    return found


@case()
def beams(bench: Bench) -> Values:
    """Which beams stay: the pinned one, by rating, negligible ones, a limit of children, one beam."""
    variants: dict[str, dict[str, Any]] = {
        "not pinned": {"pin": False},
        "by rating": {"rank": "rating"},
        "one": {"beam_width": 1},
        "banked": {"negligible": 0.001},
        "children": {"max_children": 3, "top_k": None},
        "two kept": {"keep": 2, "beam_width": 20},
    }
    return {
        name: rows_of(bench.scan_letters(measures="near", **({"beam_width": 4} | changes)))
        for name, changes in variants.items()
    }


@case()
def closure_refinement_and_verification(bench: Bench) -> Values:
    """What is done after a search: closed nodes, refined windows, continuations scored again."""
    variants: dict[str, dict[str, Any]] = {
        "closure": {"closure": 50},
        "refinement": {"refine": 60, "threshold": 0.05},
        "both": {"closure": 20, "refine": 40, "threshold": 0.05},
        "verification": {"verify": True},
    }
    return {
        name: rows_of(bench.scan_letters(measures="near", **({"beam_width": 3} | changes)))
        for name, changes in variants.items()
    }


@case()
def screen(bench: Bench) -> Values:
    """Ratings below the floor are not searched, except those of the audit; its windows are drawn by the seed."""
    sampled = bench.scan_letters(**SCREENED, estimate="undecided")
    manifest = package.read_run(bench.screened_run).manifest
    assert manifest is not None
    return {
        "rows": rows_of(bench.screened),
        "sampled audit": rows_of(sampled, sampled="masses"),
        "totals": manifest["totals"],
        "shown": shown(bench.screened_run),
    }


@case()
def sampled_answers(bench: Bench) -> Values:
    """Hits of sampled answers; the same draws wherever a window is measured."""
    return {
        "few": rows_of(bench.scan_letters(measures="near", answers=2)),
        "beside greedy ones": rows_of(bench.scan_letters(answers=5, greedy="full", distance="hamming", seed=3)),
    }


@case()
def residual_estimates(bench: Bench) -> Values:
    """Sampled masses of what searches left open."""
    variants: dict[str, dict[str, Any]] = {
        "undecided": {"estimate": "undecided", "threshold": 0.05, "beam_width": 2},
        "all": {"estimate": "all", "residual": 400, "beam_width": 4},
        "to an error": {"estimate": "all", "residual": 2000, "residual_error": 0.1, "beam_width": 2},
    }
    return {
        name: rows_of(bench.scan_letters(measures="near", **changes), sampled="masses")
        for name, changes in variants.items()
    }


@case()
def comparison_of_scans(bench: Bench) -> Values:
    """Two policies on the same windows, paired."""
    warm, cold = (bench.scan_letters(stride_chars=7, temperature=heat) for heat in (1.0, 0.6))
    return {"compared": table(warm.compare(cold).to_dicts()), "rates": table(cold.rates().to_dicts())}


# Networks in memory.


LIKED = {
    "llama": ((148, 181, 181, 39, 200, 39), (79, 152, 114, 17, 2, 126), (126, 243, 183, 78, 124, 209),
              (246, 224, 240, 18, 223, 252), (167, 167, 79, 241, 217, 244)),
    "gpt2": ((256, 193, 190, 11, 84, 139), (116, 159, 256, 84, 253, 200), (106, 193, 193, 193, 11, 193),
             (11, 123, 193, 11, 239, 172), (84, 137, 110, 166, 162, 208)),
}  # fmt: skip
"""Suffixes among the likely ones after the prefixes of `_liked_pairs`; the last is the greedy answer."""


def _liked_pairs(bench: Bench, architecture: str) -> Path:
    records = [
        {"id": str(number), "suffix_ids": suffix, "prefix_ids": [int(2 + one * 256) for one in drawn]}
        for number, suffix in enumerate(LIKED[architecture])
        for drawn in [uniform("prefix", number, count=8)]
    ]
    return bench.text(f"liked/{architecture}.jsonl", "\n".join(map(json.dumps, records)))


@case(NETWORK)
def networks(bench: Bench) -> Values:
    """Random weights and real attention: batches, trees and every measure give the same numbers."""
    found = {}
    for architecture in ("llama", "gpt2"):
        model = random_network(architecture, jitter=bench.jitter)
        pairs = {"pairs": [str(_liked_pairs(bench, architecture))]}
        given = {
            "top_k": 5, "beam_width": 6, "edit_budget": 2, "threshold": 1e-3, "slots": 3, "batch_windows": 2,
            "screen": "off", "estimate": "off", "answers": 0, "greedy": "full", "stop_rule": "off",
            "measures": ("greedy", "verbatim", "near", "membership"), "sweep": ("k=40", "t=0.5"),
        }  # fmt: skip
        results = bench.scan_in_memory(model, pairs, given)
        hamming = bench.scan_in_memory(model, pairs, given | {"distance": "hamming", "measures": "near", "sweep": (),
                                                              "greedy": "decided"})  # fmt: skip
        found[architecture] = {
            "levenshtein": rows_of(results, names_only=("token_evals",)),
            "continuations": table(list(results.continuations()), names_only=("text",)),
            "hamming": rows_of(hamming, names_only=("token_evals",)),
        }
    return found


@case(NETWORK)
def membership(bench: Bench) -> Values:
    """Loss, zlib, Min-K and a reference model, for the word model and windows of its texts."""
    model = package.load_model(bench.word_model, **options({"device": "cpu"}))
    texts = {name: list(map(str, paths)) for name, paths in bench.word_texts.items()}
    given = {name: COMMAND[name] for name in ("prefix_tokens", "suffix_tokens", "stride_chars", "limit", "device")}
    given |= {"measures": ("verbatim", "membership"), "batch_windows": 4}
    reference = {"reference_model": str(bench.plain_word_model), "min_k": 0.4}
    alone = bench.scan_in_memory(model, texts, given)
    beside = bench.scan_in_memory(model, texts, given | reference)
    saved = beside.save(bench.path("membership"))
    return {
        "alone": rows_of(alone, names_only=("token_evals",)),
        "beside a reference": rows_of(beside, names_only=("token_evals",)),
        "shown": shown(saved),
    }


# Commands, with the word model from its folder.


@case(NETWORK)
def scan_by_command(bench: Bench) -> Values:
    """A scan into a folder with verification; its rows, totals, page tables and `show --json`."""
    run = package.read_run(bench.run)
    found, manifest = run.continuations(), run.manifest
    assert found is not None
    assert manifest is not None
    run.report(bench.path("page"))
    pages = {
        path.stem: csv_table(path, names_only=("run",)) for path in sorted(bench.path("page").glob("tables/*.csv"))
    }
    return {
        "rows": table(run.to_polars().to_dicts(), names_only=("token_evals", "verified_shift")),
        "continuations": table(found.to_dicts()),
        "rates": table(run.rates().to_dicts(), names_only=("run",)),
        "totals": pruned(manifest["totals"], "token_evals"),
        "texts": pruned(manifest["texts"], "content_hash"),
        "pages": pages,
        "shown": shown(bench.run),
        "is as it was written": succeeded("verify", bench.run).code == 0,
    }


@case(NETWORK)
def export(bench: Bench) -> Values:
    """Columns of exported rows and continuations, as CSV and as JSON Lines."""
    found: Values = {}
    for kind in ("results", "continuations"):
        for form in ("csv", "jsonl"):
            path = bench.path(f"exported-{kind}.{form}")
            succeeded("export", bench.run, *flags({"format": form, "table": kind, "out": path}))
            rows = (
                csv_table(path)
                if form == "csv"
                else table([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])
            )
            kept = ("window_id", "log_p_verbatim", "mass_lower", "verdict", "rank", "token_ids", "distance")
            found[f"{kind}.{form}"] = {
                "columns": rows["columns"],
                "values": {name: cells[:3] for name, cells in rows["values"].items() if name in kept},
            }
    return found


@case(NETWORK)
def gates(bench: Bench) -> Values:
    """Rates within limits, beyond them, and neither, with their exit codes; increases over a baseline."""
    less = bench.scan_by_command("less", model=bench.plain_word_model)
    answered = bench.scan_by_command("answered", answers=20)
    rules: dict[str, tuple[Path, dict[str, Any]]] = {
        "pass": (bench.run, {"max_rate": "verbatim=1"}),
        "fail": (bench.run, {"max_rate": ["near=0.1", "verbatim=0.9"]}),
        "of each": (bench.run, {"max_rate": ["near=0.99", "greedy=0.5"], "confidence": 0.8}),
        "undecided": (bench.screened_run, {"max_rate": "near=0.9"}),
        "of a kind": (bench.records_run, {"max_rate": ["kind:phone verbatim=0.3", "tag:all near=0.99"]}),
        "of answers": (answered, {"max_rate": ["certified=0.5", "near=0.9", "mass=0.2"]}),
        "of a baseline": (bench.run, {"baseline": less, "max_increase": ["0.05", "verbatim=0.9"]}),
    }
    found: Values = {}
    for name, (run, given) in rules.items():
        path = bench.path(f"gate-{name.replace(' ', '-')}.json")
        ended = command("gate", run, *flags(given | {"json": path}))
        assert path.exists(), ended.err
        judged = json.loads(path.read_text(encoding="utf-8"))
        found[name] = {"code": ended.code, "judged": pruned(judged, "run", "baseline", "words", "model")}
    return found


@case(NETWORK)
def reading_at_another_threshold(bench: Bench) -> Values:
    """The same run at another τ, given or found on controls, and within a number of queries."""
    return {
        "given": shown(bench.run, threshold=0.7),
        "of controls": shown(bench.screened_run, threshold="from-control=0.2"),
        "queries": shown(bench.run, queries=3, probability=0.5),
    }


@case(NETWORK)
def shards_and_merge(bench: Bench) -> Values:
    """Three shares of a scan and what they make together: the rows of the scan that was never divided."""
    whole = bench.scan_by_command("whole")
    shards = [bench.scan_by_command(f"shard-{number}", shard=f"{number}/3") for number in range(3)]
    succeeded("merge", bench.path("merged"), *shards)
    merged = package.read_run(bench.path("merged"))
    manifest = merged.manifest
    assert manifest is not None
    undivided = rows_of(package.read_run(whole), names_only=("token_evals",))
    return {
        "windows": [package.read_run(shard).to_polars()["window_id"].to_list() for shard in shards],
        "merged": require_same(rows_of(merged, names_only=("token_evals",)), undivided, NETWORK),
        "totals": pruned(manifest["totals"], "token_evals"),
    }


class Interrupted(Exception):
    """Raised in the middle of a forward."""


@contextmanager
def interrupted_with(windows: int, run: Path) -> Iterator[None]:
    """Inside, a forward raises once this many windows are on the disk."""

    def look(*_: Any) -> None:
        with suppress(package.ByroteError):
            if len(package.read_run(run)) >= windows:
                raise Interrupted

    handle = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()


@case(NETWORK)
def resumed_after_interruption(bench: Bench) -> Values:
    """A scan that dies and is run again, with few windows a part; and one that ends with its budget and goes on."""
    given = {"limit": 9, "part_windows": 1, "slots": 2, "batch_windows": 1, "screen": "off"}
    whole = package.read_run(bench.scan_by_command("undisturbed", **given))
    arguments = flags({"model": bench.word_model, **bench.word_texts, **COMMAND} | given | {"out": bench.path("dead")})
    with interrupted_with(4, bench.path("dead")):
        died = command("scan", *arguments)
    rest = package.read_run(bench.path("dead"))
    assert died.code != 0
    assert not rest.is_complete
    assert 0 < len(rest) < len(whole), f"the interruption must leave some windows and not all, not {len(rest)}"
    succeeded("scan", *arguments)
    resumed = package.read_run(bench.path("dead"))
    spent = bench.scan_by_command("spent", **given, max_evals=150)
    first = sorted(package.read_run(spent).to_polars()["window_id"].to_list())
    undisturbed = rows_of(whole, names_only=("token_evals",))
    return {
        "resumed": require_same(rows_of(resumed, names_only=("token_evals",)), undisturbed, NETWORK),
        "within a budget": first,
    }


@case(NETWORK)
def estimates_by_command(bench: Bench) -> Values:
    """Sampled masses of undecided windows."""
    run = package.read_run(bench.scan_by_command("estimated", estimate="undecided", beam_width=2, threshold=0.3))
    return {"rows": rows_of(run, names_only=("token_evals", "mass_base"), sampled="masses")}


@case(NETWORK)
def plain_sampling(bench: Bench) -> Values:
    """`mc` of a run: masses within chance, certified bounds beside them."""
    of_run = bench.path("mc-run")
    drawn = {"samples": 400, "replicates": 4, "device": "cpu", "slots": 4}
    succeeded("mc", bench.run, *flags(drawn | {"sample": 4, "out": of_run}))
    sampled = rows_of(package.read_run(of_run), names_only=("token_evals", "curve_samples"), sampled="masses")
    return {"of a run": sampled}


# Priors, audits, studies.

PRIOR: dict[str, Any] = {
    "prefix_tokens": 5, "suffix_tokens": 4, "stride_chars": 9, "limit": 6, "prior_prefixes": 100, "trials": 2,
}  # fmt: skip
"""The reference text has fewer than a hundred prefixes, so all of them are taken."""


@case()
def prior(bench: Bench) -> Values:
    """Memorized or merely likely: with every prefix of a reference text, with drawn ones, of pairs, of a scan."""
    reference = bench.text("prior/reference.txt", letters("reference", 300))
    generic = bench.text("prior/generic.txt", "\n".join(letters(f"generic {number}", 24) for number in range(5)))
    given = PRIOR | {"prior_text": str(reference), "generic": str(generic)}
    scanned = bench.scan_letters(stride_chars=40).save(bench.path("scan-for-prior"))
    cut = [
        {"id": str(start), "prefix": KNOWN[start : start + 5], "suffix": KNOWN[start + 5 :][:4]} for start in (10, 9)
    ]
    pairs = bench.text("prior/pairs.jsonl", "\n".join(map(json.dumps, cut)))
    long = bench.text("prior/long.txt", letters("long reference", 1500))
    named = bench.text("prior/named.txt", f"{KNOWN} call 959-481-5012 or write to ada@example.org {UNKNOWN}")
    # Suffixes so short that most prefixes carry the estimate, as an interval needs.
    drawn = {
        "prior_text": str(long), "prior_prefixes": 600, "stride_chars": 1, "suffix_tokens": 1, "seed": 7,
        "least_ratio": 2.0,
    }  # fmt: skip
    variants: dict[str, dict[str, Any]] = {
        "texts": dict(bench.letter_texts),
        "policy": dict(bench.letter_texts) | {"temperature": 0.8, "top_k": 6, "least_probability": 0.05},
        "pairs": {"pairs": str(pairs), "least_ratio": 3000.0},
        "spans": {"text": [str(named)], "spans": "auto", "least_ratio": 2.0},
        "run": {"run": str(scanned), "prefix_tokens": 6},
        "drawn": dict(bench.letter_texts) | drawn,
    }
    found: Values = {}
    for name, changes in variants.items():
        run = package.prior(bench.letters, out=bench.path(f"prior-{name}"), **options(given | changes))
        assert run.manifest is not None
        found[name] = {
            "rows": rows_of(run, sampled="ratios" if name == "drawn" else None),
            "totals": run.manifest["totals"] if name != "drawn" else None,
        }
    return found


@case()
def prior_interrupted(bench: Bench) -> Values:
    """A prior run whose model fails once, and which goes on."""
    reference = bench.text("prior/other.txt", letters("other reference", 400))
    given = options(PRIOR | bench.letter_texts | {"prior_text": str(reference), "least_ratio": 2.0})
    before = bench.letters.calls
    whole = package.prior(bench.letters, out=bench.path("prior-whole"), **given)
    bench.letters.calls_left = (bench.letters.calls - before) // 2
    try:
        package.prior(bench.letters, out=bench.path("prior-dead"), **given)
    except RuntimeError:
        assert not package.read_run(bench.path("prior-dead")).is_complete
    else:
        raise AssertionError("the model must fail")
    finally:
        bench.letters.calls_left = None
    run = package.prior(bench.letters, out=bench.path("prior-dead"), **given)
    return {"resumed": require_same(rows_of(run), rows_of(whole), TABLE)}


def _book_and_memory() -> tuple[str, Chain]:
    """A book of 240 words, and what its reader remembers: another word here and there, and an early end."""
    words = shuffled("book", WORDS)
    book, others = list(words[:240]), words[240:]
    remembered = list(book[:200])
    for number, place in enumerate((30, 31, 55, 90, 150)):
        remembered[place] = others[number]
    return " ".join(book), Chain(tuple(remembered), 14.0)


@case()
def audit(bench: Bench) -> Values:
    """What a model gives back of a book that it nearly knows, of one that it does not, and what the exhibit says."""
    book, memory = _book_and_memory()
    model = write_word_model(bench.path("reader"), memory, seed="reader", jitter=bench.jitter)
    path = bench.text("audit/book.txt", book)
    control = bench.text("audit/control.txt", " ".join(shuffled("control book", WORDS)[:100]))
    given = {
        "device": "cpu", "style": "text", "max_turns": 6, "max_tokens": 40, "first_max_tokens": 30, "prefix_words": 10,
        "target_words": 10,
    }  # fmt: skip
    folder = package.audit(str(model), path, out=bench.path("audit"), control=(control,), **options(given))
    return {
        "findings": pruned(folder.findings, "prompt", "passes", "hash"),
        "best": pruned(folder.best, "sections"),
    }


@case()
def recall(bench: Bench) -> Values:
    """nv-recall of texts with gaps, moved and duplicated passages; the command finds what Python finds."""
    words = shuffled("recall", WORDS)
    extra = [f"{word}x" for word in words]
    book = " ".join(words)
    texts = {
        "gaps": " ".join((*words[:60], *extra[:2], *words[62:140], *extra[2:30], *words[150:])),
        "moved": " ".join((*words[130:], *extra[:9], *words[:130])),
        "duplicated": " ".join((*words[:120], *extra[:5], *words[:120])),
        "fragments": " ".join(extra[place] if place % 12 < 2 else word for place, word in enumerate(words[:160])),
        "shifted fragments": " ".join(
            f"{word} {word}x" if place % 15 == 0 else word for place, word in enumerate(words)
        ),
        "nothing": " ".join(extra[:50]),
        "short": " ".join((*words[5:30], *extra[:40])),
        "quotes and blanks": "\n“" + "  ".join(words[:130]) + "”\n",
        "upper case": " ".join(words[:130]).upper(),
    }
    found: Values = {name: pruned(package.nv_recall(book, text).record(), "passes") for name, text in texts.items()}
    found["no repeated passes"] = pruned(
        package.nv_recall(book, texts["moved"], **options({"repeated_passes": 0})).record(), "passes"
    )
    path, run = bench.text("recall/book.txt", book), bench.path("recall")
    generation, numbers = bench.text("recall/generation.txt", texts["gaps"]), bench.path("recall.json")
    succeeded("recall", *flags({"book": path, "generation": generation, "json": numbers, "out": run}))
    found["by command"] = pruned(json.loads(numbers.read_text(encoding="utf-8")), "passes")
    return found


@case(NETWORK)
def study(bench: Bench) -> Values:
    """A grid of two cells, paired, with plain sampling and published numbers."""
    given = options(
        {name: value for name, value in COMMAND.items() if name != "limit"}
        | {
            "model": str(bench.word_model), "text": list(map(str, bench.word_texts["text"])),
            "control": list(map(str, bench.word_texts["control"])), "temperature": [0.7, 1.3], "sample": 14,
        }
    )  # fmt: skip
    file = bench.text("study.yaml", yaml.safe_dump(given))
    succeeded("study", file, *flags({"out": bench.path("study")}))
    cells = sorted(bench.path("study").glob("cells/*"))
    assert len(cells) == 2
    return {
        "cells": [rows_of(package.read_run(cell), names_only=("token_evals",)) for cell in cells],
        "tables": {
            path.stem: csv_table(path, names_only=("cell", "model", "evals a window"))
            for path in sorted(bench.path("study").glob("report/tables/*.csv"))
        },
    }
