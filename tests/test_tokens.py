"""Layers that act on every token of a sequence, and layers that something goes around."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.datasets import load
from gradpeel.errors import InputError, ModelRefusedError
from gradpeel.reporting.captions import true_class
from gradpeel.reporting.members import membership
from gradpeel.scoring import Outcome
from gradpeel.target import split


class Transformer(nn.Module):
    """A small classifier of sequences of 5 tokens, with torch's own encoder."""

    def __init__(self, *, batch_first: bool = True, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            32, 2, 256, dropout=dropout, batch_first=batch_first, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head, self.batch_first = nn.Linear(32, 4), batch_first

    def forward(self, x: Tensor) -> Any:
        tokens = x if self.batch_first else x.transpose(0, 1)
        return self.head(self.encoder(tokens).mean(1 if self.batch_first else 0))


class Mixer(nn.Module):
    """One block of an MLP-Mixer: over tokens, then over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Sequential(nn.Linear(20, 90), nn.ReLU(), nn.Linear(90, 20))
        self.channels = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 6))
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Any:
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.channels(x)).mean(1))


class Residual(nn.Module):
    """A layer with a skip connection around it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(30, 100), nn.Linear(100, 30), nn.Linear(30, 4)

    def forward(self, x: Tensor) -> Any:
        return self.head(x + self.two(self.one(x).relu()))


class Masked(nn.Module):
    """An encoder that torch.fx cannot look into."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 2, 256, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(32, 4)
        self.mask = nn.Buffer(torch.zeros(5, 5))

    def forward(self, x: Tensor) -> Any:
        return self.head(self.encoder(x, mask=self.mask).mean(1))


def sequences(size: int, tokens: int = 5, width: int = 32) -> Tensor:
    return torch.randn(size, tokens, width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("batch_first", [True, False])
def test_tokens_are_the_samples_of_their_layer(batch_first: bool) -> None:
    torch.manual_seed(0)
    model, x = Transformer(batch_first=batch_first), sequences(2)
    target = split(model)
    assert (target.layer, target.front.space) == ("encoder.layers.0.linear1", "features")
    assert target.tail.unknown is not None
    assert "(a skip connection)" in target.tail.unknown
    assert target.tail.next_weight_name == "encoder.layers.0.linear2.weight"
    found = gp.audit(model, x, torch.tensor([1, 3]))
    assert (found.rows_per_sample, found.truth.shape) == (5, (10, 32))
    assert (found.score.recovered, found.score.false_certificates) == (10, 0)
    assert found.recovery.complete
    assert found.recovery.warnings == ()
    assert found.exposure.grid.shape == (256, 10)
    # The update states two samples, of which nobody knows how many tokens they have.
    decoded = gp.peel(model, found.update)
    assert (len(decoded), decoded.warnings) == (10, ())
    assert found.score.label_accuracy is None
    # Every row of a sample has the sample's label.
    digits = load("digits")
    assert [true_class(found, digits, row) for row in (0, 4, 5)] == ["1", "1", "3"]


def test_a_record_took_part_if_all_its_tokens_did() -> None:
    torch.manual_seed(0)
    model, x = Transformer(), sequences(4)
    update = gp.local_update(model, x[:2], torch.tensor([1, 3]))
    mixed = torch.cat([x, x[:1]])
    found = gp.contains(model, update, mixed)
    assert found.verdicts == ("in", "in", "out", "out", "in")
    assert len(found.distances) == len(found.errors) == len(found.chances) == 5


def test_a_report_says_of_every_token_whether_its_record_took_part() -> None:
    torch.manual_seed(0)
    found = gp.audit(Transformer(), sequences(2), torch.tensor([0, 1]))
    assert (len(found.membership), found.rows_per_sample) == (2, 5)
    assert "all 2 samples took part" in membership(found)
    # One token that was read is enough to know that its record took part.
    readable = torch.zeros(10, dtype=torch.bool)
    readable[7] = True
    score = replace(found.score, outcomes=(Outcome.MISSED,) * 10, readable=readable)
    assert "took part, 1 of them although" in membership(replace(found, score=score))
    other = replace(found)
    other.__dict__["membership"] = replace(
        found.membership, verdicts=("in", "unknown"), reasons=(None, "too faint")
    )
    told = [sample.membership for sample in gp.report(other).payload.samples]
    assert told == ["in"] * 5 + ["unknown"] * 5


def test_clients_own_their_tokens() -> None:
    torch.manual_seed(0)
    found = gp.audit(
        Transformer(),
        sequences(2),
        torch.tensor([1, 3]),
        aggregation=gp.Aggregation(clients=2),
    )
    assert found.owners.tolist() == [0] * 5 + [1] * 5
    assert sum(found.recovered_by_client) == found.score.recovered


def test_a_mixer_is_read_where_it_mixes_tokens() -> None:
    torch.manual_seed(0)
    model, x = Mixer(), sequences(2, tokens=20, width=6)
    found = gp.audit(model, x, torch.tensor([0, 2]))
    assert found.recovery.layer == "tokens.0"
    assert (found.rows_per_sample, found.score.false_certificates) == (6, 0)
    assert found.score.recovery_rate >= found.score.peeling_bound


def test_a_skip_connection_leaves_the_layer_readable() -> None:
    torch.manual_seed(0)
    model = Residual()
    x = torch.randn(6, 30, generator=torch.Generator().manual_seed(0))
    found = gp.audit(model, x, torch.arange(6) % 4)
    assert found.recovery.layer == "one"
    assert found.without_tail == "add takes a value around Linear 'one' (a skip connection)"
    assert (found.score.recovered, found.score.false_certificates) == (6, 0)
    assert found.membership.count("in") == 6


def test_dropout_behind_a_token_changes_nothing_about_what_enters() -> None:
    torch.manual_seed(0)
    found = gp.audit(Transformer(dropout=0.1), sequences(2), torch.tensor([1, 3]))
    assert (found.rows_per_sample, found.score.false_certificates) == (5, 0)


def test_a_layer_inside_a_part_that_is_not_looked_into_is_read_by_name() -> None:
    torch.manual_seed(0)
    model, x = Masked(), sequences(2)
    with pytest.raises(ModelRefusedError, match="Linear 'head' is followed by the output"):
        split(model)
    found = gp.audit(
        model, x, torch.tensor([1, 3]), attacker=gp.Attacker(layer="encoder.layers.0.linear1")
    )
    assert (found.rows_per_sample, found.score.false_certificates) == (5, 0)
    assert found.recovery.space == "features"


class Silent(nn.Module):
    """Has a layer that it calls only now and then, and returns two values now and then."""

    def __init__(self, *, twice: bool) -> None:
        super().__init__()
        self.one, self.two, self.twice = nn.Linear(12, 8), nn.Linear(12, 4), twice

    def forward(self, x: Tensor) -> Any:
        if x.sum() > 1e9:
            return self.one(x)
        return (self.one(x).relu(), self.two(x)) if self.twice else self.two(x)


@pytest.mark.parametrize(
    ("twice", "message"), [(True, "returns a tuple"), (False, "the model does not call it")]
)
def test_a_network_that_does_something_else_is_refused(twice: bool, message: str) -> None:
    with pytest.raises((ModelRefusedError, InputError), match=message):
        gp.audit(
            Silent(twice=twice),
            torch.rand(3, 12),
            torch.tensor([0, 1, 2]),
            attacker=gp.Attacker(layer="one"),
        )


def test_training_a_front_of_tokens_for_several_steps_is_refused() -> None:
    client = gp.Client(lr=0.1, local_steps=2)
    with pytest.raises(ModelRefusedError, match="several local steps"):
        gp.audit(Transformer(), sequences(2), torch.tensor([1, 3]), client=client)
