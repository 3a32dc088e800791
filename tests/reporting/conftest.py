from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any, Literal

import numpy as np
import pytest
import torch
from rich.console import Console, RenderableType

from gradpeel import Attacker, Audit, Client, audit
from gradpeel.datasets import Dataset, draw_batch, load
from gradpeel.networks import mlp


def audited(
    data: Dataset,
    batch_size: int,
    neurons: int,
    *,
    copies: int = 0,
    init: Literal["paper", "torch"] = "paper",
    client: Client = Client(),  # noqa: B008 - immutable
    **settings: Any,
) -> Audit:
    """Audit the first samples of a set, the first few of them once more."""
    batch = draw_batch(data, batch_size)
    x, y = (torch.cat([all_of, all_of[:copies]]) for all_of in (batch.x, batch.y))
    model = mlp(
        data.features,
        data.classes,
        (neurons,),
        rng=np.random.default_rng(0),
        init=init,
        sample_shape=data.sample_shape,
    )
    settings = {"effort": 0.0, "data_range": data.data_range, **settings}
    return audit(model, x, y, client=client, attacker=Attacker(**settings))


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="session")
def patients() -> Dataset:
    return load("breast_cancer")


@pytest.fixture(scope="session")
def whole(digits: Dataset) -> Audit:
    """Everything recovered."""
    found = audited(digits, 8, 200)
    assert found.score.recovered == 8
    return found


@pytest.fixture(scope="session")
def part(digits: Dataset) -> Audit:
    """Some recovered, some not, in several rounds."""
    found = audited(digits, 40, 200)
    assert 0 < found.score.recovered < 40
    assert found.recovery.cascade_length > 1
    return found


@pytest.fixture(scope="session")
def nothing(digits: Dataset) -> Audit:
    found = audited(digits, 8, 3)
    assert found.score.recovered == 0
    return found


@pytest.fixture(scope="session")
def by_rows(digits: Dataset) -> Audit:
    """More than half recovered by the row cascade."""
    found = audited(digits, 48, 300, init="torch", effort=1.0)
    assert found.recovery.found_by_rows > 24
    return found


@pytest.fixture(scope="session")
def doubled(digits: Dataset) -> Audit:
    """Eight samples, three of them twice, all recovered."""
    found = audited(digits, 8, 200, copies=3)
    assert found.score.recovered == 11
    assert len(found.recovery) == 8
    return found


@pytest.fixture(scope="session")
def unlabelled(digits: Dataset) -> Audit:
    """Everything recovered by a decoder that knows neither tail nor batch size."""
    found = audited(digits, 8, 200, knows_tail=False, knows_batch_size=False)
    assert found.score.recovered == found.score.unlabelled == 8
    return found


@pytest.fixture(scope="session")
def records(patients: Dataset) -> Audit:
    """Not pictures."""
    found = audited(patients, 12, 300)
    assert found.score.recovered == 12
    return found


@pytest.fixture
def printed() -> Callable[[RenderableType], str]:
    """What a terminal of 80 columns without colours shows."""

    def show(renderable: RenderableType) -> str:
        console = Console(file=StringIO(), width=80)
        console.print(renderable)
        assert isinstance(console.file, StringIO)
        return console.file.getvalue()

    return show
