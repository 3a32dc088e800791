"""What stands before the target: reshaping and fixed normalisation, applied and undone.

The ratio of gradients gives back what *entered the target* (paper, section "First-Layer
Gradients"). Where a network first normalises and flattens its input, a recovered row is not yet a
sample: the front holds these steps, so that rows come back in input space.

Example:
    >>> import torch
    >>> front = Front((normalising(0.5, 0.25), Flatten()), features=4, dtype=torch.float64)
    >>> rows = front(torch.ones(3, 1, 2, 2))
    >>> rows.shape, front.invert(rows, (1, 2, 2)).unique().item()
    (torch.Size([3, 4]), 1.0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from gradpeel.checks import as_tensor, is_list
from gradpeel.errors import InputError
from gradpeel.inputs import Entry, NetworkInput, pick
from gradpeel.target.front_maps import Convolution, Mixing, Rearrangement

__all__ = ["Affine", "Flatten", "Front", "Normalise", "Step", "normalising"]


@dataclass(frozen=True)
class Flatten:
    """Lay each sample out as one row: (batch, *sample_shape) to (batch, features)."""


@dataclass(frozen=True, eq=False)
class Affine:
    """y = (x - offset) / scale, undone by x = y * scale + offset.

    Attributes:
        offset: what is subtracted, float64; broadcast against x from the right, as torch does.
        scale: what it is divided by, float64, nowhere zero.
        channelwise: a vector of parameters belongs to the dimension after the batch, as in batch
            norm, and not to the last one.

    Raises:
        InputError: a value is not finite, or the scale is zero somewhere.
    """

    offset: Tensor
    scale: Tensor
    channelwise: bool = False

    def __post_init__(self) -> None:
        if not bool((torch.isfinite(self.scale) & (self.scale != 0)).all()):
            raise InputError("scale holds zero or values that are not finite: it cannot be undone")
        if not bool(torch.isfinite(self.offset).all()):
            raise InputError("offset holds values that are not finite: it cannot be undone")

    @property
    def uniform(self) -> bool:
        """One offset and one scale for all values: the shape of a sample does not matter."""
        return self.offset.numel() == self.scale.numel() == 1

    def apply(self, x: Tensor) -> Tensor:
        """Map x, (batch, *shape), to the same shape."""
        return (x - self._fit(self.offset, x)) / self._fit(self.scale, x)

    def undo(self, y: Tensor) -> Tensor:
        """Map y, (batch, *shape), back."""
        return y * self._fit(self.scale, y) + self._fit(self.offset, y)

    def _fit(self, parameter: Tensor, x: Tensor) -> Tensor:
        """Bring a parameter to x's dtype and device, in a shape that leaves x's own shape alone."""
        shape = tuple(parameter.shape)
        if self.channelwise and len(shape) == 1:
            shape = (*shape, *[1] * (x.ndim - 2))
        # The batch may not be broadcast: a sample's normalisation cannot depend on its place in it.
        allowed = (1, *x.shape[1:])[-len(shape) :] if shape else ()
        fits = len(shape) <= x.ndim and all(
            size in (1, limit) for size, limit in zip(shape, allowed, strict=True)
        )
        if not fits:
            raise InputError(
                f"samples of shape {tuple(x.shape[1:])}: the front normalises with parameters "
                f"of shape {tuple(parameter.shape)}, which do not fit"
            )
        return parameter.to(x).reshape(shape)


Step = Affine | Flatten | Rearrangement | Mixing | Convolution


@dataclass(frozen=True, eq=False)
class Front:
    """The steps from a network's input to the rows that enter its target.

    Attributes:
        steps: applied in order.
        features: width F of the rows.
        dtype: the dtype it computes in; inputs are cast to it first.
        trained: names of the parameters in it that are trained.
        entry: the input that it begins at, in a network of several; None if there is one.
    """

    steps: tuple[Step, ...]
    features: int
    dtype: torch.dtype
    trained: tuple[str, ...] = ()
    entry: Entry | None = None

    space: ClassVar[Literal["input", "features"]] = "input"
    unsteady: ClassVar[str | None] = None
    tokenwise: ClassVar[bool] = False

    def __call__(self, x: NetworkInput) -> Tensor:
        """Turn a batch, (batch, *sample_shape), into rows, (batch, features).

        Raises:
            InputError: the samples do not have the shape this front expects.
        """
        x = pick(x, self.entry)
        if x.ndim < 2:
            raise InputError(f"x of shape {tuple(x.shape)}: expected (batch, *sample_shape)")
        rows = x.to(self.dtype)
        for step in self.steps:
            try:
                rows = rows.flatten(1) if isinstance(step, Flatten) else step.apply(rows)
            except (RuntimeError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                reason = str(error).splitlines()[0]
                raise InputError(
                    f"x of shape {tuple(x.shape)}: the model does not take it ({reason})"
                ) from error
        if rows.ndim != 2 or rows.shape[1] != self.features:
            raise InputError(
                f"x of shape {tuple(x.shape)} enters the target as {tuple(rows.shape)}: "
                f"expected (batch, {self.features})"
            )
        return rows

    def invert(self, rows: Tensor, sample_shape: tuple[int, ...] | None = None) -> Tensor:
        """Turn rows, (n, features), back into samples, (n, *sample_shape).

        Args:
            rows: what entered the target.
            sample_shape: shape of one sample; where not given, samples come back as rows.

        Raises:
            InputError: rows of another width, a shape that does not hold a row's values, or no
                shape where the front normalises per channel before it flattens.
        """
        if rows.ndim != 2 or rows.shape[1] != self.features:
            raise InputError(f"rows of shape {tuple(rows.shape)}: expected (n, {self.features})")
        if not self.keeps_order:
            return self._retrace(rows, sample_shape)
        flattens = [at for at, step in enumerate(self.steps) if isinstance(step, Flatten)]
        first = flattens[0] if flattens else 0
        if sample_shape is not None:
            self._check_shape(sample_shape, flattened=bool(flattens))
        x = rows.to(self.dtype)
        for at, step in reversed(list(enumerate(self.steps))):
            if isinstance(step, Flatten):
                if at == first and sample_shape is not None:
                    x = x.reshape(len(x), *sample_shape)
            elif isinstance(step, Affine) and (at >= first or sample_shape or step.uniform):
                x = step.undo(x)
            else:
                raise InputError(
                    "sample_shape=None: expected the shape of one sample, since the front "
                    "normalises per channel or feature before it flattens"
                )
        return x

    @property
    def amplification(self) -> float:
        """The factor by which inverting it may make relative errors larger."""
        maps = (step.mixing if isinstance(step, Convolution) else step for step in self.steps)
        return math.prod(step.condition for step in maps if isinstance(step, Mixing))

    @property
    def keeps_order(self) -> bool:
        """Whether each value of a row is one value of the sample, in the order of the sample."""
        return all(isinstance(step, Affine | Flatten) for step in self.steps)

    def _retrace(self, rows: Tensor, sample_shape: tuple[int, ...] | None) -> Tensor:
        """Undo all steps, with the shapes that a sample has on its way."""
        if sample_shape is None:
            sample_shape = self._flat_shape()
        self._check_sizes(sample_shape)
        x, shapes = torch.zeros(1, *sample_shape, dtype=self.dtype, device=rows.device), []
        for step in self.steps:
            shapes.append(tuple(x.shape[1:]))
            try:
                x = x.flatten(1) if isinstance(step, Flatten) else step.apply(x)
            except (RuntimeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise InputError(
                    f"sample_shape={sample_shape}: the front does not take it ({reason})"
                ) from error
        if tuple(x.shape) != (1, self.features):
            raise InputError(
                f"sample_shape={sample_shape}: such a sample enters the target as "
                f"{tuple(x.shape[1:])}: expected ({self.features},)"
            )
        x = rows.to(self.dtype)
        for step, shape in zip(reversed(self.steps), reversed(shapes), strict=True):
            x = x.reshape(len(x), *shape) if isinstance(step, Flatten) else step.undo(x)
        return x

    def _flat_shape(self) -> tuple[int]:
        """The shape of a flat sample.

        Raises:
            InputError: samples cannot be flat, because the front moves their values.
        """
        first = next(step for step in self.steps if not isinstance(step, Affine | Flatten))
        if isinstance(first, Mixing):
            return (first.weight.shape[1],)
        raise InputError(
            "sample_shape=None: expected the shape of one sample, since the front moves its values"
        )

    def to(self, dtype: torch.dtype) -> Front:
        """Return the same front computing in `dtype`."""
        return replace(self, dtype=dtype)

    def _check_sizes(self, shape: object) -> tuple[int, ...]:
        sizes = shape if is_list(shape) else [None]
        sample_shape = tuple(size for size in sizes if isinstance(size, int) and size > 0)
        if len(sample_shape) < len(sizes):
            raise InputError(f"sample_shape={shape!r}: expected a tuple of positive integers")
        return sample_shape

    def _check_shape(self, shape: object, *, flattened: bool) -> None:
        sample_shape = self._check_sizes(shape)
        if not flattened and sample_shape != (self.features,):
            raise InputError(
                f"sample_shape={sample_shape}: expected ({self.features},), "
                "since the front does not flatten"
            )
        if math.prod(sample_shape) != self.features:
            raise InputError(
                f"sample_shape={sample_shape} holds {math.prod(sample_shape)} values: "
                f"expected {self.features}, as many as the target has features"
            )


def normalising(
    mean: float | Sequence[float] | Tensor, std: float | Sequence[float] | Tensor
) -> Affine:
    """Make the step (x - mean) / std from numbers, or from one value per channel or feature."""
    given = (("mean", mean), ("std", std))
    offset, scale = (as_tensor(name, value, torch.float64).detach() for name, value in given)
    for name, value in (("mean", offset), ("std", scale)):
        if value.ndim > 1 or value.numel() == 0:
            raise InputError(
                f"{name} of shape {tuple(value.shape)}: "
                "expected a number or one value per channel or feature"
            )
        if not bool(torch.isfinite(value).all()):
            raise InputError(f"{name}={value.tolist()}: expected finite values")
    if not bool((scale > 0).all()):
        raise InputError(f"std={scale.tolist()}: expected positive values")
    if offset.ndim == scale.ndim == 1 and len(offset) != len(scale):
        raise InputError(
            f"mean of {len(offset)} values, std of {len(scale)}: expected as many of both"
        )
    return Affine(offset, scale, channelwise=True)


class Normalise(nn.Module):
    """Fixed normalisation (x - mean) / std as the first layer of a network.

    Put the normalisation inside the model, where it can be undone: recovered samples are then in
    the units in which they were recorded.

    Args:
        mean: a number, one value per channel of (batch, channels, ...), or one value per feature
            of (batch, features).
        std: the same; positive.

    Raises:
        InputError: values that are not finite, a std that is not positive, or lengths that differ.

    Example:
        >>> import torch
        >>> Normalise(mean=[0.5, 0.0], std=2.0)(torch.ones(1, 2, 1, 1)).flatten().tolist()
        [0.25, 0.5]
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, mean: float | Sequence[float] | Tensor, std: float | Sequence[float] | Tensor
    ) -> None:
        super().__init__()
        step = normalising(mean, std)
        self.register_buffer("mean", step.offset.to(torch.get_default_dtype()))
        self.register_buffer("std", step.scale.to(torch.get_default_dtype()))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x, (batch, channels or features, ...)."""
        x = x if x.is_floating_point() else x.to(self.mean.dtype)
        return normalising(self.mean, self.std).apply(x)
