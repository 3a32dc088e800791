"""Structure: evidence that needs neither label, loss nor batch size.

The target's weight gradient is G = C^T X, with a row of C for each sample, zero wherever the sample
does not fire. So, while the batch is smaller than the layer and than the number of features, the
true sensitivities of every sample lie in the column space of the gradient *as it was sent*, before
and after any peeling. Those computed for a mixture fire at the wrong neurons and lie outside.

What the test is worth is counted, not assumed: a neuron whose unit vector lies in the space
(leverage 1) says nothing, so the number of equations is the sum of 1 - leverage over the neurons
that fire.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.residual import Sent

__all__ = ["Structure"]

_OVERSAMPLING = 8
_LARGEST = 0.01
"""Distance from the space, relative to a random vector's, beyond which nothing is evidence."""
_MOST = 60
"""Equations that count at most: they are not independent to the last one."""


class Structure:
    """The column space of an update's weight gradient, found when first asked for."""

    def __init__(self, sent: Sent, batch_size: int) -> None:
        self._sent = sent
        self._batch_size = batch_size
        # In neuron space there are more features than neurons; in input space the width is theirs.
        self._rank = min(batch_size + _OVERSAMPLING, sent.rows.shape[1])
        self._basis: Tensor | None = None

    @property
    def asked(self) -> bool:
        """Whether the column space was needed so far."""
        return self._basis is not None

    def chance(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """How likely a mixture's sensitivities would lie as close to the space.

        Args:
            c: (n, neurons) sensitivities.

        Returns:
            (n,) the chance, 1 where the test says nothing, and (n,) the number of equations.
        """
        live = self._sent.error > 0
        basis = self._find_basis(live) if len(c) else None
        if basis is None:
            return torch.ones(len(c), dtype=c.dtype), torch.zeros(len(c), dtype=torch.long)
        weighted = c[:, live] / self._sent.error[live]
        outside = weighted - (weighted @ basis) @ basis.T
        free = 1.0 - basis.square().sum(1)
        equations = ((weighted != 0) * free).sum(1)
        # A random vector on the same neurons would have this much of itself outside.
        expected = (weighted.square() * free).sum(1).sqrt()
        distance = outside.norm(dim=1) / expected
        counted = equations.clamp(max=_MOST) * (distance <= _LARGEST)
        return (2 * distance).clamp(max=1.0).pow(counted), counted.long()

    def sharpen(self, c: Tensor, fires: Tensor) -> tuple[Tensor, Tensor]:
        """Make sensitivities exact from the neurons that a sample does not fire.

        There is, up to scale, one vector in the space that vanishes wherever the sample is silent:
        its sensitivities. Knowing where it fires thus gives them to the resolution of the update,
        however inexactly the sample itself is known.

        Args:
            c: (n, neurons) sensitivities as far as they are known; they set the scale.
            fires: (n, neurons) where each sample fires.

        Returns:
            (n, neurons) sharpened sensitivities and (n,) their relative errors, infinite where the
            silent neurons are too few.
        """
        live = self._sent.error > 0
        basis = self._find_basis(live) if len(c) else None
        sharp, error = c.clone(), torch.full((len(c),), torch.inf, dtype=c.dtype)
        if basis is None:
            return sharp, error
        weight = self._sent.error[live]
        for i in range(len(c)):
            on = fires[i, live]
            if int((~on).sum()) <= basis.shape[1]:
                continue
            vector, error[i] = _null_vector(basis, on, basis.T @ (c[i, live] / weight))
            if not bool(error[i].isfinite()):
                continue
            found = torch.where(on, basis @ vector * weight, 0.0)
            known = c[i, live]
            sharp[i, live] = found * ((found @ known) / (found @ found))
        return sharp, error

    def _find_basis(self, live: Tensor) -> Tensor | None:
        """Orthonormal columns that span the space; None where it is all there is.

        Neurons are weighted by their rounding error, so that faint samples keep their direction.
        The gradient has no more rank than the batch has samples, so as many random combinations of
        its columns span it.
        """
        if self._rank >= int(live.sum()) or self._batch_size >= self._sent.rows.shape[1]:
            return None
        if self._basis is None:
            rows = self._sent.rows[live] / self._sent.error[live, None]
            generator = torch.Generator().manual_seed(0)
            mix = torch.randn(rows.shape[1], self._rank, generator=generator, dtype=rows.dtype)
            self._basis = torch.linalg.qr(rows @ mix).Q
        return self._basis


def _null_vector(basis: Tensor, on: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """The combination of columns that is smallest where `on` is not, by inverse iteration.

    Returns it with its error, the ratio of the smallest two singular values: how well it stands
    out.
    """
    # Columns are orthonormal, so the Gram matrix of the silent rows follows from the firing ones,
    # which are fewer. Its smallest eigenvalue is zero up to rounding, of either sign.
    identity = torch.eye(basis.shape[1], dtype=basis.dtype)
    gram = (1 + 8 * torch.finfo(basis.dtype).eps) * identity - basis[on].T @ basis[on]
    factor, failed = torch.linalg.cholesky_ex(gram)
    if int(failed):
        return start, start.new_tensor(torch.inf)
    vector = _iterate(factor, start)
    # The runner-up, kept apart from the first.
    other = _iterate(factor, torch.ones_like(vector), away_from=vector)
    silent = basis[~on]
    return vector, (silent @ vector).norm() / (silent @ other).norm()


def _iterate(factor: Tensor, start: Tensor, away_from: Tensor | None = None) -> Tensor:
    """Unit vector after a few steps of inverse iteration."""
    vector = start
    for _ in range(3):
        vector = torch.cholesky_solve(vector[:, None], factor)[:, 0]
        if away_from is not None:
            vector = vector - away_from * (away_from @ vector)
        vector = vector / vector.norm()
    return vector
