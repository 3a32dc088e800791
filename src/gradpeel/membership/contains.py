"""Which of these records took part in a training round?

Every record that took part lies in the span of the update's rows, after one step or any number of
them, whatever loss, labels and batch size were; see `gradpeel.membership.span`. A record that did
not lies outside, by a distance that depends on the data. Both are measured here, and a verdict is
given only where one can be distinguished from the other.

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

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from gradpeel.checks import check_module, is_number
from gradpeel.coercion import Samples, TakenSamples, Targets, as_samples
from gradpeel.decoder.inputs import check_belongs
from gradpeel.errors import InputError, ModelRefusedError, ModelSettingError
from gradpeel.losses import CrossEntropy
from gradpeel.membership.calibration import IN_ERRORS, calibrate
from gradpeel.membership.null import LEAST
from gradpeel.membership.placing import UpdateSpan
from gradpeel.membership.silence import confirm
from gradpeel.membership.trace import path, sensitivities, strongest
from gradpeel.target import Target, split
from gradpeel.target.trials import is_close
from gradpeel.torch_losses import GivenLoss, as_loss
from gradpeel.update import Update

__all__ = ["Membership", "Verdict", "contains"]

Verdict = Literal["in", "out", "unknown"]

_OUT_ERRORS = 10.0
"""A record this many errors from the span did not take part; closer ones might have."""

_FULL = (
    "the batch has at least as many samples as the layer can distinguish, so any record would match"
)


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
        space: "input" if records were compared as they enter the network; "features" if by what
            enters the layer.
        layer: name of the layer whose gradient was read.
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
    space: Literal["input", "features"]
    layer: str

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
            "space": self.space,
            "layer": self.layer,
            "reasons": dict(Counter(reason for reason in self.reasons if reason is not None)),
        }


@torch.no_grad()
def contains(
    model: nn.Module,
    update: Update,
    records: Samples,
    *,
    labels: Targets = None,
    non_members: Samples | None = None,
    max_false_positive_rate: float = 1e-3,
    loss: GivenLoss | None = CrossEntropy(),  # noqa: B008 -- immutable
    layer: str | None = None,
) -> Membership:
    """Tell which records took part in the training round behind an update.

    Args:
        model: the network the update was computed on, with the weights the client had; the layers
            up to the first Linear with ReLU are enough.
        update: what the client sent: the gradient of a batch, or a difference of weights.
        records: (n, *sample_shape) records, as the client would feed them to the network, in any
            form that `gradpeel.coercion` names; of a DataLoader, all batches.
        labels: (n,) their labels, if they are known. They are used only to tell how strong a trace
            each record would have left.
        non_members: (m, *sample_shape) records of the same kind that certainly were not in; the
            more of them, the more exactly the false-positive rate is known.
        max_false_positive_rate: no record is called "in" if a record that was not in would be
            called so more often than this.
        loss: what the client minimised, for the same purpose as the labels; None if unknown.
        layer: name of the layer whose gradient is read, such as "classifier.0"; by default the
            first one that can be read. Records are compared by what enters it.

    Returns:
        Distances, their errors, and a verdict for each record.

    Raises:
        ModelRefusedError: the network has no target, or gives a record other features each time;
            the error says why.
        InputError: the update does not belong to the network, the records do not fit it, or a
            setting breaks its rule.
    """
    if not isinstance(update, Update):
        raise InputError(f"update of type {type(update).__name__}: expected gradpeel.Update")
    check_module(model)
    known_loss = None if loss is None else as_loss(loss, reduction=update.reduction)
    limit = max_false_positive_rate
    if not (is_number(limit) and 0 < limit < 1):
        raise InputError(f"max_false_positive_rate={limit!r}: expected a number between 0 and 1")
    target = split(model, layer=layer, share=True)
    check_belongs(model, target, update, whole=False)
    update = target.seen_from_relu(update)
    asked = as_samples(
        model, records, labels, target.weight.dtype, name="records", labels="labels", every=True
    )
    rows, labels = _rows(target, asked, "records"), asked.y
    each = len(rows) // len(asked.x)
    if each > 1 and update.batch_size is not None:
        update = replace(update, batch_size=each * update.batch_size)
    if labels is not None:
        if len(labels) != len(asked.x):
            raise InputError(f"labels: {len(labels)} for {len(asked.x)} records: expected one each")
        if each > 1:
            labels = None  # a row has none of its own
        elif known_loss is not None and target.tail.unknown is None:
            known_loss.check(target.tail(target.pre_activations(rows).relu()), labels)
    whole = UpdateSpan.of(target, update)
    span, place = whole.span, whole.place(rows)
    way = path(model, target, update)
    visible = whole.would_show(
        rows,
        place,
        sensitivities(way, rows, labels, known_loss),
        strongest=strongest(target, rows, known_loss),
    )
    outside = None
    if non_members is not None:
        others = as_samples(
            model, non_members, None, target.weight.dtype, name="non_members", every=True
        )
        outside = whole.place(_rows(target, others, "non_members"))
    calibration = calibrate(span, place, rows, update, outside=outside, limit=limit)
    near = place.distances <= IN_ERRORS * place.errors
    far = place.distances > _OUT_ERRORS * place.errors
    certain = calibration.certain(limit)
    called = near & certain
    unsure = (near & ~certain).nonzero()[:, 0]
    if not span.is_full:
        called[unsure] = confirm(span, (way[0], way[-1]), rows[unsure])
    masks = zip(called, near, far, visible, strict=True)
    judged = [
        _judge(_FULL if span.is_full else doubt, *map(bool, each))
        for doubt, each in zip(calibration.doubts, masks, strict=True)
    ]
    found = Membership(
        distances=place.distances,
        errors=place.errors,
        verdicts=tuple(verdict for verdict, _ in judged),
        reasons=tuple(reason for _, reason in judged),
        chances=calibration.chances.where(~called | certain, LEAST),
        rank=span.rank,
        non_members=0 if outside is None else len(outside.distances),
        false_positives=calibration.false_positives,
        power=float((certain & visible | called).double().mean()),
        space=target.front.space,
        layer=target.layer,
    )
    return found if each == 1 else _of_records(found, each)


def _of_records(found: Membership, each: int) -> Membership:
    """The verdicts on records of several rows each, from those on their rows.

    A record whose rows all took part did; one of which a row did not take part did not.
    """
    farthest = (found.distances / found.errors).view(-1, each).argmax(1)
    place = torch.arange(len(farthest)) * each + farthest
    verdicts: list[Verdict] = []
    reasons: list[str | None] = []
    for start in range(0, len(found), each):
        own = found.verdicts[start : start + each]
        why = [reason for reason in found.reasons[start : start + each] if reason is not None]
        is_in = all(verdict == "in" for verdict in own)
        verdicts.append("out" if "out" in own else "in" if is_in else "unknown")
        reasons.append(why[0] if verdicts[-1] == "unknown" else None)
    return replace(
        found,
        distances=found.distances[place],
        errors=found.errors[place],
        verdicts=tuple(verdicts),
        reasons=tuple(reasons),
        chances=found.chances.view(-1, each).amax(1),
        non_members=found.non_members // each,
    )


def _judge(
    doubt: str | None, called: bool, near: bool, far: bool, visible: bool
) -> tuple[Verdict, str | None]:
    """The verdict on one record, and the reason for none."""
    if called:
        return "in", None
    if near or doubt == _FULL:
        return "unknown", doubt or "a record that was not in could lie as close by chance"
    if not far:
        return "unknown", "too far for a record that took part, too close for one that did not"
    if not visible:
        return "unknown", "had it been in, its trace might be too faint to be seen"
    return "out", None


def _rows(target: Target, records: TakenSamples, name: str) -> Tensor:
    """What enters the target, computed in the dtype in which the client computes."""
    batch = records.x
    try:
        rows = again = target.rows(batch)
        if target.front.space == "features":
            turned = target.rows(batch.flip(0))
            again = turned.view(len(batch), -1, rows.shape[1]).flip(0).view(rows.shape)
    except InputError as error:
        raise InputError(str(error).replace("x of shape", f"{name} of shape", 1)) from None
    changing = target.front.unsteady
    if changing is None and not is_close(rows, again):
        changing = "the front draws random numbers or mixes the samples of a batch"
    if changing is not None:
        raise ModelRefusedError(
            [
                ModelSettingError(
                    f"{changing}, in front of Linear '{target.layer}': what the client's samples "
                    "looked like there cannot be computed from records; if the client trained with "
                    "this front in evaluation mode, call eval() on it"
                )
            ]
        )
    return rows
