"""The paper's table, as it was published."""

from __future__ import annotations

import pytest

from gradpeel.datasets.standard import STANDARD
from gradpeel.designs import PAPER_METHODS
from gradpeel.paper import published_rates

SIZES = [64, 128, 256, 300, 350, 400, 512, 600, 700, 800, 900, 1024]


def test_there_is_a_rate_for_every_cell() -> None:
    rates = published_rates()
    assert len(rates) == 672
    assert set(rates) == {
        (title, method, size)
        for title in (one.title for one in STANDARD.values())
        for method in PAPER_METHODS
        for size in SIZES
    }
    assert all(0 <= rate <= 1 for rate in rates.values())


@pytest.mark.parametrize(
    ("title", "method", "row"),
    [
        ("CIFAR-10", "SD-Ind", "1 1 .999 .997 .987 .866 .755 .69 .628 .58 .517 .469"),
        ("CIFAR-10", "Passive", ".994 .666 .215 .183 .13 .098 .07 .055 .04 .038 .033 .027"),
        ("EMNIST", "SF-Mir", "1 1 1 1 1 .983 .518 .317 .251 .222 .187 .148"),
        ("ImageNet", "TW-Mir", ".612 .617 .616 .613 .614 .604 .593 .498 .341 .016 .004 .001"),
        ("SVHN", "SD-Mir", "1 1 .798 .686 .607 .574 .486 .425 .378 .34 .313 .298"),
    ],
)
def test_rows_read_off_the_paper(title: str, method: str, row: str) -> None:
    rates = published_rates()
    assert [rates[title, method, size] for size in SIZES] == [float(rate) for rate in row.split()]


@pytest.mark.parametrize(
    ("title", "total"),
    [
        ("CIFAR-10", 38.001),
        ("CIFAR-100", 37.931),
        ("EMNIST", 34.482),
        ("Fashion-MNIST", 37.595),
        ("HARUS", 30.58),
        ("ImageNet", 48.251),
        ("MNIST", 33.821),
        ("SVHN", 26.402),
    ],
)
def test_sums_over_a_data_set(title: str, total: float) -> None:
    rates = published_rates()
    assert sum(rates[key] for key in rates if key[0] == title) == pytest.approx(total)
