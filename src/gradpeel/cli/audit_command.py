"""`gradpeel audit`: simulate a training round on data you own, and report what it gives away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gradpeel.cli.command_line import command_line
from gradpeel.cli.decoder_options import DataRange, Device, Effort, KnowsTail, LayerName
from gradpeel.cli.loss_options import LossName, LossOptions, ReductionName
from gradpeel.cli.output import announce, private_directory, to_json
from gradpeel.cli.parsing import parse_pair, parse_sizes
from gradpeel.cli.progress import Watcher, watch
from gradpeel.cli.training_options import (
    LocalBatchSize,
    LocalEpochs,
    LocalSteps,
    Lr,
    Momentum,
    WeightDecay,
)
from gradpeel.cli.variations import QUICK, SECONDS, Variation, compare, described, variations
from gradpeel.designs.options import DesignName, DesignOptions, InitName, WeightsName

if TYPE_CHECKING:
    from gradpeel.audit import Audit
    from gradpeel.client import Client
    from gradpeel.datasets import Batch, Dataset
    from gradpeel.designs import Design
    from gradpeel.reporting.page import Report

__all__ = ["audit_command"]

ATTACK = "The attack"
ROUND = "The training round"
OUTPUT = "Output"


class DtypeName(StrEnum):
    """What the client computes in."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class ScalingName(StrEnum):
    """How float features are scaled."""

    MINMAX = "minmax"
    STANDARD = "standard"
    RAW = "raw"


