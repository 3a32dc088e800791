from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from torch import nn

from gradpeel.errors import InputError, ModelRefusedError
from gradpeel.exposure import Exposure, copies_of, ever_fired, exposure, grid_of, peel_grid
from gradpeel.target import split

Grid = NDArray[np.bool_]

# Sparse grids cascade, dense ones do not: draw both kinds.
grids = hnp.array_shapes(min_dims=2, max_dims=2, max_side=14).flatmap(
    lambda shape: st.one_of(
        hnp.arrays(np.bool_, shape),
        hnp.arrays(np.int64, shape, elements=st.integers(0, 5)).map(lambda drawn: drawn == 0),
    )
)


def peel_slowly(grid: Grid) -> list[int]:
    """The paper's loop in words: find the rows with one mark, delete their columns, repeat."""
    rounds = [0] * grid.shape[1]
    left = [{int(i) for i in np.flatnonzero(row)} for row in grid]
    current = 0
    while fallen := {next(iter(samples)) for samples in left if len(samples) == 1}:
        current += 1
        for sample in fallen:
            rounds[sample] = current
        left = [samples - fallen for samples in left]
    return rounds


@settings(deadline=None, max_examples=300)
@given(grid=grids)
def test_peeling_equals_the_slow_loop(grid: Grid) -> None:
    assert peel_grid(grid).tolist() == peel_slowly(grid)


@settings(deadline=None, max_examples=100)
@given(grid=grids, data=st.data())
def test_permuting_samples_permutes_rounds(grid: Grid, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(grid.shape[1])))
    assert torch.equal(peel_grid(grid[:, order]), peel_grid(grid)[order])


@settings(deadline=None, max_examples=100)
@given(grid=grids, data=st.data())
def test_permuting_or_repeating_neurons_changes_nothing(grid: Grid, data: st.DataObject) -> None:
    order = data.draw(st.permutations([*range(grid.shape[0])] * 2))
    assert torch.equal(peel_grid(grid[order]), peel_grid(grid))


@settings(deadline=None, max_examples=100)
@given(grid=grids)
def test_the_grid_is_left_alone_whatever_its_layout(grid: Grid) -> None:
    before = grid.copy()
    expected = peel_grid(grid)
    assert torch.equal(peel_grid(np.asfortranarray(grid)), expected)
    assert torch.equal(peel_grid(torch.from_numpy(grid)), expected)
    assert torch.equal(peel_grid(torch.from_numpy(grid.T.copy()).T), expected)
    assert np.array_equal(grid, before)


def test_a_chain_falls_one_sample_a_round() -> None:
    grid = np.eye(300, dtype=bool) | np.eye(300, k=-1, dtype=bool)
    assert peel_grid(grid).tolist() == list(range(1, 301))


def test_sums_of_indices_stay_exact_in_large_batches() -> None:
    # The last row's indices sum to 18 million, beyond the integers that float32 holds.
    batch, chosen = 2**17, 140
    grid = np.zeros((chosen, batch), dtype=bool)
    grid[:-1, -chosen:-1] = np.eye(chosen - 1, dtype=bool)
    grid[-1, -chosen:] = True
    rounds = peel_grid(grid)
    assert rounds[-chosen:].tolist() == [1] * (chosen - 1) + [2]
    assert not rounds[:-chosen].any()


def test_real_size_equals_the_slow_loop() -> None:
    grid = np.random.default_rng(0).random((1000, 256)) < 0.012
    assert peel_grid(grid).tolist() == peel_slowly(grid)
    assert int(peel_grid(grid).max()) > 2


def test_properties_by_hand() -> None:
    #        samples: 0  1  2  3
    rows = [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 1],
        [0, 0, 0, 0],
        [1, 0, 0, 0],
    ]
    found = Exposure.of(torch.tensor(rows, dtype=torch.bool))
    assert found.rounds.tolist() == [1, 2, 0, 0]
    assert found.rounds.dtype == torch.int64
    assert found.degrees.tolist() == [1, 2, 4, 0, 1]
    assert found.firing_probabilities.tolist() == [0.25, 0.5, 1.0, 0.0, 0.25]
    assert found.atypicality.tolist() == [4 + 2 + 1 + 4, 2 + 1, 1, 1]
    assert found.singletons.tolist() == [True, False, False, False, True]
    assert found.isolated.tolist() == [True, False, False, False]
    assert found.reached.tolist() == [True, True, False, False]
    assert found.peeling_bound == 0.5
    assert found.rounds_count == 2
    assert found.degree_histogram.tolist() == [1, 2, 1, 0, 1]
    assert repr(found) == "Exposure(neurons=5, batch=4, reached=2, rounds_count=2)"


