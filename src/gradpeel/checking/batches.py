"""Check batch after batch of a data set: every update has to keep to the budget by itself.

Example:
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> batches = [(torch.rand(8, 30), torch.arange(8) % 2) for _ in range(3)]
    >>> checks = check_batches(model, batches)
    >>> checks
    Checks(3 batches: 24 of 24 records readable, in the worst batch 8 of 8)
    >>> checks.verdict(Budget(max_readable=0.05))
    <Verdict.LEAKS: 1>
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from gradpeel.checking.budget import Budget, Verdict
from gradpeel.checking.check import Check, check
from gradpeel.coercion import Samples, Targets
from gradpeel.errors import InputError

__all__ = ["Checks", "check_batches"]


@dataclass(frozen=True, eq=False, repr=False)
class Checks:
    """The checks of several batches, in their order.

    Attributes:
        checks: at least one.
    """

    checks: tuple[Check, ...]

    def __len__(self) -> int:
        return len(self.checks)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    @property
    def records(self) -> int:
        """Number of records in all batches."""
        return sum(each.records for each in self.checks)

    @property
    def readable(self) -> int:
        """Number of records that can be read."""
        return sum(each.readable for each in self.checks)

    @property
    def members(self) -> int | None:
        """Number of records whose participation can be shown; None if that was not asked."""
        shown = [each.members for each in self.checks if each.members is not None]
        return sum(shown) if len(shown) == len(self.checks) else None

    @property
    def worst(self) -> Check:
        """The batch of which the largest share can be read."""
        return max(self.checks, key=lambda each: each.readable / each.records)

    def verdict(self, budget: Budget) -> Verdict:
        """Whether every batch keeps to a budget: one that leaks more decides."""
        found = {each.verdict(budget) for each in self.checks}
        order = (Verdict.LEAKS, Verdict.UNKNOWN, Verdict.HOLDS)
        return next(verdict for verdict in order if verdict in found)

    def breaches(self, budget: Budget) -> tuple[str, ...]:
        """What speaks against a budget, one sentence each, with the number of the batch."""
        return tuple(
            f"batch {number}: {sentence}"
            for number, each in enumerate(self.checks, start=1)
            for sentence in each.breaches(budget)
        )

    def __repr__(self) -> str:
        worst = self.worst
        return (
            f"Checks({len(self)} batches: {self.readable} of {self.records} records readable, "
            f"in the worst batch {worst.readable} of {worst.records})"
        )

    def as_dict(self) -> dict[str, object]:
        """The numbers as plain values for JSON, without any data of the records."""
        return {
            "batches": len(self),
            "records": self.records,
            "readable": self.readable,
            "members": self.members,
            "checks": [each.as_dict() for each in self.checks],
        }


def check_batches(
    model: nn.Module,
    batches: Iterable[tuple[Samples, Targets]],
    *,
    on_check: Callable[[Check], None] | None = None,
    **settings: Any,  # noqa: ANN401 - those of `check`
) -> Checks:
    """Check one batch after the other.

    Args:
        model: the network as received.
        batches: samples and labels of each, such as a DataLoader gives.
        on_check: called after each check.
        **settings: those of `gradpeel.check`.

    Raises:
        InputError: there is no batch, or what `gradpeel.check` raises.
        ModelRefusedError: the network cannot be checked.
    """
    found = []
    for x, y in batches:
        one = check(model, x, y, **settings)
        # Updates, models and samples of many batches would not fit into memory.
        found.append(replace(one, audit=None))
        if on_check is not None:
            on_check(found[-1])
    if not found:
        raise InputError("batches: nothing to check: expected at least one")
    return Checks(tuple(found))
