"""Rules that several parts share; whoever breaks one gets an `InputError` that names it.

Example:
    >>> check_data_range((0, "1"))
    Traceback (most recent call last):
    gradpeel.errors.InputError: data_range=(0, '1'): expected two numbers, the smaller one first
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gradpeel.errors import InputError

__all__ = [
    "DTYPES",
    "as_batch",
    "as_tensor",
    "check_array_dtype",
    "check_at_least_0",
    "check_data_range",
    "check_dense",
    "check_dtype",
    "check_layer",
    "check_module",
    "check_positive_integer",
    "check_seed",
    "count_not_finite",
    "finite_or_none",
    "from_array",
    "is_list",
    "is_number",
    "is_plain_name",
]

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""What a client may compute in, and send."""

_PARTS = 64


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite real number that a float can hold.

    Example:
        >>> [is_number(value) for value in (1, 0.5, True, "1", 1j, math.nan, 10**400)]
        [True, True, False, False, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value is a tuple or a list of something; text is none."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def is_plain_name(name: str) -> bool:
    r"""Whether a part of a module's or parameter's path can stand in a line of code.

    torch.fx writes the forward pass down as Python source and runs it. It puts names between
    quotation marks as they are, so a name that holds some would be run too; and names come from
    files.

    Example:
        >>> [is_plain_name(name) for name in ("0", "layer-1", "class", "a\n", "\\")]
        [True, True, False, False, False]
    """
    return name.isprintable() and not set(name) & set("\"'\\") and not keyword.iskeyword(name)


def check_module(model: object) -> None:
    """Reject anything that is not a network.

    Raises:
        InputError: names its type.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model of type {type(model).__name__}: expected a torch.nn.Module")


def check_layer(model: nn.Module, layer: object) -> None:
    """Reject a name that none of a network's Linear layers has; None means no choice.

    Raises:
        InputError: names it, and the layers there are.
    """
    if layer is None:
        return
    modules = dict(model.named_modules(remove_duplicate=False))
    found = modules.get(layer) if isinstance(layer, str) else None
    if isinstance(found, nn.Linear):
        return
    names = [repr(name) for name, module in modules.items() if isinstance(module, nn.Linear)]
    listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    kind = "" if found is None else f" is a {type(found).__name__}"
    rule = f"expected the name of a Linear: {listed}" if names else "the model has no Linear"
    raise InputError(f"layer={layer!r}{kind}: {rule}")


def check_data_range(data_range: object) -> None:
    """Reject a range that is not a pair of numbers, the smaller one first; None means no range.

    An end may be infinite.

    Raises:
        InputError: names the range.
    """
    if data_range is None:
        return
    ends = list(data_range) if is_list(data_range) else []
    if len(ends) == 2:
        low, high = ends
        if _is_end(low, -math.inf) and _is_end(high, math.inf):
            if low < high:
                return
            raise InputError(f"data_range={data_range}: expected the smaller value first")
    raise InputError(f"data_range={data_range!r}: expected two numbers, the smaller one first")


def _is_end(value: object, open_end: float) -> TypeGuard[float]:
    return is_number(value) or (isinstance(value, float) and value == open_end)


def check_at_least_0(name: str, value: object) -> None:
    """Refuse what is not a number of at least 0.

    Raises:
        InputError: names the setting and its value.
    """
    if not (is_number(value) and value >= 0):
        raise InputError(f"{name}={value!r}: expected a number of at least 0")


def check_positive_integer(name: str, value: object) -> None:
    """Refuse what is not a positive integer.

    Raises:
        InputError: names the setting and its value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name}={value!r}: expected a positive integer")


