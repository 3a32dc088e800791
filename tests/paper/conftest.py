from __future__ import annotations

import pytest

from gradpeel.datasets import Dataset, load


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="session")
def patients() -> Dataset:
    """Not pictures."""
    return load("breast_cancer")
