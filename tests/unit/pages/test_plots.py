import struct
from typing import Any

import numpy as np
import pytest

from groupwise.evaluation.run_data import load_run
from groupwise.pages.lines import moving_mean, spread
from groupwise.pages.plots import PANELS, draw, panel_svg, png, save_png, shown_panels
from groupwise.pages.run import page


def test_the_picture_is_about_1600_pixels_wide(finished_run: Any) -> None:
    save_png(load_run(finished_run.path), finished_run.path / "report.png")
    header = (finished_run.path / "report.png").read_bytes()[:24]
    assert header[:4] == b"\x89PNG"
    assert struct.unpack(">I", header[16:20])[0] == pytest.approx(1600, abs=20)


def test_every_line_has_its_name_and_its_numbers(finished_run: Any) -> None:
    figure = draw(load_run(finished_run.path))
    learning = next(axes for axes in figure.axes if "held-out\npass@1" in names(axes))
    assert names(learning) == ["training\nreward", "held-out\npass@1"]
    drawn = [list(line.get_ydata()) for line in learning.lines]
    assert [0.0, 0.25, 0.5, 0.75] in drawn  # the reward of each step
    assert [0.5, 0.5] in drawn  # pass@1 of both dev evaluations
    assert any(names(axes) == ["wrong", "correct"] for axes in figure.axes)


def test_families_have_a_panel_where_evaluations_tell_them_apart(fake_run: Any) -> None:
    for step, (sums, games) in ((0, (0.25, 0.5)), (4, (0.75, 0.5))):
        families = {"sums": [sums, 0.0, 1.0], "games": [games, 0.0, 1.0]}
        fake_run.directory.metrics.append({"kind": "dev", "step": step, "pass_at_1": [0.5, 0, 1], "families": families})
    run = load_run(fake_run.path)
    axes = next(axes for axes in draw(run).axes if "sums" in names(axes))
    assert names(axes) == ["games", "sums"]
    drawn = [list(line.get_ydata()) for line in axes.lines]
    assert [0.5, 0.5] in drawn
    assert [0.25, 0.75] in drawn
    assert "Family by family" in page(run)


def test_a_run_of_one_family_has_no_such_panel(finished_run: Any) -> None:
    assert "families" not in shown_panels(load_run(finished_run.path))


def test_a_negative_reward_is_in_sight(fake_run: Any) -> None:
    fake_run.directory.metrics.append({"step": 0, "reward": -0.5})
    fake_run.directory.metrics.append({"step": 1, "reward": 1.5})
    axes = next(axes for axes in draw(load_run(fake_run.path)).axes if "training\nreward" in names(axes))
    bottom, top = axes.get_ylim()
    assert bottom < -0.5
    assert top > 1.5


def names(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_a_run_without_steps_says_so(fake_run: Any) -> None:
    figure = draw(load_run(fake_run.path))
    assert {name for axes in figure.axes for name in names(axes)} == {"not measured"}
    assert png(load_run(fake_run.path))


@pytest.mark.parametrize("name", PANELS)
def test_panels_repeat_byte_for_byte(finished_run: Any, name: str) -> None:
    run = load_run(finished_run.path)
    assert panel_svg(run, name) == panel_svg(run, name)
    assert panel_svg(run, name) != panel_svg(run, name, dark=True)


def test_moving_mean_leaves_gaps_out() -> None:
    gap = np.nan
    np.testing.assert_allclose(moving_mean(np.array([1.0, gap, 3.0, gap, gap, gap]), 3), [1, 2, 3, 3, gap, gap])
    np.testing.assert_allclose(moving_mean(np.array([1.0, gap, 5.0]), 1), [1, gap, 5])


@pytest.mark.parametrize("heights", [[0.5, 0.5, 0.5], [0.0, 0.01, 1.0], [0.99, 1.0, 0.2], [0.0, 0.0, 0.0, 0.0, 0.0]])
def test_names_are_spread_in_order_and_in_sight(heights: list[float]) -> None:
    places = spread(heights, gap=0.1)
    order = np.argsort(heights, kind="stable")
    assert all(np.diff(np.array(places)[order]) >= 0.1 - 1e-6)
    assert min(places) >= -1e-6
    assert max(places) <= 1 + 1e-6
