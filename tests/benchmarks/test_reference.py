"""The paper's loop, to compare with: it finds what there is in small, exact rounds."""

from __future__ import annotations

import pytest
import torch

import gradpeel as gp
from benchmarks.reference import reference_peel
from support import make_round, truths_of


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("hidden", [(), (16,)])
def test_it_peels(seed: int, hidden: tuple[int, ...]) -> None:
    round_ = make_round(40, 120, 8, 5, hidden, seed=seed)
    found = reference_peel(round_.model, round_.update)
    who = truths_of(found.samples, round_.x)
    assert -1 not in who
    assert sorted(who) == round_.exposure.reached.nonzero()[:, 0].tolist()
    assert torch.equal(found.labels, round_.y[who])
    assert found.rounds == round_.exposure.rounds_count


def test_what_lies_outside_the_range_is_discarded() -> None:
    round_ = make_round(40, 120, 8, 5)
    everybody = reference_peel(round_.model, round_.update, data_range=(0.0, 1.0))
    assert len(everybody.samples) == 8
    assert not len(reference_peel(round_.model, round_.update, data_range=(2.0, 3.0)).samples)


def test_it_must_be_told_the_batch_size() -> None:
    round_ = make_round()
    with pytest.raises(SystemExit, match="batch size"):
        reference_peel(round_.model, gp.Update(round_.update.gradients, None))
