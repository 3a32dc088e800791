"""Check one update before it leaves, on the client's own batch.

A prediction takes one forward pass: it peels the activation grid (`gradpeel.exposure`) and says
which record would be read, in which round and through which neurons. It knows peeling alone. A
decoded check runs everything that gradpeel can do to an update, peeling and the row cascade, and
counts what can be read with or without proof.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from gradpeel.aggregation import Aggregation
from gradpeel.attacker import Attacker
from gradpeel.audit import Audit, audit
from gradpeel.checking.budget import Budget, Finding, Risk, Verdict
from gradpeel.checks import check_seed
from gradpeel.client import Client
from gradpeel.coercion import Samples, Targets, as_labelled_samples, as_samples
from gradpeel.decoder.limits import LIMITS
from gradpeel.errors import InputError
from gradpeel.exposure import Exposure, exposure_at
from gradpeel.inputs import NetworkInput
from gradpeel.simulation import send_out, simulate_round
from gradpeel.target import Target, split
from gradpeel.update import Update

__all__ = ["Check", "check", "predicted_at"]


@dataclass(frozen=True, eq=False, repr=False)
class Check:
    """What an update gives away of the batch behind it.

    Where the layer acts on every token of a sequence, a record counts as read if one token is.

    Attributes:
        read: (records,) bool: which records can be read, with or without proof; without decoding,
            those that peeling would read.
        shown: (records,) bool: whose participation can be shown; None if that was not asked.
        exposure: the activation grid, and the round in which peeling reaches each row of it.
        space: "input" if records are read as they enter the network; "features" if the layer's own
            input is read, because what stands in front of it cannot be undone.
        layer: name of the layer.
        features: number of features that enter it.
        decoded: whether the decoder ran; otherwise all numbers are predictions for peeling alone.
        seconds: how long the check took.
        audit: the simulation and the decoder's result; None without decoding, and where many
            batches are checked.
    """

    read: Tensor
    shown: Tensor | None
    exposure: Exposure
    space: Literal["input", "features"]
    layer: str
    features: int
    decoded: bool
    seconds: float
    audit: Audit | None = None

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.read)

    @property
    def readable(self) -> int:
        """Number of records that can be read."""
        return int(self.read.sum())

    @property
    def members(self) -> int | None:
        """Number of records whose participation can be shown; None if that was not asked."""
        return None if self.shown is None else int(self.shown.sum())

    @property
    def at_most(self) -> int:
        """Number of records that may be readable for all that this check has found out."""
        return self.records if self.rows_may_read else self.readable

    @cached_property
    def rounds(self) -> Tensor:
        """(records,) int64: the round in which peeling reads each record first; 0 for never."""
        never = self.exposure.grid.shape[1] + 1
        order = torch.where(self.exposure.reached, self.exposure.rounds, never)
        first = order.view(self.records, -1).amin(1)
        return torch.where(first == never, 0, first)

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """For each record the neurons through which peeling reads it; none for those it misses."""
        found: dict[int, list[int]] = {}
        for neuron, row in enumerate(self.exposure.sources.tolist()):
            found.setdefault(row, []).append(neuron)
        each = self.exposure.copies.view(self.records, -1).tolist()
        return tuple(
            tuple(sorted({neuron for row in rows for neuron in found.get(row, ())}))
            for rows in each
        )

    @cached_property
    def rows_may_read(self) -> bool:
        """Whether the row cascade may read what peeling leaves, and was not run to find out.

        That takes room: at least twice as many neurons that the unknown samples fire, and at least
        as many features, as there are unknown samples. Then a peeling bound of 0 says nothing.
        """
        if self.decoded:
            return False
        seen = self.exposure.distinct
        left = self.exposure.grid.T[seen[~self.exposure.reached[seen]]]
        live = int(left.any(0).sum())
        return 0 < len(left) <= min(LIMITS.row_most_rank * live, self.features)

    def verdict(self, budget: Budget) -> Verdict:
        """Whether a budget holds, as far as this check can say.

        Raises:
            InputError: the budget limits membership, and that was not checked.
        """
        found = self.findings(budget)
        if all(finding.is_open for finding in found):
            return Verdict.UNKNOWN if found else Verdict.HOLDS
        return Verdict.LEAKS

    def breaches(self, budget: Budget) -> tuple[str, ...]:
        """Why a budget does not hold, one sentence per reason; empty if it holds.

        A question that this check leaves open is a reason too.

        Raises:
            InputError: the budget limits membership, and that was not checked.

        Example:
            >>> _ = torch.manual_seed(0)
            >>> model = nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Linear(100, 2))
            >>> x, y = torch.randn(20, 30), torch.arange(20) % 2
            >>> check(model, x, y, members=True).breaches(Budget(1.0, max_members=0.1))
            ('20 of 20 records can be shown to have taken part: max_members=0.1 allows 2',)
        """
        return tuple(finding.sentence for finding in self.findings(budget))

    def findings(self, budget: Budget) -> tuple[Finding, ...]:
        """The same reasons as in `breaches`, with the risk that each of them is about."""
        records, found = self.records, []
        allowed, limit = budget.readable_of(records), f"max_readable={budget.max_readable:g}"
        if self.readable > allowed:
            can = "can be read" if self.decoded else "would be read by peeling"
            said = f"{self.readable} of {records} records {can}: {limit} allows {allowed}"
            found.append(Finding(Risk.RECONSTRUCTION, False, said))
        elif self.at_most > allowed:
            said = (
                f"the row cascade may read up to {self.at_most} of {records} records, and a "
                "prediction does not run it: decode the update to find out"
            )
            found.append(Finding(Risk.RECONSTRUCTION, True, said))
        most = budget.members_of(records)
        if most is not None and self.members is None:
            raise InputError(
                f"max_members={budget.max_members}: membership was not checked: "
                "expected check(..., members=True)"
            )
        if most is not None and self.members is not None and self.members > most:
            said = (
                f"{self.members} of {records} records can be shown to have taken part: "
                f"max_members={budget.max_members:g} allows {most}"
            )
            found.append(Finding(Risk.MEMBERSHIP, False, said))
        return tuple(found)

    def __repr__(self) -> str:
        how = "decoded" if self.decoded else "predicted for peeling"
        if self.rows_may_read:
            how += "; the row cascade may read all"
        members = "" if self.members is None else f", {self.members} shown to have taken part"
        return f"Check({self.readable} of {self.records} records readable{members}, {how})"

    def as_dict(self) -> dict[str, object]:
        """The numbers as plain values for JSON, without any data of the records."""
        each = zip(self.read.tolist(), self.rounds.tolist(), self.sources, strict=True)
        shown = [None] * self.records if self.shown is None else self.shown.tolist()
        return {
            "records": self.records,
            "readable": self.readable,
            "at_most": self.at_most,
            "members": self.members,
            "decoded": self.decoded,
            "space": self.space,
            "layer": self.layer,
            "peeling_bound": self.exposure.peeling_bound,
            "each": [
                {
                    "record": i,
                    "readable": read,
                    "round": round_,
                    "neurons": list(neurons),
                    "member": m,
                }
                for i, ((read, round_, neurons), m) in enumerate(zip(each, shown, strict=True))
            ],
            "seconds": self.seconds,
        }


def check(
    model: nn.Module,
    x: Samples,
    y: Targets = None,
    *,
    client: Client = Client(),  # noqa: B008 - immutable
    attacker: Attacker = Attacker(),  # noqa: B008 - immutable
    update: Update | None = None,
    decode: bool = True,
    members: bool = False,
    seed: int = 0,
) -> Check:
    """Find out which records an update gives away, before it leaves the client.

    Args:
        model: the network as received, in the mode in which the client trains it.
        x: the client's batch, in any form that `gradpeel.audit` takes.
        y: labels or targets; not needed to predict what the gradient of one batch gives away.
        client: how the client trains and defends itself.
        attacker: what the server does and knows; by default it knows all but the data.
        update: what is about to leave, after all defences; by default it is simulated.
        decode: run the decoder. Otherwise predict what peeling reads, in one forward pass. That
            does not see defences, and it does not run the row cascade.
        members: also find out whose participation the update shows. That needs the update, so it
            is not part of a prediction.
        seed: of everything random, see `gradpeel.audit`.

    Returns:
        Which records can be read, in which round and through which neurons peeling reads them.

    Raises:
        ModelRefusedError: the network cannot be checked, which does not mean that it is safe.
        InputError: the batch does not fit the network, or a setting breaks its rule.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 2))
        >>> x, y = torch.randn(5, 8), torch.tensor([0, 1, 1, 0, 1])
        >>> predicted = check(model, x, decode=False)
        >>> predicted.rounds.tolist(), check(model, x, y).readable
        ([1, 1, 1, 1, 1], 5)
    """
    if not decode:
        for name, given in (("update", update is not None), ("members", members)):
            if given:
                raise InputError(f"{name}: a prediction does not look at it: expected decode=True")
        return _predict(model, x, y, client=client, attacker=attacker, seed=seed)
    started = time.perf_counter()
    found = audit(model, x, y, client=client, attacker=attacker, update=update, seed=seed)
    read = found.score.readable.view(len(found.inputs), -1).any(1)
    shown = found.membership.mask("in") | _proven(found) if members else None
    recovery = found.recovery
    seconds = time.perf_counter() - started
    return Check(
        read,
        shown,
        found.exposure,
        recovery.space,
        recovery.layer,
        found.features,
        True,
        seconds,
        found,
    )


def _proven(found: Audit) -> Tensor:
    """(records,) bool: the records that are certified, which shows that they took part too."""
    matched = found.score.matches[found.score.matches >= 0]
    return torch.isin(found.exposure.copies, matched).view(len(found.inputs), -1).any(1)


def _predict(
    model: nn.Module,
    x: Samples,
    y: Targets,
    *,
    client: Client,
    attacker: Attacker,
    seed: int,
) -> Check:
    started = time.perf_counter()
    check_seed(seed)
    target = split(model, layer=attacker.layer)
    dtype = target.weight.dtype if client.dtype is None else client.dtype
    taken, wanted = as_samples(model, x, y, dtype)[:2]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # Splitting a network takes longer than the forward pass: not again without need.
        if attacker.design.weights != "keep" or dtype != target.weight.dtype:
            model, target = send_out(
                model, target, attacker.design, len(taken), dtype=dtype, seed=seed
            )
        if client.count_steps(len(taken)) == 1:
            return predicted_at(target, taken, started)
        # Peeling reads what ever fired, and only training shows that.
        _, wanted, _ = as_labelled_samples(model, taken, wanted, dtype)
        exposed = simulate_round(
            model, target, taken, wanted, client=client, aggregation=Aggregation(), seed=seed
        ).exposure
    return _predicted(target, len(taken), exposed, started)


def predicted_at(target: Target, x: NetworkInput, started: float) -> Check:
    """What peeling reads of the gradient of a batch, for a model that has been split.

    Args:
        target: its target.
        x: (batch, *sample_shape), as the model takes it.
        started: when the check began, by `time.perf_counter`.
    """
    target.check_on(x)
    return _predicted(target, len(x), exposure_at(target, x), started)


def _predicted(target: Target, records: int, exposed: Exposure, started: float) -> Check:
    return Check(
        read=exposed.reached.view(records, -1).any(1),
        shown=None,
        exposure=exposed,
        space=target.front.space,
        layer=target.layer,
        features=target.features,
        decoded=False,
        seconds=time.perf_counter() - started,
    )
