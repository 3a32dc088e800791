"""Tokens behind embeddings: exact, with a proof that no others fit; and what updates name."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.inversion.bags import read_bag

VOCABULARY, LENGTH = 40, 6


class Mean(nn.Module):
    """Embeddings averaged over positions."""

    def __init__(self, size: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, size)
        self.fc1 = nn.Linear(size, 120)
        self.fc2 = nn.Linear(120, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc2(self.fc1(self.embed(x).mean(1)).relu())
        return logits


class Columns(nn.Module):
    """Three categories with tables of different sizes, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(size, 3) for size in (5, 30, 12)])
        self.fc1 = nn.Linear(9, 100)
        self.fc2 = nn.Linear(100, 2)

    def forward(self, x: Tensor) -> Tensor:
        rows = [table(x[:, place]) for place, table in enumerate(self.tables)]
        logits: Tensor = self.fc2(self.fc1(torch.cat(rows, 1)).relu())
        return logits


class Table(nn.Module):
    """Codes of two categories and three numbers in one row of floats."""

    def __init__(self) -> None:
        super().__init__()
        self.town, self.trade = nn.Embedding(9, 4), nn.Embedding(30, 5)
        self.scale = nn.Linear(3, 3)
        self.fc1, self.fc2 = nn.Linear(12, 100), nn.Linear(100, 2)

    def entering(self, x: Tensor) -> list[Tensor]:
        codes = x[:, [1, 3]].long()
        return [
            self.town(codes[:, 0]), self.trade(codes[:, 1]), self.scale(x[:, [0, 2, 4]]).tanh()
        ]  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc2(self.fc1(torch.cat(self.entering(x), 1)).relu())
        return logits


class Mixed(Table):
    """The same, where a number changes what a category gives."""

    def entering(self, x: Tensor) -> list[Tensor]:
        town, trade, numbers = super().entering(x)
        return [town * x[:, :1], trade, numbers]


def table(number: int) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    rows = torch.randn((number, 5), generator=generator)
    rows[:, 1] = torch.randint(9, (number,), generator=generator).float()
    rows[:, 3] = torch.randint(30, (number,), generator=generator).float()
    return rows


def flat(size: int = 5) -> nn.Sequential:
    return nn.Sequential(
        nn.Embedding(VOCABULARY, size),
        nn.Flatten(),
        nn.Linear(LENGTH * size, 150),
        nn.ReLU(),
        nn.Linear(150, 2),
    )


def bag(mode: str) -> nn.Sequential:
    table = nn.EmbeddingBag(VOCABULARY, 24, mode=mode)
    return nn.Sequential(table, nn.Linear(24, 120), nn.ReLU(), nn.Linear(120, 2))


def drawn(number: int, length: int = LENGTH) -> Tensor:
    return torch.randint(VOCABULARY, (number, length), generator=torch.Generator().manual_seed(2))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_flattened_embeddings_give_every_token_in_its_place() -> None:
    model, x = flat(), drawn(8)
    audit = gp.audit(model, x, torch.arange(8) % 2)
    found = audit.invert()
    assert audit.score.recovered == 8
    assert found.likeness is not None
    assert found.ordered
    assert bool(found.determined.all() and found.likeness.exact.all())
    assert torch.equal(found.inputs, x[found.likeness.samples])


@pytest.mark.parametrize("mode", ["mean", "sum"])
def test_bags_give_every_token_and_how_often(mode: str) -> None:
    model, x = bag(mode), drawn(6)
    x[0] = torch.tensor([7, 7, 7, 3, 3, 1])
    audit = gp.audit(model, x, torch.arange(6) % 2)
    found = audit.invert()
    assert found.likeness is not None
    assert not found.ordered
    assert len(found) >= 5
    assert bool(found.determined.all() and found.likeness.exact.all())


