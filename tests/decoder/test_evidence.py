"""Every sample says what its certificate rests on, and nothing it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gradpeel.decoder import peel
from gradpeel.decoder.recovery import Evidence
from gradpeel.update import Update
from support import SmallRound, make_batch, make_model, make_round, recovered, round_of

BIAS, NEXT, STRUCTURE = Evidence.BIAS, Evidence.NEXT_LAYER, Evidence.STRUCTURE

ROUNDS = st.builds(
    make_round,
    features=st.sampled_from([30, 60]),
    neurons=st.sampled_from([60, 300]),
    batch=st.integers(2, 12),
    classes=st.integers(2, 8),
    hidden=st.sampled_from([(), (20,)]),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)


@settings(max_examples=24)
@given(
    ROUNDS,
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, (-1.0, 2.0)]),
)
@pytest.mark.slow
def test_evidence_is_what_there_was(
    round_: SmallRound,
    use_next: bool,
    knows_tail: bool,
    data_range: tuple[float, float] | None,
) -> None:
    recovery = peel(
        round_.model,
        round_.update,
        knows_tail=knows_tail,
        use_next_layer=use_next,
        data_range=data_range,
    )
    recovered(recovery, round_, within=1e-2)
    assert len(recovery.evidence) == len(recovery)
    for kinds in recovery.evidence:
        assert (Evidence.RANGE in kinds) == (data_range is not None)
        assert (NEXT in kinds) == use_next
        # Either the sample was simulated, or its gradient lies in the space, or both.
        assert BIAS in kinds or STRUCTURE in kinds
        if not knows_tail:
            assert BIAS not in kinds
    # What cannot be simulated has no label; what has none was not.
    for kinds, label in zip(recovery.evidence, recovery.labels.tolist(), strict=True):
        assert label >= 0 or BIAS not in kinds
    assert bool((recovery.scores >= 9).all())
    assert bool((recovery.equations >= 1).all())


def kinds_of(model: nn.Module, update: Update, *, use_next: bool = True) -> set[Evidence]:
    return set(peel(model, update, use_next_layer=use_next).evidence)


def test_clear_samples_need_no_structure() -> None:
    round_ = make_round(60, 300, 8, 6)
    assert kinds_of(round_.model, round_.update) == {BIAS | NEXT}
    assert kinds_of(round_.model, round_.update, use_next=False) == {BIAS}
    first = {name: g for name, g in round_.update.gradients.items() if name.startswith("0.")}
    assert kinds_of(round_.model, Update(first, 8)) == {BIAS}


def test_behind_a_norm_there_is_no_next_layer() -> None:
    torch.manual_seed(0)
    body = make_model(60, 300, 6)
    model = nn.Sequential(body[0], body[1], nn.LayerNorm(300), nn.Linear(300, 6)).double()
    x, y = make_batch(60, 8, 6)
    assert kinds_of(model, round_of(model, x, y).update) == {BIAS}


def test_the_structure_speaks_where_equations_do_not() -> None:
    # In float32 one bias equation alone proves too little.
    found = [
        peel(round_.model, round_.update, use_next_layer=False)
        for round_ in (make_round(60, 400, 12, 6, seed=s, dtype=torch.float32) for s in range(3))
    ]
    kinds = [kind for recovery in found for kind in recovery.evidence]
    assert BIAS | STRUCTURE in kinds
    equations = torch.cat([recovery.equations for recovery in found])
    helped = torch.tensor([STRUCTURE in kind for kind in kinds])
    assert float(equations[helped].double().median()) > float(equations[~helped].double().median())


def test_copies_are_certified_by_the_structure() -> None:
    round_ = make_round(60, 400, 8, 6)
    x, y = (torch.cat([part, part[:2]]) for part in (round_.x, round_.y))
    recovery = peel(round_.model, round_of(round_.model, x, y).update)
    for kinds, copies in zip(recovery.evidence, recovery.multiplicities.tolist(), strict=True):
        assert kinds == (BIAS | NEXT if copies == 1 else BIAS | NEXT | STRUCTURE)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (Evidence(0), ()),
        (BIAS, ("bias equation",)),
        (BIAS | NEXT, ("bias equation", "next layer")),
        (
            NEXT | STRUCTURE | Evidence.FOLLOWERS,
            ("next layer", "structure", "what follows from it"),
        ),
        (BIAS | Evidence.RANGE, ("bias equation", "data range")),
    ],
)
def test_in_words(kinds: Evidence, words: tuple[str, ...]) -> None:
    assert kinds.words == words
    round_ = make_round()
    recovery = replace(peel(round_.model, round_.update), evidence=(kinds, BIAS & kinds))
    assert recovery.kinds == words
