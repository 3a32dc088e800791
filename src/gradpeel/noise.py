"""Additive noise on an update, as from rounding, compression or a client's own protection.

Example:
    >>> update = Update({"0.weight": torch.tensor([[-1.0, 1.0]]), "0.bias": torch.ones(2)}, 4)
    >>> noisy = with_noise(update, 1e-3)
    >>> (noisy.gradients["0.weight"] - update.gradients["0.weight"]).abs().max() < 0.01
    tensor(True)
    >>> noisy.gradients["0.bias"]  # all values alike: its standard deviation is 0
    tensor([1., 1.])
"""

from __future__ import annotations

from dataclasses import replace

import torch

from gradpeel.checks import check_at_least_0, check_seed
from gradpeel.errors import InputError
from gradpeel.update import Update

__all__ = ["with_noise"]


def with_noise(update: Update, sigma: float, *, seed: int = 0) -> Update:
    """Add Gaussian noise to every gradient of an update, relative to that tensor's own spread.

    Args:
        update: what the client computed; it is not changed.
        sigma: the noise's standard deviation as a multiple of the standard deviation of the
            values of each gradient tensor; at least 0.
        seed: seeds the draws; the same seed gives the same noise, in whatever order the gradients
            are listed.

    Returns:
        The update with noise, in the same dtype: drawn and added in float64, rounded once.

    Raises:
        InputError: `sigma` or `seed` breaks its rule, or a result overflows the dtype.
    """
    if not isinstance(update, Update):
        raise InputError(f"update of type {type(update).__name__}: expected gradpeel.Update")
    check_at_least_0("sigma", sigma)
    check_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    noisy = dict(update.gradients)
    for name in sorted(noisy):
        exact = noisy[name].double()
        noise = torch.randn(exact.shape, generator=generator, dtype=torch.float64).to(exact)
        # Of all values there are, not of a sample of them: one value alone has no spread.
        spread = exact.std(correction=0) if exact.numel() else 0.0
        noisy[name] = (exact + float(sigma) * spread * noise).to(update.dtype)
    return replace(update, gradients=noisy)
