"""Rows of sweeps for the tests, made without running anything."""

from __future__ import annotations

from dataclasses import fields, replace

from gradpeel.sweeps import Cell, Finished, Measurement

CELL = Cell(dataset="mnist", design="passive", batch_size=100)
NOTHING = Measurement(
    **{item.name: 0.0 if item.type == "float" else 0 for item in fields(Measurement)}  # type: ignore[arg-type]
)


def measured(
    cell: Cell, seed: int = 0, *, recovered: int = 0, reachable: int | None = None, **found: int
) -> Finished:
    """A cell that recovered so many samples, all that could be reached where nothing is said."""
    could = recovered if reachable is None else reachable
    measurement = replace(NOTHING, recovered=recovered, reachable=could, **found)
    return Finished(replace(cell, seed=seed), measurement, None, 0.25)


def failed(cell: Cell, seed: int = 0) -> Finished:
    """A cell that failed."""
    return Finished(replace(cell, seed=seed), None, "ValueError: too bad", 0.5)
