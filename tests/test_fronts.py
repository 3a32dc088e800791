"""Networks people train: what an honest server reads behind convolutions, embeddings and others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import gradpeel as gp
from gradpeel import designs
from gradpeel.datasets import draw_batch, load


class FedAvgCNN(nn.Module):
    """The CNN of the FedAvg paper: two 5x5 convolutions with pooling, 512 ReLU units."""

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(64 * (side // 4) ** 2, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.conv1(x).relu(), 2)
        x = functional.max_pool2d(self.conv2(x).relu(), 2)
        logits: Tensor = self.fc2(self.fc1(x.flatten(1)).relu())
        return logits


class FlowerNet(nn.Module):
    """The network of Flower's quickstart with PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        x = functional.relu(self.fc1(x))
        x = functional.relu(self.fc2(x))
        logits: Tensor = self.fc3(x)
        return logits


class VGG(nn.Module):
    """Like torchvision's VGG: features, a pool, a classifier with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(3)
        self.classifier = nn.Sequential(
            nn.Linear(144, 256),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(256, 128),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(128, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
        return logits


class Block(nn.Module):
    """A residual block with batch norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        found: Tensor = self.relu(out + x)
        return found


class ResNet(nn.Module):
    """A residual front, and a head of two layers instead of the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), Block(24), nn.MaxPool2d(2), Block(24)
        )
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Sequential(nn.Linear(96, 300), nn.ReLU(), nn.Linear(300, 10))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.pool(self.body(x)).flatten(1))
        return logits


class Text(nn.Module):
    """A text classifier on the mean of its tokens' embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(500, 64)
        self.fc1 = nn.Linear(64, 200)
        self.fc2 = nn.Linear(200, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.fc2(self.fc1(self.embedding(tokens)).relu())
        return logits


def frozen(model: ResNet) -> ResNet:
    model.body.requires_grad_(requires_grad=False).eval()
    return model


def pictures(size: int, channels: int = 3, side: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(size, channels, side, side, generator=generator)
    return x, torch.randint(10, (size,), generator=generator)


def digits(size: int) -> tuple[Tensor, Tensor]:
    data = load("digits")
    x, y = torch.from_numpy(data.x_train[:size]), torch.from_numpy(data.y_train[:size])
    return x.float().reshape(size, 1, 8, 8), y


def tokens(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(500, (size, 12), generator=generator)
    return x, torch.randint(4, (size,), generator=generator)


Batch = tuple[Tensor, Tensor]
# Networks as their users have them, with a batch, and the layer that is read.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch], str]] = {
    "CNN of the FedAvg paper": (lambda: FedAvgCNN(1, 8), lambda: digits(24), "fc1"),
    "Flower's quickstart": (FlowerNet, lambda: pictures(8), "fc1"),
    "VGG, evaluation mode": (lambda: VGG().eval(), lambda: pictures(12, side=16), "classifier.0"),
    "text": (Text, lambda: tokens(12), "fc1"),
    "frozen ResNet": (lambda: frozen(ResNet()), lambda: pictures(12, side=12), "fc.0"),
    "ResNet in training mode": (ResNet, lambda: pictures(12, side=12), "fc.0"),
    "dropout in front": (
        lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)),
        lambda: (digits(12)[0].flatten(1), digits(12)[1]),
        "1",
    ),
}


def made(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def made_resnet() -> ResNet:
    torch.manual_seed(0)
    return ResNet()


@pytest.mark.parametrize(("make", "batch", "layer"), NETWORKS.values(), ids=NETWORKS)
def test_every_feature_vector_of_a_batch_is_read(
    make: Callable[[], nn.Module], batch: Callable[[], Batch], layer: str
) -> None:
    model, (x, y) = made(make), batch()
    found = gp.audit(model, x, y)
    assert (found.recovery.space, found.recovery.layer) == ("features", layer)
    assert found.as_dict()["space"] == "features"
    assert found.as_dict()["layer"] == layer
    assert found.score.recovered == len(x)
    assert found.score.false_certificates == 0
    assert found.score.label_accuracy == 1
    # Compared with what entered the layer when the update was computed, not with the inputs.
    assert found.truth.shape == (len(x), found.features)
    assert found.recovery.samples.shape == found.truth.shape
    matches = found.score.matches
    true = found.truth[matches]
    assert float((found.recovery.samples - true).abs().max()) < 1e-4 * float(true.abs().max())
    assert repr(found).startswith(f"Audit(passive: {len(x)} of {len(x)} feature vectors recovered")


@pytest.mark.parametrize("name", ["dropout in front", "ResNet in training mode"])
def test_the_truth_is_that_of_the_client_s_own_forward_pass(name: str) -> None:
    make, batch, layer = NETWORKS[name]
    model, (x, y) = made(make), batch()
    found = gp.audit(model, x, y, seed=5)
    seen: list[Tensor] = []
    worker = made(make)
    worker.get_submodule(layer).register_forward_pre_hook(lambda _, rows: seen.append(rows[0]))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        total = functional.cross_entropy(worker(x), y)
    (gradient,) = torch.autograd.grad(total, [worker.get_parameter(f"{layer}.weight")])
    assert torch.equal(found.truth, seen[0].detach())
    assert torch.equal(found.update.gradients[f"{layer}.weight"], gradient)
    other = gp.audit(model, x, y, seed=6)
    if name == "dropout in front":
        assert not torch.equal(found.truth, other.truth)
    assert other.score.recovered == len(x)


def test_peeling_says_that_features_come_back() -> None:
    model, (x, y) = made(lambda: FedAvgCNN(1, 8)), digits(16)
    found = gp.peel(model, gp.local_update(model, x, y))
    assert (found.space, found.layer, found.noun) == ("features", "fc1", "feature vector")
    assert repr(found).startswith("Recovery(16 of 16 feature vectors in ")
    assert found.samples.shape == (16, 256)
    assert found.as_dict()["space"] == "features"
    mlp = made(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 10))
    )
    plain = gp.peel(mlp, gp.local_update(mlp, x, y))
    assert (plain.space, plain.layer, plain.noun) == ("input", "1", "sample")


