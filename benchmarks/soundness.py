"""How often a certificate is wrong: updates in which nothing is to be found, decoded.

    python -m benchmarks.soundness --data-dir DIR --candidates 1000000 --out soundness.csv

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. Every kind of null in
`benchmarks.nulls` is decoded in every dtype, with and without tail and next layer, until each dtype
has had as many candidates as asked for. What comes back farther than 0.05 from every sample of the
batch is false; what comes back nearer is a real sample, up to a trace, and counted apart. Rows are
appended as they come, so an interrupted run resumes where it stopped. The exit code is 1 if
anything was false.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from scipy.stats import binomtest

import gradpeel as gp
from benchmarks.cells import markdown_table, run
from benchmarks.command import arguments
from benchmarks.nulls import KINDS, Null, draw
from gradpeel.exposure import exposure
from gradpeel.scoring import score

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
KNOWN = {
    "tail and next layer": (True, True),
    "tail": (True, False),
    "next layer": (False, True),
    "neither": (False, False),
}
"""What the decoder may use: loss and tail, and the next layer's gradient."""

UPDATES = 5
"""Updates a cell."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Cell:
    """Some updates of one kind, decoded with one kind of knowledge."""

    dtype: str
    kind: str
    known: str
    seed: int

    def __str__(self) -> str:
        return f"{self.dtype}, {self.kind}, known: {self.known}, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """What came of them.

    A *candidate* is a neuron with a gradient. The prefilter rejects most, such as those that do
    not fire at their own neuron; `verdicts` counts how often the certificate judged one of the
    others, once at every stage of a cascade. `false` and `near` are accepted.
    """

    updates: int
    candidates: int
    verdicts: int
    false: int
    near: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.cell}: {self.false} false, {self.near} near of {self.candidates} candidates"

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        return Cell(self.dtype, self.kind, self.known, self.seed)


def measure(cell: Cell, data_dir: Path, neurons: int) -> Row:
    """Decode the updates of one cell; they are the same for all kinds of knowledge."""
    rng = np.random.default_rng([cell.seed, list(KINDS).index(cell.kind)])
    nulls: list[Null] = []
    while len(nulls) < UPDATES:
        null = KINDS[cell.kind](draw(data_dir, neurons, DTYPES[cell.dtype], rng), rng)
        nulls += [] if null is None else [null]
    started = time.perf_counter()
    found = [decode(null, cell.known) for null in nulls]
    return Row(
        dtype=cell.dtype,
        kind=cell.kind,
        known=cell.known,
        seed=cell.seed,
        updates=len(nulls),
        candidates=sum(null.candidates for null in nulls),
        verdicts=sum(verdicts for verdicts, _, _ in found),
        false=sum(false for _, false, _ in found),
        near=sum(near for _, _, near in found),
        seconds=time.perf_counter() - started,
    )


def decode(null: Null, known: str) -> tuple[int, int, int]:
    """Peel a null: the number of verdicts, of false certificates and of those near a sample."""
    knows_tail, use_next_layer = KNOWN[known]
    peeling = gp.Peeling(
        null.model,
        null.update,
        knows_tail=knows_tail,
        use_next_layer=use_next_layer,
        effort=0.0,
    )
    for _ in peeling:
        pass
    recovery = peeling.recovery()
    scene = null.scene
    scored = score(
        recovery,
        scene.x,
        scene.y,
        exposure=exposure(scene.model, scene.x),
        signals=torch.zeros(len(scene.x)),
        needed=1.0,
    )
    false = scored.false_certificates
    return peeling.tried, false, len(recovery) - false


def upper_bound(false: int, candidates: int) -> float:
    """Exact one-sided upper bound (Clopper and Pearson) for the rate of false certificates."""
    if not candidates:
        return 1.0
    tested = binomtest(false, candidates, alternative="less")
    return float(tested.proportion_ci(CONFIDENCE, method="exact").high)


def measure_until(
    candidates: int, data_dir: Path, out: Path, *, dtypes: list[str], neurons: int, workers: int
) -> list[Row]:
    """Take seed after seed until every dtype has had so many candidates."""
    one = partial(measure, data_dir=data_dir, neurons=neurons)
    seeds = dict.fromkeys(dtypes, 1)
    while True:
        rows = run(plan(seeds), one, out, Row, workers=workers)
        tried = {dtype: tried_of(row for row in rows if row.dtype == dtype) for dtype in dtypes}
        # The first seeds tell how many are needed.
        more = {
            dtype: math.ceil(seeds[dtype] * candidates / max(tried[dtype], 1))
            for dtype in dtypes
            if tried[dtype] < candidates
        }
        if not more:
            return rows
        seeds |= {dtype: max(count, seeds[dtype] + 1) for dtype, count in more.items()}


def tried_of(rows: Iterable[Row]) -> int:
    """Candidates tried: no more than there were verdicts, unless the dtype allows none at all."""
    some = list(rows)
    candidates, verdicts = sum(row.candidates for row in some), sum(row.verdicts for row in some)
    return min(candidates, verdicts or candidates)


def plan(seeds: dict[str, int]) -> list[Cell]:
    """All cells for so many seeds a dtype."""
    return [
        Cell(dtype, kind, known, seed)
        for seed in range(max(seeds.values()))
        for dtype, count in seeds.items()
        if seed < count
        for kind in KINDS
        for known in KNOWN
    ]


def _sums(rows: Iterable[Row]) -> list[str]:
    """Updates, candidates, verdicts, near and false ones of some rows, and the bound."""
    some = list(rows)
    candidates, false = sum(row.candidates for row in some), sum(row.false for row in some)
    return [
        str(sum(row.updates for row in some)),
        str(candidates),
        str(sum(row.verdicts for row in some)),
        str(sum(row.near for row in some)),
        str(false),
        f"{upper_bound(false, candidates):.1e}",
    ]


TITLES = ("updates", "candidates", "verdicts", "near a sample", "false", "false rate at most")


def by_dtype(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table of totals."""
    for dtype in dict.fromkeys(row.dtype for row in rows):
        yield [dtype, *_sums(row for row in rows if row.dtype == dtype)]


