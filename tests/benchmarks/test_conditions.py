"""The conditions are what their names say, and falling short of a goal is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gradpeel as gp
from benchmarks.audits import Cell, Row, faults, measure
from benchmarks.clients import CONDITIONS, PLAIN, Condition, Goal, with_copies
from benchmarks.conditions import chosen, findings, markdown, misses, plan, tabulate
from gradpeel.datasets import Batch, draw_batch, load
from gradpeel.datasets.standard import STANDARD

ROW = Row(
    dataset="mnist",
    method="SD-Ind",
    batch_size=64,
    seed=0,
    recovered=64,
    reachable=64,
    faint=0,
    coarse=0,
    inexact=0,
    hidden=0,
    missed=0,
    beyond_bound=0,
    false_certificates=0,
    rough=0,
    repeats=0,
    wrong_copies=0,
    wrong_labels=0,
    unlabelled=0,
    wrong_estimates=0,
    rounds=1,
    batch_size_found=64,
    baseline_rate=0.5,
    max_distance=1e-9,
    max_abs_error=1e-8,
    seconds=0.5,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONDITIONS)
def test_every_condition_can_be_measured(name: str, small_data: Path) -> None:
    cell = Cell("mnist", "SD-Ind", 16, 0, name)
    row = measure(cell, small_data, neurons=500)
    assert row.cell == cell
    assert row.reachable > 0
    assert not any(faults([row]).values())
    if CONDITIONS[name].goals[0].share == 1.0:
        assert row.recovered == row.reachable
        assert row.batch_size_found == (16 if CONDITIONS[name].shows_size else 0)


def samples(name: str, size: int = 20) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    batch = draw_batch(load("digits"), size)
    return batch, *CONDITIONS[name].samples(batch, 10, rng=np.random.default_rng(0))


def network(name: str) -> nn.Sequential:
    return CONDITIONS[name].network(load("digits"), 30, rng=np.random.default_rng(0))


def test_the_plain_condition_changes_nothing() -> None:
    batch, x, y = samples(PLAIN)
    assert torch.equal(x, batch.x)
    assert torch.equal(y, batch.y)
    kinds = [type(module) for module in network(PLAIN)]
    assert kinds == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]


def test_targets_of_other_losses() -> None:
    batch, _, y = samples("mse")
    assert torch.equal(y.argmax(1), batch.y)
    assert torch.equal(y.sum(1), torch.ones(20).double())
    _, _, y = samples("bce")
    assert set(y.flatten().tolist()) == {0.0, 1.0}
    assert 50 < int(y.sum()) < 150


def test_numbers_of_classes() -> None:
    _, _, y = samples("classes-1000", 200)
    assert int(y.max()) > 500
    assert network("classes-1000")[-1].out_features == 1000


@pytest.mark.parametrize("name", ["dropout", "batch-norm"])
def test_tails_nobody_can_simulate_begin_with_a_next_layer(name: str) -> None:
    tail = gp.split(network(name)).tail
    assert tail.next_layer is not None
    assert tail.unknown is not None


def test_dropout_at_the_target_hides_the_next_layer() -> None:
    tail = gp.split(network("dropout-at-target")).tail
    assert tail.next_layer is None
    assert tail.unknown == "Dropout '3' is active"


@pytest.mark.parametrize("name", [name for name in CONDITIONS if name.startswith("tail-")])
@pytest.mark.slow
def test_tails_users_have_can_be_simulated(name: str) -> None:
    tail = gp.split(network(name)).tail
    assert tail.next_layer is not None
    assert tail.unknown is None


@pytest.mark.parametrize(("name", "kind"), [("gelu", nn.GELU), ("tanh", nn.Tanh)])
def test_only_the_target_keeps_its_relu(name: str, kind: type[nn.Module]) -> None:
    modules = list(network(f"tail-{name}-4"))
    assert sum(isinstance(module, nn.ReLU) for module in modules) == 1
    assert sum(isinstance(module, kind) for module in modules) == 4


@given(
    size=st.integers(2, 60),
    classes=st.integers(2, 9),
    share=st.floats(0.0, 0.5),
    seed=st.integers(0, 99),
)
@settings(max_examples=50)
def test_copies(size: int, classes: int, share: float, seed: int) -> None:
    x, y = torch.arange(float(size))[:, None], torch.arange(size) % classes
    rng = np.random.default_rng(seed)
    copied, labels = with_copies(x, y, classes, share=share, rng=rng)
    replaced = (copied != x)[:, 0]
    count = round(share * size)
    assert int(replaced.sum()) == count
    # Every copy is of a sample that is still there, and every other one has another label.
    originals = copied[:, 0].long()
    assert torch.equal(copied[originals], copied)
    assert int((labels != y[originals]).sum()) == count // 2
    assert torch.equal(labels[~replaced], y[~replaced])


@pytest.mark.parametrize(
    ("goal", "least"),
    [
        (Goal((), (), 1.0), 60),
        (Goal((), (), 0.95), 57),
        (Goal((), (), 1.0, margin=0.05), 55),
        (Goal((), (), 0.0), 0),
    ],
)
def test_goals(goal: Goal, least: int) -> None:
    assert goal.reached(least, reachable=60, batch_size=100)
    assert not goal.reached(least - 1, reachable=60, batch_size=100)


def test_words_of_goals() -> None:
    goals = [Goal((), ()), Goal((), (), 0.5), Goal((), (), margin=0.01), Goal((), (), 0.0)]
    words = [goal.words for goal in goals]
    assert words == ["bound", "0.5 bound", "bound - 0.01", "none false"]


@pytest.mark.parametrize(
    ("row", "missing"),
    [
        (ROW, []),
        (replace(ROW, recovered=63, faint=1), ["63 of 64 reachable, 1 faint"]),
        (replace(ROW, condition="float32", recovered=63), []),
        (replace(ROW, condition="float32", recovered=62, rough=2), ["62 of 64 reachable, 2 rough"]),
        (replace(ROW, condition="bfloat16", recovered=0, coarse=64), []),
        (
            replace(ROW, condition="unknown-batch", batch_size_found=63),
            ["batch size 63 found"],
        ),
        (
            replace(ROW, condition="unknown-batch", batch_size_found=0),
            ["batch size not found"],
        ),
        (replace(ROW, condition="mse", batch_size_found=0), []),
        (replace(ROW, condition="mse", recovered=1, reachable=1, batch_size_found=0), []),
        (
            replace(ROW, condition="unknown-batch", recovered=62, reachable=62),
            ["62 recovered, 64 in the condition float64"],
        ),
        (
            replace(ROW, condition="duplicates-5", unlabelled=3),
            ["3 samples without their number of copies"],
        ),
    ],
    ids=str,
)
def test_misses(row: Row, missing: list[str]) -> None:
    assert list(misses(row, {ROW.cell: ROW})) == missing


@pytest.mark.parametrize(
    "faulty",
    [
        replace(ROW, false_certificates=2),
        replace(ROW, repeats=2),
        replace(ROW, wrong_copies=2),
        replace(ROW, wrong_labels=2),
    ],
)
def test_faults_are_counted(faulty: Row) -> None:
    assert sorted(faults([ROW, faulty]).values()) == [0, 0, 0, 2]


def test_findings_name_what_falls_short() -> None:
    short = replace(ROW, condition="float32", recovered=40, missed=24, false_certificates=1)
    lines = list(findings([ROW, short]))
    assert "false certificates: 1" in lines
    assert "float64: 1 of 1 cells reach their goal" in lines
    assert "float32: 0 of 1 cells reach their goal, 1 false certificates" in lines
    assert "  float32 mnist SD-Ind B=64 seed 0: 40 of 64 reachable, 1 false, 24 missed" in lines


def test_table_holds_means_and_the_least() -> None:
    short = replace(ROW, dataset="cifar10", recovered=40)
    (line,) = tabulate([ROW, short])
    assert line[:7] == [PLAIN, "SD-Ind", "64", "2", "0.812", "1.000", "0.625 cifar10"]
    assert "| float64 | SD-Ind | 64 | 2 | 0.812 |" in markdown([ROW, short])


def test_table_where_nothing_can_be_reached() -> None:
    (line,) = tabulate([replace(ROW, recovered=0, reachable=0)])
    assert line[6] == "-"


def test_patterns_bring_what_they_are_compared_with() -> None:
    assert [condition.name for condition in chosen("unknown-batch")] == [PLAIN, "unknown-batch"]
    noises = [condition.noise for condition in chosen("noise-*")]
    assert noises == [1e-8, 1e-6, 1e-4, 1e-3, 1e-2]
    with pytest.raises(SystemExit, match="conditions='nois': expected some of float64, float32"):
        chosen("float32,nois")


def test_plan_is_complete_and_small_batches_come_first() -> None:
    cells = plan(CONDITIONS.values(), STANDARD, seeds=2)
    assert len(set(cells)) == len(cells)
    sizes = [cell.batch_size for cell in cells]
    assert sizes == sorted(sizes)
    assert {cell.condition for cell in cells} == set(CONDITIONS)
    float32 = [cell for cell in cells if cell.condition == "float32"]
    assert len(float32) == 8 * (2 * 4 + 2) * 2


def test_conditions_are_compared_on_batches_both_are_measured_on() -> None:
    for condition in CONDITIONS.values():
        if condition.as_good_as is not None:
            known = CONDITIONS[condition.as_good_as]
            assert batches(condition) <= batches(known)


def batches(condition: Condition) -> set[tuple[str, str, int]]:
    return {
        (dataset, method, size)
        for dataset in condition.datasets
        for goal in condition.goals
        for method in goal.methods
        for size in goal.batch_sizes
    }
