"""The client's own check: what would an update give away, and does that stay within a budget?

Example:
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> found = check(model, torch.rand(8, 30), [0, 1, 1, 0, 1, 0, 0, 1])
    >>> found
    Check(8 of 8 records readable, decoded)
    >>> found.breaches(Budget(max_readable=0.05))
    ('8 of 8 records can be read: max_readable=0.05 allows 0',)
"""

from gradpeel.checking.batches import Checks, check_batches
from gradpeel.checking.budget import Budget, Verdict
from gradpeel.checking.check import Check, check

__all__ = ["Budget", "Check", "Checks", "Verdict", "check", "check_batches"]
