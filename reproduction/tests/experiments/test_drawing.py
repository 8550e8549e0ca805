"""Pictures of the trade-off: drawn from numbers alone, with the flagship as the strongest line."""

import json

import pytest

from reproduction.experiments import drawing
from reproduction.experiments.drawing import FLAGSHIP, draw_figure, redraw
from thrifty.errors import InvalidInputError

pytest.importorskip("matplotlib")


def line(*quality, measure="accuracy"):
    return [{"cost": float(cost), measure: one} for cost, one in enumerate(quality, 1)]


def numbers(*lines):
    return {
        "budgets": [1.0, 2.0],
        "forest": {"f0_accuracy": 0.9, "f0_cost": 5.0, "chosen": {name: line(0.7, 0.8) for name in lines}},
    }


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Axes of a drawn figure."""
    found = []

    def new_figure(*args, **options):
        figure, axes = original(*args, **options)
        found.extend(axes)
        return figure, axes

    original = drawing.new_figure
    monkeypatch.setattr(drawing, "new_figure", new_figure)

    def draw(given):
        draw_figure(given, tmp_path / "figure.png")
        return found

    return draw


@pytest.mark.slow
def test_the_flagship_is_first_in_the_legend_and_the_thickest_and_topmost_line_of_both_panels(drawn):
    for ax in drawn(numbers("GreedyMiser", "DynaMod-Gbrt, KL", FLAGSHIP)):
        flagship, rival, full = ax.get_lines()
        assert ax.get_legend().get_texts()[0].get_text() == FLAGSHIP
        assert flagship.get_linestyle() == "-"
        assert flagship.get_linewidth() > 2 * rival.get_linewidth()
        assert full.get_zorder() > flagship.get_zorder() > rival.get_zorder()
        assert rival.get_alpha() < 1.0


@pytest.mark.slow
def test_the_papers_methods_are_on_the_left_and_what_it_left_out_is_on_the_right(drawn):
    sides = drawn(numbers("GreedyMiser", "DynaMod-Gbrt, KL", FLAGSHIP, "a line of another experiment"))
    left, right = ([line.get_label() for line in ax.get_lines()[:-1]] for ax in sides)
    assert left == [FLAGSHIP, "GreedyMiser"]
    assert right == [FLAGSHIP, "DynaMod-Gbrt, KL", "a line of another experiment"]
    assert sides[0].get_ylim() == sides[1].get_ylim()
    assert sides[0].get_xlim() == sides[1].get_xlim()


@pytest.mark.slow
def test_without_a_line_of_the_paper_or_a_flagship_there_is_one_panel_with_full_colours(drawn):
    (ax,) = drawn(numbers("a line", "DynaMod-Lin"))
    assert all(line.get_alpha() is None for line in ax.get_lines())


@pytest.mark.slow
def test_a_ranking_is_drawn_by_average_precision_over_logarithmic_costs(drawn):
    panel = {"f0": {"cost": 9.0, "average_precision": 0.6}}
    panel["chosen"] = {"GreedyMiser": line(0.4, 0.5, measure="average_precision")}
    ax, _ = drawn({"places": 5, "MQ2008": panel})
    assert ax.get_xscale() == "symlog"
    assert ax.get_ylabel() == "AP@5 on test queries"
    assert list(ax.get_lines()[0].get_ydata()) == [0.4, 0.5]


@pytest.mark.slow
def test_a_picture_is_drawn_again_from_the_numbers_in_a_folder(tmp_path):
    (tmp_path / "some.json").write_text(json.dumps(numbers("GreedyMiser", FLAGSHIP)))
    assert redraw("some", tmp_path) == tmp_path / "some.png"
    assert (tmp_path / "some.png").stat().st_size > 10_000
    with pytest.raises(InvalidInputError, match=r"other\.json does not exist"):
        redraw("other", tmp_path)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="nothing can be drawn from it"):
        redraw("other", tmp_path)
