"""Batches that are made to fool certificates.

What makes a mixture of samples look like one of them: equal labels, equal firing patterns, and
differences that lie on a line or cancel out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.adversary.scenes import Scene, Setting, plain, take

__all__ = [
    "affine",
    "antipodal",
    "binary",
    "blend",
    "cloud",
    "collinear",
    "constants",
    "copies",
    "crowd",
    "integers",
    "invisible",
    "loud_and_quiet",
    "low_rank",
    "near_duplicates",
    "one_class",
    "one_hot",
    "pairs",
    "random_labels",
    "repeated",
    "scalings",
    "segment",
    "skewed",
    "standardised",
    "uneven_twins",
    "unscaled",
    "variants",
]

Change = Callable[[Tensor, Setting], Tensor]


def _like(setting: Setting, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64)).to(setting.source.x)


def _class_pool(setting: Setting) -> Tensor:
    """Indices of one class, one of those with enough samples if there is any."""
    y = setting.source.y
    counts = torch.bincount(y)
    large = (counts >= min(setting.batch_size, int(counts.max()))).nonzero()[:, 0]
    label = large[int(setting.rng.integers(len(large)))]
    return (y == label).nonzero()[:, 0]


def one_class(setting: Setting) -> Scene:
    """All samples have one label, as a person's data often has."""
    return plain(setting, take(setting, _class_pool(setting)))


def skewed(setting: Setting, *, concentration: float) -> Scene:
    """Labels follow shares drawn from a Dirichlet distribution."""
    y = setting.source.y
    shares = setting.rng.dirichlet([concentration] * setting.source.classes)
    weights = shares[y.numpy()] + 1e-12
    count = min(setting.batch_size, len(y))
    drawn = setting.rng.choice(len(y), size=count, replace=False, p=weights / weights.sum())
    return plain(setting, torch.from_numpy(drawn))


def random_labels(setting: Setting, *, labels: int) -> Scene:
    """Samples of one class with labels that are drawn: alike, but pulled in all directions."""
    scene = one_class(setting)
    drawn = setting.rng.integers(min(labels, setting.source.classes), size=len(scene.x))
    return replace(scene, y=torch.from_numpy(drawn))


# Pairs: a sample and a variant of it.


def _brightness(x: Tensor, setting: Setting) -> Tensor:
    return x * _like(setting, setting.rng.uniform(1.05, 1.6, size=(len(x), 1)))


def _contrast(x: Tensor, setting: Setting) -> Tensor:
    mean = x.mean(1, keepdim=True)
    return mean + (x - mean) * _like(setting, setting.rng.uniform(0.5, 0.95, size=(len(x), 1)))


def _offset(x: Tensor, setting: Setting) -> Tensor:
    return x + _like(setting, setting.rng.uniform(0.02, 0.2, size=(len(x), 1)))


def _pictures(x: Tensor, setting: Setting) -> Tensor:
    shape = setting.source.shape
    return x.reshape(len(x), *shape) if len(shape) > 1 else x[:, None, :]


def _flip(x: Tensor, setting: Setting) -> Tensor:
    return _pictures(x, setting).flip(2).reshape(len(x), -1)


def _shift(x: Tensor, setting: Setting) -> Tensor:
    by = int(setting.rng.choice([-2, -1, 1, 2]))
    return _pictures(x, setting).roll(by, dims=2).reshape(len(x), -1)


def _noise(x: Tensor, setting: Setting) -> Tensor:
    return x + _like(setting, setting.rng.normal(scale=0.05, size=tuple(x.shape)))


