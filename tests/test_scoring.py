"""Scores by hand, and the strength of samples against a slow loop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradpeel.decoder import Recovery
from gradpeel.exposure import Exposure, copies_of, exposure
from gradpeel.losses import BinaryCrossEntropy, CrossEntropy, Loss, MeanSquaredError
from gradpeel.scoring import (
    ESTIMATE_FACTOR,
    FALSE,
    RIGHT,
    SMALLEST_DISTANCE,
    Outcome,
    Score,
    explain,
    score,
)
from gradpeel.signals import contributions, sensitivities, signals
from gradpeel.target import Target, split
from support import SmallRound, make_batch, make_model, make_round

X = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 3])
# Sample 0 falls first, then 1, then 2; sample 3 is never reached.
GRID = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0]]).bool()


@dataclass(frozen=True)
class Unproven:
    """Candidates that were read without proof."""

    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def samples(self, index: Tensor) -> Tensor:
        return self.rows[index]


@dataclass(frozen=True)
class Found:
    """What scoring reads of a recovery."""

    samples: Tensor
    labels: Tensor
    multiplicities: Tensor
    label_counts: tuple[dict[int, int], ...]
    errors: Tensor
    unproven: Unproven


def recovery_of(
    samples: Tensor,
    labels: Sequence[int],
    *,
    multiplicities: Sequence[int] | None = None,
    label_counts: Sequence[dict[int, int]] | None = None,
    errors: float = 0.0,
    unproven: Tensor | None = None,
) -> Recovery:
    """What a decoder that found these samples would return, single copies if not said otherwise."""
    single = [{label: 1} if label >= 0 else {} for label in labels]
    found = Found(
        samples,
        torch.tensor(labels, dtype=torch.long),
        torch.tensor(multiplicities or [1] * len(labels), dtype=torch.long),
        tuple(label_counts or single),
        torch.full((len(labels),), errors, dtype=torch.float64),
        Unproven(samples[:0] if unproven is None else unproven),
    )
    return cast("Recovery", found)


def judged(
    recovery: Recovery,
    *,
    x: Tensor = X,
    y: Tensor | None = Y,
    exposed: Exposure | None = None,
    strength: float = 1.0,
    needed: float = 0.1,
) -> Score:
    return score(
        recovery,
        x,
        y,
        exposure=exposed or Exposure.of(GRID),
        signals=torch.full((len(x),), strength),
        needed=needed,
    )


def scored(
    samples: Tensor, labels: list[int], *, x: Tensor = X, strength: float = 1.0, needed: float = 0.1
) -> Score:
    return judged(recovery_of(samples, labels), x=x, strength=strength, needed=needed)


def typical(x: Tensor, ranges: Tensor | float = 1.0) -> float:
    """The median root-mean-square difference of two samples, pair by pair."""
    rows = (x / ranges).flatten(1)
    pairs = itertools.combinations(rows, 2)
    between = sorted(float((one - other).square().mean().sqrt()) for one, other in pairs)
    return between[(len(between) - 1) // 2]


def test_everything_right() -> None:
    found = scored(X[[2, 0, 1]], [2, 0, 1])
    assert found.matches.tolist() == [2, 0, 1]
    assert found.recovered == 3
    assert found.recovery_rate == 0.75
    assert found.peeling_bound == 0.75
    assert found.baseline_rate == 0.25
    assert (found.false_certificates, found.inexact_certificates, found.repeats) == (0, 0, 0)
    assert found.label_accuracy == 1.0
    assert (found.unlabelled, found.wrong_multiplicities) == (0, 0)
    assert (found.max_abs_error, found.median_abs_error) == (0.0, 0.0)
    assert found.distances.tolist() == [0.0] * 3
    assert found.error_estimates_hold == 1.0
    assert found.outcomes == (Outcome.RECOVERED,) * 3 + (Outcome.UNREACHED,)


def test_false_certificates_repeats_and_wrong_labels_are_told_apart() -> None:
    mixture = X[[0, 3]].mean(0, keepdim=True)
    found = scored(torch.cat([X[[0, 1, 0, 0]], mixture, X[[2]]]), [0, 3, 0, 1, 0, 2])
    assert found.matches.tolist() == [0, 1, 0, 0, -1, 2]
    assert found.recovered == 3
    assert found.false_certificates == 1
    assert found.repeats == 2
    assert found.labels_right.tolist() == [True, False, True, False, False, True]
    assert found.label_accuracy == 3 / 5


def test_errors_are_those_of_matched_samples() -> None:
    off = torch.tensor([[1e-4, 0.0], [0.0, 3e-4], [-2e-4, 1e-4], [9.0, 9.0]])
    found = scored(X[[0, 1, 2, 3]] + off, [0, 1, 2, 3])
    assert found.false_certificates == 1
    assert found.errors.tolist() == pytest.approx([1e-4, 3e-4, 2e-4, 9.0])
    assert found.max_abs_error == pytest.approx(3e-4)
    assert found.median_abs_error == pytest.approx(2e-4)


def test_what_is_read_without_proof_is_readable() -> None:
    near, mixture = X[3:] + 0.1 * RIGHT, X[[0, 3]].mean(0, keepdim=True)
    found = judged(recovery_of(X[:1], [0], unproven=torch.cat([mixture, near, X[:1]])))
    assert found.readable.tolist() == [True, False, False, True]
    assert (found.read, found.recovered, found.false_certificates) == (2, 1, 0)


# What counts as right, inexact and false.


@pytest.mark.parametrize("span", [1.0, 255.0, 1e-3])
@pytest.mark.parametrize(
    ("off", "counts", "outcome"),
    [
        (0.99 * RIGHT, (1, 0, 0), Outcome.RECOVERED),
        (1.01 * RIGHT, (0, 1, 0), Outcome.ROUGH),
        (0.99 * FALSE, (0, 1, 0), Outcome.ROUGH),
        (1.01 * FALSE, (0, 0, 1), Outcome.MISSED),
        (math.nan, (0, 0, 1), Outcome.MISSED),
        (math.inf, (0, 0, 1), Outcome.MISSED),
    ],
)
def test_right_inexact_and_false_by_the_root_mean_square_error(
    span: float, off: float, counts: tuple[int, int, int], outcome: Outcome
) -> None:
    x = X * span
    # All of the error in one of two features.
    shift = torch.tensor([0.0, math.sqrt(2) * off * typical(x)], dtype=torch.float64)
    found = scored(x[:1] + shift, [0], x=x)
    assert (found.recovered, found.inexact_certificates, found.false_certificates) == counts
    assert found.outcomes[0] is outcome
    assert found.repeats == 0
    assert bool((found.matches >= 0).all()) == (outcome is Outcome.RECOVERED)
    if math.isfinite(off):
        assert float(found.distances) == pytest.approx(off)


def test_an_inexact_certificate_is_no_repeat_and_takes_nothing_from_a_right_one() -> None:
    found = scored(torch.cat([X[:1] + 0.03, X[:1], X[1:2] + 0.03]), [0, 0, 1])
    assert found.matches.tolist() == [-1, 0, -1]
    assert (found.inexact_certificates, found.repeats, found.recovered) == (2, 0, 1)
    assert found.outcomes[:2] == (Outcome.RECOVERED, Outcome.ROUGH)
    assert found.label_accuracy == 1.0
    assert found.max_abs_error == 0.0


def pictures(shape: tuple[int, ...]) -> Tensor:
    """Pixels in 0..1 with a black border, and one column that is nearly black."""
    x = torch.rand(8, 12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = (x * 255).round() / 255
    x[:, :, :3] = x[:, :2] = 0.0
    x[0, :, 3], x[1:, :, 3] = 1 / 255, 0.0
    return x.reshape(8, *shape)


@pytest.mark.parametrize(
    ("shape", "scale", "offset"),
    [
        ((12, 12), 1.0, 0.0),
        ((1, 12, 12), 1.0, 0.0),
        ((144,), 1.0, 0.0),
        ((144,), 255.0, 0.0),
        ((144,), 3.2, -0.42),
        ((12, 12), 3.2, -0.42),
    ],
)
def test_pixels_have_one_range_however_they_are_laid_out(
    shape: tuple[int, ...], scale: float, offset: float
) -> None:
    x = pictures(shape) * scale + offset
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exposed = Exposure.of(torch.eye(8).bool())
    y = torch.zeros(8, dtype=torch.long)
    for level, counts in (
        (0.7 * RIGHT, (8, 0, 0)),
        (3 * RIGHT, (0, 8, 0)),
        (1.5 * FALSE, (0, 0, 8)),
    ):
        off = level * typical(x) * noise
        found = judged(recovery_of(x + off, [0] * 8), x=x, y=y, exposed=exposed)
        got = (found.recovered, found.inexact_certificates, found.false_certificates)
        assert got == counts
        assert float(found.distances.mean()) == pytest.approx(level, rel=0.1)


def test_pictures_have_one_range_however_little_some_pixels_vary() -> None:
    x = pictures((12, 12)) * 255
    x[:, :, 3] *= 1e-3
    found = judged(
        recovery_of(x + 0.9 * RIGHT * typical(x), [0] * 8),
        x=x,
        y=torch.zeros(8, dtype=torch.long),
        exposed=Exposure.of(torch.eye(8).bool()),
    )
    assert found.recovered == 8


# Columns of a table: what they run to.
TABLES = {
    "one large": [1e4, 1.0],
    "mostly large": [1e4, 1e4, 1e4, 1e4, 1.0],
    "mostly small": [1e4, 1.0, 1.0, 1.0, 0.01],
    "two units": [100.0, 1.0],
    "an offset": [1.0, 1000.0, 1.0],
}


@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
def test_a_wide_column_hides_no_error_in_a_narrow_one(columns: list[float]) -> None:
    units = torch.tensor(columns, dtype=torch.float64)
    x = torch.tensor([[0.0], [1.0], [0.5]], dtype=torch.float64) * units + 3.0 * units.max()
    exposed = Exposure.of(torch.eye(3).bool())
    y = torch.zeros(3, dtype=torch.long)
    # In units of their ranges, rows are 0.5, 0.5 and 1 apart.
    assert typical(x, units) == pytest.approx(0.5)
    for column, unit in enumerate(columns):
        for off, counts in ((0.9 * RIGHT, (1, 0)), (2 * RIGHT, (0, 1)), (2 * FALSE, (0, 0))):
            sample = x[2:3].clone()
            sample[0, column] += 0.5 * off * unit * math.sqrt(len(columns))
            found = judged(recovery_of(sample, [0]), x=x, y=y, exposed=exposed)
            assert (found.recovered, found.inexact_certificates) == counts
            assert found.false_certificates == 1 - sum(counts)


def test_the_nearest_row_of_a_table_is_found_in_its_columns_own_units() -> None:
    x = torch.tensor([[0.0, 0.0], [50.0, 1.0], [1e4, 0.5], [5e3, 0.5]], dtype=torch.float64)
    found = scored(x[:1] + torch.tensor([60.0, 0.0]), [0], x=x)
    assert found.matches.tolist() == [0]


def test_a_large_offset_costs_no_digits() -> None:
    # Times in seconds since 1970, ten seconds apart: the distances of larger batches are computed
    # by a matrix product.
    count = torch.arange(40, dtype=torch.float64)[:, None]
    x = torch.cat([1.7e9 + 10 * count, (count % 2) / 1e3], 1)
    found = judged(
        recovery_of(x, [0] * 40),
        x=x,
        y=torch.zeros(40, dtype=torch.long),
        exposed=Exposure.of(torch.eye(40).bool()),
    )
    assert found.matches.tolist() == list(range(40))


def test_columns_that_hardly_vary_do_not_blow_up() -> None:
    # One constant column and one that rounding alone moves, beside columns in 0..10 and 0..1000.
    x = torch.rand(8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x * torch.tensor([1000.0, 10.0, 0.0, 1e-12]) + 5.0
    sample = x[:1].clone()
    sample[0, 2] += 0.02
    sample[0, 3] += 1e-6
    found = judged(
        recovery_of(sample, [0]),
        x=x,
        y=torch.zeros(8, dtype=torch.long),
        exposed=Exposure.of(torch.eye(8).bool()),
    )
    assert found.recovered == 1
    assert 0.001 < float(found.distances) < RIGHT


def test_a_scaled_table_has_one_range() -> None:
    # Skewed columns of [0, 1] may hardly vary in one batch; that gives them no range of their own.
    x = torch.rand(8, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, ::2] **= 20
    found = judged(
        recovery_of(x + 0.9 * RIGHT * typical(x), [0] * 8),
        x=x,
        y=torch.zeros(8, dtype=torch.long),
        exposed=Exposure.of(torch.eye(8).bool()),
    )
    assert found.recovered == 8


def test_a_trace_of_noise_on_a_black_border_is_no_column_of_a_table() -> None:
    noise = torch.randn(8, 144, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = pictures((144,)) + 1e-5 * noise
    assert float(x.max()) > 1
    found = scored_alike(x + 1e-5 * noise.flip(0), x)
    assert (found.recovered, found.false_certificates) == (8, 0)


def test_a_batch_of_equal_entries_has_a_range_too() -> None:
    for value in (0.5, 7.0):
        x = torch.full((4, 2), value, dtype=torch.float64)
        found = scored(x[:1], [0], x=x)
        # Nobody can tell the four from each other.
        assert found.recovered == 4
        assert scored(x[:1] + 0.1, [0], x=x).false_certificates == 1


# What the distance is relative to.


def similar(count: int = 24, spread: float = 0.05) -> Tensor:
    """Samples that differ little, in data that runs from 0 to 1: a row of 40 fixed features."""
    generator = torch.Generator().manual_seed(0)
    base = torch.linspace(0, 1, 40, dtype=torch.float64)
    return base + spread * torch.randn(count, 40, generator=generator, dtype=torch.float64)


def scored_alike(samples: Tensor, x: Tensor, multiplicities: list[int] | None = None) -> Score:
    y = torch.zeros(len(x), dtype=torch.long)
    return judged(
        recovery_of(samples, [-1] * len(samples), multiplicities=multiplicities),
        x=x,
        y=y,
        exposed=Exposure.of(torch.eye(len(x)).bool(), copies_of(x)),
    )


@pytest.mark.parametrize("weight", [0.5, 0.9])
def test_a_blend_of_similar_samples_is_false(weight: float) -> None:
    # It is within 0.05 of the data's range of both.
    x = similar()
    blend = weight * x[:1] + (1 - weight) * x[1:2]
    assert float((blend - x[0]).square().mean().sqrt()) < 0.05
    assert scored_alike(blend, x).false_certificates == 1


def test_features_that_hardly_vary_make_nothing_right() -> None:
    x = torch.cat([similar(), torch.full((24, 400), 0.3, dtype=torch.float64)], 1)
    blend = x[:2].mean(0, keepdim=True)
    assert scored_alike(blend, x).false_certificates == 1
    assert scored_alike(x, x).recovered == 24


def test_real_recoveries_in_float32_stay_right() -> None:
    x = similar()
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = scored_alike(x * (1 + 1e-4 * noise), x)
    assert (found.recovered, found.false_certificates, found.repeats) == (24, 0, 0)


@pytest.mark.parametrize("count", [1, 5])
def test_one_sample_or_near_duplicates_are_judged_by_half_a_step_of_8_bits(count: int) -> None:
    x = 0.8 * similar(1) + 1e-7 * torch.arange(count, dtype=torch.float64)[:, None]
    span = float(x.max() - x.min())
    for off, counts in (
        (0.9 * RIGHT, (count, 0, 0)),
        (2 * RIGHT, (0, 1, 0)),
        (1.1 * FALSE, (0, 0, 1)),
    ):
        # The other way from the near-duplicates.
        found = scored_alike(x[:1] - off * SMALLEST_DISTANCE * span, x)
        assert found.recovered == counts[0]
        assert (found.inexact_certificates, found.false_certificates) == counts[1:]
    assert pytest.approx(0.5 / 256) == FALSE * SMALLEST_DISTANCE


@pytest.mark.parametrize(("stated", "wrong"), [(1, 0), (2, 0), (3, 1)])
def test_the_mean_of_near_duplicates_may_count_as_both(stated: int, wrong: int) -> None:
    x = similar()
    x[1] = x[0] + 1e-5
    found = scored_alike(x[:2].mean(0, keepdim=True), x, multiplicities=[stated])
    assert (found.false_certificates, found.inexact_certificates) == (0, 0)
    assert found.wrong_multiplicities == wrong
    assert found.recovered == 2
    assert found.matches.tolist() in ([0], [1])


def test_near_duplicates_with_certificates_of_their_own_are_no_repeats() -> None:
    x = similar()
    x[1] = x[0] + 1e-6
    # Both are nearest to the first one.
    both = torch.stack([x[0], x[0] - 1e-6])
    found = scored_alike(both, x)
    assert sorted(found.matches.tolist()) == [0, 1]
    assert (found.repeats, found.recovered) == (0, 2)
    again = scored_alike(torch.cat([both, x[:1]]), x)
    assert (again.repeats, again.recovered) == (1, 2)


@pytest.mark.parametrize(
    ("counts", "right"),
    [({0: 1}, True), ({0: 1, 1: 1}, True), ({1: 1}, False), ({0: 2}, False), ({0: 1, 2: 1}, False)],
)
def test_labels_of_near_duplicates_may_be_counted_along(
    counts: dict[int, int], right: bool
) -> None:
    x = similar(4)
    x[1] = x[0] + 1e-6
    found = judged(
        recovery_of(x[:1], [0], multiplicities=[sum(counts.values())], label_counts=[counts]),
        x=x,
        y=torch.arange(4),
        exposed=Exposure.of(torch.eye(4).bool()),
    )
    assert found.label_accuracy == right


def test_samples_are_matched_in_their_own_shape_and_dtype() -> None:
    x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    found = scored(x[[3, 1]].double(), [3, 1], x=x)
    assert found.matches.tolist() == [3, 1]
    assert found.label_accuracy == 1.0


def test_nothing_found() -> None:
    found = scored(X[:0], [])
    assert (found.recovered, found.recovery_rate) == (0, 0.0)
    assert (found.false_certificates, found.inexact_certificates, found.repeats) == (0, 0, 0)
    assert found.label_accuracy is None
    assert found.error_estimates_hold is None
    assert found.max_abs_error is None
    assert found.median_abs_error is None
    assert found.baseline_rate == 0.25


def test_nothing_but_false_ones() -> None:
    found = scored(X[:2] + 7, [0, 1])
    assert found.false_certificates == 2
    assert found.repeats == 0
    assert found.label_accuracy is None
    assert found.error_estimates_hold is None
    assert found.max_abs_error is None
    assert found.median_abs_error is None


# Copies, labels, multiplicities, error estimates.

# The samples 0, 1, 0, 2, 0: three copies of the first, with two labels.
COPIED = X[[0, 1, 0, 2, 0]]
COPIED_Y = torch.tensor([7, 1, 7, 2, 5])
COPIED_GRID = GRID[:, [0, 1, 0, 2, 0]]


def scored_copies(recovery: Recovery) -> Score:
    exposed = Exposure.of(COPIED_GRID, copies_of(COPIED))
    return judged(recovery, x=COPIED, y=COPIED_Y, exposed=exposed)


def test_one_certificate_recovers_all_copies() -> None:
    found = scored_copies(
        recovery_of(X[[0, 2]], [7, 2], multiplicities=[3, 1], label_counts=[{7: 2, 5: 1}, {2: 1}])
    )
    assert found.matches.tolist() == [0, 3]
    assert (found.recovered, found.recovery_rate) == (4, 0.8)
    assert (found.repeats, found.wrong_multiplicities) == (0, 0)
    assert found.label_accuracy == 1.0
    assert found.peeling_bound == 1.0
    assert found.baseline_rate == 0.6
    done, missed = Outcome.RECOVERED, Outcome.MISSED
    assert found.outcomes == (done, missed, done, done, done)


def test_a_second_certificate_of_a_copied_sample_is_a_repeat() -> None:
    found = scored_copies(recovery_of(X[[0, 0, 1]], [7, 7, 1]))
    assert found.matches.tolist() == [0, 0, 1]
    assert (found.recovered, found.repeats) == (4, 1)


@pytest.mark.parametrize(
    ("stated", "wrong"),
    [([3, 1], 0), ([0, 0], 0), ([1, 1], 1), ([3, 2], 1), ([2, 2], 2), ([0, 3], 1)],
)
def test_stated_multiplicities_are_checked(stated: list[int], wrong: int) -> None:
    counts: list[dict[int, int]] = [{7: 2, 5: 1}, {1: 1}]
    found = recovery_of(X[[0, 1]], [7, 1], multiplicities=stated, label_counts=counts)
    assert scored_copies(found).wrong_multiplicities == wrong


def test_multiplicities_of_false_certificates_are_not_counted() -> None:
    found = recovery_of(X[[0, 1]] + 0.3, [7, 1], multiplicities=[9, 9])
    assert scored_copies(found).wrong_multiplicities == 0


@pytest.mark.parametrize(
    ("label", "counts", "judgement"),
    [
        (7, {7: 2, 5: 1}, True),
        (5, {7: 2, 5: 1}, True),
        (-1, {5: 1, 7: 2}, True),
        (7, {7: 3}, False),
        (7, {7: 1}, False),
        (7, {7: 1, 5: 2}, False),
        (7, {}, False),  # as if all copies had it
        (-1, {}, None),
    ],
)
def test_labels_of_copies_are_right_when_all_of_them_are(
    label: int, counts: dict[int, int], judgement: bool | None
) -> None:
    found = scored_copies(
        recovery_of(X[:1], [label], multiplicities=[3], label_counts=[counts]),
    )
    assert found.label_accuracy == judgement
    assert found.unlabelled == (judgement is None)
    assert found.labels_judged.tolist() == [judgement is not None]


@pytest.mark.parametrize(
    ("label", "counts", "judgement"),
    [(1, {1: 1}, True), (1, {}, True), (2, {}, False), (2, {2: 1}, False), (-1, {}, None)],
)
def test_the_label_of_a_single_sample(
    label: int, counts: dict[int, int], judgement: bool | None
) -> None:
    found = judged(recovery_of(X[1:2], [label], multiplicities=[0], label_counts=[counts]))
    assert found.label_accuracy == judgement
    assert found.unlabelled == (judgement is None)


def test_samples_without_a_label_lower_no_accuracy() -> None:
    found = scored(X[[0, 1, 2, 2]], [0, -1, 3, -1])
    assert found.label_accuracy == 0.5
    assert found.unlabelled == 2
    assert found.labels_right.tolist() == [True, False, False, False]
    # Nobody misses the label of a sample that is none.
    assert scored(X[[0]] + 0.3, [-1]).unlabelled == 0


@pytest.mark.parametrize("y", [None, torch.rand(4), torch.ones(4, 3)])
def test_without_true_labels_nothing_is_said_about_labels(y: Tensor | None) -> None:
    found = judged(recovery_of(X[[0, 1]], [0, -1]), y=y)
    assert found.recovered == 2
    assert found.label_accuracy is None
    assert found.unlabelled == 0
    assert not bool(found.labels_right.any() | found.labels_judged.any())


@pytest.mark.parametrize("size", [1.0, 40.0])
@pytest.mark.parametrize(
    ("true", "estimate", "holds"),
    [
        (1e-3, 1e-3, True),
        (1e-3, 1e-3 / (0.9 * ESTIMATE_FACTOR), True),
        (1e-3, 1e-3 / (1.1 * ESTIMATE_FACTOR), False),
        (1e-3, 1e-2, True),  # too careful is not wrong
        (1e-7, 0.0, True),
        (1e-5, 0.0, False),
    ],
)
def test_error_estimates_hold_up_to_a_factor(
    size: float, true: float, estimate: float, holds: bool
) -> None:
    # Entries of +-size have the typical size `size`.
    x = (2 * X - 1) * size
    off = torch.tensor([1.0, -1.0]) * true * size
    far = torch.full((1, 2), 3 * size)
    found = judged(recovery_of(torch.cat([x[:1] + off, far]), [0, 0], errors=estimate), x=x)
    # A false certificate has no true error.
    assert found.error_estimates_hold == float(holds)


# Why samples are missing.


@pytest.mark.parametrize(
    ("strength", "needed", "outcome"),
    [
        (0.2, 0.1, Outcome.MISSED),
        (0.1, 0.1, Outcome.MISSED),
        (0.05, 0.1, Outcome.FAINT),
        (0.0, 1e-12, Outcome.FAINT),
        (1.0, 1.0, Outcome.COARSE),
        (1.0, 7.8, Outcome.COARSE),
        (math.nan, 0.1, Outcome.MISSED),
        (math.nan, 7.8, Outcome.COARSE),
    ],
)
def test_a_sample_within_reach_that_is_missing_is_explained(
    strength: float, needed: float, outcome: Outcome
) -> None:
    found = scored(X[[1]], [1], strength=strength, needed=needed)
    assert found.outcomes == (outcome, Outcome.RECOVERED, outcome, Outcome.UNREACHED)


def test_every_sample_is_explained_by_its_own_strength() -> None:
    found = score(
        recovery_of(X[:0], []),
        X,
        Y,
        exposure=Exposure.of(GRID),
        signals=torch.tensor([0.5, 0.01, 0.2, 0.0]),
        needed=0.1,
    )
    assert found.outcomes == (
        Outcome.MISSED,
        Outcome.FAINT,
        Outcome.MISSED,
        Outcome.UNREACHED,
    )


def test_a_sample_peeling_does_not_reach_may_be_recovered_all_the_same() -> None:
    assert scored(X[[3]], [3]).outcomes[3] is Outcome.RECOVERED
    assert scored(X[[3]] + 0.03, [3]).outcomes[3] is Outcome.ROUGH


def c_slowly(target: Target, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    """(neurons, batch) c by autograd, one sample at a time."""
    columns = []
    for i in range(len(x)):
        a = target.pre_activations(target.front(x[i : i + 1])).relu().requires_grad_()
        total = loss.total(target.tail(a), y[i : i + 1])
        columns.append(torch.autograd.grad(total, a)[0][0] * (a[0] > 0))
    return torch.stack(columns, 1).detach()


def doubts(target: Target, x: Tensor, y: Tensor) -> Tensor:
    """(batch,) 1 - p_y: how far a prediction is from certain."""
    p = torch.softmax(target.logits(x), 1).detach()
    return 1 - p[torch.arange(len(p)), y]


def signals_slowly(c: Tensor, exposed: Exposure) -> list[float]:
    """Peel the grid sample by sample; note its share where a neuron is down to its copies."""
    neurons, batch = exposed.grid.shape
    copies = exposed.copies.tolist()
    own = [torch.tensor([other == copy for other in copies]) for copy in copies]
    strongest = [0.0] * batch
    left = [{copies[i] for i in exposed.grid[j].nonzero()[:, 0].tolist()} for j in range(neurons)]
    while True:
        singles = [(j, next(iter(samples))) for j, samples in enumerate(left) if len(samples) == 1]
        if not singles:
            return [strongest[first] for first in copies]
        for j, i in singles:
            summed = float(c[j].abs().sum())
            share = abs(float(c[j, own[i]].sum())) / summed if summed else 0.0
            strongest[i] = max(strongest[i], share)
        fallen = {i for _, i in singles}
        left = [samples - fallen for samples in left]


rounds = st.builds(
    make_round,
    features=st.integers(2, 12),
    neurons=st.integers(3, 25),
    batch=st.integers(1, 8),
    classes=st.integers(2, 5),
    hidden=st.sampled_from([(), (6,)]),
    seed=st.integers(0, 1000),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(rounds)
def test_signals_equal_the_slow_loop(round_: SmallRound) -> None:
    target, exposed = split(round_.model), round_.exposure
    found = signals(contributions(target, round_.x, round_.y, exposed.copies), exposed)
    c = c_slowly(target, round_.x, round_.y, CrossEntropy())
    shares = torch.tensor(signals_slowly(c, exposed), dtype=torch.float64)
    expected = torch.minimum(shares, doubts(target, round_.x, round_.y))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def targets_for(loss: Loss, batch: int, outputs: int, *, seed: int) -> Tensor:
    """What a client would compare with."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(loss, CrossEntropy):
        return torch.randint(outputs, (batch,), generator=generator)
    drawn = torch.rand(batch, outputs, generator=generator, dtype=torch.float64)
    return drawn.round() if isinstance(loss, BinaryCrossEntropy) else 5 * drawn - 2


