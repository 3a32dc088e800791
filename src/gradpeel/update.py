"""What a client sends: gradients by parameter name, and what is known about the training round.

An update crosses a trust boundary, so its files hold plain arrays and nothing else: safetensors, or
npz read without pickle (unpickling a file would run its author's code). Everything is checked on
loading, and errors name the file and the field.

Example:
    >>> import torch
    >>> update = Update({"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3)}, batch_size=4)
    >>> update.dtype, update.batch_size, len(update.gradients)
    (torch.float32, 4, 2)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from gradpeel.checks import (
    check_array_dtype,
    check_dense,
    check_dtype,
    check_positive_integer,
    count_not_finite,
    from_array,
)
from gradpeel.differences import Weights, gradients_between, gradients_of
from gradpeel.errors import InputError
from gradpeel.files import Header, Npz, is_file, replacing, write_npz
from gradpeel.training import LocalTraining

__all__ = ["Reduction", "Update", "load_tensors", "load_update", "save_update"]

Reduction = Literal["mean", "sum"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)
MAX_BYTES = 16 * 2**30
MAX_BATCH = 10**9 - 1
MAX_NAME = 10_000
T = TypeVar("T")
_FORMAT = "gradpeel-update-1"
_NPZ_META = "__gradpeel__"
_META_BYTES = 65_536


@dataclass(frozen=True, eq=False)
class Update:
    """What one client sends in one training round.

    Attributes:
        gradients: gradient of the batch loss by parameter name, in the model's own shapes; after
            local training, the sum of all its gradients, see `gradpeel.training`.
        batch_size: number of samples behind it; None if unknown, and the decoder finds it.
        reduction: whether the loss was the mean or the sum over the batch.
        training: the local training whose difference of weights this is (FedAvg); None for the
            gradient of one batch (FedSGD).
        clients: number of clients whose updates were added up (secure aggregation).
        equal_weights: whether all samples have the same weight in it; not if clients of different
            sizes counted the same.

    Raises:
        InputError: no gradients, names that no file could hold, sparse tensors, mixed or
            unsupported dtypes, values that are not finite, a batch size that is neither None nor
            a positive integer, a number of clients that is none, or something else in the place of
            a training.
    """

    gradients: Mapping[str, Tensor]
    batch_size: int | None = None
    reduction: Reduction = "mean"
    training: LocalTraining | None = None
    clients: int = 1
    equal_weights: bool = True

    def __post_init__(self) -> None:
        _check_update(self, "update")

    @classmethod
    def from_gradients(
        cls, model: nn.Module, *, batch_size: int | None = None, reduction: Reduction = "mean"
    ) -> Update:
        """The update of a model after `backward()`: the gradient of each of its parameters.

        Args:
            model: the model; its `grad` tensors are copied.
            batch_size: number of samples behind them, if it is known.
            reduction: whether the loss was the mean or the sum over the batch.

        Raises:
            InputError: no parameter has a gradient, or they do not make an update.
        """
        return cls(gradients_of(model), batch_size, reduction)

    @classmethod
    def from_weights(
        cls,
        before: Weights,
        after: Weights,
        *,
        lr: float | None = None,
        momentum: float = 0.0,
        weight_decay: float | None = 0.0,
        steps: int | None = None,
        batch_size: int | None = None,
        reduction: Reduction = "mean",
    ) -> Update:
        """The update behind the weights that a client returned.

        Args:
            before: the weights it received: a model, a state dict of tensors or NumPy arrays,
                Flower's `ArrayRecord`, or a list of arrays in the order of the other's state dict
                or parameters. Buffers are ignored.
            after: the weights it returned, in any of these forms.
            lr: its learning rate; without one the update is the difference itself.
            momentum: of its SGD, which started from zero.
            weight_decay: of its SGD; None if unknown, and it is then looked for in the last layer,
                which has to end in a softmax.
            steps: number of its local steps, if it is known. What one step changed is a gradient.
            batch_size: number of samples behind it, if it is known.
            reduction: whether the loss was the mean or the sum over the batch.

        Returns:
            The sum of the client's gradients, see `gradpeel.LocalTraining`.

        Raises:
            InputError: the two do not fit each other, nothing changed, the change is that of Adam,
                of which only signs are left, or a setting breaks its rule.
        """
        stated = LocalTraining(lr, steps, momentum, weight_decay or 0.0)
        finds_decay = weight_decay is None
        found, training = gradients_between(before, after, stated, finds_decay=finds_decay)
        return cls(found, batch_size, reduction, training)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype the client computed or sent its gradients in."""
        return next(iter(self.gradients.values())).dtype

    @property
    def share(self) -> float | None:
        """The weight of one sample's cross-entropy in the batch loss: 1 for a sum, 1/B for a mean.

        None for a mean over an unknown number. Class weights and other losses have denominators
        of their own, see `gradpeel.losses`.
        """
        if self.reduction == "sum":
            return 1.0
        return None if self.batch_size is None else 1.0 / self.batch_size

    def __repr__(self) -> str:
        size = sum(gradient.numel() for gradient in self.gradients.values())
        dtype = str(self.dtype).removeprefix("torch.")
        batch_size = "unknown" if self.batch_size is None else self.batch_size
        training = "" if self.training is None else f", training={self.training!r}"
        clients = "" if self.clients == 1 else f", clients={self.clients}"
        weights = "" if self.equal_weights else ", equal_weights=False"
        return (
            f"Update({len(self.gradients)} tensors, {size} numbers, {dtype}, "
            f"batch_size={batch_size}, reduction={self.reduction!r}{training}{clients}{weights})"
        )


