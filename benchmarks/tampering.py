"""How often the tamper alarm is wrong, and how often it is right.

    python -m benchmarks.tampering --data-dir DIR [--out docs/tampering.csv]
        [--markdown docs/tampering-table.md]

Honest networks start from four initialisations and are trained for up to 120 steps by five
optimisers, on data in [0, 1] and on standardised data, some of them class after class; a few more,
counted apart, are trained for 1,000 and 3,000 steps. Each is
judged on a batch of all classes and on one of one or two classes. Tampered ones are those of every
design. The table is about four data sets. Next to the alarm stand its marks alone, and two
baselines, each with the limit that 99 % of the honest networks of three other data sets keep to:

- D-SNR (Garov et al., "Hiding in plain sight", 2024): the gradient of the sample with the largest
  one, relative to the sum of all others, in the layer where that is largest;
- activation counts, by which some defences prune: the share of the neurons that fire on any sample
  of the batch which fire on three at most.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.command import arguments, show
from benchmarks.tampering_networks import (
    CALIBRATION,
    CHECKPOINTS,
    LATE_CHECKPOINTS,
    LONGER,
    MEASURED,
    Judged,
    first_layer,
    honest,
    load_pool,
    tampered,
)
from gradpeel.checking.tampering import LIMITS, inspect_layer

MARKS = ("twins", "lean", "bias_spread", "bias_level", "degree_lean", "rare")
BASELINES = ("d_snr", "activation_counts")
TITLES = ("design", "weights", "networks", "alarm", *MARKS, "D-SNR", "activation counts")
OTHERS = ("trap weights 0.99", "tuned-free", "tuned", "qbi", "pairs")
"""Beyond the paper's designs, or too near to honest weights to be found."""
PARTS = {"calibration": CALIBRATION, "measured": MEASURED, "longer": LONGER}
RUNS = {"calibration": 5, "measured": 15, "longer": 10}
FRESH = {"calibration": 8, "measured": 56, "longer": 0}
COUNTS = 3
Row = Mapping[str, str]
HEAD = """# Tampering: table

Written by `python -m benchmarks.tampering --data-dir DIR --out docs/tampering.csv --markdown
docs/tampering-table.md`; explained in [Was this layer tampered with?](tampering.md). Shares of
cases that raise the alarm, or that exceed the limit of one statistic alone. A case is a network and
a batch.

"""


