"""The same audit again and again, over batches, initialisations and checkpoints.

How much a round gives away depends on the batch, and on the weights that the network has at that
moment: another initialisation, or another step of training, may give away everything or nothing.

Example:
    >>> from gradpeel.datasets import load
    >>> data = load("breast_cancer")
    >>> def make_model():
    ...     return nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Linear(100, 2)).double()
    >>> found = audit_many(make_model, data.x_train, data.y_train, batch_size=4, repeats=3)
    >>> found
    Audits(3 repeats over batches and initialisations: ... of 4 samples readable, ... all)
    >>> found.readable.least <= found.readable.median <= found.readable.most
    True
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gradpeel.aggregation import Aggregation
from gradpeel.attacker import Attacker
from gradpeel.audit import Audit, audit
from gradpeel.audits import Audits, TrainingCurve
from gradpeel.checks import check_module, check_positive_integer, check_seed
from gradpeel.client import Client
from gradpeel.coercion import Samples, Targets, as_labelled_samples, batches_of, is_stream
from gradpeel.errors import InputError

__all__ = [
    "ModelFactory",
    "OnAudit",
    "audit_checkpoints",
    "audit_many",
    "load_state",
    "make_network",
]

ModelFactory = Callable[[], nn.Module]
"""Makes a new network each time it is called."""
OnAudit = Callable[[Audit], None]
"""Called after each audit."""


class _Draw(NamedTuple):
    """What one repeat runs on: a batch with its labels, and the names of its columns."""

    x: Any
    y: Any
    columns: tuple[str, ...] | None = None


def audit_many(
    model: nn.Module | ModelFactory,
    x: Samples,
    y: Targets = None,
    *,
    repeats: int = 10,
    batch_size: int | None = None,
    client: Client = Client(),  # noqa: B008 - immutable
    attacker: Attacker = Attacker(),  # noqa: B008 - immutable
    aggregation: Aggregation = Aggregation(),  # noqa: B008 - immutable
    seed: int = 0,
    device: str | torch.device = "cpu",
    on_audit: OnAudit | None = None,
) -> Audits:
    """Repeat an audit over batches, initialisations or both, and report the spread.

    Every repeat has a seed of its own, so active designs, noise and local minibatches differ too.

    Args:
        model: the network; or a function without arguments that makes a new one, such as its class,
            for repeats over initialisations.
        x: what batches are drawn from, in any form that `gradpeel.coercion` names; or a DataLoader,
            of which each repeat takes the next batch.
        y: labels or targets, see `gradpeel.audit`.
        repeats: number of audits.
        batch_size: samples to draw from `x` for each repeat, without replacement; by default every
            repeat has all of them.
        client: how the client trains.
        attacker: what the server does and knows.
        aggregation: how many clients' updates are added up.
        seed: seed of all draws.
        device: where the decoder computes.
        on_audit: called after each audit.

    Returns:
        The audits, with their spread.

    Raises:
        InputError: nothing would differ between the repeats, there are too few samples or batches,
            or what `gradpeel.audit` raises.
        ModelRefusedError: the network cannot be audited.

    Example:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> data = TensorDataset(torch.rand(32, 20), torch.arange(32) % 2)
        >>> model = nn.Sequential(nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 2))
        >>> len(audit_many(model, DataLoader(data, batch_size=8), repeats=4))
        4
    """
    check_seed(seed)
    makes = not isinstance(model, nn.Module)
    if makes and not callable(model):
        check_module(model)
    draws_batches = is_stream(x) or batch_size is not None
    names = {"batches": draws_batches, "initialisations": makes}
    varied = tuple(name for name, does in names.items() if does)
    is_random = attacker.design.weights != "keep" or client.noise or client.local_batch_size
    if repeats > 1 and not varied and not is_random:
        raise InputError(
            f"repeats={repeats}: nothing would differ but the seed: expected batch_size, a "
            "DataLoader, or a function that makes the network"
        )
    first = make_network(model, seed)
    networks = (
        first if number == 0 else make_network(model, _derived(seed, number))
        for number in range(repeats)
    )
    found = _audit_each(
        networks,
        _draws(first, x, y, repeats=repeats, batch_size=batch_size, seed=seed, client=client),
        seed=seed,
        on_audit=on_audit,
        client=client,
        attacker=attacker,
        aggregation=aggregation,
        device=device,
    )
    return Audits(found, varied)


def audit_checkpoints(
    model: nn.Module,
    checkpoints: Mapping[int, Mapping[str, Tensor]],
    x: Samples,
    y: Targets = None,
    *,
    repeats: int = 1,
    batch_size: int | None = None,
    client: Client = Client(),  # noqa: B008 - immutable
    attacker: Attacker = Attacker(),  # noqa: B008 - immutable
    aggregation: Aggregation = Aggregation(),  # noqa: B008 - immutable
    seed: int = 0,
    device: str | torch.device = "cpu",
    on_audit: OnAudit | None = None,
) -> TrainingCurve:
    """Audit the checkpoints of a training run: how what a round gives away changes with the step.

    Every checkpoint is audited on the same batches.

    Args:
        model: the network; its own weights do not matter.
        checkpoints: state dicts by the step at which they were taken.
        x: what batches are drawn from, see `audit_many`.
        y: labels or targets, see `gradpeel.audit`.
        repeats: number of batches; more than one are drawn at random and need a `batch_size`, or
            are the next ones of a DataLoader.
        batch_size: samples to draw from `x` for each batch; by default all of them.
        client: how the client trains.
        attacker: what the server does and knows.
        aggregation: how many clients' updates are added up.
        seed: seed of all draws.
        device: where the decoder computes.
        on_audit: called after each audit.

    Returns:
        The audits of each checkpoint, in the order of the steps.

    Raises:
        InputError: a checkpoint does not fit the network, there is none, or what `audit_many`
            raises.
        ModelRefusedError: the network cannot be audited.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 2))
        >>> x, y, states = torch.rand(8, 20), torch.arange(8) % 2, {}
        >>> adam = torch.optim.Adam(model.parameters())
        >>> for step in range(21):
        ...     states[step] = {name: value.clone() for name, value in model.state_dict().items()}
        ...     nn.functional.cross_entropy(model(x), y).backward()
        ...     adam.step()
        >>> audit_checkpoints(model, {step: states[step] for step in (0, 20)}, x, y)
        TrainingCurve(samples readable of 8: 8 at step 0, 8 at step 20)
    """
    check_module(model)
    check_seed(seed)
    if not checkpoints:
        raise InputError("checkpoints: expected at least one state dict by its step")
    steps: list[object] = list(checkpoints)
    for given in steps:
        if not isinstance(given, int):
            raise InputError(f"checkpoints: step {given!r}: expected an integer")
    networks = {step: load_state(model, checkpoints[step], step) for step in sorted(checkpoints)}
    if repeats != 1 and batch_size is None and not is_stream(x):
        raise InputError(f"repeats={repeats}: expected batch_size, or a DataLoader")
    first = next(iter(networks.values()))
    # Drawn once: every checkpoint sees the same batches.
    draws = list(
        _draws(first, x, y, repeats=repeats, batch_size=batch_size, seed=seed, client=client)
    )
    varied = ("batches",) if repeats > 1 else ()
    at = (
        _audit_each(
            [network] * repeats,
            draws,
            seed=seed,
            on_audit=on_audit,
            client=client,
            attacker=attacker,
            aggregation=aggregation,
            device=device,
        )
        for network in networks.values()
    )
    return TrainingCurve(tuple(networks), tuple(Audits(found, varied) for found in at))


def load_state(model: nn.Module, state: Mapping[str, Tensor], step: object) -> nn.Module:
    """A copy of a network with other weights.

    Raises:
        InputError: they do not fit; names the checkpoint and what is wrong, in one line.
    """
    network = copy.deepcopy(model)
    try:
        network.load_state_dict(dict(state))
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        reason = lines[1] if len(lines) > 1 else lines[0]
        raise InputError(f"checkpoint {step}: does not fit the network: {reason}") from None
    return network


def _audit_each(
    networks: Iterable[nn.Module],
    draws: Iterable[_Draw],
    *,
    seed: int,
    on_audit: OnAudit | None,
    **settings: Any,  # noqa: ANN401 - those of `audit`
) -> tuple[Audit, ...]:
    found = []
    for number, (network, draw) in enumerate(zip(networks, draws, strict=True)):
        one = audit(network, draw.x, draw.y, seed=_derived(seed, number), **settings)
        found.append(one if draw.columns is None else replace(one, columns=draw.columns))
        if on_audit is not None:
            on_audit(found[-1])
    return tuple(found)


def make_network(model: nn.Module | ModelFactory, seed: int) -> nn.Module:
    """The network, or a new one whose random numbers come from a seed.

    Raises:
        InputError: what was made is not a network.
    """
    if isinstance(model, nn.Module):
        return model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = model()
    check_module(made)
    return made


def _draws(
    model: nn.Module,
    x: Samples,
    y: Targets,
    *,
    repeats: int,
    batch_size: int | None,
    seed: int,
    client: Client,
) -> Iterator[_Draw]:
    """A batch for each repeat."""
    check_positive_integer("repeats", repeats)
    if is_stream(x):
        if batch_size is not None:
            raise InputError(f"batch_size={batch_size}: x already comes in batches: expected None")
        yield from (_Draw(*batch) for batch in batches_of(x, repeats))
        return
    dtype = client.dtype or next(model.parameters()).dtype
    pool, wanted, columns = as_labelled_samples(model, x, y, dtype)
    if len(wanted) != len(pool):
        rule = f"expected one for each of the {len(pool)} samples"
        raise InputError(f"y of {len(wanted)} entries: {rule}")
    if batch_size is None:
        yield from (_Draw(pool, wanted, columns) for _ in range(repeats))
        return
    check_positive_integer("batch_size", batch_size)
    if batch_size > len(pool):
        raise InputError(f"batch_size={batch_size}: x has {len(pool)} samples")
    for number in range(repeats):
        order = np.random.default_rng([seed, 3, number]).permutation(len(pool))
        chosen = torch.from_numpy(order[:batch_size])
        yield _Draw(pool[chosen.to(pool.device)], wanted[chosen.to(wanted.device)], columns)


def _derived(seed: int, number: int) -> int:
    """A seed of its own for each repeat but the first."""
    if number == 0:
        return seed
    return int(np.random.SeedSequence([seed, 3, number]).generate_state(1)[0])
