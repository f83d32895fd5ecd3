"""Every recipe is a plan whose published numbers have a cell, stands in the documents, and runs as a smoke test."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from setuptools import Distribution

from byrote.cli.commands import StudyCommand
from byrote.cli.study import changes_of
from byrote.longform.run import read_audit
from byrote.scan.options import RunConfig
from byrote.store.read import read_run
from byrote.study.plan import StudyPlan, plan_study, read_study_file, recipe_files, shrunk, with_changes
from byrote.study.published import Published
from byrote.study.report import study_content
from byrote.study.run import read_study, run_study
from tests.scan.scans import Command
from tests.study.conftest import TwoModels

ROOT = Path(__file__).parent.parent.parent
RECIPES = list(recipe_files().values())

each_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)


def planned(recipe: Path) -> StudyPlan:
    """Profiles whose requests test a safeguard need an authorisation, which no recipe can state."""
    values = read_study_file(recipe)
    authorised = {"authorisation": "these tests"} if "profile" in values else {}
    return plan_study(values | authorised, place=str(recipe))


def test_there_are_recipes() -> None:
    assert len(RECIPES) == 21


def test_a_wheel_holds_every_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """What setuptools would put beside the modules, by the pyproject of this project."""
    monkeypatch.chdir(ROOT)
    project = Distribution()
    project.parse_config_files(["pyproject.toml"])
    build = project.get_command_obj("build_py")
    build.ensure_finalized()
    build.manifest_files = {}
    held = {Path(name).resolve() for name in build.find_data_files("byrote", "src/byrote")}
    assert {path.resolve() for path in RECIPES} <= held


def test_recipes_are_listed_and_printed_and_an_unknown_one_is_refused(byrote: Command, tmp_path: Path) -> None:
    listed = byrote("recipes").out
    assert all(recipe.stem in listed for recipe in RECIPES)
    assert byrote("recipes", RECIPES[0].stem).out == RECIPES[0].read_text(encoding="utf-8")
    for outcome in (byrote("recipes", "nothing"), byrote("study", "nothing", "--out", tmp_path / "out")):
        assert outcome.code == 2
        assert "pythia-enron" in outcome.err


QUANTITIES = {
    "sequences": "windows",
    "held-out sequences": "windows",
    "verbatim greedy": "greedy",
    "greedy rate": "greedy",
    "verbatim probabilistic": "verbatim",
    "maximum rate": "possible",
    "verbatim k-CBS": "search_near",
    "near-verbatim k-CBS": "search_near",
    "verbatim share of the extracted set": "search_near",
    "recovery ratio": "recovery",
    "missed by k-CBS": "missed",
    "mass gain of all sequences": "gain_at",
    "mass gain of extracted sequences": "gain_at",
    "unlocked sequences": "unlocked",
    "unlocked share of the extracted set": "unlocked",
    "unlocked sequences with no verbatim mass": "unlocked_from_zero",
    "extracted sequences with no verbatim mass": "unlocked_from_zero",
    "unlocked and verbatim at the next size": "promoted",
    "mean mass of unlocked sequences": "mass_mean",
    "largest mass of unlocked sequences": "mass_max",
    "mean mass of extracted sequences": "mass_mean",
    "median mass of the fixed set": "mass_median",
    "mean mass of the fixed set": "mass_mean",
    "median verbatim share": "verbatim_share_median",
    "median verbatim share of newly extracted sequences": "verbatim_share_median",
    "k-CBS bound over the MC mean": "mc_ratio",
    "verbatim probability of the sentence": "verbatim_mass",
    "near-verbatim mass of the sentence": "mass_mean",
    "BLEU of baseline k-CBS": "posthoc",
    "Lev and BLEU of baseline k-CBS": "posthoc",
    "Lev alone of baseline k-CBS": "posthoc",
    "BLEU alone of baseline k-CBS": "posthoc",
    "queries to reach the greedy rate": "queries_to_greedy",
    "(n, p) rate": "within_queries",
    "prior-aware share of extractable suffixes": "prior_aware",
    "common share of extractable suffixes": "common",
    "similarity of phase 1": "similarity",
    "instruction of phase 1": "instruction",
    "words of the book": "book_words",
    "words of the generation": "generated_words",
    "words matched": "matched_words",
    "nv-recall": "nv_recall",
    "longest near-verbatim block": "longest_block",
    "requests to continue": "requests",
    "cost in dollars": "cost",
    "cost in dollars with an assumed cache": "cost_with_assumed_cache",
}
"""What the papers print → the measure that is the same quantity. byrote's own `near`, which holds p_z, is none."""


