"""Which records took part: true and false positives of `gradpeel.contains`, and where it stops.

    python -m benchmarks.membership --data-dir DIR --out membership.csv --markdown table.md
    python -m benchmarks.membership --data-dir DIR --suite limits --out limits.csv

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. A cell draws a batch, and up to
2,000 records that are not in it from the same file, and asks for all of them at once, without
stating which are which and without known non-members. The suites:

- goals: all data sets in float32, PyTorch's start and all designs, one gradient and 20 minibatch
  steps at lr 0.1; batches of 128 and, for PyTorch's start, of 0.8 times the number of neurons or of
  features that vary, whichever is smaller;
- limits: larger batches, narrow layers, noise, float64 and bfloat16, batches of one class, features
  that are constant or combinations of others, one-hot records, faint heads, near-copies.

Rows are appended as they come, so an interrupted run resumes; give every version of the code a file
of its own. The exit code is 1 if any verdict is wrong.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.cells import load_cached, run
from benchmarks.command import arguments, show
from gradpeel.datasets.standard import STANDARD
from gradpeel.designs import PAPER_METHODS, Layer
from gradpeel.networks import mlp
from gradpeel.target import split, with_first_layer

OTHERS = 2000
AUXILIARY = 300
UNTOUCHED = "untouched"
TITLES = (
    "data", "server", "setting", "dtype", "steps", "N", "B", "rank",
    "members in", "out", "unknown", "others in", "out", "unknown", "seconds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One update and the records asked for.

    Attributes:
        dataset: name of the data set.
        server: how the target is set: `UNTOUCHED` (PyTorch's start), or one of `PAPER_METHODS`.
        batch_size: samples behind the update; 0 for as many as the goal names.
        steps: 1 for a gradient, more for local training at lr 0.1 in minibatches.
        neurons: of the target.
        dtype: what the client computes in.
        setting: what else is special: one of `SETTINGS`.
        seed: draws network and records.
    """

    dataset: str
    server: str = UNTOUCHED
    batch_size: int = 128
    steps: int = 1
    neurons: int = 1000
    dtype: str = "float32"
    setting: str = "plain"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """The verdicts, counted.

    Attributes:
        rank: independent samples that were seen.
        samples: distinct samples in the batch.
        members_in: samples of the batch that were recognised.
        members_out: and those of which the contrary was said.
        members_unknown: the rest of them.
        others_in: records that were not in the batch, and were said to be.
        others_out: those that were recognised as such.
        others_unknown: the rest of them.
        seconds: that it took, on one thread.
    """

    rank: int
    samples: int
    members_in: int
    members_out: int
    members_unknown: int
    others_in: int
    others_out: int
    others_unknown: int
    seconds: float

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        names = Cell.__dataclass_fields__
        return Cell(**{name: value for name, value in asdict(self).items() if name in names})

    @property
    def wrong(self) -> int:
        """Verdicts that are not true."""
        return self.members_out + self.others_in

    def __str__(self) -> str:
        return (
            f"{self.dataset} {self.server} {self.setting} {self.dtype} steps={self.steps} "
            f"N={self.neurons} B={self.samples}: members {self.members_in} in, {self.members_out} "
            f"out, others {self.others_in} in, {self.others_out} out, {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class Setting:
    """What is special about a round.

    Attributes:
        change: what is done to all samples, (n, features).
        one_class: all of the batch has the same label.
        noise: on the update.
        scale: the update is multiplied by it.
        head: the next layer's weights are multiplied by it.
        nearly: the others are the batch itself, changed by so much of a typical feature.
    """

    change: Callable[[Tensor], Tensor] | None = None
    one_class: bool = False
    noise: float = 0.0
    scale: float = 1.0
    head: float = 1.0
    nearly: float = 0.0


def _padded(x: Tensor) -> Tensor:
    """With 200 features that never change."""
    return torch.cat([x, torch.ones(len(x), 100), torch.zeros(len(x), 100)], 1)


def _combined(x: Tensor) -> Tensor:
    """Only 100 features, and as many again that are combinations of them."""
    mix = torch.randn(100, 300, generator=torch.Generator().manual_seed(0)) / 10
    kept = x[:, :: x.shape[1] // 100][:, :100]
    return torch.cat([kept, kept @ mix.to(x)], 1)


def _one_hot(x: Tensor) -> Tensor:
    """30 categories of 8 values each, from the size of some features."""
    chosen = x[:, torch.linspace(0.3 * x.shape[1], 0.7 * x.shape[1], 30).long()]
    edges = torch.quantile(chosen, torch.linspace(0, 1, 9)[1:-1].to(chosen), dim=0)
    values = (chosen[:, None, :] > edges[None]).sum(1)
    return nn.functional.one_hot(values, 8).flatten(1).to(x)


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "plain": Setting(),
        "one class": Setting(one_class=True),
        "200 constant features": Setting(change=_padded),
        "300 of 400 features combined": Setting(change=_combined),
        "one-hot": Setting(change=_one_hot),
        "update x 1000": Setting(scale=1e3),
        "head x 0.001": Setting(head=1e-3),
        "near-copies 1e-2": Setting(nearly=1e-2),
        "near-copies 1e-4": Setting(nearly=1e-4),
        "noise 1e-6": Setting(noise=1e-6),
        "noise 1e-4": Setting(noise=1e-4),
        "noise 1e-3": Setting(noise=1e-3),
        "noise 1e-2": Setting(noise=1e-2),
        "noise 1e-1": Setting(noise=1e-1),
    }
)


