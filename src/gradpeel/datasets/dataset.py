"""A data set of two splits, and the batch an audit draws from it.

The training split is the client's; the test split is what a server may own beside it, so that the
auxiliary batch shares no sample with the client's (paper, sections "Soliton-Data" and
"Experiments"). Images keep the layout of the files, (n, H, W) or (n, H, W, 3): the target flattens
them, and the method does not depend on the order.

    >>> from gradpeel.datasets import draw_batch, load
    >>> batch = draw_batch(load("digits"), 64)
    >>> batch.x.shape, batch.y.shape, batch.auxiliary.shape
    (torch.Size([64, 8, 8]), torch.Size([64]), torch.Size([64, 8, 8]))
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradpeel.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "SCALINGS",
    "Batch",
    "Dataset",
    "Units",
    "check_dtype",
    "check_scaling",
    "draw_batch",
    "rescale",
    "with_channels_first",
]

SCALINGS = ("minmax", "standard", "raw")
"""How float features are scaled; see `rescale`."""

# A column that is not a label (an identifier, a timestamp) must not ask for a billion outputs.
MAX_CLASSES = 65_536


@dataclass(frozen=True, eq=False)
class Units:
    """How scaled features become again what was measured.

    Attributes:
        offset: what 0 stands for, of the shape of a sample.
        spread: what a step of 1 stands for; 0 for a feature that does not vary.

    Example:
        >>> Units(np.array([10.0, 7.0]), np.array([20.0, 0.0])).original(np.array([0.5, 0.0]))
        array([20.,  7.])
    """

    offset: NDArray[np.float64]
    spread: NDArray[np.float64]

    def original(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Samples, (..., *sample_shape), in the units they were measured in."""
        return x * self.spread + self.offset


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Two splits of labelled samples, checked when made; samples are float64, labels int64.

    Attributes:
        name: what reports call it.
        x_train: the client's samples, (train, *sample_shape).
        y_train: their labels, (train,), in 0..classes-1.
        x_test: the server's own samples, (test, *sample_shape); there may be none.
        y_test: their labels, (test,).
        classes: number of classes, at least 2 (with one class the loss has no gradient).
        data_range: bounds that every value of `x_train` keeps, or None where nothing is promised;
            `x_test` may step over them, because it is scaled with the training split's numbers.
        feature_names: one for each feature, or None.
        class_names: one for each class, or None.
        units: how scaled features become again what was measured; None where nothing was scaled.

    Raises:
        InputError: an array breaks a rule; the line names the data set, the array and the rule.
    """

    name: str
    x_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float64]
    y_test: NDArray[np.int64]
    classes: int
    data_range: tuple[float, float] | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    units: Units | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= MAX_CLASSES:
            rule = f"expected 2 to {MAX_CLASSES} (without class names: the largest label plus one)"
            raise self._broken(f"classes={self.classes}: {rule}")
        for split in ("train", "test"):
            x = self._checked_samples(f"x_{split}")
            y = self._checked_labels(f"y_{split}")
            if len(x) != len(y):
                raise self._broken(f"x_{split} has {len(x)} samples, y_{split} {len(y)} labels")
            # The one place that touches a frozen value, so that its dtypes can be relied on.
            object.__setattr__(self, f"x_{split}", x)
            object.__setattr__(self, f"y_{split}", y)
        if self.x_test.shape[1:] != self.sample_shape:
            found = f"x_test has samples of shape {self.x_test.shape[1:]}"
            raise self._broken(f"{found}: expected {self.sample_shape} as in x_train")
        self._check_range()
        self._check_names("class_names", self.class_names, self.classes)
        self._check_names("feature_names", self.feature_names, self.features)

    def _broken(self, rule: str) -> InputError:
        return InputError(f"{self.name}: {rule}")

    def _checked_samples(self, field: str) -> NDArray[np.float64]:
        x = np.asarray(getattr(self, field))
        check_dtype(self.name, field, x.dtype)
        if x.ndim < 2 or (x.size == 0 and (len(x) or field == "x_train")):
            raise self._broken(f"{field} has shape {x.shape}: expected (samples, features ...)")
        # A long double beyond float64 becomes inf, which the next check reports.
        with np.errstate(over="ignore"):
            x = np.ascontiguousarray(x, dtype=np.float64)
        if not np.isfinite(x).all():
            first = tuple(np.argwhere(~np.isfinite(x))[0].tolist())
            raise self._broken(f"{field}{list(first)}={x[first]}: expected finite numbers")
        return x

    def _checked_labels(self, field: str) -> NDArray[np.int64]:
        y = np.asarray(getattr(self, field))
        check_dtype(self.name, field, y.dtype)
        if y.ndim != 1:
            raise self._broken(f"{field} has shape {y.shape}: expected (samples,)")
        outside = np.flatnonzero((y < 0) | (y >= self.classes))
        if outside.size:
            i = outside[0]
            raise self._broken(f"{field}[{i}]={y[i]}: expected a label in 0..{self.classes - 1}")
        return np.ascontiguousarray(y, dtype=np.int64)

    def _check_range(self) -> None:
        if self.data_range is None:
            return
        low, high = self.data_range
        if not low < high:
            raise self._broken(f"data_range={self.data_range}: expected low < high")
        least, most = self.x_train.min(), self.x_train.max()
        if least < low or most > high:
            found = f"x_train runs from {least} to {most}"
            raise self._broken(f"{found}: expected data_range={self.data_range}")

    def _check_names(self, field: str, names: tuple[str, ...] | None, count: int) -> None:
        if names is None:
            return
        if len(names) != count:
            raise self._broken(f"{field} holds {len(names)} names: expected {count}")
        for i, name in enumerate(names):
            # Names come from files and go to terminals: no line breaks, no escape sequences.
            if not name.isprintable():
                raise self._broken(f"{field}[{i}]={name!r}: expected printable text")

    def __repr__(self) -> str:
        sizes = f"train={len(self.x_train)}, test={len(self.x_test)}"
        shape = f"sample_shape={self.sample_shape}, classes={self.classes}"
        return f"Dataset({self.name!r}, {sizes}, {shape})"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x_train.shape[1:]

    @property
    def features(self) -> int:
        """Numbers in one sample."""
        return math.prod(self.sample_shape)

    @property
    def is_image(self) -> bool:
        """Can a sample be drawn: (H, W), with one or three colours in the last or first place."""
        shape = self.sample_shape
        return len(shape) == 2 or (len(shape) == 3 and bool({shape[0], shape[2]} & {1, 3}))


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """What one audit runs on.

    Attributes:
        x: the client's samples, (batch, *sample_shape), float64.
        y: their labels, (batch,), int64.
        auxiliary: the server's samples, (auxiliary, *sample_shape), float64; fewer than the batch
            where the test split is smaller.
        indices: which training samples `x` holds, (batch,).
    """

    x: Tensor
    y: Tensor
    auxiliary: Tensor
    indices: NDArray[np.int64]


def draw_batch(
    dataset: Dataset,
    batch_size: int,
    *,
    shuffle: bool = False,
    rng: np.random.Generator | None = None,
) -> Batch:
    """Take the client's batch from the training split, the auxiliary batch from the test split.

    Args:
        dataset: where from.
        batch_size: samples in the client's batch, and in the auxiliary batch where the test split
            has that many.
        shuffle: draw both without replacement by `rng`; otherwise the first ones are taken.
        rng: needed with `shuffle`.

    Raises:
        InputError: `batch_size` is not a positive integer or exceeds the training samples, or
            `rng` is missing.

    Example:
        >>> from gradpeel.datasets import load
        >>> rng = np.random.default_rng(0)
        >>> batch = draw_batch(load("breast_cancer"), 256, shuffle=True, rng=rng)
        >>> batch.x.shape, batch.auxiliary.shape
        (torch.Size([256, 30]), torch.Size([169, 30]))
    """
    if not _is_positive_integer(batch_size):
        raise InputError(f"batch_size={batch_size!r}: expected a positive integer")
    train, test = len(dataset.x_train), len(dataset.x_test)
    if batch_size > train:
        raise InputError(f"batch_size={batch_size}: {dataset.name} has {train} training samples")
    client, server = np.arange(train), np.arange(test)
    if shuffle:
        if rng is None:
            raise InputError("rng=None: expected a numpy Generator to shuffle with")
        client, server = rng.permutation(train), rng.permutation(test)
    import torch  # noqa: PLC0415 -- slow to import; a data set that cannot be read need not wait

    indices = client[:batch_size]
    return Batch(
        x=torch.from_numpy(dataset.x_train[indices]),
        y=torch.from_numpy(dataset.y_train[indices]),
        auxiliary=torch.from_numpy(dataset.x_test[server[:batch_size]]),
        indices=indices,
    )


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) > 0


def rescale(dataset: Dataset, scaling: str = "minmax") -> Dataset:
    """Scale each feature by statistics of the training split alone.

    Args:
        dataset: features as they were measured; a float image counts as H x W x C features.
        scaling: "minmax" takes each feature's training values to [0, 1], as the paper does for
            HARUS, and promises that range; "standard" takes them to mean 0 and deviation 1; "raw"
            leaves them alone. A feature that is constant in the training split says nothing about
            its own scale and becomes 0 in both splits.

    Returns:
        The scaled data set. The test split is moved by the training split's numbers, so its values
        may lie outside [0, 1].

    Raises:
        InputError: `scaling` is none of the three, or a feature spans more than float64 can hold.

    Example:
        >>> x, y = np.array([[10.0, 7.0], [30.0, 7.0]]), np.array([0, 1])
        >>> scaled = rescale(Dataset("tiny", x, y, x + 10, y, classes=2))
        >>> scaled.x_train.tolist(), scaled.x_test.tolist(), scaled.data_range
        ([[0.0, 0.0], [1.0, 0.0]], [[0.5, 0.0], [1.5, 0.0]], (0.0, 1.0))
    """
    check_scaling(scaling)
    if scaling == "raw":
        return dataset
    x = dataset.x_train
    low, high = x.min(axis=0), x.max(axis=0)
    # Overflow is reported by the check of `spread`, or by the Dataset made of the result.
    with np.errstate(over="ignore", invalid="ignore"):
        spread = high - low if scaling == "minmax" else x.std(axis=0)
        offset = low if scaling == "minmax" else x.mean(axis=0)
        if not np.isfinite(spread).all():
            rule = "expected features whose spread float64 can hold"
            raise InputError(f"{dataset.name}: x_train runs from {x.min()} to {x.max()}: {rule}")
        # Not `spread > 0` alone: the computed deviation of 0.1, 0.1, 0.1 is rounding, not zero.
        varies = (low < high) & (spread > 0)
        divisor = np.where(varies, spread, 1.0)
        x_train = np.where(varies, (x - offset) / divisor, 0.0)
        x_test = np.where(varies, (dataset.x_test - offset) / divisor, 0.0)
    data_range = (0.0, 1.0) if scaling == "minmax" else None
    units = Units(offset, np.where(varies, spread, 0.0))
    return replace(dataset, x_train=x_train, x_test=x_test, data_range=data_range, units=units)


def with_channels_first(dataset: Dataset) -> Dataset:
    """The same images as (channels, height, width), as PyTorch's convolutions expect them.

    Raises:
        InputError: the samples are not images.

    Example:
        >>> from gradpeel.datasets import load
        >>> with_channels_first(load("digits")).sample_shape
        (1, 8, 8)
    """
    if not dataset.is_image:
        found = f"samples of shape {dataset.sample_shape}"
        raise InputError(f"channels_first: {dataset.name} has {found}: expected images")

    def moved(x: NDArray[np.float64], before: int) -> NDArray[np.float64]:
        """Colours in front of height and width; `before` axes come before these."""
        return np.expand_dims(x, before) if x.ndim == before + 2 else np.moveaxis(x, -1, before)

    units = dataset.units
    return replace(
        dataset,
        x_train=moved(dataset.x_train, 1),
        x_test=moved(dataset.x_test, 1),
        units=None if units is None else Units(moved(units.offset, 0), moved(units.spread, 0)),
    )


def check_scaling(scaling: str, *, pixels_of: str | None = None) -> None:
    """Refuse an unknown scaling, and any but "minmax" for the pixels of the named data set.

    A pixel's range is known without looking at the data, so pixels are always divided by white.
    To scale each by its own deviation would blow up the faint border of every picture.
    """
    if scaling not in SCALINGS:
        raise InputError(f"scaling={scaling!r}: expected one of {', '.join(SCALINGS)}")
    if pixels_of is not None and scaling != "minmax":
        rule = "expected minmax, because pixels are always scaled to [0, 1]"
        raise InputError(f"scaling={scaling!r}: {pixels_of} holds pixels: {rule}")


def check_dtype(source: str, field: str, dtype: np.dtype[Any]) -> None:
    """Refuse samples (fields x_...) that are not real numbers, labels that are not integers."""
    kinds, rule = ("buif", "real numbers") if field.startswith("x") else ("iu", "integer labels")
    if dtype.kind not in kinds:
        raise InputError(f"{source}: {field} has dtype {dtype}: expected {rule}")
