"""Figures are checked for what they draw: points, limits, labels, legends. Never for pixels."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from scipy.stats import binomtest

from byrote.report.analysis.groups import GroupRate, rate_by_copies, rates_by_group
from byrote.report.analysis.membership import drawn_curve
from byrote.report.analysis.queries import policy_sweep, query_panel
from byrote.report.analysis.rates import Criterion, rate_for, rates_by_criterion, split_rows
from byrote.report.figures.longform import Recall, block_map, recall_bars, word_counts
from byrote.report.figures.overlays import Level, Line, Panel, Point, Setting, overlay
from byrote.report.figures.scan import (
    beam_width_sweep,
    book_heat_map,
    gain_curves,
    mass_scatter,
    rates_by_edits,
    shell_heat_map,
    shell_violins,
    token_ranks,
    verbatim_share_by_model,
    verdicts_by_edits,
)
from byrote.report.figures.style import (
    BLUE,
    ORANGE,
    SERIES,
    SOFT,
    UNMEASURED,
    VERMILLION,
    decade,
    drawn_rows,
    house_style,
    save_bytes,
)
from byrote.report.view import RunView
from byrote.scan.mc_report import convergence
from byrote.stats.clusters import Places
from byrote.stats.curves import MassKind, rate_curves
from byrote.stats.intervals import Rate, RateMethod, exact_interval
from byrote.stats.roc import roc_curve
from byrote.types import Split


@pytest.fixture(autouse=True)
def in_house_style() -> Iterator[None]:
    """As pages draw them."""
    with house_style():
        yield


MASS_LOWER = np.array([[0.5, 0.8, 1.0], [0.0, 0.1, 0.4], [0.0, 0.0, 0.0005], [0.2, 0.2, 0.2]])


def rate(hits: int, windows: int) -> Rate:
    return Rate(hits / windows, exact_interval(hits, windows), windows, RateMethod.BY_DOCUMENT, windows, 1.0)


def apart(windows: int) -> Places:
    """Every window in a document of its own."""
    return Places.of(np.arange(windows), np.zeros(windows), window_chars=1)


def heat_map(*rows: tuple[str, np.ndarray]) -> Figure:
    return book_heat_map(rows, threshold=0.01, title="alice", file="book-1").figure


def legend_of(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def legend_of_figure(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def points_of(axes: Axes, label: str) -> np.ndarray:
    return next(np.asarray(c.get_offsets()) for c in axes.collections if str(c.get_label()).startswith(label))


def test_rates_by_edits_draws_every_rate_at_its_edits(view: RunView) -> None:
    figure = rates_by_edits([view]).figure
    assert legend_of_figure(figure) == ["target", "control"]
    for axes, criterion in zip(figure.axes, (Criterion.NEAR, Criterion.GREEDY), strict=True):
        lines = {str(line.get_label()): line for line in axes.lines}
        assert set(lines) == set(Split)
        for split, edits in product(Split, range(6)):
            entry = rate_for(view.rates, criterion, split=split, edits=edits)
            assert entry is not None
            assert lines[split].get_ydata()[edits] == entry.rate.value
            assert lines[split].get_xdata()[edits] == pytest.approx(edits, abs=0.2)
        assert axes.get_ylim()[0] == 0
    assert "0.001" in figure.axes[0].get_title("left")


def test_the_numbers_behind_a_figure_are_those_drawn(view: RunView) -> None:
    drawn = drawn_rows(rates_by_edits([view]).figure)
    near = {(row["x"], row["y"]) for row in drawn if row["series"] == "target" and "near" in row["panel"]}
    for entry in (one for one in view.rates if one.split is Split.TARGET and one.criterion is Criterion.NEAR):
        assert any(abs(x - (entry.edits or 0)) <= 0.2 for x, y in near if y == entry.rate.value)


def test_the_numbers_behind_bars_intervals_and_heat_maps() -> None:
    figure = Figure()
    axes = figure.add_subplot()
    axes.bar([1.0], [3.0], 0.5, bottom=2.0, label="bars")
    axes.vlines([4.0], [0.1], [0.9], label="interval")
    axes.axhline(0.5)
    figure.add_subplot().imshow([[1.0, np.nan], [3.0, 4.0]], extent=(0, 2, 2, 0))
    bar, interval, *cells = drawn_rows(figure)
    assert (bar["series"], bar["x_low"], bar["x_high"], bar["y_low"], bar["y_high"]) == ("bars", 0.75, 1.25, 2.0, 5.0)
    assert (interval["series"], interval["x_low"], interval["y_low"], interval["y_high"]) == ("interval", 4.0, 0.1, 0.9)
    assert [(cell["x"], cell["y"]) for cell in cells] == [(0.5, 0.5), (1.5, 0.5), (0.5, 1.5), (1.5, 1.5)]
    assert np.array_equal([cell["value"] for cell in cells], [1.0, np.nan, 3.0, 4.0], equal_nan=True)


def test_rates_by_edits_has_a_whisker_from_low_to_high(view: RunView) -> None:
    axes = rates_by_edits([view]).figure.axes[0]
    for split, bars in zip(Split, axes.collections, strict=True):
        found = [one.rate.interval for one in view.rates if (one.criterion, one.split) == (Criterion.NEAR, split)]
        drawn = [(segment[0][1], segment[1][1]) for segment in bars.get_segments()]
        assert drawn == [pytest.approx((one.low, one.high)) for one in found]


def test_scatter_puts_each_category_in_its_colour_and_zero_on_the_rail() -> None:
    p_verbatim = np.array([0.5, 0.0004, 0.0, 0.0])
    mass = np.array([0.6, 0.02, 0.3, 0.0])
    axes = mass_scatter(p_verbatim, mass, is_impossible=p_verbatim == 0, threshold=0.001, edits=5).figure.axes[0]
    assert points_of(axes, "word for word").tolist() == [[0.5, 0.6]]
    assert points_of(axes, "only nearly (").tolist() == [[0.0004, 0.02]]
    ((x, y),) = points_of(axes, "only nearly, exact impossible").tolist()
    assert y == 0.3
    assert axes.get_xlim()[0] < x < 0.0001
    assert legend_of(axes) == ["word for word (1)", "only nearly (1)", "only nearly, exact impossible (1)"]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    colours = [tuple(np.round(c.get_facecolor()[0][:3] * 255).astype(int)) for c in axes.collections[:3]]
    assert colours == [tuple(int(name[i : i + 2], 16) for i in (1, 3, 5)) for name in (BLUE, ORANGE, VERMILLION)]


def test_scatter_keeps_a_probability_too_small_for_a_float_off_the_rail() -> None:
    p_verbatim, mass = np.array([0.5, 0.0, 0.0]), np.array([0.6, 0.3, 0.4])
    is_impossible = np.array([False, False, True])
    axes = mass_scatter(p_verbatim, mass, is_impossible=is_impossible, threshold=0.001, edits=5).figure.axes[0]
    ((tiny, _),) = points_of(axes, "only nearly (").tolist()
    ((rail, _),) = points_of(axes, "only nearly, exact impossible").tolist()
    assert tiny > rail


def test_gain_curves_reach_the_share_with_any_gain() -> None:
    p_verbatim, mass = np.array([0.5, 0.0, 0.1, 0.0]), np.array([0.6, 0.2, 0.1, 0.0])
    axes = gain_curves([("m", p_verbatim, mass)], threshold=0.001).figure.axes[0]
    extractable, everything, *_ = axes.lines
    assert extractable.get_xdata().tolist() == pytest.approx([0.1, 0.2])
    assert extractable.get_ydata().tolist() == pytest.approx([2 / 3, 1 / 3])
    assert everything.get_ydata().tolist() == pytest.approx([0.5, 0.25])
    assert legend_of(axes) == ["m (3)", "extractable windows", "all windows"]


def test_shell_heat_map_sorts_extractable_windows_by_verbatim_share() -> None:
    axes = shell_heat_map(MASS_LOWER, threshold=0.001).figure.axes[0]
    drawn = np.asarray(axes.images[0].get_array())
    assert drawn.tolist() == [pytest.approx(row) for row in [[1, 0, 0], [0.5, 0.3, 0.2], [0, 0.25, 0.75]]]


def test_shell_violins_mark_the_median_of_each_shell() -> None:
    axes = shell_violins(MASS_LOWER, threshold=0.001).figure.axes[0]
    assert [float(line.get_ydata()[0]) for line in axes.lines] == pytest.approx([0.5, 0.25, 0.2])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n(exact)", "1", "2"]


def test_verbatim_share_names_models_with_their_counts() -> None:
    axes = verbatim_share_by_model([("small", MASS_LOWER), ("large", MASS_LOWER[:1])], threshold=0.001).figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["small\n(n = 3)", "large\n(n = 1)"]
    assert [float(line.get_ydata()[0]) for line in axes.lines] == pytest.approx([0.5, 0.5])


def test_figures_without_anything_to_show_say_why(view: RunView) -> None:
    nothing = np.zeros((3, 3))
    unmeasured = replace(view, population=replace(view.population, mass_lower=None, greedy_distance=None))
    for figure in (
        shell_heat_map(nothing, threshold=0.001).figure,
        shell_violins(nothing, threshold=0.001).figure,
        verbatim_share_by_model([("m", nothing)], threshold=0.001).figure,
        rates_by_edits([unmeasured]).figure,
        verdicts_by_edits([], threshold=0.001).figure,
    ):
        assert len(figure.axes[0].texts[0].get_text()) > 10


def test_text_that_no_window_covers_is_hatched_and_named() -> None:
    covered = np.array([0.0, 0.5])
    known, unknown = (heat_map(("exact", heat)) for heat in (covered, np.append(covered, np.nan)))
    assert UNMEASURED.encode() in save_bytes(unknown, "svg"), "also where the figure has no background"
    assert legend_of(unknown.axes[0]) == ["not measured"]
    assert legend_of(known.axes[0]) == []


def test_book_heat_map_has_a_strip_per_row_on_one_scale_from_tau_to_one() -> None:
    heat = np.array([np.nan, 0.0, 0.5, 1.0])
    figure = heat_map(("exact", heat), ("ε ≤ 5", heat))
    strips = [axes for axes in figure.axes if axes.images]
    assert [axes.get_yticklabels()[0].get_text() for axes in strips] == ["exact", "ε ≤ 5"]
    for axes in strips:
        image = axes.images[0]
        assert image.get_clim() == (0.01, 1)
        drawn = image.get_array()
        assert np.ma.getmaskarray(drawn)[0].tolist() == [True, False, False, False]
        assert drawn[0, 1] < 0.01
        assert drawn[0, 2:].tolist() == [0.5, 1.0]


def test_query_curves_draw_rates_greedy_and_the_limit() -> None:
    curves = rate_curves(np.log([0.5, 0.001]), apart(2), queries=[1, 10, 10_000], probabilities=[0.5])
    control = rate_curves(np.log([0.001]), apart(1), queries=[1, 10, 10_000], probabilities=[0.5])
    panel = query_panel(curves, control=control, floor=None, greedy_rate=0.25)
    drawn = {line.label: [(point.place, point.value) for point in line.points] for line in panel.lines}
    assert drawn == {
        "p = 0.5": [(1, 0.5), (10, 0.5), (10_000, 1.0)],
        "control, p = 0.5": [(1, 0), (10, 0), (10_000, 1.0)],
        "any n": [(1, 1.0), (10, 1.0), (10_000, 1.0)],
        "greedy, one query": [(1, 0.25), (10, 0.25), (10_000, 0.25)],
    }
    assert [line.label for line in panel.lines if line.is_control] == ["control, p = 0.5"]
    axes = overlay([panel], Setting("queries, n", is_log=True)).axes[0]
    assert axes.lines[1].get_color() == SOFT, "the control has one colour in every figure"


QUERIES = [*range(680, 693), 693, 10_000]


def queries_drawn(
    logs: list[float], kind: MassKind, *, floor: float | None, queries: list[int]
) -> list[tuple[str, list[float]]]:
    """Style and places of every stretch of the curve."""
    curves = rate_curves(np.array(logs), apart(len(logs)), queries=queries, probabilities=[0.5], mass_kind=kind)
    panel = query_panel(curves, control=None, floor=floor, greedy_rate=None)
    (axes,) = overlay([panel._replace(lines=panel.lines[:1])], Setting("queries, n", is_log=True)).axes
    return [(str(line.get_linestyle()), list(line.get_xdata())) for line in axes.lines if len(line.get_xdata())]


def test_near_verbatim_curves_are_dashed_where_masses_below_the_stop_count() -> None:
    """At p = 0.5 a mass of 0.001 needs 692.8 queries: beyond, what was not searched for would count."""
    logs = np.log([0.5, 0.0001]).tolist()
    near = queries_drawn(logs, MassKind.LOWER_BOUND, floor=0.001, queries=QUERIES)
    assert near == [("-", QUERIES[:13]), ("--", QUERIES[12:])]
    assert queries_drawn(logs, MassKind.LOWER_BOUND, floor=None, queries=QUERIES) == [("-", QUERIES)]


def test_a_curve_whose_every_point_lies_beyond_the_stop_is_dashed_whole() -> None:
    queries = list(range(5_000, 5_020))
    (only,) = queries_drawn([np.log(0.5)], MassKind.LOWER_BOUND, floor=0.001, queries=queries)
    assert only == ("--", queries)


def test_verdict_bars_stack_what_is_shown_what_is_open_and_what_is_ruled_out(view: RunView) -> None:
    rates = rates_by_criterion(view.population, 0.001)
    axes = verdicts_by_edits(rates, threshold=0.001).figure.axes[0]
    assert sorted(legend_of(axes)) == sorted(
        f"{name}, {split}" for name in ("extractable", "neither", "ruled out") for split in Split
    )
    heights = {str(bars.get_label()): [bar.get_height() for bar in bars] for bars in axes.containers}
    assert view.population.mass_upper is not None
    for split in Split:
        rows = split_rows(view.population, split)
        for edits in range(6):
            lower, upper = view.population.mass(edits)[rows], view.population.mass_upper[rows, edits]
            assert heights[f"extractable, {split}"][edits] == pytest.approx((lower >= 0.001).mean())
            assert heights[f"ruled out, {split}"][edits] == pytest.approx((upper < 0.001).mean())
    assert heights["neither, target"][0] == 0, "at distance 0 the bounds meet"
    assert heights["neither, target"][5] > 0


def test_policy_sweep_draws_each_series_with_its_own_marker() -> None:
    counts = {"target": (2, 4, 6), "control": (0, 2, 2)}
    lines = [
        Line(
            name,
            tuple(Point.of(k, rate(hits, 20)) for k, hits in zip((1, 10, 40), own, strict=True)),
            name == "control",
        )
        for name, own in counts.items()
    ]
    axes = policy_sweep(lines, setting="top-k", is_log=True).axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.1, 0.2, 0.3], [0.0, 0.1, 0.1]]
    assert len({line.get_marker() for line in axes.lines}) == 2
    (bars, _) = axes.collections
    spans = [height for segment in bars.get_segments() for height in segment[:, 1]]
    assert spans == pytest.approx([end for point in lines[0].points for end in (point.low, point.high)])
    assert axes.get_xlabel() == "top-k"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "10", "40"]


def test_token_ranks_mark_tokens_the_policy_cuts_off() -> None:
    axes = token_ranks([1, 2, 50, 1], kept=40, window_id="w").figure.axes[0]
    assert points_of(axes, "kept").tolist() == [[1, 1], [2, 2], [4, 1]]
    assert points_of(axes, "cut off").tolist() == [[3, 50]]
    assert axes.get_yscale() == "log"


def test_copies_axis_holds_zero_and_doubles() -> None:
    points = [(copies, rate(hits, 20)) for copies, hits in ((0, 0), (1, 5), (4, 20))]
    axes = rate_by_copies({"m": points}).axes[0]
    assert axes.lines[0].get_xdata().tolist() == [0, 1, 3]
    assert axes.lines[0].get_ydata().tolist() == [0, 0.25, 1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "4"]


def test_an_overlay_gives_a_line_the_same_colour_in_every_panel_and_every_point_its_bar() -> None:
    lines = (
        Line("small", (Point(1.0, 0.1, 0.0, 0.2), Point(4.0, 0.3, 0.1, 0.5))),
        Line("large", (Point(1.0, 0.2), Point(4.0, 0.6, 0.4, 0.8))),
    )
    figure = overlay(
        [Panel("a", "share", lines), Panel("b", "share", lines[1:])], Setting("width", ((1.0, "1"), (4.0, "4")))
    )
    left, right = figure.axes
    assert [list(line.get_ydata()) for line in left.lines] == [[0.1, 0.3], [0.2, 0.6]]
    assert right.lines[0].get_color() == left.lines[1].get_color()
    heights = [height for bars in left.collections for segment in bars.get_segments() for height in segment[:, 1]]
    assert heights == pytest.approx([0.0, 0.2, 0.1, 0.5, 0.4, 0.8])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["small", "large"]
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["1", "4"]


@pytest.mark.parametrize("panels", [1, 2, 5])
def test_a_legend_of_long_names_stays_inside_its_figure_and_panels_wrap(panels: int) -> None:
    names = [f"models/{'a-very-long-name-of-a-model-' * (1 + number)}{number}, prefix 50" for number in range(4)]
    lines = tuple(Line(name, (Point(1.0, 0.2), Point(2.0, 0.4))) for name in names)
    figure = overlay([Panel(f"panel {number}", "share", lines) for number in range(panels)], Setting("tokens"))
    save_bytes(figure, "png")
    (legend,) = figure.legends
    extent = legend.get_window_extent()
    assert 0 <= extent.x0 < extent.x1 <= figure.bbox.width
    assert len({text.get_text() for text in legend.get_texts()}) == len(names)
    assert len({round(axes.get_position().x0, 2) for axes in figure.axes[:panels]}) == min(panels, 3)


def test_places_without_an_order_are_not_joined_by_a_line() -> None:
    panel = Panel("", "share", (Line("model", (Point(0.0, 0.2), Point(1.0, 0.9))),))
    ticks = ((0.0, "alice"), (1.0, "emma"))
    for is_ordered, style in ((True, "-"), (False, "None")):
        (line,) = overlay([panel], Setting("text", ticks, is_ordered=is_ordered)).axes[0].get_lines()
        assert (line.get_linestyle(), line.get_marker()) == (style, "o")


def test_ties_of_a_roc_curve_are_drawn_as_what_the_area_counts() -> None:
    curve = roc_curve(np.array([3.0, 1.0, 0.0, 0.0]), np.array([2.0, 0.0, 0.0, 0.0]))
    false, true = drawn_curve(curve, 0.125)
    assert (np.diff(false) >= 0).all()
    tied = false > 0.25
    assert true[tied] == pytest.approx(np.interp(false[tied], [0.25, 1.0], [0.5, 1.0]))
    beyond = false >= 0.25
    assert np.trapezoid(true[beyond], false[beyond]) == pytest.approx(0.75 * 0.75, abs=1e-3)


def test_a_level_is_drawn_as_a_band_with_its_name() -> None:
    panel = Panel("w", "mass", (Line("sampled", (Point(10.0, 0.2, 0.1, 0.4),)),), (Level("bounds", 0.18, 0.22),))
    axes = overlay([panel], Setting("samples", is_log=True)).axes[0]
    (band,) = axes.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((0.18, 0.22))
    assert axes.texts[0].get_text() == "shaded: bounds"
    assert axes.get_xscale() == "log"


def test_beam_width_sweep_shows_recovery_and_cost() -> None:
    drawing = beam_width_sweep({"exact rule": [(5, 0.9, 300), (20, 1.0, 1030)]})
    left, right = drawing.figure.axes
    assert list(left.lines[0].get_ydata()) == [0.9, 1.0]
    assert list(right.lines[0].get_ydata()) == [300, 1030]
    assert "exact rule" in drawing.caption


def test_samples_converge_beside_the_certified_band() -> None:
    row = {
        "window_id": "w", "curve_evals": [700.0, 7000.0], "curve_hits": [10.0, 200.0], "curve_samples": [100.0, 1000.0],
        "certified_lower": 0.18, "certified_upper": 0.22,
    }  # fmt: skip
    panel = convergence(row, "exact", over="curve_evals")
    (line,) = panel.lines
    assert [(point.place, point.value) for point in line.points] == [(700, 0.1), (7000, 0.2)]
    for point, hits, samples in zip(line.points, (10, 200), (100, 1000), strict=True):
        interval = binomtest(hits, samples).proportion_ci(method="exact")
        assert (point.low, point.high) == pytest.approx((interval.low, interval.high))
    assert [level[1:] for level in panel.levels] == [(0.18, 0.22)]
    assert not convergence(row | {"certified_lower": None, "certified_upper": None}, "exact", over="curve_evals").levels


RECALLS = [Recall("a", 80, 100, 120, 60), Recall("b", 0, 100, 50, 0)]


def test_recall_bars_and_word_counts_add_up() -> None:
    bars = recall_bars(RECALLS).axes[0]
    assert [patch.get_width() for patch in bars.patches] == [0.8, 0.0]
    assert [text.get_text().split("; ")[0] for text in bars.texts] == ["80.0 %", "0.0 %"]
    counts = word_counts(RECALLS).axes[0]
    assert [patch.get_width() for patch in counts.patches] == [80, 0, 20, 100, 40, 50]
    assert legend_of(counts) == ["matched", "missing", "added"]


def test_block_map_joins_every_block() -> None:
    figure = block_map([(0, 10, 5, 15), (40, 60, 30, 50)], book_words=100, generated_words=50)
    book, generation = figure.axes
    assert book.get_xlim() == (0, 100)
    assert generation.get_xlim() == (0, 50)
    links = [artist for artist in figure.artists if isinstance(artist, ConnectionPatch)]
    assert [(link.xy1[0], link.xy2[0]) for link in links] == [(5, 10), (50, 40)]


def contrast_lightness(colour: str) -> float:
    return sum(weight * int(colour[i : i + 2], 16) for weight, i in ((0.299, 1), (0.587, 3), (0.114, 5)))


def test_neighbouring_series_differ_in_lightness_as_well_as_hue() -> None:
    lightness = [contrast_lightness(colour) for colour in SERIES]
    assert len(set(SERIES)) == len(SERIES)
    assert len({round(value) for value in lightness}) == len(SERIES)


def test_saved_files_keep_text_and_do_not_change_between_savings() -> None:
    def make() -> Figure:
        return heat_map(("price: $5$ & <b>", np.full(9, 0.5)))

    svg = save_bytes(make(), "svg").decode()
    assert "price: $5$ &amp; &lt;b&gt;" in svg
    assert svg == save_bytes(make(), "svg").decode()
    # TrueType (42), not the Type 3 outlines that some journals refuse.
    assert b"/Type3" not in save_bytes(make(), "pdf")


def test_decades_are_plain_text() -> None:
    assert [decade(value) for value in (1e-6, 0.001, 0.01, 1, 1000, 1e6, 0)] == [
        "10⁻⁶",
        "10⁻³",
        "0.01",
        "1",
        "1000",
        "10⁶",
        "0",
    ]


def test_rates_by_kind_call_greedy_answers_what_they_are() -> None:
    """They are exact (`byrote.report.analysis.groups`), whatever else was measured beside them."""
    criteria = (Criterion.GREEDY, Criterion.VERBATIM, Criterion.NEAR)
    entries = [GroupRate("kind", "person", Split.TARGET, one, 1, rate(1, 4)) for one in criteria]
    legend = rates_by_group(entries).axes[0].get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["greedy, exact, target", "word for word, target", "nearly, target"]
