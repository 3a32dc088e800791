"""A design by its name and settings, as a command line or a plan gives them.

A setting that the chosen design does not have is an error, unless it asks for the default: who
gives another value believes that it counts.

Example:
    >>> import torch
    >>> auxiliary = torch.rand(16, 64)
    >>> for label, method in PAPER_METHODS.items():
    ...     print(label, method.build(auxiliary).name, method.build(auxiliary).weights)
    SF-Ind soliton-free independent
    SF-Mir soliton-free mirrored
    SD-Ind soliton-data independent
    SD-Mir soliton-data mirrored
    TW-Ind trap-weights independent
    TW-Mir trap-weights mirrored
    Passive passive gaussian
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from gradpeel.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from gradpeel.designs import Construction, Design, RobustSoliton

__all__ = ["PAPER_METHODS", "DesignName", "DesignOptions", "InitName", "WeightsName"]


class DesignName(StrEnum):
    """How the server sets the first layer."""

    PASSIVE = "passive"
    TRAP_WEIGHTS = "trap-weights"
    SOLITON_FREE = "soliton-free"
    SOLITON_DATA = "soliton-data"
    TUNED = "tuned"
    TUNED_FREE = "tuned-free"
    QBI = "qbi"
    PAIRS = "pairs"


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
        "weights": (
            DesignName.TRAP_WEIGHTS,
            DesignName.SOLITON_FREE,
            DesignName.SOLITON_DATA,
            DesignName.TUNED,
            DesignName.TUNED_FREE,
        ),
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
        "soliton": (0.05, 0.4),
    }
)
"""Values that change nothing, so that one command line can go through all designs."""

_USE_AUXILIARY = (DesignName.SOLITON_DATA, DesignName.TUNED, DesignName.PAIRS)

_LABELS: Mapping[DesignName, str] = MappingProxyType(
    {
        DesignName.PASSIVE: "Passive",
        DesignName.TRAP_WEIGHTS: "TW",
        DesignName.SOLITON_FREE: "SF",
        DesignName.SOLITON_DATA: "SD",
        DesignName.TUNED: "Tuned",
        DesignName.TUNED_FREE: "TunedFree",
        DesignName.QBI: "QBI",
        DesignName.PAIRS: "PAIRS",
    }
)


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
    soliton: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for setting, designs in _HAVE.items():
            value = getattr(self, setting)
            if value not in {None, _DEFAULTS[setting]} and self.design not in designs:
                have = f"{', '.join(designs)} {'has' if len(designs) == 1 else 'have'}"
                rule = f"design {self.design} has no {setting}; {have}"
                spelt = (
                    ",".join(f"{part:g}" for part in value) if isinstance(value, tuple) else value
                )
                raise InputError(f"{setting}={spelt}: {rule}")

    @property
    def network_init(self) -> InitName:
        """How the whole network starts; an active design then sets its first layer."""
        return self.init or InitName.PAPER

    @property
    def label(self) -> str:
        """What tables call it: the paper's "Passive" and "SD-Mir", for mirrored Soliton-Data."""
        name = _LABELS[self.design]
        if not self.has("weights"):
            return name
        weights = self.weights or WeightsName.INDEPENDENT
        return f"{name}-{weights[:3].capitalize()}"

    def has(self, setting: str) -> bool:
        """Whether the design has a setting: "weights", "init", "scale" or "soliton"."""
        return self.design in _HAVE[setting]

    def build(
        self,
        auxiliary: Tensor,
        *,
        keep: bool = False,
        on_search: Callable[[int, int], None] | None = None,
    ) -> Design:
        """Make the design.

        Args:
            auxiliary: (n, *sample_shape) the server's own samples, for those designs that use them.
            on_search: called while Tuned searches; see there.
            keep: let a passive server keep the network's weights, instead of drawing new ones.

        Raises:
            InputError: a setting breaks its rule.
        """
        # Names and settings are checked without torch, which the designs need.
        from gradpeel.designs import (  # noqa: PLC0415
            QBI,
            Pairs,
            Passive,
            SolitonData,
            SolitonFree,
            TrapWeights,
            Tuned,
            TunedFree,
        )

        if self.design in _USE_AUXILIARY and not len(auxiliary):
            rule = "expected data with a test split, the server's own samples"
            raise InputError(f"design={self.design}: the data has no test split: {rule}")
        construction: Construction = (self.weights or WeightsName.INDEPENDENT).value
        trap = TrapWeights(construction=construction)
        start: Literal["torch", "gaussian"] = (
            "torch" if self.network_init is InitName.TORCH else "gaussian"
        )
        makers: dict[DesignName, Callable[[], Design]] = {
            DesignName.PASSIVE: lambda: Passive() if keep else Passive(init=start),
            DesignName.TRAP_WEIGHTS: lambda: (
                trap if self.scale is None else replace(trap, scale=self.scale)
            ),
            DesignName.SOLITON_FREE: lambda: SolitonFree(construction, self._soliton()),
            DesignName.SOLITON_DATA: lambda: SolitonData(auxiliary, construction, self._soliton()),
            DesignName.TUNED: lambda: Tuned(auxiliary, construction, on_progress=on_search),
            DesignName.TUNED_FREE: lambda: TunedFree(construction),
            DesignName.QBI: QBI,
            DesignName.PAIRS: lambda: Pairs(auxiliary),
        }
        return makers[self.design]()

    def _soliton(self) -> RobustSoliton:
        from gradpeel.designs import RobustSoliton  # noqa: PLC0415

        return RobustSoliton() if self.soliton is None else RobustSoliton(*self.soliton)


PAPER_METHODS: Mapping[str, DesignOptions] = MappingProxyType(
    {
        method.label: method
        for method in (
            DesignOptions(DesignName.SOLITON_FREE, WeightsName.INDEPENDENT),
            DesignOptions(DesignName.SOLITON_FREE, WeightsName.MIRRORED),
            DesignOptions(DesignName.SOLITON_DATA, WeightsName.INDEPENDENT),
            DesignOptions(DesignName.SOLITON_DATA, WeightsName.MIRRORED),
            DesignOptions(DesignName.TRAP_WEIGHTS, WeightsName.INDEPENDENT),
            DesignOptions(DesignName.TRAP_WEIGHTS, WeightsName.MIRRORED),
            DesignOptions(DesignName.PASSIVE),
        )
    }
)
"""The rows of the paper's table of recovery rates, in its order and with its parameters."""
