"""The one call that ties it together."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.audit import Audit, audit
from gradpeel.client import local_update
from gradpeel.decoder import Recovery, Round, peel
from gradpeel.designs import (
    PAPER_METHODS,
    Design,
    Layer,
    Passive,
    SolitonData,
    SolitonFree,
    ToRows,
    TrapWeights,
)
from gradpeel.scoring import Outcome, score
from gradpeel.target import split
from gradpeel.update import Reduction
from support import make_batch, make_model, truths_of

KEYS = {
    "design", "weights", "batch_size", "neurons", "features", "seed", "dtype", "reduction",
    "recovered", "recovery_rate", "oracle_rate", "baseline_rate", "label_accuracy",
    "false_certificates", "repeats", "rounds", "recovered_by_round", "complete", "explained",
    "mismatch", "evidence", "stopped", "max_abs_error", "median_abs_error",
    "unrecovered_but_reachable", "seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    return make_model(24, 80, 4)


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    return make_batch(24, 12, 4)


@pytest.fixture(scope="module")
def plain(model: nn.Sequential, batch: tuple[Tensor, Tensor]) -> Audit:
    return audit(model, *batch)


def numbers(found: Audit) -> dict[str, Any]:
    """What the audit says as a reader of its JSON sees it; `allow_nan` would not be JSON."""
    read: dict[str, Any] = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert read == found.as_dict()
    return read


def test_is_a_round_decoded_and_scored(plain: Audit, batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    by_hand = peel(plain.model, local_update(plain.model, x, y))
    assert torch.equal(plain.recovery.samples, by_hand.samples)
    truths = truths_of(by_hand.samples, x)
    assert plain.score.matches.tolist() == truths
    assert plain.score.oracle_rate == gp.exposure(plain.model, x).oracle_rate
    assert plain.score.recovery_rate == len(set(truths)) / 12
    assert plain.score.outcomes.count(Outcome.RECOVERED) == plain.score.recovered
    assert repr(plain) == "Audit(passive: 12 of 12 samples recovered, 0 false certificates)"


def test_its_numbers(plain: Audit) -> None:
    told = numbers(plain)
    assert set(told) == KEYS
    assert told["batch_size"] == 12
    assert (told["neurons"], told["features"]) == (80, 24)
    assert (told["design"], told["weights"]) == ("passive", "keep")
    assert (told["dtype"], told["reduction"], told["seed"]) == ("float64", "mean", 0)
    assert told["recovered"] == sum(told["recovered_by_round"]) == 12
    assert told["rounds"] == len(told["recovered_by_round"])
    assert told["recovery_rate"] == told["oracle_rate"] == told["label_accuracy"] == 1.0
    assert 0 < told["baseline_rate"] <= 1
    assert told["complete"] is True
    assert told["max_abs_error"] < 1e-9
    assert told["median_abs_error"] <= told["max_abs_error"]
    assert told["explained"] == pytest.approx(1.0)
    assert told["unrecovered_but_reachable"] == []
    assert told["seconds"] > 0


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_every_design_of_the_paper(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], method: str
) -> None:
    design = PAPER_METHODS[method](make_batch(24, 12, 4, seed=7)[0])
    found = audit(model, *batch, design=design)
    told = numbers(found)
    assert (told["design"], told["weights"]) == (design.name, design.weights)
    assert told["false_certificates"] == told["repeats"] == 0
    assert told["recovery_rate"] == told["oracle_rate"]
    assert told["label_accuracy"] in (1.0, None)
    # The layer that the client saw is the one the design gives for this seed.
    target = split(model)
    layer = design.shape(
        Layer(target.weight, target.bias),
        batch_size=12,
        rng=np.random.default_rng(0),
        front=target.front,
    )
    assert torch.equal(split(found.model).weight, layer.weight)
    assert torch.equal(split(found.model).bias, layer.bias)
    # All other layers are the user's own.
    assert torch.equal(found.model.get_parameter("2.weight"), model.get_parameter("2.weight"))


@pytest.mark.parametrize("design", [None, Passive(), SolitonFree(), TrapWeights(0.9)])
def test_the_user_s_own_model_is_left_alone(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], design: Design | None
) -> None:
    own = copy.deepcopy(model).train()
    audit(own, *batch, design=design, dtype=torch.float32)
    assert own.training
    for name, parameter in own.named_parameters():
        assert parameter.dtype == torch.float64
        assert parameter.grad is None
        assert torch.equal(parameter, model.get_parameter(name))


def test_passive_keeps_the_weights(plain: Audit, model: nn.Sequential) -> None:
    assert plain.model is not model
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, plain.model.get_parameter(name))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_both_reductions_give_the_same_samples(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], plain: Audit, reduction: Reduction
) -> None:
    found = audit(model, *batch, reduction=reduction)
    assert found.update.reduction == numbers(found)["reduction"] == reduction
    assert set(found.score.matches.tolist()) == set(plain.score.matches.tolist())
    assert found.recovery.complete


@pytest.mark.parametrize("hidden", [(), (16,)])
@pytest.mark.parametrize("seed", range(6))
def test_float32_certifies_nothing_false(seed: int, hidden: tuple[int, ...]) -> None:
    network = make_model(24, 80, 4, hidden, seed=seed)
    found = audit(network, *make_batch(24, 10, 4, seed=seed), dtype=torch.float32)
    told = numbers(found)
    assert told["dtype"] == "float32"
    assert found.update.dtype == torch.float32
    assert {p.dtype for p in found.model.parameters()} == {torch.float32}
    assert told["false_certificates"] == told["repeats"] == 0
    assert told["label_accuracy"] == 1.0
    assert told["recovery_rate"] >= 0.9 * told["oracle_rate"] > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_few_digits_are_named_as_the_reason(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], dtype: torch.dtype
) -> None:
    found = audit(model, *batch, dtype=dtype)
    missing = numbers(found)["unrecovered_but_reachable"]
    assert found.score.false_certificates == 0
    assert missing
    assert {row["why"] for row in missing} == {Outcome.COARSE.value}


def test_a_sample_without_gradient_is_explained(batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    network = make_model(24, 80, 4)
    last = network[2]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(400.0)
    y = y.clone()
    y[3] = network(x[3:4]).argmax()
    found = audit(network, x, y)
    missing = {row["sample"]: row for row in numbers(found)["unrecovered_but_reachable"]}
    assert missing[3]["why"] == Outcome.FAINT.value
    assert missing[3]["signal"] < 1e-9
    assert found.recovery.faint


def test_the_same_seed_gives_the_same_result(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    one, same, other = (audit(model, *batch, design=SolitonFree(), seed=s) for s in (3, 3, 4))
    assert torch.equal(one.recovery.samples, same.recovery.samples)
    timed = {"seconds": 0.0}
    assert one.as_dict() | timed == same.as_dict() | timed
    assert not torch.equal(split(one.model).weight, split(other.model).weight)
    assert numbers(other)["seed"] == 4


def test_does_not_touch_the_global_random_state(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    audit(model, *batch, design=SolitonFree())
    assert torch.equal(torch.rand(3), expected)


def test_reports_every_round(model: nn.Sequential, batch: tuple[Tensor, Tensor]) -> None:
    seen: list[Round] = []
    found = audit(model, *batch, on_round=seen.append)
    assert tuple(seen) == found.recovery.trace
    assert sum(step.certified for step in seen) == 12


def test_the_declared_range_reaches_the_decoder(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    assert audit(model, *batch, data_range=(0.0, 1.0)).score.recovered == 12
    none = audit(model, *batch, data_range=(2.0, 3.0))
    assert none.score.recovered == 0
    told = numbers(none)
    assert told["label_accuracy"] is None
    assert told["max_abs_error"] is None
    assert told["median_abs_error"] is None


def test_samples_keep_their_shape() -> None:
    x = torch.rand(6, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Flatten(), *make_model(24, 80, 4)).float()
    found = audit(model, x, torch.arange(6) % 4, dtype=torch.float64)
    assert found.recovery.samples.shape[1:] == (2, 3, 4)
    assert found.score.recovery_rate == found.score.oracle_rate
    assert found.score.false_certificates == 0


def test_labels_may_be_of_any_integer_dtype(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    x, y = batch
    assert audit(model, x, y.to(torch.uint8)).score.label_accuracy == 1.0


def test_false_certificates_would_be_told(plain: Audit, batch: tuple[Tensor, Tensor]) -> None:
    samples = plain.recovery.samples.clone()
    samples[0] += 0.5
    wrong: Recovery = replace(plain.recovery, samples=samples)
    judged = score(wrong, *batch, exposure=plain.exposure, signals=plain.signals, needed=1e-9)
    told = numbers(replace(plain, recovery=wrong, score=judged))
    assert told["false_certificates"] == 1
    assert told["recovered"] == 11
    assert [row["why"] for row in told["unrecovered_but_reachable"]] == [Outcome.MISSED.value]


@dataclass(frozen=True)
class Wide:
    """A design that gives a layer of another shape."""

    name = "wide"
    weights = "none"
    active = True
    adversary = "nobody"

    def shape(
        self, layer: Layer, *, batch_size: int, rng: np.random.Generator, front: ToRows
    ) -> Layer:
        del layer, batch_size, rng, front
        return Layer(torch.ones(3, 2).double(), torch.ones(3).double())


X, Y = make_batch(24, 6, 4)
MODEL = make_model(24, 20, 4)
ERRORS: list[tuple[Callable[[], object], str]] = [
    (lambda: audit(MODEL, X[:0], Y[:0]), "x: an empty batch: expected at least one sample"),
    (lambda: audit(MODEL, X, Y + 1), "y: labels "),
    (lambda: audit(MODEL, X, Y[:5]), "y: shape (5,): expected one label for each of 6 samples"),
    (lambda: audit(MODEL, X / 0, Y), "x: holds values that are not finite"),
    (
        lambda: audit(MODEL, X, Y, dtype=torch.float8_e5m2),
        "dtype=torch.float8_e5m2: expected float64, float32, bfloat16 or float16",
    ),
    (
        lambda: audit(MODEL, X, Y, design=SolitonData(torch.rand(5, 23))),
        "auxiliary: ",
    ),
    (lambda: audit(MODEL, X, Y, design=Wide()), "weight of shape (3, 2): expected (20, 24)"),
    (
        lambda: audit(MODEL, X, Y, data_range=(1.0, 1.0)),
        "data_range=(1.0, 1.0): expected the smaller value first",
    ),
    (lambda: audit(3, X, Y), "model of type int: expected a torch.nn.Module"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(gp.InputError) as caught:
        call()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "call",
    [
        lambda: audit(MODEL, X[:, :23], Y),
        lambda: audit(MODEL, X, Y, dtype=torch.int32),
        lambda: audit(MODEL, X, Y, seed=-1),
    ],
    ids=["another width", "no such dtype", "no such seed"],
)
def test_what_does_not_fit_is_told_in_a_line(call: Callable[[], object]) -> None:
    with pytest.raises(gp.InputError):
        call()


def test_a_network_that_cannot_be_audited_is_refused_with_every_reason() -> None:
    layers = [nn.Linear(24, 20, bias=False), nn.Tanh(), nn.Dropout(), nn.Linear(20, 4)]
    with pytest.raises(gp.ModelRefusedError) as caught:
        audit(nn.Sequential(*layers), X, Y)
    assert len(caught.value.reasons) >= 2
