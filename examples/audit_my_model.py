"""
Audit your own model
====================

You train a model together with others and want to know what one gradient of yours would give away.
An audit simulates one training round on data you own, decodes the gradient the way a server could,
and compares the result with the real data.
"""

# %%
# The model and the batch
# -----------------------
# Any ``torch.nn.Module`` with a ``Linear`` layer that is followed by a ReLU can be audited. Behind
# ``Flatten`` and a fixed normalisation, samples come back; behind other layers, such as
# convolutions, the features that enter the layer. Anything differentiable may follow.
#
# The batch is what the client trains on in one step: here, 64 scans of handwritten digits.

import matplotlib.pyplot as plt
import torch
from torch import nn

import gradpeel as gp
from gradpeel.datasets import draw_batch, load

torch.manual_seed(0)
model = nn.Sequential(
    nn.Flatten(),
    nn.Linear(64, 1000),
    nn.ReLU(),
    nn.Linear(1000, 100),
    nn.ReLU(),
    nn.Linear(100, 10),
)
data = load("digits")
batch = draw_batch(data, 64)
print(batch.x.shape, batch.y.shape)

# %%
# The audit
# ---------
# One call computes the client's gradient, decodes it and scores the result. The decoder sees only
# the model and the gradient, never the batch.

audit = gp.audit(model, batch.x, batch.y)
print(audit)

# %%
# *Recovered* samples carry a certificate: evidence, computed without the real data, that they are
# samples of the batch. *Readable* counts every sample that can be read from the gradient, with or
# without such evidence. A *false certificate* would be one that the real data contradicts.
#
# The score holds the details.

score = audit.score
print(f"recovered:            {score.recovered} of {score.batch_size}")
print(f"read directly:        {round(score.baseline_rate * score.batch_size)}")
print(f"labels correct:       {score.label_accuracy:.0%}")
print(f"largest pixel error:  {score.max_abs_error:.1e}")

# %%
# "Read directly" counts the samples that an attack without a cascade would find: those that some
# neuron isolates from the start. All others became readable only after the earlier ones had been
# subtracted, round by round:

print("recovered in each round:", audit.recovery.by_round)

# %%
# What the server sees
# --------------------
# The recovered samples come back in the shape of the input, in the order in which they were found.

figure, axes = plt.subplots(2, 8, figsize=(8, 2.4))
for place, axis in enumerate(axes.flat):
    axis.imshow(audit.recovery.samples[place], cmap="gray_r")
    axis.set_title(f"label {audit.recovery.labels[place]}", fontsize=9)
    axis.axis("off")
figure.tight_layout()

# %%
# Closer to what clients do
# -------------------------
# By default the client computes in the model's own dtype. You can ask the same question about
# another round: with noise on the gradient, with a batch size that nobody tells the decoder, or
# without any knowledge of the layers behind the first two.

noisy = gp.audit(
    model,
    batch.x,
    batch.y,
    client=gp.Client(noise=1e-6),
    attacker=gp.Attacker(knows_batch_size=False),
)
print(noisy)
print("batch size found by the decoder:", noisy.recovery.batch_size.value)

# %%
# A model after some training gives away a different amount, so audit the model that you actually
# send, at the point of training that matters to you.

optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
x_train = torch.from_numpy(data.x_train).float()
y_train = torch.from_numpy(data.y_train)
for _ in range(30):
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(x_train), y_train).backward()
    optimiser.step()
print(gp.audit(model, batch.x, batch.y))

# %%
# The report
# ----------
# ``gp.report`` makes one HTML page out of an audit: the verdict, originals beside what was rebuilt,
# and the cascade to step through. ``samples=False`` leaves personal data out.
#
# .. code-block:: python
#
#     gp.report(audit, data).save("report.html")
#
# A sample that was not recovered is not thereby safe: another attack, another round or a server
# that changes the first layer may reach it. :doc:`/sharp-edges` lists the limits of an audit.
