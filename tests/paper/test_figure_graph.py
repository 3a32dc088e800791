from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Circle, Rectangle

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.designs import Passive
from gradpeel.errors import InputError
from gradpeel.exposure import peel_grid
from gradpeel.paper.figures import graph as graphs
from gradpeel.paper.figures import peeling_graph
from gradpeel.paper.figures.frame import Drawn
from gradpeel.paper.figures.graph import PeelingGraph, small_cascade
from gradpeel.paper.figures.graph_panel import COLOURS
from gradpeel.paper.figures.runs import audited
from gradpeel.scoring import Outcome


@pytest.fixture(scope="module")
def small(digits: Dataset) -> Audit:
    return small_cascade(digits, batch_size=5, neurons=7, rounds=3, seed=0)


@pytest.fixture(scope="module")
def drawn(digits: Dataset) -> Drawn:
    return peeling_graph(digits)


def test_the_run_is_small_and_its_cascade_is_whole(small: Audit) -> None:
    grid = small.exposure.grid.numpy()
    assert grid.shape == (7, 5)
    assert grid.any(axis=1).all()
    assert grid.sum() <= 15
    assert small.score.recovered == 5
    assert small.score.false_certificates == 0
    assert small.recovery.cascade_length == small.exposure.rounds_count == 3


def test_an_earlier_seed_would_not_do(digits: Dataset, small: Audit) -> None:
    again = small_cascade(digits, batch_size=5, neurons=7, rounds=3, seed=small.seed)
    assert again.seed == small.seed
    later = small_cascade(digits, batch_size=5, neurons=7, rounds=3, seed=small.seed + 1)
    assert later.seed > small.seed


def test_edges_are_read_when_they_are_the_last_of_their_neuron(small: Audit) -> None:
    graph = PeelingGraph.of(small)
    grid = small.exposure.grid.numpy()
    rounds = peel_grid(grid).numpy()
    np.testing.assert_array_equal(graph.grid, grid)
    np.testing.assert_array_equal(graph.rounds, rounds)
    for neuron, sample in np.ndindex(*grid.shape):
        others = [rounds[i] for i in range(5) if grid[neuron, i] and i != sample]
        last = grid[neuron, sample] and all(other < rounds[sample] for other in others)
        assert graph.reads[neuron, sample] == last
    assert graph.read_rounds.max() == 3
    # What the decoder says of itself is among it.
    for place, neurons in enumerate(small.recovery.isolating):
        assert graph.reads[list(neurons), int(small.score.matches[place])].all()


def test_edges_of_samples_that_never_fall_are_not_read(digits: Dataset) -> None:
    found = audited(digits, Passive("gaussian"), batch_size=40, neurons=200, seed=0)
    graph = PeelingGraph.of(found)
    stuck = graph.rounds == 0
    assert 0 < stuck.sum() < 40
    assert not graph.reads[:, stuck].any()
    assert (graph.reads.sum(axis=1) <= 1).all()
    assert (graph.read_rounds[graph.grid[:, stuck].sum(axis=1) > 1] == 0).all()
    assert (graph.reads.any(axis=0) == ~stuck).all()


def test_a_sample_that_the_decoder_misses_is_not_read(small: Audit) -> None:
    """Although the grid would give it away."""
    missed = int(small.score.matches[-1])
    matches = small.score.matches.clone()
    matches[-1] = -1
    outcomes = list(small.score.outcomes)
    outcomes[missed] = Outcome.MISSED
    score = dataclasses.replace(small.score, matches=matches, outcomes=tuple(outcomes))
    graph = PeelingGraph.of(dataclasses.replace(small, score=score))
    assert graph.rounds[missed] == 0
    assert not graph.reads[:, missed].any()


def test_the_cascade_runs_downwards(drawn: Drawn) -> None:
    rounds: Any = drawn.numbers["rounds"]
    edges: Any = drawn.numbers["read_edges"]
    for axes in (axes for axes in drawn.figure.axes if axes.lines):
        boxes = [p.get_y() for p in axes.patches if isinstance(p, Rectangle)]
        fallen = [rounds[sample] for neuron, sample in sorted(edges, key=lambda e: -boxes[e[0]])]
        assert fallen == sorted(fallen)
        unread = set(range(7)) - {neuron for neuron, _ in edges}
        assert all(boxes[n] < min(boxes[neuron] for neuron, _ in edges) for n in unread)