def save_update(update: Update, path: str | Path) -> Path:
    """Write `update` to a `.safetensors` or `.npz` file, completely or not at all.

    Raises:
        InputError: another file ending, a dtype npz cannot hold (bfloat16), a name that the formats
            use themselves, or a place that cannot be written.
    """
    if not isinstance(update, Update):
        raise InputError(f"update of type {type(update).__name__}: expected gradpeel.Update")
    path = Path(path)
    for name in (_NPZ_META, "__metadata__"):
        if name in update.gradients:
            raise InputError(f"{path}: {name}: the file formats keep this name for themselves")
    meta = _meta(update)
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in update.gradients.items()
    }
    if path.suffix == ".safetensors":
        with replacing(path) as partial:
            partial.write_bytes(save(tensors, metadata=meta))
    elif path.suffix == ".npz":
        if update.dtype == torch.bfloat16:
            raise InputError(f"{path}: npz cannot hold bfloat16; use a .safetensors file")
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        with replacing(path) as partial:
            write_npz(partial, {_NPZ_META: np.array(json.dumps(meta)), **arrays})
    else:
        raise InputError(f"{path}: expected a file ending in .safetensors or .npz")
    return path


def _meta(update: Update) -> dict[str, str]:
    """What is known about the training round, as the files hold it."""
    meta = {"format": _FORMAT, "reduction": update.reduction}
    if update.batch_size is not None:
        meta["batch_size"] = str(update.batch_size)
    if update.training is not None:
        meta["training"] = update.training.as_json()
    if update.clients > 1:
        meta["clients"] = str(update.clients)
    if not update.equal_weights:
        meta["weights"] = "unequal"
    return meta


def load_update(
    path: str | Path,
    *,
    batch_size: int | None = None,
    reduction: Reduction | None = None,
    max_bytes: int = MAX_BYTES,
) -> Update:
    """Read an update written by `save_update`, or any file of gradients by parameter name.

    Args:
        path: a `.safetensors` or `.npz` file.
        batch_size: number of samples behind it; if the file states it too, the two must agree.
        reduction: "mean" or "sum"; if the file states it too, the two must agree. "mean" if
            neither does.
        max_bytes: refuse files whose tensors would take more memory than this.

    Raises:
        InputError: the file cannot be read, or what it holds is not an update.
    """
    path = Path(path)
    tensors, meta = load_tensors(path, max_bytes=max_bytes)
    stated_size = _whole(path, "batch_size", meta.get("batch_size"))
    known_size = _agreed(path, "batch_size", stated_size, batch_size)
    known_reduction = _agreed(path, "reduction", meta.get("reduction"), reduction) or "mean"
    if known_reduction not in REDUCTIONS:
        raise InputError(f"{path}: reduction={known_reduction!r}: expected one of {REDUCTIONS}")
    weights = meta.get("weights", "equal")
    if weights not in ("equal", "unequal"):
        raise InputError(f"{path}: weights={weights!r}: expected equal or unequal")
    clients = _whole(path, "clients", meta.get("clients"))
    try:
        training = LocalTraining.from_json(meta["training"]) if "training" in meta else None
        return Update(
            tensors,
            known_size,
            cast("Reduction", known_reduction),
            training,
            clients=1 if clients is None else clients,
            equal_weights=weights == "equal",
        )
    except InputError as error:
        text = str(error)
        blamed = text.replace("update", str(path), 1) if text.startswith("update") else None
        raise InputError(blamed or f"{path}: {text}") from None


