"""The table of families, and the plan of a run.

A family is a list of cases; a case makes one round from a setting. Data sets and sizes take turns
over the seeds, so that every family meets all of them, and the number of cells depends on the
number of cases and seeds alone.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import gradpeel as gp
from benchmarks.adversary import batches, networks, updates
from benchmarks.adversary.scenes import Scene, Setting, plain

__all__ = ["FAMILIES", "Cell", "Family", "plan"]

Make = Callable[[Setting], Scene]

SMALL = ((64, 8), (100, 16), (128, 24), (256, 48))
MEDIUM = ((128, 24), (256, 48), (300, 64), (400, 64), (400, 96), (600, 96), (1000, 96))
LARGE = ((256, 48), (400, 64), (600, 96), (600, 128), (1000, 128), (1000, 160))
ROUNDS = ((200, 12), (300, 16), (400, 24), (600, 32))
DESIGNED = ((256, 64), (400, 96), (600, 160), (1000, 256), (1000, 400))
FEW = ("float64", "float32")
ALL = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True, order=True)
class Cell:
    """One round: a case of a family on a data set, and its sizes."""

    family: str
    case: str
    dataset: str
    dtype: str
    neurons: int
    batch_size: int
    seed: int

    def __str__(self) -> str:
        return (
            f"{self.family} / {self.case} / {self.dataset} {self.dtype} "
            f"N={self.neurons} B={self.batch_size} seed {self.seed}"
        )


@dataclass(frozen=True)
class Family:
    """Cases of one kind.

    Attributes:
        cases: by name, what makes the round.
        seeds: rounds per case and dtype in a full run.
        sizes: pairs of neurons and batch size that take turns.
        dtypes: what the client computes in.
        undecidable: no decoder can tell these rounds from others that are harmless: they lie
            outside of what the certificates assume. They are shown, and not counted.
    """

    cases: Mapping[str, Make]
    seeds: int = 16
    sizes: tuple[tuple[int, int], ...] = MEDIUM
    dtypes: tuple[str, ...] = FEW
    undecidable: bool = False


def _batches() -> Iterator[tuple[str, Family]]:
    one = batches.one_class
    yield "one class", Family({"one class": one}, 260, LARGE)
    skews = {f"{c:g}": partial(batches.skewed, concentration=c) for c in (0.1, 0.5)}
    yield "label skew", Family(skews, 130, LARGE)
    shares = {"some": 0.25, "all": 1.0}
    paired: dict[str, Make] = {
        f"{kind}, {name}": partial(batches.pairs, kind=kind, share=share)
        for kind in batches.variants
        for name, share in shares.items()
    }
    yield "pairs", Family(paired)
    one_pairs: dict[str, Make] = {
        f"{kind}, one class": partial(batches.pairs, kind=kind, share=1.0, one=True)
        for kind in batches.variants
    }
    other_pairs: dict[str, Make] = {
        f"{kind}, other label": partial(batches.pairs, kind=kind, share=1.0, same_label=False)
        for kind in batches.variants
    }
    yield "pairs and labels", Family(one_pairs | other_pairs, 10)
    yield (
        "dependent",
        Family(
            {
                "midpoints, some": partial(batches.collinear, share=0.2),
                "midpoints, all": partial(batches.collinear, share=1.0),
                "affine, some": partial(batches.affine, share=0.2),
                "affine, all": partial(batches.affine, share=1.0),
                "multiples": partial(batches.scalings, factors=(0.5, 2.0)),
                "many multiples": partial(batches.scalings, factors=(0.5, 0.8, 1.25, 2.0, 4.0)),
                "common midpoint": partial(batches.antipodal, one_label=False),
                "common midpoint, one label": partial(batches.antipodal, one_label=True),
                "segment": partial(batches.segment, one_label=False),
                "segment, one label": partial(batches.segment, one_label=True),
                "span of 5": partial(batches.low_rank, rank=5, one_label=False),
                "span of 5, one label": partial(batches.low_rank, rank=5, one_label=True),
                "span of 20, one label": partial(batches.low_rank, rank=20, one_label=True),
            }
        ),
    )
    blends = {f"weight {w:g}": partial(batches.blend, weight=w) for w in (0.5, 0.7, 0.9, 0.99)}
    yield "blends", Family(blends)
    apart = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
    yield (
        "near-duplicates",
        Family(
            {
                f"{a:g}, {name}": partial(batches.near_duplicates, apart=a, share=share)
                for a in apart
                for name, share in shares.items()
            }
        ),
    )
    yield (
        "clouds",
        Family({f"radius {r:g}": partial(batches.cloud, radius=r) for r in (0.01, 0.1, 0.3)}),
    )
    counts = (2, 3, 4, 8, 9, 16, 40)
    same: dict[str, Make] = {f"{n} copies": partial(batches.copies, count=n) for n in counts}
    mixed: dict[str, Make] = {
        f"{n} copies, drawn labels": partial(batches.copies, count=n, same_label=False)
        for n in (2, 5)
    }
    repeated: dict[str, Make] = {
        f"all {n} times": partial(batches.repeated, times=n) for n in (2, 5)
    }
    yield "copies", Family(same | mixed | repeated)
    invisible = {name: partial(batches.invisible, share=s) for name, s in shares.items()}
    yield "invisible pairs", Family(invisible, undecidable=True)
    yield (
        "features",
        Family(
            {
                "binary": batches.binary,
                "binary, one class": partial(batches.binary, one=True),
                "0 to 16": partial(batches.integers, levels=16),
                "0 to 255": partial(batches.integers, levels=255),
                "unscaled, 2 decades": partial(batches.unscaled, decades=2),
                "unscaled, 6 decades": partial(batches.unscaled, decades=6),
                "standardised": batches.standardised,
                "standardised, one class": partial(batches.standardised, one=True),
                "one-hot": partial(batches.one_hot, marks=1),
                "bags of 10 words": partial(batches.one_hot, marks=10),
                "loud and quiet, 2 decades": partial(batches.loud_and_quiet, decades=2),
                "loud and quiet, 6 decades": partial(batches.loud_and_quiet, decades=6),
            },
            20,
        ),
    )
    constants = {f"{s:g}": partial(batches.constants, share=s) for s in (0.1, 0.5, 1.0)}
    yield "constant samples", Family(constants)
    drawn = {f"{n} labels": partial(batches.random_labels, labels=n) for n in (2, 10)}
    yield "drawn labels", Family(drawn)
    sizes = tuple((n, b) for n in (64, 256, 1000) for b in (1, 2, 3))
    tiny: dict[str, Make] = {
        "plain": plain,
        "one class": one,
        "unknown tail": partial(networks.with_loss, loss="unknown"),
        "brightness": partial(batches.pairs, kind="brightness", share=1.0),
    }
    yield "tiny batches", Family(tiny, 36, sizes, ALL)
    near: dict[str, Make] = {
        "0.9 N": partial(batches.crowd, neurons=0.9),
        "1 N": partial(batches.crowd, neurons=1.0),
        "1.5 N": partial(batches.crowd, neurons=1.5),
        "0.9 F": partial(batches.crowd, features=0.9),
        "1 F": partial(batches.crowd, features=1.0),
        "1.5 F": partial(batches.crowd, features=1.5),
    }
    yield "crowded", Family(near, sizes=((64, 64), (128, 128), (256, 256), (400, 256)))


def _networks() -> Iterator[tuple[str, Family]]:
    one = batches.one_class
    bright = partial(batches.pairs, kind="brightness", share=1.0)
    factors = (1e-4, 1e-3, 1e-2, 0.05, 0.3, 10.0, 100.0)
    yield (
        "heads",
        Family(
            {
                f"{f:g}, {name}": networks.scaled_head(make, factor=f)
                for f in factors
                for name, make in (("plain", plain), ("one class", one))
            },
            10,
        ),
    )
    bare = networks.without_biases(bright)
    small_bare: dict[str, Make] = {
        f"brightness, head {f:g}": networks.scaled_head(bare, factor=f)
        for f in (1e-3, 1e-2, 0.1, 1.0)
    }
    yield (
        "zero biases",
        Family(
            {
                "plain": networks.without_biases(plain),
                "target's alone": networks.without_biases(plain, everywhere=False),
                "one class": networks.without_biases(one),
                **small_bare,
            }
        ),
    )
    widths = tuple((n, b) for n in (64, 128, 256, 512, 1000) for b in (n // 16, n // 6))
    yield "widths", Family({"plain": plain, "one class": one}, 60, widths)
    yield (
        "trained",
        Family(
            {
                f"{epochs} epochs, {name}": networks.trained(make, epochs=epochs)
                for epochs in (1, 5)
                for name, make in (("plain", plain), ("one class", one), ("brightness", bright))
            }
        ),
    )
    outputs: dict[str, Make] = {
        f"{n}{', one label' * one_label}": partial(
            networks.few_outputs, outputs=n, one_label=one_label
        )
        for n in (1, 2, 3, 10, 100, 1000)
        for one_label in (False, True)
        if n > 1 or not one_label
    }
    many = {name: make for name, make in outputs.items() if name.startswith("1000")}
    yield "outputs", Family({name: make for name, make in outputs.items() if name not in many})
    yield "many outputs", Family(many, 11)
    yield (
        "tails",
        Family(
            {
                f"{kind}{', one class' * one_class}": partial(
                    networks.tail, kind=kind, one=one_class
                )
                for kind in networks.TAILS
                for one_class in (False, True)
            }
            | {"dropout at the target": partial(networks.tail, kind="relu", at_target=True)}
        ),
    )
    losses = (
        "smoothing 0.1",
        "smoothing 0.5",
        "weights",
        "weights with zeros",
        "mse",
        "bce",
        "unknown",
    )
    yield (
        "losses",
        Family(
            {
                f"{loss}{', one class' * one_class}": partial(
                    networks.with_loss, loss=loss, one=one_class
                )
                for loss in losses
                for one_class in (False, True)
            }
        ),
    )
    kinds = ("twins", "mirrored", "low rank", "sparse firing", "dense firing")
    yield (
        "first layers",
        Family(
            {
                f"{kind}, {name}": networks.first_layer(make, kind=kind)
                for kind in kinds
                for name, make in (("plain", plain), ("one class", one))
            }
        ),
    )
    yield (
        "low-rank tails",
        Family(
            {
                f"rank {rank}, {name}": networks.low_rank_tail(make, rank=rank)
                for rank in (1, 2)
                for name, make in (("plain", plain), ("one class", one), ("brightness", bright))
            }
        ),
    )
    yield (
        "designs",
        Family(
            {
                f"{method}{', one class' * one_class}": partial(
                    networks.designed, method=method, one=one_class
                )
                for method in ("SD-Ind", "SD-Mir", "SF-Ind", "TW-Ind")
                for one_class in (False, True)
            },
            40,
            DESIGNED,
        ),
    )


def _none(_: int) -> None:
    return None


def _sizes_stated() -> dict[str, Callable[[int], int | None]]:
    return {
        "right": lambda b: b,
        "none": _none,
        "1": lambda _: 1,
        "one less": lambda b: max(1, b - 1),
        "one more": lambda b: b + 1,
        "half": lambda b: max(1, b // 2),
        "double": lambda b: 2 * b,
        "tenfold": lambda b: 10 * b,
    }


def _updates() -> Iterator[tuple[str, Family]]:
    kinds: dict[str, Make] = {
        "plain": plain,
        "one class": batches.one_class,
        "copies": partial(batches.copies, count=2),
    }
    stated: dict[str, Make] = {
        f"{size}, {name}": updates.stated(make, size=rule)
        for size, rule in _sizes_stated().items()
        for name, make in kinds.items()
    }
    yield "stated size", Family(stated, 8)
    scaled: dict[str, Make] = {
        f"{name}, size {size}": updates.stated(updates.scaled(make), size=rule)
        for size, rule in _sizes_stated().items()
        if size in {"right", "none", "half"}
        for name, make in kinds.items()
    }
    doubled: dict[str, Make] = {
        f"doubled, {name}": updates.scaled(make, factor=2.0) for name, make in kinds.items()
    }
    summed: dict[str, Make] = {f"sum, {name}": updates.summed(make) for name, make in kinds.items()}
    yield "scale", Family(scaled | doubled | summed)
    yield "precision", Family(kinds, 24, SMALL, ALL)
    yield (
        "noise",
        Family(
            {
                f"{sigma:g}, {name}": updates.noisy(make, sigma=sigma)
                for sigma in (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
                for name, make in kinds.items()
            },
            8,
        ),
    )
    twins: dict[str, Make] = {
        f"{apart:g} apart, noise {sigma:g}, size {size}": updates.stated(
            updates.noisy(partial(batches.near_duplicates, apart=apart, share=1.0), sigma=sigma),
            size=_sizes_stated()[size],
        )
        for apart in (1e-2, 3e-2, 1e-1)
        for sigma in (1e-4, 1e-3)
        for size in ("right", "none", "half")
    }
    yield "noisy twins", Family(twins, 8)
    uneven: dict[str, Make] = {
        f"{kind}, up to {most:g}": partial(batches.uneven_twins, kind=kind, most=most)
        for kind in ("factor", "offset", "noise")
        for most in (0.003, 0.1, 1.0)
    }
    for name, size in (("uneven twins", "right"), ("uneven twins without a size", "none")):
        cases = {
            case: updates.stated(make, size=_sizes_stated()[size]) for case, make in uneven.items()
        }
        yield name, Family(cases, undecidable=size == "none")
    compressions = (
        "float16 inside",
        "bfloat16 inside",
        "float32 inside",
        "8 bits",
        "16 bits",
        "largest tenth",
        "largest half",
        "clipped entries",
    )
    yield (
        "compressed",
        Family(
            {
                f"{kind}, {name}": updates.compressed(make, kind=kind)
                for kind in compressions
                for name, make in (("plain", plain), ("one class", batches.one_class))
            },
            8,
        ),
    )
    drifts = {
        "stale": (1e-7, 1e-5, 1e-3),
        "decay": (1e-6, 1e-4),
        "steps": (1e-3, 0.1),
        "others": (1e-6, 1e-3, 1.0),
    }
    yield (
        "drifted",
        Family(
            {
                f"{kind} {amount:g}, {name}": updates.drifted(make, kind=kind, amount=amount)
                for kind, amounts in drifts.items()
                for amount in amounts
                for name, make in (("plain", plain), ("one class", batches.one_class))
            },
            8,
        ),
    )


def _rounds() -> Iterator[tuple[str, Family]]:
    """Several local steps: nothing is weighed, and firing patterns are known less well."""
    kinds: dict[str, Make] = {
        "plain": plain,
        "one class": batches.one_class,
        "standardised": batches.standardised,
        "binary": batches.binary,
        "copies": partial(batches.copies, count=2),
        "copies, drawn labels": partial(batches.copies, count=2, same_label=False),
        "brightness": partial(batches.pairs, kind="brightness", share=1.0),
        "flip": partial(batches.pairs, kind="flip", share=1.0),
        "near-duplicates, 1e-3": partial(batches.near_duplicates, apart=1e-3, share=0.5),
        "near-duplicates, 0.03": partial(batches.near_duplicates, apart=0.03, share=1.0),
        "blends": partial(batches.blend, weight=0.7),
        "multiples": partial(batches.scalings, factors=(0.5, 2.0)),
    }
    trainings = {
        "4 steps at lr 0.01": gp.Client(lr=0.01, local_steps=4),
        "2 epochs of 8 at lr 0.1": gp.Client(lr=0.1, local_epochs=2, local_batch_size=8),
    }
    for clients in (1, 4):
        name = "local training" if clients == 1 else f"{clients} clients that train"
        cases = {
            f"{kind}, {how}": updates.of_rounds(make, client=client, clients=clients)
            for kind, make in kinds.items()
            for how, client in trainings.items()
        }
        yield name, Family(cases, 10, ROUNDS)
    several = {
        f"{kind}, {count} clients": updates.of_rounds(make, client=gp.Client(), clients=count)
        for kind, make in kinds.items()
        for count in (2, 8)
    }
    yield "clients", Family(several, 6)


FAMILIES: dict[str, Family] = {
    name: family for part in (_batches, _networks, _updates, _rounds) for name, family in part()
}
"""All families by name."""

ONCE_WRONG = (
    Cell("trained", "5 epochs, brightness", "cifar10", "float32", 400, 96, 5),
    Cell("crowded", "1 F", "photos", "float32", 128, 128, 5),
    Cell("copies", "2 copies, drawn labels", "svhn", "float64", 600, 96, 3),
    Cell("low-rank tails", "rank 1, brightness", "photos", "float32", 600, 96, 2),
    Cell("zero biases", "brightness, head 1", "photos", "float32", 300, 64, 3),
    Cell("first layers", "sparse firing, plain", "cifar10", "float64", 400, 96, 2),
    Cell("outputs", "3", "cifar10", "float32", 128, 24, 7),
    Cell("outputs", "1", "photos", "float64", 256, 48, 8),
    Cell("tails", "dropout", "cifar100", "float32", 256, 48, 9),
    Cell("local training", "flip, 4 steps at lr 0.01", "svhn", "float64", 600, 32, 0),
    Cell("uneven twins", "factor, up to 1", "photos", "float32", 300, 64, 3),
)
"""Rounds in which something was claimed that is not true; every plan but a quick one has them."""


def plan(
    names: Collection[str], datasets: tuple[str, ...], *, seeds: float = 1.0, small: bool = False
) -> list[Cell]:
    """The cells of some families, the first seed of all of them first, without repeats.

    Args:
        names: of the families.
        datasets: data sets that take turns.
        seeds: multiplies the number of seeds; every case has at least one.
        small: use small sizes only.
    """
    cells = []
    for name in names:
        family = FAMILIES[name]
        sizes = SMALL if small and family.sizes in {MEDIUM, LARGE, DESIGNED} else family.sizes
        for case in family.cases:
            first = zlib.crc32(f"{name}/{case}".encode())
            for dtype in family.dtypes:
                for seed in range(max(1, round(seeds * family.seeds))):
                    size, dataset = _turn(first, seed, len(sizes), len(datasets))
                    cells.append(Cell(name, case, datasets[dataset], dtype, *sizes[size], seed))
    if not small:
        again = (cell for cell in ONCE_WRONG if cell.family in names and cell.dataset in datasets)
        cells = list(dict.fromkeys([*cells, *again]))
    return sorted(cells, key=lambda cell: cell.seed)


def _turn(first: int, seed: int, sizes: int, datasets: int) -> tuple[int, int]:
    """Which size and which data set a seed gets.

    All pairs take turns. A stride near the golden section, prime to their number, makes the first
    few differ in both.
    """
    pairs = sizes * datasets
    stride = next(s for s in range(round(0.618 * pairs), 2 * pairs) if math.gcd(s, pairs) == 1)
    return divmod((first + seed * stride) % pairs, datasets)
