"""Which of these records took part in a training round? (`gradpeel.contains`)

Every record that took part lies in the span of the update's rows, after one step or any number of
them, whatever loss, labels and batch size were; see `gradpeel.membership.span`. A record that did
not lies outside, by a distance that depends on the data. Both are measured here, and a verdict is
given only where they can be told apart.

Example:
    >>> import gradpeel as gp
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> x, y = torch.rand(12, 30), torch.randint(2, (12,))
    >>> update = gp.local_update(model, x[:8], y[:8])
    >>> contains(model, update, x).verdicts
    ('in', 'in', 'in', 'in', 'in', 'in', 'in', 'in', 'out', 'out', 'out', 'out')
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from gradpeel.checks import as_batch, as_tensor, check_module, is_number
from gradpeel.decoder.inputs import check_belongs
from gradpeel.errors import InputError
from gradpeel.exposure import copies_of
from gradpeel.losses import CrossEntropy
from gradpeel.membership.null import LEAST, Null
from gradpeel.membership.silence import confirm
from gradpeel.membership.span import Place, RowSpan, find_span
from gradpeel.membership.trace import path, sensitivities
from gradpeel.rounding import rounding_of
from gradpeel.target import Target, split
from gradpeel.torch_losses import GivenLoss, as_loss
from gradpeel.update import Update

__all__ = ["VERDICTS", "Membership", "Verdict", "contains"]

Verdict = Literal["in", "out", "unknown"]
VERDICTS: tuple[str, ...] = get_args(Verdict)

_IN_ERRORS = 5.0
"""A record that took part lies within so many errors of the span."""

_OUT_ERRORS = 10.0
"""One farther away did not take part; in between nothing is said."""

_VISIBLE = 4.0
"""A trace this many times stronger than the strongest noise would have been seen."""

_VISIBLE_ON_THE_WAY = 100.0
"""The same for local training, during which traces become fainter and stronger."""

_CLEAN = 5.0
"""A span that stands out this clearly needs no second look."""

_ENOUGH = 20
"""So many records outside the span show what the distance of one is."""

_WEAKEST = 4
"""The weakest part of a span is one of so many."""

_FEW_VALUES = 16
"""Records of no more different values than these, such as one-hot rows, count as discrete."""


@dataclass(frozen=True, eq=False, repr=False)
class Membership:
    """Which records took part in an update, as far as the update can tell.

    "in" means: a record that cannot be distinguished from this one took part. "out" means: it left
    no trace, although its trace would have been seen. Copies of a record share their verdict.

    Attributes:
        distances: (n,) distance of each record from the span of the update, relative to its norm.
        errors: (n,) distance at which the update's own errors would show a record of the span.
        verdicts: "in", "out" or "unknown" for each record.
        reasons: for each verdict "unknown" why, for the others None.
        chances: (n,) estimated chance that a record that did not take part would lie as close as
            is demanded of this one for the verdict "in".
        rank: dimension of the span: the number of independent samples that can be seen.
        non_members: number of records given as not in, on which the rate was counted.
        false_positives: how many of them would have been called "in".
        power: share of the records that would be called "in" if they had taken part.
    """

    distances: Tensor
    errors: Tensor
    verdicts: tuple[Verdict, ...]
    reasons: tuple[str | None, ...]
    chances: Tensor
    rank: int
    non_members: int
    false_positives: int
    power: float

    @property
    def false_positive_rate(self) -> float | None:
        """How often a record that was not in would be called "in", on the safe side.

        (false positives + 1) / (non-members + 1) where non-members were given; otherwise the
        largest estimated chance behind any verdict "in", and None where there is none.
        """
        if self.non_members:
            return (self.false_positives + 1) / (self.non_members + 1)
        found = [
            float(chance)
            for chance, verdict in zip(self.chances, self.verdicts, strict=True)
            if verdict == "in"
        ]
        return max(found, default=None)

    def __len__(self) -> int:
        return len(self.verdicts)

    def count(self, verdict: Verdict) -> int:
        """How many records have a verdict."""
        return self.verdicts.count(verdict)

    def mask(self, verdict: Verdict) -> Tensor:
        """(n,) bool: the records that have a verdict."""
        return torch.tensor([given == verdict for given in self.verdicts], dtype=torch.bool)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.count(v)} {v}" for v in get_args(Verdict))
        return f"Membership({len(self)} records: {counts}; rank {self.rank})"

    def as_dict(self) -> dict[str, object]:
        """The numbers as plain values for JSON, without any records."""
        return {
            "records": len(self),
            **{verdict: self.count(verdict) for verdict in get_args(Verdict)},
            "rank": self.rank,
            "false_positive_rate": self.false_positive_rate,
            "false_positives": self.false_positives,
            "non_members": self.non_members,
            "power": self.power,
            "reasons": dict(Counter(reason for reason in self.reasons if reason is not None)),
        }


@torch.no_grad()
def contains(
    model: nn.Module,
    update: Update,
    records: Tensor,
    *,
    labels: Tensor | None = None,
    non_members: Tensor | None = None,
    max_false_positive_rate: float = 1e-3,
    loss: GivenLoss | None = CrossEntropy(),  # noqa: B008 -- immutable
) -> Membership:
    """Tell which records took part in the training round behind an update.

    Args:
        model: the network the update was computed on, with the weights the client had; the layers
            up to the first Linear with ReLU will do.
        update: what the client sent: the gradient of a batch, or a difference of weights.
        records: (n, *sample_shape) records, as the client would feed them to the network.
        labels: (n,) their labels, if they are known. They are used only to tell how strong a trace
            each record would have left.
        non_members: (m, *sample_shape) records of the same kind that certainly were not in; the
            more of them, the more exactly the false-positive rate is known.
        max_false_positive_rate: no record is called "in" if a record that was not in would be
            called so more often than this.
        loss: what the client minimised, for the same purpose as the labels; None if unknown.

    Returns:
        Distances, their errors, and a verdict for each record.

    Raises:
        ModelRefusedError: the network has no target; the error says why.
        InputError: the update does not belong to the network, the records do not fit it, or a
            setting breaks its rule.
    """
    if not isinstance(update, Update):
        raise InputError(f"update of type {type(update).__name__}: expected gradpeel.Update")
    check_module(model)
    known_loss = as_loss(loss, reduction=update.reduction, may_be_unknown=True)
    limit = max_false_positive_rate
    if not (is_number(limit) and 0 < limit < 1):
        raise InputError(f"max_false_positive_rate={limit!r}: expected a number between 0 and 1")
    target = split(model, share=True)
    check_belongs(model, target, update, whole=False)
    rows = _rows(target, records, "records")
    if labels is not None:
        labels = as_tensor("labels", labels)
        if len(labels) != len(rows):
            raise InputError(f"labels: {len(labels)} for {len(rows)} records: expected one each")
    span, scale = _span(target, update)
    way = path(model, target, update)
    place = _place(span, scale, rows, update)
    visible = _visible(span, place, scale, rows, update, sensitivities(way, rows, labels, known_loss))

    outside = None
    if non_members is not None:
        outside = _place(span, scale, _rows(target, non_members, "non_members"), update)
    null = _calibrate(span, place, outside, rows, update, limit)
    near = place.distances <= _IN_ERRORS * place.errors
    far = place.distances > _OUT_ERRORS * place.errors
    certain = torch.tensor([doubt is None for doubt in null.doubts]) & (null.chances <= limit)
    called = near & certain
    unsure = (near & ~certain).nonzero()[:, 0]
    if not span.is_full:
        called[unsure] = confirm(span, (way[0], way[-1]), rows[unsure])
    judged = [
        _judge(span, doubt, *map(bool, each))
        for doubt, *each in zip(null.doubts, called, near, far, visible, strict=True)
    ]
    return Membership(
        distances=place.distances,
        errors=place.errors,
        verdicts=tuple(verdict for verdict, _ in judged),
        reasons=tuple(reason for _, reason in judged),
        chances=null.chances.where(~called | certain, LEAST),
        rank=span.rank,
        non_members=0 if outside is None else len(outside.distances),
        false_positives=null.false_positives,
        power=float((certain & visible | called).double().mean()),
    )


def _judge(
    span: RowSpan, doubt: str | None, called: bool, near: bool, far: bool, visible: bool
) -> tuple[Verdict, str | None]:
    """The verdict on one record, and the reason for none."""
    if span.is_full:
        return "unknown", "the samples fill all dimensions that there are: every record fits"
    if called:
        return "in", None
    if near:
        return "unknown", doubt or "a record that was not in could lie as close by chance"
    if not far:
        return "unknown", "too far for a record that took part, too close for one that did not"
    if not visible:
        return "unknown", "had it been in, its trace might be too faint to be seen"
    return "out", None


def _rows(target: Target, records: object, name: str) -> Tensor:
    """What enters the target, computed in the dtype in which the client computes."""
    batch = as_batch(records, target.weight.dtype, name=name)
    try:
        return target.front(batch.to(target.weight))
    except InputError as error:
        raise InputError(str(error).replace("x of shape", f"{name} of shape", 1)) from None


def _span(target: Target, update: Update) -> tuple[RowSpan, float]:
    """The span of the update, and by what the constant feature was divided.

    Where the bias gradient has larger errors than the weight gradient, it is scaled down to the
    same ones.
    """
    weight = update.gradients[target.weight_name].cpu().double()
    bias = update.gradients[target.bias_name].cpu().double()
    absolute, scale = None, 1.0
    if update.training is not None:
        own = rounding_of(target.weight.cpu(), update.dtype, update.training)
        absolute = own.square().mean(1).sqrt()
        of_bias = rounding_of(target.bias.cpu(), update.dtype, update.training)
        scale = max(1.0, _ratio(of_bias.norm(), absolute.norm()))
    relative = float(torch.finfo(update.dtype).eps)
    span = find_span(_with_bias(weight, bias / scale), relative, absolute)
    if not span.is_full and span.gap >= _CLEAN:
        return span, scale
    # Noise that somebody added is as large at one neuron as at another.
    spread = weight.std(correction=0)
    again = max(1.0, _ratio(bias.std(correction=0), spread))
    other = find_span(
        _with_bias(weight, bias / again), 0.0, spread.expand(len(bias)), is_measure=False
    )
    return max(((span, scale), (other, again)), key=lambda found: found[0].gap)


def _ratio(one: Tensor, other: Tensor) -> float:
    return float(one / other) if float(other) > 0 else 1.0


def _with_bias(weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([weight, bias[:, None]], 1)


def _place(span: RowSpan, scale: float, rows: Tensor, update: Update) -> Place:
    """Where records stand, each with a constant feature."""
    rows = rows.cpu()
    constant = torch.full((len(rows), 1), 1 / scale, dtype=torch.float64)
    place = span.place(torch.cat([rows.double(), constant], 1))
    # A client that computes in less than the model's dtype rounded its records too.
    coarse, fine = torch.finfo(update.dtype).eps, torch.finfo(rows.dtype).eps
    rounding = coarse / 4 if coarse > fine else 0.0
    errors = torch.hypot(place.errors, torch.full_like(place.errors, rounding))
    return replace(place, errors=errors)


def _visible(
    span: RowSpan, place: Place, scale: float, rows: Tensor, update: Update, c: Tensor
) -> Tensor:
    """(n,) whether a record's trace would stand above the noise, were it in.

    A record adds a direction to the update as far as it lies outside the span, and as far as its
    sensitivities lie outside the space of the others': where it fires only neurons that say nothing
    else, it is not seen for itself. In a span of as many dimensions as there are samples, everybody
    is.
    """
    if update.batch_size is not None and span.rank >= update.batch_size:
        return torch.ones(len(rows), dtype=torch.bool)
    share = update.share or 1.0 / max(span.rank, 1)
    noise = torch.where(span.noise > 0, span.noise, torch.inf)
    weighted = share * c.cpu() / noise
    free = (1 - span.columns.square().sum(1)).clamp(min=0.0)
    beyond = (weighted - (weighted @ span.columns) @ span.columns.T).norm(dim=1)
    beyond = torch.minimum(beyond, (weighted.square() @ free).sqrt())
    size = torch.hypot(rows.cpu().double().norm(dim=1), torch.tensor(1 / scale))
    seen = beyond * place.distances * size
    if update.training is None or update.training.is_one_step:
        return seen > _VISIBLE * span.edge
    # Of a way that nobody knows, that samples are missing says more than what one is expected at.
    return (seen > _VISIBLE_ON_THE_WAY * span.edge) & (update.batch_size is None)


@dataclass(frozen=True, eq=False)
class _Null:
    """What is known of records that were not in.

    Attributes:
        chances: (n,) how likely one would be called "in" by what is demanded of each record.
        false_positives: how many of the non-members would be.
        doubts: for each record a reason why the chance does not count, or None.
    """

    chances: Tensor
    false_positives: int
    doubts: tuple[str | None, ...]


def _calibrate(
    span: RowSpan, place: Place, outside: Place | None, rows: Tensor, update: Update, limit: float
) -> _Null:
    """Find how likely records that were not in would be called "in"."""
    count, demanded = len(rows), _IN_ERRORS * place.errors

    def nobody(why: str | None, false_positives: int = 0) -> _Null:
        return _Null(torch.ones_like(demanded), false_positives, (why,) * count)

    if span.is_full or not span.rank:
        return nobody(None)
    if outside is not None:
        null = Null.of(outside.distances)
        allowed = _IN_ERRORS * outside.errors
        false = int(((outside.distances <= allowed) & (_chances(null, allowed) <= limit)).sum())
        total = len(outside.distances)
        if false > limit * total:
            return nobody(f"{false} of {total} records that were not in fit as well", false)
        return _Null(_chances(null, demanded), false, (None,) * count)
    if len(rows.unique()) <= _FEW_VALUES:
        return nobody("records of so few values may be sums of others: give some that were not in")
    near = place.distances <= demanded
    apart = place.distances[~near]
    if len(apart) >= _ENOUGH:
        chances = _chances(Null.of(apart), demanded)
    elif update.batch_size == span.rank:
        # Outside the span a record would have no less than in the weakest part of it.
        weakest = place.along[:, -max(1, span.rank // _WEAKEST) :].square().mean(1).sqrt()
        chances = (demanded / weakest.clamp(min=torch.finfo(weakest.dtype).tiny))
        chances = chances.clamp(min=LEAST, max=1.0)
    else:
        return nobody("nothing shows how far others lie: give records that were not in")
    dependent = _dependent(place, near, copies_of(rows))
    why = "it is a combination of other records that fit: some of them may not have been in"
    return _Null(chances, 0, tuple(why if each else None for each in dependent.tolist()))


def _dependent(place: Place, near: Tensor, copies: Tensor) -> Tensor:
    """(n,) the records of the span that are combinations of others of them; copies are one."""
    found = torch.zeros_like(near)
    firsts = copies[near].unique()
    if len(firsts) < 2:
        return found
    rows = place.along[firsts]
    left, values, _ = torch.linalg.svd(rows)
    tiny = torch.finfo(values.dtype).eps * len(firsts)
    missing = values.new_zeros(max(0, len(firsts) - len(values)))
    values = torch.cat([values, missing]).clamp(min=tiny)
    # The distance of each from the span of all others.
    apart = 1 / (left / values).norm(dim=1)
    found[firsts] = apart <= _IN_ERRORS * place.errors[firsts]
    return found[copies] & near


def _chances(null: Null, distances: Tensor) -> Tensor:
    found = [null.chance(distance) for distance in distances.tolist()]
    return torch.tensor(found, dtype=torch.float64)