def goals(seeds: int) -> Iterator[Cell]:
    """What must hold."""
    for seed in range(seeds):
        for dataset in STANDARD:
            for steps in (1, 20):
                one = Cell(dataset=dataset, steps=steps, seed=seed)
                yield one
                yield replace(one, batch_size=0)
                for method in PAPER_METHODS:
                    yield replace(one, server=method)


def limits(seeds: int) -> Iterator[Cell]:
    """Where it stops."""
    for seed in range(seeds):
        for dataset in ("mnist", "harus"):
            one = Cell(dataset=dataset, seed=seed)
            for size in (400, 450, 500, 550, 600):
                yield replace(one, batch_size=size)
            for neurons, size in ((50, 20), (50, 40), (50, 48), (200, 100), (200, 160), (200, 190)):
                for steps in (1, 20):
                    yield replace(one, neurons=neurons, batch_size=size, steps=steps)
            for dtype in ("float64", "bfloat16", "float16"):
                yield replace(one, dtype=dtype)
            for setting in SETTINGS:
                for steps in (1, 20):
                    yield replace(one, setting=setting, steps=steps)
        # What of the goals fails in float32.
        for dataset, steps in (("svhn", 1), ("svhn", 20), ("harus", 20)):
            yield Cell(dataset=dataset, batch_size=0, steps=steps, dtype="float64", seed=seed)


SUITES: Mapping[str, Callable[[int], Iterator[Cell]]] = MappingProxyType(
    {"goals": goals, "limits": limits}
)


