"""Figures of activation grids: firing patterns, firing probabilities, the board."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import StepPatch

from gradpeel.datasets import Dataset
from gradpeel.designs import Design, Passive, TrapWeights
from gradpeel.paper.figures import board, firing_patterns, firing_probabilities
from gradpeel.paper.figures.runs import audited, exposed
from gradpeel.reporting.board import FIRES, GOING, GONE, _rgb


def test_patterns_are_the_grids_dense_rows_on_top(digits: Dataset) -> None:
    drawn = firing_patterns(digits, batch_size=30, neurons=80, seed=1)
    for axes, construction in zip(drawn.figure.axes, ("mirrored", "independent"), strict=True):
        design = TrapWeights(1.0, construction)  # type: ignore[arg-type]
        grid = exposed(digits, design, batch_size=30, neurons=80, seed=1).grid.numpy()
        fires = (np.asarray(axes.get_images()[0].get_array()) == _rgb(FIRES)).all(-1)
        np.testing.assert_array_equal(fires.sum(axis=1), -np.sort(-grid.sum(axis=1)))
        assert sorted(fires.sum(axis=0)) == sorted(grid.sum(axis=0))
        degrees = grid.sum(axis=1)
        sparse, silent = ((degrees > 0) & (degrees <= 3)).sum(), (degrees == 0).sum()
        numbers: Any = drawn.numbers[construction]
        assert (numbers["sparse"], numbers["silent"]) == (sparse, silent)
        assert numbers["on_all"] == (degrees == 30).sum()
        assert f"degree 1 to 3: {sparse} neurons" in axes.get_xlabel()
        assert axes.get_title() == f"{construction} weights"
        (mark,) = axes.lines
        above, below = np.asarray(mark.get_ydata())
        assert below - above == sparse
        assert (fires[round(above + 0.5) : round(below + 0.5)].sum(axis=1) <= 3).all()


def test_panels_without_sparse_rows_have_no_mark(digits: Dataset) -> None:
    loud = dataclasses.replace(digits, x_train=np.full_like(digits.x_train, 0.5))
    drawn = firing_patterns(loud, batch_size=30, neurons=40)
    assert all(not axes.lines for axes in drawn.figure.axes)


def test_histograms_hold_every_neuron_on_equal_axes(digits: Dataset, patients: Dataset) -> None:
    sets = [digits, patients, dataclasses.replace(digits, name="svhn")]
    drawn = firing_probabilities(iter(sets), batch_size=50, neurons=120, seed=4)
    assert [axes.get_title("left") for axes in drawn.figure.axes] == [
        "digits",
        "breast_cancer",
        "SVHN",
    ]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in drawn.figure.axes}) == 1
    data: Any = drawn.numbers["data"]
    designs: dict[str, Design] = {
        "passive": Passive("gaussian"),
        "mirrored": TrapWeights(1.0, "mirrored"),
    }
    for dataset, axes in zip(sets, drawn.figure.axes, strict=True):
        steps = {p.get_label(): p for p in axes.patches if isinstance(p, StepPatch)}
        for name, design in designs.items():
            grid = exposed(dataset, design, batch_size=50, neurons=120, seed=4).grid.numpy()
            degrees = grid.sum(axis=1)
            # In whole numbers, so that no edge of a bin falls to rounding: bins of 5 percent.
            bins = np.minimum(degrees * 20 // 50, 19)
            expected = np.bincount(bins, minlength=20)
            numbers = data[dataset.name][name]
            assert numbers["histogram"] == expected.tolist()
            np.testing.assert_array_equal(steps[name].get_data()[0], expected)
            assert sum(numbers["histogram"]) == 120
            assert numbers["deviation"] == pytest.approx((degrees / 50).std())
            assert numbers["silent"] == (degrees == 0).sum()
            middle = (degrees >= 20) & (degrees <= 30)
            assert numbers["share_from_0.4_to_0.6"] == pytest.approx(middle.mean())
            assert axes.get_ylim()[1] >= expected.max()
            texts = [text.get_text() for text in axes.texts]
            assert f"{(degrees / 50).std():.2f}" in texts


def test_notes_of_several_data_sets_are_read_after_the_data(digits: Dataset) -> None:
    notes: dict[str, str] = {}

    def load() -> Any:
        for name in ("mnist", "svhn"):
            notes[name] = f"{name} is small"
            yield dataclasses.replace(digits, name=name)

    drawn = firing_probabilities(load(), batch_size=20, neurons=20, notes=notes)
    assert drawn.caption.endswith("MNIST: mnist is small; SVHN: svhn is small.")


@pytest.mark.parametrize(("batch_size", "neurons"), [(40, 200), (20, 300)])
@pytest.mark.slow
def test_the_board_removes_what_peeling_removes(
    batch_size: int, neurons: int, digits: Dataset
) -> None:
    drawn = board(digits, batch_size=batch_size, neurons=neurons, seed=0)
    design = TrapWeights(1.0, "independent")
    found = audited(digits, design, batch_size=batch_size, neurons=neurons, seed=0)
    rounds = found.exposure.rounds.numpy()
    counts = np.bincount(rounds)[1:].tolist()
    assert len(counts) > 1
    assert drawn.numbers["removed_by_round"] == counts
    assert drawn.numbers["removed_by_round_on_the_grid"] == counts
    assert drawn.numbers["recovered"] == found.score.recovered == sum(counts)
    stalls = sum(counts) < batch_size
    assert (", then stalls" in drawn.caption) == stalls
    assert f"{sum(counts)} of {batch_size} in all" in drawn.caption
    assert "just as peeling the grid alone does" in drawn.caption
    shown: Any = drawn.numbers["rounds_shown"]
    assert (shown[0], shown[-1]) == (1, len(counts))
    assert len(shown) == min(3, len(counts))
    start, *panels = drawn.figure.axes
    assert start.get_title() == "start"
    for axes, number in zip(panels, shown, strict=True):
        assert axes.get_title() == f"round {number}: {counts[number - 1]} recovered"
        assert axes.get_xlabel() == f"{sum(counts[:number])} of {batch_size} recovered"
        picture = np.asarray(axes.get_images()[0].get_array())
        assert (picture == _rgb(GOING)).all((0, 2)).sum() == counts[number - 1]
        assert (picture == _rgb(GONE)).all((0, 2)).sum() == sum(counts[: number - 1])


def test_a_cascade_that_does_not_start_leaves_the_start(digits: Dataset) -> None:
    drawn = board(digits, batch_size=8, neurons=3)
    assert drawn.numbers["removed_by_round"] == []
    assert len(drawn.figure.axes) == 1
    assert "does not start: 0 of 8 in all" in drawn.caption


def test_a_decoder_that_differs_from_the_grid_is_told() -> None:
    from gradpeel.paper.figures.board import _compared

    assert _compared([3, 1], [3, 2]) == "; peeling the grid alone removes 3 and 2"
    assert _compared([3], []) == "; peeling the grid alone removes none"
