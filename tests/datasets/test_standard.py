from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gradpeel.datasets import STANDARD, Dataset, load, load_standard, rescale, standard
from gradpeel.errors import InputError
from original_files import (
    pixels,
    write_cifar10,
    write_cifar100,
    write_har,
    write_idx,
    write_images,
    write_svhn,
)

Y = np.array([5, 0, 4, 1, 9])
GREY, COLOUR = pixels(5, 28, 28), pixels(5, 32, 32, 3)
TABLE = np.random.default_rng(0).uniform(-1, 1, (5, 561)).round(7)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)


def test_titles_are_the_paper_s() -> None:
    assert {name: spec.title for name, spec in STANDARD.items()} == {
        "cifar10": "CIFAR-10",
        "cifar100": "CIFAR-100",
        "emnist": "EMNIST",
        "fashion_mnist": "Fashion-MNIST",
        "harus": "HARUS",
        "imagenet": "ImageNet",
        "mnist": "MNIST",
        "svhn": "SVHN",
    }
    assert all(spec.name == name for name, spec in STANDARD.items())


def write_mnist(folder: Path) -> None:
    write_idx(folder, GREY, Y)


def write_emnist(folder: Path) -> None:
    write_idx(folder, GREY.transpose(0, 2, 1), Y, prefix="emnist-byclass-", test="test")


WRITERS: dict[str, Callable[[Path], object]] = {
    "cifar10": lambda folder: write_cifar10(folder, COLOUR, Y),
    "cifar100": lambda folder: write_cifar100(folder, COLOUR, Y),
    "mnist": write_mnist,
    "emnist": write_emnist,
    "fashion_mnist": write_mnist,
    "svhn": lambda folder: write_svhn(folder, COLOUR, Y),
    "harus": lambda folder: write_har(folder, TABLE, Y % 6),
}

PLACES = [
    *(("cifar10", place) for place in ("cifar10", "cifar-10-batches-bin", ".")),
    *(("cifar100", place) for place in ("cifar100", "cifar-100-binary", ".")),
    *(("mnist", place) for place in ("mnist", "MNIST/raw")),
    *(("fashion_mnist", place) for place in ("fashion_mnist", "FashionMNIST/raw")),
    *(("emnist", place) for place in ("emnist", "emnist/gzip", "gzip", "EMNIST/raw", ".")),
    *(("svhn", place) for place in ("svhn", ".")),
    *(("harus", place) for place in ("harus", "UCI HAR Dataset", ".")),
]


@pytest.mark.parametrize("where", ["data_dir", "cache"])
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_original_files_are_found(
    tmp_path: Path, cache: Path, name: str, place: str, where: str
) -> None:
    folder = cache if where == "cache" else tmp_path
    WRITERS[name](folder / place)
    data = load(name, data_dir=tmp_path)
    spec = STANDARD[name]
    assert (data.name, data.classes, data.sample_shape) == (name, spec.classes, spec.sample_shape)
    assert data.data_range == (0.0, 1.0)
    assert data.class_names is not None
    if spec.is_image:
        assert data.y_train.tolist() == Y.tolist()
        images = GREY if len(spec.sample_shape) == 2 else COLOUR
        np.testing.assert_array_equal(data.x_train, images / 255)
        np.testing.assert_array_equal(data.x_test, images[::-1] / 255)


def test_mnist_and_fashion_mnist_are_never_mixed_up(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for name in ("mnist", "fashion_mnist"):
        with pytest.raises(InputError, match=f"^data='{name}': not in "):
            load(name, data_dir=tmp_path)


def save_npz(path: Path, x: NDArray[Any], y: NDArray[np.int64] = Y) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)


def test_data_dir_wins_over_the_cache_and_npz_over_original_files(
    tmp_path: Path, cache: Path
) -> None:
    save_npz(cache / "mnist.npz", np.full((5, 28, 28), 255, np.uint8))
    assert load("mnist").x_train.min() == 1
    assert load("mnist", data_dir=tmp_path).x_train.min() == 1
    write_mnist(tmp_path / "mnist")
    np.testing.assert_array_equal(load("mnist", data_dir=tmp_path).x_train, GREY / 255)
    save_npz(tmp_path / "mnist.npz", np.zeros((5, 28, 28), np.uint8))
    assert load("mnist", data_dir=tmp_path).x_train.max() == 0


