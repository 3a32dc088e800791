"""What the client sent and how it trained, in words.

Example:
    >>> import torch
    >>> import gradpeel as gp
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(6, 40), torch.nn.ReLU(), torch.nn.Linear(40, 2)
    ... )
    >>> x, y = torch.rand(4, 6), torch.tensor([0, 1, 1, 0])
    >>> client = gp.Client(lr=0.1, local_epochs=3, local_batch_size=2, momentum=0.9)
    >>> found = gp.audit(model, x, y, client=client)
    >>> what_was_sent(found)
    'one update of 6 local steps'
    >>> local_training(found)
    '6 steps of SGD, learning rate 0.1, 2 samples per step, momentum 0.9'
"""

from __future__ import annotations

from gradpeel.audit import Audit
from gradpeel.reporting.words import counted, short

__all__ = ["aggregation", "local_training", "what_was_sent"]

MOST_SHOWN = 16


def what_was_sent(audit: Audit) -> str:
    """The update in a few words: one gradient, what local training leaves, or a sum of them."""
    steps, several = audit.local_steps, audit.update.clients
    if several > 1:
        what = "gradients" if steps is None else "updates"
        alike = audit.update.training is None or audit.update.training.steps is not None
        most = "each" if alike else "at most"
        how = "" if steps is None else f" of {counted(steps, 'local step')} {most}"
        return f"the sum of {several:,} clients' {what}{how}"
    if steps is None:
        return "one gradient"
    return f"one update of {counted(steps, 'local step')}"


def aggregation(audit: Audit) -> str | None:
    """Whose updates were added up, and what that hides; None for those of a single client."""
    if audit.update.clients == 1:
        return None
    sizes = audit.aggregation.split(audit.score.batch_size)
    each = f"{min(sizes):,} to {max(sizes):,} samples"
    if len(set(sizes)) == 1:
        each = f"{counted(sizes[0], 'sample')} each"
    found = audit.recovered_by_client
    shown = ", ".join(f"{count:,}" for count in found[:MOST_SHOWN])
    shown += ", ..." if len(found) > MOST_SHOWN else ""
    return (
        f"{audit.update.clients:,} clients of {each}; the server sees only the sum of their "
        f"updates. Recovered of each: {shown}. The sum does not reveal which client a "
        "sample came from"
    )


def local_training(audit: Audit) -> str | None:
    """How the client trained before it sent the difference of weights; None if it did not."""
    client = audit.client
    if client.lr is None or audit.local_steps is None:
        return None
    parts = [f"{counted(audit.local_steps, 'step')} of SGD", f"learning rate {short(client.lr)}"]
    if client.local_batch_size is not None:
        parts.append(f"{counted(client.local_batch_size, 'sample')} per step")
    size = audit.score.batch_size
    if (part := audit.took_part) < size:
        parts.append(f"{part:,} of {counted(size, 'sample')} took part")
    if client.momentum:
        parts.append(f"momentum {short(client.momentum)}")
    if client.weight_decay:
        parts.append(f"weight decay {short(client.weight_decay)}")
    return ", ".join(parts)
