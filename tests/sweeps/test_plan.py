from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradpeel.datasets import load
from gradpeel.designs import DesignName
from gradpeel.errors import InputError
from gradpeel.sweeps import Plan
from gradpeel.sweeps.plan import DTYPE_NAMES

ONE: dict[str, Any] = {"datasets": ["digits"], "designs": ["passive"], "batch_sizes": [8]}


def subsets(values: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, unique_by=repr)


@given(
    datasets=subsets(["digits", "mnist", "mine.npz"]),
    designs=subsets(["passive", "trap-weights", "soliton-free", "soliton-data"]),
    weights=subsets(["independent", "mirrored"]),
    batch_sizes=subsets([1, 8, 64]),
    neurons=subsets([10, 1000]),
    tails=subsets([[], [5], [256, 128]]),
    dtypes=subsets(list(DTYPE_NAMES)),
    noises=subsets([0.0, 1e-6]),
    seeds=st.integers(1, 4) | subsets([0, 3, 17]),
)
@pytest.mark.slow
def test_cells_are_all_combinations(**given_: Any) -> None:
    plan = Plan(**given_)
    cells = plan.cells()
    passive = "passive" in given_["designs"]
    methods = (len(given_["designs"]) - passive) * len(given_["weights"]) + passive
    seeds = given_["seeds"] if isinstance(given_["seeds"], int) else len(given_["seeds"])
    count = methods * seeds
    for key in ("datasets", "batch_sizes", "neurons", "tails", "dtypes", "noises"):
        count *= len(given_[key])
    assert len(cells) == count
    assert len({cell.key for cell in cells}) == count
    assert plan.cells() == cells
    # One data set after the other: a worker keeps only the last ones in memory.
    order = [cell.dataset for cell in cells]
    assert order == sorted(order, key=given_["datasets"].index)


