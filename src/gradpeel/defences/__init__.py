"""Defences: what a client does to an update before it sends it, one small value each.

Example:
    >>> import gradpeel as gp
    >>> gp.Client(defences=[UpdateClipping(1.0), RelativeNoise(0.01)]).defences
    (UpdateClipping(norm=1.0), RelativeNoise(sigma=0.01))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradpeel._late import load_late

if TYPE_CHECKING:
    from gradpeel.defences.accounting import epsilon_of_release, epsilon_of_run
    from gradpeel.defences.clipping import UpdateClipping
    from gradpeel.defences.defence import Defence, Sending
    from gradpeel.defences.guard import Guard
    from gradpeel.defences.noise import Noise, RelativeNoise
    from gradpeel.defences.options import parse, spell
    from gradpeel.defences.per_example import PerExampleClipping
    from gradpeel.defences.rounding import Bfloat16, Float16, Int8, Sign
    from gradpeel.defences.top_k import TopK
    from gradpeel.defences.transform import Transform
else:
    load_late(
        __name__,
        {
            "gradpeel.defences.accounting": ("epsilon_of_release", "epsilon_of_run"),
            "gradpeel.defences.clipping": ("UpdateClipping",),
            "gradpeel.defences.defence": ("Defence", "Sending"),
            "gradpeel.defences.guard": ("Guard",),
            "gradpeel.defences.noise": ("Noise", "RelativeNoise"),
            "gradpeel.defences.options": ("parse", "spell"),
            "gradpeel.defences.per_example": ("PerExampleClipping",),
            "gradpeel.defences.rounding": ("Bfloat16", "Float16", "Int8", "Sign"),
            "gradpeel.defences.top_k": ("TopK",),
            "gradpeel.defences.transform": ("Transform",),
        },
    )

__all__ = [
    "Bfloat16",
    "Defence",
    "Float16",
    "Guard",
    "Int8",
    "Noise",
    "PerExampleClipping",
    "RelativeNoise",
    "Sending",
    "Sign",
    "TopK",
    "Transform",
    "UpdateClipping",
    "epsilon_of_release",
    "epsilon_of_run",
    "parse",
    "spell",
]