def test_a_later_layer_can_be_chosen() -> None:
    model, (x, y) = made(lambda: VGG().eval()), pictures(6, side=16)
    found = gp.audit(model, x, y, attacker=gp.Attacker(layer="classifier.3"))
    assert (found.recovery.layer, found.features) == ("classifier.3", 256)
    assert found.score.recovered == 6
    torch.testing.assert_close(found.truth, gp.split(model, layer="classifier.3").rows(x))
    recovery = gp.peel(model, found.update, layer="classifier.3")
    assert torch.equal(recovery.samples, found.recovery.samples)
    assert gp.exposure(model, x, layer="classifier.3").grid.shape == (128, 6)
    assert gp.exposure(model, x).grid.shape == (256, 6)
    told = gp.contains(model, found.update, x, layer="classifier.3")
    assert told.count("in") == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fedavg_cnn_gives_away_batches_of_64_real_samples(
    name: str, seed: int, data_dir: Path
) -> None:
    # Untouched and in float32; where no neuron isolates a sample, the row cascade reads it.
    data = load(name, data_dir=data_dir)
    batch = draw_batch(data, 64, shuffle=True, rng=np.random.default_rng(seed))
    x = batch.x.float().unsqueeze(1) if batch.x.ndim == 3 else batch.x.float().movedim(3, 1)
    torch.manual_seed(seed)
    found = gp.audit(FedAvgCNN(x.shape[1], x.shape[2]), x, batch.y)
    assert found.update.dtype == torch.float32
    assert found.score.recovered == 64
    assert found.score.label_accuracy == 1
    assert found.score.false_certificates == 0


def test_copies_are_one_sample_behind_any_front() -> None:
    model, (x, y) = made(lambda: FedAvgCNN(1, 8)), digits(8)
    twice, labels = torch.cat([x, x[:3]]), torch.cat([y, y[:3]])
    assert gp.exposure(model, twice).copies.tolist() == [*range(8), 0, 1, 2]
    found = gp.audit(model, twice, labels, client=gp.Client(dtype=torch.float64))
    assert found.score.recovered == 11
    assert len(found.recovery) == 8
    assert found.score.wrong_multiplicities == 0


def test_what_a_client_draws_only_later_is_compared_too() -> None:
    model, (x, y) = made(lambda: FedAvgCNN(1, 8)), digits(16)
    client = gp.Client(lr=0.1, local_steps=1, local_batch_size=8)
    found = gp.audit(model, x, y, client=client)
    assert found.score.recovered == 8
    assert found.score.false_certificates == 0


@pytest.mark.slow
def test_after_several_steps_features_last_only_behind_a_frozen_front() -> None:
    client = gp.Client(lr=0.05, local_steps=3)
    x, y = pictures(8, side=12)
    model = frozen(made_resnet())
    found = gp.audit(model, x, y, client=client)
    assert found.recovery.space == "features"
    # As much is read as from a head that is trained on the features themselves.
    head = gp.audit(model.fc, found.truth, y, client=client)
    assert found.score.read == head.score.read > 0
    assert found.score.false_certificates == 0
    assert found.membership.count("out") == 0
    # Weights that came back unchanged were not trained, whatever a copy of the model says.
    copied = made_resnet().eval()
    returned = {name: value.clone() for name, value in copied.state_dict().items()}
    for name, gradient in found.update.gradients.items():
        returned[name] -= 0.05 * gradient
    update = gp.Update.from_weights(copied, returned, lr=0.05, steps=3, weight_decay=0.0)
    assert gp.contains(copied, update, x).count("out") == 0

    moving = made_resnet().eval()
    message = (
        r"several local steps: the front is trained too \('body\.0\.weight' and 13 more\), so that "
        r"features that enter Linear 'fc\.0' change from step to step"
    )
    with pytest.raises(gp.ModelRefusedError, match=message):
        gp.audit(moving, x, y, client=client)
    update = gp.local_update(moving, x, y, client)
    with pytest.raises(gp.ModelRefusedError, match=message):
        gp.peel(moving, update)
    with pytest.raises(gp.ModelRefusedError, match=message):
        gp.contains(moving, update, x)
    one = gp.audit(moving, x, y, client=gp.Client(lr=0.05, local_steps=1))
    assert one.score.read == 8

    dropping = nn.Sequential(nn.Dropout(), nn.Linear(12, 50), nn.ReLU(), nn.Linear(50, 3))
    with pytest.raises(
        gp.ModelRefusedError, match="several local steps: Dropout '0' is active, so"
    ):
        gp.audit(dropping, torch.rand(4, 12), torch.arange(4) % 3, client=client)


