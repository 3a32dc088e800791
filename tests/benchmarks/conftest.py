"""A folder of data as the benchmarks take it, but small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradpeel.datasets import load


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds `mnist.npz`: scikit-learn's digits, 8 by 8."""
    folder = tmp_path_factory.mktemp("data")
    digits = load("digits")
    np.savez(
        folder / "mnist.npz",
        x_train=(digits.x_train * 255).astype(np.uint8),
        y_train=digits.y_train,
        x_test=(digits.x_test * 255).astype(np.uint8),
        y_test=digits.y_test,
    )
    return folder
