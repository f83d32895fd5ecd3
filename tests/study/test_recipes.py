"""Every recipe is a plan whose published numbers have a cell, stands in the documents, and runs as a smoke test."""

from pathlib import Path

import pytest
from setuptools import Distribution

from byrote.cli.study import smoke_values
from byrote.options import read_config_file
from byrote.scan.options import RunConfig
from byrote.study.plan import StudyConfig, StudyPlan, plan_study, recipe_files
from byrote.study.report import PUBLISHED_WORDS, published_words, study_content
from byrote.study.run import read_study, run_study
from tests.scan.scans import Command
from tests.study.conftest import TwoModels

ROOT = Path(__file__).parent.parent.parent
RECIPES = list(recipe_files().values())

each_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)


def planned(recipe: Path) -> StudyPlan:
    return plan_study(read_config_file(recipe, StudyConfig, RunConfig), place=str(recipe))


def test_there_are_recipes() -> None:
    assert len(RECIPES) == 8


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


@each_recipe
def test_every_published_number_is_about_exactly_one_cell(recipe: Path) -> None:
    study = planned(recipe)
    assert study.config.published
    for one in study.config.published:
        cells = [
            cell
            for cell in study.cells
            if all(cell.settings.get(name) == value for name, value in one.settings.items())
        ]
        assert len(cells) == 1, f"{one.where} is about {len(cells)} cells"
        budget = study.scans[cells[0].name].edit_budget
        assert one.edits is None or one.edits <= budget


@each_recipe
def test_the_documents_have_every_published_number_with_its_source(recipe: Path) -> None:
    text = (ROOT / "docs/replication.md").read_text(encoding="utf-8")
    assert f"`recipes/{recipe.name}`" in text
    part = text.split(f"`recipes/{recipe.name}`")[1].split("###")[0]
    for one in planned(recipe).config.published:
        measure = PUBLISHED_WORDS[one.measure] + (f", ε ≤ {one.edits}" if one.edits is not None else "")
        row = f"| {measure} | {published_words(one)} | | {one.source} |"
        model = one.settings["model"]
        assert any(row in line and model in line for line in part.splitlines()), row


@each_recipe
def test_the_recipe_runs_as_a_smoke_test(
    recipe: Path, models: TwoModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYROTE_CACHE", str(models.smaller.parent))
    out = tmp_path / "smoke"
    values = smoke_values(read_config_file(recipe, StudyConfig, RunConfig), out)
    run_study(plan_study(values, place=str(recipe)), out)
    study = read_study(out)
    assert len(study.cells) == study.planned > 0
    assert all(len(axis.values) == 2 for axis in study.swept)
    tables = {cells.name: cells for cells in study_content(study).tables}
    assert len(tables["cells"].rows) == study.planned
    assert len(tables["published"].rows) == len(planned(recipe).config.published)
    assert {row[3] for row in tables["published"].rows} == {""}, "tiny models do not stand in for those of the paper"


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
