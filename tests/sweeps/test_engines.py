"""Real workers: local processes and a real Ray on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from deadly_source import DeadlySource
from gradpeel.errors import InputError
from gradpeel.sweeps import Cell, LocalEngine, Plan, RayEngine, Results, measure, sweep
from gradpeel.sweeps import engines as module
from gradpeel.sweeps.data import DataSource
from gradpeel.sweeps.engines import attempt

PLAN = Plan(
    datasets=["digits", "breast_cancer"],
    designs=["passive", "soliton-data"],
    batch_sizes=[8, 24],
    neurons=[120],
    dtypes=["float64", "float32"],
    seeds=1,
)
CELL = Cell(dataset="digits", design="passive", batch_size=8, neurons=60)


def test_an_error_becomes_part_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no\nway")

    monkeypatch.setattr(module, "measure", broken)
    finished = attempt(CELL, DataSource().load("digits"))
    assert finished.error == "ZeroDivisionError: no way"
    assert finished.measurement is None


WITHOUT_RAY = find_spec("ray") is None
needs_ray = pytest.mark.skipif(WITHOUT_RAY, reason="Ray is not installed")


@pytest.fixture(autouse=True)
def _ray_is_no_second_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers step back for every other process; beside other tests they would hardly run."""
    monkeypatch.setenv("RAY_worker_niceness", "0")


@pytest.mark.parametrize("engine", [LocalEngine, RayEngine])
def test_workers_must_be_a_positive_number(engine: type[LocalEngine | RayEngine]) -> None:
    with pytest.raises(InputError, match="workers=0: expected a positive integer"):
        engine(0)


def test_a_missing_ray_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"engine=ray: expected Ray .*gradpeel\[ray\]"):
        RayEngine()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    """The plan, run by two local workers, and where."""
    out = tmp_path_factory.mktemp("local")
    return sweep(PLAN, out, engine=LocalEngine(2)), out


@pytest.mark.slow
def test_workers_measure_what_this_process_would(local: tuple[Results, Path]) -> None:
    found = {one.cell: one.measurement for one in local[0].rows}
    assert len(found) == len(PLAN.cells()) == 16
    assert found == {
        cell: measure(cell, DataSource().load(cell.dataset))[0] for cell in PLAN.cells()
    }


@pytest.mark.slow
@needs_ray
def test_local_and_ray_give_identical_rows(local: tuple[Results, Path], tmp_path: Path) -> None:
    ray = sweep(PLAN, tmp_path, engine=RayEngine(2))
    results, out = local
    assert len(results.rows) == len(PLAN.cells()) == 16
    assert [(one.cell, one.measurement) for one in results.rows] == [
        (one.cell, one.measurement) for one in ray.rows
    ]
    assert (out / "results.csv").read_bytes() == (tmp_path / "results.csv").read_bytes()


@pytest.mark.slow
def test_a_cell_that_kills_its_worker_fails_alone(tmp_path: Path) -> None:
    names = ["digits", "deadly", "once", "digits"]
    cells = [replace(CELL, dataset=name, seed=seed) for seed, name in enumerate(names)]
    found = {one.cell: one for one in LocalEngine(2).run(cells, DeadlySource(traces=tmp_path))}
    assert sorted(found, key=cells.index) == cells
    errors = [found[cell].error for cell in cells]
    assert errors == [None, "its worker process died, 3 times when it ran alone", None, None]
    # In the pool, and three times alone.
    assert len((tmp_path / "deadly").read_text().split()) in {3, 4}
    assert len((tmp_path / "once").read_text().split()) == 1


def _kill_ray_workers() -> int:
    """Kill the processes that run this process's Ray tasks; Ray names them so."""
    killed = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            runs_tasks = (folder / "cmdline").read_bytes().startswith(b"ray::_attempt")
            if runs_tasks and _is_below_this_process(folder.name):
                os.kill(int(folder.name), signal.SIGKILL)
                killed += 1
        except OSError:  # it ended meanwhile
            continue
    return killed


def _is_below_this_process(process: str) -> bool:
    while process != "0":
        if int(process) == os.getpid():
            return True
        # The fields behind the name, which may hold anything: state, parent, ...
        process = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
    return False


@pytest.mark.slow
@needs_ray
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes in /proc")
def test_ray_runs_the_cells_of_lost_workers_again() -> None:
    cells = [replace(CELL, seed=seed, batch_size=64, neurons=1000) for seed in range(40)]
    found, killed = [], 0
    with closing(RayEngine(2).run(cells, DataSource())) as running:
        for finished in running:
            found.append(finished)
            if len(found) > 3 and not killed:
                killed = _kill_ray_workers()
    assert killed
    assert sorted(one.cell.seed for one in found) == list(range(40))
    assert [one.error for one in found] == [None] * 40


@pytest.mark.slow
@pytest.mark.parametrize("engine", [LocalEngine, pytest.param(RayEngine, marks=needs_ray)])
def test_data_that_is_gone_stops_the_sweep(engine: type[LocalEngine | RayEngine]) -> None:
    with pytest.raises(InputError, match="gone: no such data set"):
        list(engine(1).run([replace(CELL, dataset="gone")], DeadlySource()))


@pytest.mark.slow
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from gradpeel.sweeps import Plan, sweep\n"
        "print('once')\n"
        "plan = Plan(datasets=['digits'], designs=['passive'], batch_sizes=[8], neurons=[60])\n"
        "print(sweep(plan, 'out').rows[0].measurement.account)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "once"
    assert done.stdout.count("\n") == 2
    assert done.stderr == ""


@pytest.mark.slow
def test_workers_end_when_the_sweep_is_left() -> None:
    cells = [replace(CELL, seed=seed, batch_size=64, neurons=1000) for seed in range(200)]
    before = set(multiprocessing.active_children())
    with closing(LocalEngine(2).run(cells, DataSource())) as running:
        next(running)
        workers = set(multiprocessing.active_children()) - before
    assert workers
    # Ended by the pipe that they watch or by the pool, not by having run all there was to run.
    assert all(worker.exitcode for worker in workers)
