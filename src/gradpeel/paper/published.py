"""What the paper published: the recovery rates of its table, cell by cell.

Example:
    >>> published_rates()["CIFAR-10", "SD-Ind", 512]
    0.755
"""

from __future__ import annotations

import csv
from importlib import resources

__all__ = ["published_rates"]


def published_rates() -> dict[tuple[str, str, int], float]:
    """Recovery rate by data set, method and batch size, as the paper's table names them."""
    file = resources.files("gradpeel.paper") / "table1_recovery.csv"
    with file.open(encoding="utf-8") as lines:
        return {
            (row["dataset"], row["method"], int(row["batch_size"])): float(row["recovery_rate"])
            for row in csv.DictReader(lines)
        }
