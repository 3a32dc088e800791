"""What rows look like: the set of vectors that the search looks for in the column space.

A row is zero where its sample is silent and elsewhere what the next layer sends back, W2^T v for
some v. Where nothing is known of the next layer, all that is left is that it is zero at many
neurons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import gaussian
from gradpeel.decoder.rows.polish import polish_by_next_layer, polish_by_silence
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["TINY", "ByNextLayer", "BySilence", "Guess", "RowSet", "State"]

TINY = 1e-30
"""Nothing, in float32."""

State = tuple[Tensor, ...]
"""What a set remembers of each guess from one reflection to the next."""


@dataclass(frozen=True, eq=False)
class Guess:
    """Vectors that may be rows, in the units of the search.

    Attributes:
        rows: (n, live) the vectors, in the space.
        silent: (n, live) mask of neurons at which each is nearly zero although it need not be.
        fires: (n, live) mask of neurons at which the samples fire, if these are their rows.
    """

    rows: Tensor
    silent: Tensor
    fires: Tensor

    def pick(self, which: Tensor) -> Guess:
        """Some of them, by a mask or by indices."""
        return Guess(self.rows[which], self.silent[which], self.fires[which])


class RowSet(Protocol):
    """The vectors that have the form of a row."""

    damping: float
    gap_there: float
    """Largest relative distance between the sets at which a search has come to a row."""
    most_error: float
    """Largest relative error of a row that can still be distinguished from other vectors."""

    def start(self, basis: Tensor, fires: Tensor, directions: Tensor) -> tuple[Tensor, State]:
        """Vectors of the space near rows of samples that are guessed to fire at some neurons.

        Args:
            basis: (live, rank) of the space.
            fires: (n, live) where the samples are guessed to fire.
            directions: (n, several, next width) that their loss gradients may have there.
        """

    def nearest(self, rows: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """The nearest vectors of this set, and what they would be if all neurons fired."""

    def silent(self, rows: Tensor, sent: Tensor) -> Tensor:
        """Mask of neurons at which vectors are nearly zero although they need not be."""

    def gram(self, basis: Tensor, weight: Tensor, fires: Tensor) -> Tensor:
        """(n, rank, rank) quadratic forms: how far vectors of the space are from this set.

        Args:
            basis: (live, rank) of the space.
            weight: (n, live) of each neuron.
            fires: (n, live) where the samples are guessed to fire.
        """

    def gap(self, rows: Tensor, weight: Tensor, fires: Tensor) -> tuple[Tensor, Tensor]:
        """(n, live) how far vectors are from this set, and where they would have to fire for it."""

    def polish(self, guess: Guess, *, loose: bool = False) -> list[tuple[Tensor, Tensor]]:
        """The row that each guess leads to, and its error, see `gradpeel.decoder.rows.polish`.

        Args:
            guess: the guesses.
            loose: whether rows may be less exact than the update.
        """


class ByNextLayer:
    """Rows that are zero or what the next layer sends back.

    The state of a guess is where it fires and its v.
    """

    damping = 0.2
    gap_there = LIMITS.row_gap
    most_error = LIMITS.row_error_fitted

    def __init__(self, space: RowSpace, weight: Tensor) -> None:
        """Prepare.

        Args:
            space: the column space.
            weight: (next width, neurons) of the next layer.
        """
        self._space = space
        self._exact = (weight[:, space.live].to(space.error) / space.error).T.contiguous()
        there = self._exact * (space.error / space.unit)[:, None]
        there = there / there.norm(dim=1).median().clamp(min=torch.finfo(there.dtype).tiny)
        self._weight = there.float().contiguous()
        self._inverse = torch.linalg.pinv(there.T @ there).float()

    def start(self, basis: Tensor, fires: Tensor, directions: Tensor) -> tuple[Tensor, State]:
        """For each guess the direction that puts most of the row into the space."""
        best = fires.new_zeros(fires.shape, dtype=torch.float32)
        most = best.new_full((len(fires), 1), -1.0)
        for v in directions.float().unbind(1):
            row = (v @ self._weight.T) * fires
            inside = row @ basis
            share = inside.norm(dim=1, keepdim=True) / row.norm(dim=1, keepdim=True).clamp(TINY)
            better = share > most
            best = torch.where(better, inside @ basis.T, best)
            most = torch.where(better, share, most)
        return best, (fires, best.new_zeros(len(fires), self._weight.shape[1]))

    def nearest(self, rows: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Fit v where it fires; it fires where that is nearer than zero."""
        fires, v = state
        v = self._fit(fires.float(), rows, v)
        sent = v @ self._weight.T
        fires = (rows - sent).abs() < rows.abs()
        return sent * fires, sent, (fires, v)

    def _fit(self, fires: Tensor, rows: Tensor, v: Tensor) -> Tensor:
        """Least squares over the neurons that fire, by conjugate gradients from the last v."""

        def apply(v: Tensor) -> Tensor:
            back: Tensor = (fires * (v @ self._weight.T)) @ self._weight
            return back

        left = (rows * fires) @ self._weight - apply(v)
        step = better = left @ self._inverse
        size = (left * better).sum(1, keepdim=True)
        for _ in range(LIMITS.row_fit_steps):
            moved = apply(step)
            length = size / (step * moved).sum(1, keepdim=True).clamp(min=TINY)
            v, left = v + length * step, left - length * moved
            better = left @ self._inverse
            before, size = size, (left * better).sum(1, keepdim=True)
            step = better + size / before.clamp(min=TINY) * step
        return v

    def silent(self, rows: Tensor, sent: Tensor) -> Tensor:
        """Neurons that would be sent something, but have next to nothing."""
        usual = rows.square().mean(1, keepdim=True).sqrt()
        return (rows.abs() < 0.3 * sent.abs()) & (sent.abs() > 0.1 * usual)

    def gram(self, basis: Tensor, weight: Tensor, fires: Tensor) -> Tensor:
        """What is left of vectors where they should be zero, or sent back."""
        every = (basis.T * weight[:, None, :]) @ basis
        on = weight * fires
        factor = self._factor(on)
        shared = (self._weight.T * on[:, None, :]) @ basis
        shared = torch.linalg.solve_triangular(factor, shared, upper=False)
        gram: Tensor = every - shared.mT @ shared
        return gram

    def gap(self, rows: Tensor, weight: Tensor, fires: Tensor) -> tuple[Tensor, Tensor]:
        """From zero or from what is sent back, whatever is nearer."""
        on = weight * fires
        v = torch.cholesky_solve(((rows * on) @ self._weight)[:, :, None], self._factor(on))
        sent = torch.nan_to_num(v[:, :, 0]) @ self._weight.T
        off = torch.where(fires, rows - sent, rows).abs()
        return off, (rows - sent).abs() < rows.abs()

    def _factor(self, on: Tensor) -> Tensor:
        """Cholesky factors of the next layer's Gram matrices over weighted neurons."""
        gram = (self._weight.T * on[:, None, :]) @ self._weight
        size = gram.diagonal(dim1=1, dim2=2).mean(1).clamp(min=TINY)
        one = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
        factor: Tensor = torch.linalg.cholesky_ex(gram + 1e-6 * size[:, None, None] * one).L
        return factor

    def polish(self, guess: Guess, *, loose: bool = False) -> list[tuple[Tensor, Tensor]]:
        """By where they fire and what is sent back there, or by silence where that says more."""
        found = []
        for fires in guess.fires:
            row, error = polish_by_next_layer(self._space, self._exact, fires, loose=loose)
            if bool(error.isfinite()):
                by_silence = polish_by_silence(self._space, row == 0)
                row, error = min((row, error), by_silence, key=lambda one: float(one[1]))
            found.append((row, error))
        return found


