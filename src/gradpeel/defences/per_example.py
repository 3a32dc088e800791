"""Per-example clipping and Gaussian noise: the gradient of DP-SGD (Abadi et al., 2016).

The gradient of each sample is scaled down to a norm C at most, so that no sample can change their
sum by more than C. Gaussian noise of deviation (noise x C) is added to the sum. Together they are
differentially private; clipping alone is not, and does not keep a single sample from being read:
it only gives samples different weights. The update states that.

Example:
    >>> dp = PerExampleClipping(norm=1.0, noise=1.1)
    >>> f"{dp.epsilon(delta=1e-5):.1f}"
    '3.9'
    >>> f"{dp.epsilon(delta=1e-5, steps=1000, sample_rate=0.01):.2f}"
    '1.73'
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from gradpeel.checks import check_at_least_0, is_number
from gradpeel.defences.defence import Sending
from gradpeel.errors import InputError
from gradpeel.gradients import gradients
from gradpeel.inputs import NetworkInput, run_model
from gradpeel.losses import Loss
from gradpeel.update import Reduction, Update

__all__ = ["PerExampleClipping"]


@dataclass(frozen=True)
class PerExampleClipping:
    """Clip the gradient of every sample, and add noise to their sum.

    Attributes:
        norm: largest norm of a sample's gradient, above 0.
        noise: deviation of the noise, as a multiple of `norm`; 0 for clipping alone.

    Raises:
        InputError: a setting breaks its rule.
    """

    norm: float = 1.0
    noise: float = 0.0

    name: ClassVar[str] = "dp"

    def __post_init__(self) -> None:
        if not (is_number(self.norm) and 0 < self.norm < math.inf):
            raise InputError(f"norm={self.norm!r}: expected a number above 0")
        check_at_least_0("noise", self.noise)

    def __str__(self) -> str:
        return f"{self.name}:{self.norm:g},{self.noise:g}"

    def epsilon(
        self, delta: float = 1e-5, *, steps: int | None = None, sample_rate: float = 1.0
    ) -> float:
        """The privacy loss epsilon of one update or of a run; infinite without noise.

        Args:
            delta: the chance that is left, above 0 and below 1.
            steps: number of updates in a run; None for one update, whatever batch it is of.
            sample_rate: share of all samples in a batch, drawn at random for every update, which
                makes the loss of a run smaller.
        """
        # SciPy takes half a second to import, and an audit does not need it.
        from gradpeel.defences.accounting import (  # noqa: PLC0415
            epsilon_of_release,
            epsilon_of_run,
        )

        if steps is None:
            return epsilon_of_release(self.noise, delta)
        return epsilon_of_run(self.noise, delta, steps=steps, sample_rate=sample_rate)

    def gradients(
        self,
        model: nn.Module,
        x: NetworkInput,
        y: Tensor,
        loss: Loss,
        reduction: Reduction,
        *,
        source: torch.Generator,
    ) -> dict[str, Tensor]:
        """The gradient of a batch, by parameter name, in the place of the usual one.

        Raises:
            InputError: batch norm in training mode mixes the samples.
        """
        for name, module in model.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:  # noqa: SLF001
                raise InputError(
                    f"defence={self}: '{name}' is batch norm in training mode, which has no "
                    "gradient per sample: expected it in evaluation mode, or another norm"
                )
        total: dict[str, Tensor] = {}
        for i in range(len(x)):
            own = gradients(model, x[i : i + 1], y[i : i + 1], share=1.0, loss=loss)
            size = math.sqrt(sum(float(g.double().square().sum()) for g in own.values()))
            factor = min(1.0, self.norm / size) if size else 1.0
            for name, g in own.items():
                total[name] = total[name] + factor * g if name in total else factor * g
        # Whoever watches what enters a layer sees the whole batch last.
        with torch.no_grad():
            run_model(model, x)
        share = 1.0 / loss.denominator(y) if reduction == "mean" else 1.0
        return {name: share * self._noisy(g, source) for name, g in total.items()}

    def _noisy(self, total: Tensor, source: torch.Generator) -> Tensor:
        if not self.noise:
            return total
        drawn = torch.randn(total.shape, generator=source, dtype=torch.float64)
        return (total.double() + self.noise * self.norm * drawn.to(total.device)).to(total.dtype)

    def apply(self, update: Update, sending: Sending) -> Update:
        """State that samples have different weights; they were clipped as the client trained."""
        del sending
        return replace(update, equal_weights=False)
