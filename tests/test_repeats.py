"""Repeats of an audit: what differs between them, their spread, and the curve over training."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gradpeel as gp
from gradpeel.audits import Spread
from gradpeel.designs import TrapWeights
from gradpeel.reporting import spread_summary
from gradpeel.reporting.page.spread_charts import spread_chart
from gradpeel.reporting.spread_words import verdict_of, worst_case
from support import default_model, make_batch

FEATURES, CLASSES = 20, 3
MODEL = default_model(FEATURES, 80, CLASSES)
X, Y = make_batch(FEATURES, 40, CLASSES)
PEELING = gp.Attacker(effort=0)


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 80), nn.ReLU(), nn.Linear(80, CLASSES))


def many(model: Any = MODEL, x: Any = X, y: Any = Y, **settings: Any) -> gp.Audits:
    return gp.audit_many(model, x, y, **{"attacker": PEELING, "repeats": 3, **settings})


def test_batches_are_drawn_without_replacement_and_by_the_seed() -> None:
    found = many(batch_size=6)
    assert found.varied == ("batches",)
    assert [one.score.batch_size for one in found] == [6, 6, 6]
    rows = [{tuple(row) for row in one.truth.tolist()} for one in found]
    assert all(len(own) == 6 for own in rows)
    assert rows[0] != rows[1] != rows[2]
    again = many(batch_size=6)
    assert all(torch.equal(a.truth, b.truth) for a, b in zip(found, again, strict=True))
    other = many(batch_size=6, seed=1)
    assert not torch.equal(found[0].truth, other[0].truth)


@pytest.mark.slow
def test_a_factory_initialises_again() -> None:
    before = torch.get_rng_state()
    found = many(make, X[:6], Y[:6])
    assert found.varied == ("initialisations",)
    weights = [one.model.get_parameter("0.weight") for one in found]
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(torch.get_rng_state(), before)
    again = many(make, X[:6], Y[:6])
    assert [one.score.read for one in found] == [one.score.read for one in again]
    both = many(make, batch_size=6)
    assert both.varied == ("batches", "initialisations")


def test_a_loader_gives_the_next_batch() -> None:
    found = many(x=DataLoader(TensorDataset(X, Y), batch_size=5), y=None)
    assert [one.truth.tolist() for one in found] == [
        X[start : start + 5].tolist() for start in (0, 5, 10)
    ]


def test_an_active_design_is_drawn_again() -> None:
    active = gp.Attacker(TrapWeights(), effort=0)
    found = many(x=X[:6], y=Y[:6], attacker=active)
    assert found.varied == ()
    assert len({one.seed for one in found}) == 3


def test_a_frame_keeps_its_names() -> None:
    frame = pd.DataFrame(X.numpy()).rename(columns=str).assign(y=Y.numpy())
    found = many(x=frame, y="y", batch_size=4)
    assert found[1].columns == tuple(str(place) for place in range(FEATURES))


def test_the_spread_is_that_of_the_audits() -> None:
    found = many(batch_size=16)
    read = [one.score.read for one in found]
    assert found.readable == Spread.of(read)
    assert (found.readable.least, found.readable.most) == (min(read), max(read))
    assert found.worst.score.read == max(read)
    assert found.whole_batches == sum(count == 16 for count in read)
    assert found.false_certificates == 0
    assert found[:2] == found.audits[:2]
    numbers = json.loads(json.dumps(found.as_dict()))
    assert len(numbers["audits"]) == 3
    assert numbers["recovered"]["most"] == max(one.score.recovered for one in found)


def test_every_audit_is_reported() -> None:
    seen: list[gp.Audit] = []
    found = many(batch_size=4, on_audit=seen.append)
    assert seen == list(found)


def trained(steps: tuple[int, ...]) -> dict[int, dict[str, Tensor]]:
    model, states = default_model(FEATURES, 80, CLASSES), {}
    x, y = X.float(), Y
    adam = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(max(steps) + 1):
        if step in steps:
            states[step] = {name: value.clone() for name, value in model.state_dict().items()}
        adam.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    return states


@pytest.fixture(scope="module")
def curve() -> gp.TrainingCurve:
    states = trained((0, 60))
    backwards = dict(reversed(states.items()))
    return gp.audit_checkpoints(MODEL, backwards, X, Y, batch_size=8, repeats=2, attacker=PEELING)


def test_checkpoints_are_audited_in_order_on_the_same_batches(curve: gp.TrainingCurve) -> None:
    assert curve.steps == (0, 60)
    assert len(curve) == 2
    for first, last in zip(curve[0], curve[1], strict=True):
        assert torch.equal(first.truth, last.truth)
        assert not torch.equal(
            first.model.get_parameter("0.weight"), last.model.get_parameter("0.weight")
        )
    assert not torch.equal(curve[0][0].truth, curve[0][1].truth)
    numbers = json.loads(json.dumps(curve.as_dict()))
    assert [one["step"] for one in numbers["checkpoints"]] == [0, 60]


def test_a_checkpoint_is_an_audit_of_its_weights(curve: gp.TrainingCurve) -> None:
    model = default_model(FEATURES, 80, CLASSES)
    model.load_state_dict(trained((60,))[60])
    one = curve[1][0]
    same = gp.audit(model, one.inputs, one.y, attacker=PEELING)
    assert same.as_dict() | {"seconds": 0} == one.as_dict() | {"seconds": 0}


def test_a_loader_is_read_once_for_all_checkpoints() -> None:
    states = trained((0, 1))
    loader = DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True)
    found = gp.audit_checkpoints(MODEL, states, loader, repeats=2, attacker=PEELING)
    assert torch.equal(found[0][1].truth, found[1][1].truth)


def test_what_is_said(curve: gp.TrainingCurve) -> None:
    found = many(batch_size=16)
    least, most = int(found.readable.least), int(found.readable.most)
    assert f"{least} to {most} of 16 samples" in verdict_of(found)
    assert worst_case(curve).startswith("The audit that read most (step 0")
    assert verdict_of(curve).startswith("At step 0, a server can read ")
    assert "; at step 60, " in verdict_of(curve)
    console = Console(width=100, record=True)
    console.print(spread_summary(found, data="own"))
    console.print(spread_summary(curve, data="own"))
    told = console.export_text()
    assert "Not recovered is not safe" in told
    assert "least to most" in told
    assert "the row cascade was not run" in " ".join(told.replace("│", " ").split())


def test_batches_of_different_sizes_are_compared_by_share() -> None:
    found = gp.Audits((*many(batch_size=6), *many(batch_size=9)), ("batches",))
    assert found.batch_sizes == (6, 9)
    assert "%" in verdict_of(found)


def test_the_page(curve: gp.TrainingCurve) -> None:
    page = gp.report(curve, command="gradpeel audit --data <b>")
    assert '<h2 id="spread-title">Leakage over training</h2>' in page.html
    assert "<b>" not in page.html.partition("Command:")[2]
    chart = spread_chart(curve)
    assert [name for _, name in chart.ticks] == ["0", "60"]
    first = chart.lines[0]
    assert (first.kind, len(first.marks)) == ("readable", 2)
    share = curve[0].readable_share
    mark = first.marks[0]
    assert (mark.y, mark.low, mark.high) == tuple(
        round(200 * (1 - value), 2) for value in (share.median, share.least, share.most)
    )
    assert "Spread over the repeats" in gp.report(many(batch_size=4)).html


ERRORS: list[tuple[Callable[[], object], str]] = [
    (many, "repeats=3: nothing would differ but the seed: expected batch_size, a"),
    (lambda: many(repeats=0, batch_size=4), "repeats=0: expected a positive integer"),
    (lambda: many(batch_size=0), "batch_size=0: expected a positive integer"),
    (lambda: many(batch_size=41), "batch_size=41: x has 40 samples"),
    (lambda: many(y=Y[:9], batch_size=4), "y of 9 entries: expected one for each of the 40 samp"),
    (lambda: many("net"), "model of type str: expected a torch.nn.Module"),
    (lambda: many(lambda: 3, batch_size=4), "model of type int: expected a torch.nn.Module"),
    (
        lambda: many(x=iter([(X, Y)]), y=None, batch_size=4),
        "batch_size=4: x already comes in batches: expected None",
    ),
    (lambda: many(x=iter([(X[:4], Y[:4])]), y=None), "repeats=3: x holds only 1 batches"),
    (lambda: gp.audit_checkpoints(MODEL, {}, X, Y), "checkpoints: expected at least one state"),
    (
        lambda: gp.audit_checkpoints(MODEL, {"last": {}}, X, Y),  # type: ignore[dict-item]
        "checkpoints: step 'last': expected an integer",
    ),
    (
        lambda: gp.audit_checkpoints(MODEL, {5: {}}, X, Y),
        'checkpoint 5: does not fit the network: Missing key(s) in state_dict: "0.weight"',
    ),
    (
        lambda: gp.audit_checkpoints(MODEL, {5: MODEL.state_dict()}, X, Y, repeats=2),
        "repeats=2: expected batch_size, or a DataLoader",
    ),
    (lambda: gp.report("no audit"), "audit of type str: expected a gradpeel.Audit"),  # type: ignore[call-overload]
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(gp.InputError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
