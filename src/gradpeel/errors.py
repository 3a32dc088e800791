"""What can go wrong, as types that a caller can distinguish.

Everything gradpeel raises on purpose is a `GradpeelError`; its message names the thing, its value
and the rule it breaks, on one line. The command line prints that line and exits with code 2.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "GradpeelError",
    "ImpossibleModelError",
    "InputError",
    "ModelError",
    "ModelRefusedError",
    "ModelSettingError",
    "UnsupportedModelError",
]


class GradpeelError(ValueError):
    """Base of all errors that are about the user's input."""


class InputError(GradpeelError):
    """An argument, an array or a file breaks a rule."""


class ModelError(GradpeelError):
    """One reason why a network cannot be audited; see the three subclasses."""

    kind = "model"


class ImpossibleModelError(ModelError):
    """This attack does not apply to such a network, for example one without a Linear layer.

    Others may: it says nothing about them.
    """

    kind = "this attack does not apply"


class UnsupportedModelError(ModelError):
    """The mathematics allows it, but gradpeel does not support it yet."""

    kind = "not supported yet"


class ModelSettingError(ModelError):
    """The network can be audited once a setting is changed, for example by `model.eval()`."""

    kind = "change this setting"


class ModelRefusedError(GradpeelError):
    """A network cannot be audited; `reasons` holds every reason found, not only the first.

    Attributes:
        reasons: why.
        refused: what cannot be done, in a clause.
        caution: what must not be concluded from a refusal.

    Example:
        >>> try:
        ...     raise ModelRefusedError([ImpossibleModelError("no Linear layer found")])
        ... except ModelRefusedError as error:
        ...     print(error)
        the model cannot be audited: [this attack does not apply] no Linear layer found
        (this says nothing about other attacks)
    """

    caution = "this says nothing about other attacks"

    def __init__(
        self, reasons: Sequence[ModelError], refused: str = "the model cannot be audited"
    ) -> None:
        self.reasons, self.refused = tuple(reasons), refused
        listed = "; ".join(f"[{reason.kind}] {reason}" for reason in self.reasons)
        super().__init__(f"{refused}: {listed} ({self.caution})")
