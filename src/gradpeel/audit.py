r"""The one call that ties it together: simulate a training round, decode it, score it.

    batch -> client -> update -> peel -> recovery -> score
                  \-> exposure

A `Client` says how the client trains, an `Attacker` what the server does and knows. By default the
client sends the gradient of one batch and the server knows all but the data. What a server may not
know in practice (the batch size, the loss, the network behind the target) can be withheld from it.

Example:
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> x, y = torch.rand(8, 30), torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])
    >>> audit(model, x, y).score.recovery_rate
    1.0
    >>> unsure = Attacker(knows_batch_size=False)
    >>> audit(model, x, y, client=Client(noise=1e-6), attacker=unsure).recovery.batch_size.value
    8
    >>> audit(model, x, y, client=Client(lr=0.01, local_steps=3)).without_tail
    'the update is the sum of the gradients of 3 local steps'
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from gradpeel.aggregation import Aggregation
from gradpeel.attacker import Attacker
from gradpeel.checks import check_seed, finite_or_none
from gradpeel.client import Client
from gradpeel.coercion import Samples, Targets, as_labelled_samples
from gradpeel.decoder import Peeling, Recovery, Round
from gradpeel.decoder.inputs import check_rows_last, samples_weigh_alike
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.recovery import RowCount
from gradpeel.designs import Design
from gradpeel.errors import InputError, ModelRefusedError
from gradpeel.exposure import Exposure
from gradpeel.inputs import NetworkInput, pick
from gradpeel.inversion import Inversion, invert, leaked_tokens
from gradpeel.inversion.likeness import compare
from gradpeel.losses import CrossEntropy, Loss
from gradpeel.membership import Membership, contains
from gradpeel.scoring import Outcome, Score, explain, score
from gradpeel.signals import sensitivities, signals
from gradpeel.simulation import send_out, simulate_round
from gradpeel.target import Target, split
from gradpeel.torch_losses import as_loss
from gradpeel.update import Update

__all__ = ["Audit", "audit"]


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What one simulated training round gives away.

    Attributes:
        client: how the client trained.
        attacker: what the server did and knew.
        aggregation: how many clients' updates the server received as one sum.
        owners: (batch,) int64, the client of each sample; of each token, where tokens come back.
        features: number of features that enter the target.
        model: the network the client received, after the design.
        inputs: all that the client's model takes: (batch, *sample_shape), or
            `gradpeel.inputs.Inputs` of a network with several inputs.
        truth: what the recovery is compared with: the samples themselves or, where features come
            back, (batch, features) what entered the layer in the client's own forward pass.
        y: (batch,) labels, or (batch, outputs) targets.
        without_tail: why the decoder's evidence does without the tail; it then has no labels, but
            for those of several local steps. None if it used the tail.
        update: what the decoder received from the client.
        exposure: the activation grid of the batch, and what peeling reaches on it; after several
            local steps, the grid of "ever fired".
        recovery: what the decoder found, without seeing the batch.
        score: the recovery compared with the batch.
        signals: (batch,) how strongly each sample stands out where peeling would read it.
        seed: the seed of everything random.
        seconds: how long the decoder took.
        columns: names of the features of a sample, where the data came with names.
        entry: of a network with several inputs, the name of the one that comes back; None of a
            network with one, and where features come back.
    """

    client: Client
    attacker: Attacker
    aggregation: Aggregation
    owners: Tensor
    features: int
    model: nn.Module
    inputs: NetworkInput
    truth: Tensor
    y: Tensor
    without_tail: str | None
    update: Update
    exposure: Exposure
    recovery: Recovery
    score: Score
    signals: Tensor
    seed: int
    seconds: float
    columns: tuple[str, ...] | None = None
    entry: str | None = None

    @property
    def x(self) -> Tensor:
        """(batch, *sample_shape) the client's samples.

        Of a network with several inputs, the one that comes back, or the first one if none does.
        """
        if isinstance(self.inputs, Tensor):
            return self.inputs
        return self.truth if self.entry is not None else self.inputs.tensors[0]

    @property
    def design(self) -> Design:
        """How the server set the target."""
        return self.attacker.design

    @property
    def loss(self) -> Loss:
        """What the client minimised."""
        return as_loss(self.client.loss)

    @property
    def rows_per_sample(self) -> int:
        """How many rows of each sample enter the target: 1, or the number of tokens."""
        return len(self.truth) // len(self.x)

    @property
    def local_steps(self) -> int | None:
        """Number of steps that a client trained locally; None for the gradient of one batch.

        Of clients with different numbers of samples, the most that one of them took.
        """
        if self.client.lr is None:
            return None
        return _most_steps(self.client, self.aggregation, len(self.inputs))

    @property
    def took_part(self) -> int:
        """How many samples the clients drew; with few steps on minibatches, not all."""
        return sum(map(self.client.count_samples, self.aggregation.split(len(self.inputs))))

    @property
    def recovered_by_client(self) -> tuple[int, ...]:
        """How many samples of each client were recovered; the server cannot tell whose they are."""
        found = [outcome is Outcome.RECOVERED for outcome in self.score.outcomes]
        counts = torch.bincount(self.owners[torch.tensor(found)], minlength=self.update.clients)
        return tuple(counts.tolist())

    @cached_property
    def membership(self) -> Membership:
        """Which of the batch's samples the update shows to have taken part, recovered or not.

        Computed when first asked for, with what the attacker knows of the batch size, and with the
        labels; see `gradpeel.contains`.

        Raises:
            ModelRefusedError: that cannot be asked, see `refuses_membership`.
        """
        return contains(
            self.model,
            self.update,
            self.inputs,
            labels=self.y,
            loss=self.loss,
            layer=self.recovery.layer,
        )

    @cached_property
    def refuses_membership(self) -> bool:
        """Whether nothing can be asked about membership.

        That is so where something in front of the layer changes from batch to batch, such as
        dropout.
        """
        try:
            return not len(self.membership)
        except ModelRefusedError:
            return True

    @property
    def wrong_memberships(self) -> int:
        """Number of samples whose membership the update shows wrongly: a fault of the test.

        A sample that fires a neuron in some step took part; one that fires none in any step left no
        trace by which it could be recognised. A defence may take a trace away on purpose, so that
        the test says "out" of a member: that is not counted.
        """
        if self.refuses_membership:
            return 0
        fires, found = self.exposure.grid.any(0), self.membership
        each = fires.view(-1, self.rows_per_sample)
        lost = found.mask("out") & each.all(1) & (not self.client.distorts)
        return int((lost | found.mask("in") & ~each.any(1)).sum())

    @cached_property
    def leaked_tokens(self) -> dict[str, Tensor]:
        """The tokens that the gradients of embeddings name; see `gradpeel.leaked_tokens`."""
        return leaked_tokens(self.model, self.update)

    def invert(
        self,
        *,
        data_range: tuple[float, float] | None = None,
        values: Sequence[float] | Tensor | None = None,
        starts: int = 4,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Inversion:
        """Reconstruct inputs from the recovered features, and compare them with the real ones.

        Args:
            data_range: smallest and largest value of inputs, such as (0, 1); a server often knows.
            values: the only values that inputs can have, such as (0, 1) for binary pixels.
            starts: how many starts to try at most.
            on_progress: called with the number of inputs that are done, and of all.

        Returns:
            What `gradpeel.invert` reconstructs, with its `likeness` to the batch.

        Raises:
            ModelRefusedError: the network gives an input other features each time.
            InputError: recovered samples are inputs already, the network takes several inputs, or a
                setting breaks its rule.
        """
        if not isinstance(self.inputs, Tensor):
            raise InputError(
                "x of several inputs: expected one tensor; wrap the network in a module that takes "
                "its inputs side by side and cuts them apart"
            )
        found = invert(
            self.model,
            self.recovery,
            sample_shape=tuple(self.x.shape[1:]),
            data_range=data_range,
            values=values,
            update=self.update,
            loss=self.loss,
            starts=starts,
            seed=self.seed,
            on_progress=on_progress,
        )
        seen = compare(self.x, self.score.matches, found.inputs, ordered=found.ordered)
        return replace(found, likeness=seen)

    def __repr__(self) -> str:
        score, noun = self.score, self.recovery.noun
        return (
            f"Audit({self.design.name}: {score.recovered} of {score.batch_size} {noun}s recovered, "
            f"{score.read} readable, {score.false_certificates} false certificates)"
        )

    def as_dict(self) -> dict[str, object]:
        """The numbers of this audit as plain values for JSON, without any samples."""
        score, limits = self.score, self.attacker.data_range
        return {
            "design": self.design.name,
            "weights": self.design.weights,
            "batch_size": score.batch_size,
            "neurons": self.exposure.grid.shape[0],
            "features": self.features,
            "seed": self.seed,
            "dtype": str(self.update.dtype).removeprefix("torch."),
            "reduction": self.update.reduction,
            "loss": self.loss.name,
            "noise": self.client.noise,
            "defences": [str(defence) for defence in self.client.defences],
            "lr": self.client.lr,
            "momentum": self.client.momentum,
            "weight_decay": self.client.weight_decay,
            "local_steps": self.local_steps,
            "clients": self.update.clients,
            "recovered_by_client": list(self.recovered_by_client),
            "local_epochs": self.client.local_epochs,
            "local_batch_size": self.client.local_batch_size,
            "knows_batch_size": self.attacker.knows_batch_size,
            "knows_tail": self.attacker.knows_tail,
            "data_range": limits and [finite_or_none(float(end)) for end in limits],
            "effort": self.attacker.effort,
            "without_tail": self.without_tail,
            "recovered": score.recovered,
            "readable": score.read,
            "recovery_rate": score.recovery_rate,
            "peeling_bound": score.peeling_bound,
            "baseline_rate": score.baseline_rate,
            "label_accuracy": score.label_accuracy,
            "false_certificates": score.false_certificates,
            "inexact_certificates": score.inexact_certificates,
            "repeats": score.repeats,
            "wrong_multiplicities": score.wrong_multiplicities,
            "error_estimates_hold": score.error_estimates_hold,
            "membership": None if self.refuses_membership else self.membership.as_dict(),
            "wrong_memberships": self.wrong_memberships,
            "leaked_tokens": {name: len(found) for name, found in self.leaked_tokens.items()},
            **self.recovery.as_dict(),
            "max_abs_error": score.max_abs_error,
            "median_abs_error": score.median_abs_error,
            "entry": self.entry,
            "unrecovered_but_reachable": [
                {
                    "sample": i,
                    "why": outcome.value,
                    "signal": finite_or_none(float(self.signals[i])),
                }
                for i, outcome in enumerate(score.outcomes)
                if outcome not in {Outcome.RECOVERED, Outcome.UNREACHED}
            ],
            "seconds": self.seconds,
        }


def audit(
    model: nn.Module,
    x: Samples,
    y: Targets = None,
    *,
    client: Client = Client(),  # noqa: B008 - immutable
    attacker: Attacker = Attacker(),  # noqa: B008 - immutable
    aggregation: Aggregation = Aggregation(),  # noqa: B008 - immutable
    update: Update | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    on_round: Callable[[Round], None] | None = None,
    on_rows: Callable[[RowCount], None] | None = None,
) -> Audit:
    """Simulate a training round on data you own and report what it gives away.

    Args:
        model: the network, in the mode in which the client trains it; it is not changed.
        x: the client's batch, (batch, *sample_shape), as the model expects it: a tensor, an array,
            a DataFrame, a tuple or a dict of several inputs, a Dataset, or a DataLoader, of which
            the first batch is taken; see `gradpeel.coercion`.
        y: class labels, (batch,), for the cross-entropy; targets, (batch, outputs), for the other
            losses. None if `x` brings them; the name of a column if `x` is a DataFrame.
        client: how the client trains; by default it sends the gradient of one batch (FedSGD).
        attacker: what the server does and knows; by default it leaves the model as it is and knows
            all but the data.
        aggregation: how many clients' updates are added up before the server sees them (secure
            aggregation); the batch is then that of all clients, one after the other.
        update: what the server receives, if it is not to be simulated: for instance the update that
            is about to leave a client, with all its defences. `model` is then the network that it
            was computed on, and `client` says how.
        seed: seed of the design, of anything random in the model, of the order of the samples in
            local training, and of the noise.
        device: where the decoder computes, see `gradpeel.peel`; the client is simulated on the CPU.
        on_round: called after each round of the cascade.
        on_rows: called with its progress while the row cascade searches.

    Returns:
        The recovery and its score, with everything they were computed from.

    Raises:
        ModelRefusedError: the network cannot be audited; the error lists every reason.
        InputError: the batch does not fit the network, or a setting breaks its rule.
    """
    check_seed(seed)
    for name, value, kind in (
        ("client", client, Client),
        ("attacker", attacker, Attacker),
        ("aggregation", aggregation, Aggregation),
    ):
        if not isinstance(value, kind):
            got = type(value).__name__
            raise InputError(f"{name} of type {got}: expected gradpeel.{kind.__name__}")
    if update is not None:
        _check_given(update, client, attacker)
    loss = as_loss(client.loss)
    target = split(model, layer=attacker.layer)
    dtype = target.weight.dtype if client.dtype is None else client.dtype
    # Simulated on the CPU, wherever model and data live.
    taken, wanted, columns = as_labelled_samples(model, x, y, dtype)
    taken, wanted = taken.cpu(), wanted.cpu()
    if target.weight.device.type != "cpu":
        model = copy.deepcopy(model).cpu()
        target = split(model, layer=target.layer)
    steps = _most_steps(client, aggregation, len(taken))
    if steps > 1:
        check_rows_last(target)
    # Dropout in front of the layer draws from PyTorch's own generator.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shaped, received = send_out(
            model, target, attacker.design, len(taken), dtype=dtype, seed=seed
        )
        received.check_on(taken)
        simulated = simulate_round(
            shaped, received, taken, wanted, client=client, aggregation=aggregation, seed=seed
        )
    exposed = simulated.exposure
    update = simulated.update if update is None else update
    is_input = received.front.space == "input"
    truth = pick(taken, received.front.entry) if is_input else simulated.rows
    each = len(simulated.rows) // len(taken)
    if not attacker.knows_batch_size:
        update = replace(update, batch_size=None)

    started = time.perf_counter()
    peeling = Peeling(
        shaped,
        # The decoder counts rows.
        replace(update, batch_size=update.batch_size and each * update.batch_size),
        loss=loss,
        knows_tail=attacker.knows_tail,
        sample_shape=tuple(truth.shape[1:]) if is_input else None,
        data_range=attacker.data_range,
        effort=attacker.effort,
        layer=target.layer,
        device=device,
        on_rows=on_rows,
    )
    for round_ in peeling:
        if on_round is not None:
            on_round(round_)
    recovery = peeling.recovery()
    seconds = time.perf_counter() - started

    strength = signals(simulated.contributions, exposed)
    # Three digits of a sample must survive the roundings, or the noise, of what it was summed up
    # with. A difference of weights is rounded like weights.
    resolution = max(torch.finfo(update.dtype).eps, client.noise)
    needed = LIMITS.clear * LIMITS.rounding * max(resolution, peeling.weight_rounding)
    if client.distorts:
        needed = 1.0  # how much of a sample a defence leaves is not known
    labels = wanted if each == 1 else None
    scored = score(recovery, truth, labels, exposure=exposed, signals=strength, needed=needed)
    scored = explain(
        scored,
        exposed,
        sensitivities(simulated.contributions, exposed),
        peeling.neuron_errors,
        enough=max(LIMITS.clear, 1 / math.sqrt(resolution)),
    )
    return Audit(
        client=client,
        attacker=attacker,
        aggregation=aggregation,
        owners=simulated.owners,
        features=target.features,
        model=shaped,
        inputs=taken,
        truth=truth,
        y=wanted,
        without_tail=_why_without_tail(received, update, loss, attacker, steps),
        update=update,
        exposure=exposed,
        recovery=recovery,
        score=scored,
        signals=strength,
        seed=seed,
        seconds=seconds,
        columns=columns,
        entry=None if received.front.entry is None else received.front.entry[1],
    )


