"""One cell of the plan: a round is made, decoded, and compared with the truth."""

from __future__ import annotations

import signal
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.adversary.families import FAMILIES, Cell
from benchmarks.adversary.scenes import Scene, Setting, Source
from benchmarks.adversary.truth import RIGHT, Truth, Verdict, Yardstick, claims_of, compare
from gradpeel.exposure import Exposure, copies_of, grid_of
from gradpeel.target import Target

__all__ = ["Row", "decode", "measure"]

TIME_LIMIT = 180
"""Seconds that the decoder may take for one update."""

NOT_STATED = -1


@dataclass(frozen=True, kw_only=True)
class Row(Verdict, Cell):
    """What came of one cell.

    Attributes:
        features: inputs of the target.
        outputs: outputs of the network.
        batch: samples in the batch; a class may have fewer than were asked for.
        stated: the batch size the update states, -1 for none.
        tail: "known" or "unknown".
        claimed: the batch size the decoder claims to have found, -1 for none.
        complete: 1 if it claims to be complete.
        bound: samples that peeling the activation grid reaches.
        single_look: samples within `RIGHT` of some quotient G[:, j] / h[j], which takes no decoder.
        seconds: CPU seconds that the decoder took.
        error: what the decoder raised, if it did.
    """

    features: int
    outputs: int
    batch: int
    stated: int
    tail: str
    claimed: int
    complete: int
    bound: int
    single_look: int
    seconds: float
    error: str

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        return Cell(
            self.family,
            self.case,
            self.dataset,
            self.dtype,
            self.neurons,
            self.batch_size,
            self.seed,
        )

    @property
    def wrong(self) -> str:
        """What is wrong, in words; empty if nothing is."""
        counts = {
            f"{self.false} false": self.false,
            f"{self.wrong_labels} with a wrong label": self.wrong_labels,
            f"{self.wrong_copies} with a wrong number of copies": self.wrong_copies,
            f"{self.repeats} repeated": self.repeats,
            f"{self.beyond} more than the batch has": self.beyond,
            "wrongly complete": self.wrong_complete,
            f"batch size {self.claimed} claimed for {self.batch}": self.wrong_size,
            self.error: bool(self.error),
        }
        return ", ".join(words for words, count in counts.items() if count)

    def __str__(self) -> str:
        told = self.wrong and f", WRONG: {self.wrong}"
        return f"{self.cell}: {self.certified} certified, bound {self.bound}{told}"


def measure(cell: Cell, data_dir: Path | None, effort: float = 1.0) -> Row:
    """Make the round of one cell, decode it with some effort for the row cascade, and compare."""
    text = f"{cell.family}/{cell.case}/{cell.dataset}"
    rng = np.random.default_rng([cell.seed, zlib.crc32(text.encode()), cell.neurons])
    source = Source.load(cell.dataset, data_dir)
    setting = Setting(source, cell.neurons, cell.batch_size, rng)
    scene = FAMILIES[cell.family].cases[cell.case](setting)
    return decode(cell, scene, effort)


def decode(cell: Cell, scene: Scene, effort: float = 1.0) -> Row:
    """Send the update of a scene to the decoder, and hold what it claims against the truth."""
    dtype = getattr(torch, cell.dtype)
    model = scene.model.to(dtype)
    update = replace(scene.alter(scene.compute(model, scene)), batch_size=scene.stated)
    target = gp.split(model, share=True)
    x = scene.x.to(dtype)
    yardstick = scene.source.yardstick
    exposed = _exposed(target, x)
    tail_known = (
        scene.knows_tail and isinstance(scene.loss, gp.CrossEntropy) and not target.tail.unknown
    )
    truth = Truth(
        x=x.double(),
        y=None if scene.y.is_floating_point() else scene.y,
        silent=~exposed.grid.any(0),
        absent=_absent(scene),
        pull=_pull(scene, model, x) if tail_known else None,
        tail_known=tail_known,
        others=None if scene.others is None else scene.others.to(dtype).double(),
    )
    started = time.process_time()
    recovery, error = None, ""
    try:
        with _limited(TIME_LIMIT):
            recovery = gp.peel(
                model, update, loss=scene.loss, knows_tail=scene.knows_tail, effort=effort
            )
    except Exception as raised:  # noqa: BLE001 - whatever a decoder raises is a finding
        error = f"{type(raised).__name__}: {raised}".splitlines()[0][:200]
    seconds = time.process_time() - started
    claims = None if recovery is None else claims_of(recovery)
    verdict = Verdict() if claims is None else compare(claims, truth, yardstick)
    weight, bias = (update.gradients[name] for name in (target.weight_name, target.bias_name))
    return Row(
        **asdict(cell),
        **asdict(verdict),
        features=target.features,
        outputs=len(list(model.parameters())[-1]),  # the last bias
        batch=len(x),
        stated=NOT_STATED if scene.stated is None else scene.stated,
        tail="known" if tail_known else "unknown",
        claimed=NOT_STATED if claims is None or claims.batch_size is None else claims.batch_size,
        complete=int(claims is not None and claims.complete),
        bound=int(exposed.reached.sum()),
        single_look=_single_look(weight, bias, truth.x, yardstick),
        seconds=seconds,
        error=error,
    )


def _exposed(target: Target, x: Tensor) -> Exposure:
    """What `gradpeel.exposure` tells, without splitting the model once more."""
    with torch.no_grad():
        rows = target.front(x)
        copies = copies_of(rows)
        return Exposure.of(grid_of(target, rows).T[copies].T, copies)


def _absent(scene: Scene) -> Tensor:
    """(batch,) which samples have no weight in the loss, and so no gradient."""
    if not isinstance(scene.loss, gp.CrossEntropy):
        return torch.zeros(len(scene.x), dtype=torch.bool)
    classes = int(scene.y.max()) + 1
    weights = scene.loss.class_weights or (1.0,) * classes
    return torch.tensor(weights)[scene.y] == 0


def _pull(scene: Scene, model: nn.Module, x: Tensor) -> Tensor:
    """(batch,) size of each sample's loss gradient at the logits."""
    assert isinstance(scene.loss, gp.CrossEntropy)  # noqa: S101 - the tail would not be known
    with torch.no_grad():
        p = model(x).double().softmax(1)
    wanted = scene.loss.targets(p.shape[1]).to(p)[scene.y]
    gradient: Tensor = wanted.sum(1, keepdim=True) * p - wanted
    return gradient.abs().amax(1)


def _single_look(weight: Tensor, bias: Tensor, x: Tensor, yardstick: Yardstick) -> int:
    """Count the true samples that stand among the quotients G[:, j] / h[j]."""
    alive = bias.nonzero()[:, 0]
    # A distance over some of the features bounds the whole one from below: few quotients are left.
    part = slice(None, None, max(1, x.shape[1] // 64))
    narrow = yardstick.on(part)
    quotients = weight[alive][:, part].double() / bias[alive, None].double()
    left = alive[(narrow.distances(quotients, x[:, part]) <= 2 * RIGHT).any(1)]
    near = yardstick.distances(weight[left].double() / bias[left, None].double(), x) <= RIGHT
    return int(near.any(0).sum())


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a block that takes too long; only where the system has alarms."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
