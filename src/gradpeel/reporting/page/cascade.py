"""The activation grid for the page, in the order of the board, and its state after each round."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.reporting.matching import evenly, found_at, rounds_of
from gradpeel.reporting.page.payload import Cascade, Step
from gradpeel.reporting.tally import Way, ways

__all__ = ["cascade_of", "packed", "unpacked"]

MOST_BYTES = 1_500_000
"""Of a grid beyond this the page holds evenly spaced rows; the counts are always those of all."""


def cascade_of(audit: Audit) -> Cascade:
    """The grid of an audit, most active neurons first and most atypical samples last.

    Degrees take the copies of a sample for one, as peeling does.
    """
    exposure = audit.exposure
    grid, rounds = exposure.grid.numpy(), rounds_of(audit)
    # Both sorts are stable, so that equal rows and columns keep their places.
    neurons = np.argsort(-exposure.degrees.numpy(), kind="stable")
    samples = np.argsort(exposure.atypicality.numpy(), kind="stable")
    most = max(1, MOST_BYTES // (-(-grid.shape[1] // 8)))
    neurons = neurons[evenly(0, len(neurons) - 1, most)]
    is_copy = exposure.copies.numpy() != np.arange(grid.shape[1])
    row_of = {neuron: row for row, neuron in enumerate(neurons.tolist())}
    read_from = [
        source if isolating else -1
        for source, isolating in zip(
            audit.recovery.sources.tolist(), audit.recovery.isolating, strict=True
        )
    ]
    places = found_at(audit)[samples].tolist()
    return Cascade(
        neurons=tuple(neurons.tolist()),
        samples=tuple(samples.tolist()),
        bits=packed(grid[neurons][:, samples]),
        rounds=tuple(rounds[samples].tolist()),
        copies=tuple(is_copy[samples].tolist()),
        sources=tuple(row_of.get(read_from[place], -1) if place >= 0 else -1 for place in places),
        steps=tuple(_steps(audit, grid, rounds, is_copy)),
    )


def _steps(
    audit: Audit, grid: NDArray[np.bool_], rounds: NDArray[np.int64], is_copy: NDArray[np.bool_]
) -> list[Step]:
    trace = {round_.number: round_ for round_ in audit.recovery.trace if round_.certified}
    by_rows = np.array([way is Way.ROWS for way in ways(audit)])
    steps = []
    for number in range(int(rounds.max()) + 1):
        left = (rounds == 0) | (rounds > number)
        degrees = grid[:, left & ~is_copy].sum(axis=1)
        fired = degrees[degrees > 0]
        recovered = (rounds == number) & (rounds > 0)
        steps.append(
            Step(
                recovered=int(recovered.sum()),
                by_rows=int((recovered & by_rows).sum()),
                left=int(left.sum()),
                singletons=int((degrees == 1).sum()),
                silent=int((degrees == 0).sum()),
                degree=float(fired.mean()) if fired.size else 0.0,
                tested=trace[number].distinct if number in trace else 0,
                residual=float(trace[number].left) if number in trace else 1.0,
            )
        )
    return steps


def packed(grid: NDArray[np.bool_]) -> str:
    """A grid as base64, one bit per cell; every row begins a new byte.

    Example:
        >>> packed(np.array([[True, False, True], [False, False, True]]))
        'oCA='
    """
    return base64.b64encode(np.packbits(grid, axis=1).tobytes()).decode("ascii")


def unpacked(bits: str, rows: int, columns: int) -> NDArray[np.bool_]:
    """The grid that was packed.

    Raises:
        ValueError: the bits are not base64, or not as many as the shape asks for.

    Example:
        >>> unpacked('oCA=', 2, 3).tolist()
        [[True, False, True], [False, False, True]]
    """
    width = -(-columns // 8)
    held = np.frombuffer(base64.b64decode(bits, validate=True), dtype=np.uint8)
    if len(held) != rows * width:
        raise ValueError(f"{len(held)} bytes: expected {rows * width}")
    return np.unpackbits(held.reshape(rows, width), axis=1, count=columns).astype(np.bool_)
