"""The row cascade: batches in which no neuron stands alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.datasets import load
from gradpeel.decoder import Peeling, Recovery, peel
from gradpeel.decoder.evidence.structure import null_vector
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.recovery import RowCount, Stage
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows import run_row_cascade
from gradpeel.decoder.rows.finding import Rows, _new_rows, sparsest
from gradpeel.decoder.rows.polish import polish_by_next_layer, polish_by_silence
from gradpeel.decoder.rows.remainder import search_remainder
from gradpeel.decoder.rows.row_sets import ByNextLayer, BySilence, Guess, RowSet
from gradpeel.decoder.rows.seeds import Seeds
from gradpeel.decoder.rows.solving import solve
from gradpeel.decoder.rows.space import RowSpace
from gradpeel.errors import InputError
from gradpeel.losses import MeanSquaredError
from gradpeel.networks import mlp
from gradpeel.target import split
from support import SmallRound, default_model, make_batch, make_round, recovered, round_of, scaled


def crowded(
    batch: int = 30,
    *,
    features: int = 60,
    neurons: int = 250,
    classes: int = 6,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    **sent: Any,
) -> SmallRound:
    """Standardised samples and a network as PyTorch starts it: everybody fires half of it."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, features, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.randint(classes, (batch,), generator=generator)
    return round_of(default_model(features, neurons, classes, seed=seed, dtype=dtype), x, y, **sent)


def sensitivities(round_: SmallRound) -> Tensor:
    """(batch, neurons) the true rows, up to what one sample weighs."""
    with torch.no_grad():
        z = round_.model[0](round_.x)
        gradient = torch.softmax(round_.model[2](z.relu()), 1)
        gradient[torch.arange(len(z)), round_.y] -= 1
        rows: Tensor = (gradient @ round_.model.get_parameter("2.weight")) * (z > 0)
    return rows.double()


def residual_of(round_: SmallRound) -> Residual:
    return Residual(split(round_.model).for_decoding(torch.device("cpu")), round_.update)


def whole(recovery: Recovery, round_: SmallRound, *, within: float = 1e-6) -> bool:
    """Whether all samples are there, and nothing that is not."""
    return recovered(recovery, round_, within=within) == set(range(len(round_.x)))


def test_a_batch_in_which_no_neuron_stands_alone() -> None:
    round_ = crowded()
    assert round_.exposure.peeling_bound == 0
    alone = peel(round_.model, round_.update, effort=0.0)
    assert len(alone) == 0
    assert alone.rows is None
    recovery = peel(round_.model, round_.update)
    assert whole(recovery, round_, within=1e-9)
    assert recovery.complete
    assert recovery.labels.sort().values.tolist() == round_.y.sort().values.tolist()
    assert set(recovery.stages) == {Stage.ROWS}
    assert recovery.found_by_rows == recovery.batch_size.proven == 30
    assert recovery.rows == RowCount(30, 30)
    assert recovery.cascade_length == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_digits_that_are_standardised(seed: int) -> None:
    data = load("digits")
    every = torch.tensor(data.x_train).double().flatten(1)
    every = (every - every.mean(0)) / (every.std(0) + 0.1 * every.std())
    some = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))[:40]
    model = default_model(64, 400, 10, seed=seed, dtype=torch.float64)
    round_ = round_of(model, every[some], torch.tensor(data.y_train)[some])
    assert round_.exposure.reached.sum() < 5
    assert whole(peel(round_.model, round_.update), round_)


def test_peeling_and_rows_feed_each_other() -> None:
    # A few stand out so far that neurons isolate them; what they leave is read by rows.
    round_ = make_round(80, 300, 50, 6)
    alone = peel(round_.model, round_.update, effort=0.0)
    assert 0 < len(alone) < 50
    recovery = peel(round_.model, round_.update)
    assert whole(recovery, round_)
    assert recovery.found_by_rows == 50 - len(alone)
    assert [stage is Stage.ROWS for stage in recovery.stages] == sorted(
        stage is Stage.ROWS for stage in recovery.stages
    )


def test_where_peeling_suffices_nothing_is_searched() -> None:
    round_ = make_round(60, 200, 10, 6)
    recovery = peel(round_.model, round_.update)
    assert recovery.rows is None
    assert recovery.found_by_rows == 0
    assert recovery.complete


@pytest.mark.parametrize("factor", [1e-3, 0.37, 1e3])
@pytest.mark.parametrize("stated", [30, None, 7])
@pytest.mark.slow
def test_the_scale_of_the_update_and_the_stated_size_do_not_matter(
    factor: float, stated: int | None
) -> None:
    round_ = crowded()
    update = replace(scaled(round_.update, factor), batch_size=stated)
    assert whole(peel(round_.model, update), round_)


