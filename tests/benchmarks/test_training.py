from __future__ import annotations

import torch

import gradpeel as gp
from benchmarks import training
from gradpeel.datasets import load


def test_checkpoints_are_those_of_one_run_and_the_table_has_a_row_each() -> None:
    data = load("digits")
    model, states = training.train(data, (0, 2))
    assert list(states) == [0, 2]
    assert not torch.equal(states[0]["1.weight"], states[2]["1.weight"])
    again = training.train(data, (0, 2))[1]
    assert torch.equal(states[2]["1.weight"], again[2]["1.weight"])
    x, y = data.x_test[:4], data.y_test[:4]
    curve = gp.audit_checkpoints(model, states, x, y, attacker=gp.Attacker(effort=0))
    rows = [line for line in training.table(curve).splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| 0", "| 2"]


def test_a_cell_shows_the_spread_where_there_is_one() -> None:
    assert training._cell([9, 3, 4]) == "4 (3 to 9)"
    assert training._cell([32, 32]) == "32"
