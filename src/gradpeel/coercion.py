"""Inputs as people have them: one way from any container to what a network takes.

Everything that takes samples takes them in the same forms:

- a tensor, a NumPy array, nested lists of numbers, or a list of samples that are tensors or arrays;
- a pandas DataFrame: its columns of numbers, as they are, in their order. `y` may name one of them;
- a tuple or a dict of these, for a network of several inputs: `model(*x)` or `model(**x)`;
- a `torch.utils.data.Dataset`: all its samples, with their labels;
- a `torch.utils.data.DataLoader`, or any other iterator over batches: one batch, with its labels.

Where a sample or a batch comes with its label, that is the last item of a tuple or a list, or the
entry "label", "labels", "target", "targets" or "y" of a dict. What else a dict holds are inputs by
their names in `forward`; the name of a single one does not matter.

Neither pandas nor `torch.utils.data` is imported here: whoever has such an object has done so.

Example:
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> loader = [(np.ones((4, 3)), np.array([0, 1, 1, 0]))]
    >>> given = as_samples(model, iter(loader), None, torch.float32)
    >>> given.x.shape, given.y.tolist()
    (torch.Size([4, 3]), [0, 1, 1, 0])
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gradpeel.checks import as_batch, as_tensor
from gradpeel.datasets.table import LABELS
from gradpeel.errors import InputError
from gradpeel.inputs import Inputs, NetworkInput

if TYPE_CHECKING:
    from torch.utils.data import Dataset

__all__ = [
    "Samples",
    "TakenSamples",
    "Targets",
    "as_labelled_samples",
    "as_samples",
    "batches_of",
    "is_frame",
    "is_stream",
]

Samples: TypeAlias = (
    "Tensor | Inputs | NDArray[Any] | Sequence[Any] | Mapping[str, Any] | Iterable[Any]"
    " | Dataset[Any]"
)
"""Samples in any of the forms above."""
Targets: TypeAlias = "Tensor | NDArray[Any] | Sequence[Any] | Iterable[Any] | str | None"
"""Labels or targets; the name of a column of a DataFrame; or None where samples bring them."""
MOST_SAMPLES = 16_384
"""A data set with more samples is not one batch."""


class TakenSamples(NamedTuple):
    """What was made of somebody's samples.

    Attributes:
        x: (batch, *sample_shape), or several such inputs.
        y: (batch,) labels or (batch, outputs) targets; None where there are none.
        columns: names of the features, where they have any.
    """

    x: NetworkInput
    y: Tensor | None
    columns: tuple[str, ...] | None = None


def as_samples(
    model: nn.Module,
    x: Samples,
    y: Targets,
    dtype: torch.dtype,
    *,
    name: str = "x",
    labels: str = "y",
    every: bool = False,
) -> TakenSamples:
    """Make of somebody's samples what a network takes.

    Args:
        model: the network.
        x: samples, in any form that this module names.
        y: their labels or targets, if `x` does not bring them; the name of a column of `x`.
        dtype: in which all values must be finite; they are not cast yet.
        name: what messages call `x`.
        labels: what they call `y`.
        every: take all batches of a stream together, and not its first one.

    Raises:
        InputError: something of it is not what it should be; names the thing and the rule.
    """
    if isinstance(x, Inputs):
        return TakenSamples(x, None if y is None else as_tensor(labels, y))
    if is_stream(x) or _is_data_set(x):
        if y is not None:
            raise InputError(
                f"{labels}: {name} of type {type(x).__name__} brings its own labels: expected None"
            )
        x, y = _gather(x, name) if _is_data_set(x) else _take(x, name, every=every)
    frame_columns = None
    if is_frame(x):
        x, y, frame_columns = _read_frame(x, y, name)
    elif isinstance(y, str):
        raise InputError(f"{labels}={y!r}: the name of a column, but {name} is not a DataFrame")
    if _is_several(x):
        taken: NetworkInput = _several(model, x, dtype, name)
    else:
        taken = as_batch(_values(name, x), dtype, name=name)
    wanted = None if y is None else as_tensor(labels, _values(labels, y))
    return TakenSamples(taken, wanted, frame_columns)


def as_labelled_samples(
    model: nn.Module, x: Samples, y: Targets, dtype: torch.dtype
) -> tuple[NetworkInput, Tensor, tuple[str, ...] | None]:
    """The same as `as_samples`, for who needs labels or targets.

    Raises:
        InputError: there are none, or a single one without a dimension of its own.
    """
    taken = as_samples(model, x, y, dtype)
    if taken.y is None:
        raise InputError(f"y=None: expected labels or targets: x of {type(x).__name__} has none")
    if taken.y.ndim == 0:
        raise InputError(f"y: shape (): expected one label for each of {len(taken.x)} samples")
    return taken.x, taken.y, taken.columns


def batches_of(x: Samples, count: int) -> Iterator[tuple[Any, Any]]:
    """The first batches of a stream, each with its labels.

    Raises:
        InputError: there are fewer.

    Example:
        >>> [x for x, y in batches_of(iter([([1.0], [0]), ([2.0], [1]), ([3.0], [0])]), 2)]
        [[1.0], [2.0]]
    """
    found = 0
    for batch in islice(_iterate(x), count):
        found += 1
        yield _labelled(batch)
    if found < count:
        raise InputError(f"repeats={count}: x holds only {found} batches")


def is_stream(x: object) -> bool:
    """Whether an object hands out batches: a DataLoader, an iterator, any other iterable."""
    return isinstance(x, Iterable) and not (_is_data_set(x) or _is_plain(x) or is_frame(x))


def is_frame(x: object) -> bool:
    """Whether an object is a pandas DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, pandas.DataFrame)


