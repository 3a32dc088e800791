"""What a peel costs, next to the matrix product that it needs and the paper's loop as written.

    python -m benchmarks --data-dir DIR [--out speed.csv] [--markdown FILE] [--plot FILE]

Everything of one case is measured in one process of its own, in CPU seconds of one thread, the best
of some runs: the peel; its floor, the bare product W1 G of the same matrices; a single pass, which
is the first round alone; and, where `--reference` seconds allow it, the paper's loop. The batches
are real images (CIFAR-10, or Tiny-ImageNet for larger ones), resized where a case asks for another
number of features; the design is Soliton-Data.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import gradpeel as gp
from benchmarks.cells import load_cached
from benchmarks.reference import reference_peel
from gradpeel.client import local_update
from gradpeel.datasets import draw_batch
from gradpeel.decoder import Peeling
from gradpeel.designs import Layer, SolitonData
from gradpeel.exposure import peel_grid
from gradpeel.networks import mlp
from gradpeel.target import with_first_layer

__all__ = ["BY_BATCH", "BY_FEATURES", "BY_NEURONS", "CASES", "GOALS", "Case", "Row", "measure"]

SIDES = {192: 8, 768: 16, 3072: 32, 12288: 64, 49152: 128, 150528: 224}
"""Side of a square colour image with so many features."""

T = TypeVar("T")

_LARGE = 20_000
"""Features from which on a case is measured once."""


@dataclass(frozen=True, order=True)
class Case:
    """What is decoded: a network of these widths, an update of so many samples.

    `tail` is the widths of further hidden layers, such as "256,128", or "-".
    """

    features: int
    neurons: int
    batch_size: int
    tail: str = "-"
    dtype: str = "float64"

    def __str__(self) -> str:
        tail = "" if self.tail == "-" else f", tail {self.tail}"
        sizes = f"F={self.features} N={self.neurons} B={self.batch_size}"
        return f"{sizes}{tail}, {self.dtype}"


@dataclass(frozen=True, kw_only=True)
class Row(Case):
    """What one case measured.

    Times are CPU seconds of one thread. `floor` is the product in the update's dtype, `floor64` in
    float64, which the decoder needs. `reference` is 0 where the paper's loop was not run, negative
    where it had not ended after so many seconds. Memory is in MB: the update itself, and the most
    that decoding it took on top of model and update.
    """

    recovered: int
    reachable: int
    rounds: int
    peel: float
    floor: float
    floor64: float
    single_pass: float
    reference: float
    design: float
    grid_peel: float
    update_memory: float
    extra_memory: float

    def __str__(self) -> str:
        return (
            f"{self.cell}: {self.peel:.3f} s, {self.peel / self.floor64:.2f} x the product, "
            f"{self.recovered} of {self.reachable} in {self.rounds} rounds"
        )

    @property
    def cell(self) -> Case:
        """The case this is the measurement of."""
        return Case(self.features, self.neurons, self.batch_size, self.tail, self.dtype)

    @property
    def ratio(self) -> float:
        """The peel in units of its floor."""
        return self.peel / self.floor64

    @property
    def memory_ratio(self) -> float:
        """Memory beside the model, in units of the update."""
        return 1.0 + self.extra_memory / self.update_memory

    @property
    def speedup(self) -> float | None:
        """How many times the peel's time the paper's loop takes, at least; None if it was not run.

        Negative where it had not ended by then.
        """
        return self.reference / self.peel if self.reference else None


GOALS = (
    Case(3072, 1000, 512),
    Case(12288, 1000, 512),
    Case(150528, 1000, 512),
    Case(150528, 1000, 512, dtype="float32"),
    Case(150528, 1000, 128, dtype="float32"),
    Case(3072, 1000, 512, tail="256,128"),
    Case(3072, 4096, 1024),
    Case(3072, 4096, 2048),
)
"""The sizes that goals are set for."""

BY_BATCH = tuple(Case(3072, 1000, size) for size in (16, 32, 64, 128, 256, 512, 1024))
BY_NEURONS = tuple(Case(3072, count, 256) for count in (512, 1000, 2048, 4096))
BY_FEATURES = tuple(Case(count, 1000, 128) for count in SIDES)
CASES = tuple(dict.fromkeys((*GOALS, *BY_BATCH, *BY_NEURONS, *BY_FEATURES)))

WITH_REFERENCE = {*BY_BATCH, Case(3072, 4096, 1024)}
"""Cases in which the paper's loop is run too."""


