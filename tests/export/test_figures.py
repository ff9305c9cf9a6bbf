import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.text import Text
from PIL import Image

from evidial_bayes.export import canvas, figures


def boxes(figure, texts):
    """Extents of texts in pixels, after the figure has been laid out."""
    agg = FigureCanvasAgg(figure)
    agg.draw()
    renderer = agg.get_renderer()
    # An annotation's own extent would hold its leader line too.
    return [Text.get_window_extent(text, renderer) for text in texts], figure.bbox


def names_in_margin(figure):
    return [text for text in figure.axes[0].texts if "\n" in text.get_text() or " · " in text.get_text()]


def test_composition_of_every_source(shares, tmp_path):
    figure = figures.state_composition(shares, 0.95)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["north", "south"]
    bars = np.array([[bar.get_width() for bar in container] for container in axes.containers])
    np.testing.assert_allclose(bars.T, shares.mean("draw").values)
    assert "Share of cells in each evidence state" in figure.get_suptitle()
    with Image.open(figures.save(figure, tmp_path / "figure.png")) as image:
        assert image.format == "PNG"
        assert image.size[0] == canvas.WIDTH * canvas.DPI


def test_whiskers_are_the_intervals_of_the_boundaries(shares):
    axes = figures.state_composition(shares, 0.5).axes[0]
    lines = [c for c in axes.collections if all(path.vertices[0, 1] == path.vertices[1, 1] for path in c.get_paths())]
    first = np.array([[path.vertices[0, 0], path.vertices[1, 0]] for path in lines[0].get_paths()])
    absent = shares.sel(state="absent")
    np.testing.assert_allclose(first, np.quantile(absent.values, [0.25, 0.75], axis=0).T)


def test_every_figure_says_what_states_are_not(shares, table):
    for figure in (
        figures.state_composition(shares, 0.95),
        figures.ucr(table, "plurality", 0.95),
        figures.hit_caliber_coverage(table, 0.95),
    ):
        assert "never a person's health" in figure.legends[0].get_title().get_text()


def test_state_colours_grow_darker_and_never_repeat():
    for n_states in range(2, 9):
        colours = canvas.state_colours(n_states)
        assert len(set(colours)) == n_states
        light = [canvas.luminance(colour) for colour in colours]
        steps = -np.diff(light)
        # Neighbours that are close in grey are told apart by their hatching; none runs the other way by much.
        assert (steps > -0.05).all()
    assert (-np.diff([canvas.luminance(c) for c in canvas.state_colours(5)]) > 0.03).all()


def test_ucr_has_a_row_per_system_in_the_tables_order(table):
    figure = figures.ucr(table, "plurality", 0.95)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["m1 · direct", "m1 · careful", "[red]m2 · direct"]
    dots = figure.axes[0].lines[1].get_xdata()
    np.testing.assert_array_equal(dots, table.loc[table["metric"] == "ucr", "estimate"])


def test_undefined_systems_are_named_not_drawn(crowded_table):
    for figure in (
        figures.ucr(crowded_table, "plurality", 0.95),
        figures.hit_caliber_coverage(crowded_table, 0.95),
    ):
        note = figure.legends[0].get_title().get_text().replace("\n", " ")
        assert "Undefined, so not drawn: anthropic/claude-opus-large-20260101 · direct prompting." in note
    assert len(figures.ucr(crowded_table, "plurality", 0.95).axes[0].get_yticklabels()) == 11
    assert len(names_in_margin(figures.hit_caliber_coverage(crowded_table, 0.95))) == 11


def test_long_names_stay_inside_and_apart(crowded_table):
    forest = figures.ucr(crowded_table, "plurality", 0.95)
    scatter = figures.hit_caliber_coverage(crowded_table, 0.95)
    for figure, texts in (
        (forest, forest.axes[0].get_yticklabels()),
        (scatter, names_in_margin(scatter)),
    ):
        extents, page = boxes(figure, texts)
        for i, box in enumerate(extents):
            assert page.x0 <= box.x0
            assert box.x1 <= page.x1
            assert not any(box.overlaps(other) for other in extents[i + 1 :])


def test_circle_area_is_coverage(table):
    figure = figures.hit_caliber_coverage(table, 0.95)
    circles = [c for c in figure.axes[0].collections if isinstance(c, PathCollection)]
    coverage = table.loc[table["metric"] == "coverage", "estimate"].to_numpy()
    areas = np.array([circle.get_sizes()[0] for circle in circles])
    np.testing.assert_allclose(areas / areas[0], coverage / coverage[0])


def test_one_system(table, tmp_path):
    figures.save(figures.ucr(table.head(4), "plurality", 0.95), tmp_path / "ucr.png")
    figures.save(figures.hit_caliber_coverage(table.head(4), 0.95), tmp_path / "scatter.png")


def test_nothing_defined(table, tmp_path):
    table.loc[table["metric"] != "accuracy", ["estimate", "lower", "upper"]] = np.nan
    figures.save(figures.ucr(table, "plurality", 0.95), tmp_path / "ucr.png")
    figures.save(figures.hit_caliber_coverage(table, 0.95), tmp_path / "scatter.png")


def test_axis_of_almost_equal_systems_can_be_read(table):
    coverage = table["metric"] == "coverage"
    table.loc[coverage, ["estimate", "lower", "upper"]] = [[0.998, 0.994, 1.0], [1, 1, 1], [1, 1, 1]]
    figure = figures.hit_caliber_coverage(table, 0.95)
    boxes(figure, [])
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    assert high - low >= canvas.SPAN
    labels = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    shown = [label.get_text() for tick, label in labels if low <= tick <= high]
    assert len(set(shown)) == len(shown)
    assert {"92%", "100%"} <= set(shown)
    assert "102%" not in shown


@pytest.mark.parametrize("values", [[0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [0.01, 0.03], [0.2, 0.9], [np.nan]])
def test_limits_hold_the_values_and_end_with_the_shares(values):
    low, high = canvas.limits(np.array(values))
    assert high - low >= canvas.SPAN
    assert -canvas.AIR <= low
    assert high <= 1 + canvas.AIR
    assert all(low <= value <= high for value in values if np.isfinite(value))


def test_nothing_global_is_touched(shares, table, tmp_path):
    before = dict(matplotlib.rcParams)
    figures.save(figures.state_composition(shares, 0.95), tmp_path / "a.png")
    figures.save(figures.ucr(table, "plurality", 0.95), tmp_path / "b.png")
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in vars(figures)


def test_interrupted_figure_leaves_no_file(table, tmp_path, monkeypatch):
    def half(self, file):
        with open(file, "wb") as out:
            out.write(b"\x89PNG")
        raise KeyboardInterrupt

    monkeypatch.setattr(FigureCanvasAgg, "print_png", half)
    with pytest.raises(KeyboardInterrupt):
        figures.save(figures.ucr(table, "plurality", 0.95), tmp_path / "ucr.png")
    assert not list(tmp_path.iterdir())


def test_labels_keep_order_and_distance():
    values = np.array([0.5, 0.5, 0.9, 0.1])
    heights = canvas.spread(values, (0.0, 1.0), gap=0.2)
    np.testing.assert_allclose(heights, [0.5, 0.7, 0.9, 0.1])
    crowded = canvas.spread(np.full(5, 0.95), (0.0, 1.0), gap=0.2)
    np.testing.assert_allclose(np.sort(crowded), [0.2, 0.4, 0.6, 0.8, 1.0])
