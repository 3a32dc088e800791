from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradpeel import Audit
from gradpeel.reporting import activation_grid_rounds
from gradpeel.reporting.board import FIRES, GOING, GONE, PANELS, PIXELS, SILENT, _rgb, _shrink
from gradpeel.reporting.matching import rounds_of


def pictures(found: Audit) -> list[NDArray[np.float64]]:
    figure = activation_grid_rounds(found)
    return [np.asarray(axes.get_images()[0].get_array()) for axes in figure.axes]


def test_the_start_is_the_grid_dense_rows_on_top_atypical_columns_right(part: Audit) -> None:
    fires = (pictures(part)[0] == _rgb(FIRES)).all(-1)
    grid = part.exposure.grid.numpy()
    assert fires.shape == grid.shape
    densities = fires.sum(1)
    assert (np.diff(densities) <= 0).all()
    assert sorted(densities) == sorted(grid.sum(1))
    rarity = 1 / np.maximum(fires.mean(1), 1e-9)
    assert (np.diff(fires.T @ rarity) >= -1e-9).all()
    assert ((pictures(part)[0] == _rgb(SILENT)).all(-1) == ~fires).all()


def test_columns_of_removed_samples_are_blank(part: Audit) -> None:
    rounds = rounds_of(part)[np.argsort(part.exposure.atypicality.numpy(), kind="stable")]
    for number, picture in enumerate(pictures(part)):
        falls = (picture == _rgb(GOING)).all((0, 2))
        gone = (picture == _rgb(GONE)).all((0, 2))
        np.testing.assert_array_equal(falls, (rounds == number) & (number > 0))
        np.testing.assert_array_equal(gone, (rounds > 0) & (rounds < number))


def test_titles_count_and_dots_mark_the_neurons_that_isolate(part: Audit) -> None:
    figure = activation_grid_rounds(part)
    assert 1 < len(figure.axes) <= PANELS
    assert figure.axes[0].get_title() == "start: 40 samples"
    assert not figure.axes[0].lines
    columns = np.argsort(part.exposure.atypicality.numpy(), kind="stable")
    rows = np.argsort(-part.exposure.degrees.numpy(), kind="stable")
    fallen = [round_ for round_ in part.recovery.trace if round_.certified]
    for axes, round_ in zip(figure.axes[1:], fallen, strict=True):
        some = "1 sample" if round_.certified == 1 else f"{round_.certified} samples"
        assert axes.get_title() == f"round {round_.number}: {some} recovered"
        dots = np.asarray(axes.lines[0].get_xydata()).astype(int)
        marked = {(int(columns[x]), int(rows[y])) for x, y in dots}
        expected = {
            (int(part.score.matches[place]), neuron)
            for place in np.flatnonzero(part.recovery.rounds.numpy() == round_.number)
            for neuron in part.recovery.isolating[place]
        }
        assert marked == expected


def test_copies_fall_together(doubled: Audit) -> None:
    rounds = rounds_of(doubled)[np.argsort(doubled.exposure.atypicality.numpy(), kind="stable")]
    *_, last = pictures(doubled)
    gone = ((last == _rgb(GONE)) | (last == _rgb(GOING))).all((0, 2))
    assert gone.all()
    falls = (last == _rgb(GOING)).all((0, 2))
    np.testing.assert_array_equal(falls, rounds == rounds.max())


def test_nothing_recovered_leaves_the_start(nothing: Audit) -> None:
    assert len(pictures(nothing)) == 1


def test_a_long_cascade_shows_its_first_and_last_round(records: Audit) -> None:
    last = int(records.recovery.rounds.max())
    titles = [axes.get_title() for axes in activation_grid_rounds(records).axes]
    assert titles[1].startswith("round 1: ")
    assert titles[-1].startswith(f"round {last}: ")


def test_shrinking_averages_and_drops_nothing() -> None:
    picture = np.zeros((3 * PIXELS + 7, 5, 3))
    picture[::100, 2] = 1.0
    small = _shrink(picture, 0)
    assert small.shape == (PIXELS, 5, 3)
    assert (small[:, 2, 0] > 0).sum() == len(picture[::100])
    wide = _shrink(np.ones((5, PIXELS + 1, 3)), 1)
    assert wide.shape == (5, PIXELS, 3)
    np.testing.assert_array_equal(wide, 1)
