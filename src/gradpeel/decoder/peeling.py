"""The peeling decoder (paper, section "The Loop").

Candidates are read off, merged, certified; what is certified is subtracted, which makes new
singletons, until nothing new is certified. No ground truth comes near this package.

Example:
    >>> import torch
    >>> from torch import nn
    >>> from gradpeel.client import local_update
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3)).double()
    >>> x, y = torch.rand(4, 20).double(), torch.tensor([2, 0, 1, 1])
    >>> peel(model, local_update(model, x, y))
    Recovery(4 of 4 samples in ... rounds, complete)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from gradpeel import client
from gradpeel.decoder.candidates import Candidates, gather
from gradpeel.decoder.certificate import Verdicts, certify
from gradpeel.decoder.ledger import Ledger
from gradpeel.decoder.recovery import Recovery, Round
from gradpeel.decoder.refinement import refine
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.simulation import Probe
from gradpeel.decoder.structure import Structure
from gradpeel.decoder.tolerances import CLEAR, LOOSEST, SLACK
from gradpeel.errors import InputError
from gradpeel.target import Target, split
from gradpeel.update import Update, norm

__all__ = ["Peeling", "peel"]


def peel(
    model: nn.Module,
    update: Update,
    *,
    sample_shape: tuple[int, ...] | None = None,
    data_range: tuple[float, float] | None = None,
    use_next_layer: bool = True,
    on_round: Callable[[Round], None] | None = None,
) -> Recovery:
    """Decode an update: every sample that peeling can reach, with label and certificate.

    Args:
        model: the network the update was computed on, with the weights the client had.
        update: what the client sent.
        sample_shape: shape of one sample; flat rows are returned where it is not given.
        data_range: smallest and largest value a sample's entry can have, if that is known; a
            candidate outside it is turned away.
        use_next_layer: also demand that a candidate explains the next layer's gradient, where
            there is one.
        on_round: called after each round.

    Returns:
        The samples found, their labels and certificates, and whether they are provably the whole
        batch.

    Raises:
        ModelRefusedError: the network cannot be attacked; the error says why.
        InputError: the update does not belong to the network.
    """
    peeling = Peeling(
        model,
        update,
        sample_shape=sample_shape,
        data_range=data_range,
        use_next_layer=use_next_layer,
    )
    for round_ in peeling:
        if on_round is not None:
            on_round(round_)
    return peeling.recovery()


class Peeling:
    """A cascade under way: iterate over it for its rounds, then ask for the `recovery`.

    Takes the arguments of `peel`.
    """

    def __init__(
        self,
        model: nn.Module,
        update: Update,
        *,
        sample_shape: tuple[int, ...] | None = None,
        data_range: tuple[float, float] | None = None,
        use_next_layer: bool = True,
    ) -> None:
        if not isinstance(update, Update):
            raise InputError(f"update of type {type(update).__name__}: expected gradpeel.Update")
        # All of it is decoded on the CPU, wherever the model lives.
        self._model = copy.deepcopy(model).cpu()
        self._update = replace(
            update, gradients={name: g.detach().cpu() for name, g in update.gradients.items()}
        )
        update = self._update
        self._target = split(self._model).to(dtype=torch.float64)
        _check_belongs(self._model, self._target, update)
        if data_range is not None and not data_range[0] < data_range[1]:
            raise InputError(f"data_range={data_range}: expected the smaller value first")
        # A shape that does not fit is told now, not after the cascade.
        empty = torch.zeros(0, self._target.features, dtype=torch.float64)
        self._target.front.invert(empty, sample_shape)
        self._sample_shape = sample_shape
        self._range = data_range
        self._residual = Residual(self._target, update, use_next=use_next_layer)
        # Fixed seed: any direction does, but the same update must always decode the same way.
        generator = torch.Generator().manual_seed(0)
        direction = torch.randn(
            self._residual.rows.shape[1], generator=generator, dtype=torch.float64
        )
        self._direction = direction / direction.norm()
        layer = self._target.tail.next_layer
        self._ledger = Ledger(
            update.gradients[self._target.weight_name],
            direction=self._direction,
            scale=self._residual.scale,
            next_width=0 if layer is None else layer.out_features,
        )
        coin = torch.rand(self._target.neurons, generator=generator)
        signs = torch.where(coin < 0.5, -1.0, 1.0).double()
        self._probe = Probe(update.share, signs * self._residual.spread)
        self._structure = Structure(self._residual.sent, update.batch_size)
        self._trace: list[Round] = []
        self._refined_at = 0
        self._vague = False

    def __iter__(self) -> Iterator[Round]:
        """Run the cascade, one round at a time."""
        residual, ledger, tail = self._residual, self._ledger, self._target.tail
        start = float(residual.bias.norm()) or 1.0
        # Only neurons touched by the last round can have become singletons; the rest need no new
        # look until the cascade stalls.
        everywhere = torch.ones_like(residual.quiet)
        touched, strict, vague, refinable = everywhere, True, False, True
        half_the_digits = math.sqrt(residual.resolution)
        while len(ledger) < self._update.batch_size:
            candidates = gather(residual, touched, self._direction)
            chosen = candidates.neurons[:0]
            if len(candidates):
                verdicts = certify(
                    candidates, residual, tail, self._probe, self._structure, strict=strict
                )
                vague |= bool(verdicts.vague.any())
                chosen = self._choose(candidates, verdicts)
            if not len(chosen):
                # Stalled. What is known can be made more exact, and then fainter samples show; and
                # what hides the rest may be a sample with next to no gradient: look once more,
                # everywhere, for samples that are exact but for such a trace.
                if strict and (vague or self._hides_something()) and self._refine():
                    touched, vague = everywhere, False
                elif strict:
                    touched, strict = everywhere, False
                else:
                    break
                continue
            strict = True
            peeled = ledger.add(candidates, verdicts, chosen, len(self._trace) + 1)
            touched = residual.subtract(peeled)
            round_ = Round(
                number=len(self._trace) + 1,
                looked_at=len(candidates.pairs[0]),
                distinct=len(candidates),
                sources=candidates.neurons[chosen],
                labels=verdicts.labels[chosen],
                fires=peeled.activations > 0,
                quiet=int(residual.quiet.sum()),
                left=float(residual.bias.norm()) / start,
            )
            self._trace.append(round_)
            yield round_
            # A mask that is in doubt cannot be refined any more: do not wait for the stall.
            if refinable and float(peeled.sample_error.max()) > 64 * half_the_digits:
                refinable = self._refine()
                touched = everywhere if refinable else touched
        self._vague = vague
        if len(ledger) and float(ledger.peeled.sample_error.max()) > half_the_digits:
            self._refine()

    def _hides_something(self) -> bool:
        """Whether some neuron's residual is more than its error, but not enough to be read."""
        residual = self._residual
        size = residual.bias.abs()
        hidden = (size > SLACK * residual.bias_error) & (size <= CLEAR * residual.row_error)
        return bool(hidden.any())

    def _refine(self) -> bool:
        """Refine all samples and start over from the update; says whether anything was gained."""
        residual, ledger = self._residual, self._ledger
        if self._refined_at == len(ledger):
            return False
        self._refined_at = len(ledger)
        refined = refine(
            ledger.peeled,
            ledger.labels,
            residual,
            self._target.tail,
            probe=self._probe,
            structure=self._structure,
        )
        if refined is None:
            return False
        ledger.replace(refined, residual.sent.bias)
        residual.restore()
        residual.subtract(refined.peeled)
        return True

    def _choose(self, candidates: Candidates, verdicts: Verdicts) -> Tensor:
        """Indices of accepted candidates that are new, distinct and within the declared range."""
        ledger = self._ledger
        # Two readings are the same sample if they agree as far as either can be trusted.
        trusted = torch.maximum(verdicts.peeled.sample_error, verdicts.mismatch)
        chosen = verdicts.accepted.nonzero()[:, 0]
        chosen = chosen[~ledger.knows(candidates.coordinates[chosen], trusted[chosen])]
        chosen = chosen[ledger.distinct(candidates.coordinates[chosen], trusted[chosen])]
        if self._range is not None:
            own = self._residual.bias[candidates.neurons[chosen]]
            rows = ledger.read(candidates, chosen, own)
            chosen = chosen[self._within(self._range, rows, candidates.error[chosen])]
        return chosen[: self._update.batch_size - len(ledger)]

    @property
    def neuron_errors(self) -> Tensor:
        """(neurons,) how far the residual of each neuron may be off, as the decoder knows it."""
        return self._residual.row_error

    def recovery(self) -> Recovery:
        """What the cascade has found so far, checked against the update as it was sent."""
        ledger, update = self._ledger, self._update
        rows = ledger.rows()
        kept = self._agrees(rows)
        samples = self._target.front.invert(rows[kept], self._sample_shape)
        labels = ledger.labels[kept]
        gap, mismatch = self._check(samples, labels)
        # Half the digits of the dtype: far above the roundings, far below any sample it can carry.
        reproduced = gap <= math.sqrt(self._residual.resolution)
        everything = len(labels) == update.batch_size
        return Recovery(
            samples=samples,
            labels=labels,
            residuals=ledger.residuals[kept],
            errors=ledger.peeled.sample_error[kept],
            chances=ledger.chances[kept],
            equations=ledger.equations[kept],
            rounds=ledger.rounds[kept],
            sources=ledger.sources[kept],
            isolating=tuple(ledger.isolating[i] for i in kept.nonzero()[:, 0].tolist()),
            evidence=self._evidence(),
            trace=tuple(self._trace),
            batch_size=update.batch_size,
            explained=max(0.0, 1.0 - gap),
            mismatch=mismatch,
            faint=reproduced and not everything,
            complete=reproduced and everything,
            stopped=self._why(len(labels), reproduced=reproduced),
        )

    def _agrees(self, rows: Tensor) -> Tensor:
        """(n,) mask: samples whose numbers are those they were certified by.

        The cascade works with pre-activations; the numbers come from another system of equations. A
        sample for which the two do not agree is withdrawn.
        """
        peeled, residual = self._ledger.peeled, self._residual
        given = residual.pre_activations(peeled.coordinates)
        off = rms(self._target.pre_activations(rows) - given) / residual.spread
        return off <= torch.clamp(SLACK * peeled.sample_error, min=LOOSEST)

    def _within(self, bounds: tuple[float, float], rows: Tensor, error: Tensor) -> Tensor:
        low, high = bounds
        slack = (SLACK * error * max(abs(low), abs(high)))[:, None]
        samples = self._target.front.invert(rows, self._sample_shape).flatten(1)
        return ((samples >= low - slack) & (samples <= high + slack)).all(1)

    def _check(self, samples: Tensor, labels: Tensor) -> tuple[float, float]:
        """Certificate rule 6: compare the recovered samples' own gradient with the update.

        Returns the relative gap over all layers, and the worst one over explained neurons.
        """
        target, sent = self._target, self._update.gradients
        if not len(samples):
            return 1.0, 0.0
        worker = copy.deepcopy(self._model).double().requires_grad_(requires_grad=True)
        own = client.gradients(worker, samples, labels, share=self._update.share)
        gap = {name: gradient.double() - own[name] for name, gradient in sent.items()}
        left = gap[target.weight_name].norm(dim=1)
        size = sent[target.weight_name].double().norm(dim=1)
        explained = self._residual.quiet & (size > 0)
        worst = (
            (left[explained] / size[explained]).max()
            if bool(explained.any())
            else left.new_zeros(())
        )
        return norm(gap) / (norm(sent) or 1.0), float(worst)

    def _evidence(self) -> tuple[str, ...]:
        kinds = ["firing", "bias equation", "support"]
        if self._residual.has_next:
            kinds.insert(2, "next layer")
        if self._structure.asked:
            kinds.append("structure")
        if self._range is not None:
            kinds.append("data range")
        return tuple(kinds)

    def _why(self, found: int, *, reproduced: bool) -> str:
        """Why the cascade ended: the first of these that is so."""
        expected = self._update.batch_size
        rest = f"the other {expected - found} samples"
        dtype = str(self._update.dtype).removeprefix("torch.")
        reasons = (
            (
                not bool(self._residual.sent.bias.any()),
                "the update is zero: there is nothing in it",
            ),
            (found == expected and reproduced, "the whole batch is recovered"),
            (
                found == expected,
                "as many samples as the batch holds are certified, but the update holds more",
            ),
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
                self._vague,
                (
                    f"none of {rest} can be certified: where one may stand alone, what is left of "
                    "the update is too inexact"
                ),
            ),
            (True, f"no neuron isolates one of {rest}"),
        )
        return next(reason for holds, reason in reasons if holds)


def _check_belongs(model: nn.Module, target: Target, update: Update) -> None:
    """Every gradient must have a parameter of the same name and shape, the target's among them."""
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    for name in (target.weight_name, target.bias_name):
        if name not in update.gradients:
            raise InputError(f"update: no gradient {name!r}, the target's; it has {_list(update)}")
    for name, gradient in update.gradients.items():
        if name not in shapes:
            raise InputError(f"update: {name!r}: the model has no such parameter")
        if tuple(gradient.shape) != shapes[name]:
            raise InputError(
                f"update: {name!r} has shape {tuple(gradient.shape)}: the model's is {shapes[name]}"
            )


def _list(update: Update) -> str:
    return ", ".join(repr(name) for name in list(update.gradients)[:8])
