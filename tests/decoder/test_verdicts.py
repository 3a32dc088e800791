"""What the certificate says beside yes and no: chances, doubts, and what to subtract."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradpeel.decoder.recovery import Evidence
from gradpeel.decoder.tolerances import CHANCE
from support import make_round, round_of
from truth import FirstLook

SEEDS = pytest.mark.parametrize("seed", range(4))


@SEEDS
def test_the_chance_is_that_of_the_equations_for_every_label_tried(seed: int) -> None:
    look = FirstLook(make_round(classes=5, batch=5, seed=seed), use_next=False)
    verdicts = look.judge()
    resolution = torch.finfo(torch.float64).eps
    luck = (2 * verdicts.mismatch).clamp(min=resolution)
    assert bool(look.lonely.any())
    assert bool(look.pooled.any())
    activations = look.candidates.pre_activations.relu()
    simulated = look.backward.simulate(activations, verdicts.peeled.counts)
    # An equation that does not respond to the candidate would hold for anything.
    telling = simulated.response.clamp(max=1.0)
    expected = 5 * luck / telling
    torch.testing.assert_close(verdicts.chance[look.lonely], expected[look.lonely])
    # Each further neuron that isolates the sample is one more equation.
    for i in look.pooled.nonzero()[:, 0].tolist():
        count = len(look.candidates.isolating(torch.tensor([i]))[0])
        assert int(verdicts.equations[i]) == count
        assert 5 * resolution**count <= verdicts.chance[i] * 1.001
        # How much it is worth depends on the loss gradient, but it is worth something.
        assert verdicts.chance[i] <= 1e-6 * expected[i]


@SEEDS
def test_with_two_classes_all_neurons_that_isolate_a_sample_say_the_same(seed: int) -> None:
    # All loss gradients are parallel: several neurons hand out the same mixture.
    look = FirstLook(make_round(classes=2, batch=5, seed=seed), use_next=seed % 2 == 0)
    verdicts = look.judge()
    resolution = torch.finfo(torch.float64).eps
    assert bool(look.pooled.any())
    simulated = look.backward.simulate(
        look.candidates.pre_activations.relu(), verdicts.peeled.counts
    )
    tried = 1 if seed % 2 == 0 else 2
    least = tried * resolution / simulated.response.clamp(max=1.0)
    assert bool((verdicts.chance >= 0.999 * least).all())


@SEEDS
def test_more_copies_are_more_to_try(seed: int) -> None:
    look = FirstLook(make_round(classes=5, batch=5, seed=seed), use_next=False)
    fitted = look.judge()
    given = look.judge(counts=fitted.peeled.counts)
    torch.testing.assert_close(given.chance, 8 * fitted.chance)


@SEEDS
def test_a_neuron_at_the_kink_speaks_neither_for_nor_against(seed: int) -> None:
    look = FirstLook(make_round(neurons=400, seed=seed))
    silent = int((~look.truth.z.gt(0).any(0)).nonzero()[0])
    assert bool(look.residual.quiet[silent])
    i = int(look.genuine.nonzero()[0])
    z = look.candidates.pre_activations.clone()
    z[i, silent] = 1e-15 * look.residual.spread
    moved = replace(look.candidates, pre_activations=z)
    for plain, verdicts in (
        (look.judge(), look.judge(moved)),
        (look.judge_by_structure(), look.judge_by_structure(moved)),
    ):
        # Within its error of zero it may fire or not, and that nothing is left is no surprise.
        assert bool(verdicts.accepted[i])
        # What would be left if it did not fire after all is kept as an error.
        kink = verdicts.peeled.kink[i]
        assert kink.nonzero()[:, 0].tolist() == [silent]
        torch.testing.assert_close(kink[silent], verdicts.peeled.sensitivities[i, silent])
        assert not bool(plain.peeled.kink[i].any())


@SEEDS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("how", ["tail", "tail without next layer", "next layer"])
def test_what_is_to_be_subtracted_is_as_exact_as_it_says(
    seed: int, dtype: torch.dtype, how: str
) -> None:
    round_ = make_round(neurons=400, seed=seed, dtype=dtype)
    look = FirstLook(round_, use_next=how != "tail without next layer")
    verdicts = look.judge_by_structure() if how == "next layer" else look.judge()
    accepted = verdicts.accepted.nonzero()[:, 0]
    assert len(accepted)
    peeled = verdicts.peeled.pick(accepted)
    exact = look.truth.peeled(look.residual).pick(look.who[accepted])
    off = (peeled.coordinates - exact.coordinates).square().mean(1).sqrt() / look.residual.scale
    assert bool((off <= 32 * peeled.sample_error).all())
    size = exact.sensitivities.square().mean(1).sqrt()
    off = (peeled.sensitivities - exact.sensitivities).square().mean(1).sqrt() / size
    assert bool((off <= 32 * peeled.sensitivity_error).all())
    assert float(peeled.sample_error.max()) < 1e5 * torch.finfo(dtype).eps
    if how != "next layer":
        assert torch.equal(peeled.counts, exact.counts)
    else:
        assert peeled.counts.shape == (len(accepted), 0)


@SEEDS
def test_what_the_next_layer_measures_is_used_where_it_is_more_exact(seed: int) -> None:
    # A sure and right prediction: the client's own 1 - p has lost its digits, so that computing it
    # anew does not give what the client had.
    round_ = make_round(60, 200, 6, 5, seed=seed, dtype=torch.float32)
    with torch.no_grad():
        round_.model.get_parameter("2.weight").mul_(30.0)
        sure = round_.model(round_.x.float()).argmax(1)
    look = FirstLook(round_of(round_.model, round_.x, sure))
    activations = look.candidates.pre_activations.relu()
    counts = look.truth.counts[look.who]
    simulated = look.backward.simulate(activations, counts)
    resolution = look.residual.resolution
    computed = simulated.error(look.candidates.error + resolution, resolution)
    verdicts = look.judge(counts=counts)
    faint = look.genuine & (simulated.margin < 1e-2)
    assert bool(faint.any())
    assert bool((verdicts.peeled.sensitivity_error[faint] < 0.15 * computed[faint]).all())


@SEEDS
def test_sound_is_all_but_the_weight_of_evidence(seed: int) -> None:
    look = FirstLook(make_round(seed=seed), use_next=False, batch_size=80)
    # One equation that holds to seven digits: right, but not beyond chance.
    look.residual.bias_error += 1e-8 * look.residual.bias.abs()
    look.residual.bias *= 1 + 1e-7
    verdicts = look.judge()
    weak = verdicts.sound & ~verdicts.accepted
    assert bool(weak.any())
    assert bool((verdicts.chance[weak] > CHANCE).all())
    assert bool(verdicts.sound[verdicts.accepted].all())
    assert bool(verdicts.vague[weak].all())
    assert not bool(verdicts.vague[verdicts.accepted].any())


@SEEDS
def test_evidence_is_what_was_used(seed: int) -> None:
    round_ = make_round(neurons=400, batch=14, seed=seed)
    both, bias = Evidence.BIAS | Evidence.NEXT_LAYER, Evidence.BIAS
    assert set(FirstLook(round_).judge().evidence) == {both}
    assert set(FirstLook(round_, use_next=False).judge().evidence) == {bias}
    look = FirstLook(round_)
    measured = Evidence.NEXT_LAYER | Evidence.STRUCTURE
    assert set(look.judge_by_structure().evidence) == {measured}
    without = FirstLook(round_, use_next=False).judge_by_structure()
    assert set(without.evidence) == {Evidence.STRUCTURE}
    # The structure is evidence for those that had too little, and for nobody else.
    weak = FirstLook(round_, use_next=False)
    weak.residual.bias_error += 1e-8 * weak.residual.bias.abs()
    weak.residual.bias *= 1 + 1e-7
    verdicts = weak.judge()
    assert {verdicts.evidence[i] for i in weak.lonely.nonzero()[:, 0].tolist()} == {
        bias | Evidence.STRUCTURE
    }
    strong = (verdicts.equations == 3).nonzero()[:, 0].tolist()
    assert all(verdicts.evidence[i] == bias for i in strong)


@pytest.mark.parametrize("use_next", [True, False])
def test_nobody_to_judge(*, use_next: bool) -> None:
    look = FirstLook(make_round(neurons=120), use_next=use_next)
    nobody = look.candidates.pick(torch.zeros(len(look.candidates), dtype=torch.bool))
    for verdicts in (look.judge(nobody), look.judge_by_structure(nobody)):
        assert len(verdicts.accepted) == len(verdicts.peeled) == len(verdicts.evidence) == 0
