"""The samples certified so far, as combinations of what was sent.

In neuron space the cascade never forms a sample. It does not have to: a sample's source neuron held
only that sample and samples certified in earlier rounds, so

    G[src] = L X,   L[i, k] = sensitivity of sample k at the source neuron of sample i,

is triangular in the order of certification. The diagonal holds what the candidate was divided by,
the residual bias. Solving it for unit vectors instead of G[src] gives each sample as a combination
of the rows of G, with one number per neuron; nothing in it is as wide as the features. Only at the
end, X = combinations G.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.certificate import Verdicts
from gradpeel.decoder.labels import labels_of
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import combine, gaussian
from gradpeel.decoder.recovery import Evidence, Stage
from gradpeel.decoder.refine import Refined
from gradpeel.decoder.residual import rms
from gradpeel.decoder.sample_block import SampleBlock

__all__ = ["KnownSamples"]

_PRODUCT_ROUNDING = 1e-6
"""Distances found by a product have half the digits, relative to the vectors' sizes."""


class KnownSamples:
    """Certified samples in the order they were certified."""

    def __init__(
        self, gradient: Tensor, *, width: int, scale: float, next_width: int, classes: int
    ) -> None:
        """Start empty.

        Args:
            gradient: (neurons, features) weight gradient of the target, as it was sent.
            width: number of a candidate's coordinates.
            scale: typical size of a candidate's coordinates.
            next_width: width of the next layer, 0 where there is none.
            classes: number of classes.
        """
        self._gradient = gradient
        self._scale = scale
        # With a nearly linear tail a trace of others that is this small appears in no equation.
        self._same = max(LIMITS.same, math.sqrt(torch.finfo(gradient.dtype).eps))
        # Samples are compared along a few random directions first.
        some = gaussian(
            width, LIMITS.compare_directions, like=gradient.new_empty(0, dtype=torch.float64)
        )
        self._directions = functional.normalize(some, dim=0)
        none = SampleBlock.none(
            width=width,
            neurons=len(gradient),
            next_width=next_width,
            classes=classes,
            device=gradient.device,
        )
        # Entered round by round, joined when all of them are needed.
        self._entered: list[SampleBlock] = []
        self.peeled = none
        self._combinations = none.sensitivities
        numbers, counts = none.sample_error, none.sample_error.long()
        self.sources = self.rounds = self.equations = counts
        self.own = self.residuals = self.chances = numbers
        self.isolating: list[tuple[int, ...]] = []
        self.evidence: list[Evidence] = []
        self.stages: list[Stage] = []

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def peeled(self) -> SampleBlock:
        """All samples, as the residual needs them."""
        if len(self._entered) > 1:
            self._entered = [SampleBlock.joined(self._entered)]
        return self._entered[0]

    @peeled.setter
    def peeled(self, values: SampleBlock) -> None:
        self._entered = [values]
        self._copies = _copies(values)
        self._along = values.coordinates @ self._directions

    @property
    def labels(self) -> Tensor:
        """(n,) the most frequent label of each sample, -1 where none is known."""
        return labels_of(self.peeled.counts)

    @property
    def copies(self) -> int:
        """Number of samples of the batch that these are, all copies counted."""
        return self._copies

    def knows(self, coordinates: Tensor, error: Tensor) -> Tensor:
        """(n,) mask: which of these candidates are known samples."""
        known = torch.cat([part.sample_error for part in self._entered])
        near = self._near(coordinates @ self._directions, error, self._along, known)
        if not bool(near.any()):
            return near.any(1)
        return self._agree(near, coordinates, error, self.peeled.coordinates, known).any(1)

    def distinct(self, coordinates: Tensor, error: Tensor) -> Tensor:
        """(n,) mask that keeps the first of candidates that are the same sample."""
        along = coordinates @ self._directions
        near = self._near(along, error, along, error).tril(-1)
        return ~self._agree(near, coordinates, error, coordinates, error).any(1)

    def add(
        self,
        candidates: Candidates,
        verdicts: Verdicts,
        chosen: Tensor,
        own: Tensor,
        *,
        number: int,
        stage: Stage,
        combinations: Tensor | None = None,
    ) -> SampleBlock:
        """Enter the chosen candidates; returns what to subtract.

        Args:
            candidates: the candidates of an examination.
            verdicts: the verdicts on them.
            chosen: which of them to enter.
            own: (n,) the residual bias at the neuron that each was read from.
            number: of the round.
            stage: how thorough the search was.
            combinations: (n, neurons) the samples as combinations of the weight gradient's rows, if
                they are not simply read from their neurons.
        """
        peeled = verdicts.peeled.pick(chosen)
        if combinations is not None:
            self._combinations = torch.cat([self.combinations(), combinations])
        self._entered.append(peeled)
        self._copies += _copies(peeled)
        self._along = torch.cat([self._along, peeled.coordinates @ self._directions])
        self.sources = torch.cat([self.sources, candidates.neurons[chosen]])
        self.own = torch.cat([self.own, own])
        self.rounds = torch.cat([self.rounds, torch.full_like(chosen, number)])
        self.residuals = torch.cat([self.residuals, verdicts.mismatch[chosen]])
        self.chances = torch.cat([self.chances, verdicts.chance[chosen]])
        self.equations = torch.cat([self.equations, verdicts.equations[chosen]])
        alone = candidates.isolating(chosen) if combinations is None else [()] * len(chosen)
        self.isolating += alone
        self.evidence += [verdicts.evidence[i] for i in chosen.tolist()]
        self.stages += [stage] * len(chosen)
        return peeled

    def replace(self, refined: Refined, bias: Tensor) -> None:
        """Replace all samples entered so far by their refined values.

        Args:
            refined: the same samples, refined.
            bias: (neurons,) bias gradient of the target, as it was sent.
        """
        fitted = refined.fit.combinations(refined.peeled.sensitivities)
        fitted = fitted / (fitted @ bias)[:, None]
        self._combinations = torch.where(refined.better[:, None], fitted, self.combinations())
        self.peeled = refined.peeled

    def followers(self, error: Tensor) -> Tensor:
        """(n,) how many later samples, certified on their own, confirm each sample.

        They were read from neurons that its subtraction changed noticeably: had it been wrong,
        their own certificates would not hold.

        Args:
            error: (neurons,) error of the residual's rows.
        """
        c, sources = self.peeled.sensitivities, self.sources
        mark = c[:, sources].abs()
        needed = torch.maximum(error[sources], self.residuals * mark.diagonal())
        later = torch.ones_like(mark, dtype=torch.bool).triu(1)
        sure = self.chances <= LIMITS.chance
        return ((mark > LIMITS.stands_out * needed) & later & sure).sum(1)

    def confirm(self, luck: Tensor) -> None:
        """Add the samples that followed to the evidence of samples that had little.

        Args:
            luck: (n,) factor by which this lowers the chance that a mixture was accepted.
        """
        for i in ((self.chances > LIMITS.chance) & (luck < 1)).nonzero()[:, 0].tolist():
            self.chances[i] *= luck[i]
            self.evidence[i] |= Evidence.FOLLOWERS

    def keep(self, kept: Tensor) -> None:
        """Remove all samples that the mask `kept` (n,) leaves out."""
        self._combinations = self.combinations()[kept]
        self.peeled = self.peeled.pick(kept)
        for name in ("sources", "own", "rounds", "residuals", "chances", "equations"):
            setattr(self, name, getattr(self, name)[kept])
        places = kept.nonzero()[:, 0].tolist()
        self.isolating = [self.isolating[i] for i in places]
        self.evidence = [self.evidence[i] for i in places]
        self.stages = [self.stages[i] for i in places]

    def values(self) -> tuple[SampleBlock, Tensor]:
        """The samples as they are known now, for `revert`."""
        return self.peeled, self.combinations()

    def revert(self, values: tuple[SampleBlock, Tensor]) -> None:
        """Restore the first samples to an earlier state."""
        peeled, combinations = values
        later = torch.arange(len(peeled), len(self), device=combinations.device)
        self._combinations = torch.cat([combinations, self.combinations()[later]])
        self.peeled = SampleBlock.joined([peeled, self.peeled.pick(later)])

    def combinations(self) -> Tensor:
        """(n, neurons) the certified samples as combinations of the weight gradient's rows."""
        done = len(self._combinations)
        if done < len(self):
            self._combinations = torch.cat([self._combinations, self._substitute(done)])
        return self._combinations

    def beyond(self, combinations: Tensor) -> Tensor:
        """(n, neurons) combinations of the residual gradient as combinations of what was sent."""
        taken = combinations @ self.peeled.sensitivities.T
        return combinations - taken @ self.combinations()

    def expand(self, combinations: Tensor) -> Tensor:
        """(n, features) samples at the target's input, given as combinations (n, neurons)."""
        return combine(combinations, self._gradient)

    def _substitute(self, done: int) -> Tensor:
        """The samples from the `done`-th on, given those before."""
        new, c = self.sources[done:], self.peeled.sensitivities
        # Samples of one round were read from the same residual: none was subtracted for another.
        rounds = self.rounds[done:]
        lower = c[done:, new].T * (rounds < rounds[:, None])
        lower = lower + self.own[done:].diag()
        unit = torch.eye(len(new), dtype=c.dtype, device=c.device)
        inverse = torch.linalg.solve_triangular(lower, unit, upper=False)
        found = c.new_zeros(len(new), c.shape[1]).index_add_(1, new, inverse)
        if done:
            found -= inverse @ (c[:done, new].T @ self._combinations)
        return found

    def read(self, candidates: Candidates, chosen: Tensor, own: Tensor) -> Tensor:
        """(n, features) chosen candidates as samples, before they are entered.

        Args:
            candidates: candidates of the current round.
            chosen: indices into them.
            own: (n,) the residual bias at their own neurons.
        """
        neurons = candidates.neurons[chosen]
        known = self._unit_vectors(neurons)
        known -= self.peeled.sensitivities[:, neurons].T @ self.combinations()
        return combine(known / own[:, None], self._gradient)

    def _unit_vectors(self, neurons: Tensor) -> Tensor:
        return functional.one_hot(neurons, len(self._gradient)).to(self._combinations.dtype)

    def _tolerance(self, error: Tensor) -> Tensor:
        """How far a reading with this error may be from a more exact one of the same sample."""
        # An inexact reading would match many samples.
        far = torch.clamp(LIMITS.slack * error, max=LIMITS.vague_reading)
        return torch.maximum(far, LIMITS.nothing * error).clamp(min=self._same) * self._scale

    def _near(self, these: Tensor, error: Tensor, those: Tensor, other: Tensor) -> Tensor:
        """(n, m) mask of pairs that may be the same sample, according to the directions.

        Along a unit direction vectors are no farther apart than they are: this excludes most pairs.
        """
        width = len(self._directions) ** 0.5
        limit = torch.maximum(self._tolerance(error)[:, None], self._tolerance(other)) * width
        near: Tensor = (these[:, None, 0] - those[:, 0]).abs() <= limit
        for i in range(1, LIMITS.compare_directions):
            near &= (these[:, None, i] - those[:, i]).abs() <= limit
        return near

    def _agree(
        self, near: Tensor, these: Tensor, error: Tensor, those: Tensor, other: Tensor
    ) -> Tensor:
        """(n, m) mask of near pairs whose root-mean-square distance is within their errors."""
        # A product gives distances up to its rounding errors; only pairs it finds near are
        # subtracted.
        tolerance = torch.maximum(self._tolerance(error)[:, None], self._tolerance(other))
        rounding = _PRODUCT_ROUNDING * (rms(these)[:, None] + rms(those))
        far = torch.cdist(these, those) / max(these.shape[1], 1) ** 0.5
        first, second = (near & (far <= tolerance + rounding)).nonzero(as_tuple=True)
        agree = torch.zeros_like(near)
        apart = rms(these[first] - those[second])
        agree[first, second] = apart <= tolerance[first, second]
        return agree


def _copies(peeled: SampleBlock) -> int:
    """Number of samples of the batch that these are; one with unknown labels counts as one."""
    return int(peeled.counts.sum(1).clamp(min=1).sum())
