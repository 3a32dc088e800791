from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradpeel import Client
from gradpeel.designs import PAPER_METHODS
from gradpeel.sweeps import Cell, Measurement

CELL = Cell(dataset="mnist", design="soliton-data", weights="mirrored", batch_size=64)

OTHER: dict[str, Any] = {
    "dataset": "svhn",
    "design": "soliton-free",
    "weights": "independent",
    "init": "torch",
    "scale": 0.5,
    "soliton": (0.1, 0.5),
    "batch_size": 65,
    "clients": 4,
    "neurons": 1001,
    "tail": (32,),
    "dtype": "float32",
    "noise": 1e-6,
    "defence": "clip:1",
    "effort": 1.0,
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "local_steps": 5,
    "local_epochs": 2,
    "local_batch_size": 16,
    "shuffle": False,
    "seed": 1,
}


def test_the_key_is_the_same_on_every_machine() -> None:
    assert CELL.key == "dcf9b33d1eb09d2a3d5090dc"
    assert replace(CELL).key == CELL.key


@pytest.mark.parametrize("setting", [field.name for field in fields(Cell)])
def test_every_setting_counts_for_the_key(setting: str) -> None:
    assert replace(CELL, **{setting: OTHER[setting]}).key != CELL.key


@given(
    tail=st.lists(st.integers(1, 99), max_size=3).map(tuple),
    noise=st.floats(0, 1),
    soliton=st.none() | st.tuples(st.floats(0.01, 1), st.floats(0.01, 0.9)),
)
def test_settings_come_back_from_json(
    tail: tuple[int, ...], noise: float, soliton: tuple[float, float] | None
) -> None:
    cell = replace(CELL, tail=tail, noise=noise, soliton=soliton)
    again = Cell.from_settings(json.loads(json.dumps(cell.settings)))
    assert again == cell
    assert again.key == cell.key


def test_the_row_cascade_is_a_method_of_its_own() -> None:
    assert replace(CELL, effort=1.0).method == CELL.method + "+Rows"
    assert "effort" not in str(replace(CELL, effort=1.0))
    assert "effort 2.5" in str(replace(CELL, effort=2.5))


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_methods_have_the_names_of_the_paper(method: str) -> None:
    options = PAPER_METHODS[method]
    cell = Cell(dataset="mnist", design=options.design, weights=options.weights, batch_size=8)
    assert cell.method == method


def test_what_differs_is_told() -> None:
    cell = replace(CELL, tail=(64, 32), dtype="float32", noise=1e-6, seed=7)
    assert str(cell) == "mnist SD-Mir B=64 N=1000 tail 64,32 float32 noise 1e-06 seed 7"


def test_local_training_is_told() -> None:
    cell = replace(CELL, lr=0.1, local_steps=5, local_batch_size=16, weight_decay=1e-4)
    told = "lr 0.1 local steps 5 local batch size 16 weight decay 0.0001"
    assert str(cell) == f"mnist SD-Mir B=64 N=1000 {told} seed 0"
    assert cell.client == Client(
        dtype=torch.float64, lr=0.1, local_steps=5, local_batch_size=16, weight_decay=1e-4
    )
    assert CELL.client == Client(dtype=torch.float64)


def test_settings_and_measurements_can_stand_in_one_table() -> None:
    assert not {one.name for one in fields(Cell)} & {one.name for one in fields(Measurement)}