@pytest.mark.slow
@settings(max_examples=60)
@given(
    loss=st.sampled_from(
        [
            CrossEntropy(),
            CrossEntropy(label_smoothing=0.2, class_weights=(1.0, 0.25, 3.0)),
            MeanSquaredError(),
            BinaryCrossEntropy(),
        ]
    ),
    chosen=st.lists(st.integers(0, 4), min_size=1, max_size=9),
    neurons=st.integers(3, 25),
    seed=st.integers(0, 1000),
)
def test_sensitivities_and_signals_for_copies_and_any_loss(
    loss: Loss, chosen: list[int], neurons: int, seed: int
) -> None:
    target = split(make_model(6, neurons, 3, seed=seed))
    x = make_batch(6, 5, 3, seed=seed)[0][chosen]
    y = targets_for(loss, len(x), 3, seed=seed)
    exposed = exposure(make_model(6, neurons, 3, seed=seed), x)
    c = c_slowly(target, x, y, loss)
    together = [[k for k, other in enumerate(chosen) if other == sample] for sample in chosen]
    expected = torch.stack([c[:, copies].sum(1) for copies in together], 1).abs()
    found = contributions(target, x, y, exposed.copies, loss)
    torch.testing.assert_close(sensitivities(found, exposed), expected, rtol=1e-6, atol=1e-12)
    assert bool((found.margins >= 0).all())
    shares = torch.tensor(signals_slowly(c, exposed), dtype=torch.float64)
    torch.testing.assert_close(
        signals(found, exposed),
        torch.minimum(shares, found.margins),
        rtol=1e-6,
        atol=1e-9,
    )


