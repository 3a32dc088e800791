"""Files of weights and of records, as the commands take them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gradpeel.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["load_model", "load_records"]

_USUAL = ("records", "samples", "x")
_MAX_BYTES = 4 * 2**30


def load_model(path: Path) -> nn.Sequential:
    """Build the multilayer perceptron whose weights a file holds.

    Raises:
        InputError: the file cannot be read, or its tensors are not such a network's.
    """
    from gradpeel.networks import mlp_from_state  # noqa: PLC0415
    from gradpeel.update import load_tensors  # noqa: PLC0415

    state, _ = load_tensors(path)
    try:
        return mlp_from_state(state)
    except InputError as error:
        raise InputError(f"{path}: not a multilayer perceptron: {error}") from None


def load_records(path: Path, field: str | None = None) -> Tensor:
    """Read records, (n, *sample_shape), from one array of an `.npz` file.

    uint8 records are pixels and are divided by 255, as in data sets. Nothing is unpickled.

    Args:
        path: the file.
        field: name of the array; by default its only one, or the one called records, samples or x.

    Raises:
        InputError: the file or the array cannot be read, or does not hold numbers.
    """
    import numpy as np  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from gradpeel.files import Npz  # noqa: PLC0415

    with Npz(path) as file:
        chosen = field or _only(path, file.fields)
        if chosen not in file.fields:
            raise InputError(f"{path}: {chosen} missing: it holds {', '.join(file.fields)}")
        header = file.header(chosen)
        if header.dtype.kind not in "fiub":
            raise InputError(f"{path}: {chosen} of dtype {header.dtype}: expected numbers")
        if header.size * 8 > _MAX_BYTES:
            raise InputError(f"{path}: {chosen} takes more than {_MAX_BYTES} bytes in memory")
        array = file.read(chosen)
    white = 255.0 if array.dtype == np.uint8 else 1.0
    return torch.from_numpy(np.asarray(array, dtype=np.float64) / white)


def _only(path: Path, fields: tuple[str, ...]) -> str:
    if len(fields) == 1:
        return fields[0]
    for usual in _USUAL:
        if usual in fields:
            return usual
    held = ", ".join(fields) or "no arrays"
    raise InputError(f"{path}: holds {held}: choose one with --field")
