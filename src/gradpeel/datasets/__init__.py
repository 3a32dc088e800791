"""What an audit runs on: an embedded data set, a standard one, or a file of your own.

Example:
    >>> from gradpeel.datasets import draw_batch, load
    >>> data = load("digits")  # or load("mine.npz", scaling="standard")
    >>> draw_batch(data, 128).x.shape
    torch.Size([128, 8, 8])
"""

from __future__ import annotations

import os
from pathlib import Path

from gradpeel.datasets.dataset import (
    SCALINGS,
    Batch,
    Dataset,
    draw_batch,
    rescale,
    with_channels_first,
)
from gradpeel.datasets.embedded import EMBEDDED, assemble, load_embedded
from gradpeel.datasets.npz import load_npz
from gradpeel.datasets.standard import STANDARD, StandardSet, first_samples, load_standard
from gradpeel.datasets.table import from_frame
from gradpeel.datasets.table_files import READERS, load_table
from gradpeel.errors import InputError

__all__ = [
    "EMBEDDED",
    "SCALINGS",
    "STANDARD",
    "Batch",
    "Dataset",
    "StandardSet",
    "assemble",
    "draw_batch",
    "from_frame",
    "load",
    "load_embedded",
    "load_npz",
    "load_standard",
    "load_table",
    "rescale",
    "with_channels_first",
]


def load(
    name_or_path: str | os.PathLike[str],
    scaling: str = "minmax",
    *,
    data_dir: str | os.PathLike[str] | None = None,
    image_size: int | None = None,
    limit: int | None = None,
    label_column: str | None = None,
    channels_first: bool = False,
) -> Dataset:
    """Load an embedded or a standard data set by name, or an .npz, .csv or .parquet file by path.

    Args:
        name_or_path: one of `EMBEDDED` or `STANDARD`, or a path. The name wins over a file that is
            called the same; `"./digits"` and `Path("digits")` always mean the file.
        scaling: how float features are scaled: "minmax", "standard" or "raw"; see `rescale`.
        data_dir: where to look for a standard data set first; see `load_standard`.
        image_size: height and width of ImageNet's images.
        limit: the number of samples to take from each split, at most. By default all; of a
            standard data set at most 4,096, see `load_standard`.
        label_column: name of the column of labels of a .csv or .parquet file, see `load_table`.
        channels_first: lay out images as (channels, height, width), as PyTorch's convolutions
            expect them.

    Raises:
        InputError: there is no such data set, or it breaks a rule.

    Example:
        >>> load("breast_cancer")
        Dataset('breast_cancer', train=400, test=169, sample_shape=(30,), classes=2)
    """
    if channels_first:
        images = load(
            name_or_path,
            scaling,
            data_dir=data_dir,
            image_size=image_size,
            limit=limit,
            label_column=label_column,
        )
        return with_channels_first(images)
    is_name = isinstance(name_or_path, str)
    is_known = is_name and name_or_path in {*EMBEDDED, *STANDARD}
    is_table = not is_known and Path(name_or_path).suffix.lower() in READERS
    if label_column is not None and not is_table:
        rule = f"only a file ending in {' or '.join(READERS)} has columns"
        raise InputError(f"label_column={label_column!r}: data={str(name_or_path)!r}: {rule}")
    if is_name and name_or_path in STANDARD:
        return load_standard(
            str(name_or_path), data_dir, scaling=scaling, image_size=image_size, limit=limit
        )
    for option, value in (("data_dir", data_dir), ("image_size", image_size)):
        if value is not None:
            rule = f"expected data to be one of {', '.join(STANDARD)}"
            raise InputError(f"{option}={str(value)!r}: data={str(name_or_path)!r}: {rule}")
    if is_name and name_or_path in EMBEDDED:
        return first_samples(load_embedded(str(name_or_path), scaling), limit)
    path = Path(name_or_path)
    is_bare_word = is_name and path.name == name_or_path and not path.suffix
    # Most likely a misspelt name: say what there is. (os.path.exists, unlike Path's, never raises.)
    if is_bare_word and not os.path.exists(name_or_path):  # noqa: PTH110
        names = ", ".join((*EMBEDDED, *STANDARD))
        raise InputError(
            f"data={name_or_path!r}: expected {names} or the path of an .npz, .csv or .parquet file"
        )
    if is_table:
        return first_samples(load_table(path, scaling, label_column=label_column), limit)
    return first_samples(load_npz(path, scaling), limit)
