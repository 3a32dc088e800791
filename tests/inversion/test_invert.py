"""Inputs from features: exact where features determine them, honest where they do not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.datasets import draw_batch, load
from gradpeel.inversion.box import Box
from gradpeel.inversion.forward import FrontMap, Linearised
from gradpeel.inversion.least_squares import hidden_shares
from gradpeel.inversion.search import closest

SHAPE = (1, 8, 8)
UNIT = (0.0, 1.0)


def network(channels: int = 8, *, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """A convolution without pooling: 36 positions, so from two channels on more features."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, channels, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36 * channels, 64),
        nn.ReLU(),
        nn.Linear(64, 3),
    ).to(dtype)


def pictures(number: int) -> Tensor:
    return torch.rand((number, *SHAPE), generator=torch.Generator().manual_seed(1))


def features_of(model: nn.Module, x: Tensor) -> Tensor:
    return gp.split(model).front(x)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
@pytest.mark.slow
def test_inputs_that_features_determine_are_found_to_rounding(
    dtype: torch.dtype, error: float
) -> None:
    model, x = network(dtype=dtype), pictures(4).to(dtype)
    found = gp.invert(model, features_of(model, x), sample_shape=SHAPE, data_range=UNIT)
    assert found.inputs.dtype is dtype
    assert bool(found.determined.all())
    assert float((found.inputs - x).abs().max()) < error
    assert float(found.residuals.max()) <= 100 * torch.finfo(dtype).eps
    assert repr(found) == "Inversion(4 reconstructions from features of layer '3', 4 determined)"


@pytest.mark.slow
def test_what_features_leave_open_is_never_called_determined() -> None:
    # One channel of 36 features cannot determine 64 pixels, whatever a prior makes of them.
    model, x = network(1), pictures(3)
    found = gp.invert(model, features_of(model, x), sample_shape=SHAPE, data_range=UNIT)
    assert not found.determined.any()
    assert bool((found.hidden > 0.3).all())
    assert bool((found.inputs >= 0).all() and (found.inputs <= 1).all())


def test_one_pixel_that_the_front_does_not_see_is_enough() -> None:
    class Blind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network()

        def forward(self, x: Tensor) -> Tensor:
            seen = torch.ones(SHAPE)
            seen[0, 3, 4] = 0
            logits: Tensor = self.body(x * seen)
            return logits

    model, x = Blind(), pictures(2)
    found = gp.invert(model, features_of(model, x), sample_shape=SHAPE, data_range=UNIT)
    assert float(found.residuals.max()) < 1e-5
    assert not found.determined.any()


def test_features_of_no_input_are_not_reached() -> None:
    model = network()
    found = gp.invert(model, -torch.ones(1, 288), sample_shape=SHAPE, data_range=UNIT, starts=1)
    assert float(found.residuals[0]) > 0.5
    assert not found.determined.any()


@pytest.mark.slow
def test_no_sample_affects_another() -> None:
    model, x = network(2), pictures(3)
    rows = features_of(model, x)
    together = gp.invert(model, rows, sample_shape=SHAPE, data_range=UNIT)
    alone = gp.invert(model, rows[1:2], sample_shape=SHAPE, data_range=UNIT)
    assert float((together.inputs[1:2] - alone.inputs).abs().max()) < 1e-3


@pytest.mark.slow
def test_the_same_seed_gives_the_same_result() -> None:
    model, x = network(1), pictures(2)
    one, other = (
        gp.invert(model, features_of(model, x), sample_shape=SHAPE, data_range=UNIT, seed=3)
        for _ in range(2)
    )
    assert torch.equal(one.inputs, other.inputs)
    assert torch.equal(one.hidden, other.hidden)


def test_binary_pixels_come_back_equal() -> None:
    model, x = network(), pictures(3).round()
    found = gp.invert(
        model, features_of(model, x), sample_shape=SHAPE, data_range=UNIT, values=(1, 0)
    )
    assert torch.equal(found.inputs, x)
    assert bool(found.determined.all())