class NearNextLayer(ByNextLayer):
    """Rows that are zero or nearly what the next layer sends back, which changed meanwhile.

    After several local steps a row is a sum of what several next layers sent back, each of them
    nearly the first one and a share of its change. That leads near the row, and silence says which
    it is.
    """

    most_error = LIMITS.row_error
    gap_there = LIMITS.row_gap_near

    def __init__(self, space: RowSpace, weight: Tensor, change: Tensor) -> None:
        """Prepare.

        Args:
            space: the column space.
            weight: (next width, neurons) of the next layer, as it was sent.
            change: (next width, neurons) what it changed by, in any unit; or no rows.
        """
        self._width = len(weight)
        first, weight = torch.linalg.qr(weight.double().T).Q, weight.double()
        other = change.double().T
        # The gradients of a softmax add up to nothing: there are fewer directions than rows.
        other, size, _ = torch.linalg.svd(other - first @ (first.T @ other), full_matrices=False)
        most = int(LIMITS.row_widest_next * len(space.unit)) - len(weight)
        other = other[:, size > LIMITS.row_least_change * size.sum()][:, :most].T
        usual = weight.norm(dim=1).mean()
        super().__init__(space, torch.cat([weight, usual * other]))

    def start(self, basis: Tensor, fires: Tensor, directions: Tensor) -> tuple[Tensor, State]:
        """For each guess the direction that puts most of the row into the space."""
        none = self._weight.shape[1] - self._width
        return super().start(basis, fires, torch.nn.functional.pad(directions, (0, none)))

    def polish(self, guess: Guess, *, loose: bool = False) -> list[tuple[Tensor, Tensor]]:
        """By where they are zero."""
        del loose
        return [polish_by_silence(self._space, silent) for silent in guess.silent]


