"""The one call that ties it together."""

from __future__ import annotations

import copy
import json
import math
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
from gradpeel.decoder.limits import LIMITS
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
from gradpeel.losses import BinaryCrossEntropy, CrossEntropy, Loss, MeanSquaredError
from gradpeel.reporting.reasons import missing as reasons_of
from gradpeel.rounding import rounding_of
from gradpeel.scoring import Outcome, score
from gradpeel.target import split
from gradpeel.training import LocalTraining
from gradpeel.update import Reduction
from support import default_model, make_batch, make_model, truths_of

KEYS = {
    "design", "weights", "batch_size", "neurons", "features", "seed", "dtype", "reduction", "loss",
    "noise", "defences", "without_tail", "recovered", "recovery_rate", "peeling_bound",
    "baseline_rate", "label_accuracy", "false_certificates", "inexact_certificates", "repeats",
    "wrong_multiplicities", "error_estimates_hold", "rounds", "recovered_by_round",
    "recovered_by_rows",
    "batch_size_by_weight", "batch_size_stated", "batch_size_proven", "candidates_tested",
    "readable", "complete", "explained", "mismatch", "evidence", "copies", "unlabelled", "stopped",
    "warnings", "max_abs_error",
    "leaked_tokens",
    "median_abs_error", "unrecovered_but_reachable", "seconds",
    "lr", "momentum", "weight_decay", "local_steps", "local_epochs", "local_batch_size",
    "clients", "recovered_by_client",
    "knows_batch_size", "knows_tail", "data_range", "effort", "space", "layer", "entry",
    "membership", "wrong_memberships",
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
    assert plain.score.peeling_bound == gp.exposure(plain.model, x).peeling_bound
    assert plain.score.recovery_rate == len(set(truths)) / 12
    assert plain.score.outcomes.count(Outcome.RECOVERED) == plain.score.recovered
    assert repr(plain) == (
        "Audit(passive: 12 of 12 samples recovered, 12 readable, 0 false certificates)"
    )


def test_its_numbers(plain: Audit) -> None:
    told = numbers(plain)
    assert set(told) == KEYS
    assert told["batch_size"] == 12
    assert (told["neurons"], told["features"]) == (80, 24)
    assert (told["design"], told["weights"]) == ("passive", "keep")
    assert (told["dtype"], told["reduction"], told["seed"]) == ("float64", "mean", 0)
    assert (told["loss"], told["noise"], told["without_tail"]) == ("cross-entropy", 0.0, None)
    assert told["batch_size_proven"] == told["batch_size_stated"] == told["readable"] == 12
    assert told["batch_size_by_weight"] == 12
    assert told["candidates_tested"] >= 12
    assert told["inexact_certificates"] == told["wrong_multiplicities"] == 0
    assert told["copies"] == told["unlabelled"] == 0
    assert told["error_estimates_hold"] == 1.0
    assert told["evidence"]["next layer"] == 12
    assert told["warnings"] == []
    assert told["recovered"] == sum(told["recovered_by_round"]) == 12
    assert told["rounds"] == len(told["recovered_by_round"])
    assert told["recovery_rate"] == told["peeling_bound"] == told["label_accuracy"] == 1.0
    assert 0 < told["baseline_rate"] <= 1
    assert told["complete"] is True
    assert told["max_abs_error"] < 1e-9
    assert told["membership"] == plain.membership.as_dict()
    assert (told["membership"]["in"], told["wrong_memberships"]) == (12, 0)
    assert told["median_abs_error"] <= told["max_abs_error"]
    assert told["explained"] == pytest.approx(1.0)
    assert told["unrecovered_but_reachable"] == []
    assert told["clients"] == 1
    assert told["recovered_by_client"] == [12]
    assert told["seconds"] > 0


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_every_design_of_the_paper(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], method: str
) -> None:
    design = PAPER_METHODS[method].build(make_batch(24, 12, 4, seed=7)[0])
    found = audit(model, *batch, attacker=gp.Attacker(design, effort=0.0))
    told = numbers(found)
    assert (told["design"], told["weights"]) == (design.name, design.weights)
    assert told["false_certificates"] == told["repeats"] == 0
    assert told["recovery_rate"] == told["peeling_bound"]
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


@pytest.mark.parametrize("design", [Passive(), SolitonFree(), TrapWeights(0.9)])
def test_the_user_s_own_model_is_left_alone(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], design: Design
) -> None:
    own = copy.deepcopy(model).train()
    audit(own, *batch, client=gp.Client(dtype=torch.float32), attacker=gp.Attacker(design))
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
    found = audit(model, *batch, client=gp.Client(reduction=reduction))
    assert found.update.reduction == numbers(found)["reduction"] == reduction
    assert set(found.score.matches.tolist()) == set(plain.score.matches.tolist())
    assert found.recovery.complete


