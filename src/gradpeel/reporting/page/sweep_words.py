"""What a sweep says, in words: methods and settings spelled out, and the lead of its page.

Example:
    >>> from gradpeel.sweeps import Cell
    >>> cell = Cell(dataset="mnist", design="soliton-data", weights="mirrored", batch_size=64)
    >>> dataset_name(cell), method_name(cell), setting_name(cell)
    ('MNIST', 'Soliton-Data, mirrored', '1,000 neurons')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradpeel.datasets.standard import STANDARD
from gradpeel.reporting.methods import spelled
from gradpeel.reporting.words import counted, percent, printable, short
from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.summary import Group

__all__ = [
    "data_title",
    "dataset_name",
    "grouped",
    "lead",
    "method_name",
    "setting_name",
    "whole_batches",
]


def dataset_name(cell: Cell) -> str:
    """What the data is called: by the paper where it is one of its data sets."""
    return data_title(cell.dataset)


def data_title(name: str) -> str:
    """The same, by the name on the command line.

    Example:
        >>> data_title("mnist"), data_title("mine.npz")
        ('MNIST', 'mine.npz')
    """
    return STANDARD[name].title if name in STANDARD else printable(name)


def method_name(cell: Cell) -> str:
    """The design, its weights, and whether the row cascade ran."""
    weights = "PyTorch's default" if cell.init == "torch" else cell.weights
    return spelled(cell.design, weights, rows=cell.effort > 0)


def setting_name(cell: Cell, *, without: str = "") -> str:
    """What may differ between cells of the same data, method, batch size and seed.

    Args:
        cell: whose settings.
        without: a setting to leave out, such as "noise": that on the axis of a chart.
    """
    parts = [counted(cell.neurons, "neuron")]
    if cell.clients > 1 and without != "clients":
        parts.append(f"{cell.clients:,} clients")
    if cell.tail:
        parts.append(f"hidden layers {', '.join(map(str, cell.tail))}")
    if cell.dtype != "float64":
        parts.append(cell.dtype)
    if cell.noise and without != "noise":
        parts.append(f"noise {short(cell.noise)}")
    if cell.defence != "none" and without != "defence":
        parts.append(f"defence {cell.defence}")
    parts += [_trained(name, value) for name, value in cell.training.items() if name != without]
    if cell.effort not in {0.0, 1.0}:
        parts.append(f"effort {short(cell.effort)}")
    return ", ".join(parts)


def _trained(name: str, value: float) -> str:
    """A setting of local training, in words."""
    if name in {"local_steps", "local_epochs"}:
        return counted(int(value), name.removesuffix("s").replace("_", " "))
    if name == "local_batch_size":
        return f"minibatches of {int(value):,}"
    return f"{'learning rate' if name == 'lr' else name.replace('_', ' ')} {short(value)}"


def grouped(groups: Sequence[Group], key: Callable[[Cell], str]) -> dict[str, list[Group]]:
    """Groups with the same key together, in the order in which they first come."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(key(group.cell), []).append(group)
    return found


def whole_batches(groups: Sequence[Group]) -> list[tuple[Cell, int]]:
    """For each data set, method and setting the largest batch that was always recovered whole.

    Returns:
        Cells with a batch size: in every audit of that size, and of all smaller sizes measured,
        every sample was recovered. 0 where the smallest size was not.
    """

    def line(cell: Cell) -> str:
        return "|".join((cell.dataset, method_name(cell), setting_name(cell)))

    found = []
    for members in grouped(groups, line).values():
        largest = 0
        for group in sorted(members, key=lambda group: group.cell.batch_size):
            if min(group.rates) < 1:
                break
            largest = group.cell.batch_size
        found.append((members[0].cell, largest))
    return found


def lead(groups: Sequence[Group]) -> str:
    """What a sweep found, in a sentence: first the passive server, then the strongest active."""
    if not groups:
        return "No audit was measured."
    whole = [(cell, size) for cell, size in whole_batches(groups) if size]
    if not whole:
        best = max(groups, key=lambda group: group.ours.mean)
        where = f"{method_name(best.cell)}, {_where(best.cell)}"
        return (
            "No attacker recovered a whole batch in every audit. The highest mean share is "
            f"{percent(best.ours.mean)} ({where}, batch of {best.cell.batch_size:,})."
        )
    passive = [one for one in whole if one[0].design == "passive"]
    active = [one for one in whole if one[0].design != "passive"]
    start = "recovers every sample of batches of"
    found = []
    if passive:
        cell, size = _largest(passive)
        rows = " with the row cascade" if cell.effort else ""
        found.append(f"A passive server{rows} {start} up to {size:,} ({_where(cell)})")
    if active:
        cell, size = _largest(active)
        who = "an active server does so for batches of" if passive else f"An active server {start}"
        found.append(f"{who} up to {size:,} ({_where(cell)}; {method_name(cell)})")
    return f"{'; '.join(found)}."


def _largest(whole: Sequence[tuple[Cell, int]]) -> tuple[Cell, int]:
    return max(whole, key=lambda one: one[1])


def _where(cell: Cell) -> str:
    return f"{dataset_name(cell)}, {setting_name(cell)}"
