"""What was tested, in short values, and the hashes that identify it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from safetensors.torch import save
from torch import Tensor, nn

from gradpeel.audit import Audit
from gradpeel.defences import spell
from gradpeel.reporting.methods import spelled
from gradpeel.reporting.rounds import local_training
from gradpeel.reporting.sentences import weights
from gradpeel.reporting.words import printable

__all__ = ["architecture", "hashes_of", "setting_of"]


def setting_of(audit: Audit, origin: str = "") -> list[tuple[str, str]]:
    """Names and values for a line of labels.

    Args:
        audit: the simulated round.
        origin: where the network's weights come from, where that is known.
    """
    name = spelled(audit.design.name)
    server = f"active server, {name}" if audit.design.active else name
    shaped = "set by the server" if audit.design.active else "initialised"
    kept = audit.design.weights == "keep"
    first = audit.recovery.space == "input"
    clients = audit.update.clients
    in_all, each = (" in all", " each") if clients > 1 else ("", "")
    of_layer = weights(audit) if kept else f"{shaped}, {weights(audit)}"
    if not first:
        of_layer = f"{printable(audit.recovery.layer)}: {of_layer}"
    return [
        ("Round", "simulated"),
        ("Attacker", printable(server)),
        ("Model", printable(architecture(audit.model), 80)),
        *((("Weights", printable(origin, 80)),) if origin else ()),
        ("First layer" if first else "Layer", of_layer),
        *((("Clients", f"{clients:,}, added up"),) if clients > 1 else ()),
        ("Batch size", f"{audit.score.batch_size:,}{in_all}"),
        ("Data type", str(audit.update.dtype).removeprefix("torch.")),
        ("Local training", local_training(audit) or f"none, one gradient{each}"),
        ("Noise", f"{audit.client.noise:.2g}" if audit.client.noise else "none"),
        *((("Defences", spell(audit.client.defences)),) if audit.client.defences else ()),
        ("Seed", str(audit.seed)),
    ]


def architecture(model: nn.Module) -> str:
    """The widths of a plain perceptron; of other networks the name and the number of parameters.

    Example:
        >>> architecture(nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2)))
        'MLP 30–200–2'
        >>> architecture(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 9)))
        'Sequential, 1,345 parameters'
    """
    layers = [layer for layer in model.modules() if not list(layer.children())]
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if linear and all(isinstance(layer, nn.Linear | nn.ReLU | nn.Flatten) for layer in layers):
        widths = [linear[0].in_features, *(layer.out_features for layer in linear)]
        return f"MLP {'–'.join(map(str, widths))}"
    total = sum(parameter.numel() for parameter in model.parameters())
    return f"{type(model).__name__}, {total:,} parameters"


def hashes_of(audit: Audit) -> list[tuple[str, str]]:
    """SHA-256 of the weights and of the update, each as a safetensors file without metadata.

    That of the weights is the hash of the `model.safetensors` that `gradpeel audit --out` writes.
    """
    return [
        ("Model", _sha256(audit.model.state_dict())),
        ("Update", _sha256(audit.update.gradients)),
    ]


def _sha256(tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256(
        save({name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()})
    ).hexdigest()