def _is_plain(x: object) -> bool:
    return isinstance(x, Tensor | Sequence | Mapping | str) or hasattr(x, "__array__")


def _is_data_set(x: object) -> bool:
    """Whether an object holds samples one by one: torch's Dataset, or one like it."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and isinstance(x, data.DataLoader):
        return False
    if data is not None and isinstance(x, data.Dataset):
        return True
    return hasattr(x, "__len__") and hasattr(x, "__getitem__") and not _is_plain(x)


def _is_several(x: object) -> TypeGuard[Mapping[str, Any] | tuple[Any, ...]]:
    """Whether an object holds several inputs of a network: a dict, or a tuple of arrays."""
    if isinstance(x, Mapping):
        return True
    return isinstance(x, tuple) and bool(x) and all(map(_is_array, x))


def _is_array(x: object) -> bool:
    return isinstance(x, Tensor) or hasattr(x, "__array__")


def _iterate(x: Any) -> Iterator[Any]:  # noqa: ANN401 - checked by whoever calls
    return iter(x)


def _take(x: Samples, name: str, *, every: bool) -> tuple[Any, Any]:
    """The first batch of a stream, or all of them as one."""
    batches = list(_iterate(x) if every else islice(_iterate(x), 1))
    if not batches:
        raise InputError(f"{name} of type {type(x).__name__}: holds no batch")
    found = [_labelled(batch) for batch in batches]
    if len(found) == 1:
        return found[0]
    labels = [y for _, y in found]
    joined = None if any(y is None for y in labels) else _join("y", labels)
    return _join(name, [x for x, _ in found]), joined


def _gather(x: Any, name: str) -> tuple[Any, Any]:  # noqa: ANN401 - checked by whoever calls
    """All samples of a data set as one batch."""
    # A data set without a length may go on for ever; one with a length may not know where to stop.
    ends = hasattr(x, "__len__")
    samples = (x[place] for place in range(min(len(x), MOST_SAMPLES + 1))) if ends else iter(x)
    found = [_labelled(sample) for sample in islice(samples, MOST_SAMPLES + 1)]
    if not found:
        raise InputError(f"{name} of type {type(x).__name__}: holds no samples")
    if len(found) > MOST_SAMPLES:
        raise InputError(
            f"{name} of type {type(x).__name__}: holds more than {MOST_SAMPLES} samples: expected "
            "one batch, such as torch.utils.data.Subset or a DataLoader gives"
        )
    labels = [y for _, y in found]
    stacked = None if any(y is None for y in labels) else _stack("y", labels)
    return _stack(name, [x for x, _ in found]), stacked


def _labelled(given: Any) -> tuple[Any, Any]:  # noqa: ANN401 - whatever a loader gives
    """A batch or a sample, and its labels where it has any."""
    if isinstance(given, Mapping):
        label = next((key for key in LABELS if key in given), None)
        rest = {key: value for key, value in given.items() if key != label}
        # What a data set calls its only input is no concern of the network.
        inputs = next(iter(rest.values())) if len(rest) == 1 else rest
        return inputs, None if label is None else given[label]
    if isinstance(given, tuple | list) and len(given) > 1 and not _is_numbers(given):
        *several, label = given
        return (several[0] if len(several) == 1 else tuple(several)), label
    is_wrapped = isinstance(given, tuple | list) and len(given) == 1 and _is_array(given[0])
    return (given[0] if is_wrapped else given), None


def _is_numbers(given: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) for value in given)


def _join(name: str, parts: Sequence[Any]) -> Any:  # noqa: ANN401 - of the same kind as the parts
    """Batches, one after the other."""
    return _combine(name, parts, torch.cat)


def _stack(name: str, parts: Sequence[Any]) -> Any:  # noqa: ANN401 - of the same kind as the parts
    """Samples as one batch."""
    return _combine(name, parts, torch.stack)


def _combine(name: str, parts: Sequence[Any], put: Any) -> Any:  # noqa: ANN401
    first = parts[0]
    if isinstance(first, Mapping):
        keys = {key for part in parts for key in part}
        return {key: _combine(key, [part.get(key) for part in parts], put) for key in sorted(keys)}
    if isinstance(first, tuple) and any(map(_is_array, first)):
        return tuple(_combine(name, list(each), put) for each in zip(*parts, strict=True))
    tensors = [as_tensor(name, _values(name, part)) for part in parts]
    try:
        combined: Tensor = put(tensors)
    except (RuntimeError, TypeError):
        shapes = ", ".join(dict.fromkeys(str(tuple(tensor.shape)) for tensor in tensors))
        raise InputError(f"{name}: samples of shapes {shapes}: expected one shape") from None
    return combined


def _values(name: str, value: Any) -> Any:  # noqa: ANN401 - whatever `as_tensor` looks at
    """An array as torch takes it, and a list of arrays as one array."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            raise InputError(f"{name} of dtype {array.dtype}: expected numbers")
        # Torch takes neither another byte order nor a step backwards, and warns of what is
        # read-only.
        return np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
    if isinstance(value, list) and value and all(map(_is_array, value)):
        return _stack(name, value)
    if isinstance(value, list | tuple):
        # Python's numbers are float64; torch would round them to its default type.
        with contextlib.suppress(ValueError, OverflowError):
            array = np.array(value)
            return array if array.dtype.kind in "biuf" else value
    return value