@settings(deadline=None, max_examples=60)
@given(grid=grids)
def test_isolated_samples_are_those_of_singletons(grid: Grid) -> None:
    found = Exposure.of(torch.from_numpy(grid))
    expected = found.grid[found.singletons].any(dim=0)
    assert torch.equal(found.isolated, expected)
    assert int(found.degree_histogram.sum()) == grid.shape[0]
    assert bool(found.atypicality.isfinite().all())


@st.composite
def grids_with_copies(draw: st.DrawFn) -> tuple[Grid, list[int], list[int]]:
    """A grid of distinct samples, which of them each sample of a batch is, and the first copies."""
    grid = draw(grids)
    chosen = draw(st.lists(st.integers(0, grid.shape[1] - 1), min_size=1, max_size=20))
    return grid, chosen, [chosen.index(sample) for sample in chosen]


@settings(deadline=None, max_examples=200)
@given(drawn=grids_with_copies())
@pytest.mark.slow
def test_copies_are_peeled_as_one(drawn: tuple[Grid, list[int], list[int]]) -> None:
    grid, chosen, firsts = drawn
    kept = sorted(set(chosen))
    expected = dict(zip(kept, peel_slowly(grid[:, kept]), strict=True))
    found = Exposure.of(torch.from_numpy(grid[:, chosen]), torch.tensor(firsts))
    assert found.rounds.tolist() == [expected[sample] for sample in chosen]
    assert torch.equal(found.isolated, found.grid[found.singletons].any(dim=0))
    assert found.distinct.tolist() == sorted(set(firsts))
    assert found.multiplicities.tolist() == [chosen.count(sample) for sample in chosen]
    # What is about the batch as it is does not ask who is a copy.
    plain = Exposure.of(found.grid)
    assert torch.equal(found.degrees, plain.degrees)
    assert torch.equal(found.degree_histogram, plain.degree_histogram)
    assert torch.equal(found.atypicality, plain.atypicality)


def test_equal_columns_of_a_bare_grid_are_different_samples() -> None:
    grid = torch.tensor([[1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    assert Exposure.of(grid).rounds.tolist() == [0, 0, 1]
    assert Exposure.of(grid).copies.tolist() == [0, 1, 2]
    merged = Exposure.of(grid, torch.tensor([0, 0, 2]))
    assert merged.rounds.tolist() == [1, 1, 1]
    assert merged.singletons.tolist() == [True, True]
    assert merged.degrees.tolist() == [2, 1]
    assert merged.peeling_bound == 1.0


@settings(deadline=None, max_examples=100)
@given(
    rows=hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2), elements=st.integers(0, 1)),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
)
def test_copies_are_rows_with_equal_entries(rows: NDArray[np.int64], dtype: torch.dtype) -> None:
    listed = rows.tolist()
    expected = [listed.index(row) for row in listed]
    drawn = torch.from_numpy(rows).to(dtype)
    assert copies_of(drawn).tolist() == expected
    assert copies_of(drawn.T.contiguous().T).tolist() == expected  # another layout
    assert copies_of(drawn).dtype == torch.int64


def test_zero_and_minus_zero_are_equal_the_next_number_is_not() -> None:
    almost = torch.nextafter(torch.ones(()), torch.zeros(()))
    assert copies_of(torch.tensor([[0.0, 1.0], [-0.0, 1.0], [0.0, almost]])).tolist() == [0, 0, 2]


def _first_linear(model: nn.Sequential) -> nn.Linear:
    return next(module for module in model if isinstance(module, nn.Linear))


def _model(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Flatten(), nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3))
    return nn.Sequential(*layers).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exposure_sees_what_the_model_does(dtype: torch.dtype) -> None:
    model = _model(dtype)
    x = torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = exposure(model, x)
    assert found.grid.shape == (40, 9)
    assert torch.equal(found.grid, (model[:2](x.to(dtype)) > 0).T)
    assert torch.equal(found.rounds, peel_grid(found.grid))
    assert found.copies.tolist() == list(range(9))
    assert found.grid.requires_grad is False


def test_copies_do_not_hide_each_other() -> None:
    model = _model()
    x = torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    once = exposure(model, x)
    assert bool(once.isolated.any())
    assert not bool(once.isolated.all())
    chosen = [3, 0, 1, 2, 0, 3, 4, 5, 6, 7, 8, 3]
    found = exposure(model, x[chosen])
    assert found.copies.tolist() == [0, 1, 2, 3, 1, 0, 6, 7, 8, 9, 10, 0]
    assert torch.equal(found.grid, once.grid[:, chosen])
    assert torch.equal(found.rounds, once.rounds[chosen])
    assert torch.equal(found.singletons, once.singletons)