def by_kind(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table of kinds."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.dtype, row.kind, row.known), []).append(row)
    for names in sorted(groups, key=_order):
        yield [*names, *_sums(groups[names])]


def _order(names: tuple[str, str, str]) -> tuple[int, int, int]:
    dtype, kind, known = names
    return list(DTYPES).index(dtype), list(KINDS).index(kind), list(KNOWN).index(known)


def markdown(rows: list[Row]) -> str:
    """The tables for the documentation."""
    totals = markdown_table(("dtype", *TITLES), by_dtype(rows))
    kinds = markdown_table(("dtype", "kind", "known", *TITLES), by_kind(rows))
    return (
        "# Soundness table\n\nWritten by `python -m benchmarks.soundness --data-dir DATA "
        "--out docs/soundness.csv --markdown docs/soundness-table.md`.\n\n"
        "Nothing in these updates may be certified. A candidate is a neuron with a gradient; a "
        "verdict is the certificate's answer for one that passed the prefilter, counted at each\n"
        "stage of a cascade. In a dtype without verdicts every candidate is too inexact to be "
        "judged. The last column is the exact binomial upper bound for false certificates per\n"
        f"candidate, at {CONFIDENCE:.0%} confidence.\n\n{totals}\n{kinds}"
    )


def main() -> None:
    parser = arguments(__doc__, out="soundness.csv")
    parser.add_argument("--candidates", type=int, default=1_000_000, help="for each dtype")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--neurons", type=int, default=1000)
    given = parser.parse_args()
    rows = measure_until(
        given.candidates,
        given.data_dir,
        given.out,
        dtypes=given.dtypes.split(","),
        neurons=given.neurons,
        workers=given.workers,
    )
    text = markdown(rows)
    if given.markdown is not None:
        given.markdown.write_text(text, encoding="utf-8")
    Console().print(text, highlight=False, soft_wrap=True)
    sys.exit(1 if any(row.false for row in rows) else 0)


if __name__ == "__main__":
    main()
