"""How the server sets the attacked layer: one small value for each design of the paper.

Example:
    >>> import torch
    >>> auxiliary = torch.rand(16, 64)
    >>> for label, make in PAPER_METHODS.items():
    ...     print(label, make(auxiliary).name, make(auxiliary).weights)
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
from types import MappingProxyType

from torch import Tensor

from gradpeel.designs.degrees import RobustSoliton, ideal_soliton
from gradpeel.designs.layer import Design, Layer, ToRows
from gradpeel.designs.passive import Passive
from gradpeel.designs.soliton_data import SolitonData
from gradpeel.designs.soliton_free import SolitonFree
from gradpeel.designs.trap_weights import TrapWeights
from gradpeel.designs.weights import Construction, draw_weights

__all__ = [
    "PAPER_METHODS",
    "Construction",
    "Design",
    "Layer",
    "Passive",
    "RobustSoliton",
    "SolitonData",
    "SolitonFree",
    "ToRows",
    "TrapWeights",
    "draw_weights",
    "ideal_soliton",
]

PAPER_METHODS: Mapping[str, Callable[[Tensor], Design]] = MappingProxyType(
    {
        "SF-Ind": lambda _: SolitonFree("independent"),
        "SF-Mir": lambda _: SolitonFree("mirrored"),
        "SD-Ind": lambda auxiliary: SolitonData(auxiliary, "independent"),
        "SD-Mir": lambda auxiliary: SolitonData(auxiliary, "mirrored"),
        "TW-Ind": lambda _: TrapWeights(construction="independent"),
        "TW-Mir": lambda _: TrapWeights(construction="mirrored"),
        "Passive": lambda _: Passive("gaussian"),
    }
)
"""The rows of the paper's table of recovery rates, in its order and with its parameters: label ->
a function from the auxiliary batch, which only Soliton-Data looks at, to the design."""
