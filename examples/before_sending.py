"""
Check before you send
=====================

A client can look at its own batch before it sends anything. A prediction takes one forward pass,
needs no labels and no gradient, and shows which records peeling would read. A check decodes the
update itself, with every attack that gradpeel has, and compares the answer with a budget.

The :doc:`guide </check>` is shorter; this tutorial shows where each of the two is useful.
"""

# %%
# One forward pass
# ----------------
# The client has the model that the server sent, and a batch.

import matplotlib.pyplot as plt
import torch
from torch import nn

import gradpeel as gp
from gradpeel.datasets import draw_batch, load

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 10))
data = load("digits")
batch = draw_batch(data, 64)

predicted = gp.check(model, batch.x, decode=False)
print(predicted)
print(f"peeling bound: {predicted.exposure.peeling_bound:.1%} of the batch")

# %%
# The *activation grid* says which neuron fires on which sample. A neuron that fires on one sample
# only hands that sample over; once the sample is subtracted, other neurons are left with one sample
# each. ``rounds`` gives the round in which each sample would be recovered, and 0 for those that
# peeling does not reach.

exposure = predicted.exposure
print("isolated from the start:", int(exposure.isolated.sum()))
print("reached by peeling:     ", predicted.readable)
print("rounds of the first 16: ", predicted.rounds[:16].tolist())
first = int(predicted.read.nonzero()[0])
print(f"record {first} is read through neurons {predicted.sources[first]}")

# %%
# Which samples are at risk
# -------------------------
# *Atypicality* is high for samples that fire neurons which are silent for most others. Those are
# recovered first.

reached = exposure.reached
figure, axis = plt.subplots(figsize=(7, 2.6))
for chosen, name in ((~reached, "not reached"), (reached, "reached")):
    axis.scatter(exposure.atypicality[chosen], exposure.rounds[chosen], s=18, label=name)
axis.set_xlabel("atypicality")
axis.set_ylabel("round")
axis.set_yticks(range(exposure.rounds_count + 1))
axis.legend()
figure.tight_layout()

# %%
# A smaller layer or a larger batch lowers the bound. This is a quick way to compare settings:

for size in (16, 32, 64, 128):
    bound = gp.exposure(model, draw_batch(data, size).x).peeling_bound
    print(f"batch of {size:3d}: {bound:.1%}")

# %%
# A bound of zero is not safety
# -----------------------------
# The peeling bound is a bound for peeling and for nothing else. Standardise the inputs, as many
# training pipelines do, and no neuron isolates any sample:

pixels = torch.from_numpy(data.x_train).flatten(1)
standardise = gp.Normalise(pixels.mean(0), pixels.std(0).clamp(min=0.01))
torch.manual_seed(0)
model = nn.Sequential(
    nn.Flatten(), standardise, nn.Linear(64, 1000), nn.ReLU(), nn.Linear(1000, 10)
)
batch = draw_batch(data, 32)
print(f"peeling bound: {gp.exposure(model, batch.x).peeling_bound:.1%}")

# %%
# The prediction says so itself: there is room for the :doc:`row cascade </row-cascade>`, so it
# cannot tell whether a budget holds.

budget = gp.Budget(max_readable=0.05)
predicted = gp.check(model, batch.x, decode=False)
print(predicted.verdict(budget).name)
print(predicted.breaches(budget))

# %%
# Decoding the update answers the question: the batch is read.

found = gp.check(model, batch.x, batch.y)
print(found.verdict(budget).name)
print(found.breaches(budget))
print("recovered by the row cascade:", found.audit.recovery.found_by_rows)

# %%
# Check what really leaves
# ------------------------
# Give the update itself, with everything that was done to it, and that is what is decoded. Here it
# is noise as large as the gradients, which no model would learn much from.

update = gp.with_noise(gp.local_update(model, batch.x, batch.y), 1.0)
found = gp.check(model, batch.x, batch.y, update=update, members=True)
print(found)
print(found.verdict(gp.Budget(max_readable=0.05, max_members=0)).name)

# %%
# So use a prediction as a fast warning. If it reports records, they are exposed. If it reports
# none, decode before you draw a conclusion, and remember that even then "not read" does not mean
# "safe".
