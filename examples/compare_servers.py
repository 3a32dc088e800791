"""
Compare an honest and a dishonest server
========================================

A passive server follows the protocol and only reads what it receives. A dishonest one may also
choose the first layer so that a gradient gives away more; gradpeel calls that choice a *design*.
Dishonest designs exist in simulation only, on your own data: nothing here is sent to anybody.
"""

# %%
# Four designs
# ------------
# ``Passive`` leaves the model as it is. ``TrapWeights`` makes neurons fire rarely. The two soliton
# designs set the biases so that the numbers of samples per neuron follow the distribution that lets
# a cascade run longest; ``SolitonData`` uses some similar data for this, ``SolitonFree`` none.

import matplotlib.pyplot as plt
import torch
from torch import nn

import gradpeel as gp
from gradpeel.datasets import draw_batch, load

torch.manual_seed(0)
model = nn.Sequential(
    nn.Flatten(),
    nn.Linear(64, 500),
    nn.ReLU(),
    nn.Linear(500, 10),
).double()
batch = draw_batch(load("digits"), 128)

designs = {
    "passive": gp.designs.Passive(),
    "trap weights": gp.designs.TrapWeights(),
    "soliton, no data": gp.designs.SolitonFree(),
    "soliton, similar data": gp.designs.SolitonData(batch.auxiliary),
}

# %%
# ``batch.auxiliary`` holds samples of the same data set that are not in the batch: the similar data
# that such a server might own.
#
# With ``effort=0`` the decoder peels and does nothing else, which is what the designs aim at. The
# *peeling bound* is the share that peeling could reach at most.

audits = {
    name: gp.audit(model, batch.x, batch.y, attacker=gp.Attacker(design, effort=0))
    for name, design in designs.items()
}
for name, audit in audits.items():
    score = audit.score
    print(
        f"{name:22s} recovered {score.recovered:3d} of 128,"
        f" bound {round(score.peeling_bound * 128):3d}, false {score.false_certificates}"
    )

# %%
# Why they differ
# ---------------
# The number of samples that fire a neuron is its *degree*. A cascade starts at neurons of degree 1
# and needs a supply of small degrees to continue.

figure, axes = plt.subplots(2, 2, figsize=(7, 4), sharex=True, sharey=True)
for axis, (name, audit) in zip(axes.flat, audits.items(), strict=True):
    axis.hist(audit.exposure.degrees, bins=32, range=(0, 128))
    axis.set_title(name, fontsize=10)
figure.supxlabel("degree", fontsize=10)
figure.supylabel("neurons", fontsize=10)
figure.tight_layout()

# %%
# To run many such comparisons over data sets, batch sizes and seeds, write a plan and start a
# sweep: :doc:`/sweeps`.
