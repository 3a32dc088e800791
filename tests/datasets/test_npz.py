from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradpeel.datasets import load, load_npz
from gradpeel.errors import InputError

Arrays = dict[str, NDArray[Any]]


def pixels() -> Arrays:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (10, 4, 4, 3), dtype=np.uint8)
    x[0, 0, 0] = (0, 255, 128)
    y = np.arange(10) % 3
    return {"x_train": x[:6], "y_train": y[:6], "x_test": x[6:], "y_test": y[6:]}


def table() -> Arrays:
    rng = np.random.default_rng(0)
    x = rng.normal(3, 7, (10, 5)).astype(np.float32)
    y = np.arange(10) % 3
    return {"x_train": x[:6], "y_train": y[:6], "x_test": x[6:], "y_test": y[6:]}


def save(folder: Path, arrays: Arrays, name: str = "toy.npz") -> Path:
    path = folder / name
    with path.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=True, **arrays)
    return path


def refusal(path: Path, message: str) -> str:
    return "^" + re.escape(f"{path}: {message}")


def test_uint8_pixels_are_divided_by_white(tmp_path: Path) -> None:
    data = load_npz(save(tmp_path, pixels()))
    assert data.name == "toy"
    assert data.data_range == (0.0, 1.0)
    assert data.is_image
    assert data.classes == 3
    np.testing.assert_array_equal(data.x_train[0, 0, 0], [0, 1, 128 / 255])
    np.testing.assert_array_equal(data.x_test, pixels()["x_test"] / 255)


def test_flattened_pixels_are_pixels_too(tmp_path: Path) -> None:
    arrays = pixels()
    arrays |= {field: arrays[field].reshape(-1, 48) for field in ("x_train", "x_test")}
    np.testing.assert_array_equal(load_npz(save(tmp_path, arrays)).x_train, arrays["x_train"] / 255)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int16, np.uint16])
def test_other_numbers_are_minmax_scaled_by_the_training_array(tmp_path: Path, dtype: type) -> None:
    arrays = table()
    arrays |= {field: arrays[field].astype(dtype) for field in ("x_train", "x_test")}
    data = load_npz(save(tmp_path, arrays))
    x = arrays["x_train"].astype(np.float64)
    low, high = x.min(axis=0), x.max(axis=0)
    assert data.data_range == (0.0, 1.0)
    np.testing.assert_array_equal(data.x_train, (x - low) / (high - low))
    np.testing.assert_array_equal(data.x_test, (arrays["x_test"] - low) / (high - low))


def test_standard_and_raw_features(tmp_path: Path) -> None:
    path = save(tmp_path, table())
    standard, raw = load_npz(path, "standard"), load_npz(path, scaling="raw")
    np.testing.assert_allclose(standard.x_train.std(axis=0), 1)
    np.testing.assert_array_equal(raw.x_test, table()["x_test"])
    assert raw.data_range is None
    assert standard.data_range is None


def test_bits_are_features(tmp_path: Path) -> None:
    arrays = table()
    arrays |= {field: arrays[field] > 3 for field in ("x_train", "x_test")}
    assert load_npz(save(tmp_path, arrays), "raw").x_train.sum() == arrays["x_train"].sum()


def test_float_images_are_scaled_pixel_by_pixel_unless_raw(tmp_path: Path) -> None:
    arrays = table()
    arrays |= {field: arrays[field][:, :4].reshape(-1, 2, 2) for field in ("x_train", "x_test")}
    path = save(tmp_path, arrays)
    scaled = load_npz(path)
    assert scaled.is_image
    np.testing.assert_array_equal(scaled.x_train.min(axis=0), np.zeros((2, 2)))
    np.testing.assert_array_equal(load_npz(path, "raw").x_train, arrays["x_train"])


@pytest.mark.parametrize("field", ["class_names", "activity_names"])
def test_class_names_count_the_classes(tmp_path: Path, field: str) -> None:
    names = np.array(["walking", "sitting", "standing", "never seen here"])
    data = load_npz(save(tmp_path, table() | {field: names}))
    assert data.classes == 4
    assert data.class_names == tuple(names)


