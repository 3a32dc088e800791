"""Options of the data, as several commands have them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "ROUND",
    "ChannelsFirst",
    "DataDir",
    "DataName",
    "ImageSize",
    "LabelColumn",
    "Scaling",
    "ScalingName",
]

ROUND = "The training round"


class ScalingName(StrEnum):
    """How float features are scaled."""

    MINMAX = "minmax"
    STANDARD = "standard"
    RAW = "raw"


DataName = Annotated[
    str,
    typer.Option(
        metavar="NAME_OR_FILE",
        help="A data set or a file of your own. digits, breast_cancer and photos come with "
        "gradpeel. cifar10, cifar100, mnist, emnist, fashion_mnist, svhn, imagenet and harus "
        "are looked up in --data-dir and in the cache, and downloaded otherwise. A file is "
        ".npz (with x_train, y_train and, if you like, x_test, y_test), .csv or .parquet.",
        rich_help_panel=ROUND,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Directory that holds the named data set: NAME.npz, or the original files.",
        show_default="the cache",
        rich_help_panel=ROUND,
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column of labels of a .csv or .parquet file.",
        show_default="the last one called label, labels, target, targets or y",
        rich_help_panel=ROUND,
    ),
]
ImageSize = Annotated[
    int | None,
    typer.Option(
        help="Height and width to which ImageNet's images are scaled.",
        show_default="64",
        rich_help_panel=ROUND,
    ),
]
Scaling = Annotated[
    ScalingName,
    typer.Option(
        help="How float features are scaled: to 0..1, to mean 0 and deviation 1 (both over the "
        "training split), or not at all. Pixels are always scaled to 0..1.",
        rich_help_panel=ROUND,
    ),
]
ChannelsFirst = Annotated[
    bool,
    typer.Option(
        "--channels-first/--channels-last",
        help="Hand images to the network as (channels, height, width), as PyTorch's "
        "convolutions expect them, or as (height, width, channels).",
        rich_help_panel=ROUND,
    ),
]