class BySilence:
    """Rows that are zero wherever a sample is silent, and anything elsewhere.

    The state of a guess is the number of neurons that it fires.
    """

    damping = 0.6
    gap_there = LIMITS.row_gap
    most_error = LIMITS.row_error

    def __init__(self, space: RowSpace) -> None:
        self._space = space

    def start(self, basis: Tensor, fires: Tensor, _directions: Tensor) -> tuple[Tensor, State]:
        """Vectors of the space that are small where the samples are guessed to be silent."""
        rows = gaussian(len(fires), basis.shape[1], like=basis) @ basis.T
        for _ in range(LIMITS.row_start_steps):
            rows = ((rows * fires) @ basis) @ basis.T
            rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=TINY)
        return rows, (fires.sum(1, keepdim=True).clamp(1, fires.shape[1] - 1),)

    def nearest(self, rows: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """As many of the largest entries as neurons fire; the others are zero."""
        sizes = rows.abs()
        # NumPy sorts short rows several times faster.
        ordered = torch.from_numpy(np.sort(sizes.numpy(force=True), axis=1)).to(sizes.device)
        least = ordered.gather(1, sizes.shape[1] - 1 - state[0])
        return rows * (sizes > least), rows, state

    def silent(self, rows: Tensor, _sent: Tensor) -> Tensor:
        """Neurons that have next to nothing."""
        return rows.abs() < 0.1 * rows.square().mean(1, keepdim=True).sqrt()

    def gram(self, basis: Tensor, weight: Tensor, fires: Tensor) -> Tensor:
        """What is left of vectors where they should be zero."""
        return (basis.T * (weight * ~fires)[:, None, :]) @ basis

    def gap(self, rows: Tensor, _weight: Tensor, fires: Tensor) -> tuple[Tensor, Tensor]:
        """From zero; nothing is asked where samples fire."""
        return torch.where(fires, 0.0, rows.abs()), fires

    def polish(self, guess: Guess, *, loose: bool = False) -> list[tuple[Tensor, Tensor]]:
        """By where they are zero: nothing is fitted there that could cost digits."""
        del loose
        return [polish_by_silence(self._space, silent) for silent in guess.silent]
