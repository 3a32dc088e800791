"""Opacus: audit what a model made private by `PrivacyEngine` still gives away.

`PrivacyEngine` wraps a model, or hangs hooks on it (`wrap_model=False`), so that its optimiser can
clip the gradient of each sample and add noise. The audit needs the plain network and what the
optimiser does:

    model, optimiser, loader = PrivacyEngine().make_private(module=..., optimizer=..., ...)
    audit = audit_private(model, optimiser, x, y)

With clipping and no noise, samples are read as without: only their weights differ, and with them
goes the tail as evidence.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from gradpeel.attacker import Attacker
from gradpeel.audit import Audit, audit
from gradpeel.checks import is_number
from gradpeel.client import Client
from gradpeel.coercion import Samples, Targets
from gradpeel.defences import PerExampleClipping
from gradpeel.errors import InputError
from gradpeel.losses import CrossEntropy
from gradpeel.torch_losses import GivenLoss

try:
    from opacus.grad_sample import AbstractGradSampleModule
    from opacus.grad_sample.grad_sample_module import GradSampleHooks
    from opacus.optimizers import DPOptimizer
except ImportError as error:
    raise ImportError(
        f"{__name__}: expected Opacus 1.6 or later installed: pip install 'gradpeel[opacus]'"
    ) from error

__all__ = ["audit_private", "plain_network", "private_client"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def audit_private(
    model: nn.Module,
    optimiser: DPOptimizer,
    x: Samples,
    y: Targets = None,
    *,
    loss: GivenLoss = CrossEntropy(),  # noqa: B008 - immutable
    attacker: Attacker = Attacker(),  # noqa: B008 - immutable
    seed: int = 0,
) -> Audit:
    """Audit one update of a model that `PrivacyEngine.make_private` made.

    The update is computed as Opacus computes it, sample by sample; neither the model nor the
    optimiser is changed.

    Args:
        model: as `make_private` returned it: the wrapped model, or the hooks of one that is not.
        optimiser: the optimiser that it returned.
        x: a batch, see `gradpeel.audit`.
        y: its labels or targets.
        loss: what the client minimises.
        attacker: what the server does and knows.
        seed: of everything random, the noise included.

    Returns:
        The audit; its client states the clipping and the noise.

    Raises:
        ModelRefusedError: the network cannot be audited.
        InputError: another kind of model or optimiser, or clipping that differs between layers.
    """
    client = private_client(optimiser, loss=loss)
    return audit(plain_network(model), x, y, client=client, attacker=attacker, seed=seed)


def private_client(
    optimiser: DPOptimizer,
    *,
    loss: GivenLoss = CrossEntropy(),  # noqa: B008 - immutable
) -> Client:
    """The client that trains with an optimiser of Opacus.

    Raises:
        InputError: it is none, or clips every layer by itself.
    """
    given: Any = optimiser
    if not isinstance(given, DPOptimizer):
        kind = type(given).__name__
        raise InputError(f"optimiser of type {kind}: expected the one that make_private returned")
    norm = getattr(given, "max_grad_norms", given.max_grad_norm)
    if not is_number(norm):
        raise InputError(
            f"max_grad_norm={norm!r}: expected one number: clipping by layers is not simulated"
        )
    clipping = PerExampleClipping(float(norm), float(given.noise_multiplier))
    return Client(loss=loss, reduction=given.loss_reduction, defences=[clipping])


def plain_network(model: nn.Module) -> nn.Module:
    """A copy of the network behind a model of Opacus, without its wrapper and its hooks.

    Args:
        model: the wrapped model, the hooks object of `wrap_model=False`, or the module that it
            hung its hooks on.
    """
    inner: Any = model
    if isinstance(inner, AbstractGradSampleModule | GradSampleHooks):
        inner = inner._module  # noqa: SLF001 -- where Opacus keeps it
    held = {id(part): {name: getattr(part, name) for name in _HOOKS} for part in inner.modules()}
    plain: nn.Module = copy.deepcopy(inner)
    for part, original in zip(plain.modules(), inner.modules(), strict=True):
        for name, hooks in held[id(original)].items():
            kept = [key for key, hook in hooks.items() if not _is_theirs(hook)]
            own = getattr(part, name)
            for key in set(own) - set(kept):
                del own[key]
    return plain


def _is_theirs(hook: object) -> bool:
    function = getattr(hook, "func", hook)
    return str(getattr(function, "__module__", "")).startswith("opacus")