def _check_given(update: Update, client: Client, attacker: Attacker) -> None:
    """An update that was not simulated fits what is said of it."""
    if not isinstance(update, Update):
        raise InputError(f"update of type {type(update).__name__}: expected gradpeel.Update")
    if attacker.design.weights != "keep":
        rule = "the model is what the update was computed on: expected a design that keeps it"
        raise InputError(f"design={attacker.design!r}: {rule}")
    if (update.training is None) != (client.lr is None):
        kind = "a gradient" if update.training is None else "the result of local training"
        raise InputError(f"client with lr={client.lr}: the update is {kind}")


def _most_steps(client: Client, aggregation: Aggregation, samples: int) -> int:
    """Local steps of the client that takes the most of them."""
    return max(map(client.count_steps, aggregation.split(samples)))


def _why_without_tail(
    target: Target, update: Update, loss: Loss, attacker: Attacker, steps: int
) -> str | None:
    if not attacker.knows_tail:
        return "kept from the decoder"
    if steps > 1:
        return f"the update is the sum of the gradients of {steps} local steps"
    if not samples_weigh_alike(update, loss):
        if not update.equal_weights and update.clients == 1:
            return "samples have different weights in the update"
        return "samples of different clients have different weights in the sum"
    if not isinstance(loss, CrossEntropy):
        return f"{loss.name} has no class labels to tell"
    return target.tail.unknown
