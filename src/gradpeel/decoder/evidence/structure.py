"""Structure: evidence that needs neither tail, label, loss nor batch size.

The target's weight gradient is G = C^T X, with a row of C for each sample, zero wherever the sample
does not fire. So, while the batch is smaller than the layer and than the number of features, the
true sensitivities of every sample lie in the column space of the gradient *as it was sent*, before
and after any peeling. Those of a mixture fire at the wrong neurons and lie outside. The rank of the
space is the number of distinct samples.

The value of the test is counted, not assumed: a neuron whose unit vector lies in the space
(leverage 1) shows nothing, so the number of equations is the sum of 1 - leverage over the neurons
that fire. And where samples hardly differ in the neurons they fire, a mixture fires as they do: the
test proves no more than firing patterns differ.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import gaussian, generator
from gradpeel.decoder.residual import Residual, Sent

__all__ = ["Structure", "noise_of", "null_vector", "vanishing"]

_BLOCK = 64
"""Directions searched at once where their number is unknown."""


class Structure:
    """The column space of an update's weight gradient, computed when first needed.

    Attributes:
        asked: whether it has been computed.
    """

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self._live = sent.row_error > 0
        self._basis: Tensor | None = None
        self._signal: Tensor | None = None
        self._rank: int | None = None
        self._strength: Tensor | None = None
        self._found: dict[bytes, tuple[Tensor, Tensor, int]] = {}
        self._alike = 1.0
        self.asked = False

    @property
    def rank(self) -> int | None:
        """Number of distinct samples; None where it cannot be determined."""
        self.signal()
        return self._rank

    @property
    def live(self) -> Tensor:
        """(neurons,) mask of neurons that carry anything."""
        return self._live

    @property
    def free(self) -> Tensor:
        """(neurons,) 1 minus the leverage of each neuron; 0 where the test shows nothing."""
        free = torch.zeros_like(self._sent.row_error)
        basis = self._find_basis()
        if basis is not None:
            free[self._live] = (1.0 - basis.square().sum(1)).clamp(min=0.0)
        return free

    @property
    def is_diverse(self) -> bool:
        """Whether firing patterns differ so much that no two agree by chance."""
        return self._alike <= LIMITS.chance

    def tells_all_apart(self, grain: float) -> bool:
        """Whether no two samples can have merged into one dimension of the space.

        Two samples on one line, such as two exposures of one picture, span a single dimension; with
        the bias gradient, in which they have the same entry, they span two. And samples that differ
        by less than the error of the update have merged, unless that is next to nothing.

        Args:
            grain: relative error of the update.
        """
        if grain > LIMITS.exact_grain or self.rank is None:
            return False
        sent = self._sent
        rows = torch.cat([sent.rows, sent.scale * sent.bias[:, None]], 1)
        whole = Structure(replace(sent, rows=rows, features=sent.features + 1))
        return whole.rank == self.rank

    def distance(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """How far sensitivities lie outside the space, relative to random ones.

        Args:
            c: (n, neurons) sensitivities.

        Returns:
            (n,) the distance, 1 where the test shows nothing, and (n,) the number of equations.
        """
        basis = self._find_basis() if len(c) else None
        if basis is None:
            return c.new_ones(len(c)), c.new_zeros(len(c))
        weighted = c[:, self._live] / self._sent.row_error[self._live]
        outside = weighted - (weighted @ basis) @ basis.T
        free = (1.0 - basis.square().sum(1)).clamp(min=0.0)
        equations = ((weighted != 0) * free).sum(1)
        # A random vector on the same neurons would have this much of itself outside.
        expected = (weighted.square() * free).sum(1).sqrt()
        tiny = torch.finfo(c.dtype).tiny
        return outside.norm(dim=1) / expected.clamp(min=tiny), equations

    def confirm(
        self, c: Tensor, off: Tensor, candidates: Candidates, residual: Residual
    ) -> tuple[Tensor, Tensor]:
        """Determine whose sensitivities lie in the space, within errors, and what that shows.

        Neurons at a candidate's kink are left out, because it is unknown whether it fires there.

        Args:
            c: (n, neurons) sensitivities, also where a candidate does not fire.
            off: (n,) their relative error.
            candidates: whose they are.
            residual: the residual they were read from.

        Returns:
            (n,) mask of candidates that lie in the space, and (n, neurons) mask of neurons at which
            half of a sensitivity more or less would put them outside.
        """
        z = candidates.pre_activations
        fires = z > 0
        doubt = z.abs() <= LIMITS.kink * candidates.error[:, None] * residual.spread
        distance, equations = self.distance(c * (fires & ~doubt))
        allowed = LIMITS.outside_errors * (off + candidates.error + residual.resolution)
        allowed = allowed.clamp(max=LIMITS.outside)
        inside = (equations >= LIMITS.fewest_equations) & (distance <= allowed)
        weight = torch.where(self._live, self._sent.row_error, torch.inf)
        part = (c / weight).square() * self.free
        whole = (part * fires).sum(1)
        shows = (0.25 * part > ((2 * allowed).square() * whole)[:, None]) & (part > 0)
        return inside, shows & inside[:, None]

    def chance(self, distance: Tensor, equations: Tensor) -> Tensor:
        """(n,) how likely a mixture's sensitivities would lie as close to the space.

        Args:
            distance: (n,) from the space.
            equations: (n,) as many as it was measured in.
        """
        counted = equations.clamp(max=LIMITS.most_equations) * (distance <= LIMITS.outside)
        luck = (2 * distance).clamp(max=1.0).pow(counted)
        return torch.where(luck < 1.0, luck.clamp(min=self._alike), 1.0)

    def watch(self, share: Tensor) -> None:
        """Learn from the share of candidates that fire each neuron, (neurons,), how they differ.

        The chance that two agree at every neuron falls with the number of neurons they differ in.
        """
        self._alike = math.exp(-float((share * (1 - share)).sum()))

    def sharpen(
        self, c: Tensor, fires: Tensor, *, hidden: float = 0.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Find sensitivities from the neurons that a sample does not fire.

        There is, up to scale, one vector in the space that vanishes wherever the sample is silent:
        its sensitivities. Knowing where it fires thus gives them to the resolution of the update,
        however inexactly the sample itself is known.

        Args:
            c: (n, neurons) sensitivities as far as they are known; they set the scale.
            fires: (n, neurons) where each sample fires.
            hidden: share of the other neurons at which it may fire all the same.

        Returns:
            (n, neurons) sharpened sensitivities; (n,) their relative errors, infinite where the
            silent neurons are too few; (n,) by how many these are more than enough.
        """
        live, sharp = self._live, c.clone()
        error, spare = c.new_full((len(c),), torch.inf), c.new_zeros(len(c))
        basis = self.signal() if len(c) else None
        if basis is None:
            return sharp, error, spare
        for i in range(len(c)):
            found, error[i], spare[i] = self._vanishing(basis, fires[i, live], hidden)
            if bool(error[i].isfinite()):
                known = c[i, live]
                sharp[i, live] = found * ((found @ known) / (found @ found))
        return sharp, error, spare.clamp(min=0.0)

    def _vanishing(self, basis: Tensor, on: Tensor, hidden: float) -> tuple[Tensor, Tensor, int]:
        """The vector of the space that is zero where `on` is not, its error, and spare neurons.

        It is kept, because samples are looked up repeatedly while their firing pattern stays the
        same.
        """
        key = on.numpy(force=True).tobytes()
        if key not in self._found:
            weight = self._sent.row_error[self._live]
            spare = int((~on).sum()) - basis.shape[1]
            found, error = weight, weight.new_tensor(torch.inf)
            if spare > 0 and hidden:
                most = int((~on).sum())
                vector, _, error, silent = vanishing(basis, self._strength_known(), ~on)
                if int(silent.sum()) < (1.0 - hidden) * most:
                    error = error.new_tensor(torch.inf)
                on, spare = ~silent, int(silent.sum()) - basis.shape[1]
            elif spare > 0:
                vector, _, error = null_vector(basis, on)
            if bool(error.isfinite()):
                found = torch.where(on, basis @ vector * weight, 0.0)
                # It is exact in units of each neuron's error: large errors stay large.
                error = error * (found[on] / weight[on]).norm() * weight[on].norm()
                error = error / (found.norm() * math.sqrt(int(on.sum())))
            self._found[key] = found, error, spare
        return self._found[key]

    def _find_basis(self) -> Tensor | None:
        """Orthonormal columns that span the space; None where it is the whole space.

        Neurons are weighted by their errors, so that faint samples keep their direction. A few of
        the columns may span nothing but noise.
        """
        if not self.asked:
            self.asked = True
            self._basis = self._span()
            # The bias gradient is the sum of all sensitivities: if it is not in the space either,
            # the two gradients do not belong together.
            if (
                self._basis is not None
                and float(self.distance(self._sent.bias[None])[0]) > LIMITS.alien_bias
            ):
                self._basis = None
        return self._basis

    def _weighted_rows(self) -> Tensor:
        """(live neurons, width) the gradient, each row in units of its error."""
        return self._sent.rows[self._live] / (
            self._sent.row_error[self._live, None] * self._sent.scale
        )

    @property
    def _most(self) -> int:
        """The dimension of the whole space."""
        return min(int(self._live.sum()), self._sent.rows.shape[1], self._sent.features)

    def _span(self) -> Tensor | None:
        """Random combinations of the columns until only noise is left, made orthonormal."""
        most = self._most
        if not most:
            return None
        rows = self._weighted_rows()
        count, width = rows.shape
        source = generator()
        basis = rows.new_zeros(count, 0)
        while basis.shape[1] < most:
            block = min(_BLOCK, max(8, most // 8), most - basis.shape[1])
            mix = gaussian(width, block, like=rows, source=source)
            fresh = rows @ mix / math.sqrt(width)
            fresh = fresh - basis @ (basis.T @ fresh)
            left = float(fresh.norm(dim=0).max()) / math.sqrt(count)
            if left <= LIMITS.rank_noise:
                return basis
            # Normalised before they are orthogonalised once more: what is left may be small.
            for _ in range(2):
                fresh = torch.linalg.qr(fresh).Q
                fresh = fresh - basis @ (basis.T @ fresh)
            basis = torch.cat([basis, torch.linalg.qr(fresh).Q], 1)
            # Rounding errors may be slightly larger than assumed; then this block spans them, and
            # any samples that are as faint.
            if left <= LIMITS.rank_cliff and basis.shape[1] < most:
                return basis
        return None

    def signal(self) -> Tensor | None:
        """(live, rank) orthonormal columns that span the samples' part of the space.

        Neurons are weighted by their errors. None where the space is the whole space.
        """
        basis = self._find_basis()
        if basis is not None and self._signal is None:
            left, values, _ = torch.linalg.svd(basis.T @ self._weighted_rows(), full_matrices=False)
            noise = LIMITS.rank_noise * (
                math.sqrt(len(basis)) + math.sqrt(self._sent.rows.shape[1])
            )
            self._rank = _rank(values, noise)
            self._signal = basis @ left[:, : self._rank]
            self._strength = values[: self._rank]
        return self._signal

    def _strength_known(self) -> Tensor:
        strength = self.strength()
        return self._sent.bias.new_ones(0) if strength is None else strength

    def strength(self) -> Tensor | None:
        """(rank,) how far the columns of `signal` exceed the error; None where it is None."""
        self.signal()
        return self._strength


def _rank(values: Tensor, noise: float) -> int:
    """How many singular values are signal: all above the noise, up to the cliff if there is one.

    Rounding errors of faint neurons may be slightly larger than assumed; samples are far above.
    """
    values = torch.cat([values, values.new_zeros(1)])
    above = int((values > noise).sum())
    low = int((values > LIMITS.rank_cliff * noise).sum())
    if above > low:
        steps = values[max(low - 1, 0) : above] / values[max(low, 1) : above + 1].clamp(min=noise)
        if len(steps) and float(steps.max()) > LIMITS.rank_cliff:
            return max(low - 1, 0) + int(steps.argmax()) + 1
    return above


def vanishing(
    basis: Tensor, strength: Tensor, silent: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The combination of columns that vanishes at nearly all of some neurons.

    Args:
        basis: (neurons, rank) orthonormal columns, in units of the error.
        strength: (rank,) how far each of them stands above the error.
        silent: (neurons,) mask.

    Returns:
        The combination, the runner-up and the error, as `null_vector` does, and (neurons,) mask of
        the neurons at which it vanishes. The error is infinite where these are too few.
    """
    start, away = gaussian(2, basis.shape[1], like=basis)
    vector, other, error = start, away, start.new_tensor(torch.inf)
    asked, count = silent, int(silent.sum())
    step = LIMITS.row_left_out * count
    for turn in range(1, LIMITS.row_polish_steps + 1):
        if int(silent.sum()) < basis.shape[1] + LIMITS.row_spare:
            return vector, other, error.new_tensor(torch.inf), silent
        vector, other, error = null_vector(basis, ~silent)
        size = (basis @ vector).abs()
        usual = max(float(size[silent].median()), noise_of(vector, strength))
        # While the vector is off, it is off everywhere: leave out the worst first, and take back
        # what an earlier turn left out.
        worst = size[asked].sort().values[-1 - min(int(turn * step), count - 1)]
        stays = asked & (size <= max(LIMITS.row_outlier * usual, float(worst)))
        if torch.equal(stays, silent):
            break
        silent = stays
    return vector, other, error, silent


def noise_of(vector: Tensor, strength: Tensor) -> float:
    """What the error of the update leaves at one neuron of a combination of columns.

    Args:
        vector: (rank,) the combination.
        strength: (rank,) how far each column stands above the error.
    """
    rounding = torch.finfo(vector.dtype).eps  # of the columns themselves
    return float((vector / strength).norm()) + rounding


def null_vector(basis: Tensor, on: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The combination of columns that is smallest where `on` is not, by inverse iteration.

    Args:
        basis: (neurons, rank) orthonormal columns.
        on: (neurons,) mask.

    Returns:
        (rank,) the combination, (rank,) the runner-up, and the error: the ratio of the smallest two
        singular values, how well the first stands out.
    """
    # Columns are orthonormal, so the Gram matrix of the silent rows follows from the firing ones,
    # which are fewer. Its smallest eigenvalue is zero up to rounding, of either sign.
    identity = torch.eye(basis.shape[1], dtype=basis.dtype, device=basis.device)
    gram = (1 + LIMITS.gram_shift * torch.finfo(basis.dtype).eps) * identity - basis[on].T @ basis[
        on
    ]
    factor, failed = torch.linalg.cholesky_ex(gram)
    # Any start that is not orthogonal to it is suitable.
    start, away = gaussian(2, basis.shape[1], like=basis)
    if int(failed):
        return start, away, start.new_tensor(torch.inf)
    vector = _iterate(factor, start)
    # The runner-up, kept orthogonal to the first.
    other = _iterate(factor, away, away_from=vector)
    silent = basis[~on]
    return vector, other, (silent @ vector).norm() / (silent @ other).norm()


def _iterate(factor: Tensor, start: Tensor, away_from: Tensor | None = None) -> Tensor:
    """Unit vector after a few steps of inverse iteration."""
    vector = start
    for _ in range(3):
        vector = torch.cholesky_solve(vector[:, None], factor)[:, 0]
        if away_from is not None:
            vector = vector - away_from * (away_from @ vector)
        vector = vector / vector.norm()
    return vector
