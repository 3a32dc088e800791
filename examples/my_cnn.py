"""
My CNN
======

In a convolutional network, the ``Linear`` layer that can be attacked stands behind convolutions and
pooling. What comes back from a gradient is what enters that layer: one *feature vector* per sample,
exact and certified. This tutorial recovers the feature vectors of a batch and shows how much they
say about the pictures.
"""

# %%
# The network
# -----------
# Any ``forward`` will do. gradpeel looks for the first ``Linear`` that is followed by ReLU.

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional

import gradpeel as gp
from gradpeel.datasets import draw_batch, load


class Net(nn.Module):
    """Two convolutions with pooling, then a classifier of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 2 * 2, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(torch.relu(self.conv1(x.unsqueeze(1))), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


torch.manual_seed(0)
model = Net()
print(gp.split(model))

# %%
# The audit
# ---------
# The same call as for any other network. The client computes in float32, as most do.

data = load("digits")
batch = draw_batch(data, 32)
audit = gp.audit(model, batch.x, batch.y)
recovery = audit.recovery
print(audit)
print(f"recovered: {recovery.space} of layer {recovery.layer}, {tuple(recovery.samples.shape)}")
print(f"largest error: {audit.score.max_abs_error:.1e}")

# %%
# What feature vectors reveal
# ---------------------------
# A server that owns pictures of the same kind can compute their features and look for the nearest.
# Here it owns the test split of the data; the batch comes from the training split.

public = torch.from_numpy(data.x_test).float()
with torch.no_grad():
    features = gp.split(model).front(public)
nearest = public[torch.cdist(recovery.samples.float(), features).argmin(1)]
print(f"{len(public)} pictures, {features.shape[1]} features each")

# %%
# The upper row of the figure shows the client's own pictures, the lower row the picture of the
# server with the most similar features. ``score.matches`` says which sample of the batch each
# feature vector belongs to; the server does not know it and does not need it.

figure, axes = plt.subplots(2, 8, figsize=(8, 2.4))
for place, (above, below) in enumerate(axes.T):
    above.imshow(batch.x[audit.score.matches[place]], cmap="gray_r")
    below.imshow(nearest[place], cmap="gray_r")
for axis, name in zip(axes[:, 0], ("client", "nearest"), strict=True):
    axis.set_ylabel(name)
for axis in axes.flat:
    axis.set_xticks([])
    axis.set_yticks([])
figure.tight_layout()

# %%
# If the server happens to own a picture of the batch, it learns that it took part:

records = torch.cat([batch.x[:4], public[:4]])
print(gp.contains(model, audit.update, records).verdicts)

# %%
# So treat features like the data that they were computed from. :doc:`/features` lists what changes
# with features, how to choose another layer, and which networks cannot be read.
