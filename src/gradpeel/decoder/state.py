"""Everything that changes during a cascade: the residual, the known samples, and the trace.

Samples are entered and subtracted, refined together, and removed if they were subtracted on trial
and nothing confirmed them. A snapshot holds what is trusted; rolling back to it keeps the later
samples that are certified on their own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradpeel.decoder.candidates import Candidates, Readings
from gradpeel.decoder.certificate import Verdicts
from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.known import KnownSamples
from gradpeel.decoder.labels import labels_of
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.recovery import Round, Stage
from gradpeel.decoder.refine import refine
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.sample_block import SampleBlock
from gradpeel.decoder.simulate import Backward

__all__ = ["Look", "State"]


class Look(NamedTuple):
    """An examination: where candidates were found, those worth judging, and the verdicts."""

    readings: Readings
    candidates: Candidates
    verdicts: Verdicts


class State:
    """A running cascade.

    Attributes:
        residual: what is left of the update.
        known: the samples that were subtracted, in their order.
        trace: all examinations of candidates so far.
        refuted: neurons whose candidate was subtracted on trial and removed again.
    """

    def __init__(self, residual: Residual, known: KnownSamples) -> None:
        self.residual = residual
        self.known = known
        self.trace: list[Round] = []
        self.refuted: set[int] = set()
        self._refined_at = 0
        self._confirmations = known.rounds
        self._trusted = known.values()

    @property
    def on_trial(self) -> bool:
        """Whether samples with too little evidence so far are subtracted."""
        return bool((self.known.chances > LIMITS.chance).any())

    @property
    def is_explained(self) -> bool:
        """Whether no neuron's residual is well above its error any more."""
        return not len(self.residual.live(torch.ones_like(self.residual.quiet)))

    @property
    def hides_something(self) -> bool:
        """Whether some neuron's residual exceeds its error, but not by enough to be read."""
        residual = self.residual
        size = residual.bias.abs()
        hidden = (size > LIMITS.nothing * residual.bias_error) & (
            size <= LIMITS.clear * residual.row_error
        )
        return bool(hidden.any())

    def enter(
        self, look: Look, chosen: Tensor, stage: Stage, combinations: Tensor | None = None
    ) -> tuple[SampleBlock, Tensor]:
        """Subtract chosen candidates; returns them, and the mask of neurons that this changed.

        Args:
            look: the examination of candidates.
            chosen: (n,) indices of those to subtract.
            stage: how thorough the search was.
            combinations: (n, neurons) the chosen as combinations of the weight gradient's rows, if
                they are not simply read from their neurons.
        """
        if stage is Stage.SPECULATIVE and not self.on_trial:
            self._trusted = self.known.values()
        own = self.residual.bias[look.candidates.neurons[chosen]]
        block = self.known.add(
            look.candidates,
            look.verdicts,
            chosen,
            own,
            number=self._number,
            stage=stage,
            combinations=combinations,
        )
        touched = self.residual.subtract(block)
        self.log(look, chosen, stage)
        return block, touched

    @property
    def _number(self) -> int:
        """The number of the current round."""
        return 1 + sum(1 for round_ in self.trace if round_.certified)

    def log(self, look: Look, chosen: Tensor, stage: Stage) -> None:
        """Add an examination to the trace, with the candidates that were certified."""
        residual, block = self.residual, look.verdicts.peeled.pick(chosen)
        self.trace.append(
            Round(
                number=self._number,
                stage=stage,
                looked_at=len(look.readings.pairs[0]),
                distinct=len(look.readings),
                sources=look.candidates.neurons[chosen].cpu(),
                labels=labels_of(block.counts).cpu(),
                fires=(block.activations > 0).cpu(),
                quiet=int(residual.quiet.sum()),
                left=float(residual.bias.norm()) / (float(residual.sent.bias.norm()) or 1.0),
            )
        )

    def trace_of(self, kept: Tensor) -> tuple[Round, ...]:
        """The trace without samples that the mask `kept` leaves out."""
        sources, rounds = self.known.sources[kept].cpu(), self.known.rounds[kept].cpu()
        return tuple(round_.only(sources[rounds == round_.number]) for round_ in self.trace)

    def learn(self, block: SampleBlock) -> None:
        """Replace what was known about the known samples by what has been determined."""
        self.known.peeled = block
        self._refined_at = 0

    def refine(
        self,
        *,
        backward: Backward | None,
        layer: nn.Linear | None,
        structure: Structure,
        again: bool = False,
    ) -> bool:
        """Refine all samples and restart from the update; returns whether that was possible.

        Args:
            backward: the client's backward pass, where it can be simulated.
            layer: the next layer, if the activations enter one directly.
            structure: the column space of the update.
            again: even if no sample has been added since the last time.
        """
        known, residual = self.known, self.residual
        if self._refined_at == len(known) and not again:
            return False
        self._refined_at = len(known)
        refined = refine(
            known.peeled,
            known.sources,
            residual,
            backward=backward,
            layer=layer,
            structure=structure,
        )
        if refined is None:
            return False
        known.replace(refined, residual.sent.bias)
        self._confirmations = refined.confirmations
        residual.rebuild(refined.peeled, bias_error=refined.bias_error, row_error=refined.row_error)
        return True

    def confirm(self, *, refined: bool) -> Tensor:
        """Confirm samples on trial by what followed from them; returns the mask of all that remain.

        Args:
            refined: all samples have just been refined together.
        """
        follow = self.known.followers(self.residual.row_error)
        if refined:
            follow += self._confirmations
        self.known.confirm(LIMITS.confirms**follow)
        return self.known.chances <= LIMITS.chance

    def roll_back(self, kept: Tensor) -> None:
        """Remove all samples that the mask `kept` leaves out.

        Samples that were refined together with a wrong one may be wrong: the others are restored to
        their state before the trial.
        """
        self.refuted.update(self.known.sources[~kept].tolist())
        self.trace = list(self.trace_of(kept))
        self.known.keep(kept)
        self.known.revert(self._trusted)
        self.residual.restore()
        self.residual.subtract(self.known.peeled)
        self._refined_at = 0
