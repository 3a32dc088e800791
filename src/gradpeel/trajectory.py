"""What an audit follows while a client trains: who fires which neurons, and what everyone adds.

The grid of a round with several steps is that of "ever fired" (`gradpeel.exposure.ever_fired`), and
a sample's contribution is its gradient at each step that it took part in, summed up as SGD does.
For the gradient of one batch both are what they are at the model that the client received.

Where the front cannot be undone, the rows of a batch are those that entered the target in the very
forward pass of the client: another pass would draw other dropout masks.

Part of the audit, which knows the batch; the decoder never imports this module.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradpeel.client import Client
from gradpeel.exposure import copies_at, copies_of, ever_fired, grid_of, rows_of
from gradpeel.inputs import NetworkInput
from gradpeel.losses import Loss
from gradpeel.signals import Contributions, contributions
from gradpeel.target import Entered, Target, split
from gradpeel.torch_losses import as_loss

__all__ = ["Trajectory"]


class Trajectory:
    """Follows a local training, step by step: give it to `gradpeel.local_update` as `on_step`.

    Args:
        target: the target of the network that the client received.
        x: (batch, *sample_shape) the client's samples.
        y: what the loss compares with.
        client: how the client trains.
        entered: what enters the target of the client's model, see `gradpeel.target.watch_layer`;
            needed where the front cannot be undone.

    Example:
        >>> from gradpeel.client import local_update
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 2))
        >>> x, y, client = torch.rand(4, 6), torch.tensor([0, 1, 1, 0]), Client(lr=1, local_steps=9)
        >>> path = Trajectory(split(model), x, y, client)
        >>> update = local_update(model, x, y, client, on_step=path)
        >>> summed = path.contributions.c.sum(1).float()
        >>> torch.allclose(summed, update.gradients["0.bias"], atol=1e-5)
        True
    """

    @torch.no_grad()
    def __init__(
        self,
        target: Target,
        x: NetworkInput,
        y: Tensor,
        client: Client,
        entered: Entered | None = None,
    ) -> None:
        self._layer, self._entered = target.layer, entered
        self._x, self._y, self._client = x, y, client
        self._loss: Loss = as_loss(client.loss)
        self._rows = target.rows(x)
        self._each = len(self._rows) // len(x)
        self._copies = copies_at(target, x, self._rows)
        self._seen = torch.zeros(len(self._rows), dtype=torch.bool)
        self._grid = torch.zeros(target.neurons, len(self._rows), dtype=torch.bool)
        self._sum = torch.zeros(self._grid.shape, dtype=torch.float64)
        self._velocity = self._sum
        self._margins = torch.zeros(len(self._rows), dtype=torch.float64)

    @torch.no_grad()
    def __call__(self, model: nn.Module, chosen: Tensor) -> None:
        """Look at the model in a step on some of the samples, given by their indices."""
        target = split(model, layer=self._layer, share=True)
        wide = target.to(torch.float64)
        if target.front.space == "input":
            rows = target.rows(self._x)
            exact = wide.front(self._x)
        else:
            rows = self._features(target, chosen)
            exact = rows.double()
        takes_part = torch.zeros(len(rows), dtype=torch.bool)
        takes_part[rows_of(chosen, self._each)] = True
        # Equal rows may round differently elsewhere in the batch; they are one sample all the same.
        grid = grid_of(target, rows).T[self._copies].T & takes_part
        self._grid = ever_fired([self._grid, grid], self._copies)
        found = contributions(wide, exact, self._y, self._copies, self._loss)
        is_mean = self._client.reduction == "mean"
        share = 1.0 / self._loss.denominator(self._y[chosen]) if is_mean else 1.0
        # The sum obeys SGD's own rule: what was added to the weights decays with them.
        decay = (self._client.lr or 0.0) * self._client.weight_decay
        pull = found.c * grid * share - decay * self._sum
        self._velocity = self._client.momentum * self._velocity + pull
        self._sum = self._sum + self._velocity
        self._margins = torch.maximum(self._margins, found.margins)

    def _features(self, target: Target, chosen: Tensor) -> Tensor:
        """(batch, features) what entered the target, of samples not drawn yet what would have."""
        if self._entered is not None:
            entered = self._entered.take(
                self._layer,
                batch=len(chosen),
                features=target.features,
                tokenwise=target.front.tokenwise,
            ).to(self._rows)
            drawn = rows_of(chosen, self._each)
            new = ~self._seen[drawn]
            self._rows[drawn[new]] = entered[new]
            self._seen[drawn] = True
            if target.front.unsteady is not None:
                self._copies = copies_of(self._rows)
        return self._rows

    @property
    def rows(self) -> Tensor:
        """(batch, features) what entered the target."""
        return self._rows

    @property
    def grid(self) -> Tensor:
        """(neurons, batch) of bool, where each sample ever fired."""
        return self._grid

    @property
    def contributions(self) -> Contributions:
        """What each sample adds to the update, at the neurons it ever fired."""
        return Contributions(self._sum, self._margins)
