"""The client's guard: the least change to an update after which our decoder reads nothing of it.

What is read from an update is read from one matrix, the gradients of the target's weight and bias
side by side, A = [G | h]. One batch of B samples gives it rank B: A = C^T [X | 1]. Whoever isolates
a neuron reads a row of [X | 1] from it, the row cascade finds the rows of C in its column space,
and membership asks which records lie in its row space. All three need all B dimensions.

So the guard sends the nearest matrix of a lower rank r. Its rows are mixtures of all samples, no
row of C lies in its column space, and no sample in its row space. What training needs of a gradient
is in its few largest singular values, so that even a quarter of the rank keeps nearly all of it. A
few neurons may still carry something near a sample; these are set to zero.

How far r must go down is measured, on the client's own batch: by how near the candidates of
all neurons come to a sample, and by running the decoder on what would be sent. If nothing else
helps, the gradient of the target is withheld.

Example:
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> x, y = torch.rand(16, 30), torch.randint(2, (16,))
    >>> guarded = guard(model, x, y, attacker=Attacker(effort=0))
    >>> print(guarded.after)
    0 certified, 0 readable, 0 shown to have taken part
    >>> guarded.stops
    ('peeling', 'membership')
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gradpeel.attacker import Attacker
from gradpeel.checks import check_seed, is_number
from gradpeel.client import Client, local_update
from gradpeel.coercion import Samples, Targets, as_samples
from gradpeel.decoder import peel
from gradpeel.decoder.inputs import check_belongs
from gradpeel.decoder.linalg import generator
from gradpeel.errors import InputError, ModelRefusedError
from gradpeel.exposure import Exposure, copies_at, grid_of
from gradpeel.inputs import NetworkInput, pick
from gradpeel.membership import contains
from gradpeel.scoring import feature_ranges, score, typical_distance
from gradpeel.target import Target, split
from gradpeel.training import weights_after
from gradpeel.update import Update

__all__ = ["APART", "Guarded", "Reading", "guard"]

APART = 0.2
"""A candidate nearer to a sample than this, relative to two samples' distance, is taken for it."""
MOST_MASKED = 0.01
"""Share of the neurons that are masked rather than the rank lowered."""
SPARE = 8
"""Random directions beyond the number of samples that find the space they span."""
NOTHING = 1e-12
"""A bias gradient this small, relative to the largest, leads to no candidate."""


@dataclass(frozen=True)
class Reading:
    """What our own decoder makes of an update, compared with the batch behind it.

    Attributes:
        certified: number of samples that it reads with a certificate.
        readable: number of samples that are among all it reads.
        false: number of certificates that are wrong.
        members: number of samples that are shown to have taken part; None where that cannot be
            asked, because something random stands in front of the layer.
    """

    certified: int = 0
    readable: int = 0
    false: int = 0
    members: int | None = 0

    def __str__(self) -> str:
        members = (
            "membership cannot be asked"
            if self.members is None
            else f"{self.members} shown to have taken part"
        )
        return f"{self.certified} certified, {self.readable} readable, {members}"


