"""One honest training round: what a client computes and sends (paper, "Threat Model").

By default that is the gradient of one batch (FedSGD). A client with a learning rate trains on its
own for some steps and sends the difference of weights (FedAvg).

Example:
    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> x, y = torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> sorted(local_update(model, x, y).gradients)
    ['0.bias', '0.weight', '2.bias', '2.weight']
    >>> local_update(model, x, y, Client(lr=0.1, local_epochs=2, local_batch_size=4)).training
    LocalTraining(lr=0.1, steps=4, momentum=0.0, weight_decay=0.0)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gradpeel.checks import (
    DTYPES,
    check_at_least_0,
    check_module,
    check_positive_integer,
    check_seed,
    count_not_finite,
)
from gradpeel.coercion import Samples, Targets, as_labelled_samples
from gradpeel.defences.checking import as_defences
from gradpeel.defences.clipping import UpdateClipping
from gradpeel.defences.defence import Defence, Sending
from gradpeel.defences.per_example import PerExampleClipping
from gradpeel.errors import InputError
from gradpeel.gradients import batch_gradients
from gradpeel.inputs import NetworkInput, cast_inputs
from gradpeel.losses import CrossEntropy
from gradpeel.noise import with_noise
from gradpeel.torch_losses import GivenLoss, as_loss
from gradpeel.training import LocalTraining, summed_gradients
from gradpeel.update import REDUCTIONS, Reduction, Update

__all__ = ["Client", "OnStep", "local_update"]

OnStep = Callable[[nn.Module, Tensor], None]
"""Called in each step, before the weights change, with the model and the samples' indices."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """How a client trains, and what it does to its update before it sends it.

    Attributes:
        loss: the loss that it minimises; PyTorch's own modules are accepted too.
        reduction: whether the loss of a batch is the mean or the sum of its samples' losses.
        dtype: the dtype in which it computes; None for the model's own.
        noise: standard deviation of Gaussian noise on each gradient tensor of the update, as a
            multiple of the standard deviation of that tensor's values; see `gradpeel.with_noise`.
        defences: what it does to the update before it sends it, one after the other, see
            `gradpeel.defences`; a function from an update to an update counts too. Per-example
            clipping comes first, because it happens in every step.
        lr: the learning rate of its SGD. Without one it sends the gradient of its batch (FedSGD);
            with one it trains locally and sends the difference of weights (FedAvg).
        momentum: of its SGD, from 0 to below 1.
        weight_decay: of its SGD, at least 0.
        local_steps: number of its local steps; samples that none of them draws take no part.
        local_epochs: how often it goes through its data, instead of a number of steps; once if
            neither is given.
        local_batch_size: samples per local step, drawn again for every epoch; None for all of them.

    Raises:
        InputError: a setting breaks its rule, or belongs to local training and there is no `lr`.

    Example:
        >>> Client(lr=0.1, local_epochs=2, local_batch_size=16).count_steps(64)
        8
        >>> Client(local_steps=5)
        Traceback (most recent call last):
        gradpeel.errors.InputError: local_steps=5: only a client with a learning rate (lr) trains
        locally
    """

    loss: GivenLoss = CrossEntropy()  # noqa: RUF009 - immutable
    reduction: Reduction = "mean"
    dtype: torch.dtype | None = None
    noise: float = 0.0
    defences: Sequence[Defence | Callable[[Update], Update]] = ()
    lr: float | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    local_steps: int | None = None
    local_epochs: int | None = None
    local_batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise InputError(f"reduction={self.reduction!r}: expected one of {REDUCTIONS}")
        # PyTorch's modules can change; what they stand for here cannot.
        object.__setattr__(self, "loss", as_loss(self.loss, reduction=self.reduction))
        if self.dtype is not None and self.dtype not in DTYPES:
            raise InputError(f"dtype={self.dtype}: expected float64, float32, bfloat16 or float16")
        check_at_least_0("noise", self.noise)
        object.__setattr__(self, "defences", as_defences(self.defences))
        # Its settings have the same rules.
        LocalTraining(self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
        for name in ("local_steps", "local_epochs", "local_batch_size"):
            if getattr(self, name) is not None:
                check_positive_integer(name, getattr(self, name))
        if self.local_steps is not None and self.local_epochs is not None:
            raise InputError(
                f"local_steps={self.local_steps}, local_epochs={self.local_epochs}: "
                "expected one of the two"
            )
        names = ("local_steps", "local_epochs", "local_batch_size", "momentum", "weight_decay")
        for name in names if self.lr is None else ():
            if getattr(self, name):
                rule = "only a client with a learning rate (lr) trains locally"
                raise InputError(f"{name}={getattr(self, name)}: {rule}")

    @property
    def clipping(self) -> PerExampleClipping | None:
        """How it clips the gradient of each sample, if it does."""
        first = self.defences[0] if self.defences else None
        return first if isinstance(first, PerExampleClipping) else None

    @property
    def distorts(self) -> bool:
        """Whether a defence does more to an update than to scale it."""
        return any(not isinstance(one, UpdateClipping) for one in self.defences)

    def count_steps(self, batch_size: int) -> int:
        """How many local steps it takes on a number of samples; 1 for the gradient of a batch."""
        if self.local_steps is not None:
            return self.local_steps
        return (self.local_epochs or 1) * math.ceil(
            batch_size / (self.local_batch_size or batch_size)
        )

    def count_samples(self, batch_size: int) -> int:
        """How many of a number of samples take part; with few steps on minibatches, not all do.

        Example:
            >>> Client(lr=0.1, local_steps=2, local_batch_size=16).count_samples(64)
            32
        """
        size = self.local_batch_size or batch_size
        return min(batch_size, self.count_steps(batch_size) * size)


def local_update(
    model: nn.Module,
    x: Samples,
    y: Targets = None,
    client: Client = Client(),
    *,
    seed: int = 0,
    on_step: OnStep | None = None,
) -> Update:
    """What an honest client sends: the gradient of one batch, or the result of local training.

    The model runs in the mode it is in: in training mode, dropout is active and batch norm uses the
    statistics of the batch.

    Args:
        model: the network the server sent; it is not changed.
        x: the client's samples, (batch, *sample_shape), or anything else that holds them, such as a
            DataFrame, a Dataset or the first batch of a DataLoader; see `gradpeel.coercion`.
        y: class labels, (batch,) integers, for the cross-entropy; targets, (batch, outputs), for
            the other losses. None if `x` brings them; the name of a column if `x` is a DataFrame.
        client: how the client trains.
        seed: seed of anything random in the model, such as dropout, of the order of the samples
            and of the noise; the caller's own random numbers are not affected.
        on_step: called in each step, before the weights change, with the model and the indices of
            the step's samples. It must not change the model.

    Returns:
        The gradient; or, after local training, the difference of weights divided by the negative
        learning rate, with what is known of it in `training`.

    Raises:
        InputError: an empty batch, targets that do not fit it or the network, a seed that breaks
            its rule, or a training that diverges.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
        >>> x, y = torch.rand(5, 4), torch.rand(5, 2)
        >>> local_update(model, x, y, Client(loss=nn.MSELoss()))
        Update(4 tensors, 58 numbers, float32, batch_size=5, reduction='mean')
    """
    check_module(model)
    if not isinstance(client, Client):
        raise InputError(f"client of type {type(client).__name__}: expected gradpeel.Client")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("model: no parameter requires a gradient: there is nothing to send")
    dtype = next(model.parameters()).dtype if client.dtype is None else client.dtype
    check_seed(seed)
    taken, wanted, _ = as_labelled_samples(model, x, y, dtype)
    worker = copy.deepcopy(model).to(dtype)
    taken = cast_inputs(worker, taken, dtype)

    def watch(model: nn.Module, chosen: Tensor) -> None:
        if on_step is not None:
            # Whoever looks on must not change what the model draws.
            with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                on_step(model, chosen)

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        if client.lr is None:
            found = _gradients(worker, taken, wanted, client, torch.Generator().manual_seed(seed))
            watch(worker, torch.arange(len(taken)))
            update = Update(found, len(taken), client.reduction)
        else:
            update = _train(worker, taken, wanted, client, lr=client.lr, seed=seed, watch=watch)
    if client.noise:
        update = with_noise(update, client.noise, seed=seed)
    received = copy.deepcopy(model).to(dtype) if client.defences else model
    sending = Sending(received, taken, wanted, client, seed)
    for defence in as_defences(client.defences):
        update = defence.apply(update, sending)
    return update


def _gradients(
    worker: nn.Module, x: NetworkInput, y: Tensor, client: Client, source: torch.Generator
) -> dict[str, Tensor]:
    """The gradient of a batch, clipped sample by sample if the client does that."""
    loss, clipping = as_loss(client.loss), client.clipping
    if clipping is None:
        return batch_gradients(worker, x, y, loss, client.reduction)
    return clipping.gradients(worker, x, y, loss, client.reduction, source=source)


def _train(
    worker: nn.Module,
    x: NetworkInput,
    y: Tensor,
    client: Client,
    *,
    lr: float,
    seed: int,
    watch: OnStep,
) -> Update:
    """Train the worker with SGD; the update is what became of its weights."""
    named = {name: p for name, p in worker.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in named.items()}
    sgd = torch.optim.SGD(
        named.values(), lr=lr, momentum=client.momentum, weight_decay=client.weight_decay
    )
    steps, source = client.count_steps(len(x)), torch.Generator().manual_seed(seed)
    for step, chosen in enumerate(_choose(client, len(x), seed), start=1):
        mine = x[chosen.to(x.device)], y[chosen.to(y.device)]
        found = _gradients(worker, *mine, client, source)
        watch(worker, chosen)
        for name, parameter in named.items():
            parameter.grad = found[name]
        sgd.step()
        if any(count_not_finite(parameter) for parameter in named.values()):
            raise InputError(
                f"lr={lr}: the training diverges in local step {step} of {steps}: expected a "
                "smaller learning rate"
            )
    training = LocalTraining(lr, steps, client.momentum, client.weight_decay)
    samples = client.count_samples(len(x))
    return Update(summed_gradients(before, named, training), samples, client.reduction, training)


def _choose(client: Client, batch_size: int, seed: int) -> Iterator[Tensor]:
    """The samples of each local step, in the order of the data."""
    steps, size = client.count_steps(batch_size), client.local_batch_size or batch_size
    rng = np.random.default_rng([seed, 2])
    while steps > 0:
        order = rng.permutation(batch_size) if size < batch_size else np.arange(batch_size)
        for start in range(0, batch_size, size)[:steps]:
            yield torch.from_numpy(np.sort(order[start : start + size]))
            steps -= 1
