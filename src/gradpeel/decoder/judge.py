"""Which candidates are certified: what evidence is required, and how it is obtained."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from gradpeel.decoder.candidates import Candidates, Readings
from gradpeel.decoder.certificate import Verdicts, certify_by_row, certify_by_tail
from gradpeel.decoder.certificate_by_structure import certify_by_structure, certify_by_support
from gradpeel.decoder.evidence.alike import fire_alike
from gradpeel.decoder.evidence.groups import distance_between
from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.known import KnownSamples
from gradpeel.decoder.labels import tally
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.prefilter import glance, share_firing
from gradpeel.decoder.recovery import Evidence, Stage
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows import Isolated
from gradpeel.decoder.sensitivities import measure_v
from gradpeel.decoder.simulate import Backward, Simulated
from gradpeel.target import Tail

__all__ = ["Judge"]


class Judge:
    """Judges candidates by all evidence that is available.

    Attributes:
        backward: the client's backward pass, where it can be simulated.
        structure: the column space of the update.
        between: distance between samples, relative to the size of one.
        weighs: how many samples of a batch of the stated size weigh as much as one of this update;
            where that is not 1, all of them may be groups.
        tried: number of candidates judged so far.
        alike: (n,) which known samples fire exactly the same neurons as a different candidate, when
            candidates were last judged; None where this was not examined.
    """

    def __init__(
        self,
        tail: Tail,
        known: KnownSamples,
        structure: Structure,
        *,
        layer: nn.Linear | None,
        classes: int,
    ) -> None:
        """Start without any knowledge of the candidates.

        Args:
            tail: what stands behind the target.
            known: the samples that are certified already.
            structure: the column space of the update.
            layer: the next layer, if the activations enter one directly and its gradient is that of
                a single step.
            classes: number of classes; 0 where there are no labels.
        """
        self._tail = tail
        self._layer = layer
        self._known = known
        self._classes = classes
        self.backward: Backward | None = None
        self.structure = structure
        self.alike: Tensor | None = None
        self.between = 1.0
        self.weighs = 1
        self.tried = 0

    def watch(self, readings: Readings, residual: Residual) -> None:
        """Learn from all candidates how much they and their firing patterns differ."""
        self.structure.watch(share_firing(readings, residual))
        self.between = distance_between(readings, residual)

    @property
    def last_stage(self) -> Stage:
        """Speculation needs a simulation to check against, and patterns that distinguish samples.

        With two classes the gradients of all samples are parallel, so that two samples subtracted
        as one leave the same residual as both: later samples then confirm nothing.
        """
        backward = self.backward
        can = backward is not None and backward.classes > 2 and self.structure.is_diverse
        return Stage.SPECULATIVE if can else Stage.MEASURED

    def judge(
        self, readings: Readings, residual: Residual, stage: Stage
    ) -> tuple[Candidates, Verdicts]:
        """Judge candidates of a residual by the evidence that the stage requires.

        Args:
            readings: where they can be read.
            residual: the residual they were found in.
            stage: how thoroughly to search.

        Returns:
            The candidates that were worth judging, and the verdicts on them.
        """
        self.tried += len(readings)
        self.alike = None
        backward = self.backward
        if backward is None:
            candidates = readings.form(residual)
            return candidates, self._by_structure(candidates, residual, stage)
        if stage is not Stage.MEASURED:
            strict = stage in {Stage.STRICT, Stage.ROWS}
            worth, glanced = glance(readings, residual, backward, strict=strict)
            candidates = readings.pick(worth).form(residual)
            return candidates, self._by_tail(
                candidates,
                residual,
                backward,
                strict=strict,
                glanced=glanced,
                loosest=LIMITS.loosest_of_row if stage is Stage.ROWS else LIMITS.loosest,
            )
        candidates = readings.form(residual)
        if len(candidates) and residual.has_next and self.structure.is_diverse:
            labelled = self._labelled(candidates, residual, backward)
            if labelled is not None:
                return labelled
        return self._as_copies(candidates, residual, backward)

    def judge_solved(self, readings: Readings, isolated: Isolated) -> tuple[Candidates, Verdicts]:
        """Judge candidates that the row cascade has solved for, by their rows as well.

        Args:
            readings: where they can be read.
            isolated: the samples, each alone at some neurons.
        """
        residual = isolated.residual
        if residual.of_several_steps:
            self.tried += len(readings)
            candidates = readings.form(residual)
            verdicts = certify_by_support(
                candidates,
                residual,
                isolated.samples.sensitivities,
                isolated.row_error,
                isolated.owner[candidates.neurons],
                spare=isolated.spare,
            )
            return candidates, self._unlike(candidates, verdicts, residual)
        candidates, verdicts = self.judge(readings, residual, Stage.ROWS)
        apart, agrees = isolated.compare(candidates.neurons, verdicts.peeled)
        weighed = self.backward is not None
        verdicts = certify_by_row(verdicts, apart, agrees, spare=isolated.spare, weighed=weighed)
        return candidates, verdicts

    def _labelled(
        self, candidates: Candidates, residual: Residual, backward: Backward
    ) -> tuple[Candidates, Verdicts] | None:
        """Judge by the structure the candidates that some labels explain.

        The known part of the tail must explain what was measured: a mixture of samples that fire
        alike lies in the space as well.
        """
        activations = candidates.pre_activations.relu()
        v, error = measure_v(candidates, residual, activations, candidates.error)
        counts = tally(backward, activations, v, error.clamp(min=residual.resolution))
        explained = counts.sum(1) > 0
        few = candidates.pick(explained)
        sound = self._by_tail(few, residual, backward, counts=counts[explained]).sound
        explained = explained.masked_scatter(explained, sound)
        if not bool(explained.any()):
            return None
        # All of them are examined: only the others show which ones fire exactly alike.
        verdicts = self._by_structure(candidates, residual, Stage.MEASURED)
        kept = explained & verdicts.accepted
        if not bool(kept.any()):
            return None
        verdicts = verdicts.pick(kept)
        peeled = replace(verdicts.peeled, counts=counts[kept])
        evidence = tuple(kind | Evidence.BIAS for kind in verdicts.evidence)
        return candidates.pick(kept), replace(verdicts, peeled=peeled, evidence=evidence)

    def _by_structure(self, candidates: Candidates, residual: Residual, stage: Stage) -> Verdicts:
        """Judge the candidates by the column space of the update."""
        tail = self._tail
        verdicts = certify_by_structure(
            candidates,
            residual,
            self.structure,
            layer=self._layer,
            classes=self._classes,
            known=self._known.peeled.sensitivities,
            weighed=self.backward is not None,
            steady=tail.next_layer is not None or tail.unknown is None,
            trace=self._trace_allowed(residual, stage),
        )
        return self._unlike(candidates, verdicts, residual)

    def _unlike(self, candidates: Candidates, verdicts: Verdicts, residual: Residual) -> Verdicts:
        """Accept no candidate that fires exactly as another does: it may be a mixture of both."""
        # A vector that several neurons yield is a sample, or a mixture of samples that fire alike.
        several = torch.bincount(candidates.pairs[0], minlength=len(candidates)) > 1
        seen = verdicts.accepted | several
        known = self._known.peeled
        alike = fire_alike(verdicts.peeled.pick(seen), known, residual.scale)
        self.alike = alike.known
        accepted = verdicts.accepted.masked_scatter(seen, verdicts.accepted[seen] & ~alike.new)
        again = fire_alike(verdicts.peeled.pick(accepted), known, residual.scale).again
        return replace(verdicts, accepted=accepted.masked_scatter(accepted, ~again))

    def _trace_allowed(self, residual: Residual, stage: Stage) -> float:
        """How much of another sample may remain in one that the structure certifies."""
        if stage in {Stage.STRICT, Stage.ROWS}:
            return 0.0
        if self.backward is not None:
            return min(math.sqrt(residual.grain), LIMITS.most_trace)
        return LIMITS.most_trace

    def _as_copies(
        self, candidates: Candidates, residual: Residual, backward: Backward
    ) -> tuple[Candidates, Verdicts]:
        """Judge the candidates that several copies of one sample explain."""
        counts = residual.bias.new_zeros(len(candidates), self._classes)
        if len(candidates) and residual.has_next and backward.ends_at_next_layer:
            activations = candidates.pre_activations.relu()
            v, error = measure_v(candidates, residual, activations, candidates.error)
            counts = tally(backward, activations, v, error)
        several = counts.sum(1) > 1
        candidates = candidates.pick(several)
        return candidates, self._by_tail(candidates, residual, backward, counts=counts[several])

    def _by_tail(
        self,
        candidates: Candidates,
        residual: Residual,
        backward: Backward,
        *,
        strict: bool = False,
        counts: Tensor | None = None,
        glanced: Simulated | None = None,
        loosest: float = LIMITS.loosest,
    ) -> Verdicts:
        """Judge the candidates by simulating them."""
        return certify_by_tail(
            candidates,
            residual,
            backward,
            self.structure,
            between=self.between,
            strict=strict,
            counts=counts,
            glanced=glanced,
            loosest=loosest,
            weighs=self.weighs,
        )