def test_values_that_do_not_have_the_features_are_not_taken() -> None:
    model, x = network(), pictures(2)
    found = gp.invert(
        model, features_of(model, x), sample_shape=SHAPE, data_range=UNIT, values=(0, 1)
    )
    assert float((found.inputs - x).abs().max()) < 1e-4


def test_an_open_range_starts_at_zero() -> None:
    model, x = network(), pictures(2) - 0.5
    found = gp.invert(model, features_of(model, x), sample_shape=SHAPE)
    assert float((found.inputs - x).abs().max()) < 1e-4


def test_an_update_ends_in_its_inputs_and_its_front_confirms_them() -> None:
    model, x, y = network(), pictures(4), torch.tensor([0, 1, 2, 0])
    audit = gp.audit(model, x, y)
    seen: list[tuple[int, int]] = []
    found = audit.invert(data_range=UNIT, on_progress=lambda done, of: seen.append((done, of)))
    assert seen == [(4, 4)]
    assert found.likeness is not None
    assert sorted(found.likeness.samples.tolist()) == [0, 1, 2, 3]
    assert float(found.likeness.psnr.min()) > 90
    assert float(found.likeness.ssim.min()) > 0.999
    assert found.mismatch is not None
    assert found.mismatch < 1e-5
    numbers = found.as_dict()
    assert numbers["determined"] == numbers["reconstructions"] == 4


@pytest.mark.slow
def test_the_front_of_a_wrong_batch_does_not_confirm() -> None:
    model, x, y = network(), pictures(4), torch.tensor([0, 1, 2, 0])
    audit = gp.audit(model, x, y)
    assert audit.recovery.complete
    wrong = gp.invert(model, audit.recovery, sample_shape=SHAPE, data_range=(0, 0.2), starts=1)
    assert wrong.mismatch is None  # no update was given
    checked = gp.invert(
        model, audit.recovery, sample_shape=SHAPE, data_range=(0, 0.2), starts=1,
        update=audit.update,
    )  # fmt: skip
    assert checked.mismatch is not None
    assert checked.mismatch > 1e-2


def test_nothing_recovered_is_nothing_reconstructed() -> None:
    found = gp.invert(network(), torch.zeros(0, 288), sample_shape=SHAPE)
    assert len(found) == 0
    assert found.inputs.shape == (0, *SHAPE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample_shape": ()}, "sample_shape=(): expected positive integers"),
        ({"sample_shape": (1, 0, 8)}, "sample_shape=(1, 0, 8): expected positive integers"),
        ({"sample_shape": 64}, "sample_shape=64: expected positive integers"),
        ({"sample_shape": (3, 8, 8)}, "sample_shape=(3, 8, 8): x of shape (2, 3, 8, 8): the mode"),
        ({"data_range": (1, 0)}, "data_range=(1, 0): expected the smaller value first"),
        ({"starts": 0}, "starts=0: expected a positive integer"),
        ({"seed": -1}, "seed=-1: expected an integer of at least 0"),
        ({"values": (1,)}, "values=(1,): expected two finite numbers at least"),
        ({"values": (0, math.inf)}, "values=(0, inf): expected two finite numbers at least"),
        ({"update": {}}, "update of type dict: expected gradpeel.Update"),
        ({"layer": "9"}, "layer='9': expected the name of a Linear: '3', '5'"),
        ({"features": torch.zeros(2, 5)}, "features of shape (2, 5) and dtype torch.float32: exp"),
        ({"features": torch.full((1, 288), math.nan)}, "features: 288 of 288 values are not finit"),
        ({"features": "all"}, "features of type str: expected a tensor of numbers"),
    ],
)
def test_bad_input_gets_one_clear_line(changes: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"features": torch.zeros(1, 288), "sample_shape": SHAPE}
    with pytest.raises(gp.InputError) as caught:
        gp.invert(network(), **{**settings, **changes})  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_samples_that_are_inputs_already_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 2))
    rule = "recovered samples are inputs already: there is nothing to invert"
    with pytest.raises(gp.InputError, match=rule):
        gp.invert(model, torch.zeros(1, 4), sample_shape=(4,))
    audit = gp.audit(model, torch.rand(3, 4), torch.tensor([0, 1, 0]))
    with pytest.raises(gp.InputError, match=rule):
        audit.invert()


