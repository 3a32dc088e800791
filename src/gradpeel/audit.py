r"""The one call that ties it together: simulate a training round, decode it, score it.

    batch -> client -> update -> (noise) -> peel -> recovery -> score
        \-> exposure

By default the decoder knows what a server knows. What a server may not know in practice (the batch
size, the loss, the network behind the target) can be withheld from it.

Example:
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> x, y = torch.rand(8, 30), torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])
    >>> audit(model, x, y).score.recovery_rate
    1.0
    >>> audit(model, x, y, noise=1e-6, state_batch_size=False).recovery.batch_size.value
    8
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from gradpeel.checks import as_batch, as_tensor, check_at_least_0, check_data_range
from gradpeel.client import check_dtype, check_seed, local_update
from gradpeel.decoder import Peeling, Recovery, Round
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.recovery import RowCount
from gradpeel.designs import Design, Layer, Passive
from gradpeel.errors import InputError
from gradpeel.exposure import Exposure, exposure_at
from gradpeel.losses import CrossEntropy, Loss, check_loss
from gradpeel.noise import with_noise
from gradpeel.scoring import Outcome, Score, explain, score
from gradpeel.signals import sensitivities, signals
from gradpeel.target import Target, split, with_first_layer
from gradpeel.update import Reduction, Update

__all__ = ["Audit", "audit"]


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What one simulated training round gives away.

    Attributes:
        design: how the server set the target.
        features: number of features that enter the target.
        model: the network the client received, after the design.
        x: (batch, *sample_shape) the client's samples.
        y: (batch,) labels, or (batch, outputs) targets.
        loss: the loss that the client minimised.
        noise: standard deviation of the noise on the update, relative to each gradient's own.
        without_tail: why the decoder worked without the tail, and therefore without labels; None
            if it used the tail.
        update: what the decoder received from the client.
        exposure: the activation grid of the batch, and what peeling reaches on it.
        recovery: what the decoder found, without seeing the batch.
        score: the recovery compared with the batch.
        signals: (batch,) how strongly each sample stands out where peeling would read it.
        seed: the seed of everything random.
        seconds: how long the decoder took.
    """

    design: Design
    features: int
    model: nn.Module
    x: Tensor
    y: Tensor
    loss: Loss
    noise: float
    without_tail: str | None
    update: Update
    exposure: Exposure
    recovery: Recovery
    score: Score
    signals: Tensor
    seed: int
    seconds: float

    def __repr__(self) -> str:
        score = self.score
        return (
            f"Audit({self.design.name}: {score.recovered} of {score.batch_size} samples recovered, "
            f"{score.read} readable, {score.false_certificates} false certificates)"
        )

    def as_dict(self) -> dict[str, object]:
        """The numbers of this audit as plain values for JSON, without any samples."""
        score = self.score
        return {
            "design": self.design.name,
            "weights": self.design.weights,
            "batch_size": score.batch_size,
            "neurons": self.exposure.grid.shape[0],
            "features": self.features,
            "seed": self.seed,
            "dtype": str(self.update.dtype).removeprefix("torch."),
            "reduction": self.update.reduction,
            "loss": self.loss.name,
            "noise": self.noise,
            "without_tail": self.without_tail,
            "recovered": score.recovered,
            "readable": score.read,
            "recovery_rate": score.recovery_rate,
            "peeling_bound": score.peeling_bound,
            "baseline_rate": score.baseline_rate,
            "label_accuracy": score.label_accuracy,
            "false_certificates": score.false_certificates,
            "inexact_certificates": score.inexact_certificates,
            "repeats": score.repeats,
            "wrong_multiplicities": score.wrong_multiplicities,
            "error_estimates_hold": score.error_estimates_hold,
            **self.recovery.as_dict(),
            "max_abs_error": score.max_abs_error,
            "median_abs_error": score.median_abs_error,
            "unrecovered_but_reachable": [
                {"sample": i, "why": outcome.value, "signal": _known(float(self.signals[i]))}
                for i, outcome in enumerate(score.outcomes)
                if outcome not in {Outcome.RECOVERED, Outcome.UNREACHED}
            ],
            "seconds": self.seconds,
        }


def _known(value: float) -> float | None:
    """JSON has no word for NaN."""
    return None if math.isnan(value) else value


