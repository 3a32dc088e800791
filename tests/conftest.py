"""What every test relies on: repeatable Hypothesis runs, one thread, the real data when present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("gradpeel", deadline=None, derandomize=True)
settings.load_profile("gradpeel")
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: a slow one is no use while a fast one fails."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets: $GRADPEEL_DATA, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GRADPEEL_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; set GRADPEEL_DATA")
    return folder
