"""Who sets the cascade off (paper, section "Which Samples Are Most at Risk")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets import Dataset, draw_batch
from gradpeel.designs import Passive
from gradpeel.exposure import Exposure
from gradpeel.paper.figures.frame import LETTERS, PAGE, Drawn, framed
from gradpeel.paper.figures.runs import check_pictures, exposed, title_and_size, with_notes
from gradpeel.reporting.matching import evenly
from gradpeel.reporting.samples import draw_picture
from gradpeel.reporting.style import BLUE, VERMILLION, place_axes
from gradpeel.reporting.words import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["seeds"]

SPARSE = 4
"""A neuron with fewer samples than this, but at least one, is sparse."""
COLUMNS = 12
LEFT, GAP = 0.06, 0.06
SIDE = (PAGE - 2 * LEFT - GAP * (COLUMNS - 1)) / COLUMNS
ABOVE, BELOW = 0.2, 0.32
"""Inches: margins, side of a picture, for a group's title, for the lines below a picture."""


@dataclass(frozen=True)
class _Group:
    """Samples of one kind; `means` are those of all samples of the batch."""

    title: str
    colour: str
    members: NDArray[np.int64]
    means: NDArray[np.float64]

    @property
    def shown(self) -> list[int]:
        """Evenly spaced members, in the order of the batch."""
        places = evenly(0, len(self.members) - 1, COLUMNS)
        return [int(member) for member in self.members[places]]

    @property
    def mean(self) -> float | None:
        return float(self.means[self.members].mean()) if len(self.members) else None

    def numbers(self) -> dict[str, object]:
        return {
            "samples": len(self.members),
            "mean_m": self.mean,
            "shown": self.shown,
            "shown_m": self.means[self.shown].tolist(),
        }


def seeds(
    dataset: Dataset,
    *,
    batch_size: int = 512,
    neurons: int = 1024,
    seed: int = 0,
    notes: Mapping[str, str] | None = None,
) -> Drawn:
    """Draw samples that fire sparse neurons above typical ones.

    *Seeds* fire a neuron that at most three samples of the batch fire. *Typical* samples fire none
    such, and the cascade reaches them in the later half of its rounds or never. Both are evenly
    spaced over the batch.

    Args:
        dataset: pictures; the paper shows ImageNet.
        batch_size: samples in the batch.
        neurons: width of the hidden layer.
        seed: seeds the network.
        notes: how data differs from the paper's, by its name; ends the caption.

    Raises:
        InputError: the samples are not pictures, or too few.
    """
    check_pictures(dataset)
    found = exposed(dataset, Passive("gaussian"), batch_size=batch_size, neurons=neurons, seed=seed)
    x = draw_batch(dataset, batch_size).x
    groups = _groups(found, x.flatten(1).mean(1).numpy())
    caption = with_notes(
        f"{title_and_size(dataset)}, N = {neurons}, B = {batch_size}, random initialisation; the "
        f"cascade reaches {counted(int(found.reached.sum()), 'sample')}. {_told(*groups)} Shown: "
        f"at most {COLUMNS} of each group, evenly spaced; m: mean pixel value of the picture.",
        notes,
        dataset.name,
    )
    block = ABOVE + SIDE + BELOW
    figure, top = framed(PAGE, 2 * block, "Who sets the cascade off, and who does not", caption)
    bounds = dataset.data_range or (float(x.min()), float(x.max()))
    for row, group in enumerate(groups):
        _title(figure, group, top + row * block, batch_size)
        for column, sample in enumerate(group.shown):
            left = LEFT + column * (SIDE + GAP)
            axes = place_axes(figure, left, top + row * block + ABOVE, SIDE, SIDE)
            draw_picture(axes, x[sample].numpy(), bounds)
            number = int(found.rounds[sample])
            fate = f"round {number}" if number else "never"
            axes.set_xlabel(f"m = {group.means[sample]:.2f}\n{fate}", size=6.5, labelpad=2)
    of_seeds, of_typical = groups
    numbers: dict[str, object] = {
        "batch_size": batch_size,
        "neurons": neurons,
        "sparse_neurons": int(_sparse(found).sum()),
        "reached": int(found.reached.sum()),
        "rounds": found.rounds_count,
        "seeds": of_seeds.numbers(),
        "typical": of_typical.numbers(),
    }
    return Drawn(figure, caption, numbers)


def _groups(found: Exposure, means: NDArray[np.float64]) -> tuple[_Group, _Group]:
    fires = found.grid.numpy()[_sparse(found)].any(axis=0)
    rounds = found.rounds.numpy()
    typical = ~fires & ((rounds == 0) | (rounds > found.rounds_count / 2))
    return (
        _Group(f"Fire a neuron of degree < {SPARSE}", VERMILLION, np.flatnonzero(fires), means),
        _Group("Typical, reached late or never", BLUE, np.flatnonzero(typical), means),
    )


def _told(of_seeds: _Group, of_typical: _Group) -> str:
    """The mean of m over each group, as far as there is one, and over the batch."""
    told = [
        f"{group.mean:.3f} over the {len(group.members)} {who}"
        for group, who in (
            (of_seeds, f"that fire a sparse neuron (degree < {SPARSE})"),
            (of_typical, "typical ones"),
        )
        if group.mean is not None
    ]
    return f"Mean of m: {', '.join([*told, f'{of_seeds.means.mean():.3f} over the batch'])}."


def _sparse(found: Exposure) -> NDArray[np.bool_]:
    degrees = found.degrees.numpy()
    return np.asarray((degrees > 0) & (degrees < SPARSE))


def _title(figure: Figure, group: _Group, top: float, batch_size: int) -> None:
    mean = "" if group.mean is None else f", mean m = {group.mean:.3f}"
    figure.text(
        LEFT / PAGE,
        1 - (top + 0.04) / figure.get_figheight(),
        f"{group.title}: {len(group.members)} of {counted(batch_size, 'sample')}{mean}",
        size=LETTERS + 1,
        weight="bold",
        color=group.colour,
        va="top",
    )