def _cutout(x: Tensor, setting: Setting) -> Tensor:
    cut = _pictures(x, setting).clone()
    high, wide = cut.shape[1:3]
    top, left = (int(setting.rng.integers(max(1, size // 2))) for size in (high, wide))
    cut[:, top : top + math.ceil(high / 2), left : left + wide // 2] = 0.0
    return cut.reshape(len(x), -1)


variants: dict[str, Change] = {
    "brightness": _brightness,
    "contrast": _contrast,
    "offset": _offset,
    "flip": _flip,
    "shift": _shift,
    "noise": _noise,
    "cutout": _cutout,
}
"""What makes a variant of a sample."""


def pairs(
    setting: Setting, *, kind: str, share: float, same_label: bool = True, one: bool = False
) -> Scene:
    """Samples with a variant of each in the same batch.

    Args:
        setting: what to draw from.
        kind: one of `variants`.
        share: share of the batch that pairs make up.
        same_label: whether a variant has the label of its sample.
        one: whether all samples are of one class.
    """
    pool = _class_pool(setting) if one else None
    wanted = max(1, round(share * setting.batch_size / 2))
    chosen = take(setting, pool, max(setting.batch_size - wanted, wanted))
    scene = plain(setting, chosen)
    paired = min(wanted, len(chosen))
    changed = variants[kind](scene.x[:paired], setting)
    labels = scene.y[:paired] if same_label else (scene.y[:paired] + 1) % setting.source.classes
    return scene.with_batch(torch.cat([scene.x, changed]), torch.cat([scene.y, labels]))


# Samples that depend on one another.


def _triples(
    setting: Setting, share: float, third: Callable[[Tensor, Tensor, Tensor], list[Tensor]]
) -> Scene:
    """Add to some samples others made from them and their partners, with equal labels."""
    scene = plain(setting, take(setting, count=max(3, round(setting.batch_size / (1 + share)))))
    x, y = scene.x, scene.y
    count = max(1, round(share * len(x)))
    made = third(x[:count], x.roll(1, 0)[:count], x.roll(2, 0)[:count])
    new_x, new_y = torch.cat([x, *made]), torch.cat([y, *[y[:count]] * len(made)])
    y_equal = setting.rng.random() < 0.5
    # Half of the time everything has one label: mixtures then agree at the next layer too.
    return scene.with_batch(new_x, torch.full_like(new_y, int(y[0])) if y_equal else new_y)


def collinear(setting: Setting, *, share: float) -> Scene:
    """With a and b their midpoint: a mixture of two samples is a true one."""
    return _triples(setting, share, lambda a, b, _: [(a + b) / 2])


def affine(setting: Setting, *, share: float) -> Scene:
    """With a, b and c also a + b - c."""
    return _triples(setting, share, lambda a, b, c: [a + b - c])


def scalings(setting: Setting, *, factors: tuple[float, ...]) -> Scene:
    """Every sample with multiples of it."""
    count = max(1, setting.batch_size // (1 + len(factors)))
    scene = plain(setting, take(setting, count=count))
    x = torch.cat([scene.x, *(scene.x * factor for factor in factors)])
    return scene.with_batch(x, scene.y.repeat(1 + len(factors)))


def blend(setting: Setting, *, weight: float, share: float = 0.5) -> Scene:
    """Blends of two members of the batch, with the label of the first."""
    return _triples(setting, share, lambda a, b, _: [weight * a + (1 - weight) * b])


def antipodal(setting: Setting, *, one_label: bool) -> Scene:
    """Pairs with one common midpoint, so that mixtures of different pairs agree on a vector."""
    count = max(1, setting.batch_size // 2)
    scene = plain(setting, take(setting, count=count))
    middle = setting.source.x.mean(0)
    x = torch.cat([scene.x, 2 * middle - scene.x])
    y = torch.full((len(x),), int(scene.y[0])) if one_label else scene.y.repeat(2)
    return scene.with_batch(x, y)


def segment(setting: Setting, *, one_label: bool) -> Scene:
    """The whole batch on one line between two samples, as frames of a slow film."""
    ends = setting.source.x[take(setting, count=2)]
    steps = torch.linspace(0, 1, setting.batch_size, dtype=ends.dtype)[:, None]
    x = ends[:1] * (1 - steps) + ends[1:] * steps
    return _with_labels(setting, x, one_label=one_label)


def low_rank(setting: Setting, *, rank: int, one_label: bool) -> Scene:
    """The whole batch in the span of a few samples, as positive combinations."""
    basis = setting.source.x[take(setting, count=rank)]
    shares = setting.rng.dirichlet([0.5] * len(basis), size=setting.batch_size)
    return _with_labels(setting, _like(setting, shares) @ basis, one_label=one_label)


def cloud(setting: Setting, *, radius: float, one_label: bool = True) -> Scene:
    """The whole batch around one sample, at a share of the typical distance."""
    centre = setting.source.x[take(setting, count=1)]
    noise = _like(setting, setting.rng.normal(size=(setting.batch_size, centre.shape[1])))
    typical = setting.source.yardstick.typical
    x = centre + noise / noise.norm(dim=1, keepdim=True) * radius * typical
    return _with_labels(setting, x, one_label=one_label)


def _with_labels(setting: Setting, x: Tensor, *, one_label: bool) -> Scene:
    """A plain round on made samples, with one label or drawn ones."""
    labels = setting.rng.integers(setting.source.classes, size=len(x))
    y = torch.from_numpy(labels)
    scene = plain(setting, take(setting, count=2))
    return scene.with_batch(x, torch.full_like(y, int(y[0])) if one_label else y)


# Samples that are nearly, or exactly, the same.


def near_duplicates(setting: Setting, *, apart: float, share: float) -> Scene:
    """Samples and others at a share of the typical distance from them, with the same label."""
    wanted = max(1, round(share * setting.batch_size / 2))
    scene = plain(setting, take(setting, count=max(setting.batch_size - wanted, wanted)))
    x = scene.x[:wanted]
    step = _like(setting, setting.rng.normal(size=tuple(x.shape)))
    typical = setting.source.yardstick.typical
    moved = x + step / step.norm(dim=1, keepdim=True) * apart * typical
    return scene.with_batch(torch.cat([scene.x, moved]), torch.cat([scene.y, scene.y[:wanted]]))


def uneven_twins(setting: Setting, *, kind: str, most: float) -> Scene:
    """Every sample with a twin, some of them nearer than others, with the same label.

    The nearest ones are no different from copies; are the others taken for copies with them?

    Args:
        setting: what to draw from.
        kind: whether twins differ by a *factor*, an *offset* or *noise*.
        most: how far the farthest twins are apart, as a share of the typical distance.
    """
    scene = plain(setting, take(setting, count=max(1, setting.batch_size // 2)))
    x = scene.x
    step = {
        "factor": x,
        "offset": torch.ones_like(x),
        "noise": _like(setting, setting.rng.normal(size=tuple(x.shape))),
    }[kind]
    length = _like(setting, setting.rng.uniform(size=(len(x), 1)) ** 3)
    size = step.norm(dim=1, keepdim=True).clamp(min=1e-12)
    twins = x + step / size * length * most * setting.source.yardstick.typical
    return scene.with_batch(torch.cat([x, twins]), scene.y.repeat(2))


def copies(setting: Setting, *, count: int, same_label: bool = True) -> Scene:
    """Some samples that occur several times, among others that occur once."""
    copied = max(1, setting.batch_size // (4 * count))
    singles = max(2, setting.batch_size - copied * (count - 1))
    scene = plain(setting, take(setting, count=singles))
    again, labels = scene.x[:copied].repeat(count - 1, 1), scene.y[:copied].repeat(count - 1)
    if not same_label:
        other = torch.from_numpy(setting.rng.integers(setting.source.classes, size=len(labels)))
        labels = other
    return scene.with_batch(torch.cat([scene.x, again]), torch.cat([scene.y, labels]))


def repeated(setting: Setting, *, times: int) -> Scene:
    """Every sample equally often: nothing but a stated size tells this from the samples once."""
    scene = plain(setting, take(setting, count=max(1, setting.batch_size // times)))
    return scene.with_batch(scene.x.repeat(times, 1), scene.y.repeat(times))


def invisible(setting: Setting, *, share: float) -> Scene:
    """Pairs that differ by what no neuron of the target sees; it has fewer neurons than features.

    The update holds nothing but the sum of such a pair, so its mean passes every test that two
    copies of it would pass.
    """
    setting = replace(setting, neurons=min(setting.neurons, setting.source.features // 2))
    wanted = max(1, round(share * setting.batch_size / 2))
    scene = plain(setting, take(setting, count=max(setting.batch_size - wanted, wanted)))
    weight = next(scene.model.parameters()).detach()
    x = scene.x[:wanted]
    step = setting.source.x[take(setting, count=wanted)] - x
    # The part of the step that lies in the span of the target's weights is taken out.
    span = torch.linalg.qr(weight.T).Q
    moved = x + step - (step @ span) @ span.T
    return scene.with_batch(torch.cat([scene.x, moved]), torch.cat([scene.y, scene.y[:wanted]]))


def loud_and_quiet(setting: Setting, *, decades: float) -> Scene:
    """Samples of very different size, so that the errors of the large ones bury the small ones."""
    scene = plain(setting)
    sizes = 10 ** setting.rng.uniform(-decades, 0, size=(len(scene.x), 1))
    return replace(scene, x=scene.x * _like(setting, sizes))


def constants(setting: Setting, *, share: float) -> Scene:
    """Samples all of whose features are one number; some are zero, so that only biases fire."""
    scene = plain(setting)
    count = max(1, round(share * len(scene.x)))
    levels = setting.rng.uniform(0, 1, size=(count, 1)).round(2)
    levels[0] = 0.0
    x = scene.x.clone()
    x[:count] = _like(setting, levels)
    return replace(scene, x=x)


def crowd(setting: Setting, *, neurons: float = 0.0, features: float = 0.0) -> Scene:
    """A batch near, or beyond, the number of neurons or features."""
    sizes = [
        share * of
        for share, of in ((neurons, setting.neurons), (features, setting.source.features))
        if share
    ]
    count = min(max(1, round(min(sizes))), 256, len(setting.source.x))
    return plain(setting, take(setting, count=count))


# Features of other kinds.


def _on(setting: Setting, change: Callable[[Tensor], Tensor], *, columns: bool = False) -> Setting:
    return replace(setting, source=setting.source.map(change, columns=columns))


def binary(setting: Setting, *, one: bool = False) -> Scene:
    """Features that are 0 or 1, by the median of the data."""
    middle = setting.source.x.mean(0)
    changed = _on(setting, lambda x: (x > middle).to(x))
    return one_class(changed) if one else plain(changed)


def integers(setting: Setting, *, levels: int) -> Scene:
    """Features that are whole numbers."""
    low, high = setting.source.x.min(), setting.source.x.max()
    return plain(_on(setting, lambda x: ((x - low) / (high - low) * levels).round()))


def unscaled(setting: Setting, *, decades: float) -> Scene:
    """Columns of a table with a scale and an offset of their own."""
    features = setting.source.features
    scale = _like(setting, 10 ** setting.rng.uniform(-decades / 2, decades / 2, size=features))
    offset = _like(setting, setting.rng.uniform(-1, 3, size=features)) * scale
    return plain(_on(setting, lambda x: x * scale + offset, columns=True))


def standardised(setting: Setting, *, one: bool = False) -> Scene:
    """Every feature of mean 0, the data of deviation 1, as most training pipelines do."""
    mean, spread = setting.source.x.mean(0), setting.source.x.std()
    changed = _on(setting, lambda x: (x - mean) / spread)
    return one_class(changed) if one else plain(changed)


def one_hot(setting: Setting, *, marks: int) -> Scene:
    """Sparse samples: a few ones among zeros, as bags of words are."""
    features, many = setting.source.features, 600

    def sparse(x: Tensor) -> Tensor:
        places = setting.rng.integers(features, size=(min(len(x), many), marks))
        return functional.one_hot(torch.from_numpy(places), features).amax(1).to(x)

    source = setting.source.map(sparse)
    kept, others = len(source.x), len(source.other_x)
    source = replace(source, y=source.y[:kept], other_y=source.other_y[:others])
    return plain(replace(setting, source=source))