def audit_command(
    *,
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            metavar="NAME_OR_FILE",
            help="digits, breast_cancer, photos; or cifar10, cifar100, mnist, emnist, "
            "fashion_mnist, svhn, imagenet, harus, which are looked up in --data-dir and in the "
            "cache, then downloaded; or an .npz file with x_train, y_train, x_test and y_test.",
            rich_help_panel=ROUND,
        ),
    ],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory that holds the named data set: NAME.npz, or the original files.",
            show_default="the cache",
            rich_help_panel=ROUND,
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Height and width to which ImageNet's images are scaled.",
            show_default="64",
            rich_help_panel=ROUND,
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(
            help="Samples in the client's batch, or in that of each client.", rich_help_panel=ROUND
        ),
    ] = 128,
    clients: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of clients whose updates are added up before the server sees them (secure "
            "aggregation).",
            rich_help_panel=ROUND,
        ),
    ] = 1,
    shuffle: Annotated[
        bool,
        typer.Option(
            "--shuffle/--no-shuffle",
            help="Draw the batch at random, by the seed; otherwise take the first samples.",
            rich_help_panel=ROUND,
        ),
    ] = False,
    scaling: Annotated[
        ScalingName,
        typer.Option(
            help="How float features are scaled, by the training split; pixels always to 0..1.",
            rich_help_panel=ROUND,
        ),
    ] = ScalingName.MINMAX,
    neurons: Annotated[
        int, typer.Option(min=1, help="Width of the first layer.", rich_help_panel=ROUND)
    ] = 1000,
    tail: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Widths of further hidden layers behind the first, such as 256,128.",
            show_default="none",
            rich_help_panel=ROUND,
        ),
    ] = None,
    dtype: Annotated[
        DtypeName,
        typer.Option(
            help="The type in which the client computes. float64 shows how far the attack can go; "
            "most clients send float32.",
            rich_help_panel=ROUND,
        ),
    ] = DtypeName.FLOAT64,
    noise: Annotated[
        float,
        typer.Option(
            help="Standard deviation of noise on the update, relative to that of each gradient.",
            rich_help_panel=ROUND,
        ),
    ] = 0.0,
    loss: Annotated[
        LossName,
        typer.Option(
            help="The loss that the client minimises; for losses other than cross-entropy the "
            "target is 1 for the label and 0 for all other classes.",
            rich_help_panel=ROUND,
        ),
    ] = LossName.CROSS_ENTROPY,
    label_smoothing: Annotated[
        float,
        typer.Option(
            help="Label smoothing of the cross-entropy, from 0 to below 1.", rich_help_panel=ROUND
        ),
    ] = 0.0,
    reduction: Annotated[
        ReductionName,
        typer.Option(help="Whether the loss is a mean or a sum.", rich_help_panel=ROUND),
    ] = ReductionName.MEAN,
    lr: Lr = None,
    local_steps: LocalSteps = None,
    local_epochs: LocalEpochs = None,
    local_batch_size: LocalBatchSize = None,
    momentum: Momentum = 0.0,
    weight_decay: WeightDecay = 0.0,
    design: Annotated[
        DesignName,
        typer.Option(help="How the server sets the first layer.", rich_help_panel=ATTACK),
    ] = DesignName.PASSIVE,
    init: Annotated[
        InitName | None,
        typer.Option(
            help="Initialisation with passive: the paper's, or PyTorch's default.",
            show_default="paper",
            rich_help_panel=ATTACK,
        ),
    ] = None,
    weights: Annotated[
        WeightsName | None,
        typer.Option(
            help="Weight construction of the active designs.",
            show_default="independent",
            rich_help_panel=ATTACK,
        ),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            help="Factor on the positive weights of trap-weights, above 0 and at most 1.",
            show_default="0.99",
            rich_help_panel=ATTACK,
        ),
    ] = None,
    soliton: Annotated[
        str | None,
        typer.Option(
            metavar="C,DELTA",
            help="Parameters of the soliton designs' degree distribution.",
            show_default="0.05,0.4",
            rich_help_panel=ATTACK,
        ),
    ] = None,
    knows_batch_size: Annotated[
        bool,
        typer.Option(
            "--knows-batch-size/--unknown-batch-size",
            help="Whether the decoder knows the batch size; otherwise it finds it in the update.",
            rich_help_panel=ATTACK,
        ),
    ] = True,
    knows_tail: KnowsTail = True,
    data_range: DataRange = None,
    effort: Effort = 1.0,
    layer: LayerName = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed of network, design, noise, local minibatches and --shuffle.",
            rich_help_panel=ATTACK,
        ),
    ] = 0,
    device: Device = "cpu",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write report.html, result.json, the update, the weights and figures into this "
            "new or empty directory, which only you can read.",
            show_default="write nothing",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    samples: Annotated[
        bool,
        typer.Option(
            "--samples/--no-samples",
            help="Show samples and labels in the report and in figures.",
            rich_help_panel=OUTPUT,
        ),
    ] = True,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object and nothing else.", rich_help_panel=OUTPUT
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            help="Show no progress and no list of files, only the result.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    with_others: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="Also audit another precision, more noise and twice the batch, and show the "
            "shares side by side.",
            show_default=f"if there is a report and decoding took less than {QUICK:g} seconds, "
            f"for about {SECONDS:g} seconds",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Show the report in the web browser; without --out from a temporary directory.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None:
    """Simulate a training round on data you own and report what its update gives away.

    A client computes one gradient of a new network on a batch, or with --lr
    trains it locally. The decoder sees only the model and the update; what it
    recovers is then compared with the batch and with the peeling bound.

    For auditing systems that you own or are permitted to test; active designs
    run in simulation only.

    \b
    gradpeel audit --data digits --init torch --dtype float32
    gradpeel audit --data digits --noise 1e-6 --unknown-batch-size --unknown-tail
    gradpeel audit --data photos --batch-size 260 --neurons 2000 --out photos
    gradpeel audit --data mine.npz --design soliton-data --weights mirrored
    gradpeel audit --data mnist --data-dir downloads --batch-size 64
    gradpeel audit --data digits --lr 0.01 --local-steps 5 --local-batch-size 16
    gradpeel audit --data digits --clients 4 --batch-size 32
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    pair = None if soliton is None else parse_pair("soliton", soliton, example="0.05,0.4")
    options = DesignOptions(design, weights, init, scale, pair)
    minimised = LossOptions(loss, label_smoothing)
    widths = (neurons, *(() if tail is None else parse_sizes("tail", tail)))
    limits = None if data_range is None else parse_pair("data-range", data_range, example="0,1")
    with_others = bool(with_others) if out is None and not show else with_others

    with nullcontext() if out is None else private_directory(out) as folder:
        # torch takes a second to import; --help, a wrong option and wrong data need not wait.
        import numpy as np  # noqa: PLC0415

        from gradpeel.datasets import STANDARD, draw_batch, load  # noqa: PLC0415

        # Unshuffled, the batch is the first samples: no need to unpack thousands of photographs.
        is_prefix = data in STANDARD and not shuffle and batch_size > 0
        # Before the line of progress, because a download shows its own.
        dataset = load(
            data,
            scaling.value,
            data_dir=data_dir,
            image_size=image_size,
            limit=clients * batch_size * (1 if with_others is False else 2) if is_prefix else None,
        )

        def draw(size: int) -> Batch:
            rng = np.random.default_rng([seed, 1])
            return draw_batch(dataset, clients * size, shuffle=shuffle, rng=rng)

        batch = draw(batch_size)
        import torch  # noqa: PLC0415

        from gradpeel.aggregation import Aggregation  # noqa: PLC0415
        from gradpeel.attacker import Attacker  # noqa: PLC0415
        from gradpeel.audit import audit  # noqa: PLC0415
        from gradpeel.client import Client  # noqa: PLC0415
        from gradpeel.networks import mlp  # noqa: PLC0415

        client = Client(
            loss=minimised.build(),
            reduction=reduction.value,
            dtype=getattr(torch, dtype),
            noise=noise,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            local_steps=local_steps,
            local_epochs=local_epochs,
            local_batch_size=local_batch_size,
        )
        attacker = Attacker(
            knows_batch_size=knows_batch_size,
            knows_tail=knows_tail,
            data_range=limits,
            effort=effort,
            layer=layer,
        )

        def attack(batch: Batch, client: Client, watcher: Watcher) -> Audit:
            return audit(
                model,
                batch.x,
                minimised.targets(batch.y, dataset.classes),
                client=client,
                attacker=replace(attacker, design=options.build(batch.auxiliary)),
                aggregation=Aggregation(clients),
                seed=seed,
                device=device,
                on_round=watcher.on_round,
                on_rows=watcher.on_rows,
            )

        with watch(clients * batch_size, quiet=quiet) as watcher:
            model = mlp(
                dataset.features,
                dataset.classes,
                widths,
                rng=np.random.default_rng([seed, 0]),
                init=options.network_init.value,
                sample_shape=dataset.sample_shape,
            )
            result = attack(batch, client, watcher)

        def attack_changed(other: Variation, go_on: Callable[[object], None]) -> Audit:
            changed = replace(client, dtype=getattr(torch, other.dtype), noise=other.noise)
            with watch(clients * other.batch_size, quiet=quiet, title=other.name) as watcher:
                return attack(draw(other.batch_size), changed, watcher.then(go_on))

        most = len(dataset.x_train) // clients
        changed = variations(dtype, noise, batch_size, most=most)
        compared = compare(changed, attack_changed, asked=with_others, took=result.seconds)
        numbers = {
            "data": dataset.name,
            **result.as_dict(),
            "tail": list(widths[1:]),
            "scaling": scaling.value,
            "shuffle": shuffle,
            "label_smoothing": label_smoothing,
            **_settings(result.design),
        }
        page = None
        if folder is not None or show:
            from gradpeel.reporting.page import report  # noqa: PLC0415

            page = report(
                result,
                dataset,
                samples=samples,
                command=command_line(context),
                compared=compared,
            )
        if folder is not None and page is not None:
            _write(folder, result, dataset, numbers, page, samples=samples)

    if as_json:
        typer.echo(to_json(numbers))
    else:
        _print(result, dataset.name, compared)
    if out is not None and not quiet:
        announce(out / "report.html", out.iterdir())
    if page is not None and show:
        page.open(None if out is None else out / "report.html")


def _print(result: Audit, data: str, compared: Mapping[str, Audit | None]) -> None:
    """Show what was found, and what would change it."""
    from gradpeel.reporting import summary  # noqa: PLC0415

    Console().print(summary(result, data=data))
    if compared:
        Console().print(described(compared), highlight=False)


def _settings(design: Design) -> dict[str, object]:
    """The settings that only some designs have; null for the others."""
    soliton = getattr(design, "soliton", None)
    return {
        "scale": getattr(design, "scale", None),
        "soliton": None if soliton is None else [soliton.c, soliton.delta],
    }


def _write(
    folder: Path,
    result: Audit,
    dataset: Dataset,
    numbers: dict[str, object],
    page: Report,
    *,
    samples: bool,
) -> None:
    """Write all that belongs to an audit.

    `gradpeel peel` reads the update and the weights back, `gradpeel report` regenerates the page.
    """
    from safetensors.torch import save  # noqa: PLC0415

    from gradpeel.files import write_files  # noqa: PLC0415
    from gradpeel.reporting import save_figures  # noqa: PLC0415
    from gradpeel.update import save_update  # noqa: PLC0415

    (folder / "result.json").write_text(to_json(numbers, indent=2) + "\n", encoding="utf-8")
    save_update(result.update, folder / "update.safetensors")
    state = {name: value.contiguous() for name, value in result.model.state_dict().items()}
    (folder / "model.safetensors").write_bytes(save(state))
    save_figures(result, dataset, folder, samples=samples)
    write_files(folder, page.files())