def test_feature_names_are_kept(tmp_path: Path) -> None:
    names = np.array(["age", "weight", "height", "pulse", "pressure"])
    assert load_npz(save(tmp_path, table() | {"feature_names": names})).feature_names == (
        "age", "weight", "height", "pulse", "pressure"
    )  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [np.array(["a", "b", "c"], dtype=object), np.array([b"a", b"b", b"c"]), np.array("abc")],
    ids=["objects", "bytes", "no list"],
)
def test_names_that_are_not_plain_text_stay_unread(tmp_path: Path, names: NDArray[Any]) -> None:
    data = load_npz(save(tmp_path, table() | {"class_names": names, "feature_names": names}))
    assert data.class_names is None
    assert data.feature_names is None
    assert data.classes == 3


def test_whatever_else_the_file_holds_stays_unread(tmp_path: Path) -> None:
    assert load_npz(save(tmp_path, table() | {"notes": np.array([{}], dtype=object)})).classes == 3


def test_fortran_order_and_foreign_byte_order(tmp_path: Path) -> None:
    arrays = table()
    foreign = {
        "x_train": np.asfortranarray(arrays["x_train"].astype(">f8")),
        "y_train": arrays["y_train"].astype(">i2"),
    }
    data, plain = (load_npz(save(tmp_path, a), "raw") for a in (arrays | foreign, arrays))
    np.testing.assert_array_equal(data.x_train, plain.x_train)
    np.testing.assert_array_equal(data.y_train, plain.y_train)


def change(field: str, edit: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[], Arrays]:
    return lambda: table() | {field: edit(table()[field])}


