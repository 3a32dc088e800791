"""The paper's table of recovery rates beside ours (section "Recovery Rate").

Seven methods, twelve batch sizes, N = 1000, float64, (c, delta) = (0.05, 0.4), s = 0.99. The paper
tells neither its seeds nor which samples formed its batches, so its rates are means of draws like
ours, without the spread.

Example:
    >>> plan = table1_plan(datasets=["mnist"], batch_sizes=[64, 512], seeds=3)
    >>> len(plan.cells())  # 7 methods, 2 batch sizes, 3 seeds
    42
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from gradpeel.datasets.standard import STANDARD
from gradpeel.errors import InputError
from gradpeel.paper.published import published_rates
from gradpeel.sweeps import Finished, Plan, Results
from gradpeel.sweeps.summary import Estimate, over_seeds

__all__ = ["BATCH_SIZES", "Comparison", "Line", "Table1", "Verdict", "table1_plan"]

BATCH_SIZES = (64, 128, 256, 300, 350, 400, 512, 600, 700, 800, 900, 1024)
"""The columns of the paper's table."""

ROUNDED = 0.0005
"""The paper prints three digits."""
BELOW = 0.05
"""A line whose mean is farther below the paper's wants an explanation."""
SHOWN = 5


class Verdict(StrEnum):
    """How a rate of ours compares with the published one."""

    EQUAL = "equal within the interval"
    BETTER = "better"
    WORSE = "worse"


def table1_plan(
    datasets: Sequence[str] = tuple(STANDARD),
    batch_sizes: Sequence[int] = BATCH_SIZES,
    seeds: int | Sequence[int] = 5,
    *,
    shuffle: bool = False,
    image_size: int | None = None,
    rows: bool = False,
    tuned: bool = False,
) -> Plan:
    """The audits behind the table, with the paper's parameters.

    Args:
        datasets: names of benchmark data sets.
        batch_sizes: its columns; others than the paper's have no published rate.
        seeds: how many, or which.
        shuffle: let the seed draw the samples of each batch; otherwise take the first ones of each
            data set, as the paper's script does.
        image_size: side of ImageNet's pictures.
        rows: also what every method reads with the row cascade, as methods of their own.
        tuned: also the designs that go beyond the paper's, with data of the server's and without.

    Raises:
        InputError: a data set that the paper does not have, or a value that breaks a rule.
    """
    for name in datasets:
        if name not in STANDARD:
            raise InputError(f"datasets={name!r}: expected one of {', '.join(STANDARD)}")
    beyond = ["tuned", "tuned-free"] if tuned else []
    return Plan(
        datasets=datasets,
        designs=["soliton-free", "soliton-data", "trap-weights", "passive", *beyond],
        weights=["independent", "mirrored"],
        batch_sizes=batch_sizes,
        seeds=seeds,
        shuffle=shuffle,
        image_size=image_size,
        efforts=[0.0, 1.0] if rows else [0.0],
    )


@dataclass(frozen=True)
class Comparison:
    """One cell of the table.

    Attributes:
        dataset: the data set's name.
        method: the table's word for the method, such as "SD-Ind".
        batch_size: the batch size B.
        ours: share of the batch recovered, over seeds.
        bound: share that peeling the activation grid reaches, over the same seeds.
        published: the paper's rate; None where it has none.
    """

    dataset: str
    method: str
    batch_size: int
    ours: Estimate
    bound: Estimate
    published: float | None

    @property
    def gap(self) -> float | None:
        """Ours less the paper's."""
        return None if self.published is None else self.ours.mean - self.published

    @property
    def verdict(self) -> Verdict | None:
        """Is the published rate within our interval, to its three digits? One seed has none."""
        if self.published is None or self.gap is None or self.ours.count < 2:
            return None
        if self.ours.low - ROUNDED <= self.published <= self.ours.high + ROUNDED:
            return Verdict.EQUAL
        return Verdict.BETTER if self.gap > 0 else Verdict.WORSE

    def __str__(self) -> str:
        paper = "-" if self.published is None else f"{self.published:.3f}"
        where = f"{STANDARD[self.dataset].title} {self.method} B={self.batch_size}"
        return f"{where}: ours {self.ours}, paper {paper}, bound {self.bound.mean:.3f}"


@dataclass(frozen=True)
class Line:
    """One line of the table: a data set and a method, by batch size."""

    dataset: str
    method: str
    cells: tuple[Comparison, ...]

    @property
    def title(self) -> str:
        """What the paper calls the data set."""
        return STANDARD[self.dataset].title

    @property
    def gap(self) -> float | None:
        """Mean over batch sizes of ours less the paper's."""
        gaps = [cell.gap for cell in self.cells if cell.gap is not None]
        return fmean(gaps) if gaps else None


