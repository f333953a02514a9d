"""Names in a plot: none over another where there is room, all inside, near their marks."""

from __future__ import annotations

import math

import pytest
from matplotlib.text import Text

from evalkit.report.plots.labels import Box, label_points
from evalkit.report.plots.style import new_figure


def boxes(axes):
    axes.figure.draw_without_rendering()  # which tells annotations where they stand
    return [Box(*Text.get_window_extent(note).extents) for note in axes.texts]


def test_overlap_and_distance_by_hand():
    box = Box(0, 0, 4, 2)
    assert box.overlap(Box(3, 1, 9, 9)) == 1
    assert box.overlap(Box(4, 0, 5, 5)) == box.overlap(Box(9, 9, 10, 10)) == 0
    assert box.distance(2, 1) == 0
    assert box.distance(7, 6) == 5


@pytest.mark.parametrize("count", [1, 3, 8])
def test_points_in_one_place_are_named_apart(count):
    axes = new_figure(6, 4).add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    points = [(f"an arm called {i}", 0.5, 0.9) for i in range(count)]
    label_points(axes.figure, axes, points, [((0, 0.9), (1, 0.9)), ((0.5, 0.5), (0.5, 1.0))])
    placed, (x, y) = boxes(axes), axes.transData.transform((0.5, 0.9))
    for i, one in enumerate(placed):
        assert sum(one.overlap(other) for other in placed) == pytest.approx(one.overlap(one)), i
        assert not one.left < x < one.right or not one.bottom < y < one.top
    frame = Box(*axes.get_window_extent().extents)
    assert all(one.overlap(frame) == pytest.approx(one.overlap(one)) for one in placed)
    near = min(one.distance(x, y) for one in placed)
    assert near < 16 * axes.figure.dpi / 72


def test_a_lonely_point_is_named_beside_it_without_a_line():
    axes = new_figure(6, 4).add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    label_points(axes.figure, axes, [("left", 0.2, 0.5), ("right", 0.8, 0.5)])
    for note in axes.texts:
        x, y = note.get_position()
        assert x > 0
        assert math.isclose(y, 0, abs_tol=1e-9)
        assert not note.arrow_patch.get_visible()