def test_images_in_class_folders_serve_any_image_set(tmp_path: Path) -> None:
    shape = STANDARD["cifar10"].sample_shape
    names = [f"{split}/{c}/{i}.png" for split in ("train", "test") for c in "abc" for i in (0, 1)]
    write_images(tmp_path / "cifar10", {n: pixels(1, *shape)[0] for n in names})
    data = load("cifar10", data_dir=tmp_path)
    assert data.y_train.tolist() == [0, 1, 2, 0, 1, 2]
    assert STANDARD["cifar10"].difference(data) == "3 classes instead of 10"
    (tmp_path / "cifar10").rename(tmp_path / "mnist")
    with pytest.raises(InputError, match=r"0\.png: has 32 x 32 pixels: expected 28 x 28"):
        load("mnist", data_dir=tmp_path)


@pytest.mark.parametrize("place", ["imagenet", "tiny-imagenet-200", "."])
@pytest.mark.parametrize("size", [None, 64, 224, 7])
def test_imagenet_is_scaled(tmp_path: Path, place: str, size: int | None) -> None:
    names = [f"{split}/{c}/{i}.JPEG" for split in ("train", "val") for c in "ab" for i in (0, 1)]
    images = {name: np.full((90, 100, 3), 51, np.uint8) for name in names}
    write_images(tmp_path / place, images)
    data = load("imagenet", data_dir=tmp_path, image_size=size)
    assert data.sample_shape == (size or 64, size or 64, 3)
    np.testing.assert_allclose(data.x_train, 0.2)
    assert STANDARD["imagenet"].difference(data) == "2 classes instead of 1000"


@pytest.mark.parametrize(("size", "found"), [(None, 32), (224, 64)])
def test_an_npz_of_another_size_is_not_scaled(tmp_path: Path, size: int | None, found: int) -> None:
    path = tmp_path / "imagenet.npz"
    save_npz(path, np.zeros((5, found, found, 3), np.uint8))
    shape = (size or 64, size or 64, 3)
    rule = f"x_train has samples of shape ({found}, {found}, 3): expected {shape} (nothing is resi"
    with pytest.raises(InputError, match="^" + re.escape(f"{path}: {rule}")):
        load("imagenet", data_dir=tmp_path, image_size=size)


@pytest.mark.parametrize("scaling", ["minmax", "standard", "raw"])
@pytest.mark.parametrize("limit", [None, 2])
def test_harus_is_scaled_by_the_whole_training_split(
    tmp_path: Path, scaling: str, limit: int | None
) -> None:
    write_har(tmp_path / "harus", TABLE, Y % 6)
    data = load("harus", scaling, data_dir=tmp_path, limit=limit)
    raw = Dataset("harus", TABLE, Y % 6, TABLE[::-1], Y[::-1] % 6, classes=6)
    np.testing.assert_array_equal(data.x_train, rescale(raw, scaling).x_train[:limit])
    np.testing.assert_array_equal(data.x_test, rescale(raw, scaling).x_test[:limit])
    assert data.feature_names is not None


@pytest.mark.parametrize("name", [*WRITERS, "imagenet"])
def test_a_limit_takes_the_first_samples_of_each_split(tmp_path: Path, name: str) -> None:
    if name == "imagenet":
        save_npz(tmp_path / "imagenet.npz", pixels(5, 64, 64, 3))
    else:
        WRITERS[name](tmp_path / name)
    whole, short = (load(name, data_dir=tmp_path, limit=limit) for limit in (None, 3))
    assert (len(whole.x_train), len(short.x_train), len(short.x_test)) == (5, 3, 3)
    for array in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(short, array), getattr(whole, array)[:3])
    assert short.classes == whole.classes