@pytest.mark.parametrize("factor", [1.0, 1e-3, 50.0])
def test_class_weights_make_a_prediction_no_less_certain(factor: float) -> None:
    round_ = make_round(batch=6)
    target = split(round_.model)
    weighted = CrossEntropy(class_weights=(factor,) * 4)
    copies = round_.exposure.copies
    found = contributions(target, round_.x, round_.y, copies, weighted)
    torch.testing.assert_close(found.margins, doubts(target, round_.x, round_.y))


@pytest.mark.parametrize(
    ("loss", "y", "margin"),
    [
        # Outputs are 30 and 2: a regression that is nearly there, and one that is far off.
        (MeanSquaredError(), torch.tensor([[30.0 - 3e-6, 2.0]], dtype=torch.float64), 1e-7),
        (MeanSquaredError(), torch.tensor([[60.0, 2.0]]), 0.5),
        # Both predictions are right; the second is the less certain one.
        (BinaryCrossEntropy(), torch.tensor([[1.0, 1.0]]), 1 - 1 / (1 + math.exp(-2.0))),
        (CrossEntropy(), torch.tensor([0]), math.exp(-28.0)),
    ],
)
def test_margins_of_other_losses(loss: Loss, y: Tensor, margin: float) -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).double()
    with torch.no_grad():
        for parameter, value in zip(
            model.parameters(), ([[1.0]], [0.0], [[30.0], [2.0]], [0.0, 0.0]), strict=True
        ):
            parameter.copy_(torch.tensor(value))
    x, exposed = torch.ones(1, 1), Exposure.of(torch.ones(1, 1).bool())
    found = contributions(split(model), x, y, exposed.copies, loss)
    assert float(found.margins) == pytest.approx(margin, rel=1e-4)
    # A lone sample has nothing to stand out from.
    assert float(signals(found, exposed)) == pytest.approx(margin, rel=1e-4)


