"""What a network takes: one tensor, or several, by position or by name.

Most networks take one tensor, and everywhere in gradpeel that is what a batch is. A network of
several inputs takes `Inputs`, which can be cut, moved and counted like one tensor.

Example:
    >>> x = Inputs((torch.rand(4, 3), torch.tensor([0, 2, 1, 1])), ("numbers", "category"))
    >>> len(x), x[:2].shapes
    (4, 'numbers (2, 3), category (2,)')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Entry", "Inputs", "NetworkInput", "cast_inputs", "describe", "pick", "run_model"]

Entry = tuple[int, str]
"""One of several inputs: its place among the arguments of `forward`, and its name there."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """A batch for a network of several inputs.

    Attributes:
        tensors: (batch, ...) each.
        names: the arguments of `forward` that they are given to, one per tensor; None if they are
            given by position.
    """

    tensors: tuple[Tensor, ...]
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, chosen: slice | Tensor) -> Inputs:
        """Some of the samples."""
        return self.each(lambda tensor: tensor[chosen])

    @property
    def device(self) -> torch.device:
        """Where the first one is."""
        return self.tensors[0].device

    @property
    def shapes(self) -> str:
        """In the words of a message."""
        shapes = [str(tuple(tensor.shape)) for tensor in self.tensors]
        if self.names is None:
            return ", ".join(shapes)
        return ", ".join(f"{name} {shape}" for name, shape in zip(self.names, shapes, strict=True))

    def cpu(self) -> Inputs:
        """The same in the main memory."""
        return self.each(Tensor.cpu)

    def to(self, device: torch.device) -> Inputs:
        """The same on a device."""
        return self.each(lambda tensor: tensor.to(device))

    def flip(self, dim: int) -> Inputs:
        """The same in the opposite order."""
        return self.each(lambda tensor: tensor.flip(dim))

    def flatten(self, start: int) -> Tensor:
        """(batch, values) all values of each sample side by side, float64."""
        wide = [tensor.double()[:, None].flatten(start) for tensor in self.tensors]
        return torch.cat(wide, dim=1)

    def each(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The same with each tensor changed."""
        return Inputs(tuple(map(change, self.tensors)), self.names)


NetworkInput = Tensor | Inputs
"""A batch as a network takes it."""


def run_model(model: nn.Module, x: NetworkInput) -> Any:  # noqa: ANN401 - whatever it returns
    """What a network returns for a batch: `model(x)`, `model(*x)` or `model(**x)`."""
    if isinstance(x, Tensor):
        return model(x)
    if x.names is None:
        return model(*x.tensors)
    return model(**dict(zip(x.names, x.tensors, strict=True)))


def pick(x: NetworkInput, entry: Entry | None) -> Tensor:
    """The tensor that enters at one of a network's inputs; one tensor alone enters at any.

    Example:
        >>> pick(Inputs((torch.zeros(2, 1), torch.ones(2, 1))), (1, "b")).tolist()
        [[1.0], [1.0]]
    """
    if isinstance(x, Tensor):
        return x
    place, name = (0, "") if entry is None else entry
    return x.tensors[place if x.names is None else x.names.index(name)]


def describe(x: NetworkInput) -> str:
    """The shape of a batch in the words of a message: "x of shape (8, 3)"."""
    return f"x of shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"x of shapes {x.shapes}"


def cast_inputs(model: nn.Module, x: NetworkInput, dtype: torch.dtype) -> NetworkInput:
    """Inputs as a network takes them: in its dtype, except for integers that it looks up.

    Example:
        >>> bag = nn.EmbeddingBag(9, 4)
        >>> tokens = torch.tensor([[1, 2], [3, 3]])
        >>> cast_inputs(bag, tokens, torch.float32).dtype
        torch.int64
        >>> cast_inputs(nn.Flatten(), tokens, torch.float32).dtype
        torch.float32
    """
    tables = (nn.Embedding, nn.EmbeddingBag)
    has_table = any(isinstance(module, tables) for module in model.modules())

    def cast(tensor: Tensor) -> Tensor:
        is_index = has_table and tensor.dtype in (torch.int32, torch.int64)
        return tensor if is_index else tensor.to(dtype)

    return cast(x) if isinstance(x, Tensor) else x.each(cast)
