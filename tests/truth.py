"""What a decoder would hold in its hands if it knew the batch: for tests of the decoder's parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gradpeel.decoder.backward import Backward
from gradpeel.decoder.candidates import Candidates, gather
from gradpeel.decoder.certificate import Verdicts, certify_by_structure, certify_by_tail
from gradpeel.decoder.peeled import Peeled, typical
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.structure import Structure
from gradpeel.losses import CrossEntropy
from gradpeel.target import Target, split
from support import SmallRound


@dataclass(frozen=True)
class Truth:
    """A round's samples behind the target, by autograd, weighted as in the batch loss.

    Attributes:
        target: the target, in float64.
        rows: (batch, features) the samples as the target sees them.
        z: (batch, neurons) pre-activations.
        c: (batch, neurons) sensitivities.
        v: (batch, next width) loss gradient at the next layer's output; no columns without one.
        counts: (batch, classes) each sample's label, once.
    """

    target: Target
    rows: Tensor
    z: Tensor
    c: Tensor
    v: Tensor
    counts: Tensor

    @classmethod
    def of(cls, round_: SmallRound) -> Truth:
        """Compute it, in float64 at the round's own weights, for samples as the client saw them."""
        share = round_.update.share
        assert share is not None
        target = split(round_.model).to(torch.float64)
        rows = target.front(round_.x.to(round_.update.dtype).double())
        z = target.pre_activations(rows).requires_grad_()
        entered = z.relu()
        layer = target.tail.next_layer
        if layer is not None:
            entered = layer(entered)
        logits = target.tail.rest(entered)
        loss = functional.cross_entropy(logits, round_.y, reduction="sum")
        c, v = torch.autograd.grad(loss * share, [z, entered])
        counts = functional.one_hot(round_.y, logits.shape[1]).double()
        return cls(target, rows, z.detach(), c, v if layer is not None else v[:, :0], counts)

    def backward(self, round_: SmallRound, unit_error: Tensor | None = None) -> Backward:
        """The client's backward pass behind the target; errors are plain ones if not given."""
        share = round_.update.share
        assert share is not None
        error = torch.ones_like(self.z[0]) if unit_error is None else unit_error
        return Backward(self.target.tail, CrossEntropy(), share, error, self.counts.shape[1])

    def peeled(self, residual: Residual, *, error: float = 0.0) -> Peeled:
        """The samples as the residual needs them, exact, but said to be known up to `error`."""
        space = self.rows @ self.target.weight.T if residual.in_neuron_space else self.rows
        known = torch.full((len(self.rows),), error, dtype=torch.float64)
        return Peeled(
            coordinates=space,
            activations=self.z.relu(),
            sensitivities=self.c,
            next_sensitivities=self.v,
            counts=self.counts,
            sample_error=known,
            sensitivity_error=known,
            kink=torch.zeros_like(self.z),
            told=torch.zeros_like(self.z),
        )

    def blurred(self, residual: Residual, error: float, *, seed: int = 0) -> Peeled:
        """The samples as a decoder that is off by `error` would know them."""
        generator = torch.Generator().manual_seed(seed)

        def noise(like: Tensor) -> Tensor:
            return error * torch.randn(like.shape, generator=generator, dtype=torch.float64)

        exact = self.peeled(residual, error=error)
        fires = self.z > 0
        coordinates = exact.coordinates + residual.scale * noise(exact.coordinates)
        z = residual.pre_activations(coordinates)
        return Peeled(
            coordinates=coordinates,
            activations=(z * fires).clamp(min=0.0),
            sensitivities=self.c + fires * typical(self.c)[:, None] * noise(self.c),
            next_sensitivities=self.v + self.v.abs().amax(1, keepdim=True) * noise(self.v)
            if self.v.shape[1]
            else self.v,
            counts=self.counts,
            sample_error=exact.sample_error,
            sensitivity_error=exact.sensitivity_error,
            kink=exact.kink,
            told=exact.told,
        )


class FirstLook:
    """A fresh residual, its candidates, and the samples behind those that are real.

    Attributes:
        residual: the update as it was sent.
        candidates: all of its candidates.
        genuine: (n,) mask of those that were read from a singleton of the activation grid.
        who: (n,) the samples that those are.
        lonely: (n,) mask of those of them that one neuron isolates.
        pooled: (n,) mask of those of them that several neurons isolate.
    """

    def __init__(
        self, round_: SmallRound, *, use_next: bool = True, batch_size: int | None = None
    ) -> None:
        self.round = round_
        self.truth = Truth.of(round_)
        self.residual = Residual(self.truth.target, round_.update, use_next=use_next)
        neurons, width = self.residual.rows.shape
        self.backward = self.truth.backward(
            round_, torch.full((neurons,), self.residual.spread, dtype=torch.float64)
        )
        self.structure = Structure(self.residual.sent, batch_size or round_.update.batch_size)
        self.direction = torch.eye(width, dtype=torch.float64)[0]
        self.candidates = self.gather(torch.ones(neurons, dtype=torch.bool))
        self.structure.watch((self.candidates.pre_activations > 0).double().mean(0))
        exposed = round_.exposure
        self.genuine = exposed.singletons[self.candidates.neurons]
        self.who = exposed.grid[self.candidates.neurons].int().argmax(1)
        pools = torch.bincount(self.candidates.pairs[0], minlength=len(self.candidates))
        self.lonely, self.pooled = self.genuine & (pools == 1), self.genuine & (pools > 1)

    def gather(self, among: Tensor) -> Candidates:
        """The candidates of some neurons."""
        return gather(self.residual, among, self.direction)

    def judge(
        self,
        candidates: Candidates | None = None,
        *,
        strict: bool = True,
        counts: Tensor | None = None,
    ) -> Verdicts:
        """What the certificate says where the tail is known."""
        return certify_by_tail(
            self.candidates if candidates is None else candidates,
            self.residual,
            self.backward,
            self.structure,
            strict=strict,
            counts=counts,
        )

    def judge_by_structure(
        self,
        candidates: Candidates | None = None,
        *,
        steady: bool = True,
        trace: float = 0.0,
    ) -> Verdicts:
        """What the certificate says where it is not; by the next layer, if that is used."""
        return certify_by_structure(
            self.candidates if candidates is None else candidates,
            self.residual,
            self.structure,
            layer=self.truth.target.tail.next_layer if self.residual.has_next else None,
            classes=0,
            steady=steady,
            trace=trace,
        )