def audit(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    design: Design | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    reduction: Reduction = "mean",
    loss: Loss = CrossEntropy(),  # noqa: B008 - immutable
    noise: float = 0.0,
    state_batch_size: bool = True,
    know_tail: bool = True,
    data_range: tuple[float, float] | None = None,
    effort: float = 1.0,
    device: str | torch.device = "cpu",
    on_round: Callable[[Round], None] | None = None,
    on_rows: Callable[[RowCount], None] | None = None,
) -> Audit:
    """Simulate a training round (FedSGD) on data you own and report what it gives away.

    Args:
        model: the network, in the mode in which the client trains it; it is not changed.
        x: the client's batch, (batch, *sample_shape), as the model expects it.
        y: class labels, (batch,), for the cross-entropy; targets, (batch, outputs), for the other
            losses.
        design: how the server sets the target; by default it leaves the model as it is.
        seed: seed of the design, of anything random in the model, and of the noise.
        dtype: the dtype in which the client computes; by default the model's own.
        reduction: whether the loss is the mean or the sum over the batch.
        loss: the loss that the client minimises.
        noise: standard deviation of Gaussian noise on each gradient tensor of the update, as a
            multiple of the standard deviation of that tensor's values; see `gradpeel.with_noise`.
        state_batch_size: whether the update states its batch size; otherwise the decoder finds it.
        know_tail: whether the decoder knows the loss and the network behind the target; otherwise
            its evidence is the structure of the update and the next layer's gradient, and it
            recovers no labels.
        data_range: smallest and largest possible value of a feature, if the decoder may use it.
        effort: how long the decoder searches for samples that no neuron isolates, see
            `gradpeel.peel`; 0 for peeling alone.
        device: where the decoder computes, see `gradpeel.peel`; the client is simulated on the CPU.
        on_round: called after each round of the cascade.
        on_rows: called with its progress while the row cascade searches.

    Returns:
        The recovery and its score, with everything they were computed from.

    Raises:
        ModelRefusedError: the network cannot be audited; the error lists every reason.
        InputError: the batch does not fit the network, or a setting breaks its rule.
    """
    design = Passive() if design is None else design
    _check(design, seed, dtype, noise)
    check_loss(loss)
    check_data_range(data_range)
    check_at_least_0("effort", effort)
    target = split(model)
    # Simulated on the CPU, wherever model and data live.
    x = as_batch(x, target.weight.dtype if dtype is None else dtype).cpu()
    y = as_tensor("y", y).cpu()
    if target.weight.device.type != "cpu":
        model = copy.deepcopy(model).cpu()
        target = split(model)
    layer = design.shape(
        Layer(target.weight.double(), target.bias.double()),
        batch_size=len(x),
        rng=np.random.default_rng(seed),
        front=target.to(torch.float64).front,
    )
    shaped = with_first_layer(model, target, layer.weight, layer.bias)
    shaped = shaped.to(target.weight.dtype if dtype is None else dtype)
    update = local_update(shaped, x, y, reduction=reduction, loss=loss, seed=seed)
    if noise:
        update = with_noise(update, noise, seed=seed)
    if not state_batch_size:
        update = replace(update, batch_size=None)
    received = split(shaped)
    exposed = exposure_at(received, x)

    started = time.perf_counter()
    peeling = Peeling(
        shaped,
        update,
        loss=loss if know_tail else None,
        sample_shape=tuple(x.shape[1:]),
        data_range=data_range,
        effort=effort,
        device=device,
        on_rows=on_rows,
    )
    for round_ in peeling:
        if on_round is not None:
            on_round(round_)
    recovery = peeling.recovery()
    seconds = time.perf_counter() - started

    truth = received.to(torch.float64)
    strength = signals(truth, x, y, exposed, loss)
    # Three digits of a sample must survive the roundings, or the noise, of what it was summed up
    # with.
    resolution = max(torch.finfo(update.dtype).eps, noise)
    needed = LIMITS.clear * LIMITS.rounding * resolution
    scored = score(recovery, x, y, exposure=exposed, signals=strength, needed=needed)
    share = 1.0 / loss.denominator(y) if reduction == "mean" else 1.0
    scored = explain(
        scored,
        exposed,
        sensitivities(truth, x, y, exposed, loss)[0] * share,
        peeling.neuron_errors,
        enough=max(LIMITS.clear, 1 / math.sqrt(resolution)),
    )
    return Audit(
        design=design,
        features=target.features,
        model=shaped,
        x=x,
        y=y,
        loss=loss,
        noise=noise,
        without_tail=_why_without_tail(truth, loss, know_tail=know_tail),
        update=update,
        exposure=exposed,
        recovery=recovery,
        score=scored,
        signals=strength,
        seed=seed,
        seconds=seconds,
    )


def _check(design: object, seed: int, dtype: torch.dtype | None, noise: float) -> None:
    check_seed(seed)
    if dtype is not None:
        check_dtype(dtype)
    if isinstance(design, type) or not callable(getattr(design, "shape", None)):
        raise InputError(f"design={design!r}: expected a design such as gradpeel.designs.Passive()")
    check_at_least_0("noise", noise)


def _why_without_tail(target: Target, loss: Loss, *, know_tail: bool) -> str | None:
    if not know_tail:
        return "kept from the decoder"
    if not isinstance(loss, CrossEntropy):
        return f"{loss.name} has no class labels to tell"
    return target.tail.unknown
