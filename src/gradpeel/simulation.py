"""A training round, simulated: what the server receives, and what is known of it who looks on.

Part of the audit, which knows the batch; the decoder never imports this module.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gradpeel.aggregation import Aggregation, aggregate, client_weights
from gradpeel.client import Client, local_update
from gradpeel.designs import Design, Layer
from gradpeel.errors import InputError
from gradpeel.exposure import Exposure, copies_at, ever_fired
from gradpeel.inputs import NetworkInput
from gradpeel.signals import Contributions
from gradpeel.target import Target, split, watch_layer, with_first_layer
from gradpeel.trajectory import Trajectory
from gradpeel.update import Update

__all__ = ["SimulatedRound", "send_out", "simulate_round"]


@dataclass(frozen=True, eq=False)
class SimulatedRound:
    """One round of one client, or of several whose updates are added up.

    Attributes:
        update: what the server receives.
        exposure: the activation grid of all samples, and what peeling makes of it; after several
            local steps, the grid of "ever fired".
        contributions: what each sample adds to the update.
        owners: (batch,) int64, the client of each row.
        rows: (batch, features) what entered the target in the clients' own forward passes; more
            than one row per sample where the target acts on every token of a sequence.
    """

    update: Update
    exposure: Exposure
    contributions: Contributions
    owners: Tensor
    rows: Tensor


def send_out(
    model: nn.Module,
    target: Target,
    design: Design,
    batch_size: int,
    *,
    dtype: torch.dtype,
    seed: int,
) -> tuple[nn.Module, Target]:
    """What the client receives: the network with the target as the design sets it.

    Args:
        model: the network of which the target is a part; it is not changed.
        target: its target.
        design: how the server sets it.
        batch_size: of the clients that the server expects.
        dtype: in which clients compute.
        seed: of the design.
    """
    layer = design.shape(
        Layer(target.weight.double(), target.bias.double()),
        batch_size=batch_size,
        rng=np.random.default_rng(seed),
        front=target.to(torch.float64).front,
    )
    shaped = with_first_layer(model, target, layer.weight, layer.bias).to(dtype)
    return shaped, split(shaped, layer=target.layer)


@torch.no_grad()
def simulate_round(
    model: nn.Module,
    target: Target,
    x: NetworkInput,
    y: Tensor,
    *,
    client: Client,
    aggregation: Aggregation,
    seed: int,
) -> SimulatedRound:
    """Let all clients train, and add up what they send.

    Args:
        model: what the server sends to everyone.
        target: its target.
        x: (batch, *sample_shape) the samples of all clients, one client after the other.
        y: what the loss compares with.
        client: how each of them trains.
        aggregation: how many there are, and how they are weighted.
        seed: of anything random; every client has numbers of its own.

    Raises:
        InputError: there are fewer samples than clients, or what a client raises.
    """
    sizes = aggregation.split(len(x))
    owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    if len(sizes) > 1 and len(y) != len(x):
        raise InputError(f"y of {len(y)} entries: expected one for each of the {len(x)} samples")
    updates, paths = [], []
    with watch_layer(model, target.layer) as entered:
        for number in range(len(sizes)):
            mine = slice(None) if len(sizes) == 1 else owners == number
            own, wanted = x[mine], y[mine]
            path = Trajectory(target, own, wanted, client, entered)
            own_seed = seed if number == 0 else _derived(seed, number)
            updates.append(local_update(model, own, wanted, client, seed=own_seed, on_step=path))
            paths.append(path)
    rows = torch.cat([path.rows for path in paths])
    owners = owners.repeat_interleave(len(rows) // len(x))
    copies = copies_at(target, x, rows)
    grid = ever_fired([torch.cat([path.grid for path in paths], dim=1)], copies)
    weights = client_weights(updates, aggregation.weighting)
    each = [path.contributions for path in paths]
    added = [found.c * weight for found, weight in zip(each, weights, strict=True)]
    return SimulatedRound(
        update=updates[0] if len(updates) == 1 else aggregate(updates, aggregation.weighting),
        exposure=Exposure.of(grid, copies),
        contributions=Contributions(
            # What clipping left of each sample is not followed.
            torch.cat(added, dim=1) * (torch.nan if client.clipping else 1.0),
            torch.cat([found.margins for found in each]),
        ),
        owners=owners,
        rows=rows,
    )


def _derived(seed: int, number: int) -> int:
    """A seed of its own for each client but the first."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
