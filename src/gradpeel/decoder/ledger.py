"""The samples certified so far, and the system of equations that turns them into numbers.

In neuron space the cascade never forms a sample. It need not: a sample's source neuron held nothing
but that sample and samples certified in earlier rounds, so

    G[src] = L X,   L[i, k] = sensitivity of sample k at the source neuron of sample i,

is triangular in the order of certification, and one substitution against the update as it was sent
yields all samples. On the diagonal stands what the candidate was divided by, the residual bias.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.certificate import Verdicts
from gradpeel.decoder.labelling import labels_of
from gradpeel.decoder.peeled import Peeled
from gradpeel.decoder.recovery import Evidence
from gradpeel.decoder.refinement import Refined
from gradpeel.decoder.tolerances import CHANCE, NOTHING, SAME, SLACK, STANDS_OUT

__all__ = ["Ledger"]

_ALIKE = 0.03
"""Different samples may be this near to each other, relative to the typical size of an entry."""


class Ledger:
    """Certified samples in the order they were certified."""

    def __init__(
        self, gradient: Tensor, *, direction: Tensor, scale: float, next_width: int, classes: int
    ) -> None:
        """Start empty.

        Args:
            gradient: (neurons, features) weight gradient of the target, as it was sent.
            direction: (width,) unit vector along which samples are compared first.
            scale: typical size of a candidate's coordinates.
            next_width: width of the next layer, 0 where there is none.
            classes: number of classes.
        """
        self._gradient = gradient
        self._scale = scale
        self._direction = direction
        neurons, features = gradient.shape
        self.peeled = Peeled.none(
            width=len(direction), neurons=neurons, next_width=next_width, classes=classes
        )
        self._rows = torch.zeros(0, features, dtype=torch.float64)
        self.sources = torch.zeros(0, dtype=torch.long)
        self.own = torch.zeros(0, dtype=torch.float64)
        self.rounds = torch.zeros(0, dtype=torch.long)
        self.residuals = torch.zeros(0, dtype=torch.float64)
        self.chances = torch.zeros(0, dtype=torch.float64)
        self.equations = torch.zeros(0, dtype=torch.long)
        self.isolating: list[tuple[int, ...]] = []
        self.evidence: list[Evidence] = []

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def labels(self) -> Tensor:
        """(n,) the most frequent label of each sample, -1 where none is known."""
        return labels_of(self.peeled.counts)

    @property
    def copies(self) -> int:
        """Number of samples of the batch that these are, all copies counted."""
        return int(self.peeled.counts.sum(1).clamp(min=1).sum())

    def knows(self, coordinates: Tensor, error: Tensor) -> Tensor:
        """(n,) mask: which of these candidates are a sample that is in the ledger already."""
        known = self.peeled
        return self._agree(coordinates, error, known.coordinates, known.sample_error).any(1)

    def distinct(self, coordinates: Tensor, error: Tensor) -> Tensor:
        """(n,) mask that keeps the first of candidates that are the same sample."""
        return ~self._agree(coordinates, error, coordinates, error).tril(-1).any(1)

    def add(
        self, candidates: Candidates, verdicts: Verdicts, chosen: Tensor, own: Tensor, number: int
    ) -> Peeled:
        """Enter the chosen candidates as round `number`; returns what to subtract.

        `own`, (n,), is the residual bias at the neuron that each was read from.
        """
        peeled = verdicts.peeled.pick(chosen)
        self.peeled = self.peeled.join(peeled)
        self.sources = torch.cat([self.sources, candidates.neurons[chosen]])
        self.own = torch.cat([self.own, own])
        self.rounds = torch.cat([self.rounds, torch.full((len(chosen),), number)])
        self.residuals = torch.cat([self.residuals, verdicts.mismatch[chosen]])
        self.chances = torch.cat([self.chances, verdicts.chance[chosen]])
        self.equations = torch.cat([self.equations, verdicts.equations[chosen]])
        self.isolating += [candidates.isolating(i) for i in chosen.tolist()]
        self.evidence += [verdicts.evidence[i] for i in chosen.tolist()]
        return peeled

    def replace(self, refined: Refined, bias: Tensor) -> None:
        """Put refined values in place of all samples entered so far.

        Args:
            refined: the same samples, refined.
            bias: (neurons,) bias gradient of the target, as it was sent.
        """
        known = torch.cat([self._gradient.double(), bias[:, None]], 1)
        fitted = refined.fit.solve(known)
        fitted = fitted[:, :-1] / fitted[:, -1:]
        self._rows = torch.where(refined.better[:, None], fitted, self.rows())
        self.peeled = refined.peeled

    def followers(self, error: Tensor) -> Tensor:
        """(n,) how many later samples, certified by themselves, show that each sample is right.

        They were read from neurons where its subtraction left a mark: had it been wrong, their own
        certificates would not hold.

        Args:
            error: (neurons,) error of the residual's rows.
        """
        c, sources = self.peeled.sensitivities, self.sources
        mark = c[:, sources].abs()
        needed = torch.maximum(error[sources], self.residuals * mark.diagonal())
        later = torch.ones_like(mark, dtype=torch.bool).triu(1)
        sure = self.chances <= CHANCE
        return ((mark > STANDS_OUT * needed) & later & sure).sum(1)

    def confirm(self, luck: Tensor) -> None:
        """Take what followed from samples that little spoke for into their evidence.

        Args:
            luck: (n,) by how much less likely it makes that a mixture passed for each.
        """
        for i in ((self.chances > CHANCE) & (luck < 1)).nonzero()[:, 0].tolist():
            self.chances[i] *= luck[i]
            self.evidence[i] |= Evidence.FOLLOWERS

    def keep(self, kept: Tensor) -> None:
        """Strike out all samples that the mask `kept` (n,) leaves out."""
        self._rows = self.rows()[kept]
        self.peeled = self.peeled.pick(kept)
        for name in ("sources", "own", "rounds", "residuals", "chances", "equations"):
            setattr(self, name, getattr(self, name)[kept])
        places = kept.nonzero()[:, 0].tolist()
        self.isolating = [self.isolating[i] for i in places]
        self.evidence = [self.evidence[i] for i in places]

    def values(self) -> tuple[Peeled, Tensor]:
        """The samples as they are known now, for `revert`."""
        return self.peeled, self.rows()

    def revert(self, values: tuple[Peeled, Tensor]) -> None:
        """Put the first samples back to what was known of them earlier."""
        peeled, rows = values
        later = torch.arange(len(peeled), len(self))
        self._rows = torch.cat([rows, self.rows()[later]])
        self.peeled = peeled.join(self.peeled.pick(later))

    def rows(self) -> Tensor:
        """(n, features) the certified samples at the target's input, by forward substitution."""
        done = len(self._rows)
        if done < len(self):
            self._rows = torch.cat([self._rows, self._substitute(done)])
        return self._rows

    def _substitute(self, done: int) -> Tensor:
        """The samples from the `done`-th on, given those before."""
        new = self.sources[done:]
        known = self._gradient[new].double()
        if done:
            known -= self.peeled.sensitivities[:done, new].T @ self._rows
        # Those of one round were read from the same residual: none was taken out of another.
        rounds = self.rounds[done:]
        lower = self.peeled.sensitivities[done:, new].T * (rounds < rounds[:, None])
        lower = lower + self.own[done:].diag()
        solved: Tensor = torch.linalg.solve_triangular(lower, known, upper=False)
        return solved

    def read(self, candidates: Candidates, chosen: Tensor, own: Tensor) -> Tensor:
        """(n, features) what chosen candidates are as samples, before they are entered.

        Args:
            candidates: candidates of the current round.
            chosen: indices into them.
            own: (n,) the residual bias at their own neurons.
        """
        neurons = candidates.neurons[chosen]
        known = self._gradient[neurons].double()
        if len(self):
            known -= self.peeled.sensitivities[:, neurons].T @ self.rows()
        return known / own[:, None]

    def _agree(self, these: Tensor, error: Tensor, those: Tensor, other: Tensor) -> Tensor:
        """(n, m) mask of pairs whose root-mean-square distance is within their errors."""
        both = torch.maximum(error[:, None], other)
        # A vague reading would pass for many samples.
        far = torch.clamp(SLACK * both, max=_ALIKE)
        tolerance = torch.maximum(far, NOTHING * both).clamp(min=SAME) * self._scale
        width = these.shape[1] ** 0.5
        # Along a unit direction vectors are no farther apart than they are: most pairs end here.
        along = these @ self._direction, those @ self._direction
        agree: Tensor = (along[0][:, None] - along[1]).abs() <= width * tolerance
        first, second = agree.nonzero(as_tuple=True)
        apart = (these[first] - those[second]).norm(dim=1)
        agree[first, second] = apart <= width * tolerance[first, second]
        return agree
