"""What becomes of weights that are about to leave a client: sent, changed or withheld.

This is the part that all frameworks share. An adapter gives it the weights that came and those that
would go, and does what the decision says. Whatever it raises means that nothing may be sent: a
check that failed has not found the update harmless.

Example:
    >>> import torch
    >>> from torch import nn
    >>> from gradpeel.client import Client, local_update
    >>> from gradpeel.training import weights_after
    >>> _ = torch.manual_seed(0)
    >>> def make_model():
    ...     return nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> model, x, y = make_model(), torch.rand(8, 30), torch.arange(8) % 2
    >>> client, before = Client(lr=0.1, local_steps=1), model.state_dict()
    >>> sent = local_update(model, x, y, client)
    >>> after = weights_after(before, sent.gradients, sent.training)
    >>> watch = Outgoing(make_model=make_model, client=client)
    >>> watch.decide(before, after, x, y, policy="warn").breaches
    ('8 of 8 records can be read: max_readable=0 allows 0',)
    >>> watch.decide(before, after, x, y, policy="refuse")
    Traceback (most recent call last):
    gradpeel.integrations.outgoing.WithheldError: the update is withheld: 8 of 8 records can be
    read: max_readable=0 allows 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor, nn

from gradpeel.attacker import Attacker
from gradpeel.checking import Budget, Check, check
from gradpeel.client import Client
from gradpeel.coercion import Samples, Targets, as_labelled_samples
from gradpeel.errors import GradpeelError, InputError
from gradpeel.guarding import guard
from gradpeel.reporting.words import counted
from gradpeel.update import Update

__all__ = [
    "Decision",
    "Outgoing",
    "Policy",
    "WithheldError",
    "check_policy",
    "update_between",
]

Policy = Literal["log", "warn", "guard", "refuse"]
"""What to do about an update that exceeds the budget."""

WITHHELD = "gradpeel: this client sends no update"
"""All that a server learns: the reasons may say something about the data."""


class WithheldError(GradpeelError):
    """The update gives away more than the budget allows, so it must not leave."""


@dataclass(frozen=True)
class Decision:
    """What to send.

    Attributes:
        check: what the update gave away before anything was done about it.
        breaches: what exceeds the budget, one sentence each; empty if it holds.
        policy: what the client does about it.
        weights: the weights to send instead; None to send them as they are.
    """

    check: Check
    breaches: tuple[str, ...]
    policy: Policy
    weights: dict[str, Tensor] | None = None

    @property
    def doubt(self) -> str | None:
        """What suggests that other samples were checked than those that took part.

        An honest update shows that they did, unless a defence hides it.
        """
        audit = self.check.audit
        if audit is None or not bool(audit.membership.mask("out").all()):
            return None
        return "none of the records that were checked left a trace in the update: are they its own?"

    @property
    def warns(self) -> bool:
        """Whether the log should call it a warning."""
        return self.doubt is not None or (bool(self.breaches) and self.policy != "log")

    def __str__(self) -> str:
        said = list(self.breaches or (repr(self.check),))
        if self.doubt is not None:
            said.append(self.doubt)
        if self.weights is not None:
            said.append("a guarded update is sent instead")
        return "; ".join(said)


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """Checks weights before they leave.

    Attributes:
        make_model: makes the network whose weights are exchanged, in the mode in which it is
            trained.
        client: how it is trained; a learning rate is needed, because weights are sent.
        budget: how much an update may give away.

    Raises:
        InputError: the client has no learning rate.
    """

    make_model: Callable[[], nn.Module]
    client: Client
    budget: Budget = Budget()  # noqa: RUF009 - immutable

    def __post_init__(self) -> None:
        for name, kind in (("client", Client), ("budget", Budget)):
            if not isinstance(given := getattr(self, name), kind):
                got = type(given).__name__
                raise InputError(f"{name} of type {got}: expected gradpeel.{kind.__name__}")
        if self.client.lr is None:
            raise InputError("client: lr=None: weights are sent: expected the learning rate")

    def decide(
        self,
        before: Mapping[str, Tensor],
        after: Mapping[str, Tensor],
        x: Samples,
        y: Targets,
        *,
        policy: Policy,
    ) -> Decision:
        """Check the weights that a client would send.

        Args:
            before: the weights that it received.
            after: those that it would send, with the same names.
            x: all samples that took part in the training.
            y: their labels or targets; None if `x` brings them.
            policy: "log" and "warn" send them in any case. "guard" sends others if they exceed
                the budget, and those are checked too. "refuse" sends nothing then.

        Raises:
            WithheldError: they must not leave.
            GradpeelError: they cannot be checked, so they must not leave either.
        """
        check_policy(policy)
        if before.keys() != after.keys():
            odd = min(before.keys() ^ after.keys())
            raise InputError(f"{odd!r}: expected the same weights as the client received")
        model = self.make_model()
        model.load_state_dict(dict(before))
        found, breaches = self._check(model, before, after, x, y)
        audit = found.audit
        if audit is not None and audit.score.false_certificates:
            # A certificate is not false: the sample took part, and the check was not given it.
            others = audit.score.false_certificates
            raise InputError(
                f"batch: the update holds {counted(others, 'other sample')}: expected all that "
                "took part in the training"
            )
        if not breaches or policy in ("log", "warn"):
            return Decision(found, breaches, policy)
        if policy == "refuse":
            raise WithheldError(f"the update is withheld: {'; '.join(breaches)}")
        update = self._update(model, before, after, x, y)
        left: tuple[str, ...] = ()
        # A rank that stops peeling nearly always stops the rows too, and is found much faster.
        for attacker in (Attacker(effort=0), Attacker()):
            guarded = guard(model, x, y, update=update, client=self.client, attacker=attacker)
            # What is sent are weights, with their own roundings: they are what has to be harmless.
            instead = guarded.weights(before, after=after)
            _, left = self._check(model, before, instead, x, y)
            if not left:
                return Decision(found, breaches, policy, instead)
        raise WithheldError(f"the update is withheld although guarded: {'; '.join(left)}")

    def _update(
        self,
        model: nn.Module,
        before: Mapping[str, Tensor],
        after: Mapping[str, Tensor],
        x: Samples,
        y: Targets,
    ) -> Update:
        taken = as_labelled_samples(model, x, y, next(model.parameters()).dtype)[0]
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad and not before[name].equal(after[name]):
                raise InputError(f"{name!r}: changed, although the network does not train it")
        return update_between(model, before, after, self.client, len(taken))

    def _check(
        self,
        model: nn.Module,
        before: Mapping[str, Tensor],
        after: Mapping[str, Tensor],
        x: Samples,
        y: Targets,
    ) -> tuple[Check, tuple[str, ...]]:
        found = check(
            model,
            x,
            y,
            client=self.client,
            update=self._update(model, before, after, x, y),
            members=self.budget.max_members is not None,
        )
        return found, found.breaches(self.budget)


def update_between(
    model: nn.Module,
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    client: Client,
    samples: int | None,
) -> Update:
    """The update behind two sets of weights, of a client with so many samples, if that is known.

    Only what the network trains is part of it.
    """
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    return Update.from_weights(
        {name: before[name] for name in trained},
        {name: after[name] for name in trained},
        lr=client.lr,
        momentum=client.momentum,
        weight_decay=client.weight_decay,
        steps=client.local_steps if samples is None else client.count_steps(samples),
        batch_size=None if samples is None else client.count_samples(samples),
        reduction=client.reduction,
    )


def check_policy(policy: object) -> None:
    """Refuse a policy that there is not.

    Raises:
        InputError: naming those that there are.
    """
    if policy not in get_args(Policy):
        names = ", ".join(get_args(Policy))
        raise InputError(f"policy={policy!r}: expected one of {names}")