@dataclass(frozen=True)
class Table1:
    """Our table beside the paper's.

    Attributes:
        lines: its lines, in the paper's order of methods.
        notes: by data set, how it differs from the one the paper used.
        audits: what it is made of.
        failures: audits that failed; their cells are means over fewer seeds, or missing.
    """

    lines: tuple[Line, ...]
    notes: Mapping[str, str]
    audits: tuple[Finished, ...]
    failures: tuple[Finished, ...]

    @classmethod
    def of(cls, results: Results) -> Table1:
        """Compare what a sweep of `table1_plan` found.

        Raises:
            InputError: a data set that the paper does not have.
        """
        published = published_rates()
        for name in {row.cell.dataset for row in results.rows} - set(STANDARD):
            raise InputError(f"dataset={name!r}: expected one of {', '.join(STANDARD)}")
        lines: dict[tuple[str, str], list[Comparison]] = {}
        for group in over_seeds(results.rows):
            cell = group.cell
            key = (STANDARD[cell.dataset].title, cell.method, cell.batch_size)
            lines.setdefault((cell.dataset, cell.method), []).append(
                Comparison(
                    cell.dataset,
                    cell.method,
                    cell.batch_size,
                    group.ours,
                    group.bound,
                    published.get(key),
                )
            )
        return cls(
            tuple(Line(*key, tuple(cells)) for key, cells in lines.items()),
            dict(results.notes),
            tuple(results.rows),
            tuple(results.failures),
        )

    @property
    def cells(self) -> list[Comparison]:
        """All cells, line by line."""
        return [cell for line in self.lines for cell in line.cells]

    @property
    def batch_sizes(self) -> list[int]:
        """Its columns."""
        return sorted({cell.batch_size for cell in self.cells})

    @property
    def marks(self) -> dict[str, str]:
        """By data set, the mark of its footnote: a letter."""
        return {name: chr(ord("a") + at) for at, name in enumerate(self.notes)}

    def by_dataset(self) -> Iterator[tuple[str, list[Line]]]:
        """Titles of the data sets, with the marks of their footnotes, and their lines."""
        for dataset in dict.fromkeys(line.dataset for line in self.lines):
            lines = [line for line in self.lines if line.dataset == dataset]
            mark = self.marks.get(dataset)
            yield lines[0].title + (f" [{mark}]" if mark else ""), lines

    def footnotes(self) -> list[str]:
        """What is behind the marks."""
        return [
            f"[{mark}] {STANDARD[name].title} here: {self.notes[name]}"
            for name, mark in self.marks.items()
        ]

    def totals(self) -> dict[str, int]:
        """Certificates, what must not happen with them, and the peeling bound, over all audits."""
        found = [row.measurement for row in self.audits if row.measurement is not None]
        return {
            "samples certified": sum(one.recovered for one in found),
            "false certificates": sum(one.false_certificates for one in found),
            "certificates neither right nor false": sum(one.rough for one in found),
            "repeats": sum(one.repeats for one in found),
            "wrong labels": sum(one.wrong_labels for one in found),
            "audits that recover just what the peeling bound reaches": sum(
                one.recovered == one.reachable and not one.beyond_bound for one in found
            ),
            "audits that go beyond it, past a sample without gradient": sum(
                one.beyond_bound > 0 for one in found
            ),
        }

    def findings(self) -> list[str]:
        """What the cells say together, a line each."""
        compared = [cell for cell in self.cells if cell.gap is not None]
        found = [f"audits: {len(self.audits)}, cells: {len(self.cells)}"]
        if self.failures:
            found.append(f"failed audits: {len(self.failures)}")
            found += [f"  {failure}" for failure in self.failures[:SHOWN]]
        found += [f"{name}: {count}" for name, count in self.totals().items()]
        short = [cell for cell in self.cells if cell.ours.mean < cell.bound.mean - 0.01]
        found.append(f"more than 0.01 below the peeling bound: {len(short)} cells")
        found += [f"  {cell}" for cell in short]
        if not compared:
            return found
        judged = [cell for cell in compared if cell.verdict is not None]
        found += [
            f"{verdict.value}: {sum(cell.verdict is verdict for cell in judged)} cells"
            for verdict in (Verdict if judged else ())
        ]
        found.append(f"mean of ours - paper: {fmean(_gap(cell) for cell in compared):+.4f}")
        behind = [line for line in self.lines if line.gap is not None and line.gap < -BELOW]
        found.append(f"lines whose mean is more than {BELOW} below the paper's: {len(behind)}")
        found += [f"  {line.title} {line.method}: {line.gap:+.3f}" for line in behind]
        ranked = sorted(compared, key=_gap)
        found.append("largest gaps below the paper's:")
        found += [f"  {cell}" for cell in ranked[:SHOWN] if _gap(cell) < 0]
        found.append("largest gaps above:")
        found += [f"  {cell}" for cell in reversed(ranked[-SHOWN:]) if _gap(cell) > 0]
        return found


def _gap(cell: Comparison) -> float:
    return cell.gap or 0.0
