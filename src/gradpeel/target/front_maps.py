"""Steps of a front that move or mix values and can be undone: permutations, invertible linear maps.

A permutation loses nothing. A linear map loses nothing where it has at least as many outputs as
inputs and full rank: a square Linear without an activation, a fixed whitening (ZCA), a convolution
as large as the image. What a map multiplies by its least
singular value comes back with errors that are larger by its condition number. So a map counts as
one that can be undone only while half the digits of the network's dtype survive.

Example:
    >>> turn = Rearrangement(lambda x: x.movedim(1, -1), lambda y: y.movedim(-1, 1))
    >>> turn.undo(turn.apply(torch.ones(2, 3, 4, 5))).shape
    torch.Size([2, 3, 4, 5])
    >>> mix = Mixing(torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), torch.ones(3))
    >>> mix.undo(mix.apply(torch.tensor([[3.0, 4.0]]))).round(decimals=4).tolist()
    [[3.0, 4.0]]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from gradpeel.errors import InputError

__all__ = ["Convolution", "Mixing", "Rearrangement", "rearranging"]


@dataclass(frozen=True, eq=False)
class Rearrangement:
    """A permutation of each sample's values.

    Attributes:
        apply: (batch, *shape) to (batch, *another shape).
        undo: the way back.
    """

    apply: Callable[[Tensor], Tensor]
    undo: Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Mixing:
    """y = x weight^T + bias along the last dimension, as a Linear computes it.

    Attributes:
        weight: (outputs, inputs).
        bias: (outputs,).

    Raises:
        InputError: the map loses something, or nearly so.
    """

    weight: Tensor
    bias: Tensor

    def __post_init__(self) -> None:
        outputs, inputs = self.weight.shape
        if outputs < inputs:
            raise InputError(f"a map from {inputs} to {outputs} values: it cannot be undone")
        if not self.condition < torch.finfo(self.weight.dtype).eps ** -0.5:
            raise InputError("a map without full rank, or nearly so: it cannot be undone")

    @cached_property
    def condition(self) -> float:
        """The factor by which undoing it may make relative errors larger."""
        sizes = torch.linalg.svdvals(self.weight.double())
        return float(sizes[0] / sizes[-1])

    def apply(self, x: Tensor) -> Tensor:
        """Map x, (batch, ..., inputs), to (batch, ..., outputs)."""
        return functional.linear(x, self.weight.to(x), self.bias.to(x))

    def undo(self, y: Tensor) -> Tensor:
        """Map y back."""
        centred = y.double() - self.bias.to(y.device).double()
        return (centred @ self._inverse.to(y.device).T).to(y.dtype)

    @cached_property
    def _inverse(self) -> Tensor:
        """(inputs, outputs) float64."""
        inverse: Tensor = torch.linalg.pinv(self.weight.double())
        return inverse


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution that sees each value of an image once: as large as the image, or 1 x 1.

    Attributes:
        weight: (outputs, channels, height, width), as torch keeps it.
        mixing: the same as a map of flat patches.
    """

    weight: Tensor
    mixing: Mixing

    @classmethod
    def of(cls, layer: nn.Conv2d, width: int) -> Convolution | None:
        """Read a convolution; None if it sees values more than once, or leaves some out.

        Args:
            layer: the convolution.
            width: number of values that it puts out per sample. One per channel means that it is
                as large as the image.

        Raises:
            InputError: it loses something.
        """
        weight = layer.weight.detach()
        is_plain = layer.groups == 1 and layer.padding in {0, (0, 0), "valid"}
        is_dense = set(layer.stride) == set(layer.dilation) == {1}
        sees_once = width == layer.out_channels or set(layer.kernel_size) == {1}
        if not (is_plain and is_dense and sees_once and layer.padding_mode == "zeros"):
            return None
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
        return cls(weight, Mixing(weight.flatten(1), bias))

    def apply(self, x: Tensor) -> Tensor:
        """Map images, (batch, channels, height, width), as the network does."""
        return functional.conv2d(x, self.weight.to(x), self.mixing.bias.to(x))

    def undo(self, y: Tensor) -> Tensor:
        """Map (batch, outputs, rows, columns) back to images."""
        patches = self.mixing.undo(y.flatten(2).mT)
        channels, height, width = self.weight.shape[1:]
        # One patch as large as the image, or patches of one pixel.
        whole = (channels, y.shape[2] * height, y.shape[3] * width)
        return patches.mT.reshape(len(y), *whole)


def rearranging(layer: nn.Module) -> Rearrangement | None:
    """The permutation that a module of torch's own is, if it is one."""
    if isinstance(layer, nn.PixelUnshuffle):
        down = layer.downscale_factor
        return Rearrangement(partial(_unshuffle, factor=down), partial(_shuffle, factor=down))
    if isinstance(layer, nn.PixelShuffle):
        up = layer.upscale_factor
        return Rearrangement(partial(_shuffle, factor=up), partial(_unshuffle, factor=up))
    if isinstance(layer, nn.ChannelShuffle):
        groups = layer.groups
        return Rearrangement(lambda x: _deal(x, groups), lambda y: _deal(y, y.shape[1] // groups))
    return None


def _deal(x: Tensor, groups: int) -> Tensor:
    """Take the first channel of each group, then the second of each, and so on."""
    each = x.reshape(len(x), groups, x.shape[1] // groups, *x.shape[2:])
    return each.transpose(1, 2).flatten(1, 2)


def _unshuffle(x: Tensor, factor: int) -> Tensor:
    """Like torch's pixel_unshuffle, also of no images at all."""
    batch, channels, height, width = x.shape
    small = (height // factor, width // factor)
    blocks = x.reshape(batch, channels, small[0], factor, small[1], factor)
    return blocks.permute(0, 1, 3, 5, 2, 4).reshape(batch, channels * factor**2, *small)


def _shuffle(x: Tensor, factor: int) -> Tensor:
    """Like torch's pixel_shuffle, also of no images at all."""
    batch, channels, height, width = x.shape
    blocks = x.reshape(batch, channels // factor**2, factor, factor, height, width)
    whole = (channels // factor**2, height * factor, width * factor)
    return blocks.permute(0, 1, 4, 2, 5, 3).reshape(batch, *whole)
