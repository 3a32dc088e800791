"""The same audit again and again: one draw decides no verdict.

How much a round gives away depends on the batch, and on the weights that the network has at that
moment: another initialisation, or another step of training, may give away everything or nothing.
`audit_many` repeats an audit over batches and initialisations, `audit_checkpoints` follows it over
the checkpoints of a training run. Both return the audits themselves, and their spread.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from gradpeel.aggregation import Aggregation
from gradpeel.attacker import Attacker
from gradpeel.audit import Audit, audit
from gradpeel.checks import check_module, check_positive_integer, check_seed
from gradpeel.client import Client
from gradpeel.coercion import Samples, Targets, as_labelled_samples, batches_of, is_stream
from gradpeel.errors import InputError

__all__ = ["Audits", "ModelFactory", "Spread", "TrainingCurve", "audit_checkpoints", "audit_many"]

ModelFactory = Callable[[], nn.Module]
"""Makes a new network each time it is called."""
OnAudit = Callable[[Audit], None]
"""Called after each audit."""


@dataclass(frozen=True)
class Spread:
    """What repeats of a measurement found.

    Example:
        >>> Spread.of([3, 9, 4])
        Spread(least=3, median=4, most=9)
    """

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(min(values), median(values), max(values))


@dataclass(frozen=True, eq=False, repr=False)
class Audits(Sequence[Audit]):
    """Repeats of an audit.

    Attributes:
        audits: one per repeat, in their order.
        varied: what differs between them besides the seed: "batches", "initialisations".
    """

    audits: tuple[Audit, ...]
    varied: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.audits)

    @overload
    def __getitem__(self, place: int) -> Audit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Audit, ...]: ...
    def __getitem__(self, place: int | slice) -> Audit | tuple[Audit, ...]:
        return self.audits[place]

    @property
    def readable(self) -> Spread:
        """Number of samples that the server can read, with or without proof."""
        return Spread.of([one.score.read for one in self.audits])

    @property
    def recovered(self) -> Spread:
        """Number of samples that were recovered with proof."""
        return Spread.of([one.score.recovered for one in self.audits])

    @property
    def readable_share(self) -> Spread:
        """Share of the batch that the server can read."""
        return Spread.of([one.score.read / one.score.batch_size for one in self.audits])

    @property
    def recovery_rate(self) -> Spread:
        """Share of the batch that was recovered with proof."""
        return Spread.of([one.score.recovery_rate for one in self.audits])

    @property
    def peeling_bound(self) -> Spread:
        """Share of the batch that peeling reaches on the activation grid."""
        return Spread.of([one.score.peeling_bound for one in self.audits])

    @property
    def member_share(self) -> Spread | None:
        """Share of the batch that the update shows to have taken part; None if it is not asked."""
        if any(one.refuses_membership for one in self.audits):
            return None
        counts = [(one.membership.count("in"), one.score.batch_size) for one in self.audits]
        return Spread.of([inside / size for inside, size in counts])

    @property
    def complete(self) -> int:
        """In how many repeats every sample can be read."""
        return sum(one.score.read == one.score.batch_size for one in self.audits)

    @property
    def worst(self) -> Audit:
        """The audit in which the largest share can be read; of several the first."""
        return max(self.audits, key=lambda one: one.score.read / one.score.batch_size)

    @property
    def false_certificates(self) -> int:
        """Certified samples of all repeats that are far from every true one."""
        return sum(one.score.false_certificates for one in self.audits)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The different numbers of samples in a batch, in rising order."""
        return tuple(sorted({one.score.batch_size for one in self.audits}))

    def __repr__(self) -> str:
        over = f" over {' and '.join(self.varied)}" if self.varied else ""
        sizes, noun = " or ".join(map(str, self.batch_sizes)), self.audits[0].recovery.noun
        found = self.readable
        return (
            f"Audits({len(self)} repeats{over}: {found.least} to {found.most} of {sizes} {noun}s "
            f"readable, median {found.median:g}, in {self.complete} all)"
        )

    def as_dict(self) -> dict[str, object]:
        """The spread and the numbers of every audit, as plain values for JSON."""
        members = self.member_share
        return {
            "repeats": len(self),
            "varied": list(self.varied),
            "batch_sizes": list(self.batch_sizes),
            "complete": self.complete,
            "readable": asdict(self.readable),
            "readable_share": asdict(self.readable_share),
            "recovered": asdict(self.recovered),
            "recovery_rate": asdict(self.recovery_rate),
            "peeling_bound": asdict(self.peeling_bound),
            "member_share": None if members is None else asdict(members),
            "false_certificates": self.false_certificates,
            "audits": [one.as_dict() for one in self.audits],
        }


