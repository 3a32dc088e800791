"""The peeling decoder (paper, section "The Loop").

Candidates are read, merged and certified; certified samples are subtracted, which creates new
singletons, until nothing new is certified. This package never sees ground truth.

Example:
    >>> import torch
    >>> from torch import nn
    >>> from gradpeel.client import local_update
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3)).double()
    >>> x, y = torch.rand(4, 20).double(), torch.tensor([2, 0, 1, 1])
    >>> peel(model, local_update(model, x, y))
    Recovery(4 of 4 samples in ... rounds, complete)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from gradpeel.checks import check_at_least_0, check_data_range, check_module
from gradpeel.decoder.candidates import Candidates, Readings, find
from gradpeel.decoder.certificate import Verdicts
from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.finish import Ending, finish
from gradpeel.decoder.inputs import check_belongs, move, samples_weigh_alike, stated_share
from gradpeel.decoder.judge import Judge
from gradpeel.decoder.kinks import tell_kinks
from gradpeel.decoder.known import KnownSamples
from gradpeel.decoder.labels import last_layer
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import gaussian, generator
from gradpeel.decoder.recovery import Evidence, Recovery, Round, RowCount, Stage
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows import Isolated, run_row_cascade
from gradpeel.decoder.share import Share, learn_share
from gradpeel.decoder.simulate import Backward
from gradpeel.decoder.state import Look, State
from gradpeel.decoder.uncertified import Solved, read_uncertified
from gradpeel.decoder.unproven import Reading
from gradpeel.errors import InputError
from gradpeel.losses import CrossEntropy
from gradpeel.target import split
from gradpeel.torch_losses import GivenLoss, as_loss
from gradpeel.update import Update

__all__ = ["Peeling", "peel"]


def peel(
    model: nn.Module,
    update: Update,
    *,
    loss: GivenLoss = CrossEntropy(),  # noqa: B008 -- immutable
    knows_tail: bool = True,
    sample_shape: tuple[int, ...] | None = None,
    data_range: tuple[float, float] | None = None,
    use_next_layer: bool = True,
    effort: float = 1.0,
    layer: str | None = None,
    device: str | torch.device = "cpu",
    on_round: Callable[[Round], None] | None = None,
    on_rows: Callable[[RowCount], None] | None = None,
) -> Recovery:
    """Decode an update: every sample that peeling can reach, with label and certificate.

    Args:
        model: the network the update was computed on, with the weights the client had; its first
            layers are enough without `knows_tail`.
        update: what the client sent; its batch size need not be known.
        loss: what the client minimised. With cross-entropy, samples are certified by simulating
            them, and get labels. With another loss, with a tail that is unknown or cannot be
            simulated, with samples of different weights, or with an update of several local steps,
            they are certified by the structure of the update. Then they have labels only after
            several steps, and only if the last layer follows the target.
        knows_tail: whether the loss and the network behind the target are known; otherwise neither
            is used.
        sample_shape: shape of one sample; without it, flat rows are returned.
        data_range: smallest and largest value of a sample's entry, if known; candidates outside
            this range are rejected.
        use_next_layer: also require that a candidate explains the next layer's gradient, where
            there is one.
        effort: how long the row cascade searches for samples that no neuron isolates; 0 for peeling
            alone.
        layer: name of the layer whose gradient is decoded, such as "classifier.0"; by default the
            first one that can be read. Where the network in front of it cannot be undone, features
            come back, the inputs of that layer, and `Recovery.space` says so.
        device: where to decode: "cpu", "cuda", "cuda:1", "mps" or "auto", the fastest available. A
            device without float64 leaves the work to the CPU. Results are always on the CPU.
        on_round: called after each round.
        on_rows: called while the row cascade searches, with its progress.

    Returns:
        The samples found, their labels and certificates, and whether they are provably the whole
        batch.

    Raises:
        ModelRefusedError: the network cannot be attacked; the error says why.
        InputError: the update does not belong to the network, or there is no such device.
    """
    peeling = Peeling(
        model,
        update,
        loss=loss,
        knows_tail=knows_tail,
        sample_shape=sample_shape,
        data_range=data_range,
        use_next_layer=use_next_layer,
        effort=effort,
        layer=layer,
        device=device,
        on_rows=on_rows,
    )
    for round_ in peeling:
        if on_round is not None:
            on_round(round_)
    return peeling.recovery()


class Peeling:
    """A running cascade: iterate over it for its rounds, then ask for the `recovery`.

    Takes the arguments of `peel`. The model and the update must not change meanwhile, because large
    tensors are not copied.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: nn.Module,
        update: Update,
        *,
        loss: GivenLoss = CrossEntropy(),  # noqa: B008 -- immutable
        knows_tail: bool = True,
        sample_shape: tuple[int, ...] | None = None,
        data_range: tuple[float, float] | None = None,
        use_next_layer: bool = True,
        effort: float = 1.0,
        layer: str | None = None,
        device: str | torch.device = "cpu",
        on_rows: Callable[[RowCount], None] | None = None,
    ) -> None:
        if not isinstance(update, Update):
            raise InputError(f"update of type {type(update).__name__}: expected gradpeel.Update")
        check_module(model)
        loss = as_loss(loss, reduction=update.reduction)
        check_data_range(data_range)
        check_at_least_0("effort", effort)
        labelled = knows_tail and isinstance(loss, CrossEntropy)
        if update.training is not None and not update.training.is_one_step:
            # What is recomputed at the model that was sent holds for one step; over several only
            # the structure of the sum does.
            knows_tail, use_next_layer = False, False
        model, update, where = move(model, update, device)
        self._target = target = split(model, layer=layer, share=True).for_decoding(where)
        check_belongs(model, target, update, whole=knows_tail)
        self._update = update = target.seen_from_relu(update)
        if data_range is not None and target.front.space == "features":
            raise InputError(
                f"data_range={data_range}: what enters layer {target.layer!r} are features, which "
                "have another range than inputs: expected None"
            )
        # A shape that does not fit is reported now, not after the cascade.
        empty = target.bias.new_zeros(0, target.features)
        target.front.invert(empty, sample_shape)
        self._sample_shape = sample_shape
        self._range = data_range
        residual = Residual(target, update, use_next=use_next_layer)
        self._layer = None if residual.of_several_steps else target.tail.next_layer
        self._change = None
        if residual.of_several_steps and target.tail.next_weight_name is not None:
            self._change = update.gradients.get(target.tail.next_weight_name)
        self._head = last_layer(target, update) if labelled and residual.of_several_steps else None
        self._direction, self._signs = _random_directions(residual, target.neurons)
        can_simulate = (
            knows_tail and target.tail.unknown is None and samples_weigh_alike(update, loss)
        )
        self._loss = loss if isinstance(loss, CrossEntropy) and can_simulate else None
        self._classes = 0
        if self._loss is not None:
            self._classes = target.tail(torch.zeros_like(target.bias)[None]).shape[1]
        known = KnownSamples(
            update.gradients[target.weight_name],
            width=residual.rows.shape[1],
            scale=residual.scale,
            next_width=0 if self._layer is None else self._layer.out_features,
            classes=self._classes,
        )
        self._state = State(residual, known)
        self._share: Share | None = None
        self._unit: Backward | None = None
        self._groups: dict[int, tuple[int, float]] = {}
        self._judge = Judge(
            target.tail,
            known,
            Structure(residual.sent),
            layer=self._layer,
            classes=self._classes,
        )
        self._ambiguous: set[int] = set()
        self._vague = False
        self._effort = effort
        self._searched_with = -1
        # After several steps a sample that is peeled leaves errors in which rows are lost, and rows
        # find what single neurons yield as well.
        self._rows_first = residual.of_several_steps
        self._rows: RowCount | None = None
        self._solved: Solved | None = None
        self._on_rows = on_rows

    @property
    def tried(self) -> int:
        """Number of candidates judged so far."""
        return self._judge.tried

    @torch.no_grad()
    def __iter__(self) -> Iterator[Round]:
        """Run the cascade, one round at a time."""
        state = self._state
        # Only neurons touched by the last round can have become singletons; the others need not be
        # examined again until the cascade stalls.
        touched = everywhere = torch.ones_like(state.residual.quiet)
        self._learn_share(find(state.residual, everywhere, self._direction), state.residual)
        stage = Stage.STRICT
        # It may be that no candidate has the direction of any label: then there is nothing to peel.
        if self._rows_first or (self._loss is not None and self._share is None):
            stage = Stage.ROWS
        while True:
            if state.is_explained:
                if not self._settle_trial():
                    break
                touched = everywhere
            seen = self._look_and_choose(touched, stage)
            if seen is None or not len(seen[1]):
                if seen is not None:
                    state.log(seen[0], seen[1], stage)
                touched, harder = everywhere, self._after_a_stall(stage)
                if harder is None:
                    break
                stage = harder
                continue
            look, chosen, combinations = seen
            new, touched = state.enter(look, chosen, stage, combinations)
            stage = Stage.STRICT
            yield state.trace[-1]
            # Errors accumulate along the cascade, and an uncertain mask can no longer be refined:
            # do not wait for the stall.
            worn = LIMITS.worn if self._judge.backward is not None else LIMITS.worn_measured
            if float(new.sample_error.max()) > worn and self._refine():
                touched = everywhere
        if len(state.known) and float(state.known.peeled.sample_error.max()) > self._exact_enough:
            self._refine()

    def _look_and_choose(
        self, touched: Tensor, stage: Stage
    ) -> tuple[Look, Tensor, Tensor | None] | None:
        """Examine the candidates of some neurons, or search for samples that no neuron isolates.

        Returns:
            What was examined, the indices of the candidates to subtract, and these as combinations
            of the weight gradient's rows where they are not simply read from their neurons; None
            where nothing was examined.
        """
        if stage is Stage.ROWS:
            return self._read_rows()
        look = self._look(touched, stage)
        return look, self._choose(look, speculate=stage is Stage.SPECULATIVE), None

    def _look(self, touched: Tensor, stage: Stage) -> Look:
        """Examine the candidates of some neurons, as thoroughly as the stage demands."""
        readings = find(self._state.residual, touched, self._direction)
        return self._seen(readings, self._judge.judge(readings, self._state.residual, stage))

    def _seen(self, readings: Readings, said: tuple[Candidates, Verdicts]) -> Look:
        """Record what an examination has shown besides samples."""
        candidates, verdicts = said
        self._vague |= bool(verdicts.vague.any())
        # A group that a later examination no longer shows has been resolved meanwhile.
        for place in range(len(candidates)):
            neuron = int(candidates.neurons[place])
            self._groups.pop(neuron, None)
            if bool(verdicts.groups[place]):
                size = self._judge.weighs * int(verdicts.peeled.counts[place].sum())
                self._groups[neuron] = size, float(verdicts.radius[place])
        alike = self._judge.alike
        if alike is not None and not self._state.on_trial:
            self._ambiguous.update(self._state.known.sources[alike].tolist())
        return Look(readings, *said)

    @property
    def _exact_enough(self) -> float:
        """Error that samples may have at the end; proving that none is missing requires less."""
        half = math.sqrt(self._state.residual.resolution)
        whole = bool(self._state.residual.quiet.all())
        return half if whole or self._judge.backward is None else max(half, LIMITS.worn)

    def _after_a_stall(self, stage: Stage) -> Stage | None:
        """How thoroughly to search now that nothing new was found; None if all was tried."""
        if stage is Stage.STRICT:
            # Known samples can be made more exact, which reveals fainter samples.
            if (self._vague or self._state.hides_something) and self._refine():
                self._vague = False
                return stage
            if self._tell_kinks():
                return stage
        if stage < self._judge.last_stage:
            return Stage(stage + 1)
        if stage is Stage.ROWS:
            first, self._rows_first = self._rows_first, False
            return Stage.STRICT if first else None
        return Stage.STRICT if self._settle_trial() else Stage.ROWS

    def _read_rows(self) -> tuple[Look, Tensor, Tensor] | None:
        """Search for samples that no neuron isolates, once for each set of known samples."""
        state = self._state
        if not self._effort or self._searched_with == len(state.known):
            return None
        self._searched_with = len(state.known)
        rows, isolated = run_row_cascade(
            state.residual,
            self._target.tail.next_layer,
            self._unit,
            change=self._change,
            effort=self._effort,
            on_rows=self._on_rows,
        )
        self._rows = rows or self._rows
        if isolated is None:
            return None
        look = self._look_at(isolated)
        chosen = self._choose(look, isolated)
        combinations = state.known.beyond(isolated.combinations)
        self._solved = Solved(isolated.samples, combinations)
        return look, chosen, combinations[isolated.owner[look.candidates.neurons[chosen]]]

    def _look_at(self, isolated: Isolated) -> Look:
        """Examine samples that are isolated once all other samples are subtracted."""
        readings = find(isolated.residual, isolated.owner >= 0, self._direction)
        if not len(self._state.known):
            # Mixtures showed neither the weight of one sample nor the distance between two.
            self._learn_share(readings, isolated.residual)
        return self._seen(readings, self._judge.judge_solved(readings, isolated))

    def _learn_share(self, readings: Readings, residual: Residual) -> None:
        """Set up the simulation with the weight that one sample has in this update.

        Args:
            readings: candidates of the whole update.
            residual: where they are read.
        """
        judge = self._judge
        judge.watch(readings, residual)
        if self._loss is None:
            return
        self._unit = backward = Backward(
            self._target.tail,
            self._loss,
            share=1.0,
            share_error=0.0,
            share_from=None,
            unit_error=self._signs * residual.spread,
            classes=self._classes,
        )
        stated = stated_share(self._update)
        self._share = share = learn_share(
            readings,
            residual,
            backward,
            judge.structure,
            between=judge.between,
            hint=stated,
        )
        if share is not None:
            judge.weighs = share.weighs(stated)
            size = share.batch_size if self._update.reduction == "mean" else None
            value, error = (share.value, share.error) if size is None else (1.0 / size, 0.0)
            judge.backward = replace(
                backward, share=value, share_error=error, share_from=share.only
            )

    def _refine(self, *, again: bool = False) -> bool:
        """Refine all samples and restart from the update; returns whether that was possible.

        Where an exact update has thousands of samples and neurons, refining them takes longer than
        peeling, and what it adds to so many digits reveals nobody.
        """
        size = len(self._state.known) * self._target.neurons
        if (
            size > LIMITS.refinable
            and self._state.residual.grain <= LIMITS.exact_grain
            and not again
        ):
            return False
        return self._state.refine(
            backward=self._judge.backward,
            layer=self._layer,
            structure=self._judge.structure,
            again=again,
        )

    def _tell_kinks(self) -> bool:
        """Determine where samples at a kink fire; returns whether anything was determined."""
        # Samples subtracted on trial may be wrong; and without v it is unknown what a silent sample
        # would add.
        state = self._state
        if state.on_trial or (self._judge.backward is None and not state.residual.has_next):
            return False
        told = tell_kinks(state.known.peeled, state.residual, self._isolating)
        if told is not None:
            state.learn(told)
        return told is not None

    def _isolating(self, residual: Residual, among: Tensor) -> Tensor:
        """(neurons,) which of some neurons yield a new sample that is certified."""
        readings = find(residual, among, self._direction)
        candidates, verdicts = self._judge.judge(readings, residual, Stage.STRICT)
        new = self._new(candidates, verdicts, verdicts.accepted.nonzero()[:, 0])
        row, column = candidates.pairs
        isolating = torch.zeros_like(among)
        isolating[column[torch.isin(row, new)]] = True
        return isolating

    def _settle_trial(self) -> bool:
        """Confirm samples that had little evidence when they were subtracted, or remove them.

        Returns whether any was removed.
        """
        state = self._state
        if not state.on_trial:
            return False
        kept = state.confirm(refined=self._refine(again=True))
        if bool(kept.all()):
            return False
        state.roll_back(kept)
        if len(state.known):
            self._refine(again=True)
        return True

    def _choose(
        self, look: Look, isolated: Isolated | None = None, *, speculate: bool = False
    ) -> Tensor:
        """Indices of accepted candidates that are new, distinct and within the declared range."""
        known, candidates, verdicts = self._state.known, look.candidates, look.verdicts
        chosen = verdicts.accepted.nonzero()[:, 0]
        if speculate and not len(chosen) and len(candidates):
            tried = self._state.refuted | set(known.sources[known.chances > LIMITS.chance].tolist())
            open_ = [neuron not in tried for neuron in candidates.neurons.tolist()]
            possible = verdicts.sound & verdicts.sound.new_tensor(open_)
            chance = torch.where(possible, verdicts.chance, torch.inf)
            best = chance.argmin()
            chosen = best[None] if float(chance[best]) <= LIMITS.speculative else chosen
        chosen = self._new(candidates, verdicts, chosen)
        if self._range is not None:
            neurons = candidates.neurons[chosen]
            if isolated is None:
                rows = known.read(candidates, chosen, self._state.residual.bias[neurons])
            else:
                own = isolated.combinations[isolated.owner[neurons]]
                rows = known.expand(known.beyond(own))
            chosen = chosen[self._within(self._range, rows, candidates.error[chosen])]
        return chosen

    def _new(self, candidates: Candidates, verdicts: Verdicts, chosen: Tensor) -> Tensor:
        """The chosen candidates that are not known samples, each once."""
        # Two readings are the same sample if they agree within the error of either.
        trusted = torch.maximum(verdicts.peeled.sample_error, verdicts.mismatch)
        coordinates, known = candidates.coordinates, self._state.known
        chosen = chosen[~known.knows(coordinates[chosen], trusted[chosen])]
        return chosen[known.distinct(coordinates[chosen], trusted[chosen])]

    def _within(self, bounds: tuple[float, float], rows: Tensor, error: Tensor) -> Tensor:
        low, high = bounds
        slack = (LIMITS.slack * error * max(abs(low), abs(high)))[:, None]
        samples = self._target.front.invert(rows, self._sample_shape).flatten(1)
        return ((samples >= low - slack) & (samples <= high + slack)).all(1)

    def _unproven(self) -> tuple[Reading, Tensor]:
        """What was read beyond the certified samples."""
        return read_uncertified(
            self._state,
            self._direction,
            unit=self._unit,
            groups=self._groups,
            certifies=self._certifies,
            solved=self._solved,
        )

    @property
    def _certifies(self) -> bool:
        """Whether what is found is certified.

        It is not where the weight of one sample is a guess; nor after several steps, where nothing
        is weighed, if samples that fire alike might be taken for one. With two outputs the loss
        gradients of all samples are parallel, and mixtures of them look the same at many neurons.
        """
        residual, tail = self._state.residual, self._target.tail
        if residual.of_several_steps:
            outputs = 0
            if tail.unknown is None:
                outputs = tail(torch.zeros_like(self._target.bias)[None]).shape[1]
            return outputs > 2 and self._judge.structure.tells_all_apart(residual.grain)
        return self._share is None or self._share.proven

    @property
    def neuron_errors(self) -> Tensor:
        """(neurons,) estimated error of each neuron's residual."""
        return self._state.residual.row_error.cpu()

    @property
    def weight_rounding(self) -> float:
        """Relative error that rounded weights leave in their difference; 0 for a gradient."""
        return self._state.residual.weight_rounding

    @torch.no_grad()
    def recovery(self) -> Recovery:
        """What the cascade has found so far, checked against the update as it was sent."""
        judge = self._judge
        return finish(
            Ending(
                target=self._target,
                update=self._update,
                state=self._state,
                backward=judge.backward,
                share=self._share,
                rank=judge.structure.rank if judge.structure.asked else None,
                sample_shape=self._sample_shape,
                certifies=self._certifies,
                unproven=self._unproven,
                candidates_tested=judge.tried,
                everywhere=Evidence(0) if self._range is None else Evidence.RANGE,
                vague=self._vague,
                ambiguous=self._ambiguous,
                rows=self._rows,
                head=self._head,
            )
        )


def _random_directions(residual: Residual, neurons: int) -> tuple[Tensor, Tensor]:
    """A unit vector (width,) along which candidates are compared, and (neurons,) signs."""
    source, like = generator(), residual.bias
    direction = gaussian(residual.rows.shape[1], like=like, source=source)
    coin = torch.rand(neurons, generator=source, device="cpu").to(like)
    order = torch.randperm(len(direction), generator=source, device="cpu")
    if residual.in_neuron_space:  # elsewhere many coordinates may be zero
        direction[order[LIMITS.compare_coordinates :].to(direction.device)] = 0.0
    return direction / direction.norm(), torch.where(coin < 0.5, -1.0, 1.0).to(like)