def load_tensors(
    path: str | Path, *, max_bytes: int = MAX_BYTES
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read named tensors and text metadata from safetensors or npz, without running any code.

    Raises:
        InputError: missing or damaged file, another format, pickled content, or too large.
    """
    path = Path(path)
    if not is_file(path):
        raise InputError(f"{path}: no such file")
    if path.suffix not in (".safetensors", ".npz"):
        raise InputError(f"{path}: expected a file ending in .safetensors or .npz")
    read = _read_safetensors if path.suffix == ".safetensors" else _read_npz
    tensors, meta = read(path, max_bytes)
    if not tensors:
        raise InputError(f"{path}: holds no tensors")
    return tensors, meta


def _read_safetensors(path: Path, max_bytes: int) -> tuple[dict[str, Tensor], dict[str, str]]:
    size = path.stat().st_size
    if size > max_bytes:
        raise InputError(f"{path}: {size} bytes: more than the limit of {max_bytes}")
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a readable safetensors file ({error})") from None


def _read_npz(path: Path, max_bytes: int) -> tuple[dict[str, Tensor], dict[str, str]]:
    with Npz(path) as file:
        headers = {name: file.header(name) for name in file.fields}
        meta = _npz_meta(file, headers.pop(_NPZ_META, None))
        for name, header in headers.items():
            check_array_dtype(f"{path}: {name}", header.dtype)
        size = sum(header.size * header.dtype.itemsize for header in headers.values())
        if size > max_bytes:
            raise InputError(f"{path}: {size} bytes unpacked: more than the limit of {max_bytes}")
        return {name: from_array(name, file.read(name)) for name in headers}, meta


def _npz_meta(file: Npz, header: Header | None) -> dict[str, str]:
    """The text that `save_update` leaves beside the gradients."""
    if header is None:
        return {}
    rule = f"{file.path}: {_NPZ_META}: expected a JSON object of text"
    if header.dtype.kind != "U" or header.size != 1 or header.dtype.itemsize > _META_BYTES:
        raise InputError(rule)
    try:
        meta = json.loads(str(file.read(_NPZ_META)))
    except (ValueError, RecursionError):
        raise InputError(rule) from None
    if not isinstance(meta, dict):
        raise InputError(rule)
    return {str(key): str(value) for key, value in meta.items()}


def _whole(path: Path, name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > len(str(MAX_BATCH)):
        raise InputError(f"{path}: {name}={text!r}: expected a positive integer")
    return int(text)


def _agreed(path: Path, name: str, stored: T | None, given: T | None) -> T | None:
    if stored is not None and given is not None and stored != given:
        raise InputError(f"{path}: says {name}={stored!r} but {given!r} was given")
    return given if stored is None else stored


def _check_update(update: Update, where: str) -> None:
    size: object = update.batch_size
    whole = isinstance(size, int) and not isinstance(size, bool) and size > 0
    if size is not None and not whole:
        raise InputError(f"{where}: batch_size={size!r}: expected a positive integer")
    if isinstance(size, int) and size > MAX_BATCH:
        raise InputError(f"{where}: batch_size={size}: expected at most {MAX_BATCH}")
    check_positive_integer(f"{where}: clients", update.clients)
    if update.reduction not in REDUCTIONS:
        raise InputError(f"{where}: reduction={update.reduction!r}: expected one of {REDUCTIONS}")
    training: object = update.training
    if training is not None and not isinstance(training, LocalTraining):
        kind = type(training).__name__
        raise InputError(f"{where}: training of type {kind}: expected gradpeel.LocalTraining")
    gradients: object = update.gradients
    if not isinstance(gradients, Mapping):
        kind = type(gradients).__name__
        raise InputError(f"{where}: gradients of type {kind}: expected tensors by parameter name")
    if not gradients:
        raise InputError(f"{where}: holds no gradients")
    for name, tensor in gradients.items():
        _check_name(where, name)
        check_dense(f"{where}: {name}", tensor)
        _check_gradient(f"{where}: {name}", tensor, update.dtype)


def _check_gradient(where: str, gradient: Tensor, dtype: torch.dtype) -> None:
    check_dtype(where, gradient.dtype)
    if gradient.dtype != dtype:
        raise InputError(f"{where}: dtype {gradient.dtype}: expected {dtype} as the others have")
    bad = count_not_finite(gradient)
    if bad:
        raise InputError(f"{where}: {bad} of {gradient.numel()} values are not finite")


def _check_name(where: str, name: object) -> None:
    """Refuse a name that a file could not hold, or would give back as another."""
    if not isinstance(name, str):
        raise InputError(f"{where}: name {name!r}: expected the name of a parameter")
    if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise InputError(f"{where}: name {name!r}: expected text without NUL and surrogates")
    if len(name) > MAX_NAME:
        raise InputError(f"{where}: name of {len(name)} characters: expected at most {MAX_NAME}")


def norm(tensors: Mapping[str, Tensor]) -> float:
    """Euclidean norm of all tensors together, in float64."""
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors.values()))
