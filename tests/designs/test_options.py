from __future__ import annotations

import re
from itertools import product

import pytest
import torch

from gradpeel.designs import (
    QBI,
    Pairs,
    Passive,
    RobustSoliton,
    SolitonData,
    SolitonFree,
    TrapWeights,
    Tuned,
    TunedFree,
)
from gradpeel.designs.options import DesignName, DesignOptions, InitName, WeightsName
from gradpeel.errors import InputError

AUXILIARY = torch.rand(4, 3)
PASSIVE, TRAP, FREE, DATA, TUNED, TUNED_FREE, QUANTILE, PAIRS = DesignName


@pytest.mark.parametrize(
    ("options", "design"),
    [
        (DesignOptions(PASSIVE), Passive("gaussian")),
        (DesignOptions(PASSIVE, init=InitName.PAPER), Passive("gaussian")),
        (DesignOptions(PASSIVE, init=InitName.TORCH), Passive("torch")),
        (DesignOptions(TRAP), TrapWeights()),
        (
            DesignOptions(TRAP, weights=WeightsName.MIRRORED, scale=0.9),
            TrapWeights(0.9, "mirrored"),
        ),
        (DesignOptions(FREE), SolitonFree()),
        (
            DesignOptions(FREE, weights=WeightsName.MIRRORED, soliton=(0.1, 0.5)),
            SolitonFree("mirrored", RobustSoliton(0.1, 0.5)),
        ),
        (DesignOptions(TUNED_FREE, weights=WeightsName.MIRRORED), TunedFree("mirrored")),
        (DesignOptions(QUANTILE), QBI()),
    ],
)
def test_options_make_the_design_they_name(options: DesignOptions, design: object) -> None:
    assert options.build(AUXILIARY) == design


def test_soliton_data_gets_the_auxiliary_samples() -> None:
    options = DesignOptions(DATA, weights=WeightsName.MIRRORED, soliton=(0.1, 0.5))
    design = options.build(AUXILIARY)
    assert isinstance(design, SolitonData)
    assert design.auxiliary is AUXILIARY
    assert design.construction == "mirrored"
    assert design.soliton == RobustSoliton(0.1, 0.5)


@pytest.mark.parametrize(("name", "kind"), [(TUNED, Tuned), (PAIRS, Pairs)])
def test_other_designs_get_the_auxiliary_samples_too(
    name: DesignName, kind: type[Tuned | Pairs]
) -> None:
    design = DesignOptions(name).build(AUXILIARY)
    assert isinstance(design, kind)
    assert design.auxiliary is AUXILIARY


@pytest.mark.parametrize("name", [DATA, TUNED, PAIRS])
def test_a_design_that_measures_data_needs_some(name: DesignName) -> None:
    with pytest.raises(InputError, match=f"^design={name}: the data has no test split"):
        DesignOptions(name).build(AUXILIARY[:0])


def test_labels() -> None:
    assert [DesignOptions(name).label for name in DesignName] == [
        *["Passive", "TW-Ind", "SF-Ind", "SD-Ind", "Tuned-Ind", "TunedFree-Ind", "QBI", "PAIRS"]
    ]


@pytest.mark.parametrize("design", DesignName)
def test_every_design_is_called_what_it_calls_itself(design: DesignName) -> None:
    assert DesignOptions(design).build(AUXILIARY).name == design


GIVEN: dict[str, dict[str, object]] = {
    "init=torch": {"init": InitName.TORCH},
    "weights=mirrored": {"weights": WeightsName.MIRRORED},
    "scale=0.5": {"scale": 0.5},
    "soliton=0.1,0.5": {"soliton": (0.1, 0.5)},
}
HAVE = {
    "init=torch": {PASSIVE},
    "weights=mirrored": {TRAP, FREE, DATA, TUNED, TUNED_FREE},
    "scale=0.5": {TRAP},
    "soliton=0.1,0.5": {FREE, DATA},
}


@pytest.mark.parametrize("design", DesignName)
def test_defaults_may_be_spelt_out_for_every_design(design: DesignName) -> None:
    spelt_out = DesignOptions(design, WeightsName.INDEPENDENT, InitName.PAPER, 0.99, (0.05, 0.4))
    assert repr(spelt_out.build(AUXILIARY)) == repr(DesignOptions(design).build(AUXILIARY))


@pytest.mark.parametrize(("design", "given"), list(product(DesignName, GIVEN)))
def test_a_setting_that_the_design_does_not_have_is_refused(design: DesignName, given: str) -> None:
    if design in HAVE[given]:
        DesignOptions(design, **GIVEN[given])  # type: ignore[arg-type]
        return
    with pytest.raises(InputError, match=f"^{re.escape(given)}: design {design} has no ") as error:
        DesignOptions(design, **GIVEN[given])  # type: ignore[arg-type]
    assert all(other in str(error.value) for other in HAVE[given])