def _several(
    model: nn.Module, x: Mapping[str, Any] | tuple[Any, ...], dtype: torch.dtype, name: str
) -> NetworkInput:
    """Several inputs, or the only one of a dict or a tuple."""
    names = tuple(map(str, x)) if isinstance(x, Mapping) else None
    _check_arguments(model, len(x), names, name)
    given = list(x.values()) if isinstance(x, Mapping) else list(x)
    called = names or tuple(f"{name}[{place}]" for place in range(len(given)))
    tensors = tuple(
        as_batch(_one(key, value), dtype, name=key, of_one=len(given) == 1)
        for key, value in zip(called, given, strict=True)
    )
    lengths = [len(tensor) for tensor in tensors]
    if len(set(lengths)) > 1:
        listed = ", ".join(f"{key} {size}" for key, size in zip(called, lengths, strict=True))
        raise InputError(f"{name}: inputs of different numbers of samples ({listed})")
    return tensors[0] if len(tensors) == 1 else Inputs(tensors, names)


def _one(name: str, value: Any) -> Any:  # noqa: ANN401 - whatever `as_batch` looks at
    return _read_frame(value, None, name)[0] if is_frame(value) else _values(name, value)


def _check_arguments(
    model: nn.Module, count: int, names: tuple[str, ...] | None, called: str
) -> None:
    """Compare several inputs with what the network's `forward` takes.

    Arguments that have a default keep it: the network is read with these values.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL or one.kind is one.VAR_KEYWORD for one in parameters):
        return
    needed = [one.name for one in parameters if one.default is one.empty]
    takes = f"{type(model).__name__} takes {len(needed)}: {', '.join(needed) or 'none'}"
    optional = [one.name for one in parameters if one.default is not one.empty]
    for name in names or ():
        if name in optional:
            raise InputError(
                f"{called}: input {name!r} has a default value in {type(model).__name__}.forward, "
                "which the network is read with: expected it left out, or without a default"
            )
        if name not in needed:
            raise InputError(f"{called}: no input {name!r}: {takes}")
    if count != len(needed):
        hint = "" if names is not None else "; a list, unlike a tuple, is taken as samples"
        raise InputError(f"{called} holds {count} inputs: {takes}{hint}")


def _read_frame(frame: Any, y: Any, name: str) -> tuple[Tensor, Any, tuple[str, ...]]:  # noqa: ANN401
    """The columns of a DataFrame as one table, its labels taken out, and the columns' names."""
    if isinstance(y, str):
        if y not in frame.columns:
            listed = ", ".join(repr(str(column)) for column in frame.columns[:8])
            raise InputError(f"y={y!r}: {name} has no such column: it has {listed}")
        y, frame = _read_column("y", frame[y]), frame.drop(columns=y)
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    if not columns:
        raise InputError(f"{name}: a DataFrame without columns of features")
    arrays = [_read_column(name, column) for column in columns]
    table = np.stack(arrays, axis=1, dtype=np.result_type(*arrays))
    return torch.from_numpy(table), y, tuple(str(column) for column in frame.columns)


def _read_column(name: str, column: Any) -> NDArray[Any]:  # noqa: ANN401 - a pandas Series
    """The numbers of a column: integers as int64, all others as float64."""
    missing = int(column.isna().sum())
    if missing:
        raise InputError(
            f"{name}: column {str(column.name)!r}: {missing} of {len(column)} values are missing: "
            "expected none"
        )
    kind = getattr(column.dtype, "kind", "O")
    if kind not in "biuf":
        raise InputError(
            f"{name}: column {str(column.name)!r} of dtype {column.dtype}: expected numbers; "
            "gradpeel.datasets.from_frame encodes text and categories"
        )
    array: NDArray[Any] = column.to_numpy(dtype=np.float64 if kind == "f" else np.int64)
    return array
