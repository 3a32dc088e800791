"""The benchmark of the tamper alarm, on a small data set."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import tampering, tampering_networks
from gradpeel.checking.tampering import inspect_layer
from gradpeel.datasets import load


@pytest.fixture
def pool() -> tampering_networks.Pool:
    data = load("digits")
    x = torch.from_numpy(data.x_train).float().flatten(1)
    y = torch.from_numpy(data.y_train)
    return tampering_networks.Pool("digits", "0 to 1", x[:600], y[:600], x[600:], y[600:], 10)


def test_d_snr_is_that_of_gradients_taken_one_by_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    x, y = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
    norms = []
    for one in range(5):
        model.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x[[one]]), y[[one]]))
        found = dict(model.named_parameters())
        norms.append([float(found[f"{i}.weight"].grad.norm()) for i in (0, 2)])  # type: ignore[union-attr]
    model.zero_grad()
    expected = max(max(each) / (sum(each) - max(each)) for each in zip(*norms, strict=True))
    assert tampering.d_snr(model, x, y) == pytest.approx(expected, rel=1e-5)
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_activation_counts_are_shares_of_the_neurons_that_fire() -> None:
    assert tampering.activation_counts(torch.tensor([0, 1, 3, 4, 60])) == 0.5
    assert tampering.activation_counts(torch.zeros(3)) == 0.0


@pytest.mark.slow
def test_rows_are_of_both_kinds_and_repeat(pool: tampering_networks.Pool) -> None:
    one, again = (list(tampering_networks.honest(pool, runs=1, fresh=1, seed=3)) for _ in range(2))
    assert len(one) == 2 * (1 + len(tampering_networks.CHECKPOINTS))
    rows, repeated = ([tampering._judge("measured", j) for j in some] for some in (one, again))
    assert rows == repeated
    assert {row["step"] for row in rows} == {str(c) for c in tampering_networks.CHECKPOINTS}
    found = [inspect_layer(*_layer(judged)).suspicious for judged in again]
    assert list(tampering._values(rows, "alarm")) == found


def _layer(judged: tampering_networks.Judged) -> tuple[torch.Tensor, ...]:
    first = tampering_networks.first_layer(judged.model)
    degrees = (first(judged.x) > 0).sum(0)
    return first.weight.detach(), first.bias.detach(), judged.x, degrees


def test_the_table_counts_networks_and_alarms(tmp_path: Path) -> None:
    marks = dict.fromkeys((*tampering.MARKS, *tampering.BASELINES), "0.2")
    base = {"data": "d", "scaling": "s", "step": "0", "batch": "b", "batch_size": "64", **marks}
    honest = {**base, "part": "measured", "network": "0", "kind": "honest", "weights": ""}
    soliton_free = {**honest, "kind": "soliton-free", "weights": "mirrored", "d_snr": "0.7"}
    alarm = {"twins": "0.9"}
    rows = [
        {**honest, "part": "calibration"},
        honest,
        {**honest, **alarm},
        {**soliton_free, **alarm},
    ]
    limits = tampering.calibrate(rows)
    table = {line[:2]: line for line in tampering.lines(rows, limits)}
    assert table["honest, not trained", ""][2:4] == ("1", "50.0 %")
    soliton = table["soliton-free", "mirrored"]
    assert soliton[2:4] == ("1", "100.0 %")
    assert soliton[tampering.TITLES.index("D-SNR")] == "100.0 %"
    assert soliton[tampering.TITLES.index("lean")] == "0.0 %"
    assert next(tampering.findings(rows, limits)).startswith("alarm: 50.00% of 2 honest cases")
    tampering._write(tmp_path / "rows.csv", rows)
    assert tampering._read(tmp_path / "rows.csv") == rows
