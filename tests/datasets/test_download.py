"""Downloads, with a torchvision that fetches from memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from gradpeel.datasets import load_standard
from gradpeel.datasets.download import DOWNLOADABLE, cache_folder, fetch
from gradpeel.errors import InputError
from original_files import (
    idx_bytes,
    pixels,
    write_cifar10,
    write_cifar100,
    write_idx,
    write_svhn,
)

Y = np.array([5, 0, 4, 1, 9])
CIFAR = "https://www.cs.toronto.edu/~kriz/"


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass
class Web:
    """What the fake network holds, by address, and what was asked for."""

    pages: dict[str, bytes]
    asked: list[str] = field(default_factory=list)
    checksums: list[str] = field(default_factory=list)
    on_ask: Callable[[str], None] = lambda _: None

    def download_url(self, url: str, root: str, filename: str, md5: str) -> None:
        print(f"Downloading {url}")  # noqa: T201 -- some versions of torchvision do
        self.asked.append(url)
        self.checksums.append(md5)
        # torchvision writes as it reads, so a failure leaves the beginning of the file.
        (Path(root) / filename).write_bytes(self.pages.get(url, b"")[:10])
        self.on_ask(url)
        if url not in self.pages:
            raise OSError(f"<urlopen error\n no route to {url}>")
        (Path(root) / filename).write_bytes(self.pages[url])


def tar(folder: Path, inner: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        archive.add(folder, inner)
    return stream.getvalue()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Web:
    """A torchvision with its tables, and small files at the addresses in them."""
    grey, colour = pixels(5, 28, 28), pixels(5, 32, 32, 3)
    write_idx(tmp_path / "mnist", grey, Y, gz=True)
    write_idx(tmp_path / "fashion", grey, Y[::-1], gz=True)
    write_idx(tmp_path / "gzip", grey, Y + 50, prefix="emnist-byclass-", test="test", gz=True)
    (tmp_path / "gzip/emnist-letters-mapping.txt").write_text("1 65 97")
    write_cifar10(tmp_path / "ten", colour, Y)
    (tmp_path / "ten/readme.html").write_text("hello")
    write_cifar100(tmp_path / "hundred", colour, Y + 90)
    write_svhn(tmp_path / "svhn", colour, Y)

    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        for name, content in files_of(tmp_path / "gzip").items():
            archive.writestr(f"gzip/{name}", content)
    pages = {"https://emnist/gzip.zip": zipped.getvalue()}
    pages |= {f"https://good/{n}": c for n, c in files_of(tmp_path / "mnist").items()}
    pages |= {f"https://fashion/{n}": c for n, c in files_of(tmp_path / "fashion").items()}
    pages |= {f"https://svhn/{n}": c for n, c in files_of(tmp_path / "svhn").items()}
    pages[f"{CIFAR}cifar-10-binary.tar.gz"] = tar(tmp_path / "ten", "cifar-10-batches-bin")
    pages[f"{CIFAR}cifar-100-binary.tar.gz"] = tar(tmp_path / "hundred", "cifar-100-binary")
    web = Web(pages)

    def listed(folder: str) -> list[tuple[str, str]]:
        return [(name, md5(content)) for name, content in files_of(tmp_path / folder).items()]

    datasets = ModuleType("torchvision.datasets")
    vars(datasets).update(
        MNIST=SimpleNamespace(
            mirrors=["https://gone/", "https://good/"], resources=listed("mnist")
        ),
        FashionMNIST=SimpleNamespace(mirrors=["https://fashion/"], resources=listed("fashion")),
        EMNIST=SimpleNamespace(url="https://emnist/gzip.zip", md5=md5(zipped.getvalue())),
        SVHN=SimpleNamespace(
            split_list={
                split: [f"https://svhn/{split}_32x32.mat", f"{split}_32x32.mat", "123"]
                for split in ("train", "test", "extra")
            }
        ),
    )
    utils = ModuleType("torchvision.datasets.utils")
    vars(utils).update(download_url=web.download_url)
    vars(datasets).update(utils=utils)
    torchvision = ModuleType("torchvision")
    vars(torchvision).update(datasets=datasets)
    for module in (torchvision, datasets, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return web


EXPECTED = {
    "cifar10": ((32, 32, 3), 10, Y),
    "cifar100": ((32, 32, 3), 100, Y + 90),
    "mnist": ((28, 28), 10, Y),
    "fashion_mnist": ((28, 28), 10, Y[::-1]),
    "emnist": ((28, 28), 62, Y + 50),
    "svhn": ((32, 32, 3), 10, Y),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_download_is_read_and_the_next_time_found_in_the_cache(
    web: Web, cache: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shape, classes, labels = EXPECTED[name]
    data = load_standard(name)
    assert (data.sample_shape, data.classes) == (shape, classes)
    assert data.y_train.tolist() == labels.tolist()
    assert web.asked
    web.asked.clear()
    again = load_standard(name)
    np.testing.assert_array_equal(again.x_train, data.x_train)
    assert not web.asked
    assert [path.name for path in cache.iterdir()] == [name]
    assert "Downloading" in (shown := capsys.readouterr()).err
    assert shown.out == ""


def test_all_that_can_be_downloaded_is_tested() -> None:
    assert EXPECTED.keys() == DOWNLOADABLE
    assert cache_folder().name == "datasets"


def test_only_the_files_that_are_read_are_kept(web: Web, cache: Path) -> None:
    for name in DOWNLOADABLE:
        fetch(name, cache)
    kept = {name: sorted(files_of(cache / name)) for name in DOWNLOADABLE}
    assert kept["cifar10"] == [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    assert kept["cifar100"] == ["test.bin", "train.bin"]
    assert len(kept["emnist"]) == len(kept["mnist"]) == 4
    assert all(name.startswith("emnist-byclass-") for name in kept["emnist"])
    assert kept["svhn"] == ["test_32x32.mat", "train_32x32.mat"]
    assert web.asked


def test_each_checksum_is_handed_to_torchvision(web: Web, cache: Path) -> None:
    for name in ("cifar10", "cifar100", "emnist", "fashion_mnist"):
        fetch(name, cache)
    real = ["c32a1d4ab5d03f1284b67883e8d87530", "03b5dce01913d631647c71ecec9e9cb8"]
    assert web.checksums == real + [md5(web.pages[url]) for url in web.asked[2:]]


def test_the_next_mirror_is_tried(web: Web, cache: Path) -> None:
    fetch("mnist", cache)
    assert [url.split("/")[2] for url in web.asked] == ["gone", "good"] * 4


@pytest.mark.parametrize("name", EXPECTED)
def test_a_failed_download_leaves_nothing(web: Web, cache: Path, name: str) -> None:
    # The last file is missing: those before it are fetched.
    fetch(name, cache / "other")
    last = web.asked[-1]
    del web.pages[last]
    with pytest.raises(InputError, match=r"the download failed: <urlopen error no route to http"):
        load_standard(name)
    assert [path.name for path in cache.iterdir()] == ["other"]


@pytest.mark.parametrize("name", EXPECTED)
def test_an_interrupted_download_leaves_nothing(web: Web, cache: Path, name: str) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    web.on_ask = interrupt
    with pytest.raises(KeyboardInterrupt):
        load_standard(name)
    assert not list(cache.iterdir())


@pytest.mark.parametrize(
    ("name", "url", "reason"),
    [
        ("cifar10", f"{CIFAR}cifar-10-binary.tar.gz", "the download failed: "),
        ("emnist", "https://emnist/gzip.zip", "the download failed: File is not a zip"),
    ],
)
def test_a_damaged_archive_leaves_nothing(
    web: Web, cache: Path, name: str, url: str, reason: str
) -> None:
    web.pages[url] = b"hello"
    with pytest.raises(InputError, match=reason):
        load_standard(name)
    assert not list(cache.iterdir())


def test_an_archive_that_lacks_a_file_is_refused(web: Web, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "ten/data_batch_4.bin").unlink()
    web.pages[f"{CIFAR}cifar-10-binary.tar.gz"] = tar(tmp_path / "ten", "cifar-10-batches-bin")
    message = r"the download failed: cifar-10-binary\.tar\.gz lacks data_batch_4\.bin"
    with pytest.raises(InputError, match=message):
        load_standard("cifar10")
    assert not list(cache.iterdir())


def test_who_was_faster_is_as_good(web: Web, cache: Path) -> None:
    """Another process puts the same files in place meanwhile."""
    first = True

    def meanwhile(_: str) -> None:
        nonlocal first
        if first:
            first = False
            fetch("svhn", cache)

    web.on_ask = meanwhile
    assert load_standard("svhn").y_train.tolist() == Y.tolist()
    assert [path.name for path in cache.iterdir()] == ["svhn"]


@pytest.mark.usefixtures("web")
def test_a_cache_that_cannot_be_made_is_told(cache: Path) -> None:
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"mnist: cannot be written: Not a directory"):
        load_standard("mnist")


def test_without_torchvision_the_message_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(InputError, match="not downloaded: torchvision is not installed") as caught:
        load_standard("mnist")
    assert "pip install 'gradpeel[datasets]' and be online" in str(caught.value)
    assert not cache.exists()


def test_a_torchvision_that_does_not_fit_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside another torch it fails with an error that is no ImportError."""
    (tmp_path / "torchvision").mkdir()
    code = "raise RuntimeError('operator torchvision::nms\\n does not exist')"
    (tmp_path / "torchvision/__init__.py").write_text(code)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    message = "torchvision cannot be imported: operator torchvision::nms does not exist"
    with pytest.raises(InputError, match=message):
        load_standard("mnist")


def test_nothing_is_downloaded_where_that_is_not_wanted(web: Web, cache: Path) -> None:
    with pytest.raises(InputError, match="not downloaded: download=False"):
        load_standard("mnist", download=False)
    assert not web.asked
    assert not cache.exists()


def test_a_damaged_file_in_the_cache_is_named(web: Web, cache: Path) -> None:
    fetch("mnist", cache)
    path = cache / "mnist/t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(Y.astype(np.uint8))[:-1]))
    with pytest.raises(InputError, match="ends after 4 of 5 bytes"):
        load_standard("mnist")
    assert len(web.asked) == 8