def main() -> None:
    parser = arguments(__doc__, out="docs/tampering.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    done = _read(given.out)
    for part, data, scaling in (
        (part, data, scaling)
        for part, sets in PARTS.items()
        for data in sets
        for scaling in ("0 to 1", "standard")
    ):
        if (part, data, scaling) in {(r["part"], r["data"], r["scaling"]) for r in done}:
            continue
        done += list(_measure(part, data, scaling, data_dir=given.data_dir))
        _write(given.out, done)
        print(f"{part}, {data}, {scaling}: {len(done)} rows in all", flush=True)
    limits = calibrate(done)
    show(TITLES, lines(done, limits), findings(done, limits), markdown=given.markdown, before=HEAD)


def d_snr(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The D-SNR of a batch, over the Linear layers of a network.

    The gradient of one sample at a Linear layer is the outer product of what the loss sends back to
    it and what enters it, so its norm is the product of theirs.
    """
    norms: list[Tensor] = []

    def watch(layer: nn.Module, entered: tuple[Tensor], left: Tensor) -> None:
        del layer
        inside = entered[0].detach().norm(dim=1)

        def keep(gradient: Tensor) -> None:
            norms.append(inside * gradient.norm(dim=1))

        left.register_hook(keep)  # type: ignore[no-untyped-call]

    hooks = [
        layer.register_forward_hook(watch)
        for layer in model.modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        nn.functional.cross_entropy(model(x), y, reduction="sum").backward()  # type: ignore[no-untyped-call]
    finally:
        for hook in hooks:
            hook.remove()
        model.zero_grad()
    largest = 0.0
    for each in norms:
        others = float(each.sum() - each.max())
        largest = max(largest, float(each.max()) / others if others > 0 else float("inf"))
    return largest


def activation_counts(degrees: Tensor) -> float:
    """Share of the neurons that fire at all which fire on `COUNTS` samples at most."""
    live = int((degrees > 0).sum())
    return int(((degrees > 0) & (degrees <= COUNTS)).sum()) / live if live else 0.0


def calibrate(rows: Sequence[Row]) -> dict[str, float]:
    """The limit of each statistic alone: 99 % of the honest networks of this part keep to it."""
    part = [row for row in rows if row["part"] == "calibration" and not row["weights"]]
    return {
        name: float(np.quantile(_values(part, name), 0.99, method="higher"))
        for name in (*MARKS, *BASELINES)
    }


def lines(rows: Sequence[Row], limits: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    """One line for all honest networks of the measured part, and one for each design."""
    measured = [row for row in rows if row["part"] == "measured"]
    untampered = [row for row in measured if not row["weights"]]
    fresh = [row for row in untampered if row["step"] == "0"]
    trained = [row for row in untampered if row["step"] != "0"]
    groups = {("honest, not trained", ""): fresh, ("honest, trained", ""): trained}
    groups["honest, 1,000 or 3,000 steps", ""] = [row for row in rows if row["part"] == "longer"]
    for name in dict.fromkeys(row["kind"] for row in measured if row["weights"]):
        for weights in ("independent", "mirrored"):
            if chosen := [r for r in measured if (r["kind"], r["weights"]) == (name, weights)]:
                groups[name, weights] = chosen
    for (name, weights), some in groups.items():
        shares = [_share(some, "alarm", 0.5)]
        shares += [_share(some, each, limits[each]) for each in (*MARKS, *BASELINES)]
        yield (name, weights, f"{_networks(some):,}", *(f"{100 * share:.1f} %" for share in shares))


def findings(rows: Sequence[Row], limits: Mapping[str, float]) -> Iterator[str]:
    """The two numbers that matter, for the alarm and for the baselines."""
    measured = [row for row in rows if row["part"] == "measured"]
    untampered = [row for row in measured if not row["weights"]]
    wanted = [row for row in measured if row["weights"] and row["kind"] not in OTHERS]
    for name, limit in {"alarm": 0.5, **{name: limits[name] for name in BASELINES}}.items():
        yield (
            f"{name}: {_share(untampered, name, limit):.2%} of {len(untampered):,} honest cases "
            f"({_networks(untampered):,} networks) raise it, and {_share(wanted, name, limit):.2%} "
            f"of {len(wanted):,} tampered ones (the paper's designs, trap weights up to .95)"
        )
    for name in BASELINES:
        best = float(np.quantile(_values(untampered, name), 0.99, method="higher"))
        yield (
            f"{name} with a limit that exactly 1 % of these honest cases exceed: "
            f"{_share(wanted, name, best):.2%} of the tampered ones"
        )


def _measure(part: str, data: str, scaling: str, *, data_dir: Path) -> Iterator[Row]:
    pool = load_pool(data, scaling, data_dir)
    seed = 100 * list(PARTS).index(part) + 10 * PARTS[part].index(data) + (scaling == "standard")
    untampered = honest(
        pool,
        runs=RUNS[part],
        fresh=FRESH[part],
        seed=seed,
        checkpoints=LATE_CHECKPOINTS if part == "longer" else CHECKPOINTS,
    )
    yield from (_judge(part, judged) for judged in untampered)
    if part != "longer":
        yield from (_judge(part, judged) for judged in tampered(pool, seed=seed))


def _judge(part: str, judged: Judged) -> Row:
    first = first_layer(judged.model)
    with torch.no_grad():
        degrees = (first(judged.x) > 0).sum(0)
        found = inspect_layer(first.weight.detach(), first.bias.detach(), judged.x, degrees)
    numbers = {name: getattr(found, name) for name in MARKS}
    numbers["d_snr"] = d_snr(judged.model, judged.x, judged.y)
    numbers["activation_counts"] = activation_counts(degrees)
    return {
        "part": part,
        "data": judged.pool.data,
        "scaling": judged.pool.scaling,
        "network": str(judged.network),
        "kind": judged.kind,
        "weights": judged.weights,
        "step": str(judged.step),
        "batch": judged.batch,
        "batch_size": str(len(judged.x)),
        **{name: f"{value:.4g}" for name, value in numbers.items()},
    }


def _networks(rows: Sequence[Row]) -> int:
    return len({(r["data"], r["scaling"], r["network"], bool(r["weights"])) for r in rows})


def _share(rows: Sequence[Row], name: str, limit: float) -> float:
    return float((_values(rows, name) > limit).mean()) if rows else float("nan")


def _values(rows: Sequence[Row], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if name == "alarm":  # not stored: it follows from the marks
        limits = asdict(LIMITS).items()
        return np.array([float(any(float(r[m]) > most for m, most in limits)) for r in rows])
    return np.array([float(row[name]) for row in rows])


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
