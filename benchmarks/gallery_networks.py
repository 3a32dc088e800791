"""Ten well-known networks, as small modules with PyTorch's default initialisation.

Each takes one tensor and returns one. Their shapes follow the papers and tutorials they are known
from; where these have images of ImageNet, the ones here take those of CIFAR-10 or MNIST.

Example:
    >>> import torch
    >>> flower_net()(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn

__all__ = ["CATEGORIES", "IN_FLOAT64", "NETWORKS", "NOT_SIMULATED", "NUMBERS", "VOCABULARY"]

VOCABULARY = 2000
"""Number of words of the text classifier."""

CATEGORIES = (5, 12, 30, 7)
"""Number of values of each categorical column of the table."""

NUMBERS = 8
"""Number of numerical columns of the table; they follow the categorical ones."""


def fedavg_cnn() -> nn.Module:
    """The CNN of the FedAvg paper (McMahan et al., 2017), for MNIST."""
    return nn.Sequential(
        *_block(1, 32, 5, 2), *_block(32, 64, 5, 2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip


def flower_net() -> nn.Module:
    """The `Net` of Flower's PyTorch quickstart, for CIFAR-10."""
    return nn.Sequential(
        *_block(3, 6, 5, 0), *_block(6, 16, 5, 0),
        nn.Flatten(), nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def lenet() -> nn.Module:
    """LeNet-5 with ReLU and max pooling, for MNIST."""
    return nn.Sequential(
        *_block(1, 6, 5, 2), *_block(6, 16, 5, 0),
        nn.Flatten(), nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def vgg11() -> nn.Module:
    """VGG-11 with the head of 512 units that is common for CIFAR-10, its dropout off."""
    layers: list[nn.Module] = []
    channels = 3
    for width, pools in (
        (64, 1),
        (128, 1),
        (256, 0),
        (256, 1),
        (512, 0),
        (512, 1),
        (512, 0),
        (512, 1),
    ):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pools else []
        channels = width
    head = [nn.Linear(512, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), *head, nn.Dropout(), nn.Linear(512, 10)).eval()


class _Residual(nn.Module):
    """A basic block of a ResNet."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.side: nn.Module = nn.Identity()
        if stride > 1:
            side = nn.Conv2d(channels, width, 1, stride, bias=False)
            self.side = nn.Sequential(side, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.side(x))


def resnet18_head() -> nn.Module:
    """A head of 256 units on the frozen features of a ResNet-18, for CIFAR-10.

    Its batch norms have the statistics of noise, so that features differ from image to image, as
    they do in a network that has been trained.
    """
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    for channels, width in ((64, 64), (64, 128), (128, 256), (256, 512)):
        layers += [_Residual(channels, width, width // channels), _Residual(width, width, 1)]
    features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for norm in (module for module in features.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.momentum = None
    with torch.no_grad():
        features(torch.rand(64, 3, 32, 32))
    features.requires_grad_(requires_grad=False).eval()
    return nn.Sequential(features, nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


class _VisionTransformer(nn.Module):
    """A vision transformer whose feed-forward blocks have ReLU, as torch's default is."""

    def __init__(self, width: int = 256, patch: int = 7, side: int = 28) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        logits: Tensor = self.head(self.encoder(tokens).mean(1))
        return logits


def text_classifier() -> nn.Module:
    """The mean of a text's word embeddings and a hidden layer, as in PyTorch's tutorial."""
    return nn.Sequential(
        nn.EmbeddingBag(VOCABULARY, 128), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 4)
    )


class _Tabular(nn.Module):
    """Embeddings of the categorical columns beside the numerical ones."""

    def __init__(self, width: int = 200) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 8) for size in CATEGORIES)
        entering = 8 * len(CATEGORIES) + NUMBERS
        self.layers = nn.Sequential(
            nn.Linear(entering, width), nn.ReLU(), nn.Linear(width, width // 2), nn.ReLU(),
            nn.Linear(width // 2, 2),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        codes, numbers = x[:, : len(CATEGORIES)].long(), x[:, len(CATEGORIES) :]
        embedded = [layer(codes[:, i]) for i, layer in enumerate(self.embeddings)]
        logits: Tensor = self.layers(torch.cat([*embedded, numbers], 1))
        return logits


def autoencoder() -> nn.Module:
    """A dense autoencoder of MNIST."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 32), nn.ReLU(),
        nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 784),
    )  # fmt: skip


def regression() -> nn.Module:
    """Two hidden layers and one output, on the 561 features of HARUS."""
    return nn.Sequential(
        nn.Linear(561, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1)
    )


def _block(channels: int, width: int, kernel: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, width, kernel, padding=padding), nn.ReLU(), nn.MaxPool2d(2)]


NETWORKS: Mapping[str, tuple[str, Callable[[], nn.Module]]] = MappingProxyType(
    {
        "FedAvg CNN": ("mnist", fedavg_cnn),
        "Flower quickstart": ("cifar10", flower_net),
        "LeNet-5": ("mnist", lenet),
        "VGG-11": ("cifar10", vgg11),
        "ResNet-18 head": ("cifar10", resnet18_head),
        "vision transformer": ("mnist", _VisionTransformer),
        "text classifier": ("words", text_classifier),
        "tabular": ("table", _Tabular),
        "autoencoder": ("mnist", autoencoder),
        "regression": ("harus", regression),
    }
)
"""Every network by its name, with the data it takes; "words" and "table" are drawn."""


def _in_float64(make: Callable[[], nn.Module]) -> nn.Module:
    return make().double()


IN_FLOAT64: Mapping[str, tuple[str, Callable[[], nn.Module]]] = MappingProxyType(
    {
        f"{name}, float64": (data, partial(_in_float64, make))
        for name, (data, make) in NETWORKS.items()
        if name in {"Flower quickstart", "vision transformer"}
    }
)
"""Networks of which float32 hides what peeling reaches: the same weights, computed in float64."""


def _behind(width: int, what: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, width), nn.ReLU(), what(), nn.Linear(width, 10)
    )


NOT_SIMULATED: Mapping[str, tuple[str, Callable[[], nn.Module]]] = MappingProxyType(
    {
        f"{width} units, {name}": ("mnist", partial(_behind, width, what))
        for width in (64, 128, 256, 512)
        for name, what in (
            ("nothing", nn.Identity),
            ("dropout 0.1", partial(nn.Dropout, 0.1)),
            ("dropout 0.5", partial(nn.Dropout, 0.5)),
            ("batch norm", partial(nn.BatchNorm1d, width)),
        )
    }
)
"""Layers of some widths with a step right behind their ReLU that nobody can simulate."""
