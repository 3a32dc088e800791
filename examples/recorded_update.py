"""
Decode a recorded update
========================

You operate a federation, and you have recorded what a client sent. How much does it give away? This
time there is no real data to compare with; the evidence has to come from the update itself.

Decode only updates of systems that you own or are permitted to test, and treat recovered samples as
the personal data they are.
"""

# %%
# On the client's side
# --------------------
# A client computes the gradient of its loss on one batch. ``gp.local_update`` does that; if you
# have a training loop of your own, collect the gradients after ``backward()``:

import tempfile
from pathlib import Path

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
    nn.Linear(1000, 50),
    nn.ReLU(),
    nn.Linear(50, 10),
).double()
batch = draw_batch(load("digits"), 48)

nn.functional.cross_entropy(model(batch.x), batch.y).backward()
gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
update = gp.Update(gradients, batch_size=48)
print(update)

# %%
# An update is stored as safetensors or as npz, and neither is ever unpickled: a file from somebody
# else cannot run code when you read it.

folder = Path(tempfile.mkdtemp())
path = gp.save_update(update, folder / "update.safetensors")
print(path.name, path.stat().st_size, "bytes")

# %%
# On the auditor's side
# ---------------------
# Decoding needs the update and the model that the client had received. Nothing else is known.

recovery = gp.peel(model, gp.load_update(path))
print(recovery)

# %%
# *Complete* is a strong statement: the gradient of the recovered samples is the whole update, in
# all layers, so nothing else was in the batch.
#
# Each sample states what its certificate rests on, how many independent equations support it, and
# an estimate of its own error.

for place in range(3):
    print(
        f"sample {place}: label {int(recovery.labels[place])}, "
        f"{int(recovery.equations[place])} equations, "
        f"estimated error {float(recovery.errors[place]):.0e}, "
        f"evidence: {', '.join(recovery.evidence[place].words)}"
    )

# %%
# Here is what the operator of this federation could have looked at:

figure, axes = plt.subplots(2, 8, figsize=(8, 2.4))
for place, axis in enumerate(axes.flat):
    axis.imshow(recovery.samples[place].reshape(8, 8), cmap="gray_r")
    axis.set_title(f"label {recovery.labels[place]}", fontsize=9)
    axis.axis("off")
figure.tight_layout()

# %%
# When less is known
# ------------------
# The batch size, the loss and the layers behind the second one may all be unknown. The decoder then
# relies on the structure of the update; it recovers samples without labels.

anonymous = gp.Update(gradients)
first_layers = nn.Sequential(*list(model)[:4])
unlabelled = gp.peel(first_layers, anonymous, knows_tail=False)
print(unlabelled)
print("labels:", unlabelled.labels.unique().tolist(), "(-1 means unknown)")

# %%
# On the command line
# -------------------
# The command does the same, counts samples instead of showing them, and writes them only if you ask
# for it with ``--samples``.
#
# .. code-block:: sh
#
#     gradpeel peel update.safetensors --model model.safetensors
#
# :doc:`/file-formats` describes the files; :doc:`/method` explains what a certificate promises.
