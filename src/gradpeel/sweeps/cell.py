"""One audit of a sweep, named by its settings.

A cell is a pure function of its settings and the data: it gives the same measurement wherever and
whenever it runs. Its key, a hash of the settings, is all a store needs to know what is done.

Example:
    >>> cell = Cell(dataset="digits", design="soliton-data", weights="mirrored", batch_size=64)
    >>> str(cell), cell.key
    ('digits SD-Mir B=64 N=1000 seed 0', '...')
    >>> Cell.from_settings(cell.settings) == cell
    True
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gradpeel.client import Client
from gradpeel.defences.options import NONE, parse
from gradpeel.designs import DesignName, DesignOptions, InitName, WeightsName

__all__ = ["Cell"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The settings of one audit; those that its design does not have are None.

    Attributes:
        dataset: a data set's name, or the path of a file (`.npz`, `.csv`, `.parquet`).
        design: how the server sets the target, such as "soliton-data".
        weights: weight construction of an active design.
        init: initialisation of the network with "passive".
        scale: factor on positive weights with "trap-weights".
        soliton: (c, delta) of the soliton designs.
        batch_size: samples in each client's batch.
        clients: number of clients whose updates are added up (secure aggregation).
        neurons: width of the target.
        tail: widths of further hidden layers.
        dtype: the dtype in which the client computes.
        noise: standard deviation of noise on the update, relative to each gradient's own.
        defence: what the client does to its update, as `gradpeel.defences.parse` reads it.
        lr: learning rate of local training; None for the gradient of one batch (FedSGD).
        momentum: of local training.
        weight_decay: of local training.
        local_steps: number of local steps.
        local_epochs: how often the client goes through its data, instead of a number of steps.
        local_batch_size: samples per local step; None for all of them.
        effort: how long the row cascade searches; 0 for peeling alone.
        shuffle: whether the seed draws the samples of the batch; otherwise they are the first
            training samples.
        seed: draws network and design, the order of the samples in local training, noise, and,
            with `shuffle`, the samples.
    """

    dataset: str
    design: str
    weights: str | None = None
    init: str | None = None
    scale: float | None = None
    soliton: tuple[float, float] | None = None
    batch_size: int
    clients: int = 1
    neurons: int = 1000
    tail: tuple[int, ...] = ()
    dtype: str = "float64"
    noise: float = 0.0
    defence: str = NONE
    lr: float | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    local_steps: int | None = None
    local_epochs: int | None = None
    local_batch_size: int | None = None
    effort: float = 0.0
    shuffle: bool = True
    seed: int = 0

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Cell:
        """Rebuild a cell from its `settings`, as they come back from JSON too."""
        lists = {name: tuple(value) for name, value in settings.items() if isinstance(value, list)}
        return cls(**{**settings, **lists})

    @property
    def settings(self) -> dict[str, Any]:
        """All settings as plain values."""
        return asdict(self)

    @property
    def key(self) -> str:
        """A hash of the settings, the same on every machine."""
        known = self.settings
        if self.defence == NONE:
            # Cells that were measured before there were defences keep their keys.
            del known["defence"]
        text = json.dumps(known, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def options(self) -> DesignOptions:
        """The design's name and settings."""
        return DesignOptions(
            DesignName(self.design),
            None if self.weights is None else WeightsName(self.weights),
            None if self.init is None else InitName(self.init),
            self.scale,
            self.soliton,
        )

    @property
    def client(self) -> Client:
        """How the client trains."""
        return Client(
            dtype=getattr(torch, self.dtype),
            noise=self.noise,
            defences=parse(self.defence),
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            local_steps=self.local_steps,
            local_epochs=self.local_epochs,
            local_batch_size=self.local_batch_size,
        )

    @property
    def samples(self) -> int:
        """Samples of all clients together."""
        return self.clients * self.batch_size

    @property
    def training(self) -> dict[str, float]:
        """The settings of local training that were made, by name; none for one gradient."""
        if self.lr is None:
            return {}
        names = ("lr", "local_steps", "local_epochs", "local_batch_size", "momentum")
        held = {name: getattr(self, name) for name in (*names, "weight_decay")}
        return {name: value for name, value in held.items() if value}

    @property
    def method(self) -> str:
        """The design in short, as the paper's table has it: "SD-Mir"; "SD-Mir+Rows" with rows."""
        return self.options.label + ("+Rows" if self.effort else "")

    @property
    def variant(self) -> str:
        """What may differ between cells of the same data, method, batch size and seed."""
        parts = [f"N={self.neurons}"]
        if self.clients > 1:
            parts.append(f"clients {self.clients}")
        if self.tail:
            parts.append(f"tail {','.join(map(str, self.tail))}")
        if self.dtype != "float64":
            parts.append(self.dtype)
        if self.noise:
            parts.append(f"noise {self.noise:g}")
        if self.defence != NONE:
            parts.append(self.defence)
        parts += [f"{name.replace('_', ' ')} {value:g}" for name, value in self.training.items()]
        if self.effort not in {0.0, 1.0}:
            parts.append(f"effort {self.effort:g}")
        return " ".join(parts)

    def __str__(self) -> str:
        return f"{self.dataset} {self.method} B={self.batch_size} {self.variant} seed {self.seed}"
