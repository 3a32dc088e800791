"""Where to compute: the CPU, or an accelerator if there is one.

The decoder lives on the last digits, so it computes in float64. A device that has none (Apple's)
hands that part back to the CPU.

Example:
    >>> choose("cpu")
    device(type='cpu')
"""

from __future__ import annotations

import torch

from gradpeel.errors import InputError

__all__ = ["DEVICES", "choose", "with_float64"]

DEVICES = ("auto", "cpu", "cuda", "mps")


def choose(name: str | torch.device) -> torch.device:
    """The device of a name such as "cpu", "cuda", "cuda:1" or "mps"; "auto" takes the fastest.

    Raises:
        InputError: there is no such device, or not here.
    """
    if not isinstance(name, str | torch.device):
        raise InputError(f"device={name!r}: expected one of {', '.join(DEVICES)}")
    if name == "auto":
        return next(torch.device(kind) for kind in ("cuda", "mps", "cpu") if _is_here(kind))
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in DEVICES:
        raise InputError(f"device={str(name)!r}: expected one of {', '.join(DEVICES)}")
    if not _is_here(device.type, device.index or 0):
        raise InputError(f"device={str(name)!r}: this machine has none that PyTorch can use")
    return device


def with_float64(device: torch.device) -> torch.device:
    """The device itself if it computes in float64; otherwise the CPU."""
    return torch.device("cpu") if device.type == "mps" else device


def _is_here(kind: str, index: int = 0) -> bool:
    if kind == "cuda":
        return index < torch.cuda.device_count()
    if kind == "mps":
        return index == 0 and torch.backends.mps.is_available()
    return True