def test_a_mean_over_positions_is_a_bag() -> None:
    model, x = Mean(), drawn(4)
    rows = gp.split(model).front(x)
    found = gp.invert(model, rows, sample_shape=(LENGTH,))
    assert torch.equal(found.inputs, x.sort(1).values)
    assert bool(found.determined.all())


def test_tables_of_different_sizes_stand_side_by_side() -> None:
    model = Columns()
    x = torch.tensor([[4, 29, 11], [0, 17, 3], [2, 0, 0]])
    found = gp.invert(model, gp.split(model).front(x), sample_shape=(3,))
    assert torch.equal(found.inputs, x)
    assert bool(found.determined.all())


def test_categories_beside_numbers_are_looked_up_and_the_numbers_solved_for() -> None:
    model, x = Table(), table(6)
    audit = gp.audit(model, x, torch.arange(6) % 2)
    found = audit.invert()
    assert audit.score.recovered == 6
    assert found.likeness is not None
    assert bool(found.determined.all())
    same = x[found.likeness.samples]
    assert torch.equal(found.inputs[:, [1, 3]], same[:, [1, 3]])
    assert torch.allclose(found.inputs, same, atol=1e-4)


def test_an_equal_row_of_a_category_is_no_proof() -> None:
    model, x = Table(), table(2)
    with torch.no_grad():
        model.town.weight[int(x[0, 1])] = model.town.weight[(int(x[0, 1]) + 1) % 9]
    found = gp.invert(model, gp.split(model).front(x), sample_shape=(5,))
    assert float(found.residuals.max()) < 1e-5
    assert found.determined.tolist()[0] is False


def test_numbers_that_features_do_not_show_are_not_determined() -> None:
    model, x = Table(), table(2)
    with torch.no_grad():
        model.scale.weight[2] = 0.0
    found = gp.invert(model, gp.split(model).front(x), sample_shape=(5,))
    assert torch.equal(found.inputs[:, [1, 3]], x[:, [1, 3]])
    assert not found.determined.any()


def test_categories_that_numbers_change_are_refused() -> None:
    model = Mixed()
    rows = gp.split(model).front(table(2))
    with pytest.raises(gp.InputError, match="features of the categories depend on other columns"):
        gp.invert(model, rows, sample_shape=(5,))


def test_several_inputs_are_refused_with_the_way_on() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = Table()

        def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
            rows = torch.cat([numbers, codes, codes], 1)[:, [0, 3, 1, 4, 2]]
            logits: Tensor = self.table(rows)
            return logits

    x = (torch.randint(9, (4, 1)), torch.randn(4, 3))
    with pytest.raises(gp.InputError, match="x of several inputs: expected one tensor; wrap the"):
        gp.audit(Two(), x, torch.arange(4) % 2).invert()


def test_codes_alone_in_floats_are_tokens() -> None:
    class Codes(Columns):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.long())

    model, x = Codes(), torch.tensor([[4.0, 29.0, 11.0], [0.0, 17.0, 3.0]])
    found = gp.invert(model, gp.split(model).front(x), sample_shape=(3,))
    assert torch.equal(found.inputs, x.long())
    assert bool(found.determined.all())


def test_frozen_tables_are_read_too() -> None:
    model, x = flat(), drawn(2)
    model[0].requires_grad_(requires_grad=False)
    found = gp.invert(model, gp.split(model).front(x), sample_shape=(LENGTH,))
    assert torch.equal(found.inputs, x)


def test_two_equal_rows_of_a_vocabulary_are_no_proof() -> None:
    model, x = flat(), drawn(2)
    with torch.no_grad():
        rows = model.get_parameter("0.weight")
        rows[int(x[0, 0])] = rows[(int(x[0, 0]) + 1) % VOCABULARY]
    found = gp.invert(model, gp.split(model).front(x), sample_shape=(LENGTH,))
    assert float(found.residuals.max()) < 1e-6
    assert found.determined.tolist()[0] is False