def test_a_front_that_changes_from_batch_to_batch_is_refused() -> None:
    model = nn.Sequential(nn.Dropout(), *network())
    with pytest.raises(gp.ModelRefusedError) as caught:
        gp.invert(model, torch.zeros(1, 288), sample_shape=SHAPE)
    assert str(caught.value) == (
        "inputs cannot be reconstructed: [change this setting] Dropout '0' is active: an input has "
        "other features in every batch: expected a network without that in front of the layer, as "
        "after model.eval() (this says nothing about other attacks)"
    )
    assert len(gp.invert(model.eval(), torch.zeros(0, 288), sample_shape=SHAPE)) == 0


def test_the_derivative_is_that_of_the_front() -> None:
    model = network(2, dtype=torch.float64)
    front, x = FrontMap(gp.split(model).front, torch.float64), pictures(3).double()
    slope = Linearised(front, x)
    along, back = torch.randn(x.shape).double(), torch.randn(3, 72).double()
    step = 1e-7
    changed = (front(x + step * along) - front(x - step * along)) / (2 * step)
    assert torch.allclose(slope.push(along), changed, atol=1e-5)
    products = [(slope.push(along) * back).sum(), (along * slope.pull(back)).sum()]
    assert torch.allclose(products[0], products[1])


def test_hidden_shares_count_free_dimensions() -> None:
    # 72 features of 64 pixels; where half of them are silent, 36 equations are left at most.
    model, x = network(2, dtype=torch.float64), pictures(64).double()
    front = FrontMap(gp.split(model).front, torch.float64)
    ranks = []
    for one in x:
        slope = Linearised(front, one.expand(72, *SHAPE))
        ranks.append(int(torch.linalg.matrix_rank(slope.pull(torch.eye(72).double()).flatten(1))))
    shares = torch.stack(
        [hidden_shares(front, x, torch.Generator().manual_seed(seed)).mean(1) for seed in range(20)]
    ).mean(0)
    free = 1 - torch.tensor(ranks).double() / 64
    assert float((shares - free).abs().max()) < 0.08


def test_starts_lie_in_the_range_and_differ() -> None:
    box = Box(-1.0, 3.0)
    starts = [box.start(number, (2, 1, 8, 8), 0) for number in range(4)]
    assert bool((starts[0] == 1.0).all())
    for start in starts[1:]:
        assert torch.equal(start[0], start[1])
        assert float(start.min()) >= -1
        assert float(start.max()) <= 3
        assert float(start.std()) > 0.3
    assert Box(2.0, math.inf).middle == 2.0
    assert Box(-math.inf, math.inf).span == 1.0


def test_values_are_moved_to_the_closest() -> None:
    allowed = torch.tensor([-1.0, 0.0, 2.0])
    x = torch.tensor([[-5.0, -0.4, 0.9], [1.1, 2.0, 7.0]])
    assert closest(x, allowed).tolist() == [[-1.0, 0.0, 0.0], [2.0, 2.0, 2.0]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("mnist", 100.0), ("cifar10", 30.0)])
def test_real_pictures_behind_the_cnn_of_the_fedavg_paper(
    data_dir: Path, name: str, least: float
) -> None:
    from benchmarks.inversion import FedAvgCNN

    x = draw_batch(load(data_dir / f"{name}.npz"), 6).x.float()
    x = x[:, None] if x.ndim == 3 else x.movedim(3, 1).contiguous()
    torch.manual_seed(0)
    model = FedAvgCNN(x.shape[1], x.shape[2])
    found = gp.invert(model, features_of(model, x), sample_shape=x.shape[1:], data_range=UNIT)
    decibels = -10 * (found.inputs - x).square().flatten(1).mean(1).log10()
    assert float(decibels.median()) >= least
    assert bool(found.determined.all()) is (name == "mnist")