@pytest.mark.parametrize("hidden", [(), (16,)])
@pytest.mark.parametrize("seed", range(6))
def test_float32_certifies_nothing_false(seed: int, hidden: tuple[int, ...]) -> None:
    network = make_model(24, 80, 4, hidden, seed=seed)
    found = audit(network, *make_batch(24, 10, 4, seed=seed), client=gp.Client(dtype=torch.float32))
    told = numbers(found)
    assert told["dtype"] == "float32"
    assert found.update.dtype == torch.float32
    assert {p.dtype for p in found.model.parameters()} == {torch.float32}
    assert told["false_certificates"] == told["repeats"] == 0
    assert told["label_accuracy"] == 1.0
    assert told["recovery_rate"] >= 0.9 * told["peeling_bound"] > 0


@pytest.mark.parametrize("setting", [{"dtype": torch.bfloat16}, {"noise": 0.01}], ids=str)
def test_few_digits_are_named_as_the_reason(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], setting: dict[str, Any]
) -> None:
    found = audit(model, *batch, client=gp.Client(**setting))
    missing = numbers(found)["unrecovered_but_reachable"]
    assert found.score.false_certificates == 0
    assert missing
    assert {row["why"] for row in missing} == {Outcome.COARSE.value}


def test_noise_is_added_to_what_the_client_computed(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    found = audit(model, *batch, client=gp.Client(noise=1e-6), seed=5)
    expected = gp.with_noise(local_update(model, *batch), 1e-6, seed=5)
    assert found.update.gradients.keys() == expected.gradients.keys()
    for name, gradient in expected.gradients.items():
        assert torch.equal(found.update.gradients[name], gradient)
    told = numbers(found)
    assert told["noise"] == 1e-6
    assert told["recovery_rate"] == told["label_accuracy"] == 1.0
    assert 1e-8 < told["max_abs_error"] < 1e-3


def test_noise_is_named_as_the_reason_where_it_is_one() -> None:
    network = make_model(24, 80, 4, seed=5)
    found = audit(network, *make_batch(24, 12, 4, seed=5), client=gp.Client(noise=1e-3))
    missing = numbers(found)["unrecovered_but_reachable"]
    assert missing
    for row in missing:
        assert (row["why"] == Outcome.FAINT.value) == (
            row["signal"] < LIMITS.clear * LIMITS.rounding * 1e-3
        )


def test_the_rounding_of_weights_is_named_as_the_reason_where_it_is_one(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    """In float32 a step at a small learning rate changes weights by few of their digits."""
    small = gp.Client(dtype=torch.float32, lr=1e-4, local_steps=1)
    found = audit(model, *batch, client=small)
    missing = numbers(found)["unrecovered_but_reachable"]
    assert len(missing) == 12
    assert {row["why"] for row in missing} == {Outcome.COARSE.value}
    # Some can be read; none is proven.
    (reason,) = [words for name, words in reasons_of(found) if name.endswith("not provable")]
    assert reason == (
        "within reach of peeling, but a difference of float32 weights at learning rate 0.0001 "
        "keeps fewer digits than a certificate needs"
    )
    # The same step in float64 leaves enough of them.
    assert audit(model, *batch, client=replace(small, dtype=torch.float64)).score.recovered == 12


def test_samples_are_faint_beside_the_rounding_of_weights() -> None:
    network, (x, y) = default_model(24, 80, 4), make_batch(24, 12, 4)
    client = gp.Client(dtype=torch.float32, lr=1e-3, local_steps=1)
    found = audit(network, x, y, client=client)
    weight, gradient = split(found.model).weight, found.update.gradients["0.weight"]
    rounding = rounding_of(weight, torch.float32, found.update.training or LocalTraining(1.0))
    relative = float(rounding.square().mean().sqrt() / gradient.double().std())
    needed = LIMITS.clear * LIMITS.rounding * relative
    missing = numbers(found)["unrecovered_but_reachable"]
    assert {row["why"] == Outcome.FAINT.value for row in missing} == {True, False}
    for row in missing:
        assert (row["why"] == Outcome.FAINT.value) == (row["signal"] < needed)


def test_a_batch_size_that_nobody_states_is_found(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], plain: Audit
) -> None:
    found = audit(model, *batch, attacker=gp.Attacker(knows_batch_size=False))
    assert found.update.batch_size is None
    told = numbers(found)
    assert (told["batch_size_stated"], told["batch_size_by_weight"]) == (None, 12)
    assert told["batch_size_proven"] is None
    assert told["batch_size"] == 12
    assert set(found.score.matches.tolist()) == set(plain.score.matches.tolist())
    assert told["label_accuracy"] == 1.0


@pytest.mark.parametrize("knows_batch_size", [True, False])
def test_without_the_tail_samples_come_back_without_labels(
    batch: tuple[Tensor, Tensor], *, knows_batch_size: bool
) -> None:
    wide = make_model(24, 400, 4)
    found = audit(
        wide, *batch, attacker=gp.Attacker(knows_tail=False, knows_batch_size=knows_batch_size)
    )
    told = numbers(found)
    assert told["without_tail"] == "kept from the decoder"
    assert told["recovery_rate"] == told["peeling_bound"] == 1.0
    assert told["label_accuracy"] is None
    assert told["unlabelled"] == 12
    assert told["false_certificates"] == told["repeats"] == 0
    assert "bias equation" not in told["evidence"]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss", [MeanSquaredError(), BinaryCrossEntropy()], ids=str)
def test_losses_without_labels(
    batch: tuple[Tensor, Tensor], loss: Loss, reduction: Reduction
) -> None:
    model = make_model(24, 400, 4)
    targets = torch.rand(12, 4, generator=torch.Generator().manual_seed(0)).round()
    found = audit(model, batch[0], targets, client=gp.Client(loss=loss, reduction=reduction))
    assert found.loss is loss
    told = numbers(found)
    assert told["loss"] == loss.name
    assert told["without_tail"] == f"{loss.name} has no class labels to tell"
    assert told["recovery_rate"] == told["peeling_bound"] == 1.0
    assert told["label_accuracy"] is None
    assert told["false_certificates"] == 0
    assert bool((found.signals > 0).all())


@pytest.mark.parametrize(
    "loss",
    [CrossEntropy(label_smoothing=0.2), CrossEntropy(class_weights=(1.0, 2.0, 0.5, 3.0))],
    ids=["smoothing", "weights"],
)
def test_declared_settings_of_the_loss_reach_client_and_decoder(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], loss: Loss
) -> None:
    found = audit(model, *batch, client=gp.Client(loss=loss))
    expected = local_update(model, *batch, gp.Client(loss=loss)).gradients["2.bias"]
    assert torch.equal(found.update.gradients["2.bias"], expected)
    assert found.score.recovery_rate == found.score.label_accuracy == 1.0


