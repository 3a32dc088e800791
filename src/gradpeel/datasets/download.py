"""Fetch the original files of a data set into the cache, whole or not at all.

Addresses, checksums and the download itself are torchvision's, which is an extra: `pip install
'gradpeel[datasets]'`. Only the files are taken from it; they are read by this package, which
unpickles nothing. That is also why CIFAR is fetched in its binary version.

    >>> sorted(DOWNLOADABLE)
    ['cifar10', 'cifar100', 'emnist', 'fashion_mnist', 'mnist', 'svhn']
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs

from gradpeel.datasets.cifar import CIFAR10, CIFAR100, CifarFormat
from gradpeel.datasets.idx import EMNIST_FILES
from gradpeel.datasets.raw import is_folder
from gradpeel.errors import InputError

__all__ = ["DOWNLOADABLE", "cache_folder", "fetch"]

CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"


def cache_folder() -> Path:
    """Where downloaded data sets are kept, by the platform's convention; it need not be there."""
    return platformdirs.user_cache_path("gradpeel", appauthor=False) / "datasets"


def fetch(name: str, cache: Path) -> None:
    """Fetch the original files of a data set into `cache/<name>`.

    They are fetched into a hidden folder beside it, which is moved into place at the end and is
    gone if anything fails before. What torchvision prints goes to stderr.

    Args:
        name: one of `DOWNLOADABLE`.
        cache: the folder of all data sets; it is made if need be.

    Raises:
        InputError: why it cannot be done, in one line: torchvision is missing, there is no network,
            or the folder cannot be written to.
    """
    try:
        # An extra, and slow to import.
        from torchvision import datasets  # noqa: PLC0415
        from torchvision.datasets import utils  # noqa: PLC0415
    except ImportError:
        raise InputError("torchvision is not installed") from None
    except Exception as error:  # noqa: BLE001 -- one that does not fit torch raises RuntimeError
        raise InputError(f"torchvision cannot be imported: {_reason(error)}") from None
    with _moved_into_place(cache / name) as folder, redirect_stdout(sys.stderr):
        try:
            _FETCHERS[name](datasets, utils.download_url, folder)
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 -- urllib, http, ssl and torchvision have many
            raise InputError(f"the download failed: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def _moved_into_place(target: Path) -> Iterator[Path]:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial")
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from None
    folder = Path(made)
    try:
        yield folder
        try:
            folder.rename(target)
        except OSError as error:
            # Where another process was faster, its files are as good.
            if not is_folder(target):
                reason = error.strerror or error
                raise InputError(f"{target}: cannot be written: {reason}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# download_url(url, folder, name, md5) of torchvision shows progress and compares the checksum.
Get = Callable[[str, str, str, str], None]


def _fetch_idx(kind: str, datasets: Any, get: Get, folder: Path) -> None:  # noqa: ANN401
    source = getattr(datasets, kind)
    for name, md5 in source.resources:
        for i, mirror in enumerate(source.mirrors, 1):
            try:
                get(f"{mirror}{name}", str(folder), name, md5)
                break
            except Exception:
                if i == len(source.mirrors):
                    raise


def _fetch_emnist(datasets: Any, get: Get, folder: Path) -> None:  # noqa: ANN401
    get(datasets.EMNIST.url, str(folder), "gzip.zip", datasets.EMNIST.md5)
    archive = folder / "gzip.zip"
    wanted = {f"{name}.gz" for name in astuple(EMNIST_FILES)}
    with zipfile.ZipFile(archive) as members:
        for member in members.infolist():
            name = Path(member.filename).name
            if name in wanted:
                with members.open(member) as source, (folder / name).open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    _check_unpacked(archive, wanted)


def _fetch_svhn(datasets: Any, get: Get, folder: Path) -> None:  # noqa: ANN401
    for split in ("train", "test"):
        url, name, md5 = datasets.SVHN.split_list[split]
        get(url, str(folder), name, md5)


def _fetch_cifar(
    layout: CifarFormat,
    md5: str,
    datasets: Any,  # noqa: ANN401, ARG001 -- torchvision's own CIFAR is the pickled one
    get: Get,
    folder: Path,
) -> None:
    get(f"{CIFAR_URL}{layout.archive}", str(folder), layout.archive, md5)
    archive = folder / layout.archive
    wanted = {*layout.train, layout.test}
    with tarfile.open(archive) as members:
        for member in members:
            name = Path(member.name).name
            source = members.extractfile(member) if name in wanted and member.isfile() else None
            if source is not None:
                with source, (folder / name).open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    _check_unpacked(archive, wanted)


def _check_unpacked(archive: Path, wanted: Collection[str]) -> None:
    """Drop the archive; refuse one that lacks a file."""
    archive.unlink()
    missing = [name for name in sorted(wanted) if not (archive.parent / name).exists()]
    if missing:
        raise InputError(f"the download failed: {archive.name} lacks {', '.join(missing)}")


_FETCHERS: dict[str, Callable[[Any, Get, Path], None]] = {
    "cifar10": partial(_fetch_cifar, CIFAR10, "c32a1d4ab5d03f1284b67883e8d87530"),
    "cifar100": partial(_fetch_cifar, CIFAR100, "03b5dce01913d631647c71ecec9e9cb8"),
    "mnist": partial(_fetch_idx, "MNIST"),
    "emnist": _fetch_emnist,
    "fashion_mnist": partial(_fetch_idx, "FashionMNIST"),
    "svhn": _fetch_svhn,
}

DOWNLOADABLE = frozenset(_FETCHERS)
"""Names of the data sets that can be fetched; HARUS and ImageNet cannot."""
