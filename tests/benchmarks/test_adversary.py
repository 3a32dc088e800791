"""The adversary's rounds are what their names say, and a decoder that lies about them is caught."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.adversary import batches, measuring, networks, updates
from benchmarks.adversary.__main__ import available, chosen, main
from benchmarks.adversary.families import FAMILIES, ONCE_WRONG, SMALL, Cell, plan
from benchmarks.adversary.measuring import Row, decode, measure
from benchmarks.adversary.scenes import Scene, Setting, Source, plain
from benchmarks.adversary.summary import faults, findings, markdown, tabulate, tally
from benchmarks.adversary.truth import FALSE, RIGHT, Claims, Truth, Yardstick, claims_of, compare
from gradpeel.datasets import EMBEDDED
from gradpeel.datasets.standard import STANDARD
from gradpeel.decoder import Recovery
from gradpeel.decoder.recovery import BatchSize

CELL = Cell("one class", "one class", "digits", "float64", 100, 16, 0)


def available_names() -> tuple[str, ...]:
    """All data sets that a run may meet."""
    return (*EMBEDDED, *STANDARD)


def setting(
    dataset: str = "digits", neurons: int = 100, batch_size: int = 16, seed: int = 0
) -> Setting:
    source = Source.load(dataset, None)
    return Setting(source, neurons, batch_size, np.random.default_rng(seed))


# The truth.

DATA = torch.rand(100, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BATCH, LABELS = DATA[:8], torch.arange(8) % 3
YARDSTICK = Yardstick.of(DATA)


def truth(x: Tensor = BATCH, y: Tensor | None = LABELS, **changes: Any) -> Truth:
    none = torch.zeros(len(x), dtype=torch.bool)
    return replace(Truth(x=x, y=y, silent=none, absent=none), **changes)


def claim(
    samples: Tensor,
    labels: Sequence[int] | None = None,
    *,
    copies: Sequence[int] | None = None,
    label_counts: Sequence[dict[int, int]] | None = None,
    complete: bool = False,
    batch_size: int | None = None,
) -> Claims:
    count = len(samples)
    return Claims(
        samples=samples,
        labels=torch.tensor(labels or [-1] * count, dtype=torch.long),
        copies=torch.tensor(copies or [1] * count, dtype=torch.long),
        relative=False,
        label_counts=tuple(label_counts or [{}] * count),
        complete=complete,
        batch_size=batch_size,
    )


def off_by(distance: float, at: int = 0) -> Tensor:
    """A sample of the batch, moved by a share of the typical distance."""
    step = torch.randn(1, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    moved: Tensor = BATCH[at : at + 1] + step / step.norm() * distance * YARDSTICK.typical
    return moved


def test_the_unit_is_the_median_distance_between_samples() -> None:
    gaps = torch.pdist(DATA)
    assert YARDSTICK.typical == pytest.approx(float(gaps.median()))
    assert Yardstick.of(torch.cat([DATA, DATA])).typical == pytest.approx(YARDSTICK.typical)


def test_columns_are_compared_in_their_own_units_and_constants_are_ignored() -> None:
    scale = 10 ** torch.linspace(-3, 4, 20, dtype=torch.float64)
    scale[5] = 0.0
    data = DATA * scale + 7.0
    stick = Yardstick.of(data, columns=True)
    moved = data[:1].clone()
    for column in (0, 19):
        moved[0, column] += 0.5 * float(data[:, column].std())
    expected = float(stick.distances(moved, data[:1]))
    assert expected == pytest.approx(0.5 * 2**0.5 / stick.typical, rel=0.02)
    moved[0, 5] += 100.0
    assert float(stick.distances(moved, data[:1])) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("distance", "counts"),
    [
        (0.0, (1, 0, 0)),
        (0.9 * RIGHT, (1, 0, 0)),
        (1.1 * RIGHT, (0, 1, 0)),
        (0.9 * FALSE, (0, 1, 0)),
        (1.1 * FALSE, (0, 0, 1)),
        (float("nan"), (0, 0, 1)),
        (float("inf"), (0, 0, 1)),
    ],
)
def test_right_inexact_and_false(distance: float, counts: tuple[int, int, int]) -> None:
    found = compare(claim(off_by(distance)), truth(), YARDSTICK)
    assert (found.right, found.inexact, found.false) == counts
    assert found.recovered == counts[0]
    if distance < 1:
        assert found.worst == pytest.approx(distance, abs=1e-7)


@pytest.mark.parametrize("weight", [0.5, 0.8, 0.93])
def test_a_mixture_is_false(weight: float) -> None:
    mixture = weight * BATCH[:1] + (1 - weight) * BATCH[1:2]
    assert compare(claim(mixture), truth(), YARDSTICK).false == 1


def test_the_mean_of_near_duplicates_is_right_and_may_count_as_two() -> None:
    x = torch.cat([BATCH, off_by(1e-3)])
    mean = (x[:1] + x[-1:]) / 2
    both = truth(x, torch.cat([LABELS, LABELS[:1]]))
    for copies, wrong in ((1, 0), (2, 0), (3, 1)):
        found = compare(claim(mean, [0], copies=[copies]), both, YARDSTICK)
        assert (found.right, found.false, found.wrong_labels) == (1, 0, 0)
        assert found.wrong_copies == wrong
        assert found.recovered == 2


@pytest.mark.parametrize(("copies", "wrong"), [(0, 0), (1, 1), (2, 1), (3, 0), (4, 1)])
def test_numbers_of_exact_copies(copies: int, wrong: int) -> None:
    x = torch.cat([BATCH, BATCH[:1], BATCH[:1]])
    found = compare(claim(BATCH[:1], copies=[copies]), truth(x, None), YARDSTICK)
    # A list of zeros says nothing about copies.
    assert found.wrong_copies == wrong
    assert found.recovered == 3


@pytest.mark.parametrize(("pull", "wrong"), [(1e-10, 0), (1e-6, 1)])
def test_a_copy_that_leaves_no_trace_need_not_be_counted(pull: float, wrong: int) -> None:
    x = torch.cat([BATCH, BATCH[:1]])
    pulls = torch.ones(len(x), dtype=torch.float64)
    pulls[-1] = pull
    found = compare(claim(BATCH[:1], copies=[1]), truth(x, None, pull=pulls), YARDSTICK)
    assert found.wrong_copies == wrong


@pytest.mark.parametrize(
    ("label", "counts", "wrong"),
    [
        (0, {}, 0),
        (-1, {}, 0),
        (1, {}, 1),
        (0, {0: 1, 2: 1}, 0),
        (0, {0: 2}, 1),
        (0, {0: 1, 1: 1}, 1),
    ],
)
def test_labels_are_those_of_the_samples_in_reach(
    label: int, counts: dict[int, int], wrong: int
) -> None:
    x, y = torch.cat([BATCH, BATCH[:1]]), torch.cat([LABELS, torch.tensor([2])])
    claims = claim(BATCH[:1], [label], copies=[2], label_counts=[counts])
    assert compare(claims, truth(x, y), YARDSTICK).wrong_labels == wrong
    assert compare(claims, truth(x, None), YARDSTICK).wrong_labels == 0


def test_labels_of_false_samples_are_not_judged() -> None:
    assert compare(claim(BATCH[:1] + 5, [9]), truth(), YARDSTICK).wrong_labels == 0


def test_repeats_and_more_samples_than_the_batch() -> None:
    twice = compare(claim(BATCH[[0, 1, 0]]), truth(), YARDSTICK)
    assert (twice.repeats, twice.beyond, twice.right) == (1, 0, 3)
    all_and_one = compare(claim(torch.cat([BATCH, BATCH[:1]])), truth(), YARDSTICK)
    assert (all_and_one.repeats, all_and_one.beyond) == (1, 1)
    # Two near-duplicates that are certified one by one are no repeat.
    x = torch.cat([BATCH, off_by(1e-4)])
    apart = compare(claim(x[[0, 8]]), truth(x, None), YARDSTICK)
    assert (apart.repeats, apart.wrong_copies) == (0, 0)


def test_a_claim_to_be_complete_is_checked() -> None:
    whole = compare(claim(BATCH, complete=True), truth(), YARDSTICK)
    assert whole.wrong_complete == 0
    part = claim(BATCH[1:], complete=True)
    assert compare(part, truth(), YARDSTICK).wrong_complete == 1
    assert compare(replace(part, complete=False), truth(), YARDSTICK).wrong_complete == 0
    nothing = claim(BATCH[:0], complete=True)
    assert compare(nothing, truth(), YARDSTICK).wrong_complete == 1
    first = torch.arange(8) == 0
    # A sample without a gradient is nobody's to find; one that the target alone does not see is
    # to be found by whoever knows the tail.
    assert compare(part, truth(absent=first), YARDSTICK).wrong_complete == 0
    assert compare(part, truth(silent=first), YARDSTICK).wrong_complete == 1
    unknown = truth(silent=first, tail_known=False)
    assert compare(part, unknown, YARDSTICK).wrong_complete == 0


@pytest.mark.parametrize(
    ("size", "tail_known", "wrong"),
    [(None, True, 0), (9, True, 0), (8, True, 1), (1, True, 1), (8, False, 0), (7, False, 1)],
)
def test_a_claimed_batch_size_is_checked(size: int | None, tail_known: bool, wrong: int) -> None:
    x = torch.cat([BATCH, BATCH[:1]])
    there = truth(x, None, tail_known=tail_known)
    assert compare(claim(BATCH[:0], batch_size=size), there, YARDSTICK).wrong_size == wrong


def test_samples_of_other_batches_are_neither_false_nor_recovered() -> None:
    others = truth(others=DATA[50:60])
    found = compare(claim(torch.cat([DATA[50:52], BATCH[:1] + 3, BATCH[:1]])), others, YARDSTICK)
    assert (found.certified, found.right, found.false, found.recovered) == (2, 1, 1, 1)


@pytest.mark.parametrize("proven", [None, 8])
def test_only_a_proven_size_is_a_claim(proven: int | None) -> None:
    size = BatchSize(stated=9, by_weight=10, least=1, proven=proven)
    recovery = SimpleNamespace(
        samples=BATCH.reshape(8, 4, 5),
        labels=LABELS,
        multiplicities=torch.ones(8),
        label_counts=({},) * 8,
        complete=False,
        batch_size=size,
    )
    claims = claims_of(cast("Recovery", recovery))
    assert claims.batch_size == proven
    assert claims.samples.shape == (8, 20)


# The families.


@pytest.mark.parametrize(
    ("family", "case"), [(name, case) for name, family in FAMILIES.items() for case in family.cases]
)
@pytest.mark.slow
def test_every_case_makes_a_round(family: str, case: str) -> None:
    dataset = EMBEDDED[len(case) % 3]
    make = FAMILIES[family].cases[case]
    scene = make(setting(dataset, 40, 12))
    assert scene.x.ndim == 2
    assert scene.x.dtype == torch.float64
    assert len(scene.x) == len(scene.y) > 0
    assert bool(scene.x.isfinite().all())
    again = make(setting(dataset, 40, 12))
    torch.testing.assert_close(scene.x, again.x)
    for one, other in zip(scene.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    update = scene.alter(scene.compute(scene.model, scene))
    assert set(update.gradients) == {name for name, _ in scene.model.named_parameters()}


def test_one_class_and_skew() -> None:
    assert len(set(batches.one_class(setting()).y.tolist())) == 1
    counts = [
        int(torch.bincount(batches.skewed(setting(seed=seed), concentration=0.1).y).max())
        for seed in range(20)
    ]
    assert np.mean(counts) > 8  # of 16; a plain batch of ten classes has about 4
    assert len(set(plain(setting()).y.tolist())) > 4


@pytest.mark.parametrize("kind", batches.variants)
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_pairs(kind: str, share: float) -> None:
    scene = batches.pairs(setting("photos"), kind=kind, share=share)
    pairs = round(8 * share)
    assert len(scene.x) == 16
    assert scene.stated in {None, 16}
    assert torch.equal(scene.y[:pairs], scene.y[-pairs:])
    changed, original = scene.x[-pairs:], scene.x[:pairs]
    assert bool((changed != original).any(1).all())
    if kind == "brightness":
        factor = changed.sum(1) / original.sum(1)
        torch.testing.assert_close(changed, original * factor[:, None])
        assert bool(((factor > 1) & (factor < 2)).all())
    if kind == "flip":
        upright = changed.reshape(-1, 32, 32, 3).flip(2).reshape(pairs, -1)
        assert torch.equal(upright, original)
    if kind == "cutout":
        assert bool(((changed == original) | (changed == 0)).all())
    other = batches.pairs(setting("photos"), kind=kind, share=share, same_label=False)
    assert bool((other.y[:pairs] != other.y[-pairs:]).all())


def test_dependent_samples() -> None:
    scene = batches.collinear(setting(), share=1.0)
    half = len(scene.x) // 2
    torch.testing.assert_close(scene.x[half], (scene.x[0] + scene.x[half - 1]) / 2)
    segment = batches.segment(setting(), one_label=True)
    assert int(torch.linalg.matrix_rank(segment.x - segment.x[0])) == 1
    assert int(torch.linalg.matrix_rank(batches.low_rank(setting(), rank=5, one_label=True).x)) == 5
    opposite = batches.antipodal(setting(), one_label=False)
    middles = (opposite.x[:8] + opposite.x[8:]) / 2
    torch.testing.assert_close(middles, middles[:1].expand(8, -1))
    tripled = batches.scalings(setting(), factors=(0.5, 2.0))
    assert torch.equal(tripled.x[5:10], tripled.x[:5] / 2)


@pytest.mark.parametrize("apart", [1e-6, 1e-3, 0.1])
def test_near_duplicates_and_clouds_keep_their_distance(apart: float) -> None:
    given = setting("photos")
    stick = Yardstick.of(given.source.x)
    scene = batches.near_duplicates(given, apart=apart, share=1.0)
    measured = ((scene.x[8:] - scene.x[:8]).norm(dim=1) / stick.typical).tolist()
    assert measured == pytest.approx([apart] * 8, rel=1e-3)
    cloud = batches.cloud(given, radius=apart)
    assert float(torch.pdist(cloud.x).max()) / stick.typical < 2.1 * apart


@pytest.mark.parametrize("count", [2, 8, 40])
def test_copies(count: int) -> None:
    scene = batches.copies(setting(batch_size=48), count=count)
    _, counts = torch.unique(scene.x, dim=0, return_counts=True)
    assert set(counts.tolist()) == {1, count}
    repeated = batches.repeated(setting(), times=2)
    _, counts = torch.unique(repeated.x, dim=0, return_counts=True)
    assert set(counts.tolist()) == {2}


def test_invisible_pairs_are_far_apart_and_fire_alike() -> None:
    scene = batches.invisible(setting("photos"), share=1.0)
    target = gp.split(scene.model)
    before = target.pre_activations(scene.x)
    torch.testing.assert_close(before[:8], before[8:])
    apart = Yardstick.of(scene.source.x).distances(scene.x[:8], scene.x[8:])
    assert float(apart.diagonal().min()) > FALSE


def test_features() -> None:
    assert set(batches.binary(setting()).x.flatten().tolist()) == {0.0, 1.0}
    whole = batches.integers(setting(), levels=255).x
    assert torch.equal(whole, whole.round())
    assert float(whole.max()) > 200
    table = batches.unscaled(setting("breast_cancer"), decades=6)
    assert table.source.columns
    spreads = table.source.x.std(0)
    assert float(spreads.max() / spreads.min()) > 1e4
    centred = batches.standardised(setting())
    assert float(centred.source.x.mean().abs()) < 1e-9
    assert set(batches.one_hot(setting(), marks=1).x.sum(1).tolist()) == {1.0}
    flat = batches.constants(setting(), share=0.5).x
    assert int((flat == flat[:, :1]).all(1).sum()) == 8
    sizes = batches.loud_and_quiet(setting(), decades=6).x.norm(dim=1)
    assert float(sizes.max() / sizes.min()) > 1e3
    assert len(batches.crowd(setting(neurons=64), neurons=1.5).x) == 96
    assert len(batches.crowd(setting(neurons=400), features=1.0).x) == 64


def linears(scene: Scene) -> list[nn.Linear]:
    return [module for module in scene.model.modules() if isinstance(module, nn.Linear)]


def test_networks() -> None:
    head = linears(plain(setting()))[1].weight
    small = linears(networks.scaled_head(plain, factor=0.01)(setting()))[1].weight
    torch.testing.assert_close(small, head * 0.01)
    for layer in linears(networks.without_biases(plain)(setting())):
        assert not bool(layer.bias.any())
    low = linears(networks.low_rank_tail(plain, rank=2)(setting()))[1].weight
    assert int(torch.linalg.matrix_rank(low.detach())) == 2
    twins = linears(networks.first_layer(plain, kind="twins")(setting()))[0]
    assert torch.equal(twins.weight[:50], twins.weight[50:])
    for kind, low_share, high_share in (("sparse firing", 0.0, 0.1), ("dense firing", 0.9, 1.0)):
        scene = networks.first_layer(plain, kind=kind)(setting(batch_size=200))
        fires = gp.exposure(scene.model, scene.x).grid.double().mean()
        assert low_share < float(fires) < high_share


def test_a_trained_network_has_learnt_something() -> None:
    scene = networks.trained(plain, epochs=5)(setting(neurons=200, batch_size=200))
    right = (scene.model(scene.x).argmax(1) == scene.y).double().mean()
    assert float(right) > 0.5


def gradients(make: Callable[[Setting], Scene]) -> dict[str, Tensor]:
    scene = make(setting())
    return dict(scene.alter(scene.compute(scene.model, scene)).gradients)


def test_updates() -> None:
    honest = gradients(plain)
    for name, value in gradients(updates.scaled(plain, factor=3.0)).items():
        torch.testing.assert_close(value, honest[name] * 3)
    for name, value in gradients(updates.summed(plain)).items():
        torch.testing.assert_close(value, honest[name] * 16)
    half = gradients(updates.compressed(plain, kind="float16 inside"))["0.weight"]
    assert torch.equal(half, half.half().double())
    sparse = gradients(updates.compressed(plain, kind="largest tenth"))["0.weight"]
    assert int((sparse != 0).sum()) == round(0.1 * sparse.numel())
    for kind, amount in (("stale", 1e-3), ("decay", 1e-4), ("steps", 0.1), ("others", 1e-3)):
        drifted = gradients(updates.drifted(plain, kind=kind, amount=amount))["0.weight"]
        assert not torch.allclose(drifted, honest["0.weight"])
    assert updates.stated(plain, size=lambda size: 2 * size)(setting()).stated == 32
    two = updates.drifted(plain, kind="others", amount=1.0)(setting())
    assert two.others is not None
    assert not torch.equal(two.others, two.x)


# A run.


def test_the_plan_meets_every_case_data_set_and_size() -> None:
    cells = plan(FAMILIES, EMBEDDED)
    assert len(set(cells)) == len(cells)
    assert {(cell.family, cell.case) for cell in cells} == {
        (name, case) for name, family in FAMILIES.items() for case in family.cases
    }
    of_one = [cell for cell in cells if cell.family == "one class"]
    pairs = {(cell.dataset, (cell.neurons, cell.batch_size)) for cell in of_one}
    assert pairs == set(itertools.product(EMBEDDED, FAMILIES["one class"].sizes))
    quick = plan(FAMILIES, EMBEDDED, seeds=0.0, small=True)
    assert {cell.seed for cell in quick} == {0}
    assert {cell.dtype for cell in quick} == {"float64", "float32", "float16", "bfloat16"}
    of_one = [cell for cell in quick if cell.family == "one class"]
    assert {(cell.neurons, cell.batch_size) for cell in of_one} <= set(SMALL)


def test_a_full_plan_meets_every_case_often_and_whatever_was_once_wrong() -> None:
    datasets = available_names()
    cells = plan(FAMILIES, datasets)
    rounds = Counter((cell.family, cell.case, cell.dtype) for cell in cells)
    assert min(rounds.values()) >= 6
    for name in FAMILIES:
        assert {cell.dataset for cell in cells if cell.family == name} == set(datasets)
    assert set(ONCE_WRONG) <= set(cells)
    assert all(cell.case in FAMILIES[cell.family].cases for cell in ONCE_WRONG)
    assert not set(ONCE_WRONG) & set(plan(FAMILIES, EMBEDDED, seeds=0.0, small=True))


@pytest.mark.parametrize("dataset", EMBEDDED)
@pytest.mark.slow
def test_rounds_leave_the_data_they_share_as_it_was(dataset: str) -> None:
    source = Source.load(dataset, None)
    assert Source.load(dataset, None) is source
    before = source.x.clone(), source.other_x.clone()
    for family in FAMILIES.values():
        for make in family.cases.values():
            make(setting(dataset, 40, 12))
    assert torch.equal(source.x, before[0])
    assert torch.equal(source.other_x, before[1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_single_look_is_that_of_all_features(dtype: torch.dtype) -> None:
    scene = plain(setting("photos", 200, 16))
    model, stick = scene.model.to(dtype), scene.source.yardstick
    update = gp.local_update(model, scene.x, scene.y)
    weight, bias = update.gradients["0.weight"], update.gradients["0.bias"]
    alive = bias != 0
    quotients = weight[alive].double() / bias[alive, None].double()
    expected = int((stick.distances(quotients, scene.x) <= RIGHT).any(0).sum())
    assert measuring._single_look(weight, bias, scene.x, stick) == expected > 0


@pytest.mark.slow
def test_the_bound_is_that_of_exposure() -> None:
    scene = batches.copies(setting(batch_size=48), count=3)
    row = decode(CELL, scene)
    assert row.bound == int(gp.exposure(scene.model, scene.x).reached.sum()) > 0
    assert row.outputs == 10


def test_an_honest_decoder_passes() -> None:
    row = decode(CELL, plain(setting()))
    assert row.cell == CELL
    assert not any(faults([row]).values())
    assert row.certified == row.right == row.recovered == row.bound > 0
    assert 0 < row.single_look <= row.batch == 16
    assert row.wrong == ""


Lie = Callable[[Recovery], Recovery]


def add_mixture(found: Recovery) -> Recovery:
    return replace(found, samples=torch.cat([found.samples[1:], found.samples[:2].mean(0)[None]]))


LIES: dict[str, tuple[Lie, str]] = {
    "mixture": (add_mixture, "false"),
    "label": (
        lambda found: replace(
            found, labels=(found.labels + 1) % 10, label_counts=({},) * len(found)
        ),
        "wrong_labels",
    ),
    "copies": (
        lambda found: replace(found, multiplicities=found.multiplicities + 1),
        "wrong_copies",
    ),
    "repeat": (
        lambda found: replace(found, samples=found.samples[[1, *range(1, len(found))]]),
        "repeats",
    ),
    "size": (
        lambda found: replace(found, batch_size=replace(found.batch_size, proven=7)),
        "wrong_size",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_decoder_that_lies_is_caught(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tell, fault = LIES[lie]
    true = gp.peel
    monkeypatch.setattr(gp, "peel", lambda *given, **more: tell(true(*given, **more)))
    row = decode(CELL, plain(setting()))
    assert faults([row])[fault] > 0
    assert row.wrong
    assert any(str(row.cell) in line for line in findings([row]))


def test_a_decoder_that_wrongly_claims_all_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = plain(setting(batch_size=150))
    true = gp.peel(scene.model, gp.local_update(scene.model, scene.x, scene.y))
    assert 0 < len(true) < 150
    monkeypatch.setattr(gp, "peel", lambda *_, **__: replace(true, complete=True))
    assert decode(CELL, scene).wrong_complete == 1


@pytest.mark.slow
def test_a_decoder_that_breaks_or_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_(*_: object, **__: object) -> Recovery:
        raise ZeroDivisionError("division by zero")

    def hang(*_: object, **__: object) -> Recovery:
        while True:
            pass

    monkeypatch.setattr(gp, "peel", break_)
    row = decode(CELL, plain(setting()))
    assert row.error == "ZeroDivisionError: division by zero"
    assert faults([row])["errors"] == 1
    monkeypatch.setattr(gp, "peel", hang)
    monkeypatch.setattr(measuring, "TIME_LIMIT", 1)
    assert decode(CELL, plain(setting())).error == "TimeoutError: no answer within 1 s"


def test_the_table_compares_with_the_bound() -> None:
    row = decode(CELL, plain(setting()))
    assert row.bound > 2
    less = replace(row, recovered=row.bound - 2, false=1)
    head, total = tabulate([row, less])
    assert head[0] == "one class"
    assert head[1:4] == ["2", str(2 * row.certified), "1"]
    assert f"{100 * (2 * row.bound - 2) / (2 * row.bound):.1f} %" in head
    assert total[0] == "all"
    assert "| one class | 2 |" in markdown([row, less])


def test_recall_is_of_batches_smaller_than_neurons_and_features() -> None:
    row = replace(decode(CELL, plain(setting())), bound=10, recovered=9)
    wide = replace(row, dtype="float32", batch=64)  # digits have 64 features
    words = [line for line in findings([row, row, wide]) if line.startswith("recall")]
    (only,) = words
    assert only == (
        "recall, one class, float64: 90.0 % of the 20 samples that peeling can reach in "
        "2 batches smaller than neurons and features"
    )


def test_what_nobody_can_decide_is_shown_and_not_counted() -> None:
    row = decode(CELL, plain(setting()))
    unclear = replace(row, family="invisible pairs", case="all", false=3)
    assert tally([row, unclear]) == f"{row.certified} certificates, rounds with a fault: 0"
    assert [line[:2] for line in tabulate([row, unclear])] == [
        ["one class", "1"],
        ["invisible pairs (not counted)", "1"],
        ["all", "1"],
    ]
    words = list(findings([row, unclear]))
    assert f"certificates: {row.certified:,}" in words
    assert words[-1] == "rounds with a fault that nobody can decide, not counted: 1"
    assert "Nothing that was claimed is wrong." in markdown([row, unclear])
    assert "Faults in all: 1." in markdown([replace(row, false=1), unclear])


def test_patterns_and_data_sets(tmp_path: Path) -> None:
    assert chosen("one class,pairs*") == ["one class", "pairs", "pairs and labels"]
    with pytest.raises(SystemExit, match="family='two': expected some of one class, label skew"):
        chosen("two")
    assert available(None) == EMBEDDED
    with pytest.raises(SystemExit, match="expected some of"):
        available(tmp_path)
    (tmp_path / "mnist.npz").touch()
    assert available(tmp_path) == (*EMBEDDED, "mnist")


def test_the_exit_status_tells_whether_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = decode(CELL, plain(setting()))
    for rows, status in (([row], 0), ([row, replace(row, false=1)], 1)):
        monkeypatch.setattr("benchmarks.adversary.__main__.run", lambda *_, rows=rows, **__: rows)
        out = tmp_path / "table.md"
        monkeypatch.setattr(
            "sys.argv", ["adversary", "--family", "one class", "--quick", "--markdown", str(out)]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == status
        assert "one class" in capsys.readouterr().out
        assert out.read_text(encoding="utf-8").startswith("# Adversary's table")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_that_is_claimed_is_wrong(family: str) -> None:
    rows: list[Row] = [
        measure(cell, None) for cell in plan([family], EMBEDDED, seeds=0.0, small=True)
    ]
    assert [str(row) for row in rows if row.wrong] == []


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (one.neurons > 400))
        for one in ONCE_WRONG
        if one.dataset in EMBEDDED
    ],
    ids=str,
)
@pytest.mark.slow
def test_what_once_was_wrong(cell: Cell) -> None:
    assert measure(cell, data_dir=None).wrong == ""


@pytest.mark.slow
@pytest.mark.parametrize("cell", [one for one in ONCE_WRONG if one.dataset in STANDARD], ids=str)
def test_what_once_was_wrong_on_real_data(cell: Cell, data_dir: Path) -> None:
    assert measure(cell, data_dir=data_dir).wrong == ""