def test_a_tail_in_training_mode_is_audited_as_it_is(batch: tuple[Tensor, Tensor]) -> None:
    first, relu, second, again, last = make_model(24, 400, 4, (20,))
    tail = [second, nn.BatchNorm1d(20), again, nn.Dropout(0.5), last]
    network = nn.Sequential(first, relu, *tail).double().train()
    one, same, other = (audit(network, *batch, seed=seed) for seed in (3, 3, 4))
    assert one.model.training
    assert torch.equal(one.update.gradients["6.bias"], same.update.gradients["6.bias"])
    assert not torch.equal(one.update.gradients["6.bias"], other.update.gradients["6.bias"])
    told = numbers(one)
    assert "BatchNorm1d '3'" in told["without_tail"]
    assert "Dropout '5'" in told["without_tail"]
    assert told["recovery_rate"] == told["peeling_bound"] > 0
    assert told["false_certificates"] == 0
    steady = audit(network.eval(), *batch)
    assert not steady.model.training
    assert steady.without_tail is None
    assert steady.score.label_accuracy == 1.0


def test_unknown_signals_are_null_in_json(plain: Audit) -> None:
    outcomes = (Outcome.MISSED, *plain.score.outcomes[1:])
    found = replace(
        plain,
        signals=torch.full((12,), torch.nan),
        score=replace(plain.score, outcomes=outcomes),
    )
    (row,) = numbers(found)["unrecovered_but_reachable"]
    assert row == {"sample": 0, "why": Outcome.MISSED.value, "signal": None}


