"""Where all loss gradients are parallel, only firing patterns tell samples from mixtures."""

from __future__ import annotations

import pytest
import torch

import gradpeel as gp
from gradpeel.decoder import peel
from gradpeel.decoder.evidence.parallel import are_parallel
from support import default_model, make_batch, readable, truths_of


def test_multiples_of_one_vector_are_parallel_wherever_they_are_not_zero() -> None:
    vector = torch.arange(1.0, 7.0, dtype=torch.float64)
    masks = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1]])
    rows = torch.tensor([[2.0], [-3.0], [0.5]], dtype=torch.float64) * masks * vector
    assert are_parallel(rows)
    assert are_parallel(rows[:1])
    rows[1, 2] *= 1.01
    assert not are_parallel(rows)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(("neurons", "proven"), [(200, False), (3000, True)])
def test_one_direction_takes_a_wide_layer(outputs: int, neurons: int, *, proven: bool) -> None:
    x, y = make_batch(40, 6, 2)
    model = default_model(40, neurons, outputs, dtype=torch.float64)
    loss: gp.Loss = gp.CrossEntropy()
    if outputs == 1:
        y, loss = y[:, None].double(), gp.MeanSquaredError()
    update = gp.local_update(model, x, y, gp.Client(loss=loss))
    recovery = peel(model, update, knows_tail=False)
    assert -1 not in truths_of(recovery.samples, x)
    assert len(recovery) == (len(x) if proven else 0)
    assert readable(recovery, x) == set(range(len(x)))


def test_several_directions_do_not() -> None:
    x, y = make_batch(40, 6, 5)
    model = default_model(40, 200, 5, dtype=torch.float64)
    recovery = peel(model, gp.local_update(model, x, y), knows_tail=False)
    assert sorted(truths_of(recovery.samples, x)) == list(range(len(x)))
