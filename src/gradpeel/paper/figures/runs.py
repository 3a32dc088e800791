"""The paper's network on the first samples of a data set (paper, section "Experiments").

A seed names one network: an audit and a mere look at the activation grid see the same one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import nn

from gradpeel.attacker import Attacker
from gradpeel.audit import Audit, audit
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.datasets.standard import STANDARD
from gradpeel.designs import Design, Layer
from gradpeel.errors import InputError
from gradpeel.exposure import Exposure, exposure
from gradpeel.networks import mlp
from gradpeel.reporting.words import printable
from gradpeel.target import split, with_first_layer

__all__ = ["audited", "check_pictures", "exposed", "title_and_size", "title_of", "with_notes"]


def audited(dataset: Dataset, design: Design, *, batch_size: int, neurons: int, seed: int) -> Audit:
    """Simulate one FedSGD round on the first samples and decode it.

    Args:
        dataset: where the batch comes from.
        design: how the server sets the first layer.
        batch_size: samples in the batch.
        neurons: width of the hidden layer.
        seed: seeds the network.
    """
    batch = draw_batch(dataset, batch_size)
    model = _network(dataset, neurons, seed)
    return audit(model, batch.x, batch.y, attacker=Attacker(design, effort=0.0), seed=seed)


def exposed(
    dataset: Dataset, design: Design, *, batch_size: int, neurons: int, seed: int
) -> Exposure:
    """Peel the activation grid of the batch that `audited` takes, without a gradient."""
    x = draw_batch(dataset, batch_size).x
    model = _network(dataset, neurons, seed)
    target = split(model)
    layer = design.shape(
        Layer(target.weight, target.bias),
        batch_size=batch_size,
        rng=np.random.default_rng(seed),
        front=target.front,
    )
    return exposure(with_first_layer(model, target, layer.weight, layer.bias), x)


def _network(dataset: Dataset, neurons: int, seed: int) -> nn.Sequential:
    return mlp(
        dataset.features,
        dataset.classes,
        (neurons,),
        rng=np.random.default_rng([seed, 0]),
        sample_shape=dataset.sample_shape,
    )


def title_of(name: str) -> str:
    """What the paper calls a data set, or else its own name.

    Example:
        >>> title_of("fashion_mnist"), title_of("digits")
        ('Fashion-MNIST', 'digits')
    """
    standard = STANDARD.get(name)
    return printable(name) if standard is None else standard.title


def title_and_size(dataset: Dataset) -> str:
    """What the paper calls a data set of pictures, and how large ours are."""
    height, width = dataset.sample_shape[:2]
    return f"{title_of(dataset.name)} at {height} × {width}"


def with_notes(caption: str, notes: Mapping[str, str] | None, *names: str) -> str:
    """A caption that ends with how the data differs from the paper's, where it does.

    Args:
        caption: what it begins with.
        notes: a few words by data set.
        names: the data sets that the figure shows.

    Example:
        >>> with_notes("What is seen.", {"emnist": "26 classes instead of 62"}, "mnist", "emnist")
        'What is seen. EMNIST: 26 classes instead of 62.'
    """
    by_name = notes or {}
    told = [
        f"{title_of(name)}: {printable(by_name[name], most=200)}"
        for name in names
        if name in by_name
    ]
    return f"{caption} {'; '.join(told)}." if told else caption


def check_pictures(dataset: Dataset) -> None:
    """Raise `InputError` unless the samples can be drawn as pictures."""
    if not dataset.is_image:
        raise InputError(
            f"{printable(dataset.name)} has samples of shape {dataset.sample_shape}: "
            "expected pictures, (H, W), (H, W, 1) or (H, W, 3)"
        )
