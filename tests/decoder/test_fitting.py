"""Least squares over neurons, some of which do not belong, against the plain textbook way."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradpeel.decoder.least_squares import Fit, fit_equations


@dataclass(frozen=True)
class Problem:
    """Unknowns, what they add at each neuron, and how exactly that is observed.

    Attributes:
        matrix: (n, neurons), each unknown at about half of the neurons.
        unknowns: (n, width).
        sigma: (neurons,) error of an observed entry.
        noise: (neurons, width) the errors themselves.
    """

    matrix: Tensor
    unknowns: Tensor
    sigma: Tensor
    noise: Tensor

    @property
    def known(self) -> Tensor:
        return self.matrix.T @ self.unknowns + self.noise

    def fit(
        self,
        known: Tensor | None = None,
        *,
        sigma: Tensor | None = None,
        explained: Tensor | None = None,
        doubt: Tensor | None = None,
    ) -> Fit:
        return fit_equations(
            self.matrix,
            self.known if known is None else known,
            self.sigma if sigma is None else sigma,
            torch.ones(len(self.sigma), dtype=torch.bool) if explained is None else explained,
            doubt=torch.zeros_like(self.sigma) if doubt is None else doubt,
        )


def problem(
    n: int, neurons: int, *, seed: int, exponents: tuple[int, int] = (-9, -5), noisy: bool = True
) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    fires = torch.rand(n, neurons, generator=generator) < 0.5
    fires[torch.arange(n), torch.arange(n)] = True  # nobody fires nowhere
    sigma = 10.0 ** torch.randint(*exponents, (neurons,), generator=generator).double()
    noise = sigma[:, None] * draw(neurons, 16) * noisy
    return Problem(draw(n, neurons) * fires, draw(n, 16), sigma, noise)


SIZES = st.tuples(st.integers(1, 10), st.integers(30, 60), st.integers(0, 10_000))


@settings(max_examples=60)
@given(SIZES)
def test_clean_equations_give_the_unknowns(size: tuple[int, int, int]) -> None:
    n, neurons, seed = size
    clean = problem(n, neurons, seed=seed, noisy=False)
    fit = clean.fit()
    torch.testing.assert_close(fit.solve(clean.known), clean.unknowns, rtol=1e-8, atol=1e-10)
    assert not bool(fit.outliers.any())
    # The same fit in any coordinates.
    rotation = torch.linalg.qr(torch.randn(16, 16, dtype=torch.float64)).Q
    turned = fit.solve(clean.known @ rotation)
    torch.testing.assert_close(turned, clean.unknowns @ rotation, rtol=1e-8, atol=1e-10)


@settings(max_examples=150)
@given(SIZES, st.data())
@pytest.mark.slow
def test_equations_that_do_not_belong_are_found_and_move_nothing(
    size: tuple[int, int, int], data: st.DataObject
) -> None:
    n, neurons, seed = size
    noisy = problem(n, neurons, seed=seed)
    # An equation that alone determines an unknown holds whatever it says: nobody could tell.
    leverage = torch.linalg.qr((noisy.matrix / noisy.sigma).T).Q.square().sum(1)
    others = (leverage < 0.2).nonzero()[:, 0].tolist()
    spoilt = torch.zeros(neurons, dtype=torch.bool)
    spoilt[data.draw(st.lists(st.sampled_from(others), max_size=4))] = True
    by = 10.0 ** data.draw(st.integers(2, 6))
    foreign = torch.randn(16, generator=torch.Generator().manual_seed(seed)).double()
    known = noisy.known + (spoilt * by * noisy.sigma)[:, None] * foreign
    fit = noisy.fit(known)
    off = (fit.solve(known) - noisy.unknowns).square().mean(1).sqrt()
    assert bool((off <= 3 * fit.error).all())
    assert bool(fit.outliers[spoilt].all())
    assert not bool((fit.outliers & fit.surplus).any())
    # It says how far off they are.
    assert (fit.gaps > 0).tolist() == fit.outliers.tolist()
    spread = by * noisy.sigma * foreign.square().mean().sqrt()
    assert bool((fit.gaps > 0.5 * spread)[spoilt].all())


@pytest.mark.parametrize("by", [10.0, 100.0, 1000.0])
def test_next_to_nothing_is_lost_by_one_that_does_not_belong(by: float) -> None:
    ratios, suspects = [], 0
    for seed in range(40):
        noisy = problem(3, 40, seed=seed)
        spoilt = torch.arange(40) == 7
        known = noisy.known + by * (spoilt * noisy.sigma)[:, None]
        fit, without = noisy.fit(known), noisy.fit(known, explained=~spoilt)
        ratios.append(fit.error / without.error)
        suspects += int((fit.outliers & ~spoilt).sum())
    assert float(torch.cat(ratios).median()) == pytest.approx(1.0, abs=0.05)
    assert suspects <= 40


def test_the_error_covers_the_truth_and_is_no_larger_than_it_must_be() -> None:
    ratios = []
    for seed in range(60):
        noisy = problem(6, 40, seed=seed)
        fit = noisy.fit()
        off = (fit.solve(noisy.known) - noisy.unknowns).square().mean(1).sqrt()
        ratios.append(off / fit.error)
    ratio = torch.cat(ratios)
    assert float((ratio <= 3.0).double().mean()) >= 0.99
    assert 0.7 < float(ratio.median()) < 1.4


@settings(max_examples=40)
@given(SIZES)
def test_the_error_of_a_combination_is_that_of_the_covariance(size: tuple[int, int, int]) -> None:
    n, neurons, seed = size
    # No outliers: all weights are what the errors say.
    clean = problem(n, neurons, seed=seed, noisy=False)
    fit = clean.fit(clean.known + 0.1 * clean.sigma[:, None])
    weighted = clean.matrix / clean.sigma
    # Not by inverting a product, which has twice the decades.
    inverse = torch.linalg.pinv(weighted.T)
    covariance = inverse @ inverse.T
    generator = torch.Generator().manual_seed(seed)
    combinations = torch.randn(n, 7, generator=generator, dtype=torch.float64)
    variance = (combinations * (covariance @ combinations)).sum(0)
    expected = fit.unit * variance.sqrt()
    torch.testing.assert_close(fit.error_of(combinations), expected, rtol=1e-5, atol=0.0)
    single = fit.error_of(torch.eye(n).double())
    torch.testing.assert_close(single, fit.error, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("times", [0.01, 0.3, 1.0])
def test_errors_that_are_stated_too_large_are_measured(times: float) -> None:
    for seed in range(10):
        noisy = problem(5, 60, seed=seed)
        fit = noisy.fit(noisy.known, sigma=noisy.sigma / times)
        assert fit.unit == pytest.approx(times, rel=0.3)
    # With hardly more equations than unknowns nothing is measured.
    few = problem(5, 12, seed=0)
    assert few.fit(few.known, sigma=few.sigma / times).unit == 1.0


def test_what_is_not_explained_is_not_asked() -> None:
    noisy = problem(5, 40, seed=1)
    explained = torch.arange(40) % 3 != 1
    known = noisy.known
    wild = torch.where(explained[:, None], known, 1e6)
    fit = noisy.fit(wild, explained=explained)
    some = noisy.fit(known, explained=explained)
    assert torch.equal(fit.solve(wild), some.solve(known))
    assert torch.equal(fit.error, some.error)
    assert not bool(fit.outliers[~explained].any())
    assert not bool(fit.surplus[~explained].any())
    assert sorted(fit.equations.tolist()) == explained.nonzero()[:, 0].tolist()


def test_surplus_is_what_holds_without_being_needed() -> None:
    noisy = problem(5, 40, seed=2)
    matrix = noisy.matrix.clone()
    matrix[0, 1:] = 0.0  # nobody else tells of the first unknown
    alone = Problem(matrix, noisy.unknowns, noisy.sigma, noisy.noise)
    fit = alone.fit()
    assert not bool(fit.surplus[0])
    assert not bool(fit.outliers[0])
    leverage = torch.linalg.qr((matrix / noisy.sigma).T).Q.square().sum(1)
    assert fit.surplus.tolist() == (leverage < 0.5).tolist()
    # Each unknown takes one equation away.
    assert int(fit.surplus.sum()) >= 40 - 2 * 5


def test_doubt_at_the_start_protects_the_exact_ones() -> None:
    # A large part of the equations is off, all of them the same way: without a hint they win.
    clean = problem(3, 40, seed=3, exponents=(-8, -7))
    foreign = torch.randn(16, generator=torch.Generator().manual_seed(0)).double()
    spoilt = torch.arange(40) < 18
    known = clean.known + 1e-3 * spoilt[:, None] * foreign
    doubt = torch.where(spoilt, 1e-3, 0.0).double()
    fit = clean.fit(known, doubt=doubt)
    off = (fit.solve(known) - clean.unknowns).square().mean(1).sqrt()
    assert bool((off <= 3 * fit.error).all())
    assert bool(fit.outliers[spoilt].all())


@pytest.mark.parametrize("decades", [0, 6, 12])
@pytest.mark.parametrize("seed", range(3))
def test_unknowns_are_combinations_of_what_was_observed(decades: int, seed: int) -> None:
    given = problem(12, 60, seed=seed, noisy=False)
    # Some add ten decades more than others, and still none drowns.
    sizes = torch.logspace(0, -decades, 12, dtype=torch.float64)
    matrix = given.matrix * sizes[:, None]
    observed = matrix.T @ given.unknowns
    everywhere = torch.ones(60, dtype=torch.bool)
    sigma = 1e-16 * observed.abs().amax(1)
    fit = fit_equations(matrix, observed, sigma, everywhere, doubt=torch.zeros(60).double())
    mix = fit.combinations(matrix)
    assert mix.shape == (12, 60)
    torch.testing.assert_close(
        mix @ matrix.T * (sizes[:, None] / sizes), torch.eye(12).double(), rtol=0, atol=1e-6
    )
    torch.testing.assert_close(mix @ observed, fit.solve(observed), rtol=1e-2, atol=1e-2)


def test_equations_that_do_not_count_are_in_no_combination() -> None:
    given = problem(5, 40, seed=0)
    some = torch.arange(40) % 3 != 0
    mix = given.fit(explained=some).combinations(given.matrix)
    assert not bool(mix[:, ~some].any())
    torch.testing.assert_close(mix @ given.known, given.fit(explained=some).solve(given.known))