def test_copies_with_opposite_labels_may_cancel() -> None:
    # Where both classes are equally likely, the two gradients are each other's negative.
    model = make_model(4, 12, 2)
    last = model[2]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight[1] = last.weight[0] * 1.5
        last.bias.fill_(0.0)
    x = make_batch(4, 1, 2)[0].repeat(2, 1)
    target = split(model)
    logits = target.logits(x)[0]
    with torch.no_grad():
        last.bias[1] = logits[0] - logits[1]
    target, exposed = split(model), exposure(model, x)
    found = contributions(target, x, torch.tensor([0, 1]), exposed.copies)
    assert float(sensitivities(found, exposed).max()) < 1e-12
    assert float(found.margins.max()) < 1e-12
    assert float(signals(found, exposed).max()) < 1e-12
    alike = contributions(target, x, torch.tensor([0, 0]), exposed.copies)
    assert float(signals(alike, exposed).min()) > 0.4


@pytest.mark.parametrize("loss", [CrossEntropy(), MeanSquaredError()])
def test_behind_a_tail_nobody_can_simulate_signals_are_unknown(loss: Loss) -> None:
    model = nn.Sequential(*make_model(6, 20, 3), nn.Dropout(0.5)).train()
    target = split(model)
    assert target.tail.unknown is not None
    x = make_batch(6, 5, 3)[0]
    exposed = Exposure.of(torch.eye(20, 5).bool())
    y = targets_for(loss, 5, 3, seed=0)
    found = contributions(target, x, y, exposed.copies, loss)
    assert found.c.shape == (20, 5)
    assert found.margins.shape == (5,)
    assert bool(sensitivities(found, exposed).isnan().all())
    assert bool(found.margins.isnan().all())
    assert bool(signals(found, exposed).isnan().all())