@each_recipe
def test_every_published_number_is_about_one_cell_and_one_quantity(recipe: Path) -> None:
    study = planned(recipe)
    for one in study.config.published:
        cells = [
            cell
            for cell in study.cells
            if all(cell.settings.get(name) == value for name, value in one.settings.items())
        ]
        assert len(cells) == 1, f"{one.where} is about {len(cells)} cells"
        assert one.measure == QUANTITIES[one.quantity], f"{one.quantity} is no {one.measure}"
        assert re.search(r"(Table|Fig\.|Figs\.|App\.|Sec\.) ", one.source), one.source
        scan = study.configs[cells[0].name]
        if not isinstance(scan, RunConfig):
            assert one.edits is None
            continue
        assert one.edits is None or one.edits <= scan.edits
        assert (one.edits == 0) == (one.quantity in EXACT or scan.edit_budget == one.edits == 0), one.quantity
        if one.measure not in ("windows", "greedy", "verbatim", "possible", "within_queries", "queries_to_greedy"):
            assert scan.viability == "published" or scan.distance == "none"
            assert (scan.pin, scan.screen, scan.negligible) == (False, "off", 0)


EXACT = ("verbatim greedy", "greedy rate", "verbatim k-CBS", "verbatim share of the extracted set")
"""Quantities about the exact text: a row of another ε would be another quantity."""


@each_recipe
def test_a_recipe_runs_on_other_models_and_texts_and_fills_the_column_of_its_numbers(
    recipe: Path, models: TwoModels, tmp_path: Path
) -> None:
    """As `byrote study NAME --model … --text … --set …` runs it; counts are made again from the rows of every cell."""
    values, out = read_study_file(recipe), tmp_path / "study"
    texts = sorted(models.lab.files.targets.iterdir())[:3]
    given = StudyCommand(
        file=recipe,
        model=tuple(map(str, (models.smaller, models.lab.model.path)[: len(listed(values["model"]))])),
        text=(str(write_pairs(tmp_path / "pairs.jsonl", texts)),) if "pairs" in values else tuple(map(str, texts)),
        control=(str(models.lab.files.controls),) if "control" in values else (),
        change=tuple(f"{name}={value}" for name, value in little(values, texts, tmp_path).items()),
    )
    plan = plan_study(with_changes(values, changes_of(given, values), place="here"), place="here")
    run_study(plan, out)
    study = read_study(out)
    assert len(study.cells or study.recorded) == study.planned > 0
    tables = {cells.name: cells for cells in study_content(study).tables}
    rows = tables["published"].rows if "published" in tables else ()
    assert len(rows) == len(planned(recipe).config.published)
    cells = {tuple(sorted(one.cell.settings.items())): one for one in study.cells or study.recorded}
    filled, empty = ([row for row in rows if bool(row[4]) == is_filled] for is_filled in (True, False))
    assert [*filled, *empty] == list(rows), "those with a counterpart come first"
    for one in study.config.published:
        own = [cell for settings, cell in cells.items() if one.settings.items() <= dict(settings).items()]
        is_last_of_family = one.measure == "promoted" and one.settings["model"] == str(models.lab.model.path)
        has_samples = one.measure != "mc_ratio" or study.sampled
        is_filled, expected = len(own) == 1 and not is_last_of_family and bool(has_samples), None
        if own and study.recorded:
            number = NUMBERS[study.measurement](out / "cells" / own[0].cell.name, one.measure)
            is_filled, expected = number is not None, None if number is None else one.words(number)
        elif is_filled and one.measure in ("search_near", "verbatim", "windows") and one.among == "all":
            results = read_run(out / "cells" / own[0].cell.name).results.filter(pl.col("split") == one.split)
            hits = counted(results, one)
            expected = one.words(hits if one.unit == "count" else hits / len(results))
        row = (filled if is_filled else empty).pop(0)
        assert (row[1], row[3]) == (one.quantity, one.words(one.value)), row
        assert expected is None or row[4] == expected, row
    assert not filled
    assert not empty