@dataclass(frozen=True, eq=False, repr=False)
class Guarded:
    """An update that was changed so that our decoder reads nothing, and what that took.

    Attributes:
        update: what to send, with the layout of the update that was given.
        layer: name of the layer whose gradient was changed.
        names: of the gradients of its weight and bias.
        rank: rank that was left of the layer's gradient; 0 if it is withheld.
        rank_before: rank that it had.
        masked: number of neurons that were set to zero.
        neurons: number of neurons that had a gradient.
        kept: share of the layer's gradient that is left, by its square.
        nearest: least distance of any candidate from a sample, relative to that between two
            samples; infinite if there are no candidates.
        after: what the decoder makes of `update`; None if that was not checked.
        effort: how long the row cascade searched in it; 0 for peeling alone.
    """

    update: Update
    layer: str
    names: tuple[str, str]
    rank: int
    rank_before: int
    masked: int
    neurons: int
    kept: float
    nearest: float
    after: Reading | None
    effort: float

    @property
    def is_withheld(self) -> bool:
        """Whether the layer's gradient is not sent at all."""
        return self.rank == 0

    @property
    def stops(self) -> tuple[str, ...]:
        """What reads nothing in this update any more, of peeling, rows and membership.

        Only what was tried counts: rows are missing if the row cascade did not run.
        """
        found: list[str] = []
        if self.after is None:
            return ()
        if not self.after.readable:
            found.append("peeling")
            if self.effort:
                found.append("rows")
        if self.after.members == 0:
            found.append("membership")
        return tuple(found)

    @property
    def leaves(self) -> tuple[str, ...]:
        """What is still there, in sentences."""
        found = []
        if self.after is None:
            found.append("The decoder was not run on it.")
        elif self.after.readable:
            found.append(f"{self.after.readable} samples can still be read.")
        if self.after is not None and self.after.members:
            found.append(f"{self.after.members} samples are still shown to have taken part.")
        if self.after is not None and not self.effort:
            found.append("The row cascade was not tried (effort 0).")
        if self.is_withheld:
            found.append(f"The gradient of layer {self.layer!r} is withheld: it does not train.")
        elif self.rank_before:
            found.append(
                f"The update still holds {self.rank} mixtures of all samples. The nearest that a "
                f"candidate comes to a sample is {self.nearest:.2f} of the distance between two."
            )
        found.append("The gradients of other layers are sent as they were, labels among them.")
        return tuple(found)

    def weights(
        self, before: Mapping[str, Tensor], after: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """The weights to return instead of those that the local training ended with.

        Args:
            before: the weights that the client received, by parameter name.
            after: those it would have returned; what was not changed is taken from there as it is,
                buffers among them. Without them all weights are made from the update.

        Returns:
            The weights behind `update`, in the dtypes of `before`.

        Raises:
            InputError: the update is a gradient, not a difference of weights; or weights of the
                guarded layer are missing.
        """
        training = self.update.training
        if training is None:
            raise InputError(f"{self.update}: a gradient, expected a difference of weights")
        return weights_after(before, self.update.gradients, training, after=after, only=self.names)

    def __str__(self) -> str:
        if self.is_withheld:
            change = "layer withheld"
        else:
            change = f"rank {self.rank} of {self.rank_before}, {self.masked} neurons masked"
        return (
            f"Guarded({self.layer}: {change}; stops {', '.join(self.stops) or 'nothing'}; "
            f"{self.kept:.1%} of the gradient kept)"
        )

    __repr__ = __str__


@torch.no_grad()
def guard(
    model: nn.Module,
    x: Samples,
    y: Targets = None,
    *,
    update: Update | None = None,
    client: Client = Client(),  # noqa: B008 - immutable
    attacker: Attacker = Attacker(),  # noqa: B008 - immutable
    apart: float = APART,
    check: bool = True,
    seed: int = 0,
) -> Guarded:
    """Change an update so that our strongest decoder reads nothing of the batch behind it.

    The gradient of one layer is changed, the one that the attacker would read; the others are not.
    "Nothing is read" is a statement about the decoders of this library, and was checked by running
    them on the result. It does not mean that the update is safe.

    Args:
        model: the network as the client received it, before any local training.
        x: the client's samples, see `gradpeel.coercion`.
        y: their labels or targets; needed where there is no `update`.
        update: what the client is about to send, with any other protection applied; None for what
            `client` would send.
        client: how the client trains; the decoder knows its loss.
        attacker: what the server is taken to know when the result is checked. Its design does not
            matter: the model is what it made of it. With effort=0 only peeling is tried, which is
            fast; the row cascade takes its full time to find nothing.
        apart: how far, relative to the distance between two samples, every candidate must be from
            every sample.
        check: run the decoder on the result, and lower the rank further while it reads anything;
            otherwise `apart` alone decides, which is fast enough for every step of a training.
        seed: of what is random in `client`.

    Returns:
        The update to send, and what the change stops, leaves and costs.

    Raises:
        ModelRefusedError: the network has no layer that our decoder can read, so there is nothing
            to guard against.
        InputError: the update does not belong to the network, or a setting breaks its rule.
    """
    if not (is_number(apart) and 0 <= apart < 1):
        raise InputError(f"apart={apart!r}: expected a number from 0 to below 1")
    check_seed(seed)
    if client.dtype is not None:
        model = copy.deepcopy(model).to(client.dtype)
    target = split(model, layer=attacker.layer, share=True)
    given = as_samples(model, x, y, target.weight.dtype)
    if update is None:
        update = local_update(model, given.x, given.y, client, seed=seed)
    check_belongs(model, target, update, whole=False)
    batch = _Batch(model, target, given.x, given.y, target.rows(given.x), client, attacker)
    matrix = _Matrix.of(target, update, len(batch.rows))
    for rank in matrix.ranks:
        low, masked = matrix.limit(rank, batch, apart)
        # Once there is nothing left to lower, what is masked is masked.
        if rank > 1 and int(masked.sum()) > MOST_MASKED * matrix.neurons:
            continue
        guarded = matrix.guarded(low, rank, masked, batch, check=check)
        if guarded.after is None or not (guarded.after.readable or guarded.after.false):
            return guarded
    nothing = torch.zeros_like(matrix.values)
    return matrix.guarded(nothing, 0, matrix.live, batch, check=check)


@dataclass(frozen=True, eq=False)
class _Batch:
    """The client's own batch, and how an update is compared with it."""

    model: nn.Module
    target: Target
    x: NetworkInput
    y: Tensor | None
    rows: Tensor
    client: Client
    attacker: Attacker

    def distances(self, candidates: Tensor) -> Tensor:
        """(n,) of each candidate from the nearest sample, relative to that between two samples."""
        true = self.rows.double()
        ranges = feature_ranges(true, common=False)
        low = true.amin(0)
        scaled = (true - low) / ranges
        unit = typical_distance(scaled) * true.shape[1] ** 0.5
        nearest: Tensor = torch.cdist((candidates - low) / ranges, scaled).amin(1) / unit
        return nearest

    def read(self, update: Update) -> Reading:
        """Decode an update and compare what comes back with the batch."""
        target, is_input = self.target, self.target.front.space == "input"
        if not bool(update.gradients[target.bias_name].any()):
            return Reading()
        truth = pick(self.x, target.front.entry) if is_input else self.rows
        known = self.attacker
        sent = update if known.knows_batch_size else replace(update, batch_size=None)
        found = peel(
            self.model,
            sent,
            loss=self.client.loss,
            knows_tail=known.knows_tail,
            sample_shape=tuple(truth.shape[1:]) if is_input else None,
            data_range=known.data_range,
            effort=known.effort,
            layer=target.layer,
        )
        copies = copies_at(target, self.x, self.rows)
        grid = grid_of(target, self.rows).T[copies].T
        unknown = torch.full((len(truth),), torch.nan, dtype=torch.float64)
        seen = score(
            found, truth, None, exposure=Exposure.of(grid, copies), signals=unknown, needed=1.0
        )
        return Reading(seen.recovered, seen.read, seen.false_certificates, self._members(sent))

    def _members(self, update: Update) -> int | None:
        try:
            return contains(
                self.model,
                update,
                self.x,
                labels=self.y,
                loss=self.client.loss,
                layer=self.target.layer,
            ).count("in")
        except ModelRefusedError:
            return None


@dataclass(frozen=True, eq=False)
class _Matrix:
    """The gradients of the target's weight and bias side by side, and their singular vectors.

    Attributes:
        target: the target.
        update: the update that they are from.
        values: (neurons, features + 1) both, the bias in the last column.
        scale: by which the bias is multiplied there, so that it weighs as much as a feature.
        live: (neurons,) mask of those with a gradient.
        left, strengths, right: the singular value decomposition of `values`.
        samples: number of rows that entered the target.
    """

    target: Target
    update: Update
    values: Tensor
    scale: float
    live: Tensor
    left: Tensor
    strengths: Tensor
    right: Tensor
    samples: int

    @classmethod
    def of(cls, target: Target, update: Update, samples: int) -> _Matrix:
        weight = update.gradients[target.weight_name].double()
        bias = update.gradients[target.bias_name].double()
        typical = bias.norm() * weight.shape[1] ** 0.5
        scale = float(weight.norm() / typical) if float(typical) else 1.0
        values = torch.cat([weight, (scale or 1.0) * bias[:, None]], dim=1)
        left, strengths, right = _decompose(values, samples + SPARE)
        live = values.any(1)
        return cls(target, update, values, scale or 1.0, live, left, strengths, right, samples)

    @property
    def neurons(self) -> int:
        """Number of neurons that have a gradient."""
        return int(self.live.sum())

    @property
    def rank(self) -> int:
        """Number of singular values above the roundings of the update."""
        if not len(self.strengths):
            return 0
        least = torch.finfo(self.update.dtype).eps * max(self.values.shape) ** 0.5
        return int((self.strengths > least * self.strengths[0]).sum())

    @property
    def ranks(self) -> Iterator[int]:
        """The ranks to try, from half of all samples down to one."""
        rank = min(self.rank, self.samples) // 2
        while rank:
            yield rank
            rank //= 2

    def limit(self, rank: int, batch: _Batch, apart: float) -> tuple[Tensor, Tensor]:
        """The nearest matrix of a rank, and which of its neurons come too near to a sample."""
        low = (self.left[:, :rank] * self.strengths[:rank]) @ self.right[:rank]
        low[~self.live] = 0.0
        near, where = self._nearness(self._changed(low), batch)
        masked = torch.zeros_like(self.live)
        masked[where] = near < apart
        low[masked] = 0.0
        return low, masked

    def guarded(
        self, low: Tensor, rank: int, masked: Tensor, batch: _Batch, *, check: bool
    ) -> Guarded:
        """The update with another matrix, decoded."""
        update = self._changed(low)
        whole, gone = float(self.values.norm()), float((self.values - low).norm())
        near = self._nearness(update, batch)[0]
        return Guarded(
            update=update,
            layer=self.target.layer,
            names=(self.target.weight_name, self.target.bias_name),
            rank=rank,
            rank_before=self.rank,
            masked=int(masked.sum()),
            neurons=self.neurons,
            kept=1.0 - (gone / whole) ** 2 if whole else 1.0,
            nearest=float(near.min()) if len(near) else math.inf,
            after=batch.read(update) if check else None,
            effort=batch.attacker.effort,
        )

    def _changed(self, low: Tensor) -> Update:
        """The update with another matrix."""
        given, target = self.update.gradients, self.target
        changed = {target.weight_name: low[:, :-1], target.bias_name: low[:, -1] / self.scale}
        same = {name: new.to(given[name]) for name, new in changed.items()}
        return replace(self.update, gradients={**given, **same})

    def _nearness(self, update: Update, batch: _Batch) -> tuple[Tensor, Tensor]:
        """(n,) how near candidates are to a sample, and (n,) the neurons they are read from."""
        seen = self.target.seen_from_relu(update).gradients
        weight = seen[self.target.weight_name].double()
        bias = seen[self.target.bias_name].double()
        where = (bias.abs() > NOTHING * bias.abs().amax()).nonzero()[:, 0]
        return batch.distances(weight[where] / bias[where, None]), where


def _decompose(values: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """The singular value decomposition of a matrix whose rank is known to be small.

    Random mixtures of the columns span what the columns span, if there are as many as the rank.
    Where the rank may be larger, twice multiplied they span its strongest directions.
    """
    rank = min(rank, *values.shape)
    mixtures = torch.randn(
        values.shape[1], rank, dtype=torch.float64, generator=generator(), device="cpu"
    ).to(values)
    basis = torch.linalg.qr(values @ mixtures).Q
    basis = torch.linalg.qr(values @ (values.T @ basis)).Q
    left, strengths, right = torch.linalg.svd(basis.T @ values, full_matrices=False)
    return basis @ left, strengths, right
