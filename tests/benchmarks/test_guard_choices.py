"""The benchmark of simpler changes than the guard's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import guard_choices, guarding


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_choices, "SAMPLES", 8)
    monkeypatch.setattr(guard_choices, "NEURONS", 120)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_each_change_stops_what_it_is_known_for(small_data: Path) -> None:
    rows = {
        change: guard_choices.measure(guard_choices.Cell("mnist", "SD-Ind", change, 0), small_data)
        for change in guard_choices.CHANGES
    }
    plain, masked, noisy, everywhere, withheld, guarded = rows.values()
    assert (plain.changed, plain.peeled, plain.readable, plain.members) == (0, 8, 8, 8)
    assert (masked.peeled, masked.readable) == (0, 8)
    assert 0 < masked.changed < 120
    assert noisy.changed == masked.changed
    assert everywhere.changed > noisy.changed
    assert withheld.readable == 0 < withheld.directions == plain.directions
    assert (withheld.members, withheld.spanned) == (0, 8)
    assert (guarded.peeled, guarded.readable, guarded.members, guarded.spanned) == (0, 0, 0, 0)
    lines = list(guard_choices.tabulate(list(rows.values())))
    assert [line[0] for line in lines] == list(guard_choices.CHANGES)
    assert lines[0][3:6] == ("1.00", "1.00", "1.00")


def test_a_direction_is_a_multiple_of_a_sample() -> None:
    x = torch.tensor([[1.0, 2.0], [2.0, -1.0], [1.0, 1.0]])
    gradient = torch.tensor([[-3.0, -6.0], [0.0, 0.0], [5.0, 4.9]])
    assert guard_choices._directions(gradient, x) == 1
    assert guard_choices._directions(torch.zeros(2, 2), x) == 0


def test_every_part_of_the_guards_list_covers_all_data_sets_and_designs() -> None:
    cells = guarding.plan(["a", "b", "c"], ["P", "S"], [32, 256], seeds=1)
    assert len(set(cells)) == len(cells) == 12
    for part in cells[:6], cells[6:]:
        assert {cell.dataset for cell in part} == {"a", "b", "c"}
        assert {cell.design for cell in part} == {"P", "S"}
        assert {cell.batch_size for cell in part} == {32, 256}
