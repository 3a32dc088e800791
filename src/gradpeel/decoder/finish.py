"""The end of a cascade: turn certified samples into numbers and check them against the update.

A set of samples that reproduces the whole update, in all layers, proves more than its certificates
(paper, section "Certification"): that the update contains nothing else. At the target, which may be
as wide as an image has pixels, gradients are compared in random directions, in which two different
gradients do not agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gradpeel.decoder.known import KnownSamples
from gradpeel.decoder.labels import labels_after_training, labels_of
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import batches, combine, gaussian
from gradpeel.decoder.recovery import BatchSize, Evidence, Recovery, RowCount
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.sample_block import SampleBlock
from gradpeel.decoder.share import Share
from gradpeel.decoder.simulate import Backward
from gradpeel.decoder.state import State
from gradpeel.decoder.unproven import Reading, Unproven
from gradpeel.target import Target
from gradpeel.update import Update, norm

__all__ = ["Ending", "finish"]

_AT_ONCE = 32
"""Samples inverted at once."""


@dataclass(frozen=True, eq=False)
class Ending:
    """A cascade at its end.

    Attributes:
        target: the target of the network, its tail in float64.
        update: what was sent.
        state: the samples found, the residual without them, and the examinations of candidates.
        backward: the client's backward pass, where it could be simulated.
        share: the weight of one sample, where it could be determined.
        rank: number of distinct samples, where it was computed.
        sample_shape: shape of one sample, if known.
        certifies: whether samples that were found are certified.
        unproven: finds what was read but not certified.
        candidates_tested: number of candidates judged.
        everywhere: evidence that all samples have.
        vague: something was too inexact to be certified.
        ambiguous: sources of samples that the structure cannot distinguish from mixtures.
        rows: how far the row cascade came, if it was tried.
        head: (classes, neurons) weight of the last layer, where labels can be read after several
            local steps.
    """

    target: Target
    update: Update
    state: State
    backward: Backward | None
    share: Share | None
    rank: int | None
    sample_shape: tuple[int, ...] | None
    certifies: bool
    unproven: Callable[[], tuple[Reading, Tensor]]
    candidates_tested: int
    everywhere: Evidence
    vague: bool
    ambiguous: set[int]
    rows: RowCount | None
    head: Tensor | None = None


def _labels(end: Ending, known: SampleBlock) -> Tensor:
    """(n,) the labels of the samples, -1 where unknown."""
    if end.head is None or not len(known.coordinates):
        return labels_of(known.counts)
    residual = end.state.residual
    z = residual.pre_activations(known.coordinates)
    firm = residual.firing(known.coordinates, z, known.sample_error).firm
    return labels_after_training(known.sensitivities, firm, end.head)


def finish(end: Ending) -> Recovery:
    """Summarise what a cascade has found."""
    samples, kept = end.state.known, _certified(end)
    whole = bool(kept.all())
    known = samples.peeled.pick(kept)
    combinations = samples.combinations() if whole else samples.combinations()[kept]
    residual = end.state.residual
    if not whole:
        # Withdrawn samples do not count as explained.
        residual = residual.clone()
        residual.restore()
        residual.subtract(known)
    account = _account(end, known, combinations, residual)
    counts, places = known.counts.long(), kept.nonzero()[:, 0].tolist()
    gradient = end.update.gradients[end.target.weight_name]
    invert = partial(_samples, target=end.target, sample_shape=end.sample_shape)
    return Recovery(
        space=end.target.front.space,
        layer=end.target.layer,
        samples=invert(combine(combinations, gradient).cpu()),
        labels=_labels(end, known).cpu(),
        multiplicities=counts.sum(1).cpu(),
        label_counts=tuple(
            {label: copies for label, copies in enumerate(row) if copies} for row in counts.tolist()
        ),
        residuals=samples.residuals[kept].cpu(),
        errors=end.target.front.amplification * LIMITS.stated * known.sample_error.cpu(),
        scores=-samples.chances[kept].clamp(min=LIMITS.least_chance).log10().cpu(),
        equations=samples.equations[kept].cpu(),
        evidence=tuple(samples.evidence[i] | end.everywhere for i in places),
        stages=tuple(samples.stages[i] for i in places),
        rounds=samples.rounds[kept].cpu(),
        sources=samples.sources[kept].cpu(),
        isolating=tuple(samples.isolating[i] for i in places),
        unproven=Unproven(end.unproven, gradient=gradient, invert=invert),
        trace=end.state.trace_of(kept),
        candidates_tested=end.candidates_tested,
        batch_size=account.size,
        share=end.share.value if end.share is not None and end.share.proven else None,
        rank=end.rank,
        rows=end.rows,
        explained=max(0.0, 1.0 - account.gap),
        mismatch=account.mismatch,
        faint=account.reproduced and not account.complete,
        complete=account.complete,
        stopped=_why(end, residual, account),
        warnings=_warnings(
            residual, account.size, end.rank, by_sample=not end.target.front.tokenwise
        ),
    )


def _certified(end: Ending) -> Tensor:
    """(n,) mask of the samples that are reported: none on trial, none that is ambiguous."""
    samples = end.state.known
    kept = _agrees(samples, end.state.residual) & (samples.chances <= LIMITS.chance)
    if not len(samples) or not end.certifies:
        return kept & end.certifies
    alone = [Evidence.BIAS not in kind for kind in samples.evidence]
    doubted = [source in end.ambiguous for source in samples.sources.tolist()]
    kept &= ~(kept.new_tensor(alone) & kept.new_tensor(doubted))
    return kept & ~_of_one_row(samples) if end.state.residual.of_several_steps else kept


def _of_one_row(samples: KnownSamples) -> Tensor:
    """(n,) which samples share their row with another: at least one of the two is a mixture."""
    rows = samples.peeled.sensitivities
    unit = rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    alike = (unit @ unit.T).abs() > 1.0 - LIMITS.same_row
    several: Tensor = alike.sum(1) > 1
    return several


@dataclass(frozen=True)
class _Account:
    """How much of the update the certified samples account for.

    Attributes:
        gap: the part of it that they leave, relative.
        mismatch: the worst relative gap on neurons that count as explained.
        reproduced: they leave nothing.
        complete: nothing is left, and their weights add up to the whole batch.
        size: what is known of the batch size.
    """

    gap: float
    mismatch: float
    reproduced: bool
    complete: bool
    size: BatchSize


def _account(end: Ending, known: SampleBlock, combinations: Tensor, residual: Residual) -> _Account:
    """Check certified samples, given also as combinations, against the update."""
    update, backward, share = end.update, end.backward, end.share
    counts = known.counts.long()
    found = int(counts.sum(1).clamp(min=1).sum())
    labelled = backward is not None and bool((counts.sum(1) > 0).all())
    if backward is not None and labelled:
        gap, mismatch = _check(
            update, known, combinations, backward=backward, target=end.target, residual=residual
        )
    else:
        gap, mismatch = _left(residual)
    if backward is not None and update.reduction == "mean":
        total = float((counts.double() @ backward.weights).sum()) * backward.share
        everybody = labelled and abs(total - 1) <= math.sqrt(residual.resolution)
        everybody &= update.batch_size in {None, found}
    else:
        everybody = found == update.batch_size
    # Half the digits of the dtype: far above rounding errors, far below any sample it can carry.
    reproduced = gap <= math.sqrt(residual.grain)
    complete = reproduced and everybody and found > 0
    tells = share is not None and share.proven and update.reduction == "mean"
    size = BatchSize(
        stated=update.batch_size,
        by_weight=share.batch_size if share is not None and tells else None,
        least=found,
        proven=found if complete and labelled and update.batch_size == found else None,
    )
    return _Account(gap, mismatch, reproduced, complete, size)


def _samples(rows: Tensor, *, target: Target, sample_shape: tuple[int, ...] | None) -> Tensor:
    """Turn rows into samples in place, because there may not be memory for both."""
    shape = target.front.invert(rows[:0], sample_shape).shape[1:]
    if math.prod(shape) != rows.shape[1]:  # a front that makes them wider
        return target.front.invert(rows, sample_shape)
    for some in batches(len(rows), _AT_ONCE):
        rows[some] = target.front.invert(rows[some], sample_shape).flatten(1)
    return rows.view(len(rows), *shape)


def _agrees(samples: KnownSamples, residual: Residual) -> Tensor:
    """(n,) mask: samples whose numbers equal those they were certified by.

    The cascade works with coordinates; the numbers come from another system of equations. A sample
    for which the two disagree, as random directions show, is withdrawn.
    """
    peeled, sent = samples.peeled, residual.sent.rows
    mix = gaussian(sent.shape[1], LIMITS.check_directions, like=sent) / math.sqrt(sent.shape[1])
    off = rms(samples.combinations() @ (sent @ mix) - peeled.coordinates @ mix) / residual.scale
    return off <= torch.clamp(LIMITS.merge * peeled.sample_error, min=LIMITS.other_numbers)


def _check(
    update: Update,
    known: SampleBlock,
    combinations: Tensor,
    *,
    backward: Backward,
    target: Target,
    residual: Residual,
) -> tuple[float, float]:
    """Compare the gradient of samples, given also as combinations, with the update.

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
    # Parameters in front of the target follow from the same samples; they are left out.
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


