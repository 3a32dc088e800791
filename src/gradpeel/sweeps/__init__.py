"""Many audits at once: a plan, its cells, engines that run them, a store that survives.

Example:
    >>> from gradpeel.sweeps import Plan
    >>> plan = Plan(datasets=["digits"], designs=["passive"], batch_sizes=[32, 64], seeds=5)
    >>> len(plan.cells())
    10

`sweep(plan, out)` runs it; `gradpeel sweep plan.toml --out DIR` does the same for a file.
"""

from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.engines import Engine
from gradpeel.sweeps.local_engine import LocalEngine
from gradpeel.sweeps.measurement import Measurement, measure
from gradpeel.sweeps.plan import Plan
from gradpeel.sweeps.plan_file import read_plan
from gradpeel.sweeps.ray_engine import RayEngine
from gradpeel.sweeps.reading import is_sweep, read_results
from gradpeel.sweeps.running import Progress, Results, sweep
from gradpeel.sweeps.store import Finished, Store

__all__ = [
    "Cell",
    "Engine",
    "Finished",
    "LocalEngine",
    "Measurement",
    "Plan",
    "Progress",
    "RayEngine",
    "Results",
    "Store",
    "is_sweep",
    "measure",
    "read_plan",
    "read_results",
    "sweep",
]
