"""Nulls hold nothing to be found, and what is found all the same is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import gradpeel as gp
from benchmarks import soundness
from benchmarks.nulls import COMPARABLE, KINDS, Null, Scene, draw
from benchmarks.soundness import (
    KNOWN,
    Cell,
    Row,
    decode,
    markdown,
    measure,
    plan,
    tried_of,
    upper_bound,
)
from gradpeel.exposure import exposure
from gradpeel.networks import mlp
from gradpeel.signals import contributions, sensitivities
from gradpeel.update import norm

NEURONS = 120


def scene(folder: Path, seed: int, dtype: torch.dtype = torch.float64) -> Scene:
    return draw(folder, NEURONS, dtype, np.random.default_rng(seed))


def null(folder: Path, kind: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Null:
    made = KINDS[kind](scene(folder, seed, dtype), np.random.default_rng(seed))
    assert made is not None
    return made


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(4))
def test_mixtures_are_mixtures(small_data: Path, seed: int, dtype: torch.dtype) -> None:
    made = null(small_data, "mixtures only", seed, dtype)
    client = made.scene
    assert made.update.dtype == dtype
    exposed = exposure(client.model, client.x)
    assert not bool(exposed.reached.any())
    target = gp.split(client.model).to(torch.float64)
    c = sensitivities(contributions(target, client.x, client.y, exposed.copies), exposed)
    largest = c[:, exposed.distinct].topk(2, dim=1).values
    assert bool((largest[:, 1] >= COMPARABLE * largest[:, 0]).all())
    assert made.candidates == target.neurons


def test_a_network_without_mixtures_is_no_null(small_data: Path) -> None:
    # Without biases no neuron fires on both a sample and its negative.
    x = scene(small_data, 0).x[:1]
    model = mlp(x.shape[1], 3, hidden=(NEURONS,), rng=np.random.default_rng(0))
    client = Scene(model, torch.cat([x, -x]), torch.tensor([0, 1]))
    assert KINDS["mixtures only"](client, np.random.default_rng(0)) is None


def test_shuffling_moves_the_bias_gradient_and_nothing_else(small_data: Path) -> None:
    made = null(small_data, "shuffled biases")
    honest = made.scene.update().gradients
    sent = made.update.gradients
    assert [name for name in sent if not torch.equal(sent[name], honest[name])] == ["0.bias"]
    assert torch.equal(sent["0.bias"].sort().values, honest["0.bias"].sort().values)


def test_another_model_has_other_weights_of_the_same_shapes(small_data: Path) -> None:
    made = null(small_data, "another model", dtype=torch.float32)
    pairs = zip(made.model.parameters(), made.scene.model.parameters(), strict=True)
    for theirs, own in pairs:
        assert theirs.shape == own.shape
        assert theirs.dtype == own.dtype
    assert not torch.equal(gp.split(made.model).weight, gp.split(made.scene.model).weight)


def test_noise_is_as_large_as_the_update_and_unlike_it(small_data: Path) -> None:
    made = null(small_data, "pure noise")
    honest = made.scene.update().gradients["0.weight"].flatten()
    drawn = made.update.gradients["0.weight"].flatten()
    assert 0.9 < float(drawn.std() / honest.std()) < 1.1
    assert abs(float(torch.corrcoef(torch.stack([honest, drawn]))[0, 1])) < 0.1


def test_differential_privacy_drowns_the_update(small_data: Path) -> None:
    made = null(small_data, "differential privacy")
    sent = made.update.gradients
    count = sum(gradient.numel() for gradient in sent.values())
    assert 0.1 < norm(sent) / count**0.5 < 1.1


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_updates_do_not_say_their_batch_size(small_data: Path, kind: str) -> None:
    stated = {null(small_data, kind, seed).update.batch_size is None for seed in range(6)}
    assert stated == {True, False}


def test_what_is_found_is_held_against_the_batch(small_data: Path) -> None:
    client = scene(small_data, 1)
    honest = Null(client.model, client.update(), client)
    verdicts, false, near = decode(honest, "tail and next layer")
    assert verdicts >= near > 0
    assert false == 0
    elsewhere = replace(honest, scene=replace(client, x=client.x + 0.5))
    assert decode(elsewhere, "tail and next layer") == (verdicts, near, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixtures only", "another model", "pure noise"])
@pytest.mark.parametrize("known", KNOWN)
def test_nothing_is_certified(small_data: Path, kind: str, known: str) -> None:
    row = measure(Cell("float64", kind, known, 0), small_data, neurons=NEURONS)
    assert row.false == 0
    assert row.near == 0
    assert row.candidates > 0
    assert row.updates == soundness.UPDATES


def test_updates_are_those_of_the_seed(small_data: Path) -> None:
    one, same = (null(small_data, "pure noise", seed=3) for _ in range(2))
    other = null(small_data, "pure noise", seed=4)
    first = one.update.gradients["0.bias"]
    assert torch.equal(first, same.update.gradients["0.bias"])
    assert not torch.equal(first, other.update.gradients["0.bias"])


@given(tried=st.integers(1, 10**6), share=st.floats(0.0, 1.0))
@settings(max_examples=50)
def test_upper_bound_is_exact(tried: int, share: float) -> None:
    false = int(share * tried)
    bound = upper_bound(false, tried)
    if false == tried:
        assert bound == 1.0
    else:
        # At this rate, so few or fewer would be seen in one of twenty experiments.
        assert float(binom.cdf(false, tried, bound)) == pytest.approx(0.05, rel=1e-3)


def test_upper_bound_of_nothing() -> None:
    assert upper_bound(0, 0) == 1.0
    assert upper_bound(0, 10**6) == pytest.approx(3e-6, rel=0.01)


def row(cell: Cell, candidates: int, false: int = 0) -> Row:
    return Row(
        dtype=cell.dtype,
        kind=cell.kind,
        known=cell.known,
        seed=cell.seed,
        updates=5,
        candidates=candidates,
        verdicts=2 * candidates,
        false=false,
        near=1,
        seconds=0.1,
    )


def test_every_dtype_has_as_many_candidates_as_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    each = {"float64": 7, "float32": 100}

    def run(cells: list[Cell], _one: Callable[[Cell], Row], *_: object, workers: int) -> list[Row]:
        assert workers == 1
        return [row(cell, each[cell.dtype]) for cell in cells]

    monkeypatch.setattr(soundness, "run", run)
    rows = soundness.measure_until(
        1000, tmp_path, tmp_path / "out.csv", dtypes=list(each), neurons=NEURONS, workers=1
    )
    for dtype, count in each.items():
        of_dtype = [one for one in rows if one.dtype == dtype]
        kinds = len(KINDS) * len(KNOWN)
        seeds = -(-1000 // (count * kinds))
        assert len(of_dtype) == kinds * seeds


def test_tried_is_no_more_than_judged() -> None:
    judged = row(Cell("float64", "pure noise", "tail", 0), 100)
    assert tried_of([judged, judged]) == 200
    assert tried_of([judged, replace(judged, verdicts=0)]) == 200
    assert tried_of([replace(judged, verdicts=60)]) == 60
    assert tried_of([replace(judged, verdicts=0)]) == 100


def test_tables_add_up() -> None:
    cells = plan({"float32": 2, "float64": 2})
    text = markdown([row(cell, 100, false=cell.seed) for cell in cells])
    kinds = len(KINDS) * len(KNOWN)
    totals = f"| {10 * kinds} | {200 * kinds} | {400 * kinds} | {2 * kinds} | {kinds} |"
    assert f"| float64 {totals}" in text
    assert "| float32 | pure noise | tail | 10 | 200 | 400 | 2 | 1 | 2.3e-02 |" in text
    assert text.index("| float64 | pure noise") < text.index("| float32 | pure noise")
