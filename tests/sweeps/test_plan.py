from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradpeel.datasets import load
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
    every = ["passive", "trap-weights", "soliton-free", "soliton-data"]
    plan = Plan(**{**ONE, "designs": every}, init="torch", scale=0.9, soliton=[0.1, 0.5])
    told = {
        cell.design: (cell.weights, cell.init, cell.scale, cell.soliton) for cell in plan.cells()
    }
    assert told == {
        "passive": (None, "torch", None, None),
        "trap-weights": ("independent", None, 0.9, None),
        "soliton-free": ("independent", None, None, (0.1, 0.5)),
        "soliton-data": ("independent", None, None, (0.1, 0.5)),
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


def test_a_negative_zero_is_a_zero() -> None:
    positive, negative = (Plan(**ONE, noises=[noise]).cells()[0] for noise in (0.0, -0.0))
    assert positive.key == negative.key


def test_a_batch_beyond_the_data_is_named() -> None:
    plan = Plan(**{**ONE, "batch_sizes": [8, 5000]})
    with pytest.raises(InputError, match=r"^batch_sizes=5000: digits has 1200 training samples"):
        plan.check_against("digits", load("digits"))
