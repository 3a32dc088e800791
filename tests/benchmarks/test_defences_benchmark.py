"""The benchmark of defences: what its table says of trainings."""

from __future__ import annotations

from benchmarks.defences import Accuracy, tabulate


def test_accuracy_is_compared_with_trainings_of_the_same_seeds() -> None:
    reached = [
        Accuracy("harus", "none", 0, 0.80),
        Accuracy("harus", "none", 1, 0.90),
        Accuracy("harus", "none", 2, 0.10),
        Accuracy("harus", "guard", 0, 0.79),
        Accuracy("harus", "guard", 1, 0.92),
    ]
    lines = {line[0]: line[-2] for line in tabulate([], reached)}
    assert lines["none"] == "60.0"
    assert lines["guard"] == "85.5 (+0.5 ± 1.5)"
    assert lines["sign"] == "-"