def set_first(value: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def edit(array: NDArray[Any]) -> NDArray[Any]:
        array.flat[0] = value
        return array

    return edit


def without(*fields: str) -> Callable[[], Arrays]:
    return lambda: {field: array for field, array in table().items() if field not in fields}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (without("x_test"), "x_test missing: expected x_train, y_train, x_test, y_test"),
        (without("x_train", "y_test"), "x_train, y_test missing: expected x_train, y_train, "),
        (
            change("x_train", lambda x: x.astype(object)),
            "x_train holds Python objects: expected numbers (nothing is unpickled)",
        ),
        (
            change("y_test", lambda y: y.astype(object)),
            "y_test holds Python objects: expected numbers (nothing is unpickled)",
        ),
        (
            change("x_train", lambda x: x.astype(complex)),
            "x_train has dtype complex128: expected real numbers",
        ),
        (change("x_test", lambda x: x.astype("U4")), "x_test has dtype <U4: expected real numbers"),
        (
            change("x_train", lambda _: np.zeros(6, dtype=[("a", "f8"), ("b", "f8")])),
            "x_train has dtype [('a', '<f8'), ('b', '<f8')]: expected real numbers",
        ),
        (
            change("y_train", lambda y: y.astype(float)),
            "y_train has dtype float64: expected integer labels",
        ),
        (
            change("y_test", lambda y: y.astype("U1")),
            "y_test has dtype <U1: expected integer labels",
        ),
        (
            change("x_test", lambda x: x.astype(np.uint8)),
            "x_test has dtype uint8, x_train float32: expected uint8 in both or in neither",
        ),
        (change("x_train", set_first(np.nan)), "x_train[0, 0]=nan: expected finite numbers"),
        (change("x_test", set_first(np.inf)), "x_test[0, 0]=inf: expected finite numbers"),
        (change("y_train", set_first(-1)), "y_train[0]=-1: expected a label in 0..2"),
        (
            change("y_train", set_first(10**9)),
            "classes=1000000001: expected 2 to 65536 (without class names: the largest label",
        ),
        (
            lambda: (
                table() | {f"y_{s}": np.zeros_like(table()[f"y_{s}"]) for s in ("train", "test")}
            ),
            "classes=1: expected 2 to 65536",
        ),
        (change("y_test", lambda y: y[:3]), "x_test has 4 samples, y_test 3 labels"),
        (change("y_train", lambda y: y[:, None]), "y_train has shape (6, 1): expected (samples,)"),
        (
            change("x_train", lambda x: x[:0]),
            "x_train has shape (0, 5): expected (samples, features ...)",
        ),
        (change("x_train", lambda x: x[:, 0]), "x_train has shape (6,): expected (samples, "),
        (change("x_train", lambda x: x.ravel()[0]), "x_train has shape (): expected (samples, "),
        (
            change("x_test", lambda x: x[:, :4]),
            "x_test has samples of shape (4,): expected (5,) as in x_train",
        ),
        (
            lambda: table() | {"class_names": np.array(["a", "b"])},
            "y_train[2]=2: expected a label in 0..1",
        ),
        (
            lambda: table() | {"feature_names": np.array(["a", "b"])},
            "feature_names holds 2 names: expected 5",
        ),
        (
            lambda: table() | {"class_names": np.array(["a", "b", "c\nd"])},
            r"class_names[2]='c\nd': expected printable text",
        ),
    ],
)
def test_refusals(tmp_path: Path, arrays: Callable[[], Arrays], message: str) -> None:
    path = save(tmp_path, arrays())
    with pytest.raises(InputError, match=refusal(path, message)) as caught:
        load_npz(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scaling", ["standard", "raw"])
def test_pixels_are_scaled_one_way_only(tmp_path: Path, scaling: str) -> None:
    path = save(tmp_path, pixels())
    rule = "expected minmax, because pixels are always scaled to [0, 1]"
    message = f"scaling='{scaling}': {path} holds pixels: {rule}"
    with pytest.raises(InputError, match=re.escape(message)):
        load_npz(path, scaling)


def test_unknown_scaling_is_refused_before_the_file_is_opened(tmp_path: Path) -> None:
    message = "^scaling='log': expected one of minmax, standard, raw$"
    with pytest.raises(InputError, match=message):
        load_npz(tmp_path / "missing.npz", "log")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "missing.npz"
    with pytest.raises(InputError, match=refusal(path, "no such file")):
        load_npz(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    message = "is a directory: expected an .npz file"
    with pytest.raises(InputError, match=refusal(tmp_path, message)):
        load_npz(tmp_path)


@pytest.mark.parametrize("path", ["a\0b.npz", "a" * 5000 + ".npz"], ids=["null byte", "too long"])
def test_an_impossible_path_is_refused(path: str) -> None:
    with pytest.raises(InputError, match=re.escape(path)):
        load_npz(path)


@pytest.mark.parametrize("content", [b"", b"x_train,y_train\n1,2\n", b"PK\x03\x04 but no more"])
def test_what_is_no_zip_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "toy.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=refusal(path, "not an .npz file (no intact zip archive)")):
        load_npz(path)


def test_a_single_npy_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "toy.npz"
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(InputError, match=refusal(path, "not an .npz file (no intact zip archive)")):
        load_npz(path)


def npy_bytes(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def replace_member(path: Path, field: str, content: bytes) -> None:
    arrays = {name: npy_bytes(array) for name, array in table().items()} | {field: content}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in arrays.items():
            archive.writestr(f"{name}.npy", data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x_test cannot be read: "),
        (b"hello", "x_test cannot be read: "),
        (b"\x93NUMPY\x01\x00\x05\x00{{{{\n", "x_test cannot be read: "),
        (b"\x93NUMPY\x09\x00\x05\x00{{{{\n", "x_test cannot be read: "),
        (
            npy_bytes(np.zeros((4, 5)))[:-8],
            "x_test claims shape (4, 5) of float64, holds 152 bytes",
        ),
        (
            npy_bytes(np.zeros((4, 5))) + b"more",
            "x_test claims shape (4, 5) of float64, holds 164 bytes",
        ),
        (
            npy_bytes(np.zeros((4, 5))).replace(b"(4, 5), }  ", b"(-4, -5), }"),
            "x_test claims shape (-4, -5) of float64, holds 160 bytes",
        ),
    ],
)
def test_damaged_arrays_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "toy.npz"
    replace_member(path, "x_test", content)
    with pytest.raises(InputError, match=refusal(path, message)) as caught:
        load_npz(path)
    assert "\n" not in str(caught.value)


def npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def test_an_array_that_claims_terabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "toy.npz"
    replace_member(path, "x_train", npy_header("<f8", (10**6, 10**6)) + bytes(100))
    message = "x_train claims shape (1000000, 1000000) of float64, holds 100 bytes"
    with pytest.raises(InputError, match=refusal(path, message)):
        load_npz(path)


def test_a_thousand_million_empty_names_are_refused_unread(tmp_path: Path) -> None:
    # Text of width 0 takes no byte in the file, and a Python string for each entry in memory.
    path = tmp_path / "toy.npz"
    replace_member(path, "class_names", npy_header("<U0", (10**9,)))
    message = "its arrays take 64000000480 bytes in memory: expected at most max_bytes=4294967296"
    with pytest.raises(InputError, match=refusal(path, message)):
        load_npz(path)


def test_size_is_counted_as_it_will_be_in_memory(tmp_path: Path) -> None:
    arrays = pixels()
    path = save(tmp_path, arrays)
    # 10 samples of 48 pixels and one label, all 8 bytes wide.
    assert load_npz(path, max_bytes=10 * 49 * 8).classes == 3
    message = "its arrays take 3920 bytes in memory: expected at most max_bytes=3919"
    with pytest.raises(InputError, match=refusal(path, message)):
        load_npz(path, max_bytes=10 * 49 * 8 - 1)


def test_a_flipped_pixel_fails_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / "toy.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for field, array in pixels().items():
            archive.writestr(f"{field}.npy", npy_bytes(array))
    content = path.read_bytes()
    image = pixels()["x_test"].tobytes()
    path.write_bytes(content.replace(image, image[:-1] + bytes([image[-1] ^ 1])))
    with pytest.raises(InputError, match=refusal(path, "x_test cannot be read: ")):
        load_npz(path)


def outcome(path: Path) -> str:
    try:
        load_npz(path)
    except InputError as error:
        return str(error)
    return f"{path} was read"


@given(data=st.data())
@settings(deadline=None, max_examples=300)
@pytest.mark.slow
def test_a_damaged_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    names = {"class_names": np.array(["a", "b", "c"])}
    stream = io.BytesIO()
    np.savez(stream, **(table() | names))  # type: ignore[arg-type]
    content = bytearray(stream.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's on headers that look like Python 2's
        told = outcome(path)
    assert str(path) in told
    assert "\n" not in told


REAL = {
    "cifar10": ((32, 32, 3), 2048, 10),
    "cifar100": ((32, 32, 3), 2048, 100),
    "emnist": ((28, 28), 2048, 26),
    "fashion_mnist": ((28, 28), 2048, 10),
    "harus": ((561,), 2048, 6),
    "imagenet": ((64, 64, 3), 1024, 200),
    "mnist": ((28, 28), 2048, 10),
    "svhn": ((32, 32, 3), 2048, 10),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_data(data_dir: Path, name: str) -> None:
    path = data_dir / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"no {path}")
    data = load(path)
    assert (data.sample_shape, len(data.x_train), data.classes) == REAL[name]
    assert len(data.x_test) == 1024
    assert data.data_range == (0.0, 1.0)
    assert (data.x_train.min(), data.x_train.max()) == (0, 1)


@pytest.mark.slow
def test_real_names(data_dir: Path) -> None:
    path = data_dir / "harus.npz"
    if not path.exists():
        pytest.skip(f"no {path}")
    names = load(path).class_names
    assert names is not None
    assert names[0].lower().startswith("walking")
