"""How the server sets the attacked layer: one small value for each design, the paper's and others.

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
    from gradpeel.designs.pairs import Pairs
    from gradpeel.designs.passive import Passive
    from gradpeel.designs.qbi import QBI
    from gradpeel.designs.soliton_data import SolitonData
    from gradpeel.designs.soliton_free import SolitonFree
    from gradpeel.designs.trap_weights import TrapWeights
    from gradpeel.designs.tuned import Tuned
    from gradpeel.designs.tuned_free import TunedFree
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
            "gradpeel.designs.pairs": ("Pairs",),
            "gradpeel.designs.passive": ("Passive",),
            "gradpeel.designs.qbi": ("QBI",),
            "gradpeel.designs.soliton_data": ("SolitonData",),
            "gradpeel.designs.soliton_free": ("SolitonFree",),
            "gradpeel.designs.trap_weights": ("TrapWeights",),
            "gradpeel.designs.tuned": ("Tuned",),
            "gradpeel.designs.tuned_free": ("TunedFree",),
            "gradpeel.designs.weights": ("Construction", "draw_weights"),
        },
    )

__all__ = [
    "PAPER_METHODS",
    "QBI",
    "Construction",
    "Design",
    "DesignName",
    "DesignOptions",
    "InitName",
    "Layer",
    "Pairs",
    "Passive",
    "RobustSoliton",
    "SolitonData",
    "SolitonFree",
    "ToRows",
    "TrapWeights",
    "Tuned",
    "TunedFree",
    "WeightsName",
    "draw_weights",
    "ideal_soliton",
]
