"""Updates and their files: what goes in comes out, and what is wrong is named."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor

from gradpeel import update as module
from gradpeel.checks import DTYPES
from gradpeel.errors import InputError
from gradpeel.files import write_npz
from gradpeel.training import LocalTraining
from gradpeel.update import Reduction, Update, load_tensors, load_update, norm, save_update

ENDINGS = [".safetensors", ".npz"]


@st.composite
def updates(draw: st.DrawFn, *, dtypes: tuple[torch.dtype, ...] = DTYPES) -> Update:
    dtype = draw(st.sampled_from(dtypes))
    names = st.from_regex(r"[a-z0-9_]{1,5}(\.[a-z0-9_]{1,6}){1,3}", fullmatch=True)
    shapes = st.dictionaries(names, st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=4)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    gradients = {
        name: torch.randn(shape, generator=generator).to(dtype)
        for name, shape in draw(shapes).items()
    }
    size = draw(st.none() | st.integers(1, 10**9 - 1))
    trainings = st.builds(
        LocalTraining,
        lr=st.none() | st.floats(1e-6, 10),
        steps=st.none() | st.integers(1, 10**12),
        momentum=st.floats(0, 0.99),
        weight_decay=st.floats(0, 1),
    )
    reduction: Reduction = draw(st.sampled_from(["mean", "sum"]))
    return Update(gradients, size, reduction, draw(st.none() | trainings))


def assert_same(one: Update, other: Update) -> None:
    assert one.gradients.keys() == other.gradients.keys()
    for name, gradient in one.gradients.items():
        assert gradient.dtype == other.gradients[name].dtype
        assert torch.equal(gradient, other.gradients[name])
    assert (one.batch_size, one.reduction) == (other.batch_size, other.reduction)
    assert one.training == other.training


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=60)
@given(data=st.data())
@pytest.mark.slow
def test_what_is_saved_is_loaded(ending: str, data: st.DataObject) -> None:
    # npz knows no bfloat16.
    dtypes = DTYPES if ending == ".safetensors" else (torch.float64, torch.float32)
    update = data.draw(updates(dtypes=(*dtypes, torch.float16)))
    with TemporaryDirectory() as folder:
        path = save_update(update, Path(folder) / f"update{ending}")
        assert_same(load_update(path), update)
        # What the file says may be repeated.
        assert_same(
            load_update(str(path), batch_size=update.batch_size, reduction=update.reduction), update
        )
        assert [file.name for file in Path(folder).iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("value", [0.0, -0.0, 5e-324, 2.2e-308, 1.7976931348623157e308, -1 / 3])
def test_numbers_keep_every_bit(tmp_path: Path, ending: str, value: float) -> None:
    sent = torch.tensor([[value]], dtype=torch.float64)
    path = save_update(Update({"0.weight": sent}, 1), tmp_path / f"u{ending}")
    loaded = load_update(path).gradients["0.weight"]
    assert torch.equal(loaded.view(torch.int64), sent.view(torch.int64))


@pytest.mark.parametrize("ending", ENDINGS)
def test_views_and_tensors_with_history_are_saved_too(tmp_path: Path, ending: str) -> None:
    whole = torch.arange(12.0).reshape(3, 4).requires_grad_()
    update = Update({"a": whole.T, "b": whole.double().float()[::2]}, 2)
    loaded = load_update(save_update(update, tmp_path / f"u{ending}"))
    assert torch.equal(loaded.gradients["a"], whole.T)
    assert torch.equal(loaded.gradients["b"], whole[::2])


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J", "é", "../a", "/a", "a.npy", "a" * 10_000])
def test_whatever_a_tensor_is_called_it_comes_back(tmp_path: Path, ending: str, name: str) -> None:
    path = save_update(Update({name: torch.ones(2)}, 1), tmp_path / f"u{ending}")
    assert list(load_update(path).gradients) == [name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_saving_replaces_what_was_there(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"u{ending}"
    path.write_text("something else")
    save_update(simple(batch_size=3), path)
    assert load_update(path).batch_size == 3


def simple(batch_size: int = 4, dtype: torch.dtype = torch.float32) -> Update:
    return Update({"0.weight": torch.ones(3, 2, dtype=dtype)}, batch_size)


def npz(folder: Path, meta: object = None, **arrays: Any) -> Path:
    """An npz file of arrays; `meta` is the text beside them, as it is or to be made JSON."""
    path = folder / "u.npz"
    if meta is not None:
        arrays["__gradpeel__"] = np.array(meta if isinstance(meta, str) else json.dumps(meta))
    np.savez(path, **arrays)
    return path


def tensors(folder: Path, content: Mapping[str, Tensor], **meta: str) -> Path:
    path = folder / "u.safetensors"
    path.write_bytes(save(dict(content), metadata=meta))
    return path


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_files_of_others_need_not_say_a_thing(tmp_path: Path, reduction: Reduction) -> None:
    for path in (
        npz(tmp_path, a=np.ones(3)),
        npz(tmp_path, {"format": "another"}, a=np.ones(3)),
        tensors(tmp_path, {"a": torch.ones(3)}),
    ):
        update = load_update(path)
        assert (update.batch_size, update.reduction) == (None, "mean")
        assert load_update(path, batch_size=5).reduction == "mean"
        update = load_update(path, batch_size=5, reduction=reduction)
        assert (update.batch_size, update.reduction) == (5, reduction)


def test_tensors_come_with_the_text_beside_them(tmp_path: Path) -> None:
    found, meta = load_tensors(tensors(tmp_path, {"a": torch.ones(3)}, note="hello"))
    assert list(found) == ["a"]
    assert meta == {"note": "hello"}
    assert load_tensors(npz(tmp_path, meta={"note": 1}, a=np.ones(3)))[1] == {"note": "1"}
    assert load_tensors(npz(tmp_path, a=np.ones(3)))[1] == {}


def test_what_an_update_says_of_itself() -> None:
    update = Update({"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3)}, 4, "sum")
    assert repr(update) == "Update(2 tensors, 9 numbers, float32, batch_size=4, reduction='sum')"
    assert (update.dtype, update.share) == (torch.float32, 1.0)
    assert Update(update.gradients, 4).share == 0.25


def test_what_an_update_says_without_a_batch_size() -> None:
    update = Update({"0.weight": torch.ones(3, 2)})
    said = "Update(1 tensors, 6 numbers, float32, batch_size=unknown, reduction='mean')"
    assert repr(update) == said
    assert update.share is None
    assert Update(update.gradients, reduction="sum").share == 1.0


def test_norm_is_over_all_tensors_and_in_float64() -> None:
    assert norm({"a": torch.tensor([3.0]), "b": torch.tensor([[4.0]])}) == 5.0
    assert norm({}) == 0.0
    # The square of 1000 is no number in float16.
    assert norm({"a": torch.tensor([1000.0], dtype=torch.float16)}) == 1000.0


# What is wrong with an update ----------------------------------------------------------------

GOOD = {"0.weight": torch.ones(2)}
WRONG_UPDATES: list[tuple[Callable[[], object], str]] = [
    (lambda: Update(GOOD, 0), "batch_size=0: expected a positive integer"),
    (lambda: Update(GOOD, -1), "batch_size=-1: expected a positive integer"),
    (lambda: Update(GOOD, True), "batch_size=True: expected a positive integer"),
    (lambda: Update(GOOD, "8"), "batch_size='8': expected a positive integer"),  # type: ignore[arg-type]
    (lambda: Update(GOOD, 1.5), "batch_size=1.5: expected a positive integer"),  # type: ignore[arg-type]
    (
        lambda: Update(GOOD, 2, "median"),  # type: ignore[arg-type]
        "reduction='median': expected one of ('mean', 'sum')",
    ),
    (lambda: Update({}, 2), "holds no gradients"),
    (
        lambda: Update({"a": torch.ones(2, dtype=torch.int64)}, 2),
        "a: dtype torch.int64: expected float64, float32, bfloat16 or float16",
    ),
    (
        lambda: Update({"a": torch.ones(2, dtype=torch.complex64)}, 2),
        "a: dtype torch.complex64: expected float64, float32, bfloat16 or float16",
    ),
    (
        lambda: Update({"a": torch.ones(2), "b": torch.ones(2).double()}, 2),
        "b: dtype torch.float64: expected torch.float32 as the others have",
    ),
    (
        lambda: Update({"a": torch.ones(2), "b": torch.tensor([1.0, torch.nan, torch.inf])}, 2),
        "b: 2 of 3 values are not finite",
    ),
    (
        lambda: Update({"a": torch.tensor([-torch.inf], dtype=torch.bfloat16)}, 2),
        "a: 1 of 1 values are not finite",
    ),
    (
        lambda: Update({"a": torch.ones(2).to_sparse()}, 2),
        "a: a sparse tensor: expected a dense one, such as to_dense() gives",
    ),
    (
        lambda: Update({"a": torch.ones(2, device="meta")}, 2),
        "a: a tensor on the device meta holds no values",
    ),
    (lambda: Update({"a": None}, 2), "a of type NoneType: expected a torch.Tensor"),  # type: ignore[dict-item]
    (lambda: Update({"a": [1.0]}, 2), "a of type list: expected a torch.Tensor"),  # type: ignore[dict-item]
    (
        lambda: Update([torch.ones(2)], 2),  # type: ignore[arg-type]
        "gradients of type list: expected tensors by parameter name",
    ),
    (lambda: Update({1: torch.ones(2)}, 2), "name 1: expected the name of a parameter"),  # type: ignore[dict-item]
    *[
        (
            lambda name=name: Update({name: torch.ones(2)}, 2),
            f"name {name!r}: expected text without NUL and surrogates",
        )
        for name in ("\ud800.weight", "a\udcff", "a\0b")
    ],
    (
        lambda: Update({"a" * 70_000: torch.ones(2)}, 2),
        "name of 70000 characters: expected at most 10000",
    ),
    (lambda: Update(GOOD, 10**400), f"batch_size={10**400}: expected at most 999999999"),
]


@pytest.mark.parametrize(("make", "message"), WRONG_UPDATES, ids=[row[1] for row in WRONG_UPDATES])
def test_a_wrong_update_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(f'update: {message}')}$"):
        make()


# What is wrong with a file -------------------------------------------------------------------


def garbage(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def cut(folder: Path, ending: str, keep: int) -> Path:
    path = save_update(simple(), folder / f"u{ending}")
    return garbage(folder, path.name, path.read_bytes()[:keep])


NO_SAFETENSORS = "not a readable safetensors file ("  # the library goes on in its own words
WRONG_FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing npz": (lambda folder: folder / "u.npz", "no such file"),
    "missing safetensors": (lambda folder: folder / "u.safetensors", "no such file"),
    "directory": (lambda folder: folder, "no such file"),
    "other ending": (
        lambda folder: garbage(folder, "u.pt", b"x"),
        "expected a file ending in .safetensors or .npz",
    ),
    "no ending": (
        lambda folder: garbage(folder, "update", b"x"),
        "expected a file ending in .safetensors or .npz",
    ),
    "empty npz": (
        lambda folder: garbage(folder, "u.npz", b""),
        "not an .npz file (no intact zip archive)",
    ),
    "empty safetensors": (
        lambda folder: garbage(folder, "u.safetensors", b""),
        NO_SAFETENSORS,
    ),
    "garbage npz": (
        lambda folder: garbage(folder, "u.npz", bytes(range(256))),
        "not an .npz file (no intact zip archive)",
    ),
    "garbage safetensors": (
        lambda folder: garbage(folder, "u.safetensors", bytes(range(256))),
        NO_SAFETENSORS,
    ),
    "cut npz": (
        lambda folder: cut(folder, ".npz", 200),
        "not an .npz file (no intact zip archive)",
    ),
    "cut safetensors": (
        lambda folder: cut(folder, ".safetensors", -1),
        NO_SAFETENSORS,
    ),
    "no arrays": (npz, "holds no tensors"),
    "no tensors": (
        lambda folder: garbage(folder, "u.safetensors", b"\x02" + bytes(7) + b"{}"),
        "holds no tensors",
    ),
    "only text": (lambda folder: npz(folder, {"batch_size": "8"}), "holds no tensors"),
    "integers": (
        lambda folder: npz(folder, {"batch_size": "8"}, a=np.ones(2), b=np.ones(2, np.int32)),
        "b: dtype int32: expected floating point",
    ),
    "text for numbers": (
        lambda folder: npz(folder, {"batch_size": "8"}, a=np.array(["1"])),
        "a: dtype <U1: expected floating point",
    ),
    "complex numbers": (
        lambda folder: npz(folder, {"batch_size": "8"}, a=np.ones(2, complex)),
        "a: dtype complex128: expected floating point",
    ),
    "integer tensors": (
        lambda folder: tensors(folder, {"a": torch.ones(2).int()}, batch_size="8"),
        "a: dtype torch.int32: expected float64, float32, bfloat16 or float16",
    ),
    "NaN in an array": (
        lambda folder: npz(folder, {"batch_size": "8"}, a=np.array([1.0, np.nan])),
        "a: 1 of 2 values are not finite",
    ),
    "infinite tensor": (
        lambda folder: tensors(folder, {"a": torch.tensor([torch.inf])}, batch_size="8"),
        "a: 1 of 1 values are not finite",
    ),
    "mixed dtypes": (
        lambda folder: npz(folder, {"batch_size": "8"}, a=np.ones(2), b=np.ones(2, np.float32)),
        "b: dtype torch.float32: expected torch.float64 as the others have",
    ),
    "another reduction": (
        lambda folder: npz(folder, {"batch_size": "8", "reduction": "none"}, a=np.ones(2)),
        "reduction='none': expected one of ('mean', 'sum')",
    ),
    "no JSON": (
        lambda folder: npz(folder, "{", a=np.ones(2)),
        "__gradpeel__: expected a JSON object of text",
    ),
    "no JSON object": (
        lambda folder: npz(folder, [1], a=np.ones(2)),
        "__gradpeel__: expected a JSON object of text",
    ),
    "numbers for text": (
        lambda folder: npz(folder, a=np.ones(2), __gradpeel__=np.ones(1)),
        "__gradpeel__: expected a JSON object of text",
    ),
    "two texts": (
        lambda folder: npz(folder, a=np.ones(2), __gradpeel__=np.array(["{}", "{}"])),
        "__gradpeel__: expected a JSON object of text",
    ),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_wrong_file_is_refused(tmp_path: Path, case: str) -> None:
    make, message = WRONG_FILES[case]
    path = make(tmp_path)
    end = "" if message is NO_SAFETENSORS else "$"
    with pytest.raises(InputError, match=f"^{re.escape(f'{path}: {message}')}{end}"):
        load_update(path)


STRANGE: dict[str, Callable[[Path], Path]] = {
    "numbers of another machine": lambda folder: npz(folder, a=np.ones(2, ">f8")),
    "long doubles": lambda folder: npz(folder, a=np.ones(2, np.longdouble)),
    "deep JSON": lambda folder: npz(folder, "[" * 100_000, a=np.ones(2)),
    "digits without end": lambda folder: npz(
        folder, '{"batch_size": ' + "1" * 5000 + "}", a=np.ones(2)
    ),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_strange_file_is_refused_or_read(tmp_path: Path, case: str) -> None:
    path = STRANGE[case](tmp_path)
    try:
        load_update(path, batch_size=8)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_cannot_be_saved_is_told_in_a_line(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"folder{ending}").mkdir()
    with pytest.raises(InputError):
        save_update(simple(), tmp_path / f"folder{ending}")
    # Names that the formats use themselves, and a tied parameter: kept, or refused.
    tied = torch.ones(3)
    for gradients in (
        {"file": tied},
        {"allow_pickle": tied},
        {"__gradpeel__": tied},
        {"__metadata__": tied},
        {"a": tied, "b": tied},
    ):
        update = Update(gradients, 2)
        try:
            path = save_update(update, tmp_path / f"u{ending}")
        except InputError:
            continue
        assert_same(load_update(path), update)


@pytest.mark.parametrize(
    "size", ["0", "-1", "+8", "True", "1.5", "8.0", "1e3", "", " 8", "eight", "²", "9" * 10]
)
def test_a_batch_size_that_is_none_is_refused(tmp_path: Path, size: str) -> None:
    said = "0" if size == "0" else repr(size)
    for path in (
        npz(tmp_path, {"batch_size": size}, a=np.ones(2)),
        tensors(tmp_path, {"a": torch.ones(2)}, batch_size=size),
    ):
        message = f"{path}: batch_size={said}: expected a positive integer"
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            load_update(path)


@pytest.mark.parametrize("size", [0, -1, True, "8", 1.5])
def test_a_batch_size_that_is_none_is_refused_from_the_caller_too(
    tmp_path: Path, size: Any
) -> None:
    path = npz(tmp_path, a=np.ones(2))
    message = f"{path}: batch_size={size!r}: expected a positive integer"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load_update(path, batch_size=size)


@pytest.mark.parametrize("ending", ENDINGS)
def test_file_and_caller_must_agree(tmp_path: Path, ending: str) -> None:
    path = save_update(simple(batch_size=4), tmp_path / f"u{ending}")
    with pytest.raises(InputError, match=r": says batch_size=4 but 5 was given$"):
        load_update(path, batch_size=5)
    with pytest.raises(InputError, match=r": says reduction='mean' but 'sum' was given$"):
        load_update(path, reduction="sum")


def test_a_reduction_that_is_none_is_refused_from_the_caller_too(tmp_path: Path) -> None:
    path = npz(tmp_path, a=np.ones(2))
    message = f"{path}: reduction='median': expected one of ('mean', 'sum')"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load_update(path, batch_size=8, reduction="median")  # type: ignore[arg-type]


def test_larger_than_the_limit_is_refused_unread(tmp_path: Path) -> None:
    # Packed, the array takes a few hundred bytes; what counts is what it would take unpacked.
    path = tmp_path / "u.npz"
    np.savez_compressed(path, a=np.zeros(10_000), b=np.zeros(1))
    assert path.stat().st_size < 2_000
    message = f"{path}: 80008 bytes unpacked: more than the limit of 80007"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load_update(path, batch_size=8, max_bytes=80_007)
    assert load_update(path, batch_size=8, max_bytes=80_008).gradients["a"].shape == (10_000,)

    path = tensors(tmp_path, {"a": torch.zeros(100)})
    size = path.stat().st_size
    message = f"{path}: {size} bytes: more than the limit of {size - 1}"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load_update(path, batch_size=8, max_bytes=size - 1)
    assert load_update(path, batch_size=8, max_bytes=size).batch_size == 8


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=150)
@given(data=st.data())
@pytest.mark.slow
def test_a_damaged_file_is_refused_or_read_never_worse(ending: str, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = save_update(simple(), Path(folder) / f"u{ending}")
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        try:
            load_update(path, max_bytes=10**6)
        except InputError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017


# Nothing of what a file holds is run -----------------------------------------------------------


class Payload:
    """Unpickling this makes a file."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.made,)


