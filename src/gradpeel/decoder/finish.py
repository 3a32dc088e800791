"""The end of a cascade: turn what is certified into samples, and hold them against the update.

A set of samples that reproduces the whole update, all layers, proves more than its certificates
(paper, section "Certification"): nothing else is in there. At the target, which may be as wide as
an image has pixels, gradients are compared in random directions: two that differ agree in none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gradpeel.decoder.known import KnownSamples
from gradpeel.decoder.limits import CHANCE, MERGE, STATED
from gradpeel.decoder.linalg import batches, combine, gaussian
from gradpeel.decoder.recovery import BatchSize, Evidence, Recovery, Round
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.sample_block import SampleBlock
from gradpeel.decoder.share import Share
from gradpeel.decoder.simulate import Backward
from gradpeel.decoder.unproven import Reading, Unproven
from gradpeel.target import Target
from gradpeel.update import Update, norm

__all__ = ["close"]

_DIFFERENT = 1e-3
"""Numbers this far from what a sample was certified by are others."""

_DIRECTIONS = 8
"""Random directions in which numbers are compared."""

_AT_ONCE = 32
"""Samples turned back at once."""

_LEAST_CHANCE = 1e-300
"""Evidence is not counted beyond this."""

_ALIEN = 0.1
"""Noise, relative to the gradient, from which on the update may as well be of other weights."""


def close(
    target: Target,
    update: Update,
    *,
    ledger: KnownSamples,
    residual: Residual,
    backward: Backward | None,
    share: Share | None,
    rank: int | None,
    sample_shape: tuple[int, ...] | None,
    certifies: bool,
    unproven: Callable[[], Reading],
    trace: tuple[Round, ...],
    candidates_tested: int,
    everywhere: Evidence,
    vague: bool,
    ambiguous: set[int],
) -> Recovery:
    """Tell what a cascade has found.

    Args:
        target: the target of the network, its tail in float64.
        update: what was sent.
        ledger: the certified samples.
        residual: what is left without them.
        backward: the client's backward pass, where it could be simulated.
        share: the weight of one sample, where it could be told.
        rank: number of distinct samples, where that was asked for.
        sample_shape: shape of one sample, if known.
        certifies: whether samples that were found are certified.
        unproven: looks for what was read but not certified.
        trace: all looks at candidates.
        candidates_tested: number of candidates judged.
        everywhere: evidence that all samples have.
        vague: something was too inexact to be certified.
        ambiguous: sources of samples that the structure cannot tell from mixtures after all.
    """
    # Nobody is reported who is still on trial.
    kept = _agrees(ledger, residual) & (ledger.chances <= CHANCE) & certifies
    alone = [Evidence.BIAS not in kind for kind in ledger.evidence]
    doubted = [source in ambiguous for source in ledger.sources.tolist()]
    if len(ledger):
        kept &= ~(kept.new_tensor(alone) & kept.new_tensor(doubted))
    known = ledger.peeled.pick(kept)
    combinations = ledger.combinations() if bool(kept.all()) else ledger.combinations()[kept]
    counts = known.counts.long()
    gradient = update.gradients[target.weight_name]
    places = kept.nonzero()[:, 0].tolist()
    labelled = counts.sum(1) > 0
    if not bool(kept.all()):
        # What was withdrawn is not explained.
        residual = residual.clone()
        residual.restore()
        residual.subtract(known)
    if backward is not None and bool(labelled.all()):
        gap, mismatch = _check(
            update,
            known,
            combinations,
            backward=backward,
            target=target,
            residual=residual,
        )
    else:
        gap, mismatch = _left(residual)
    # Half the digits of the dtype: far above the roundings, far below any sample it can carry.
    reproduced = gap <= math.sqrt(residual.grain)
    found = int(counts.sum(1).clamp(min=1).sum())
    tells = share is not None and share.proven and update.reduction == "mean"
    by_weight = share.batch_size if share is not None and tells else None
    if backward is not None and update.reduction == "mean":
        total = float((counts.double() @ backward.targets.sum(1)).sum()) * backward.share
        everybody = bool(labelled.all()) and abs(total - 1) <= math.sqrt(residual.resolution)
    else:
        everybody = found == update.batch_size
    complete = reproduced and everybody and found > 0
    labelled_all = bool(labelled.all()) and backward is not None
    size = BatchSize(
        stated=update.batch_size,
        by_weight=by_weight,
        least=found,
        proven=found if complete and labelled_all and update.batch_size == found else None,
    )
    return Recovery(
        samples=_samples(
            combine(combinations, gradient).cpu(), target=target, sample_shape=sample_shape
        ),
        labels=ledger.labels[kept].cpu(),
        multiplicities=counts.sum(1).cpu(),
        label_counts=tuple(
            {label: copies for label, copies in enumerate(row) if copies} for row in counts.tolist()
        ),
        residuals=ledger.residuals[kept].cpu(),
        errors=STATED * known.sample_error.cpu(),
        scores=-ledger.chances[kept].clamp(min=_LEAST_CHANCE).log10().cpu(),
        equations=ledger.equations[kept].cpu(),
        evidence=tuple(ledger.evidence[i] | everywhere for i in places),
        stages=tuple(ledger.stages[i] for i in places),
        rounds=ledger.rounds[kept].cpu(),
        sources=ledger.sources[kept].cpu(),
        isolating=tuple(ledger.isolating[i] for i in places),
        unproven=Unproven(
            unproven,
            combinations=ledger.combinations(),
            gradient=gradient,
            invert=partial(_samples, target=target, sample_shape=sample_shape),
        ),
        trace=trace,
        candidates_tested=candidates_tested,
        batch_size=size,
        share=share.value if share is not None and share.proven else None,
        rank=rank,
        explained=max(0.0, 1.0 - gap),
        mismatch=mismatch,
        faint=reproduced and not complete,
        complete=complete,
        stopped=_why(
            update, residual, size, found, complete=complete, reproduced=reproduced, vague=vague
        ),
        warnings=_warnings(residual, size, rank),
    )


def _samples(rows: Tensor, *, target: Target, sample_shape: tuple[int, ...] | None) -> Tensor:
    """Turn rows into samples, in their place: there may not be room for both."""
    shape = target.front.invert(rows[:0], sample_shape).shape[1:]
    for some in batches(len(rows), _AT_ONCE):
        rows[some] = target.front.invert(rows[some], sample_shape).flatten(1)
    return rows.view(len(rows), *shape)


def _agrees(ledger: KnownSamples, residual: Residual) -> Tensor:
    """(n,) mask: samples whose numbers are those they were certified by.

    The cascade works with coordinates; the numbers come from another system of equations. A sample
    for which the two do not agree, as random directions show, is withdrawn.
    """
    peeled, sent = ledger.peeled, residual.sent.rows
    mix = gaussian(sent.shape[1], _DIRECTIONS, like=sent) / math.sqrt(sent.shape[1])
    off = rms(ledger.combinations() @ (sent @ mix) - peeled.coordinates @ mix) / residual.scale
    return off <= torch.clamp(MERGE * peeled.sample_error, min=_DIFFERENT)


def _check(
    update: Update,
    known: SampleBlock,
    combinations: Tensor,
    *,
    backward: Backward,
    target: Target,
    residual: Residual,
) -> tuple[float, float]:
    """Compare the own gradient of samples, given as combinations too, with the update.

    Returns the relative gap over all layers, and the worst one over explained neurons.
    """
    if not len(known):
        return 1.0, 0.0
    z = residual.pre_activations(known.coordinates)
    c, own = _gradients(z, known.counts.long(), target=target, backward=backward)
    own[target.bias_name] = c.sum(0)
    sent = dict(update.gradients)
    wide = target.weight_name
    # Samples are combinations of what was sent, so their gradient is known in the same directions.
    own[wide], sent[wide] = c.T @ (combinations @ residual.sketch), residual.sketch
    # What is learned in front of the target follows from the same samples; it is left out.
    sent = {name: g for name, g in sent.items() if name in own}
    gap = {name: g.double() - own[name] for name, g in sent.items()}
    left, size = gap[wide].norm(dim=1), sent[wide].norm(dim=1)
    return norm(gap) / (norm(sent) or 1.0), _worst(left, size, residual.quiet)


def _gradients(
    z: Tensor, counts: Tensor, *, target: Target, backward: Backward
) -> tuple[Tensor, dict[str, Tensor]]:
    """Sensitivities (n, neurons) of samples, and gradients by name of all that stands behind them.

    Args:
        z: (n, neurons) pre-activations.
        counts: (n, classes) copies with each label.
        target: the target.
        backward: the client's backward pass.
    """
    which, labels = counts.nonzero(as_tuple=True)
    times = counts[which, labels]
    tail = target.tail
    with torch.enable_grad():
        parameters = {name: p.detach().requires_grad_() for name, p in tail.named_parameters()}
        activations = z.relu().requires_grad_()
        logits = torch.func.functional_call(tail, parameters, (activations,))
        each = logits[which.repeat_interleave(times)]
        total = backward.loss.total(each, labels.repeat_interleave(times)) * backward.share
        found = torch.autograd.grad(
            total, [activations, *parameters.values()], materialize_grads=True
        )
    names = [tail.names.get(name, name) for name in parameters]
    return found[0] * (z > 0), dict(zip(names, found[1:], strict=True))


def _left(residual: Residual) -> tuple[float, float]:
    """The same at the target alone, from what the cascade has left of it."""
    left, size = residual.rows.norm(dim=1), residual.sent.rows.norm(dim=1)
    gap = float(left.norm()) / (float(size.norm()) or 1.0)
    return gap, _worst(left, size, residual.quiet)


def _worst(left: Tensor, size: Tensor, quiet: Tensor) -> float:
    explained = quiet & (size > 0)
    return float((left[explained] / size[explained]).max()) if bool(explained.any()) else 0.0


def _warnings(residual: Residual, size: BatchSize, rank: int | None) -> tuple[str, ...]:
    """What does not fit together."""
    found = []
    if size.is_refuted:
        found.append(
            f"batch_size={size.stated} is stated, but {size.least} of its samples are certified"
        )
    elif size.stated is not None and size.by_weight not in {None, size.stated}:
        found.append(
            f"batch_size={size.stated} is stated, but the weight of a sample says "
            f"{size.by_weight}: the size is wrong, or the update was scaled"
        )
    if size.value is not None and rank is not None and rank > size.value:
        found.append(
            f"the update holds {rank} distinct samples, more than the batch size {size.value}"
        )
    if max(residual.grain, residual.broken) > _ALIEN:
        found.append("the update does not fit the weights of the model, or is mostly noise")
    return tuple(found)


def _why(
    update: Update,
    residual: Residual,
    size: BatchSize,
    found: int,
    *,
    complete: bool,
    reproduced: bool,
    vague: bool,
) -> str:
    """Why the cascade ended: the first of these that is so."""
    missing = 0 if size.value is None else size.value - found
    rest = f"the other {missing} samples" if missing > 1 else "the others"
    dtype = str(update.dtype).removeprefix("torch.")
    reasons = (
        (not bool(residual.sent.bias.any()), "the update is zero: there is nothing in it"),
        (complete, "the whole batch is recovered"),
        (
            found == 0,
            (
                "no candidate can be certified: none stands alone, or batch size, reduction "
                "or weights are not the client's"
            ),
        ),
        (
            reproduced,
            f"the update is explained: {rest} are too faint to be certified in {dtype}",
        ),
        (
            vague,
            (
                f"none of {rest} can be certified: where one may stand alone, what is left of "
                "the update is too inexact"
            ),
        ),
        (True, f"no neuron isolates one of {rest}"),
    )
    return next(reason for holds, reason in reasons if holds)