def _warnings(
    residual: Residual, size: BatchSize, rank: int | None, *, by_sample: bool
) -> tuple[str, ...]:
    """Contradictions between the samples, the update and what it states.

    Where a sample may have several rows (not `by_sample`), there may well be more of them than the
    batch has samples.
    """
    found = []
    if by_sample and size.is_refuted:
        found.append(f"batch_size={size.stated} is stated, but {size.least} samples are certified")
    elif by_sample and size.stated is not None and size.by_weight not in {None, size.stated}:
        found.append(
            f"batch_size={size.stated} is stated, but the weight of one sample suggests "
            f"{size.by_weight}: either the stated size is wrong or the update was scaled"
        )
    if by_sample and size.value is not None and rank is not None and rank > size.value:
        found.append(
            f"the update holds {rank} distinct samples, more than the batch size {size.value}"
        )
    if max(residual.grain, residual.broken) > LIMITS.alien_noise:
        found.append("the update does not fit the weights of the model, or is mostly noise")
    return tuple(found)


def _why(end: Ending, residual: Residual, account: _Account) -> str:
    """Why the cascade ended: the first reason that applies."""
    size = account.size
    missing = 0 if size.value is None else size.value - size.least
    several = f"the other {missing} samples" if missing else "the other samples"
    rest = "the missing sample" if missing == 1 else several
    dtype = str(end.update.dtype).removeprefix("torch.")
    reasons = (
        (
            not bool(residual.sent.bias.any()),
            "the gradient of the layer is zero: there is nothing to read in it",
        ),
        (account.complete, "the whole batch is recovered"),
        (
            not end.certifies,
            (
                "no sample can be certified, because the update does not prove how much one sample "
                "contributes to it: one cannot be distinguished from several that look alike"
            ),
        ),
        (
            size.least == 0 and residual.of_several_steps,
            (
                "no sample can be certified: too many neurons started or stopped firing on samples "
                "during the local training, the update is too inexact, or the decoder was given a "
                "learning rate or weights that are not the client's"
            ),
        ),
        (
            size.least == 0,
            (
                "no sample can be certified: no neuron isolates one, the update is too inexact, or "
                "the decoder was given a batch size, a reduction or weights that are not the "
                "client's"
            ),
        ),
        (
            account.reproduced and missing == 0,
            (
                "the recovered samples explain the update: any others in the batch left no trace "
                f"in {dtype}"
            ),
        ),
        (
            account.reproduced,
            (
                f"the recovered samples explain the update: the gradient of {rest} is too faint to "
                f"be certified in {dtype}"
            ),
        ),
        (
            size.value == size.least,
            (
                "as many samples are recovered as the batch seems to hold, but together they do "
                "not explain the whole update"
            ),
        ),
        (
            end.vague,
            (
                f"{rest} cannot be certified: some candidates fit, but after all roundings and "
                "subtractions they are too inexact for a certificate"
            ),
        ),
        (True, f"no neuron isolates {rest if missing == 1 else f'any of {rest}'}"),
    )
    reason = next(reason for holds, reason in reasons if holds)
    return reason if account.reproduced else reason + _of_rows(end.rows)


def _of_rows(rows: RowCount | None) -> str:
    """What the row cascade reports about samples that were not found."""
    if rows is None or rows.found == rows.unknown:
        return ""
    if not rows.searched:
        too_many = f"peeling left too many samples ({rows.unknown})"
        return f"; the row cascade was not run, because {too_many}"
    left = f"the {rows.unknown} samples that peeling left"
    return f"; the row cascade found the rows of {rows.found} of {left}"