def test_float32() -> None:
    round_ = crowded(dtype=torch.float32)
    recovery = peel(round_.model, round_.update)
    assert whole(recovery, round_, within=1e-4)
    assert recovery.complete


@pytest.mark.parametrize(
    "told", [{"knows_tail": False}, {"loss": MeanSquaredError()}], ids=["nothing known", "mse"]
)
@pytest.mark.slow
def test_without_tail_or_labels(told: dict[str, Any]) -> None:
    round_ = crowded()
    recovery = peel(round_.model, round_.update, **told)
    assert whole(recovery, round_)
    assert bool((recovery.labels == -1).all())


def test_without_the_next_layer() -> None:
    round_ = crowded(20, neurons=300)
    first = nn.Sequential(round_.model[0], round_.model[1])
    gradients = {n: g for n, g in round_.update.gradients.items() if n.startswith("0.")}
    recovery = peel(first, replace(round_.update, gradients=gradients), knows_tail=False)
    assert whole(recovery, round_)


def test_a_deeper_tail() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(60, 250), nn.ReLU(), nn.Linear(250, 40), nn.Tanh(), nn.Linear(40, 6)
        ).double()
    plain = crowded()
    round_ = round_of(model, plain.x, plain.y)
    assert whole(peel(round_.model, round_.update), round_)


def test_a_next_layer_that_can_send_back_anything() -> None:
    round_ = crowded(20, neurons=200, classes=120)
    assert whole(peel(round_.model, round_.update), round_)


@pytest.mark.parametrize("same_label", [True, False])
@pytest.mark.slow
def test_copies(same_label: bool) -> None:
    plain = crowded(24)
    x = torch.cat([plain.x, plain.x[:3]])
    y = torch.cat([plain.y, plain.y[:3] if same_label else (plain.y[:3] + 1) % 6])
    round_ = round_of(plain.model, x, y)
    recovery = peel(round_.model, round_.update)
    found = recovered(recovery, round_)
    # Copies with several labels have no label that explains them all.
    assert found == set(range(24)) if same_label else found >= set(range(3, 24))


def test_a_range_turns_samples_away() -> None:
    round_ = crowded()
    largest = round_.x.abs().amax(1)
    bound = float(largest.median())
    recovery = peel(round_.model, round_.update, data_range=(-bound, bound))
    assert recovered(recovery, round_) <= set((largest <= bound).nonzero()[:, 0].tolist())


def test_the_same_every_time() -> None:
    round_ = crowded()
    first, second = (peel(round_.model, round_.update) for _ in range(2))
    assert torch.equal(first.samples, second.samples)


@pytest.mark.parametrize("seed", [5, 11, 34])
def test_rows_that_roundings_reach_are_rows(seed: int) -> None:
    """Large samples, and weights as the paper starts them: gradients differ by many orders of
    magnitude, and a fit leaves more than the roundings of the update alone would."""
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(52, 100, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (52,), generator=generator)
    model = mlp(100, 3, (150,), rng=np.random.default_rng(seed), init="paper").double()
    round_ = round_of(model, x, y)
    space = RowSpace.of(residual_of(round_))
    assert space is not None
    rows = sensitivities(round_)[:, space.live]
    weight = model.get_parameter("2.weight").detach()[:, space.live] / space.error
    strong = rows.norm(dim=1) > 1e-3 * rows.norm(dim=1).median()
    for row in rows[strong]:
        found, error = polish_by_next_layer(space, weight.T.contiguous(), row != 0, loose=True)
        true = torch.nn.functional.normalize(row / space.error, dim=0)
        assert float(error) < 1e-3
        assert float((found @ true).abs()) > 1 - 1e-6


@pytest.mark.slow
def test_nearly_half_as_many_samples_as_neurons() -> None:
    round_ = crowded(44, neurons=100)
    assert recovered(peel(round_.model, round_.update), round_) == set(range(44))


def test_more_than_the_layer_can_tell_apart() -> None:
    round_ = crowded(40, neurons=75)
    recovery = peel(round_.model, round_.update)
    assert recovery.rows == RowCount(0, 40, searched=False)
    assert recovery.stopped.endswith(
        "the row cascade was not run, because peeling left too many samples (40)"
    )
    assert len(recovery) == 0


