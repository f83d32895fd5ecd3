"""Axes become cells: every combination once, names that are folders, and refusals in a sentence."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.study.plan import base_cells, make_axes, make_cells

WORDS = st.text("ab/=+. _-1", min_size=1, max_size=40)
GRIDS = st.dictionaries(
    st.sampled_from(["model", "texts", "prefix_tokens", "beam_width", "policy"]),
    st.lists(WORDS, min_size=1, max_size=3, unique=True),
    min_size=1,
)


@given(GRIDS)
def test_every_combination_is_one_cell_with_a_folder_of_its_own(values: dict[str, list[str]]) -> None:
    axes = make_axes(values)
    cells = make_cells(axes)
    assert len(cells) == math.prod(len(each) for each in values.values())
    assert len({tuple(sorted(cell.settings.items())) for cell in cells}) == len(cells)
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(re.fullmatch(r"[\w.=+-]+", cell.name) and len(cell.name) < 200 for cell in cells)
    assert make_cells(axes) == cells


@given(GRIDS)
def test_base_cells_are_the_first_of_every_model_and_text(values: dict[str, list[str]]) -> None:
    axes = make_axes(values)
    base = base_cells(axes, make_cells(axes))
    assert len(base) == len(values.get("model", ["one"])) * len(values.get("texts", ["one"]))
    for cell in base:
        assert all(cell.settings[name] == each[0] for name, each in values.items() if name not in ("model", "texts"))


def test_models_are_outermost_and_their_labels_are_the_last_part_of_a_path() -> None:
    axes = make_axes({"beam_width": ["1", "4"], "model": ["/models/small", "/models/large"]})
    assert [axis.name for axis in axes] == ["model", "beam_width"]
    assert [cell.name for cell in make_cells(axes)][:2] == ["01-small-beam_width=1", "02-small-beam_width=4"]
    twins = make_axes({"model": ["a/same", "b/same"]})[0]
    assert [twins.label_of(value) for value in twins.values] == ["a/same", "b/same"]


def test_a_value_given_twice_and_a_grid_beyond_reason_are_refused() -> None:
    with pytest.raises(ConfigError, match="beam_width has a value twice"):
        make_axes({"beam_width": ["4", "4"]})
    with pytest.raises(ConfigError, match="1,000,000 cells"):
        make_cells(make_axes({name: [str(value) for value in range(100)] for name in ("a", "b", "c")}))
