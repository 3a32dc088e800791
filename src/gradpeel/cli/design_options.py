"""From the options of `gradpeel audit` to a design.

A setting that the chosen design does not have is an error, unless it asks for the default: who
gives another value believes that it counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from gradpeel.cli.parsing import parse_pair
from gradpeel.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from gradpeel.designs import Construction, Design, RobustSoliton

__all__ = ["DesignName", "DesignOptions", "InitName", "WeightsName"]


class DesignName(StrEnum):
    """How the server sets the first layer."""

    PASSIVE = "passive"
    TRAP_WEIGHTS = "trap-weights"
    SOLITON_FREE = "soliton-free"
    SOLITON_DATA = "soliton-data"


class WeightsName(StrEnum):
    """How an active design draws its weights."""

    INDEPENDENT = "independent"
    MIRRORED = "mirrored"


class InitName(StrEnum):
    """How an honest server starts."""

    PAPER = "paper"
    TORCH = "torch"


_HAVE: Mapping[str, tuple[DesignName, ...]] = MappingProxyType(
    {
        "init": (DesignName.PASSIVE,),
        "weights": (DesignName.TRAP_WEIGHTS, DesignName.SOLITON_FREE, DesignName.SOLITON_DATA),
        "scale": (DesignName.TRAP_WEIGHTS,),
        "soliton": (DesignName.SOLITON_FREE, DesignName.SOLITON_DATA),
    }
)
"""Which designs have a setting."""

_DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "init": InitName.PAPER,
        # At scale 1 the independent construction is a Gaussian start, Passive's own.
        "weights": WeightsName.INDEPENDENT,
        "scale": 0.99,
        "soliton": "0.05,0.4",
    }
)
"""Values that change nothing, so that one command line can go through all designs."""


@dataclass(frozen=True)
class DesignOptions:
    """A design's name and settings as they were given; None for those that were not.

    Raises:
        InputError: a setting that the design does not have, other than its default.

    Example:
        >>> DesignOptions(DesignName.PASSIVE, scale=0.9)
        Traceback (most recent call last):
        gradpeel.errors.InputError: scale=0.9: design passive has no scale; trap-weights has
    """

    design: DesignName
    weights: WeightsName | None = None
    init: InitName | None = None
    scale: float | None = None
    soliton: str | None = None

    def __post_init__(self) -> None:
        for setting, designs in _HAVE.items():
            value = getattr(self, setting)
            if value not in {None, _DEFAULTS[setting]} and self.design not in designs:
                have = f"{', '.join(designs)} {'has' if len(designs) == 1 else 'have'}"
                rule = f"design {self.design} has no {setting}; {have}"
                raise InputError(f"{setting}={value}: {rule}")

    @property
    def network_init(self) -> InitName:
        """How the whole network starts; an active design then sets its first layer."""
        return self.init or InitName.PAPER

    def build(self, auxiliary: Tensor) -> Design:
        """Make the design; only Soliton-Data looks at the auxiliary samples (n, *sample_shape).

        Raises:
            InputError: a setting breaks its rule.
        """
        from gradpeel.designs import (  # noqa: PLC0415 -- torch is slow to import; --help need not wait
            Passive,
            SolitonData,
            SolitonFree,
            TrapWeights,
        )

        weights = self.weights or WeightsName.INDEPENDENT
        construction: Construction = weights.value
        match self.design:
            case DesignName.PASSIVE:
                is_torch = self.network_init is InitName.TORCH
                return Passive(init="torch" if is_torch else "gaussian")
            case DesignName.TRAP_WEIGHTS:
                trap = TrapWeights(construction=construction)
                return trap if self.scale is None else replace(trap, scale=self.scale)
            case DesignName.SOLITON_FREE:
                return SolitonFree(construction, self._soliton())
            case DesignName.SOLITON_DATA:
                return SolitonData(auxiliary, construction, self._soliton())

    def _soliton(self) -> RobustSoliton:
        from gradpeel.designs import RobustSoliton  # noqa: PLC0415

        if self.soliton is None:
            return RobustSoliton()
        return RobustSoliton(*parse_pair("soliton", self.soliton, example="0.05,0.4"))