def test_designs_that_need_only_the_layer_work_on_features() -> None:
    model, (x, y) = made(lambda: FedAvgCNN(1, 8)), digits(64)
    passive = gp.audit(model, x[:32], y[:32], attacker=gp.Attacker(effort=0.0))
    auxiliary = gp.Attacker(designs.SolitonData(x[32:]), effort=0.0)
    for attacker in (auxiliary, gp.Attacker(designs.TrapWeights(), effort=0.0)):
        found = gp.audit(model, x[:32], y[:32], attacker=attacker)
        assert found.recovery.space == "features"
        assert found.score.false_certificates == 0
        assert found.score.recovered > 0
        weight = found.model.get_parameter("fc1.weight")
        assert not torch.equal(weight, passive.model.get_parameter("fc1.weight"))
        front = found.model.get_parameter("conv1.weight")
        assert torch.equal(front, model.get_parameter("conv1.weight"))
        if attacker is auxiliary:
            # The degrees that it aims at are those of the auxiliary data's features.
            degrees = gp.exposure(found.model, x[32:]).degrees
            assert int(degrees.min()) >= 1
            assert int((degrees <= 2).sum()) > 128
    with pytest.raises(gp.InputError, match="soliton-free: the layer receives features of other"):
        gp.audit(model, x, y, attacker=gp.Attacker(designs.SolitonFree()))


def test_who_took_part_is_told_by_features() -> None:
    model, (x, y) = made(lambda: FedAvgCNN(1, 8)), digits(32)
    update = gp.local_update(model, x[:16], y[:16])
    told = gp.contains(model, update, x)
    assert told.verdicts == ("in",) * 16 + ("out",) * 16
    dropping = nn.Sequential(
        nn.Flatten(), nn.Dropout(), nn.Linear(64, 99), nn.ReLU(), nn.Linear(99, 10)
    )
    update = gp.local_update(dropping, x, y)
    with pytest.raises(
        gp.ModelRefusedError, match=r"Dropout '1' is active, in front of Linear '2'"
    ):
        gp.contains(dropping, update, x)

    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.randn_like(x)

    noisy = nn.Sequential(nn.Flatten(), Noisy(), nn.Linear(64, 99), nn.ReLU(), nn.Linear(99, 10))
    with pytest.raises(gp.ModelRefusedError, match=r"the front draws random numbers or mixes"):
        gp.contains(noisy, gp.local_update(noisy, x, y), x)


def test_settings_of_inputs_are_refused_for_features() -> None:
    model, (x, y) = made(lambda: FedAvgCNN(1, 8)), digits(4)
    update = gp.local_update(model, x, y)
    with pytest.raises(
        gp.InputError, match=r"data_range=\(0, 1\): what enters layer 'fc1' are fea"
    ):
        gp.peel(model, update, data_range=(0, 1))
    with pytest.raises(gp.InputError, match=r"sample_shape=\(8, 8\): what is recovered are feat"):
        gp.peel(model, update, sample_shape=(8, 8))
    with pytest.raises(gp.InputError, match=r"layer='': expected the name of a layer, or None"):
        gp.Attacker(layer="")
    with pytest.raises(
        gp.InputError, match=r"layer='fc9': expected the name of a Linear: 'fc1', '"
    ):
        gp.audit(model, x, y, attacker=gp.Attacker(layer="fc9"))


@pytest.mark.slow
def test_a_network_that_cannot_be_traced_is_audited_at_a_named_layer() -> None:
    class Branching(FedAvgCNN):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    model, (x, y) = made(lambda: Branching(1, 8)), digits(24)
    found = gp.audit(model, x, y, attacker=gp.Attacker(layer="fc1"))
    assert found.without_tail is not None
    assert found.without_tail.startswith("the model cannot be traced: ")
    assert (found.recovery.space, found.recovery.layer) == ("features", "fc1")
    assert found.score.false_certificates == 0
    assert found.score.read >= 12
    with pytest.raises(gp.ModelRefusedError, match="not followed by ReLU alone"):
        gp.audit(model, x, y, attacker=gp.Attacker(layer="fc2"))


def test_a_network_that_does_more_than_its_steps_say_is_refused() -> None:
    class Aliased(FedAvgCNN):
        def forward(self, x: Tensor) -> Tensor:
            hidden = kept = self.fc1(self.conv2(self.conv1(x).relu()).flatten(1)).relu()
            hidden += 1
            logits: Tensor = self.fc2(hidden + kept)
            return logits

    model, (x, y) = Aliased(1, 32), digits(4)
    with pytest.raises(gp.ModelRefusedError, match="steps recorded do not reproduce the model's"):
        gp.audit(model, x, y)
