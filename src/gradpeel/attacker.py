"""What the server does and knows: the other side of a training round.

Example:
    >>> import torch
    >>> from gradpeel.designs import SolitonData
    >>> Attacker(SolitonData(torch.rand(50, 8))).design.active
    True
    >>> Attacker(knows_tail="no")
    Traceback (most recent call last):
    gradpeel.errors.InputError: knows_tail='no': expected True or False
"""

from __future__ import annotations

from dataclasses import dataclass

from gradpeel.checks import check_at_least_0, check_data_range
from gradpeel.designs import Design, Passive
from gradpeel.errors import InputError

__all__ = ["Attacker"]


@dataclass(frozen=True)
class Attacker:
    """How a server sets the target, and what it decodes the update with.

    Attributes:
        design: how it sets the target; by default it leaves the model as it is.
        knows_batch_size: whether it knows the number of the client's samples; otherwise the decoder
            finds it.
        knows_tail: whether it knows the loss and the network behind the target; otherwise the
            decoder's evidence is the structure of the update and the next layer's gradient, and it
            recovers no labels.
        data_range: smallest and largest possible value of a feature, if it knows them.
        effort: how long the decoder searches for samples that no neuron isolates, see
            `gradpeel.peel`; 0 for peeling alone.
        layer: name of the layer that it attacks, such as "classifier.0"; None for the first one
            that can be read.

    Raises:
        InputError: a setting breaks its rule.
    """

    design: Design = Passive()  # noqa: RUF009 - immutable
    knows_batch_size: bool = True
    knows_tail: bool = True
    data_range: tuple[float, float] | None = None
    effort: float = 1.0
    layer: str | None = None

    def __post_init__(self) -> None:
        design: object = self.design
        if isinstance(design, type) or not callable(getattr(design, "shape", None)):
            rule = "expected a design such as gradpeel.designs.Passive()"
            raise InputError(f"design={design!r}: {rule}")
        for name in ("knows_batch_size", "knows_tail"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name}={getattr(self, name)!r}: expected True or False")
        check_data_range(self.data_range)
        check_at_least_0("effort", self.effort)
        layer: object = self.layer
        if layer is not None and not (isinstance(layer, str) and layer):
            raise InputError(f"layer={layer!r}: expected the name of a layer, or None")
