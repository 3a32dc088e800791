"""Samples in every container give the same audit; what is wrong with one is said in one line."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import gradpeel as gp
from gradpeel.coercion import as_samples, batches_of, is_stream
from gradpeel.inputs import Inputs, cast_inputs, pick, run_model
from support import make_batch, make_model

FEATURES, WIDE, CLASSES, BATCH = 12, 30, 3, 8
MODEL = make_model(FEATURES, 60, CLASSES)
X, Y = make_batch(FEATURES, BATCH, CLASSES)
NAMES = [f"column {place}" for place in range(FEATURES)]


class Sampled(Dataset[Any]):
    """A data set whose samples are dicts, as many loaders of files have them."""

    def __len__(self) -> int:
        return BATCH

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"pixels": X[place].numpy(), "label": int(Y[place])}


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from zip(X, Y.tolist(), strict=True)


def frame() -> pd.DataFrame:
    return pd.DataFrame(X.numpy(), columns=NAMES)


CONTAINERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "tensors": lambda: (X, Y),
    "arrays": lambda: (X.numpy(), Y.numpy()),
    "backwards": lambda: (X.numpy()[::-1][::-1], Y.numpy()[::-1][::-1]),
    "big-endian": lambda: (X.numpy().astype(">f8"), Y.numpy().astype(">i4")),
    "lists": lambda: (X.tolist(), Y.tolist()),
    "list of tensors": lambda: (list(X), list(Y)),
    "list of arrays": lambda: (list(X.numpy()), Y.tolist()),
    "frame": lambda: (frame(), pd.Series(Y.numpy())),
    "frame with labels": lambda: (frame().assign(sick=Y.numpy()), "sick"),
    "frame of nullable types": lambda: (frame().convert_dtypes(), Y),
    "dict": lambda: ({"input": X}, Y),
    "tuple of one": lambda: ((X,), Y),
    "data set": lambda: (TensorDataset(X, Y), None),
    "data set of dicts": lambda: (Sampled(), None),
    "iterable data set": lambda: (Streamed(), None),
    "loader": lambda: (DataLoader(TensorDataset(X, Y), batch_size=BATCH), None),
    "loader of dicts": lambda: (DataLoader(Sampled(), batch_size=BATCH), None),
    "iterator": lambda: (iter([(X, Y)]), None),
}


@cache
def plain_audit() -> gp.Audit:
    return gp.audit(MODEL, X, Y)


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_gives_the_same_audit(name: str) -> None:
    x, y = CONTAINERS[name]()
    found, plain = gp.audit(MODEL, x, y), plain_audit()
    assert torch.equal(found.truth, plain.truth)
    assert torch.equal(found.y.long(), Y)
    assert torch.equal(found.recovery.samples, plain.recovery.samples)
    numbers = [one.as_dict() | {"seconds": 0} for one in (found, plain)]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("name", CONTAINERS)
def test_all_functions_take_every_container(name: str) -> None:
    update = gp.local_update(MODEL, *CONTAINERS[name]())
    plain = gp.local_update(MODEL, X, Y)
    assert all(torch.equal(update.gradients[key], plain.gradients[key]) for key in plain.gradients)
    x, y = CONTAINERS[name]()
    x = x.drop(columns=y) if isinstance(y, str) else x
    assert torch.equal(gp.exposure(MODEL, x).grid, gp.exposure(MODEL, X).grid)
    x, y = CONTAINERS[name]()
    assert gp.contains(MODEL, plain, x, labels=y).count("in") == BATCH


@settings(max_examples=25)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    dtype=st.sampled_from(["float64", "float32", "int64", "uint8", "bool"]),
    seed=st.integers(0, 99),
)
def test_values_stay_as_they_are(shape: tuple[int, int], dtype: str, seed: int) -> None:
    """Whatever it comes in, a table keeps its numbers, and its type unless a frame holds it."""
    table = (np.random.default_rng(seed).random(shape) * 9).astype(dtype)
    model = nn.Linear(shape[1], 2)
    as_frame = pd.DataFrame(table, columns=[str(place) for place in range(shape[1])])
    for x in (table, torch.from_numpy(table), list(table), as_frame):
        taken = as_samples(model, x, None, torch.float64)
        assert isinstance(taken.x, Tensor)
        assert np.array_equal(taken.x.double().numpy(), table.astype(float))
    assert taken.columns == tuple(as_frame.columns)


def test_columns_are_named_in_the_report() -> None:
    found = gp.audit(MODEL, frame().assign(y=Y.numpy()), "y")
    assert found.columns == tuple(NAMES)
    assert gp.report(found).payload.features == tuple(NAMES)


def test_one_batch_of_a_loader_or_all() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=3)
    assert len(as_samples(MODEL, loader, None, torch.float64).x) == 3
    assert len(as_samples(MODEL, loader, None, torch.float64, every=True).x) == BATCH
    assert [len(x) for x, _ in batches_of(loader, 2)] == [3, 3]
    assert is_stream(loader)
    assert not is_stream(TensorDataset(X, Y))


class Late(nn.Module):
    """Its second input comes in behind the target."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDE, 120), nn.Linear(124, CLASSES)
        self.table = nn.Embedding(5, 4)

    def forward(self, numbers: Tensor, category: Tensor) -> Tensor:
        return self.two(torch.cat([self.one(numbers).relu(), self.table(category)], 1))  # type: ignore[no-any-return]