def test_copies_count_for_all_of_themselves(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    x, y = batch
    again = torch.cat([x, x[:2], x[:1]]), torch.cat([y, y[:2], (y[:1] + 1) % 4])
    found = audit(model, *again)
    told = numbers(found)
    assert told["batch_size"] == told["recovered"] == 15
    assert told["recovery_rate"] == told["peeling_bound"] == told["label_accuracy"] == 1.0
    assert sum(told["recovered_by_round"]) == 12
    assert told["copies"] == 3
    assert told["repeats"] == told["wrong_multiplicities"] == 0
    assert told["complete"] is True


def test_a_sample_without_gradient_is_explained(batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    network = make_model(24, 400, 4)
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
    one, same, other = (
        audit(model, *batch, attacker=gp.Attacker(SolitonFree()), seed=s) for s in (3, 3, 4)
    )
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
    audit(model, *batch, attacker=gp.Attacker(SolitonFree()))
    assert torch.equal(torch.rand(3), expected)


def test_reports_every_round(model: nn.Sequential, batch: tuple[Tensor, Tensor]) -> None:
    seen: list[Round] = []
    found = audit(model, *batch, on_round=seen.append)
    assert tuple(seen) == found.recovery.trace
    assert sum(step.certified for step in seen) == 12


def test_the_declared_range_reaches_the_decoder(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    assert audit(model, *batch, attacker=gp.Attacker(data_range=(0.0, 1.0))).score.recovered == 12
    none = audit(model, *batch, attacker=gp.Attacker(data_range=(2.0, 3.0)))
    assert none.score.recovered == 0
    told = numbers(none)
    assert told["label_accuracy"] is None
    assert told["max_abs_error"] is None
    assert told["median_abs_error"] is None


def test_samples_keep_their_shape() -> None:
    x = torch.rand(6, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Flatten(), *make_model(24, 80, 4)).float()
    found = audit(model, x, torch.arange(6) % 4, client=gp.Client(dtype=torch.float64))
    assert found.recovery.samples.shape[1:] == (2, 3, 4)
    assert found.score.recovery_rate == found.score.peeling_bound
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


WRONG_RANGES: list[Any] = [("a", "b"), (0, "1"), (0,), (0, 1, 2), (None, 1), (0, math.nan), "01", 1]
X, Y = make_batch(24, 6, 4)
MODEL = make_model(24, 20, 4)
ERRORS: list[tuple[Callable[[], object], str]] = [
    (lambda: audit(MODEL, X[:0], Y[:0]), "x of shape (0, 24): expected (batch, *sample_shape)"),
    (lambda: audit(MODEL, X, Y + 1), "y: labels "),
    (lambda: audit(MODEL, X, Y[:5]), "y: shape (5,): expected one label for each of 6 samples"),
    (lambda: audit(MODEL, X / 0, Y), "x: 144 of 144 values are not finite"),
    (lambda: audit(MODEL, torch.tensor(1.0), Y), "x of shape (): expected (batch, *sample_shape)"),
    (lambda: audit(MODEL, "x", Y), "x of type str: expected a tensor of numbers"),
    (lambda: audit(MODEL, X, None), "y=None: expected labels or targets"),
    (lambda: audit(MODEL, X, Y[0]), "y: shape (): expected one label for each of"),
    (
        lambda: audit(MODEL, X, Y, client=gp.Client(loss=None)),  # type: ignore[arg-type]
        "loss=None: expected a loss such as gradpeel.CrossEntropy() or torch.nn.Cross",
    ),
    (
        lambda: audit(MODEL, X, Y, client=gp.Client(loss=CrossEntropy)),  # type: ignore[arg-type]
        "loss=<class 'gradpeel.losses.CrossEntropy'>: expected a loss such as",
    ),
    (
        lambda: audit(MODEL, X, Y, client=gp.Client(dtype=torch.float8_e5m2)),
        "dtype=torch.float8_e5m2: expected float64, float32, bfloat16 or float16",
    ),
    (
        lambda: audit(MODEL, X, Y, attacker=gp.Attacker(SolitonData(torch.rand(5, 23)))),
        "auxiliary: ",
    ),
    (
        lambda: audit(MODEL, X, Y, attacker=gp.Attacker(Wide())),
        "weight of shape (3, 2): expected (20, 24)",
    ),
    (
        lambda: audit(MODEL, X, Y, attacker=gp.Attacker(data_range=(1.0, 1.0))),
        "data_range=(1.0, 1.0): expected the smaller value first",
    ),
    *[
        (
            lambda given=given: audit(MODEL, X, Y, attacker=gp.Attacker(data_range=given)),
            f"data_range={given!r}: expected two numbers, the smaller one first",
        )
        for given in WRONG_RANGES
    ],
    (
        lambda: audit(MODEL, X, Y, client=gp.Client(noise="1")),  # type: ignore[arg-type]
        "noise='1': expected a number of at least 0",
    ),
    (
        lambda: audit(MODEL, X, Y, client=gp.Client(noise=None)),  # type: ignore[arg-type]
        "noise=None: expected a number of at least 0",
    ),
    (
        lambda: audit(MODEL, X, Y, client=gp.Client(noise=-1e-9)),
        "noise=-1e-09: expected a number of at least 0",
    ),
    (
        lambda: audit(MODEL, X, Y, client=gp.Client(noise=math.inf)),
        "noise=inf: expected a number of at least 0",
    ),
    (lambda: audit(MODEL, X, Y, seed=-1), "seed=-1: expected an integer of at least 0"),
    (
        lambda: audit(MODEL, X, Y, attacker=gp.Attacker(Passive)),  # type: ignore[arg-type]
        "design=<class 'gradpeel.designs.passive.Passive'>: expected a design such as",
    ),
    (
        lambda: audit(MODEL, X, Y, client=gp.Client(loss=MeanSquaredError())),
        "y: shape (6,): expected (6, 4), as the outputs have",
    ),
    (
        lambda: audit(MODEL, X, Y, client=gp.Client(loss=CrossEntropy(class_weights=(1.0, 1.0)))),
        "class_weights of 2 values: the model has 4 classes",
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
        lambda: audit(MODEL, X, Y, client=gp.Client(dtype=torch.int32)),
    ],
    ids=["another width", "no such dtype"],
)
def test_what_does_not_fit_is_told_in_a_line(call: Callable[[], object]) -> None:
    with pytest.raises(gp.InputError):
        call()


def test_a_network_that_cannot_be_audited_is_refused_with_every_reason() -> None:
    layers = [nn.Linear(24, 20, bias=False), nn.Tanh(), nn.Dropout(), nn.Linear(20, 4)]
    with pytest.raises(gp.ModelRefusedError) as caught:
        audit(nn.Sequential(*layers), X, Y)
    assert len(caught.value.reasons) >= 2


TRAINED = [
    {"lr": 0.5, "local_steps": 3},
    {"lr": 0.1, "local_epochs": 2, "local_batch_size": 5, "momentum": 0.9, "weight_decay": 1e-3},
]


@pytest.mark.parametrize("settings", TRAINED, ids=str)
@pytest.mark.slow
def test_several_local_steps_are_decoded_without_the_tail(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], settings: dict[str, Any]
) -> None:
    client = gp.Client(**settings)
    attacker = gp.Attacker(effort=0.05)
    one, same = (audit(model, *batch, client=client, attacker=attacker, seed=3) for _ in range(2))
    steps = client.count_steps(12)
    told = numbers(one)
    assert {**told, "seconds": 0.0} == {**numbers(same), "seconds": 0.0}
    assert told["without_tail"] == f"the update is the sum of the gradients of {steps} local steps"
    assert told["local_steps"] == steps
    for name in ("lr", "momentum", "weight_decay", "local_epochs", "local_batch_size"):
        assert told[name] == getattr(client, name)
    assert told["false_certificates"] == told["repeats"] == 0
    assert told["label_accuracy"] is None
    # The grid is not that of the model that was sent.
    assert not torch.equal(one.exposure.grid, gp.exposure(one.model, batch[0]).grid)
    assert one.update.training is not None
    assert one.update.training.steps == steps


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sgd", [{}, {"weight_decay": 1e-2, "momentum": 0.9}], ids=str)
def test_one_local_step_is_decoded_as_a_gradient(
    model: nn.Sequential, batch: tuple[Tensor, Tensor], dtype: torch.dtype, sgd: dict[str, float]
) -> None:
    client = gp.Client(lr=0.1, local_steps=1, dtype=dtype, **sgd)  # type: ignore[arg-type]
    found = audit(model, *batch, client=client)
    assert found.without_tail is None
    assert found.local_steps == 1
    assert found.score.false_certificates == 0
    if dtype == torch.float64:
        assert found.score.recovered == 12
        assert found.score.label_accuracy == 1
    assert found.score.read == 12
    assert torch.equal(found.exposure.grid, gp.exposure(found.model, batch[0]).grid)


def test_client_and_attacker_are_what_they_say(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    with pytest.raises(gp.InputError, match=r"^client of type dict: expected gradpeel\.Client"):
        audit(model, *batch, client={"lr": 0.1})  # type: ignore[arg-type]
    with pytest.raises(gp.InputError, match=r"^attacker of type Passive: expected"):
        audit(model, *batch, attacker=Passive())  # type: ignore[arg-type]
    for name in ("knows_batch_size", "knows_tail"):
        with pytest.raises(gp.InputError, match=rf"^{name}=1: expected True or False"):
            gp.Attacker(**{name: 1})  # type: ignore[arg-type]


def test_an_open_end_of_the_range_is_null_in_json(
    model: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    found = audit(model, *batch, attacker=gp.Attacker(data_range=(0.0, math.inf)))
    assert numbers(found)["data_range"] == [0.0, None]