@pytest.mark.parametrize("field", ["0.weight", "__gradpeel__"])
def test_nothing_is_run_on_loading(tmp_path: Path, field: str) -> None:
    made = tmp_path / "made"
    payload = np.empty(1, dtype=object)
    payload[0] = Payload(made)
    path = npz(tmp_path, **{"a": np.ones(2), field: payload})
    with np.load(path, allow_pickle=True) as trusting:
        assert len(trusting[field]) == 1
    assert made.exists(), "the payload does not work, so the test proves nothing"
    made.unlink()
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}: {field}: "):
        load_update(path, batch_size=8)
    assert not made.exists()


# Nothing is left half-written ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["u.pt", "u", "u.npz.gz", "u.NPZ"])
def test_another_ending_writes_nothing(tmp_path: Path, name: str) -> None:
    message = f"{tmp_path / name}: expected a file ending in .safetensors or .npz"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        save_update(simple(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_npz_cannot_hold_bfloat16(tmp_path: Path) -> None:
    message = f"{tmp_path / 'u.npz'}: npz cannot hold bfloat16; use a .safetensors file"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        save_update(simple(dtype=torch.bfloat16), tmp_path / "u.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_folder_that_is_none_is_named(tmp_path: Path, ending: str) -> None:
    (tmp_path / "file").touch()
    for parent, reason in (("missing", errno.ENOENT), ("file", errno.ENOTDIR)):
        path = tmp_path / parent / f"u{ending}"
        message = f"{path}: cannot be written: {os.strerror(reason)}"
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            save_update(simple(), path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("ending", "writer"), [(".safetensors", (module, "save")), (".npz", (module, "write_npz"))]
)
def test_a_broken_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, writer: tuple[object, str]
) -> None:
    path = save_update(simple(batch_size=3), tmp_path / f"u{ending}")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*writer, full)
    with pytest.raises((OSError, InputError), match="No space left"):
        save_update(simple(batch_size=4), path)
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert load_update(path).batch_size == 3


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_with_a_damaged_training_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"u{ending}"
    meta = {"training": '{"lr": -1}'}
    if ending == ".npz":
        write_npz(path, {"0.bias": np.ones(2), "__gradpeel__": np.array(json.dumps(meta))})
    else:
        path.write_bytes(save({"0.bias": torch.ones(2)}, metadata=meta))
    with pytest.raises(InputError) as caught:
        load_update(path)
    assert str(caught.value) == f"{path}: lr=-1: expected a number above 0"


def test_a_training_is_a_local_training() -> None:
    with pytest.raises(InputError, match=r"training of type dict: expected gradpeel"):
        Update({"0.bias": torch.ones(2)}, training={"lr": 0.1})  # type: ignore[arg-type]