class Early(Late):
    """Both of its inputs enter the target."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDE + 4, 120), nn.Linear(120, CLASSES)

    def forward(self, numbers: Tensor, category: Tensor) -> Tensor:
        return self.two(self.one(torch.cat([numbers, self.table(category)], 1)).relu())  # type: ignore[no-any-return]


CATEGORY = torch.tensor([0, 3, 1, 1, 4, 2, 0, 2])
NUMBERS = torch.randn(BATCH, WIDE, generator=torch.Generator().manual_seed(0)).double()
SEVERAL: list[Any] = [
    (NUMBERS, CATEGORY),
    {"numbers": NUMBERS, "category": CATEGORY},
    {"category": CATEGORY.numpy(), "numbers": NUMBERS.numpy()},
    {"numbers": pd.DataFrame(NUMBERS.numpy()), "category": pd.Series(CATEGORY.numpy())},
]


def drawn(kind: type[nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return kind().double()


@cache
def audit_by_place(*, early: bool) -> gp.Audit:
    return gp.audit(drawn(Early if early else Late), SEVERAL[0], Y)


@pytest.mark.parametrize("place", range(1, len(SEVERAL)))
@pytest.mark.parametrize("kind", [Late, Early])
def test_networks_of_several_inputs(kind: type[nn.Module], place: int) -> None:
    model, x = drawn(kind), SEVERAL[place]
    found = gp.audit(model, x, Y)
    assert found.score.recovered == BATCH
    assert found.score.false_certificates == 0
    assert found.membership.count("in") == BATCH
    assert torch.equal(gp.exposure(model, x).grid, found.exposure.grid)
    same = audit_by_place(early=kind is Early)
    assert torch.equal(found.recovery.samples, same.recovery.samples)


def test_the_input_that_reaches_the_target_comes_back() -> None:
    found = audit_by_place(early=False)
    assert (found.recovery.space, found.entry) == ("input", "numbers")
    assert torch.equal(found.truth, NUMBERS)
    assert found.without_tail == "input 'category' enters the network behind the target"
    assert found.as_dict()["entry"] == "numbers"
    assert "input <code>numbers</code> of each sample" in gp.report(found).html
    features = audit_by_place(early=True)
    assert (features.recovery.space, features.entry) == ("features", None)


@pytest.mark.parametrize("kind", [Late, Early])
def test_several_inputs_in_other_rounds(kind: type[nn.Module]) -> None:
    model = drawn(kind)
    two = gp.audit(model, (NUMBERS, CATEGORY), Y, aggregation=gp.Aggregation(2))
    assert two.score.recovered == BATCH
    loader = DataLoader(TensorDataset(NUMBERS, CATEGORY, Y), batch_size=4)
    found = gp.audit_many(model, loader, repeats=2)
    assert [one.score.batch_size for one in found] == [4, 4]
    assert found.false_certificates == 0
    assert found.readable.most == 4


@pytest.mark.slow
def test_local_steps_of_several_inputs() -> None:
    client = gp.Client(lr=0.01, local_steps=3, local_batch_size=4)
    peeling = gp.Attacker(effort=0)
    found = gp.audit(drawn(Late), (NUMBERS, CATEGORY), Y, client=client, attacker=peeling)
    assert found.local_steps == 3
    assert found.score.read >= 1
    assert found.score.false_certificates == 0


def test_copies_of_several_inputs_are_copies_in_all_of_them() -> None:
    model = drawn(Early)
    doubled = torch.cat([NUMBERS[:2], NUMBERS[:1], NUMBERS[:1]]), torch.tensor([0, 1, 0, 2])
    assert gp.exposure(model, doubled).copies.tolist() == [0, 1, 0, 3]


def test_inputs_are_handled_like_one_tensor() -> None:
    x = Inputs((NUMBERS, CATEGORY), ("numbers", "category"))
    assert len(x) == len(x.cpu()) == BATCH
    assert torch.equal(x[torch.tensor([2, 0])].tensors[1], CATEGORY[[2, 0]])
    assert torch.equal(x.flip(0).tensors[0], NUMBERS.flip(0))
    assert x.flatten(1).shape == (BATCH, WIDE + 1)
    assert torch.equal(pick(x, (1, "category")), CATEGORY)
    model = drawn(Late)
    by_place = run_model(model, Inputs((NUMBERS, CATEGORY)))
    assert torch.equal(run_model(model, x), by_place)
    cast = cast_inputs(model, x, torch.float32)
    assert isinstance(cast, Inputs)
    assert [tensor.dtype for tensor in cast.tensors] == [torch.float32, torch.int64]


class Optional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model(FEATURES, 60, CLASSES)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.net(x if mask is None else x * mask)  # type: ignore[no-any-return]


def text_frame() -> pd.DataFrame:
    return frame().assign(job=list("aabbaabb"))


def holes() -> pd.DataFrame:
    table = frame().copy()  # older releases of pandas would change the array behind it
    table.iloc[2, 1] = np.nan
    return table


ERRORS: list[tuple[Callable[[], object], str]] = [
    (lambda: gp.audit(MODEL, np.array([["a", "b"]]), Y), "x of dtype <U1: expected numbers"),
    (lambda: gp.audit(MODEL, np.array([[object()]]), Y), "x of dtype object: expected numbers"),
    (lambda: gp.audit(MODEL, X, np.array(["a"])), "y of dtype <U1: expected numbers"),
    (
        lambda: gp.audit(MODEL, text_frame(), Y),
        f"x: column 'job' of dtype {text_frame()['job'].dtype}: expected numbers; gradpeel",
    ),
    (lambda: gp.audit(MODEL, holes(), Y), "x: column 'column 1': 1 of 8 values are missing: exp"),
    (
        lambda: gp.audit(MODEL, frame(), "sick"),
        "y='sick': x has no such column: it has 'column 0', 'column 1', 'column 2', 'column 3'",
    ),
    (lambda: gp.audit(MODEL, X, "sick"), "y='sick': the name of a column, but x is not a DataFr"),
    (lambda: gp.audit(MODEL, frame()[[]], Y), "x: a DataFrame without columns of features"),
    (
        lambda: gp.audit(MODEL, TensorDataset(X, Y), Y),
        "y: x of type TensorDataset brings its own labels: expected None",
    ),
    (lambda: gp.audit(MODEL, TensorDataset(X)), "y=None: expected labels or targets: x of Tensor"),
    (lambda: gp.audit(MODEL, TensorDataset(X[:0], Y[:0])), "x of type TensorDataset: holds no sam"),
    (lambda: gp.audit(MODEL, iter([])), "x of type list_iterator: holds no batch"),
    (
        lambda: gp.audit(MODEL, TensorDataset(X.repeat(2049, 1), Y.repeat(2049))),
        "x of type TensorDataset: holds more than 16384 samples: expected one batch, such as",
    ),
    (
        lambda: gp.audit(MODEL, list(itertools.chain(X, [X[0, :3]])), Y),
        "x: samples of shapes (12,), (3,): expected one shape",
    ),
    (
        lambda: gp.audit(MODEL, (X, CATEGORY), Y),
        "x holds 2 inputs: Sequential takes 1: input; a list, unlike a tuple, is taken as samples",
    ),
    (
        lambda: gp.audit(drawn(Late), {"numbers": NUMBERS}, Y),
        "x holds 1 inputs: Late takes 2: numbers, category",
    ),
    (
        lambda: gp.audit(drawn(Late), {"numbers": NUMBERS, "kind": CATEGORY}, Y),
        "x: no input 'kind': Late takes 2: numbers, category",
    ),
    (
        lambda: gp.audit(drawn(Late), (NUMBERS, CATEGORY[:3]), Y),
        "x: inputs of different numbers of samples (x[0] 8, x[1] 3)",
    ),
    (
        lambda: gp.audit(Optional(), {"x": X, "mask": X}, Y),
        "x: input 'mask' has a default value in Optional.forward, which the network is read with",
    ),
    (
        lambda: gp.audit(drawn(Late), (X / 0, CATEGORY), Y),
        "x[0]: 96 of 96 values are not finite",
    ),
    (
        lambda: gp.audit(drawn(Late), (X[:, :5], CATEGORY), Y),
        "x of shape (8, 5) enters the target as (8, 5): expected (batch, 30)",
    ),
    (
        lambda: gp.audit(drawn(Early), (X[:, :5], CATEGORY), Y),
        "x of shapes (8, 5), (8,): the model does not take it",
    ),
    (lambda: list(batches_of(iter([(X, Y)]), 3)), "repeats=3: x holds only 1 batches"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(gp.InputError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
