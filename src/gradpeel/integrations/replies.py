"""What a server that only reads can take from the replies of a simulation's clients.

No ground truth is used, and no sample leaves this module: counts, certificates and labels do.

Example:
    >>> import torch
    >>> from torch import nn
    >>> from gradpeel.client import local_update
    >>> from gradpeel.training import weights_after
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 4)).double()
    >>> client, x, y = Client(lr=0.1, local_steps=1), torch.rand(8, 30), torch.arange(8) % 4
    >>> before, sent = model.state_dict(), local_update(model, x, y, client)
    >>> after = weights_after(before, sent.gradients, sent.training)
    >>> found = read_reply(model, before, after, client=client, samples=8)
    >>> print(replies_table([Reply(1, "7", found)]))
    | round | client | samples | certified | labels | remark |
    | --- | --- | --- | --- | --- | --- |
    | 1 | 7 | 8 | 8 | 0: 2, 1: 2, 2: 2, 3: 2 | the whole batch |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from gradpeel.client import Client
from gradpeel.decoder import Recovery, peel
from gradpeel.errors import GradpeelError
from gradpeel.integrations.outgoing import update_between
from gradpeel.reporting.words import counted

__all__ = ["Reading", "Reply", "read_reply", "replies_table"]


@dataclass(frozen=True)
class Reading:
    """What was read of one reply, without its samples.

    Attributes:
        samples: number of samples behind it, as far as the client says.
        certified: number of samples that were recovered, each with a certificate.
        candidates: what was read besides them without proof. Some may be samples; most are
            mixtures of several.
        labels: how often each label was recovered.
        evidence: the kinds of evidence that certificates rest on.
        complete: whether the recovered samples are provably the whole batch.
        failed: why nothing could be read, where that is so.
    """

    samples: int | None = None
    certified: int = 0
    candidates: int = 0
    labels: Mapping[int, int] | None = None
    evidence: tuple[str, ...] = ()
    complete: bool = False
    failed: str | None = None


@dataclass(frozen=True)
class Reply:
    """A reply of a client, and what was read of it.

    Attributes:
        round: of the server, from 1.
        client: who sent it.
        reading: what was read; None if the reply was an error, so that there was nothing to read.
    """

    round: int
    client: str
    reading: Reading | None


def read_reply(
    model: nn.Module,
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    *,
    client: Client,
    samples: int | None,
) -> Reading:
    """Decode the weights that a client returned, as a server could.

    Args:
        model: a network of the same architecture; it gets the weights that the client received.
        before: these weights.
        after: the weights that it returned.
        client: how it trained, as far as the server knows.
        samples: number of samples that it trained on, if it says so.

    Returns:
        What was read. Where nothing could be read, `failed` says why.
    """
    try:
        model.load_state_dict(dict(before))
        update = update_between(model, before, after, client, samples)
        recovery = peel(model, update, loss=client.loss)
    except (GradpeelError, KeyError, RuntimeError) as error:  # weights of another network
        return Reading(samples, failed=" ".join(str(error).split()))
    return Reading(
        samples,
        certified=recovery.found,
        candidates=len(recovery.unproven),
        labels=_count_labels(recovery),
        evidence=recovery.kinds,
        complete=recovery.complete,
    )


def _count_labels(recovery: Recovery) -> dict[int, int]:
    labels = [label for counts in recovery.label_counts for label in counts]
    counts = recovery.count_labels(max(labels, default=-1) + 1).tolist()
    return {label: count for label, count in enumerate(counts) if count}


def replies_table(replies: Iterable[Reply]) -> str:
    """A table in Markdown: one row per reply."""
    heads = ("round", "client", "samples", "certified", "labels", "remark")
    rows = [heads, ("---",) * len(heads), *map(_row, replies)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(reply: Reply) -> tuple[str, ...]:
    found = reply.reading
    if found is None:
        return (str(reply.round), reply.client, "", "", "", "an error, nothing else")
    labels = ", ".join(f"{label}: {count}" for label, count in (found.labels or {}).items())
    return (
        str(reply.round),
        reply.client,
        "" if found.samples is None else str(found.samples),
        str(found.certified),
        labels,
        _remark(found),
    )


def _remark(found: Reading) -> str:
    if found.failed is not None:
        return found.failed
    if found.complete:
        return "the whole batch"
    return f"{counted(found.candidates, 'candidate')} without proof" if found.candidates else ""