def test_a_design_gets_the_settings_it_has_and_no_others() -> None:
    every = list(DesignName)
    plan = Plan(**{**ONE, "designs": every}, init="torch", scale=0.9, soliton=[0.1, 0.5])
    told = {
        cell.design: (cell.weights, cell.init, cell.scale, cell.soliton) for cell in plan.cells()
    }
    assert told == {
        "passive": (None, "torch", None, None),
        "trap-weights": ("independent", None, 0.9, None),
        "soliton-free": ("independent", None, None, (0.1, 0.5)),
        "soliton-data": ("independent", None, None, (0.1, 0.5)),
        "tuned": ("independent", None, None, None),
        "tuned-free": ("independent", None, None, None),
        "qbi": (None, None, None, None),
        "pairs": (None, None, None, None),
    }


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"datasets": []}, r"datasets=\[\]: expected at least one"),
        ({"datasets": "digits"}, "datasets='digits': expected a list \\(names\\)"),
        ({"datasets": [3]}, "datasets=3: expected names"),
        ({"designs": []}, r"designs=\[\]: expected at least one"),
        ({"designs": ["pasive"]}, "designs='pasive': expected one of passive, trap-weights"),
        ({"weights": ["mirror"]}, "weights='mirror': expected one of independent, mirrored"),
        ({"batch_sizes": []}, r"batch_sizes=\[\]: expected at least one"),
        ({"batch_sizes": [64, 0]}, "batch_sizes=0: expected positive integers"),
        ({"batch_sizes": [64.0]}, "batch_sizes=64.0: expected positive integers"),
        ({"batch_sizes": [True]}, "batch_sizes=True: expected positive integers"),
        ({"batch_sizes": 64}, "batch_sizes=64: expected a list \\(positive integers\\)"),
        ({"batch_sizes": [64, 8, 64]}, "batch_sizes=64: expected each only once"),
        ({"neurons": [-1]}, "neurons=-1: expected positive integers"),
        ({"tails": [256]}, "tails=256: expected lists of positive integers"),
        ({"tails": [[256, 0]]}, r"tails=\[256, 0\]: expected lists of positive integers"),
        ({"dtypes": ["float8"]}, "dtypes='float8': expected one of float64, float32"),
        ({"noises": [-0.1]}, "noises=-0.1: expected finite numbers of at least 0"),
        ({"noises": [float("nan")]}, "noises=nan: expected finite numbers of at least 0"),
        ({"seeds": 0}, r"seeds=0: expected a list \(integers of at least 0; or a number of seeds"),
        ({"seeds": 10**7}, "seeds=10000000: expected a list"),
        ({"seeds": 500, "batch_sizes": list(range(1, 3000))}, "seeds=500: the grid has 1499500"),
        ({"neurons": [2**70]}, f"neurons={2**70}: expected positive integers"),
        ({"noises": [10**400]}, "noises=1000"),
        ({"scale": 10**400}, "scale=1000"),
        ({"seeds": [-1]}, "seeds=-1: expected integers of at least 0"),
        ({"seeds": [2**63]}, "seeds=9223372036854775808: expected integers"),
        ({"shuffle": "no"}, "shuffle='no': expected true or false"),
        ({"shuffle": 1}, "shuffle=1: expected true or false"),
        ({"lrs": [-0.1]}, "lrs=-0.1: expected finite numbers of at least 0"),
        ({"lrs": 0.1}, "lrs=0.1: expected a list"),
        ({"lrs": [0.1], "local_steps": [0]}, "local_steps=0: expected positive integers"),
        ({"lrs": [0.1], "local_steps": []}, r"local_steps=\[\]: expected at least one"),
        ({"lrs": [0.1], "local_batch_sizes": [1.5]}, "local_batch_sizes=1.5: expected positive"),
        ({"lrs": [0.1], "momentum": 1}, "momentum=1: expected a number from 0 to below 1"),
        ({"lrs": [0.1], "weight_decay": "x"}, "weight_decay='x': expected a number of at least 0"),
        ({"local_steps": [5]}, r"local_steps=\(5,\): only a client with a learning rate \(lrs\)"),
        ({"momentum": 0.9}, r"momentum=0.9: only a client with a learning rate \(lrs\) trains"),
        (
            {"lrs": [0.1], "local_steps": [5], "local_epochs": [1]},
            r"local_epochs=\(1,\): expected only one of local_steps and local_epochs",
        ),
        (
            {"lrs": list(range(1, 1000)), "local_steps": list(range(1, 1100))},
            "seeds=1: the grid has 1097901 cells",
        ),
        ({"init": "xavier"}, "init='xavier': expected one of paper, torch"),
        ({"scale": 1.5}, "scale=1.5: .*at most 1"),
        ({"scale": "0.9"}, "scale='0.9': expected a number"),
        ({"soliton": [0.1]}, r"soliton=\[0.1\]: expected two numbers"),
        ({"soliton": "ab"}, "soliton='ab': expected two numbers"),
        ({"soliton": [0.1, 2.0]}, r"soliton=\(0.1, 2.0\): .*below 1"),
        ({"image_size": 0}, "image_size=0: expected a positive integer"),
    ],
    ids=str,
)
def test_bad_values_are_named(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        Plan(**{**ONE, **given_})


def test_local_training_has_dimensions_of_its_own() -> None:
    plan = Plan(
        **ONE, lrs=[0, 0.01, 0.1], local_steps=[1, 5], local_batch_sizes=[4, 8], momentum=0.9
    )
    one, *trained = plan.cells()
    # Without a learning rate there is nothing to vary: one gradient, once.
    assert (one.lr, one.local_steps, one.local_batch_size, one.momentum) == (None, None, None, 0.0)
    assert [(cell.lr, cell.local_steps, cell.local_batch_size) for cell in trained] == list(
        product((0.01, 0.1), (1, 5), (4, 8))
    )
    assert {cell.momentum for cell in trained} == {0.9}
    epochs = Plan(**ONE, lrs=[0.1], local_epochs=[1, 2]).cells()
    assert [(cell.local_steps, cell.local_epochs) for cell in epochs] == [(None, 1), (None, 2)]
    (default,) = Plan(**ONE, lrs=[0.1]).cells()
    assert default.client.count_steps(64) == 1


def test_a_negative_zero_is_a_zero() -> None:
    positive, negative = (Plan(**ONE, noises=[noise]).cells()[0] for noise in (0.0, -0.0))
    assert positive.key == negative.key


def test_a_batch_beyond_the_data_is_named() -> None:
    plan = Plan(**{**ONE, "batch_sizes": [8, 5000]})
    with pytest.raises(InputError, match=r"^batch_sizes=5000: digits has 1200 training samples"):
        plan.check_against("digits", load("digits"))
