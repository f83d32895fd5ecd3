"""Rounded shapes hold what they must and repeat; that they change no number is tested with real attention."""

from hypothesis import given
from hypothesis import strategies as st

from byrote.search.tree import Shape, Shapes

MOST = Shape(120, 21, 1071)


@given(st.integers(1, 120), st.integers(1, 21), st.integers(1, 1071), st.booleans())
def test_a_rounded_shape_holds_what_was_asked_and_fits_the_memory(
    slots: int, lanes: int, entries: int, on_gpu: bool
) -> None:
    shape = Shapes(MOST, on_gpu=on_gpu).rounded(slots, lanes, entries)
    assert (slots, lanes, entries) <= tuple(shape)
    for asked, given_, most in zip((slots, lanes, entries), shape, MOST, strict=True):
        assert asked <= given_ <= most
    assert shape.entries - entries < (64 if on_gpu else 32)


def test_few_shapes_serve_a_whole_run() -> None:
    shapes = Shapes(MOST, on_gpu=True)
    asked = {(slots, lanes) for slots in range(1, 121) for lanes in range(1, 22)}
    assert len({shapes.rounded(slots, lanes, 500) for slots, lanes in asked}) == 8  # 120, 60, 30, 15, 8, 4, 2, 1
    assert shapes.rounded(61, 3, 500) == (120, 21, 512)
    assert shapes.rounded(60, 3, 500) == (60, 21, 512)


def test_on_a_cpu_only_entries_are_rounded() -> None:
    assert Shapes(MOST, on_gpu=False).rounded(7, 5, 65) == (7, 5, 96)
