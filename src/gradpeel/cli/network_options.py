"""Which network an audit runs on: a new perceptron, one of the user's own, or its checkpoints."""

from __future__ import annotations

import glob
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradpeel.cli.data_options import ROUND
from gradpeel.cli.model_files import load_model
from gradpeel.cli.own_model import import_model
from gradpeel.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from gradpeel.datasets import Dataset
    from gradpeel.designs.options import InitName

__all__ = [
    "NEW_NETWORK",
    "CheckpointFile",
    "CheckpointFiles",
    "Dtype",
    "DtypeName",
    "ModelName",
    "NetworkOptions",
    "Neurons",
    "TailWidths",
]

PANEL = "The network"
NEW_NETWORK = ("neurons", "tail", "init")
"""Options of a new perceptron; other networks have their own."""


class DtypeName(StrEnum):
    """What the client computes in."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODULE:NAME",
        help="A network of your own: a torch.nn.Module, or a function or class without arguments "
        "that makes one, in a module of the current directory or an installed one. Importing the "
        "module runs its code.",
        show_default="a new perceptron",
        rich_help_panel=PANEL,
    ),
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="FILE",
        help="Weights of the network, .safetensors or .npz. Without --model, the network is the "
        "perceptron that they describe.",
        show_default="none",
        rich_help_panel=PANEL,
    ),
]
CheckpointFiles = Annotated[
    str | None,
    typer.Option(
        "--checkpoints",
        metavar="GLOB",
        help="Checkpoints of a training run, such as 'run/step-*.safetensors': all are audited on "
        "the same batch. The last number in a file's name is its step.",
        show_default="none",
        rich_help_panel=PANEL,
    ),
]

Neurons = Annotated[
    int, typer.Option(min=1, help="Width of the first layer.", rich_help_panel=ROUND)
]
TailWidths = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Widths of further hidden layers behind the first, such as 256,128.",
        show_default="none",
        rich_help_panel=ROUND,
    ),
]
Dtype = Annotated[
    DtypeName | None,
    typer.Option(
        help="The type in which the client computes. float64 shows how far the attack can go; "
        "most clients send float32.",
        show_default="float64; with --model or a checkpoint, that of the network",
        rich_help_panel=ROUND,
    ),
]


@dataclass(frozen=True)
class NetworkOptions:
    """Where the network comes from.

    Attributes:
        model: module and name of the user's own.
        checkpoint: file of its weights.
        checkpoints: pattern of files of its weights.
        widths: of the hidden layers of a new perceptron.
        init: how a new perceptron is initialised.
        given: settings of a new perceptron that the user stated, by name.

    Raises:
        InputError: options that exclude one another.
    """

    model: str | None
    checkpoint: Path | None
    checkpoints: str | None
    widths: tuple[int, ...]
    init: InitName
    given: Mapping[str, object]

    def __post_init__(self) -> None:
        if self.checkpoint is not None and self.checkpoints is not None:
            rule = "expected one of the two"
            raise InputError(f"checkpoint={str(self.checkpoint)!r}, checkpoints: {rule}")
        for name, value in self.given.items() if self.is_own else ():
            source = "--model" if self.model is not None else "the checkpoint"
            raise InputError(f"{name}={value}: the network comes from {source}, which has its own")

    @property
    def is_own(self) -> bool:
        """Whether the network is not a new perceptron."""
        return not (self.model is None and self.checkpoint is None and self.checkpoints is None)

    @property
    def origin(self) -> str:
        """Where the weights come from, in words; without directories."""
        if self.checkpoint is not None:
            return f"from {self.checkpoint.name}"
        if self.checkpoints is not None:
            return "from a checkpoint"
        return "newly initialised" if self.model is None else f"as {self.model} makes them"

    def make(
        self, dataset: Dataset, rng: np.random.Generator
    ) -> nn.Module | Callable[[], nn.Module]:
        """The network, or a function that makes a new one each time.

        Raises:
            InputError: it cannot be imported or read, or the weights do not fit.
        """
        import torch  # noqa: PLC0415 - slow to import

        if self.model is None and self.is_own:
            path = next(iter(self._files.values()))
            return _flattening(load_model(path))
        if self.model is not None:
            found = import_model(self.model)
            if not self._files:
                return found
            if not isinstance(found, torch.nn.Module):
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(0)
                    found = found()
            return self._loaded(found)
        return lambda: _new(dataset, self.widths, self.init, rng)

    def states(self) -> dict[int, dict[str, Tensor]]:
        """The checkpoints of a run, by their steps.

        Raises:
            InputError: no file matches, a name has no number, or a file cannot be read.
        """
        from gradpeel.update import load_tensors  # noqa: PLC0415

        return {step: load_tensors(path)[0] for step, path in self._files.items()}

    @cached_property
    def _files(self) -> dict[int, Path]:
        if self.checkpoint is not None:
            return {0: self.checkpoint}
        return {} if self.checkpoints is None else find_checkpoints(self.checkpoints)

    def _loaded(self, network: nn.Module) -> nn.Module:
        from gradpeel.repeats import load_state  # noqa: PLC0415

        if self.checkpoint is None:
            return network
        (state,) = self.states().values()
        return load_state(network, state, self.checkpoint)


def find_checkpoints(pattern: str) -> dict[int, Path]:
    """Files by the last number in their name, in its order.

    Raises:
        InputError: there is none, or two have the same number, or one has none.
    """
    found: dict[int, Path] = {}
    for path in sorted(map(Path, glob.glob(pattern))):  # noqa: PTH207 - it may be absolute
        numbers = re.findall(r"\d+", path.stem)
        if not numbers:
            raise InputError(f"{path}: no number in its name: expected the step, as in step-50")
        step = int(numbers[-1])
        if step in found:
            raise InputError(f"{path}: step {step} is also that of {found[step]}")
        found[step] = path
    if not found:
        raise InputError(f"checkpoints={pattern!r}: no such file")
    return dict(sorted(found.items()))


def _new(
    dataset: Dataset, widths: tuple[int, ...], init: InitName, rng: np.random.Generator
) -> nn.Module:
    from gradpeel.networks import mlp  # noqa: PLC0415

    return mlp(
        dataset.features,
        dataset.classes,
        widths,
        rng=rng,
        init=init.value,
        sample_shape=dataset.sample_shape,
    )


def _flattening(network: nn.Sequential) -> nn.Module:
    """The perceptron of a file, for samples of any shape; its parameters keep their names."""
    from torch import nn  # noqa: PLC0415

    layers = OrderedDict(network.named_children())
    return nn.Sequential(OrderedDict([("gradpeel_flatten", nn.Flatten()), *layers.items()]))