def test_features_of_no_tokens_are_not_determined() -> None:
    model = flat()
    found = gp.invert(model, torch.randn(2, 30), sample_shape=(LENGTH,))
    assert not found.determined.any()
    assert float(found.residuals.min()) > 0.1


def test_a_bag_of_more_tokens_than_equations_is_proven_only_with_the_update() -> None:
    # Three features and the length are four equations for twelve tokens.
    torch.manual_seed(1)
    table = nn.EmbeddingBag(VOCABULARY, 3, mode="sum")
    model = nn.Sequential(table, nn.Linear(3, 200), nn.ReLU(), nn.Linear(200, 2))
    x, y = torch.tensor([[5, 9, 5, 5, 9, 30] * 2]), torch.tensor([1])
    rows = gp.split(model).front(x)
    alone = gp.invert(model, rows, sample_shape=(12,))
    update = gp.local_update(model, x, y)
    assert gp.leaked_tokens(model, update)["0"].tolist() == [5, 9, 30]
    helped = gp.invert(model, rows, sample_shape=(12,), update=update)
    assert not alone.determined.any()
    assert bool(helped.determined.all())
    assert Counter(helped.inputs[0].tolist()) == {5: 6, 9: 4, 30: 2}


def test_a_front_that_mixes_positions_is_refused() -> None:
    model = nn.Sequential(
        nn.Embedding(VOCABULARY, 4), nn.Flatten(), nn.Tanh(), nn.Linear(24, 20), nn.Tanh(),
        nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 2),
    )  # fmt: skip
    rows = gp.split(model).front(drawn(2))
    with pytest.raises(gp.InputError, match="its features mix the positions of tokens: expected"):
        gp.invert(model, rows, sample_shape=(LENGTH,))


def test_tokens_of_another_length_are_refused() -> None:
    with pytest.raises(gp.InputError, match=r"sample_shape=\(4,\): the model does not take such"):
        gp.invert(flat(), torch.zeros(1, 30), sample_shape=(4,))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_a_proven_bag_is_the_only_one(seed: int, length: int) -> None:
    """The proof against an obvious search over all bags."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn((9, 2), generator=generator, dtype=torch.float64)
    chosen = torch.randint(9, (length,), generator=generator)
    total, error = rows[chosen].sum(0), 0.05
    counts, is_unique = read_bag(rows, total, length, error)
    assert int(counts.sum()) == length
    fitting = [
        tokens
        for tokens in combinations_with_replacement(range(9), length)
        if float((rows[list(tokens)].sum(0) - total).norm()) <= error
    ]
    assert tuple(sorted(chosen.tolist())) in fitting
    if is_unique:
        assert fitting == [tuple(torch.arange(9).repeat_interleave(counts).tolist())]


def test_an_update_names_the_tokens_of_its_batch() -> None:
    model, x = flat(), drawn(5)
    update = gp.local_update(model, x, torch.arange(5) % 2)
    assert gp.leaked_tokens(model, update)["0"].tolist() == sorted(set(x.flatten().tolist()))
    audit = gp.audit(model, x, torch.arange(5) % 2)
    assert audit.as_dict()["leaked_tokens"] == {"0": len(set(x.flatten().tolist()))}


def test_noise_on_every_row_names_nothing() -> None:
    model, x = flat(), drawn(5)
    update = gp.local_update(model, x, torch.arange(5) % 2, gp.Client(noise=1e-3))
    assert gp.leaked_tokens(model, update) == {}


def test_leaked_tokens_refuse_what_is_no_update() -> None:
    with pytest.raises(gp.InputError, match="update of type dict: expected"):
        gp.leaked_tokens(flat(), {})  # type: ignore[arg-type]
    wrong = gp.Update({"0.weight": torch.zeros(3, 5)})
    with pytest.raises(gp.InputError, match=r"update: 0.weight of shape \(3, 5\): expected \(40"):
        gp.leaked_tokens(flat(), wrong)
