"""A front that cannot be undone: convolutions, embeddings, attention, whatever a network has.

What the decoder reads is what *entered the target* (paper, section "First-Layer Gradients"), and it
needs nothing else: neither certificates nor peeling ask where a row came from. Where the way there
cannot be undone, rows are what comes back: *features*, not inputs.

The features of a batch are found by running the network on it, in the mode it is in, and looking at
what enters the target. In training mode, dropout and batch norm change them with every batch.

Example:
    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 5), nn.ReLU())
    >>> front = FeatureFront(model, "2", features=8, dtype=torch.float64, obstacle="Conv2d '0'")
    >>> front(torch.rand(3, 1, 4, 4)).shape
    torch.Size([3, 8])
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gradpeel.errors import InputError
from gradpeel.inputs import Entry, NetworkInput, cast_inputs, describe, run_model

__all__ = ["Entered", "FeatureFront", "as_if_never_run", "watch_layer"]


class Entered:
    """What entered a layer when its network was last run.

    Attributes:
        rows: the layer's input.
        calls: how often the layer was called since `rows` was last taken.
    """

    def __init__(self) -> None:
        self.rows: Tensor | None = None
        self.calls = 0

    def take(self, layer: str, *, batch: int, features: int, tokenwise: bool = False) -> Tensor:
        """The input of the layer in one run of the network, (batch, features).

        A layer that acts on every token of a sequence receives several rows per sample; those of
        the first sample come first.

        Raises:
            InputError: the layer was not called exactly once, or not with one row per sample (with
                the same number of rows for each, if `tokenwise`).
        """
        rows, calls, self.rows, self.calls = self.rows, self.calls, None, 0
        if rows is None or calls != 1:
            raise InputError(f"layer {layer!r} is called {calls} times per batch: expected once")
        if tokenwise and rows.ndim > 2 and rows.shape[-1] == features:
            if len(rows) % batch and rows.shape[1] == batch:  # tokens first
                rows = rows.transpose(0, 1)
            if len(rows) % batch == 0:
                return rows.flatten(0, -2)
        if tuple(rows.shape) != (batch, features):
            raise InputError(
                f"{batch} samples enter layer {layer!r} as {tuple(rows.shape)}: expected one row "
                f"per sample, ({batch}, {features})"
            )
        return rows


@contextlib.contextmanager
def watch_layer(model: nn.Module, layer: str) -> Iterator[Entered]:
    """See what enters a layer of a model, and of every copy that is made of the model meanwhile."""
    seen = Entered()

    # A function and not a method: a copy of the model calls this very function.
    def look(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.rows, seen.calls = inputs[0].detach(), seen.calls + 1

    handle = model.get_submodule(layer).register_forward_pre_hook(look)
    try:
        yield seen
    finally:
        handle.remove()


@dataclass(frozen=True, eq=False)
class FeatureFront:
    """The way from a network's input to its target, where it cannot be undone.

    Attributes:
        model: the whole network, a copy of its own.
        layer: name of the target in it.
        features: width F of the rows.
        dtype: the dtype of the rows; the network computes in its own.
        obstacle: what cannot be undone, in the words of a message.
        unsteady: why the features of a sample are not always the same, or depend on the rest of its
            batch, in a phrase such as "Dropout '0' is active"; None if no such step is known.
        trained: names of the parameters in it that are trained.
        tokenwise: the target may receive several rows per sample.
    """

    model: nn.Module
    layer: str
    features: int
    dtype: torch.dtype
    obstacle: str
    unsteady: str | None = None
    trained: tuple[str, ...] = ()
    tokenwise: bool = False

    space: ClassVar[Literal["input", "features"]] = "features"
    keeps_order: ClassVar[bool] = False
    amplification: ClassVar[float] = 1.0
    entry: ClassVar[Entry | None] = None

    def __call__(self, x: NetworkInput) -> Tensor:
        """The features, (batch, features), of a batch of inputs, in one run of the network.

        Where it is `tokenwise` there may be several rows per sample, one after the other.

        Raises:
            InputError: the network does not take the batch, or its target does not receive one row
                per sample.
        """
        return self.run(x)[1].to(self.dtype)

    @torch.no_grad()
    def run(self, x: NetworkInput) -> tuple[Tensor, Tensor]:
        """What the network puts out for a batch, and what enters its target; both in its dtype."""
        own = self.model.get_parameter(f"{self.layer}.weight")
        x = cast_inputs(self.model, x, own.dtype).to(own.device)
        with as_if_never_run(self.model), watch_layer(self.model, self.layer) as entered:
            try:
                outputs: Tensor = run_model(self.model, x)
            except Exception as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise InputError(f"{describe(x)}: the model does not take it ({reason})") from error
            rows = entered.take(
                self.layer, batch=len(x), features=self.features, tokenwise=self.tokenwise
            )
            return outputs, rows

    def invert(self, rows: Tensor, sample_shape: tuple[int, ...] | None = None) -> Tensor:
        """The rows themselves: features are what comes back.

        Raises:
            InputError: rows of another width, or a shape of samples, which do not come back.
        """
        if rows.ndim != 2 or rows.shape[1] != self.features:
            raise InputError(f"rows of shape {tuple(rows.shape)}: expected (n, {self.features})")
        if sample_shape is not None:
            raise InputError(
                f"sample_shape={sample_shape!r}: what is recovered are features that enter layer "
                f"{self.layer!r}, flat rows of {self.features} values: expected None"
            )
        return rows.to(self.dtype)

    def to(self, dtype: torch.dtype) -> FeatureFront:
        """Return the same front with rows in `dtype`."""
        return replace(self, dtype=dtype)


@contextlib.contextmanager
def as_if_never_run(module: nn.Module) -> Iterator[None]:
    """Put back what a run leaves behind: the random numbers it drew, what batch norm counted."""
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        for buffer, value in kept:
            buffer.copy_(value)