def check_seed(seed: object) -> None:
    """Refuse a seed that PyTorch's generators do not take.

    Raises:
        InputError: names the seed.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise InputError(f"seed={seed!r}: expected an integer of at least 0")


def check_dense(name: str, tensor: object) -> None:
    """Reject anything that is not a tensor that holds its values one by one in memory.

    Raises:
        InputError: names the tensor and what it is.
    """
    if not isinstance(tensor, Tensor):
        raise InputError(f"{name} of type {type(tensor).__name__}: expected a torch.Tensor")
    if tensor.is_meta:
        raise InputError(f"{name}: a tensor on the device meta holds no values")
    if tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else "quantised" if tensor.is_quantized else "sparse"
        way = {"nested": "to_padded_tensor", "quantised": "dequantize", "sparse": "to_dense"}[kind]
        raise InputError(f"{name}: a {kind} tensor: expected a dense one, such as {way}() gives")


def check_dtype(name: str, dtype: torch.dtype) -> None:
    """Reject a dtype in which no client computes.

    Raises:
        InputError: names the tensor and its dtype.
    """
    if dtype not in DTYPES:
        raise InputError(f"{name}: dtype {dtype}: expected float64, float32, bfloat16 or float16")


def check_array_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Reject an array of numbers that torch has no floating-point numbers for.

    Raises:
        InputError: names the array and its dtype.
    """
    if dtype.kind != "f":
        raise InputError(f"{name}: dtype {dtype}: expected floating point")
    if dtype.itemsize > 8:
        raise InputError(f"{name}: dtype {dtype}: expected at most float64")


def from_array(name: str, array: NDArray[Any]) -> Tensor:
    """The tensor of an array of floating-point numbers, in any byte order.

    Raises:
        InputError: names the array and its dtype.

    Example:
        >>> from_array("x", np.array([1.5, -2.0], dtype=">f4"))
        tensor([ 1.5000, -2.0000])
    """
    check_array_dtype(name, array.dtype)
    # torch knows only the byte order of the machine it runs on.
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def as_tensor(name: str, value: object, dtype: torch.dtype | None = None) -> Tensor:
    """A dense tensor from a tensor, an array or nested lists; in a dtype, if one is given.

    Raises:
        InputError: names what it is instead.
    """
    try:
        tensor = torch.as_tensor(value, dtype=dtype)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        kind = type(value).__name__
        raise InputError(f"{name} of type {kind}: expected a tensor of numbers") from None
    check_dense(name, tensor)
    return tensor


def as_batch(x: object, dtype: torch.dtype, *, name: str = "x", of_one: bool = True) -> Tensor:
    """A batch of samples, (batch, *sample_shape), that stays finite in a dtype; not yet cast.

    Args:
        x: the samples.
        dtype: in which they must be finite.
        name: what messages call them.
        of_one: whether this is the network's only input; one of several may be (batch,) too.

    Raises:
        InputError: it has no samples or no values, or values that are not real and finite.
    """
    batch = as_tensor(name, x)
    if batch.ndim < 1 + of_one or batch.numel() == 0:
        shape = tuple(batch.shape)
        raise InputError(f"{name} of shape {shape}: expected (batch, *sample_shape), not empty")
    if batch.is_complex():
        raise InputError(f"{name} of dtype {batch.dtype}: expected real numbers")
    for where, values in (("", batch), (f" in {dtype}", batch.to(dtype))):
        bad = count_not_finite(values)
        if bad:
            raise InputError(f"{name}: {bad} of {batch.numel()} values are not finite{where}")
    return batch


def finite_or_none(value: float) -> float | None:
    """A number as JSON can hold it: there is no word for NaN, nor for an end that is open."""
    return value if math.isfinite(value) else None


def count_not_finite(tensor: Tensor) -> int:
    """How many values are not finite; the tensor may be large."""
    # A value that is not finite makes their sum such a value too: one pass, without a copy.
    if tensor.dtype in DTYPES and math.isfinite(float(tensor.detach().sum())):
        return 0
    return sum(int((~torch.isfinite(part)).sum()) for part in torch.chunk(tensor.flatten(), _PARTS))
