"""
A FedAvg round
==============

Most federations do not exchange gradients. The client receives the weights of a model, trains on
its own data for some steps, and returns the weights. Nobody else sees a single gradient, and each
step uses other samples. This tutorial reads the client's data from the two sets of weights.
"""

# %%
# On the client's side
# --------------------
# Two passes through 32 scans of handwritten digits, in minibatches of eight: an ordinary training
# loop that knows nothing of gradpeel.

import copy

import matplotlib.pyplot as plt
import torch
from torch import nn

import gradpeel as gp
from gradpeel.datasets import draw_batch, load

torch.manual_seed(0)
sent = nn.Sequential(nn.Flatten(), nn.Linear(64, 1000), nn.ReLU(), nn.Linear(1000, 10)).double()
batch = draw_batch(load("digits"), 32)

returned = copy.deepcopy(sent)
optimiser = torch.optim.SGD(returned.parameters(), lr=0.1)
for _ in range(2):
    for rows in torch.randperm(32).split(8):
        optimiser.zero_grad()
        nn.functional.cross_entropy(returned(batch.x[rows]), batch.y[rows]).backward()
        optimiser.step()

# %%
# On the server's side
# --------------------
# The server holds the weights that it sent and those that came back. Learning rate, number of steps
# and batch size may be unknown.

update = gp.Update.from_weights(sent, returned)
recovery = gp.peel(sent, update)
print(recovery)

# %%
# The change of the first layer is a sum over samples, whatever the steps were: one row per sample,
# which is zero at every neuron that the sample never fires. The decoder finds those rows and
# solves for the samples. :doc:`/local-training` explains how, and what a certificate rests on.

figure, axes = plt.subplots(4, 8, figsize=(8, 4.6))
for place, axis in enumerate(axes.flat):
    axis.axis("off")
    if place < len(recovery):
        axis.imshow(recovery.samples[place].reshape(8, 8), cmap="gray_r")
        axis.set_title(f"label {recovery.labels[place]}", fontsize=9)
figure.tight_layout()

# %%
# How much training hides a batch?
# --------------------------------
# To ask that before a federation starts, simulate its rounds: an audit trains as ``gp.Client``
# says, decodes the weights and compares the result with the real data. Training hides samples as
# far as it makes neurons change sides, which takes large steps.

for lr in (0.01, 0.1, 0.5):
    client = gp.Client(lr=lr, local_epochs=2, local_batch_size=8)
    attacker = gp.Attacker(effort=0.02)  # a short search
    audit = gp.audit(sent, batch.x, batch.y, client=client, attacker=attacker)
    score = audit.score
    print(f"lr {lr:4}: {score.recovered:2d} of 32 certified, {score.read:2d} readable")

# %%
# *Certified* samples carry evidence that uses the weights alone; *readable* ones stand among the
# decoder's candidates without such evidence, which only an audit can count. The steps at learning
# rate 0.5 are larger than most clients take, and still hide only part of the batch.
#
# Several clients
# ---------------
# With secure aggregation the server sees only the sum over clients. Four clients with eight of the
# samples each:

audit = gp.audit(
    sent,
    batch.x,
    batch.y,
    client=gp.Client(lr=0.1, local_epochs=2, local_batch_size=4),
    aggregation=gp.Aggregation(4),
)
print(audit)

# %%
# The sum hides which client a sample belongs to, not the sample. It protects once the clients
# together send more samples than the layer can tell apart: :doc:`/secure-aggregation`.
#
# Clients that compute in float32 leave their rounding in the weights. Their samples are read all
# the same, but are not certified: try ``gp.Client(dtype=torch.float32, ...)``.