def measure(case: Case, data_dir: Path, *, repeat: int, reference: float) -> Row:
    """Run one case.

    Args:
        case: what to decode.
        data_dir: where the images are.
        repeat: runs, of which the fastest counts.
        reference: seconds that the paper's loop may take.
    """
    model, update, grid, design = _round(case, data_dir)
    reachable = int((peel_grid(grid) > 0).sum())
    gradient, weight = update.gradients["1.weight"], model.get_parameter("1.weight").detach()
    size = sum(g.numel() * g.element_size() for g in update.gradients.values())
    # The first run of all: memory that is at hand already would not show.
    found, extra = _peak(lambda: gp.peel(model, update, effort=0.0))
    recovered, rounds = len(found), found.cascade_length
    del found
    repeat = 1 if case.features > _LARGE else repeat
    times: dict[str, Callable[[], object]] = {
        "peel": partial(gp.peel, model, update, effort=0.0),
        "floor": lambda: gradient @ weight.T,
        "single_pass": partial(_single_pass, model, update),
    }
    best = dict.fromkeys(times, float("inf"))
    for _ in range(repeat):
        # In turns: what slows the machine down slows all of them down.
        for name, work in times.items():
            best[name] = min(best[name], _seconds(work))
    floor64 = best["floor"]
    if case.dtype != "float64":
        wide = gradient.double(), weight.double()
        floor64 = _seconds(lambda: wide[0] @ wide[1].T)
        del wide
    return Row(
        **asdict(case),
        recovered=recovered,
        reachable=reachable,
        rounds=rounds,
        peel=best["peel"],
        floor=best["floor"],
        floor64=floor64,
        single_pass=best["single_pass"],
        reference=_reference(model, update, reference) if case in WITH_REFERENCE else 0.0,
        design=design,
        grid_peel=min(_seconds(lambda: peel_grid(grid)) for _ in range(20)),
        update_memory=size / 2**20,
        extra_memory=extra / 2**20,
    )


def _round(case: Case, data_dir: Path) -> tuple[nn.Module, gp.Update, Tensor, float]:
    """A network as the server shaped it, an honest client's update, its grid, the design's time."""
    side, dtype = SIDES[case.features], getattr(torch, case.dtype)
    dataset = load_cached(data_dir / ("cifar10.npz" if side <= 32 else "imagenet.npz"))
    batch = draw_batch(dataset, case.batch_size)
    x, auxiliary = _resize(batch.x, side), _resize(batch.auxiliary, side)
    tail = () if case.tail == "-" else tuple(map(int, case.tail.split(",")))
    model = mlp(
        case.features,
        dataset.classes,
        hidden=(case.neurons, *tail),
        rng=np.random.default_rng([0, 0]),
        sample_shape=tuple(x.shape[1:]),
        dtype=dtype,
    )
    target = gp.split(model)
    started = time.process_time()
    layer = SolitonData(auxiliary).shape(
        Layer(target.weight.double(), target.bias.double()),
        batch_size=case.batch_size,
        rng=np.random.default_rng(0),
        front=target.to(torch.float64).front,
    )
    design = time.process_time() - started
    shaped = with_first_layer(model, target, layer.weight, layer.bias)
    grid = gp.exposure(shaped, x).grid
    return shaped, local_update(shaped, x, batch.y), grid, design


def _resize(images: Tensor, side: int) -> Tensor:
    """(n, side, side, 3) images of another size."""
    if images.shape[1] == side:
        return images
    moved = functional.interpolate(images.permute(0, 3, 1, 2), (side, side), mode="bilinear")
    return moved.permute(0, 2, 3, 1).contiguous()


def _single_pass(model: nn.Module, update: gp.Update) -> gp.Recovery:
    """What one look without peeling finds."""
    peeling = Peeling(model, update, effort=0.0)
    next(iter(peeling), None)
    return peeling.recovery()


def _reference(model: nn.Module, update: gp.Update, limit: float) -> float:
    started = time.process_time()
    ended = reference_peel(model, update, give_up_after=limit).ended
    taken = time.process_time() - started
    return taken if ended else -taken


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def _peak(work: Callable[[], T]) -> tuple[T, float]:
    """What a piece of work returns, and the most bytes it took beyond those in use before."""
    gc.collect()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: start anew
    before = _resident()
    done = work()
    return done, max(0.0, _most_resident() - before)


def _resident() -> float:
    """Bytes in memory now, where the system tells; otherwise the most there were."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return _most_resident()
    return float(pages * resource.getpagesize())


def _most_resident() -> float:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return float(line.split()[1]) * 1024.0