def test_both_panels_draw_every_edge_of_the_grid_and_no_other(drawn: Drawn) -> None:
    grid: Any = np.array(drawn.numbers["grid"], dtype=bool)
    reads = {tuple(edge) for edge in drawn.numbers["read_edges"]}  # type: ignore[attr-defined]
    rounds: Any = drawn.numbers["rounds"]
    gradient, code = (axes for axes in drawn.figure.axes if axes.lines)
    for axes, part, check in ((gradient, "x", "g"), (code, "m", "t")):
        lines = {str(line.get_gid()): line for line in axes.lines}
        assert len(lines) == len(axes.lines)
        edges = np.argwhere(grid).tolist()
        assert set(lines) == {f"{part}{sample + 1}-{check}{neuron + 1}" for neuron, sample in edges}
        boxes = [p for p in axes.patches if isinstance(p, Rectangle)]
        assert len(boxes) == 7
        for neuron, sample in edges:
            line = lines[f"{part}{sample + 1}-{check}{neuron + 1}"]
            is_read = (neuron, sample) in reads
            assert (line.get_linestyle() == "-") == is_read
            assert line.get_color() == COLOURS[rounds[sample] - 1]
            # It ends in the middle of its neuron's box, and all boxes stand in their own row.
            y = np.asarray(line.get_ydata())[1]
            assert y == pytest.approx(boxes[neuron].get_y() + boxes[neuron].get_height() / 2)


def test_equations_name_the_samples_that_fire_a_neuron(drawn: Drawn) -> None:
    grid: Any = np.array(drawn.numbers["grid"], dtype=bool)
    gradient, code = (axes for axes in drawn.figure.axes if axes.lines)
    for axes, part, joined in ((gradient, "x", " + "), (code, "m", " ⊕ ")):
        texts = [text.get_text() for text in axes.texts]
        for row in grid:
            names = [f"{part}{'₁₂₃₄₅'[sample]}" for sample in np.flatnonzero(row)]
            assert joined.join(names) in texts
        assert sum(text.startswith("round 1: ") for text in texts) >= 1
        assert texts.count("round 3") == drawn.numbers["removed_by_round"][2]  # type: ignore[index]


def test_pictures_stand_at_the_ends_of_their_edges(drawn: Drawn, digits: Dataset) -> None:
    gradient, *_ = (axes for axes in drawn.figure.axes if axes.lines)
    pictures = [axes for axes in drawn.figure.axes if axes.get_images()]
    assert len(pictures) == 5
    for sample, axes in enumerate(pictures):
        picture = np.asarray(axes.get_images()[0].get_array())
        np.testing.assert_array_equal(picture, digits.x_train[sample])
        starts = {
            tuple(np.asarray(line.get_xydata())[0])
            for line in gradient.lines
            if str(line.get_gid()).startswith(f"x{sample + 1}-")
        }
        (start,) = starts
        middle = drawn.figure.transFigure.inverted().transform(gradient.transData.transform(start))
        box = axes.get_position()
        assert middle == pytest.approx([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2], abs=1e-6)


def test_samples_that_are_no_pictures_are_circles(digits: Dataset) -> None:
    # With two classes, as patients have, so small a network proves nothing.
    rows = dataclasses.replace(
        digits,
        x_train=digits.x_train.reshape(len(digits.x_train), -1),
        x_test=digits.x_test.reshape(len(digits.x_test), -1),
    )
    figure = peeling_graph(rows, batch_size=5, neurons=7).figure
    panels = [axes for axes in figure.axes if axes.lines]
    assert all(sum(isinstance(p, Circle) for p in axes.patches) == 5 for axes in panels)
    assert not any(axes.get_images() for axes in figure.axes)


def test_data_without_a_cascade_is_refused(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "TRIES", 20)
    same = dataclasses.replace(digits, x_train=np.full_like(digits.x_train, 0.5))
    with pytest.raises(InputError, match="none of 20 networks of 7 neurons peels 5 samples in 3"):
        peeling_graph(same)