def measure(cell: Cell, data_dir: Path) -> Row:
    """Ask for the members of one update, and for others."""
    setting, dtype = SETTINGS[cell.setting], getattr(torch, cell.dtype)
    dataset = load_cached(data_dir / f"{cell.dataset}.npz")
    x, y = (
        torch.cat([torch.as_tensor(np.asarray(part)) for part in parts])
        for parts in ((dataset.x_train, dataset.x_test), (dataset.y_train, dataset.y_test))
    )
    x = x.double().flatten(1)
    x = x if setting.change is None else setting.change(x)
    rng = np.random.default_rng([cell.seed, 1])
    order = torch.from_numpy(rng.permutation(len(x)))
    if setting.one_class:
        common = int(y.bincount().argmax())
        order = torch.cat([order[y[order] == common], order[y[order] != common]])
    varying = int((x.amax(0) > x.amin(0)).sum())
    size = cell.batch_size or int(0.8 * min(cell.neurons, varying))
    batch, rest = order[:size], order[size:]
    model = _model(cell, setting, x[rest[-AUXILIARY:]], dataset.classes, size).to(dtype)
    rest = rest if cell.server == UNTOUCHED else rest[:-AUXILIARY]
    client = gp.Client(noise=setting.noise)
    if cell.steps > 1:
        small = max(16, math.ceil(size / cell.steps))
        client = replace(client, lr=0.1, local_steps=cell.steps, local_batch_size=min(small, size))
    members, others = x[batch], x[rest[:OTHERS]]
    if setting.nearly:
        draw = torch.randn(members.shape, generator=torch.Generator().manual_seed(cell.seed))
        others = members + setting.nearly * members.std() * draw
    update = gp.local_update(model, members, y[batch], client, seed=cell.seed)
    if setting.scale != 1.0:
        scaled = {name: g * setting.scale for name, g in update.gradients.items()}
        update = replace(update, gradients=scaled)
    started = time.perf_counter()
    found = gp.contains(model, update, torch.cat([members, others]))
    seconds = time.perf_counter() - started
    inside, outside = found.verdicts[:size], found.verdicts[size:]
    # What is not in the batch but equal to a record of it is in it as well.
    same = {row.numpy().tobytes() for row in members.to(dtype).float()}
    copies = [row.numpy().tobytes() in same for row in others.to(dtype).float()]
    outside = tuple(v for v, copy in zip(outside, copies, strict=True) if not copy)
    return Row(
        **asdict(cell),
        rank=found.rank,
        samples=len(same),
        members_in=inside.count("in"),
        members_out=inside.count("out"),
        members_unknown=inside.count("unknown"),
        others_in=outside.count("in"),
        others_out=outside.count("out"),
        others_unknown=outside.count("unknown"),
        seconds=seconds,
    )


def _model(cell: Cell, setting: Setting, auxiliary: Tensor, classes: int, size: int) -> nn.Module:
    """The network that the client receives."""
    rng = np.random.default_rng([cell.seed, 0])
    model: nn.Module = mlp(
        auxiliary.shape[1],
        classes,
        (cell.neurons,),
        rng=rng,
        init="torch" if cell.server == UNTOUCHED else "paper",
    )
    if cell.server != UNTOUCHED:
        target = split(model)
        layer = (
            PAPER_METHODS[cell.server]
            .build(auxiliary)
            .shape(Layer(target.weight, target.bias), batch_size=size, rng=rng, front=target.front)
        )
        model = with_first_layer(model, target, layer.weight, layer.bias)
    if setting.head != 1.0:
        with torch.no_grad():
            *_, weight, bias = model.parameters()
            weight.mul_(setting.head)
            bias.mul_(setting.head)
    return model


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table."""
    for row in rows:
        yield [
            row.dataset, row.server, row.setting, row.dtype, str(row.steps), str(row.neurons),
            str(row.samples), str(row.rank), str(row.members_in), str(row.members_out),
            str(row.members_unknown), str(row.others_in), str(row.others_out),
            str(row.others_unknown), f"{row.seconds:.1f}",
        ]  # fmt: skip


def findings(rows: list[Row]) -> Iterator[str]:
    """What matters in a line each."""
    members = sum(row.samples for row in rows)
    others = sum(row.others_in + row.others_out + row.others_unknown for row in rows)
    yield f"updates: {len(rows)}, with {members:,} members; {others:,} other records"
    yield f"members recognised: {sum(row.members_in for row in rows):,}"
    yield f"members reported as out: {sum(row.members_out for row in rows):,}"
    yield f"others reported as in: {sum(row.others_in for row in rows):,}"
    yield f"others recognised: {sum(row.others_out for row in rows):,}"
    for steps in (1, 20):
        some = [row for row in rows if row.steps == steps]
        if some:
            whole = sum(row.members_in >= 0.999 * row.samples for row in some)
            yield f"{steps} steps: true positive rate of at least 0.999 in {whole} of {len(some)}"


def main() -> None:
    parser = arguments(__doc__, out="membership.csv")
    parser.add_argument("--suite", choices=[*SUITES], default="goals")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    one = partial(measure, data_dir=given.data_dir)
    rows = run(SUITES[given.suite](given.seeds), one, given.out, Row, workers=given.workers)
    show(TITLES, tabulate(rows), findings(rows), markdown=given.markdown)
    sys.exit(1 if any(row.wrong for row in rows) else 0)


if __name__ == "__main__":
    main()