def test_what_was_not_found_is_told() -> None:
    round_ = crowded(60, features=100, neurons=200)
    recovery = peel(round_.model, round_.update, effort=0.01)
    assert recovery.rows is not None
    assert recovery.rows.found < recovery.rows.unknown == 60
    found = f"found the rows of {recovery.rows.found} of the 60 samples that peeling left"
    assert recovery.stopped.endswith(found)


def test_nothing_is_made_of_noise() -> None:
    round_ = crowded()
    generator = torch.Generator().manual_seed(3)
    noise = {
        name: torch.randn(gradient.shape, generator=generator, dtype=gradient.dtype)
        for name, gradient in round_.update.gradients.items()
    }
    assert len(peel(round_.model, replace(round_.update, gradients=noise))) == 0


def test_an_update_of_other_weights() -> None:
    round_ = crowded()
    other = default_model(60, 250, 6, seed=5, dtype=torch.float64)
    assert len(peel(other, round_.update)) == 0


def with_faint_sample(left: float, *, seed: int) -> SmallRound:
    """A crowded float32 round whose first sample is predicted with a probability of 1 - left."""
    round_ = crowded(seed=seed)
    x, y = round_.x.clone(), round_.y.clone()
    with torch.no_grad():
        y[0] = round_.model(x[:1]).argmax()
        low, high = 1.0, 1e4
        for _ in range(60):
            factor = (low * high) ** 0.5
            others = torch.softmax(round_.model(factor * x[:1]), 1)[0].index_fill(0, y[0], 0.0)
            low, high = (factor, high) if float(others.sum()) > left else (low, factor)
    x[0] *= high
    return round_of(round_.model.float(), x.float(), y)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_a_faint_sample_is_read_by_all_neurons_together(seed: int) -> None:
    # At every single neuron its gradient is lost in the roundings of the others.
    round_ = with_faint_sample(1e-4, seed=seed)
    recovery = peel(round_.model, round_.update)
    # The sample is 25 to 50 times as large as the others.
    assert whole(recovery, round_, within=0.2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_a_sample_too_faint_to_be_certified_is_readable(seed: int) -> None:
    round_ = with_faint_sample(1e-5, seed=seed)
    recovery = peel(round_.model, round_.update)
    assert recovered(recovery, round_, within=1e-3) == set(range(1, 30))
    first = recovery.unproven.samples()[0]
    assert float((first - round_.x[0]).norm() / round_.x[0].norm()) < 0.02


@pytest.mark.slow
def test_progress_is_told() -> None:
    round_ = crowded()
    seen: list[RowCount] = []
    peel(round_.model, round_.update, on_rows=seen.append)
    found = [rows.found for rows in seen]
    assert found == sorted(found)
    assert seen[-1] == RowCount(30, 30)
    again: list[RowCount] = []
    gp.audit(round_.model, round_.x, round_.y, on_rows=again.append)
    assert again == seen


def test_a_row_must_be_the_samples_own() -> None:
    round_ = crowded()
    target = split(round_.model).for_decoding(torch.device("cpu"))
    with torch.no_grad():
        _, isolated = run_row_cascade(residual_of(round_), target.tail.next_layer, None, effort=1.0)
        assert isolated is not None
        rolled = isolated.samples.sensitivities.roll(1, 0)
        of_others = replace(isolated, samples=replace(isolated.samples, sensitivities=rolled))
        for rows, accepted in ((isolated, 30), (of_others, 0)):
            look = Peeling(round_.model, round_.update)._look_at(rows)
            assert int(look.verdicts.accepted.sum()) == accepted


@pytest.mark.parametrize("effort", [-1, "much", float("nan"), True])
def test_an_effort_is_a_number(effort: Any) -> None:
    round_ = make_round()
    with pytest.raises(InputError, match=r"effort=.*: expected a number of at least 0"):
        peel(round_.model, round_.update, effort=effort)
    with pytest.raises(InputError, match=r"effort=.*: expected a number of at least 0"):
        gp.audit(round_.model, round_.x, round_.y, attacker=gp.Attacker(effort=effort))


def test_every_row_lies_in_the_space() -> None:
    round_ = crowded()
    space = RowSpace.of(residual_of(round_))
    assert space is not None
    assert space.rank == 30
    rows = sensitivities(round_)[:, space.live]
    for basis, unit in ((space.basis, space.unit), (space.exact, space.error)):
        there = torch.nn.functional.normalize(rows / unit, dim=1)
        assert (there - (there @ basis) @ basis.T).abs().max() < 1e-10


def test_mixtures_without_the_samples_of_known_rows() -> None:
    round_ = crowded()
    residual = residual_of(round_)
    space = RowSpace.of(residual)
    assert space is not None
    rows = sensitivities(round_)[:, space.live] / space.unit
    # With all rows but one known, any mixture is the last sample.
    z = Seeds(residual, space).draw(5, rows[1:])
    with torch.no_grad():
        true = round_.model[0](round_.x[:1])
    assert torch.allclose(z, true.expand_as(z), atol=1e-6)


def in_space(round_: SmallRound) -> tuple[RowSpace, torch.Tensor, torch.Tensor]:
    """The column space, the true rows there in units of the error, and the next layer's weights."""
    space = RowSpace.of(residual_of(round_))
    assert space is not None
    rows = sensitivities(round_)[:, space.live] / space.error
    weight = round_.model.get_parameter("2.weight").detach()[:, space.live] / space.error
    return space, torch.nn.functional.normalize(rows, dim=1), weight.T


@pytest.mark.parametrize(("off", "solved"), [(0.0, True), (4.0, True), (100.0, False)])
def test_samples_are_solved_for_although_one_neuron_is_uncertain(off: float, solved: bool) -> None:
    # So it is where a sample that was peeled may or may not fire.
    round_ = crowded()
    residual = residual_of(round_)
    size = float(residual.rows[0].abs().max())
    residual.row_error[0] = 0.1 * size / residual.scale
    residual.rows[0] += off * 0.1 * size
    space = RowSpace.of(residual_of(round_))
    assert space is not None
    space = replace(space, error=residual.row_error[space.live])
    rows = torch.nn.functional.normalize(sensitivities(round_)[:, space.live] / space.error, dim=1)
    found = solve(Rows(space, rows, torch.full((30,), 1e-9), tried=0), residual)
    assert (found is not None) == solved
    if found is not None:
        with torch.no_grad():
            true = round_.model[0](round_.x)
        z = residual.pre_activations(found.samples)
        assert torch.allclose(z, true, atol=0.03 if off else 1e-6)


@pytest.mark.parametrize("next_layer", [False, True])
def test_a_row_is_polished_although_some_neurons_are_wrong(*, next_layer: bool) -> None:
    space, rows, weight = in_space(crowded())
    generator = torch.Generator().manual_seed(0)
    for row in rows:
        silent = (row == 0) ^ (torch.rand(len(row), generator=generator) < 0.05)
        found, error = (
            polish_by_next_layer(space, weight, ~silent)
            if next_layer
            else polish_by_silence(space, silent)
        )
        assert abs(float(found @ row)) > 1 - 1e-9
        assert torch.equal(found == 0, row == 0)
        assert error < 1e-9


def test_a_row_is_polished_although_one_neuron_is_far_more_exact_than_the_others() -> None:
    # Only a row that is large where the update is most exact is affected: there the next layer's
    # weights, in units of the error, span many orders of magnitude.
    source = torch.Generator().manual_seed(0)
    neurons, rank, width = 200, 20, 10

    def gaussian(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    weight, error = gaussian(neurons, width), torch.ones(neurons, dtype=torch.float64)
    error[0] = 1e-7
    fires = torch.rand(neurons, generator=source) < 0.5
    fires[0] = True
    rows = torch.cat([(weight @ gaussian(width) * fires)[None], gaussian(rank - 1, neurons)])
    exact = torch.linalg.qr((rows / error).T).Q
    space = RowSpace(
        live=torch.ones(neurons, dtype=torch.bool),
        unit=error,
        basis=exact,
        error=error,
        exact=exact,
        strength=torch.full((rank,), 1e16, dtype=torch.float64),
        resolution=torch.finfo(torch.float64).eps,
    )
    row, off = polish_by_next_layer(space, weight / error[:, None], fires)
    true = torch.nn.functional.normalize(rows[0] / error, dim=0)
    assert float((row @ true).abs()) == pytest.approx(1.0)
    assert float(off) < 1e-12


def test_a_sum_of_two_rows_is_none() -> None:
    space, rows, weight = in_space(crowded(10, neurons=300))
    both = (rows[0] == 0) & (rows[1] == 0)
    # One neuron more, at which some sum of them vanishes.
    both[int(((rows[0] != 0) & (rows[1] != 0)).nonzero()[0])] = True
    _, _, ratio = null_vector(space.exact, ~both)
    assert float(ratio) < LIMITS.row_error
    assert polish_by_silence(space, both)[1] > LIMITS.row_error
    found, error = polish_by_next_layer(space, weight, ~both)
    assert error > LIMITS.row_error_fitted or (found @ rows.T).abs().max() > 1 - 1e-9


def test_a_row_is_not_lost_to_a_faint_one_that_it_resembles() -> None:
    space, rows, weight = in_space(crowded())
    kind = ByNextLayer(space, (weight * space.error[:, None]).T)
    beside = torch.nn.functional.normalize(rows[0] + 0.2 * rows[1], dim=0)
    known = Rows(space, beside[None], torch.tensor([0.03], dtype=torch.float64), tried=0)
    exact = rows[:1] * (space.error / space.unit)
    guess = Guess(exact, rows[:1] == 0, rows[:1] != 0)
    # As a rule it is the faint one again; before the search gives up it may be another.
    assert not len(_new_rows(space, kind, guess, known, last=False)[0])
    found, error = _new_rows(space, kind, guess, known, last=True)
    assert float((found @ rows[0]).abs()[0]) == pytest.approx(1.0)
    # Within its error the faint one is nothing but the row.
    both, errors = torch.cat([known.rows, found]), torch.cat([known.error, error])
    assert sparsest(both, errors).tolist() == [1]
    assert sparsest(both, errors * 0).tolist() == [0, 1]


def test_what_is_nearly_zero_is_not_zero() -> None:
    # A vector of the space that is small at many neurons, but a million times the rounding.
    space, rows, _ = in_space(crowded(10, neurons=300))
    silent = rows[0] == 0
    assert polish_by_silence(space, silent)[1] < 1e-9
    other = torch.linalg.qr(space.exact + 1e-6 * torch.randn_like(space.exact)).Q
    assert polish_by_silence(replace(space, exact=other), silent)[1] == torch.inf


def test_samples_that_hardly_differ_need_the_next_layer() -> None:
    # Where one is silent nearly everybody is: these neurons alone do not determine its row.
    x, y = make_batch(80, 40, 5)
    x = 1.0 + 0.5 * x
    model = default_model(80, 300, 5, seed=1, dtype=torch.float64)
    space, rows, weight = in_space(round_of(model, x, y))
    by_silence = [float(polish_by_silence(space, row == 0)[1]) for row in rows]
    by_layer = [float(polish_by_next_layer(space, weight, row != 0)[1]) for row in rows]
    assert min(by_silence) == torch.inf
    assert max(by_layer) < 1e-6


@pytest.mark.parametrize("next_layer", [False, True])
@pytest.mark.parametrize("missing", [1, 2, 5])
def test_the_last_rows_are_found_in_what_the_others_leave(
    missing: int, *, next_layer: bool
) -> None:
    round_ = crowded()
    residual = residual_of(round_)
    space, rows, _ = in_space(round_)
    kind: RowSet = BySilence(space)
    if next_layer:
        kind = ByNextLayer(space, round_.model.get_parameter("2.weight").detach())
    known = torch.nn.functional.normalize(rows[missing:] * (space.error / space.unit), dim=1)
    guess = search_remainder(space, Seeds(residual, space), kind, known)
    found = [row for row, error in kind.polish(guess) if error < 1e-6]
    like = (torch.stack(found) @ rows.T).abs() > 1 - 1e-9
    assert like[:, :missing].any()
    assert not like[:, missing:].any()


@pytest.mark.slow
@settings(max_examples=60)
@given(
    batch=st.integers(2, 60),
    neurons=st.sampled_from([100, 200, 400]),
    features=st.sampled_from([20, 70, 300]),
    classes=st.sampled_from([2, 3, 10, 60]),
    labels=st.sampled_from(["drawn", "one"]),
    centre=st.sampled_from([0.0, 0.5, 2.0]),
    double=st.booleans(),
    known=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_never_anything_false(
    *,
    batch: int,
    neurons: int,
    features: int,
    classes: int,
    labels: str,
    centre: float,
    double: bool,
    known: bool,
    seed: int,
) -> None:
    dtype = torch.float64 if double else torch.float32
    generator = torch.Generator().manual_seed(seed)
    x = (centre + torch.randn(batch, features, generator=generator)).to(dtype)
    y = torch.randint(classes, (batch,), generator=generator)
    if labels == "one":
        y[:] = y[0]
    round_ = round_of(default_model(features, neurons, classes, seed=seed, dtype=dtype), x, y)
    recovery = peel(round_.model, round_.update, knows_tail=known)
    found = recovered(recovery, round_, within=1e-2)
    if recovery.complete:
        assert len(found) == batch
    assert len(found) >= len(peel(round_.model, round_.update, knows_tail=known, effort=0.0))