def of_rows(folder: Path, measure: str) -> float:
    """The published rule over the rows: P(s|p) > m, and of these the ratio above n or not."""
    rows = read_run(folder).results.filter(pl.col("log_p_conditional").exp() > pl.col("least_probability"))
    verdict = {"prior_aware": "memorized", "common": "merely_likely"}[measure]
    return (rows["point_verdict"] == verdict).sum() / len(rows) if len(rows) else math.nan


def of_findings(folder: Path, measure: str) -> float | None:
    """From the record of the only trial and the texts themselves; without prices there is no cost."""
    audit = read_audit(folder)
    (trial,) = audit.trials
    (section,) = trial["sections"]
    generations = [path.read_text() for path in folder.glob("generations/*-section-000.txt")]
    numbers: dict[str, float | None] = {
        "similarity": section["similarity"],
        "instruction": 0,
        "book_words": len(audit.text("book.txt").split()),
        "generated_words": sum(len(text.split()) for text in generations),
        "requests": section["turns"] - section["empty_answers"],
        "cost": audit.manifest["costs"]["cost_with_cache"],
        "cost_with_assumed_cache": audit.manifest["costs"]["cost_with_assumed_cache"],
    }
    return numbers[measure] if measure in numbers else trial[measure]


NUMBERS = {"prior": of_rows, "audit": of_findings}


def counted(results: pl.DataFrame, one: Published) -> int:
    if one.measure == "windows":
        return len(results)
    mass = results["p_verbatim"] if one.measure == "verbatim" else results["search_lower"].list.get(one.edits or 0)
    return int((mass >= 0.001).sum())


LITTLE = {
    "prefix_tokens": 12, "suffix_tokens": 10, "stride_chars": 60, "sample": 5, "device": "cpu", "dtype": "float32",
    "montecarlo_windows": 2, "montecarlo_samples": 30, "overlap": 0.4, "prior_prefixes": 10, "trials": 2,
}  # fmt: skip
MACHINE = {"sample": 5, "device": "cpu", "dtype": "float32"}
AUDIT = {
    "style": "text", "prefix_words": 12, "target_words": 8, "max_turns": 2, "continue_prompt": "plain",
    "frequency_penalty": "none", "presence_penalty": "none", "request_fields": "{}",
}  # fmt: skip


def little(values: Mapping[str, Any], texts: Sequence[Path], folder: Path) -> dict[str, Any]:
    """The options of a recipe that make it small, and the files that it needs besides texts."""
    chosen = {name: value for name, value in LITTLE.items() if name in values}
    if "profile" in values:
        return chosen | AUDIT
    if "prior_text" in values:
        chosen["prior_text"] = ",".join(map(str, texts))
    if "spans" in values:
        spans = [{"document": text.name, "start": 60, "end": 72, "kind": "name"} for text in texts]
        (folder / "names.jsonl").write_text("".join(json.dumps(span) + "\n" for span in spans))
        chosen |= {"spans": folder / "names.jsonl", "span_tokens": "1,2,3,4,5,6,7,8,9"}
    return chosen | MACHINE


def listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def write_pairs(path: Path, texts: Sequence[Path]) -> Path:
    """Every text as a pair of its first words, with copies."""
    words = [text.read_text(encoding="utf-8").split() for text in texts]
    entries = [
        {"prefix": " ".join(each[:12]) + " ", "suffix": " ".join(each[12:22]), "copies": copies}
        for copies, each in enumerate(words, start=1)
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


@each_recipe
def test_a_smoke_test_of_a_recipe_needs_none_of_its_models_and_files(recipe: Path) -> None:
    given = {"models": ("small", "large"), "texts": ("one", "two"), "control": "held-out"}
    plan = plan_study(shrunk(read_study_file(recipe), **given), place="here")  # type: ignore[arg-type]
    assert plan.cells
    for config in plan.configs.values():
        assert set(config.inputs) <= {"small", "large", "one", "two", "held-out"}


def test_the_command_writes_the_page_of_a_smoke_test(
    models: TwoModels, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYROTE_CACHE", str(models.smaller.parent))
    outcome = byrote("study", "monte-carlo", "--smoke", "--out", tmp_path / "smoke")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "smoke/report/index.html").read_text()
    assert "Published numbers and these" in page
    assert "whose numbers stand for nothing" in page
    assert (tmp_path / "smoke/report/figures/study-montecarlo-1.png").exists()
