"""Run a plan: only what is missing, recording each cell as it ends.

Example:
    >>> import tempfile
    >>> plan = Plan(datasets=["digits"], designs=["passive"], batch_sizes=[8, 16], neurons=[100])
    >>> with tempfile.TemporaryDirectory() as out:  # doctest: +SKIP
    ...     [row.measurement.recovered for row in sweep(plan, out, engine=LocalEngine(2)).rows]
    [8, 16]
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradpeel._version import __version__
from gradpeel.datasets.standard import STANDARD
from gradpeel.errors import GradpeelError
from gradpeel.files import make_directory, write_files
from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.data import DataSource, fingerprint
from gradpeel.sweeps.engines import Engine
from gradpeel.sweeps.export import timings_csv, to_csv, to_parquet
from gradpeel.sweeps.local_engine import LocalEngine
from gradpeel.sweeps.manifest import manifest
from gradpeel.sweeps.plan import Plan
from gradpeel.sweeps.store import Finished, Store

__all__ = ["MANIFEST", "Progress", "Results", "sweep"]

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        finished: the cell that just ended; None at the start.
        done: cells of the plan that are in the store.
        new: of these, the ones run by this process.
        total: cells of the plan.
        current: the first cell of the plan that has not ended, so one that is running; None after
            the last.
    """

    finished: Finished | None
    done: int
    new: int
    total: int
    current: Cell | None = None


@dataclass(frozen=True)
class Results:
    """What a sweep found, in the order of its plan.

    Attributes:
        rows: the cells that were measured.
        failures: the cells that failed.
        notes: by data set, how it differs from the one the paper used.
        files: what was written.
    """

    rows: Sequence[Finished]
    failures: Sequence[Finished]
    notes: Mapping[str, str]
    files: Sequence[Path]


def sweep(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    engine: Engine | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] = "",
    retry_failed: bool = False,
    parquet: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Results:
    """Run the cells of a plan that a directory does not hold yet.

    Stopped at any moment, by Ctrl-C or by force, and started again, it ends with the same rows as
    if it had not been.

    Args:
        plan: what to run.
        out: directory of the results; it may hold those of an earlier run, and of other plans.
        engine: where to run it; by default on this machine, one process a core.
        data_dir: directory of the named data sets.
        base: what paths of data files in the plan are relative to.
        retry_failed: run the cells again that failed before.
        parquet: also write `results.parquet`.
        on_progress: called at the start and after each cell.

    Returns:
        All cells of the plan. `results.csv` holds the same, equal to the byte for the same plan;
        `timings.csv` holds the seconds, `manifest.json` how they came about.

    Raises:
        InputError: the plan does not fit the data, or the directory cannot be used; nothing has
            been run then.
        KeyboardInterrupt: after Ctrl-C; what was measured by then is kept and exported.
    """
    engine = engine or LocalEngine(os.cpu_count() or 1)
    if parquet:
        to_parquet([])  # reports now what is missing, not after hours of work
    folder = None if data_dir is None else Path(data_dir)
    source = DataSource(folder, plan.image_size, Path(base))
    data = _look_at(plan, source)
    source = replace(source, fingerprints=tuple((n, k["fingerprint"]) for n, k in data.items()))
    cells, out = plan.cells(), Path(out)
    make_directory(out)
    with Store(out) as store:
        store.agree(
            {"gradpeel": __version__}
            | {f"data {name}": str(known["fingerprint"]) for name, known in data.items()}
        )
        held = store.keys() - (store.failed_keys() if retry_failed else set())
        todo = [cell for cell in cells if cell.key not in held]
        done = len(cells) - len(todo)
        left = dict.fromkeys(todo)
        on_progress(Progress(None, done, 0, len(cells), next(iter(left), None)))
        try:
            if todo:
                with closing(engine.run(todo, source)) as running:
                    for new, finished in enumerate(running, start=1):
                        store.record(finished)
                        left.pop(finished.cell, None)
                        current = next(iter(left), None)
                        on_progress(Progress(finished, done + new, new, len(cells), current))
        finally:
            found = _in_order(cells, store)
            files = _write(out, plan, engine, data, found, parquet=parquet)
    return Results(
        rows=[one for one in found if one.error is None],
        failures=[one for one in found if one.error is not None],
        notes={name: str(known["note"]) for name, known in data.items() if known["note"]},
        files=files,
    )


def _look_at(plan: Plan, source: DataSource) -> dict[str, dict[str, Any]]:
    """Load each data set once: whatever is wrong with it is reported before any work starts."""
    known: dict[str, dict[str, Any]] = {}
    for name in plan.datasets:  # before the first is loaded, let alone downloaded
        try:
            source.check(name)
        except GradpeelError as error:
            raise plan.blame("datasets", name, str(error)) from None
    for name in plan.datasets:
        try:
            dataset = source.load(name)
        except GradpeelError as error:
            reason = str(error).removeprefix(f"data={name!r}: ")
            raise plan.blame("datasets", name, reason) from None
        plan.check_against(name, dataset)
        standard = STANDARD.get(name)
        known[name] = {
            "fingerprint": fingerprint(dataset),
            "training_samples": len(dataset.x_train),
            "test_samples": len(dataset.x_test),
            "sample_shape": list(dataset.sample_shape),
            "classes": dataset.classes,
            "note": None if standard is None else standard.difference(dataset),
        }
    return known


def _in_order(cells: Sequence[Cell], store: Store) -> list[Finished]:
    held = {finished.cell: finished for finished in store.finished()}
    return [held[cell] for cell in cells if cell in held]


def _write(
    out: Path,
    plan: Plan,
    engine: Engine,
    data: Mapping[str, Mapping[str, object]],
    found: Sequence[Finished],
    *,
    parquet: bool,
) -> list[Path]:
    failed = sum(one.error is not None for one in found)
    counts = {"planned": len(plan.cells()), "measured": len(found) - failed, "failed": failed}
    told = manifest(plan, engine=engine.name, data=data, cells=counts)
    contents = {
        "results.csv": to_csv(found),
        "timings.csv": timings_csv(found),
        MANIFEST: (json.dumps(told, indent=2) + "\n").encode(),
    }
    if parquet:
        contents["results.parquet"] = to_parquet(found)
    return write_files(out, contents)