@dataclass(frozen=True, eq=False, repr=False)
class TrainingCurve:
    """What the rounds of a training run give away, from one checkpoint to the next.

    Attributes:
        steps: the step of each checkpoint, in rising order.
        at: the audits of each checkpoint, all on the same batches.
    """

    steps: tuple[int, ...]
    at: tuple[Audits, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, place: int) -> Audits:
        return self.at[place]

    @property
    def worst(self) -> Audit:
        """The audit of any checkpoint in which the largest share can be read."""
        return Audits(tuple(one for audits in self.at for one in audits), ()).worst

    def __repr__(self) -> str:
        listed = ", ".join(
            f"{audits.readable.median:g} at step {step}"
            for step, audits in zip(self.steps, self.at, strict=True)
        )
        sizes = " or ".join(map(str, self.at[0].batch_sizes))
        noun = self.at[0][0].recovery.noun
        return f"TrainingCurve({noun}s readable of {sizes}: {listed})"

    def as_dict(self) -> dict[str, object]:
        """The audits of every checkpoint, as plain values for JSON."""
        found = zip(self.steps, self.at, strict=True)
        return {"checkpoints": [{"step": step, **audits.as_dict()} for step, audits in found]}


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
    check_positive_integer("repeats", repeats)
    check_seed(seed)
    makes = not isinstance(model, nn.Module)
    if makes and not callable(model):
        check_module(model)
    varied = _varied(is_stream(x), batch_size, makes=makes)
    is_random = attacker.design.weights != "keep" or client.noise or client.local_batch_size
    if repeats > 1 and not varied and not is_random:
        raise InputError(
            f"repeats={repeats}: nothing would differ but the seed: expected batch_size, a "
            "DataLoader, or a function that makes the network"
        )
    seeds = [_derived(seed, number) for number in range(repeats)]
    first = _make(model, seeds[0])
    repeat = partial(
        audit, client=client, attacker=attacker, aggregation=aggregation, device=device
    )
    found = []
    draws = _draws(first, x, y, repeats, batch_size, seed, client)
    for number, (own_x, own_y) in enumerate(draws):
        network = first if number == 0 else _make(model, seeds[number])
        found.append(repeat(network, own_x, own_y, seed=seeds[number]))
        if on_audit is not None:
            on_audit(found[-1])
    return Audits(tuple(found), varied)


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
    check_positive_integer("repeats", repeats)
    if not checkpoints:
        raise InputError("checkpoints: expected at least one state dict by its step")
    networks = {step: load_state(model, checkpoints[step], step) for step in sorted(checkpoints)}
    # Of a stream, every checkpoint must see the same batches.
    if is_stream(x):
        batches = list(batches_of(x, repeats))
        varied: tuple[str, ...] = _varied(repeats > 1, None, makes=False)
    else:
        if repeats > 1 and batch_size is None:
            raise InputError(f"repeats={repeats}: expected batch_size, or a DataLoader")
        first = next(iter(networks.values()))
        batches = list(_draws(first, x, y, repeats, batch_size, seed, client))
        varied = _varied(False, batch_size if repeats > 1 else None, makes=False)
    at = []
    for network in networks.values():
        found = []
        for number, (own_x, own_y) in enumerate(batches):
            found.append(
                audit(
                    network,
                    own_x,
                    own_y,
                    client=client,
                    attacker=attacker,
                    aggregation=aggregation,
                    seed=_derived(seed, number),
                    device=device,
                )
            )
            if on_audit is not None:
                on_audit(found[-1])
        at.append(Audits(tuple(found), varied))
    return TrainingCurve(tuple(networks), tuple(at))


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


def _varied(by_stream: bool, batch_size: int | None, *, makes: bool) -> tuple[str, ...]:
    batches = ("batches",) if by_stream or batch_size is not None else ()
    return (*batches, *(("initialisations",) if makes else ()))


def _make(model: nn.Module | ModelFactory, seed: int) -> nn.Module:
    """The network, or a new one whose random numbers come from a seed."""
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
    repeats: int,
    batch_size: int | None,
    seed: int,
    client: Client,
) -> Iterator[tuple[Any, Any]]:
    """A batch for each repeat."""
    if is_stream(x):
        if batch_size is not None:
            raise InputError(f"batch_size={batch_size}: x already comes in batches: expected None")
        yield from batches_of(x, repeats)
        return
    dtype = client.dtype or next(model.parameters()).dtype
    pool, wanted, _ = as_labelled_samples(model, x, y, dtype)
    if len(wanted) != len(pool):
        raise InputError(f"y of {len(wanted)} entries: expected one for each of {len(pool)} samples")
    if batch_size is None:
        yield from ((x, y) for _ in range(repeats))
        return
    check_positive_integer("batch_size", batch_size)
    if batch_size > len(pool):
        raise InputError(f"batch_size={batch_size}: x has {len(pool)} samples")
    for number in range(repeats):
        order = np.random.default_rng([seed, 3, number]).permutation(len(pool))
        chosen = torch.from_numpy(order[:batch_size])
        yield pool[chosen.to(pool.device)], wanted[chosen.to(wanted.device)]


def _derived(seed: int, number: int) -> int:
    """A seed of its own for each repeat but the first."""
    if number == 0:
        return seed
    return int(np.random.SeedSequence([seed, 3, number]).generate_state(1)[0])
