"""The attacked layer: find it in any network, with what stands before and after it.

Example:
    >>> from torch import nn
    >>> split(nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)))
    Target(8 neurons on 12 features, next layer 3 wide)
"""

from gradpeel.target.derivatives import pull, push
from gradpeel.target.features import Entered, FeatureFront, watch_layer
from gradpeel.target.front import Front, Normalise
from gradpeel.target.splitting import Target, split, with_first_layer
from gradpeel.target.tail import Tail

__all__ = [
    "Entered",
    "FeatureFront",
    "Front",
    "Normalise",
    "Tail",
    "Target",
    "pull",
    "push",
    "split",
    "watch_layer",
    "with_first_layer",
]
