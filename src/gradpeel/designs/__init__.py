"""How the server sets the attacked layer: one small value for each design of the paper.

Example:
    >>> TrapWeights(scale=0.9)
    TrapWeights(scale=0.9, construction='independent', sigma=0.5)
    >>> import torch
    >>> DesignOptions(DesignName.PASSIVE).build(torch.rand(16, 64))
    Passive(init='gaussian', sigma=0.5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradpeel._late import load_late

if TYPE_CHECKING:
    from gradpeel.designs.degrees import RobustSoliton, ideal_soliton
    from gradpeel.designs.layer import Design, Layer, ToRows
    from gradpeel.designs.options import (
        PAPER_METHODS,
        DesignName,
        DesignOptions,
        InitName,
        WeightsName,
    )
    from gradpeel.designs.passive import Passive
    from gradpeel.designs.soliton_data import SolitonData
    from gradpeel.designs.soliton_free import SolitonFree
    from gradpeel.designs.trap_weights import TrapWeights
    from gradpeel.designs.weights import Construction, draw_weights
else:
    load_late(
        __name__,
        {
            "gradpeel.designs.degrees": ("RobustSoliton", "ideal_soliton"),
            "gradpeel.designs.layer": ("Design", "Layer", "ToRows"),
            "gradpeel.designs.options": (
                "PAPER_METHODS",
                "DesignName",
                "DesignOptions",
                "InitName",
                "WeightsName",
            ),
            "gradpeel.designs.passive": ("Passive",),
            "gradpeel.designs.soliton_data": ("SolitonData",),
            "gradpeel.designs.soliton_free": ("SolitonFree",),
            "gradpeel.designs.trap_weights": ("TrapWeights",),
            "gradpeel.designs.weights": ("Construction", "draw_weights"),
        },
    )

__all__ = [
    "PAPER_METHODS",
    "Construction",
    "Design",
    "DesignName",
    "DesignOptions",
    "InitName",
    "Layer",
    "Passive",
    "RobustSoliton",
    "SolitonData",
    "SolitonFree",
    "ToRows",
    "TrapWeights",
    "WeightsName",
    "draw_weights",
    "ideal_soliton",
]