def test_the_default_limit_keeps_to_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "mnist")
    assert (standard.MAX_SAMPLES, standard.MAX_BYTES) == (4096, 2**31)
    for names, value in (("MAX_SAMPLES", 2), ("MAX_BYTES", 3 * 28 * 28 * 8)):
        with monkeypatch.context() as patch:
            patch.setattr(standard, names, value)
            count = 2 if names == "MAX_SAMPLES" else 3
            assert len(load("mnist", data_dir=tmp_path).x_train) == count
            assert len(load("mnist", data_dir=tmp_path, limit=4).x_train) == 4


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("iris", {}, "data='iris': expected one of cifar10, cifar100, mnist, emnist, fashion_mni"),
        ("mnist", {"image_size": 28}, "image_size=28: mnist has images of one size: only imagenet"),
        ("harus", {"image_size": 28}, "image_size=28: harus has "),
        ("imagenet", {"image_size": 0}, "image_size=0: expected a positive integer"),
        ("imagenet", {"image_size": 64.0}, "image_size=64.0: expected a positive integer"),
        ("imagenet", {"image_size": 5000}, "image_size=5000: expected at most 1024"),
        ("mnist", {"limit": 0}, "limit=0: expected a positive integer"),
        ("mnist", {"limit": True}, "limit=True: expected a positive integer"),
        ("mnist", {"limit": 2.0}, "limit=2.0: expected a positive integer"),
        ("mnist", {"data_dir": "nowhere"}, "data_dir='nowhere': no such directory"),
        ("mnist", {"data_dir": "a\0b"}, r"data_dir='a\x00b': no such directory"),
        ("mnist", {"data_dir": "a" * 5000}, "data_dir='aaaa"),
        ("mnist", {"scaling": "standard"}, "scaling='standard': mnist holds pixels: expected mi"),
        ("harus", {"scaling": "log"}, "scaling='log': expected one of minmax, standard, raw"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="^" + re.escape(message)):
        load_standard(name, **options)


def test_what_is_nowhere_is_told_with_the_ways_out(tmp_path: Path, cache: Path) -> None:
    found = f"data='mnist': not in {tmp_path} or {cache}, and not downloaded: torchvision is not "
    files = "a folder mnist with train-images-idx3-ubyte[.gz] and its three companions"
    put = f"Either put mnist.npz, or {files}, into a directory and give it as --data-dir"
    message = f"{found}installed. {put}, or pip install 'gradpeel[datasets]' and be online"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load("mnist", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("harus", "Get it from the UCI Machine Learning Repository (data set 240), put harus.npz"),
        ("imagenet", "Get it from image-net.org (ILSVRC 2012; with an account), put imagenet.npz"),
    ],
)
def test_what_cannot_be_downloaded_is_told_where_to_get(name: str, source: str) -> None:
    with pytest.raises(InputError, match=re.escape(source)) as caught:
        load(name)
    assert "pip install" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_pickled_version_of_cifar_is_refused(tmp_path: Path) -> None:
    for place, names in (("10-batches-py", ["data_batch_1"]), ("100-python", ["train", "meta"])):
        folder = tmp_path / f"cifar-{place}"
        folder.mkdir()
        for name in names:
            (folder / name).write_bytes(b"cos\nsystem\n")
    for name in ("cifar10", "cifar100"):
        with pytest.raises(InputError, match="holds the pickled python version: expected the bin"):
            load(name, data_dir=tmp_path)
        WRITERS[name](tmp_path / name)
        assert load(name, data_dir=tmp_path).y_train.tolist() == Y.tolist()


@pytest.mark.parametrize("name", STANDARD)
def test_the_first_labels_tell_another_split(name: str) -> None:
    spec = STANDARD[name]
    first = np.array(spec.first_labels or (0, 1, 2))
    x = np.zeros((len(first), *spec.sample_shape))

    def differ(y: NDArray[np.int64], classes: int = spec.classes) -> str | None:
        return spec.difference(Dataset(name, x[: len(y)], y, x, first, classes=classes))

    assert differ(first) is None
    assert differ(first[:2]) is None
    assert (
        differ(first, spec.classes + 1) == f"{spec.classes + 1} classes instead of {spec.classes}"
    )
    changed = first.copy()
    changed[-1] = (changed[-1] + 1) % spec.classes
    expected = "not the official training split in its order" if spec.first_labels else None
    assert differ(changed) == expected


@pytest.mark.slow
def test_real_data_that_is_not_the_official_one_is_marked(data_dir: Path) -> None:
    marked = {}
    for name, spec in STANDARD.items():
        if not (data_dir / f"{name}.npz").exists():
            pytest.skip(f"no {name}.npz in {data_dir}")
        data = load(name, data_dir=data_dir, limit=16)
        assert (data.name, len(data.x_train), data.data_range) == (name, 16, (0.0, 1.0))
        marked[name] = spec.difference(data)
    assert {name: text for name, text in marked.items() if text} == {
        "cifar100": "not the official training split in its order",
        "emnist": "26 classes instead of 62",
        "imagenet": "200 classes instead of 1000",
        "svhn": "not the official training split in its order",
    }
