"""What an audit runs on: an embedded data set, or a file of your own.

Example:
    >>> from gradpeel.datasets import draw_batch, load
    >>> data = load("digits")  # or load("mine.npz", features="standard")
    >>> draw_batch(data, 128).x.shape
    torch.Size([128, 8, 8])
"""

from __future__ import annotations

import os
from pathlib import Path

from gradpeel.datasets.dataset import FEATURES, Batch, Dataset, draw_batch, rescale
from gradpeel.datasets.embedded import EMBEDDED, assemble, load_embedded
from gradpeel.datasets.npz import load_npz
from gradpeel.errors import InputError

__all__ = [
    "EMBEDDED",
    "FEATURES",
    "Batch",
    "Dataset",
    "assemble",
    "draw_batch",
    "load",
    "load_embedded",
    "load_npz",
    "rescale",
]


def load(name_or_path: str | os.PathLike[str], features: str = "minmax") -> Dataset:
    """Load an embedded data set by name, or an `.npz` file by path.

    Args:
        name_or_path: one of `EMBEDDED`, or a path. The name wins over a file that is called the
            same; `"./digits"` and `Path("digits")` always mean the file.
        features: how float features are scaled: "minmax", "standard" or "raw"; see `rescale`.

    Raises:
        InputError: there is no such data set, or it breaks a rule.

    Example:
        >>> load("breast_cancer")
        Dataset('breast_cancer', train=400, test=169, sample_shape=(30,), classes=2)
    """
    if isinstance(name_or_path, str) and name_or_path in EMBEDDED:
        return load_embedded(name_or_path, features)
    path = Path(name_or_path)
    is_bare_word = isinstance(name_or_path, str) and path.name == name_or_path and not path.suffix
    # Most likely a misspelt name: say what there is. (os.path.exists, unlike Path's, never raises.)
    if is_bare_word and not os.path.exists(name_or_path):  # noqa: PTH110
        rule = f"expected {', '.join(EMBEDDED)} or the path of an .npz file"
        raise InputError(f"data={name_or_path!r}: {rule}")
    return load_npz(path, features)