def test_a_sample_with_a_neuron_of_its_own_has_its_full_strength() -> None:
    round_ = make_round(batch=6)
    target, exposed = split(round_.model), round_.exposure
    found = signals(contributions(target, round_.x, round_.y, exposed.copies), exposed)
    assert bool(exposed.isolated.any())
    # All that can weaken it there is that its prediction is right.
    alone = exposed.isolated
    torch.testing.assert_close(found[alone], doubts(target, round_.x, round_.y)[alone])
    assert bool((found[~exposed.reached] == 0).all())
    assert bool(((found >= 0) & (found <= 1)).all())


def test_a_faint_sample_has_a_weak_signal() -> None:
    # Two samples share every neuron but one; the second one's prediction is nearly certain.
    round_ = make_round(features=6, neurons=30, batch=2, classes=2, seed=1)
    target = split(round_.model)
    grid = torch.ones(30, 2, dtype=torch.bool)
    grid[0, 1] = False
    certain = target.logits(round_.x).argmax(1)
    y = torch.stack([1 - certain[0], certain[1]])
    tail = target.tail
    assert tail.next_layer is not None
    with torch.no_grad():
        tail.next_layer.weight.mul_(20.0)
        tail.next_layer.bias.mul_(20.0)
    exposed = Exposure.of(grid)
    strength = signals(contributions(target, round_.x, y, exposed.copies), exposed)
    assert strength[0] > 0.99
    assert 0 < strength[1] < 1e-3


