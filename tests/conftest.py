"""What every test relies on: repeatable draws, one thread, the real data when present.

With `-n auto` the tests run on all cores, in processes of one thread each.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.scheduler import Scheduling

settings.register_profile("gradpeel", deadline=None, derandomize=True)
settings.load_profile("gradpeel")
torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at `-m "not slow"`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: a slow one is no use while a fast one fails. A browser is slow."""
    for item in items:
        needs = getattr(item, "fixturenames", ())
        if "browser" in needs:
            item.add_marker("slow")
        if "data_dir" in needs:
            item.add_marker("real_data")
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


def pytest_runtest_setup() -> None:
    """Every test draws the same numbers in every run, whatever ran before it."""
    torch.manual_seed(0)


def pytest_collection_finish() -> None:
    """Collect garbage among what tests make, not among torch's modules and thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Every process takes the next test when it is free.

    Tests of engines are handed out together: each of them starts processes for all cores.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "engines" if "test_engines" in nodeid else nodeid

    return Scheduler(config, log)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets: $GRADPEEL_DATA, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GRADPEEL_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; set GRADPEEL_DATA")
    return folder
