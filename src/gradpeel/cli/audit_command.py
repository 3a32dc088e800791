"""`gradpeel audit`: simulate a training round on data you own, and report what it gives away."""

from __future__ import annotations

import webbrowser
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gradpeel.cli.audit_files import Finished, design_settings
from gradpeel.cli.command_line import command_line, is_given
from gradpeel.cli.decoder_options import DataRange, Device, Effort, KnowsTail, LayerName
from gradpeel.cli.loss_options import LossName, LossOptions, ReductionName
from gradpeel.cli.network_options import (
    CheckpointFile,
    CheckpointFiles,
    ModelName,
    NetworkOptions,
)
from gradpeel.cli.output import announce, private_directory, to_json
from gradpeel.cli.parsing import parse_pair, parse_sizes
from gradpeel.cli.training_options import (
    LocalBatchSize,
    LocalEpochs,
    LocalSteps,
    Lr,
    Momentum,
    WeightDecay,
)
from gradpeel.cli.variations import QUICK, SECONDS
from gradpeel.designs.options import DesignName, DesignOptions, InitName, WeightsName
from gradpeel.errors import InputError

__all__ = ["audit_command"]

ATTACK = "The attack"
ROUND = "The training round"
OUTPUT = "Output"
NEW_NETWORK = ("neurons", "tail", "init")
"""Options of a new perceptron; other networks have their own."""


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
            help="A data set or a file of your own. digits, breast_cancer and photos come with "
            "gradpeel. cifar10, cifar100, mnist, emnist, fashion_mnist, svhn, imagenet and harus "
            "are looked up in --data-dir and in the cache, and downloaded otherwise. A file is "
            ".npz (with x_train, y_train and, if you like, x_test, y_test), .csv or .parquet.",
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
    label_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The column of labels of a .csv or .parquet file.",
            show_default="the last one called label, labels, target, targets or y",
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
            help="Draw the batch at random, from the seed; otherwise take the first samples.",
            rich_help_panel=ROUND,
        ),
    ] = False,
    repeats: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of audits, each on a batch drawn at random and, unless weights are given, "
            "on a newly initialised network. The spread is reported, because a single draw may be "
            "an exception.",
            rich_help_panel=ROUND,
        ),
    ] = 1,
    scaling: Annotated[
        ScalingName,
        typer.Option(
            help="How float features are scaled: to 0..1, to mean 0 and deviation 1 (both over the "
            "training split), or not at all. Pixels are always scaled to 0..1.",
            rich_help_panel=ROUND,
        ),
    ] = ScalingName.MINMAX,
    channels_first: Annotated[
        bool,
        typer.Option(
            "--channels-first/--channels-last",
            help="Hand images to the network as (channels, height, width), as PyTorch's "
            "convolutions expect them, or as (height, width, channels).",
            rich_help_panel=ROUND,
        ),
    ] = False,
    model: ModelName = None,
    checkpoint: CheckpointFile = None,
    checkpoints: CheckpointFiles = None,
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
        DtypeName | None,
        typer.Option(
            help="The type in which the client computes. float64 shows how far the attack can go; "
            "most clients send float32.",
            show_default="float64; with --model or a checkpoint, that of the network",
            rich_help_panel=ROUND,
        ),
    ] = None,
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
            help="Weight construction of the designs that have one.",
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
    invert: Annotated[
        bool,
        typer.Option(
            "--invert",
            help="Where feature vectors come back, reconstruct inputs from them and compare these "
            "with the real ones. This takes about a second per picture.",
            rich_help_panel=ATTACK,
        ),
    ] = False,
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
            show_default=f"only for a report, and if decoding took less than {QUICK:g} seconds; "
            f"ends after about {SECONDS:g} seconds",
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

    A client computes the gradient of a network on one batch, or with --lr trains
    the network locally. The network is a new perceptron unless you give one.
    The decoder sees only the network and the update; what it recovers is then
    compared with the batch and with the peeling bound.

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
    gradpeel audit --data people.csv --model mymodule:make_model --repeats 10
    gradpeel audit --data mnist --checkpoints 'run/step-*.safetensors'
    gradpeel audit --data digits --batch-size 16 --tail 400 --layer 3 --invert
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    pair = None if soliton is None else parse_pair("soliton", soliton, example="0.05,0.4")
    options = DesignOptions(design, weights, init, scale, pair)
    minimised = LossOptions(loss, label_smoothing)
    widths = (neurons, *(() if tail is None else parse_sizes("tail", tail)))
    limits = None if data_range is None else parse_pair("data-range", data_range, example="0,1")
    stated = {name: context.params[name] for name in NEW_NETWORK if is_given(context, name)}
    network = NetworkOptions(model, checkpoint, checkpoints, widths, options.network_init, stated)
    several = repeats > 1 or checkpoints is not None
    if with_others and several:
        raise InputError(
            "compare: only a single audit is compared: expected neither repeats nor checkpoints"
        )
    computes_in = dtype or (None if network.is_own else DtypeName.FLOAT64)
    if several or (out is None and not show):
        with_others = bool(with_others)

    with nullcontext() if out is None else private_directory(out) as folder:
        # torch takes a second to import; --help, a wrong option and wrong data need not wait.
        import numpy as np  # noqa: PLC0415

        from gradpeel.cli.audit_run import AuditRun  # noqa: PLC0415
        from gradpeel.datasets import STANDARD, draw_batch, load  # noqa: PLC0415

        # Unshuffled, the batch is the first samples: no need to unpack thousands of photographs.
        is_prefix = data in STANDARD and not shuffle and batch_size > 0 and repeats == 1
        # Before the line of progress, because a download shows its own.
        dataset = load(
            data,
            scaling.value,
            data_dir=data_dir,
            image_size=image_size,
            limit=clients * batch_size * (1 if with_others is False else 2) if is_prefix else None,
            label_column=label_column,
            channels_first=channels_first,
        )
        batch = draw_batch(
            dataset, clients * batch_size, shuffle=shuffle, rng=np.random.default_rng([seed, 1])
        )
        import torch  # noqa: PLC0415

        from gradpeel.attacker import Attacker  # noqa: PLC0415
        from gradpeel.client import Client  # noqa: PLC0415

        client = Client(
            loss=minimised.build(),
            reduction=reduction.value,
            dtype=None if computes_in is None else getattr(torch, computes_in),
            noise=noise,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            local_steps=local_steps,
            local_epochs=local_epochs,
            local_batch_size=local_batch_size,
        )
        attacker = Attacker(
            options.build(batch.auxiliary, keep=network.is_own),
            knows_batch_size=knows_batch_size,
            knows_tail=knows_tail,
            data_range=limits,
            effort=effort,
            layer=layer,
        )
        run = AuditRun(
            dataset,
            network,
            options,
            minimised,
            client,
            attacker,
            clients=clients,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            device=device,
            quiet=quiet,
        )
        if invert:
            run.check_can_invert()
        repeated = run.repeated(repeats) if several else None
        result, compared = (
            run.single(compared=with_others) if repeated is None else (repeated.worst, {})
        )
        inversion = None
        # Recovered samples are inputs already.
        if invert and result.recovery.space == "features":
            known = dataset.is_image or scaling is ScalingName.MINMAX
            inversion = run.invert(result, data_range=(0.0, 1.0) if known else None)
        setting = {
            "model": model,
            "tail": None if network.is_own else list(widths[1:]),
            "scaling": scaling.value,
            "shuffle": shuffle or repeats > 1,
            "label_smoothing": label_smoothing,
            "inversion": None if inversion is None else inversion.as_dict(),
            **design_settings(result.design),
        }
        finished = Finished(
            result, repeated, dataset, compared, setting, command_line(context), samples, inversion
        )
        if folder is not None:
            finished.write(folder)

    if as_json:
        typer.echo(to_json(finished.numbers))
    else:
        Console().print(finished.summary)
    if out is not None and not quiet:
        announce(out / "report.html", out.iterdir())
    if show and out is not None:
        webbrowser.open((out / "report.html").absolute().as_uri())
    elif show:
        finished.page().open()