def test_missed_samples_are_explained_by_what_the_decoder_knew() -> None:
    found = scored(X[:1], [0])
    assert found.outcomes[1:] == (Outcome.MISSED, Outcome.MISSED, Outcome.UNREACHED)
    # Neuron 1 comes to isolate sample 1; sample 2 waits behind it at neuron 2.
    c = GRID * 1e-6
    vague, sharp = torch.full((3,), 1e-8), torch.full((3,), 1e-20)
    exposed = Exposure.of(GRID)
    inexact = explain(found, exposed, c, vague, enough=1e7)
    hidden = (Outcome.HIDDEN, Outcome.UNREACHED)
    assert inexact.outcomes == (Outcome.RECOVERED, Outcome.INEXACT, *hidden)
    exact = explain(found, exposed, c, sharp, enough=1e7)
    assert exact.outcomes == (Outcome.RECOVERED, Outcome.MISSED, *hidden)
    # Where nobody knows how much samples add, the grid alone speaks.
    unknown = explain(found, exposed, c * torch.nan, vague, enough=1e7)
    assert unknown.outcomes == exact.outcomes


def test_a_sample_that_was_peeled_roughly_hides_no_other() -> None:
    found = scored(X[:2] + 0.03, [0, 1])
    exposed = Exposure.of(GRID)
    told = explain(found, exposed, GRID * 1.0, torch.zeros(3), enough=1e7)
    rough = Outcome.ROUGH
    assert told.outcomes == (rough, rough, Outcome.MISSED, Outcome.UNREACHED)


def test_copies_are_no_reason_to_be_hidden() -> None:
    exposed = Exposure.of(COPIED_GRID, copies_of(COPIED))
    found = scored_copies(recovery_of(X[:0], []))
    told = explain(found, exposed, COPIED_GRID * 1.0, torch.zeros(3), enough=1e7)
    missed, hidden = Outcome.MISSED, Outcome.HIDDEN
    assert told.outcomes == (missed, hidden, missed, hidden, missed)
