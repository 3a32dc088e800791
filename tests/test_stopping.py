"""What would stop this: the weakest setting of each defence, in a limited time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.errors import InputError


def _data(size: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(1)
    x = torch.rand(size, 40, generator=source, dtype=torch.float64)
    return x, torch.randint(3, (size,), generator=source)


@pytest.fixture(scope="module")
def found() -> gp.Audit:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 150), nn.ReLU(), nn.Linear(150, 3)).double()
    return gp.audit(model, *_data(8), attacker=gp.Attacker(effort=0))


def test_the_weakest_setting_stops_and_the_one_below_does_not(found: gp.Audit) -> None:
    (trial,) = gp.what_stops(found, tried=["relative-noise"], seconds=None)
    assert trial.stops
    ladder = gp.stopping.LADDERS["relative-noise"][1]
    weaker = ladder[ladder.index(trial.setting) - 1]
    client = gp.Client(defences=gp.defences.parse(weaker))
    again = gp.audit(found.model, found.x, found.y, client=client, attacker=found.attacker)
    assert again.score.read > 0
    assert trial.cost.startswith("keeps ")
    assert trial.cost.endswith(" of the update")


def test_clipping_does_not_stop_it(found: gp.Audit) -> None:
    (trial,) = gp.what_stops(found, tried=["clip"])
    assert (trial.stops, trial.readable, trial.members) == (False, 8, 8)
    assert str(trial).startswith("Clipping the update (clip:1): 8 of 8 still read; keeps 100 %")


def test_a_sample_that_was_read_took_part_where_the_membership_test_cannot_decide() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 150), nn.ReLU(), nn.Linear(150, 3)).double()
    x, y = _data(12)
    found = gp.audit(model, x[:, :6], y, attacker=gp.Attacker(effort=0))
    assert found.membership.count("in") == 0
    (trial,) = gp.what_stops(found, tried=["clip"])
    assert trial.members == trial.readable == found.score.read > 0


def test_more_samples_are_needed_for_larger_batches(found: gp.Audit) -> None:
    assert not gp.what_stops(found, tried=["batch size", "clients"])
    batch, clients = gp.what_stops(found, tried=["batch size", "clients"], more=_data(16))
    assert (batch.setting, clients.setting) == ("16 samples", "2 clients")
    assert batch.samples == clients.samples == 16


def test_out_of_time_is_said(found: gp.Audit) -> None:
    (trial,) = gp.what_stops(found, tried=["guard"], seconds=0)
    assert (trial.stops, trial.verdict) == (None, "not finished in time")


def test_an_unknown_defence_is_refused(found: gp.Audit) -> None:
    with pytest.raises(InputError, match="tried='hope'"):
        gp.what_stops(found, tried=["hope"])


def test_the_page_shows_it(found: gp.Audit) -> None:
    stopping = gp.what_stops(found, tried=["clip", "guard"])
    page = gp.report(found, stopping=stopping)
    assert "What would stop this?" in page.html
    assert "1 of 2 defences stopped this attack at the setting shown." in page.html
    assert "1 of 2 defences stopped this attack at the setting shown." in str(stopping.verdict)
    assert "is safe" not in page.html.split('id="remedies"')[1].split("</section>")[0]
    assert "What would stop this?" not in gp.report(found).html