def test_samples_are_copies_if_the_target_sees_the_same() -> None:
    # float32 has no digits for the difference.
    x = torch.rand(4, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.cat([x, x * (1 + 1e-12)])
    assert exposure(_model(), x).copies.tolist() == list(range(8))
    assert exposure(_model(torch.float32), x).copies.tolist() == [0, 1, 2, 3] * 2


def test_isolated_samples_are_the_gradient_ratios_of_singletons() -> None:
    model = _model()
    x = torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = exposure(model, x)
    loss = nn.functional.cross_entropy(model(x), torch.arange(9) % 3)
    layer = _first_linear(model)
    weight, bias = torch.autograd.grad(loss, [layer.weight, layer.bias])
    candidates = weight[found.singletons] / bias[found.singletons, None]
    distances = torch.cdist(candidates, x.flatten(1))
    assert int(found.singletons.sum()) > 0
    assert float(distances.min(dim=1).values.max()) < 1e-9
    nearest = set(distances.argmin(dim=1).tolist())
    assert nearest == set(found.isolated.nonzero().flatten().tolist())


def test_grid_of_a_threshold_is_silent() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    with torch.no_grad():
        _first_linear(model).weight.fill_(1.0)
        _first_linear(model).bias.fill_(-1.0)
    rows = torch.tensor([[0.0], [1.0], [2.0]])
    assert grid_of(split(model), rows).tolist() == [[False, False, True]]


GRID = torch.tensor([[True, False, True], [True, True, True]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: peel_grid(np.ones(3, dtype=bool)),
            "grid of shape (3,) and dtype bool: expected bool (neurons, batch)",
        ),
        (
            lambda: peel_grid(np.ones((3, 0), dtype=bool)),
            "grid of shape (3, 0) and dtype bool: expected bool (neurons, batch)",
        ),
        (
            lambda: peel_grid(torch.ones(2, 3)),
            "grid of shape (2, 3) and dtype float32: expected bool (neurons, batch)",
        ),
        (
            lambda: Exposure.of(GRID, torch.tensor([0, 1])),
            "copies of shape (2,) and dtype torch.int64: expected int64 (3,), one index per sample",
        ),
        (
            lambda: Exposure.of(GRID, torch.tensor([0.0, 1.0, 0.0])),
            (
                "copies of shape (3,) and dtype torch.float32: expected int64 (3,), "
                "one index per sample"
            ),
        ),
        *(
            (
                lambda copies=copies: Exposure.of(GRID, torch.tensor(copies)),
                "copies: expected for each sample the index of the first identical one",
            )
            for copies in ([2, 1, 2], [0, 1, -1], [0, 1, 3], [0, 0, 1])
        ),
        (
            lambda: Exposure.of(GRID, torch.tensor([0, 0, 2])),
            "copies: identical samples must fire the same neurons, but some do not",
        ),
        (
            lambda: exposure(_model(), torch.zeros(0, 12)),
            "x of shape (0, 12): expected (batch, *sample_shape), not empty",
        ),
        (
            lambda: exposure(_model(), torch.zeros(12)),
            "x of shape (12,): expected (batch, *sample_shape), not empty",
        ),
        (
            lambda: exposure(_model(), torch.full((2, 12), torch.nan)),
            "x: 24 of 24 values are not finite",
        ),
        (
            lambda: exposure(_model().float(), 1e300 * torch.ones(2, 12).double()),
            "x: 24 of 24 values are not finite in torch.float32",
        ),
        (
            lambda: exposure(_model(), "x"),
            "x of type str: expected a tensor of numbers",
        ),
    ],
)
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


def test_other_widths_and_models_are_refused() -> None:
    with pytest.raises(InputError, match="13"):
        exposure(_model(), torch.zeros(2, 13))
    with pytest.raises(ModelRefusedError):
        exposure(nn.Sequential(nn.Conv2d(1, 1, 1)), torch.zeros(2, 1, 4, 4))


@given(
    grids=st.lists(
        st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=5, max_size=5),
        min_size=1,
        max_size=4,
    ),
    copies=st.sampled_from([[0, 1, 2, 3], [0, 0, 2, 2], [0, 1, 0, 0]]),
)
def test_a_sample_ever_fired_what_it_or_a_copy_fired_in_some_step(
    grids: list[list[list[bool]]], copies: list[int]
) -> None:
    found = ever_fired((torch.tensor(grid) for grid in grids), torch.tensor(copies))
    for neuron in range(5):
        for sample in range(4):
            alike = [other for other in range(4) if copies[other] == copies[sample]]
            expected = any(grid[neuron][other] for grid in grids for other in alike)
            assert bool(found[neuron, sample]) == expected
    # Copies may have taken part in different steps; they are peeled as one all the same.
    Exposure.of(found, torch.tensor(copies))


def test_no_grids_and_different_ones_are_refused() -> None:
    with pytest.raises(InputError, match="grids: expected at least one"):
        ever_fired([], torch.arange(3))
    grids = [torch.ones(2, 3).bool(), torch.ones(2, 4).bool()]
    with pytest.raises(InputError, match=r"grids of shape \(2, 4\) and \(2, 3\): expected"):
        ever_fired(grids, torch.arange(3))
